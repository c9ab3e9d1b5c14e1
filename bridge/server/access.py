"""API keys, and what a key or a token grants."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from bridge.codec import Scope
from bridge.errors import ErrorCode, RequestError

ALL_ROUTES = frozenset({"*"})
ALL_SCOPES = frozenset(Scope)


@dataclass(frozen=True, slots=True)
class Grant:
    """Scopes on routes, which are named by their mount paths ("*" = all)."""

    routes: frozenset[str] = ALL_ROUTES
    scopes: frozenset[Scope] = ALL_SCOPES

    def opens(self, mounts: Sequence[str]) -> bool:
        """Return whether the grant is for one of the routes at `mounts`."""
        return "*" in self.routes or not self.routes.isdisjoint(mounts)


def check(grants: Sequence[Grant], mounts: Sequence[str], scope: Scope | None, bearer: str) -> None:
    """Check that one of the grants allows `scope` on one of the routes at `mounts`.

    A `scope` of None needs the route alone. `bearer` names what was sent ("API key"). Raises `RequestError`
    (forbidden); a scope that is missing is named in the message and, by RFC 6750, in the header `www-authenticate`.
    """
    opened = [grant for grant in grants if grant.opens(mounts)]
    if grants and not opened:
        raise RequestError(f"This {bearer} does not open this route.", code=ErrorCode.FORBIDDEN)
    if scope is not None and not any(scope in grant.scopes for grant in opened):
        raise RequestError(
            f"This {bearer} does not allow the operation '{scope}'.",
            code=ErrorCode.FORBIDDEN,
            headers={"www-authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'},
        )


@dataclass(frozen=True, slots=True)
class Key:
    """One API key.

    `digest`: its SHA-256; `routes`: the mount paths of the routes that it opens ("*" = all); `not_before`, `expires`:
    seconds since 1970, None = no limit.
    """

    name: str
    digest: bytes = field(repr=False)
    routes: frozenset[str]
    scopes: frozenset[Scope] = ALL_SCOPES
    not_before: float | None = None
    expires: float | None = None

    def refusal(self, now: float) -> str | None:
        """Return why the key is not valid at `now` (seconds since 1970); None: it is."""
        if self.expires is not None and now >= self.expires:
            return "The API key has expired."
        if self.not_before is not None and now < self.not_before:
            return "The API key is not valid yet."
        return None

    def check(self, mounts: Sequence[str], scope: Scope | None) -> None:
        """See `check`."""
        check([Grant(self.routes, self.scopes)], mounts, scope, "API key")


class Keys:
    """The API keys of a server."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._secret = secrets.token_bytes(32)
        self._keys = {self._place(key.digest): key for key in keys}

    def __bool__(self) -> bool:
        return bool(self._keys)

    @staticmethod
    def digest(key: str) -> bytes:
        return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()

    def _place(self, digest: bytes) -> bytes:
        return hmac.digest(self._secret, digest, "sha256")

    def find(self, sent: str) -> Key | None:
        """The key with this text, looked up however many there are.

        What is looked up is made with a secret of this process, so that how long it takes tells nothing: nobody
        outside can choose, or even know, what is compared.
        """
        return self._keys.get(self._place(self.digest(sent)))
