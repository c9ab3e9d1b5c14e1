"""Identifies the user of a request, once, before anything else is done with it.

That user owns everything that the request creates: conversations, runs, files. Users have one name space, whether a
key, a signed token or a proxy names them. Errors never repeat the credentials of a request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

from aiohttp import web
from multidict import MultiMapping

from bridge.contract import Scope
from bridge.engine.config.kinds import UNIX
from bridge.server.auth.api_keys import Allowance, Grant, Key, Keys, Reason, check, checked_user, unauthorized

if TYPE_CHECKING:
    from bridge.engine.config import ApiKeySection, AuthSection, Config, JwtSection
    from bridge.server.auth.tokens import JwtVerifier

QUERY_TOKEN = "access_token"
"""The query parameter that may carry a key where an endpoint and its route let it: EventSource sends no headers."""
_KEY_HEADERS = ("x-api-key", "api-key", "x-goog-api-key")  # Anthropic's spelling, Azure's of OpenAI's, and Google's


@dataclass(frozen=True, slots=True)
class Visit:
    """The credentials of a request, whatever carried it. `address` is the IP address of the connection's peer."""

    headers: MultiMapping[str]
    address: str | None = None
    query_token: str = ""

    @property
    def key(self) -> str:
        """The key or token that was sent, in any of its spellings; empty = none. The only place that knows them."""
        scheme, _, token = self.headers.get("authorization", "").strip().partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return token.strip()
        named = (self.headers.get(name, "").strip() for name in _KEY_HEADERS)
        return next(filter(None, named), self.query_token)


def visit_of(http: web.Request, query_key: str = "") -> Visit:
    """`query_key`: the query parameter in which a key counts, too."""
    return Visit(http.headers, http.remote, http.query.get(query_key, "").strip() if query_key else "")


@dataclass(frozen=True, slots=True)
class Principal:
    """The sender of a request, and the grants of its key or token; None = it may do everything."""

    user: str
    grants: Sequence[Grant] | None = None
    bearer: str = ""

    def check(self, mounts: Sequence[str], scope: Scope | None) -> None:
        """Check that the caller may do this on one of the routes at `mounts`. Raises `RequestError` (forbidden)."""
        if self.grants is not None:
            check(self.grants, mounts, scope, self.bearer, self.user)


class Proxy:
    """A proxy in front that names the user in a header. From any other address the header is an attempt to cheat."""

    def __init__(self, header: str, networks: Sequence[str]) -> None:
        self._header = header
        self._networks: list[IPv4Network | IPv6Network] = [ip_network(each) for each in networks if each != UNIX]
        self._trusts_unix = UNIX in networks

    def user(self, visit: Visit) -> str | None:
        """The user, None when the header is absent or empty. Raises `RequestError` (unauthorized)."""
        sent = visit.headers.getall(self._header, [])
        if not any(value.strip() for value in sent):
            return None
        if not self._trusts(visit.address):
            text = f"The header {self._header} is not accepted from this address (server.auth.trusted_proxies)."
            raise unauthorized(text, Reason.UNTRUSTED_PROXY)
        if len(sent) > 1:
            # Proxies that append instead of replacing leave the client's own line in front of theirs.
            raise unauthorized(f"The header {self._header} was sent more than once.", Reason.UNTRUSTED_PROXY)
        return checked_user(sent[0].strip(), f"The header {self._header}")

    def _trusts(self, address: str | None) -> bool:
        if not address:
            return self._trusts_unix
        try:
            peer = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(peer, IPv6Address) and peer.ipv4_mapped is not None:
            peer = peer.ipv4_mapped
        return any(peer in network for network in self._networks)


class Identity:
    """All authentication methods of a server. Without any, anyone may call, and all are the same user."""

    def __init__(
        self,
        keys: Sequence[Key] = (),
        *,
        tokens: JwtVerifier | None = None,
        proxy: Proxy | None = None,
        open: bool = False,
        reserved: str | None = None,
    ) -> None:
        """`reserved`: the name of a user whom neither tokens nor the proxy may name."""
        self._keys = Keys(keys)
        self.allowance: Callable[[str], Allowance | None] = self._keys.allowances.get
        """Returns what a user may use, if a key says so."""
        self._tokens = tokens
        self._proxy = proxy
        self.is_open = open
        """Every caller is let in, as the same user."""
        self._reserved = reserved

    @classmethod
    def of(cls, auth: AuthSection | None, page_key: Key | None = None) -> Identity:
        """Return the methods that `server.auth` describes; the page's key is added if keys are required.

        Raises `ConfigError` for a token method whose packages are not installed.
        """
        if auth is None or auth.is_none:
            return cls(open=True)
        keys = [key_of(section) for section in auth.keys or ()]
        keys += [page_key] if page_key is not None else []
        proxy = Proxy(auth.trusted_header, auth.trusted_proxies) if auth.trusted_header else None
        tokens = _tokens(auth.jwt) if auth.jwt else None
        reserved = page_key.name if page_key is not None else None
        return cls(keys, tokens=tokens, proxy=proxy, reserved=reserved)

    @property
    def may_have_allowances(self) -> bool:
        """True if users may have allowances of their own."""
        return bool(self._keys.allowances)

    async def user(self, visit: Visit, *mounts: str, scope: Scope | None = None) -> str:
        """Return the user who requests `scope` on the route at `mounts`, or on any of several; "" without users.

        Keys and tokens must grant the scope; a proxy's users may do everything. Raises `RequestError` (unauthorized,
        forbidden), `BackendError` when a token cannot be checked now.
        """
        if self.is_open:
            return ""
        caller = await self.caller(visit)
        caller.check(mounts, scope)
        return caller.user

    async def caller(self, visit: Visit) -> Principal:
        """Return who sent a request, whatever it asks for. Raises what `user` raises, but for forbidden."""
        if self.is_open:
            return Principal("")
        named = self._proxy.user(visit) if self._proxy is not None else None
        if named is not None:
            return Principal(self._anybody_else(named))
        sent = visit.key
        if not sent:
            raise unauthorized(self._what_is_needed(), Reason.NO_KEY)
        key = self._key(sent)
        if key is not None:
            return Principal(key.name, (Grant(key.routes, key.scopes),), "API key")
        if self._tokens is not None:
            bearer = await self._tokens.bearer(sent)
            return Principal(self._anybody_else(bearer.user), bearer.grants, "token")
        raise unauthorized("The API key is unknown.", Reason.UNKNOWN_KEY)

    def _anybody_else(self, name: str) -> str:
        if name == self._reserved:
            words = "This name belongs to the user of the page, whom only server.page_key identifies."
            raise unauthorized(words, Reason.INVALID_USER)
        return name

    def _key(self, sent: str) -> Key | None:
        """The key that was sent; None for an unknown one. Raises `RequestError` when it is not valid at this time."""
        key = self._keys.find(sent)
        if key is not None:
            key.check_time(time.time())
        return key

    async def check_operator(self, visit: Visit, path: str) -> None:
        """Check that a request may read the metrics at `path`: with a key that allows it, or without authentication.

        Tokens and proxies name users, who may not. Raises `RequestError` (unauthorized, forbidden).
        """
        if self.is_open:
            return
        key = self._key(visit.key) if visit.key else None
        if key is None:
            reason = Reason.UNKNOWN_KEY if visit.key else Reason.NO_KEY
            raise unauthorized("A key of server.auth.keys is needed: send it as 'Authorization: Bearer <key>'.", reason)
        key.check([path], Scope.METRICS)

    def _what_is_needed(self) -> str:
        if not self._keys and self._tokens is None:
            return "The request does not come through the proxy that names its user."
        what = "An API key" if self._keys else "A token"
        return f"{what} is needed: send it as 'Authorization: Bearer <key>' or 'x-api-key: <key>'."

    async def close(self) -> None:
        """Closes connections to where the keys of tokens are fetched from."""
        if self._tokens is not None:
            await self._tokens.close()


def key_of(section: ApiKeySection) -> Key:
    """Return the key that a section of the configuration describes."""
    return Key(
        section.name,
        bytes.fromhex(section.digest),
        frozenset(section.routes),
        section.scopes,
        section.not_before,
        section.expires,
        _allowance(section),
    )


def _allowance(section: ApiKeySection) -> Allowance | None:
    if section.limits is None and section.models is None:
        return None
    limits = {} if section.limits is None else section.limits.model_dump()
    return Allowance(**limits, models=section.models)


def _tokens(section: JwtSection) -> JwtVerifier:
    # The package is small, but a server without tokens has no use for it.
    from bridge.server.auth.tokens import JwtVerifier

    return JwtVerifier(section)


def page_key_of(config: Config) -> Key | None:
    """Return the page's key in the form of the server's keys; None if it has none of its own."""
    given = config.server.page_key
    if given is None or not config.server.has_page:
        return None
    return Key("page", Keys.digest(given.get_secret_value()), frozenset("*"))
