"""API keys, what a key or a token grants, and how a request without it is refused."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from bridge.contract import Scope
from bridge.errors import ErrorCode, Failure, RequestError
from bridge.stores.conversation_store import MAX_KEY, fits


class Reason(StrEnum):
    """Why a request was refused, as the audit log and the metrics name it. A closed list."""

    NO_KEY = "no_key"
    """The request has no key, token or user name."""
    UNKNOWN_KEY = "unknown_key"
    """The key is not configured, or is not a key for this endpoint."""
    KEY_EXPIRED = "key_expired"
    """The key has expired."""
    KEY_NOT_YET_VALID = "key_not_yet_valid"
    """The key is not valid yet."""
    INVALID_TOKEN = "invalid_token"
    """Neither a known key nor a valid token: wrong form, signature, time, audience or issuer."""
    INVALID_USER = "invalid_user"
    """The user name in the token or from the proxy is not valid."""
    UNTRUSTED_PROXY = "untrusted_proxy"
    """The header with the user name does not come from a trusted proxy, or is repeated."""
    ROUTE = "route"
    """The key or token does not open the route."""
    OPERATION = "operation"
    """The key or token does not allow the operation."""
    MODEL = "model"
    """The key does not allow the model."""
    FORBIDDEN = "forbidden"
    """Any other refusal: data of another user, an invalid signed URL, a page of another site."""


@dataclass(slots=True)
class AuthFailure(Failure):
    """A failure with its details for the audit log. `user`: the owner of the key or token, if known."""

    reason: Reason = Reason.FORBIDDEN
    user: str | None = None


def refused(
    message: str,
    reason: Reason,
    *,
    code: ErrorCode = ErrorCode.FORBIDDEN,
    user: str | None = None,
    headers: dict[str, str] | None = None,
) -> RequestError:
    """Return the error of a refusal (unauthorized or forbidden)."""
    error = RequestError(message)
    error.failure = AuthFailure(code, message, headers=headers or {}, reason=reason, user=user)
    return error


def unauthorized(message: str, reason: Reason, user: str | None = None) -> RequestError:
    """Return the 401 for a request without a user. Every dialect passes its header on."""
    return refused(message, reason, code=ErrorCode.UNAUTHORIZED, user=user, headers={"www-authenticate": "Bearer"})


ALL_ROUTES = frozenset({"*"})
ALL_SCOPES = frozenset(Scope)


@dataclass(frozen=True, slots=True)
class Grant:
    """Scopes on routes, which are named by their mount paths ("*" = all)."""

    routes: frozenset[str] = ALL_ROUTES
    scopes: frozenset[Scope] = ALL_SCOPES


def check(grants: Sequence[Grant], mounts: Sequence[str], scope: Scope | None, bearer: str, user: str) -> None:
    """Check that one of the grants allows `scope` on one of the routes at `mounts`.

    A `scope` of None needs the route alone. `bearer` names what was sent ("API key") by `user`. Raises `RequestError`
    (forbidden); a scope that is missing is named in the message and, by RFC 6750, in the header `www-authenticate`.
    """
    opened = [grant for grant in grants if "*" in grant.routes or not grant.routes.isdisjoint(mounts)]
    if grants and not opened:
        raise refused(f"This {bearer} does not open this route.", Reason.ROUTE, user=user)
    if scope is not None and not any(scope in grant.scopes for grant in opened):
        raise refused(
            f"This {bearer} does not allow the operation '{scope}'.",
            Reason.OPERATION,
            user=user,
            headers={"www-authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'},
        )


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a user may use; None = as `server.limits.per_key` says, or any model."""

    requests_per_minute: int | None = None
    requests_per_day: int | None = None
    tokens_per_day: int | None = None
    models: tuple[str, ...] | None = None

    def allows(self, model: str) -> bool:
        """Return whether requests may name this model."""
        return self.models is None or any(fnmatchcase(model, pattern) for pattern in self.models)


@dataclass(frozen=True, slots=True)
class Key:
    """One API key.

    `digest`: its SHA-256; `routes`: the mount paths of the routes that it opens ("*" = all); `not_before`, `expires`:
    seconds since 1970, None = no limit. `allowance` is that of its user, however the user is identified.
    """

    name: str
    digest: bytes = field(repr=False)
    routes: frozenset[str]
    scopes: frozenset[Scope] = ALL_SCOPES
    not_before: float | None = None
    expires: float | None = None
    allowance: Allowance | None = None

    def check_time(self, now: float) -> None:
        """Check that the key is valid at `now` (seconds since 1970). Raises `RequestError` (unauthorized)."""
        if self.expires is not None and now >= self.expires:
            raise unauthorized("The API key has expired.", Reason.KEY_EXPIRED, self.name)
        if self.not_before is not None and now < self.not_before:
            raise unauthorized("The API key is not valid yet.", Reason.KEY_NOT_YET_VALID, self.name)

    def check(self, mounts: Sequence[str], scope: Scope | None) -> None:
        """See `check`."""
        check([Grant(self.routes, self.scopes)], mounts, scope, "API key", self.name)


class Keys:
    """The API keys of a server."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._secret = secrets.token_bytes(32)
        self._keys = {self._place(key.digest): key for key in keys}
        self.allowances = {key.name: key.allowance for key in keys if key.allowance is not None}
        """By the names of the keys that have one."""

    def __bool__(self) -> bool:
        return bool(self._keys)

    @staticmethod
    def digest(key: str) -> bytes:
        return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()

    def _place(self, digest: bytes) -> bytes:
        return hmac.digest(self._secret, digest, "sha256")

    def find(self, sent: str) -> Key | None:
        """Return the key with this text, in constant time whatever the number of keys.

        The lookup is by a digest made with a secret of this process, so that its duration reveals nothing: no client
        can choose or know what is compared.
        """
        return self._keys.get(self._place(self.digest(sent)))


def checked_user(name: str, where: str) -> str:
    """Return the user name that came from `where`. Raises `RequestError` (unauthorized) for one that is not valid."""
    if not name or not name.isprintable() or not fits(name):
        words = f"{where} is not a valid user name: expected 1 to {MAX_KEY} bytes of printable characters."
        raise unauthorized(words, Reason.INVALID_USER)
    return name
