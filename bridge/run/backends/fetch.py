"""Calls to URLs that clients chose, at hosts that the configuration names and no others; and media fetched so.

Such URLs are untrusted. Only allowed hosts are called, at addresses of the public internet, checked when connecting (a
name that is resolved twice can change in between). No redirects, no cookies, none of the
bridge's keys; limits of size and time. Where the environment names a proxy, that resolves the names: then what can be
resolved here is checked, and nothing else.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from bridge.contract import Capabilities, Feature, Support
from bridge.errors import ErrorCode, RequestError
from bridge.model import Inline, Media, Message, Part, Request, ToolResult, Url
from bridge.model.error_paths import place_of
from bridge.run.backends.lookups import Lookups, Resolver
from bridge.run.backends.proxies import proxy_for

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MOST = 20 * 2**20
"""Bytes of all media of one request together."""
TIME = 15.0
"""Seconds for all media of one request together."""
_PIECE = 2**16
_MOST_LOOKUPS = 32
"""Names that clients chose that are looked up at once."""
_NAT64 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
_UNICAST = ipaddress.ip_network("2000::/3")
"""The only IPv6 addresses that IANA gives to the public internet."""
_RESERVED = tuple(
    map(
        ipaddress.ip_network,
        # Ranges that Python knows only since 3.12 or 3.13: IETF protocol assignments, of which one cloud serves its
        # metadata; relays of 6to4; documentation.
        ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20"),
    )
)
_HOSTS_OWN = frozenset({ipaddress.ip_address("168.63.129.16")})
"""Addresses of the public internet by number at which a cloud serves its machines their settings (Azure)."""


def is_public(address: Address) -> bool:
    """Return whether an address belongs to the public internet, whatever form it is written in, by the registries of
    special-purpose addresses of IANA (RFC 6890) and whatever version of Python runs.

    An IPv6 address that embeds an IPv4 one (mapped, compatible, 6to4, Teredo, NAT64) is treated as that.
    """
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address.teredo is not None:
            inner = address.teredo[1]
        if inner is None and any(address in network for network in _NAT64):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is None and int(address) >> 32 == 0:
            inner = ipaddress.IPv4Address(int(address))
        if inner is not None:
            return is_public(inner)
        if address not in _UNICAST:
            return False
    if address in _HOSTS_OWN or any(address in network for network in _RESERVED):
        return False
    return address.is_global and not address.is_multicast


class OutsideClient:
    """Calls URLs that clients chose. `hosts`: names, `*.name` for every name below, `:port` where it is not the
    scheme's own. `connections` is how many are open at once, 0 is no limit; `keep_alive`: they are used again. `start`
    before use, `close` after.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        permit: Callable[[Address], bool] | None = None,
        resolver: AbstractResolver | None = None,
        connections: int = 100,
        keep_alive: bool = False,
    ) -> None:
        self._connections = connections
        self._keep_alive = keep_alive
        self._hosts = [host.lower() for host in hosts]
        self._permit = permit or is_public
        self._resolver = resolver or Resolver(Lookups(_MOST_LOOKUPS))
        self._checked = _Checked(self._resolver, self._permit)
        self._direct: aiohttp.ClientSession | None = None
        self._proxied: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        self._direct = self._session(self._checked)
        self._proxied = self._session(Resolver())

    def _session(self, resolver: AbstractResolver) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=self._connections,
            resolver=resolver,
            use_dns_cache=False,
            force_close=not self._keep_alive,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            headers={"accept-encoding": "identity", "user-agent": "dialect-bridge"},
        )

    async def close(self) -> None:
        for session in (self._direct, self._proxied):
            if session is not None:
                await session.close()
        self._direct = self._proxied = None

    def allows(self, url: str) -> bool:
        """Return whether the URL is one of http or https, without a user, at a host that is allowed."""
        if not url.isprintable() or url != url.strip():
            return False
        try:
            address = URL(url)
            host, port = (address.raw_host or "").lower(), address.explicit_port
            _ = address.host  # raises ValueError for invalid international names
        except ValueError:
            return False
        if address.scheme not in ("http", "https") or not host or address.user is not None:
            return False
        usual = port is None or port == (443 if address.scheme == "https" else 80)
        names = {host, f"{host}:{port}"} if usual else {f"{host}:{port}"}
        return any(fnmatchcase(name, pattern) for name in names for pattern in self._hosts)

    def may_call(self, url: str) -> bool:
        """Return whether the URL is allowed; its host, if it is an address, has to be one that may be called."""
        if not self.allows(url):
            return False
        literal = _literal(URL(url).host or "")
        return literal is None or self._permit(literal)

    @asynccontextmanager
    async def call(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Give the response. Raises `CallFailed` where none comes, and for one that breaks off inside the block."""
        assert self._direct is not None, "start() comes before calls"
        assert self._proxied is not None
        try:
            address = URL(url)
            if (literal := _literal(address.host or "")) is not None and not self._permit(literal):
                raise _Refused
            proxy = proxy_for(address)
            if proxy is not None and literal is None:
                await self._check_if_known(address)
            session = self._direct if proxy is None else self._proxied
            async with session.request(
                method, address, headers=headers, data=body, allow_redirects=False, proxy=proxy
            ) as response:
                yield response
        except _Refused:
            raise CallFailed("its address is not public", refused=True) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if _caused_by_refusal(error):
                raise CallFailed("its address is not public", refused=True) from None
            raise CallFailed("its server could not be reached") from None

    async def _check_if_known(self, address: URL) -> None:
        """Raise `_Refused` for a host name that is known here, and has an address that must not be called."""
        try:
            await self._checked.resolve(address.host or "", address.port or 0, socket.AF_UNSPEC)
        except _Refused:
            raise
        except OSError:
            pass  # where only the proxy leads out, often only the proxy knows the names


class CallFailed(Exception):
    """A call that has no response. `refused`: its address must not be called, so that no repetition helps."""

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refused = refused


class Fetcher(OutsideClient):
    """Puts bytes in the place of URLs."""

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        permit: Callable[[Address], bool] | None = None,
        resolver: AbstractResolver | None = None,
        most: int = MOST,
        time: float = TIME,
        charge: Callable[[str, int], None] = lambda url, size: None,
    ) -> None:
        """`charge` is called with each URL and the bytes to be held, before they are read. What it raises ends the
        request.
        """
        super().__init__(hosts, permit=permit, resolver=resolver)
        self._charge = charge
        self._most = most
        self._time = time

    async def request(self, request: Request, capabilities: Capabilities) -> Request:
        """Return the request with bytes for the URLs that a backend with these capabilities takes only as bytes.

        URLs of hosts that are not allowed stay, and the backend's dialect handles them. Raises `RequestError`
        (invalid_request), with the part's path, for an allowed URL that cannot be fetched.
        """
        wanted = {
            part.source.url: part
            for message in request.messages
            for part in _media(message.parts)
            if isinstance(part.source, Url) and _needs_bytes(part, capabilities) and self.allows(part.source.url)
        }
        if not wanted:
            return request
        try:
            async with asyncio.timeout(self._time):
                found = await self._all(wanted, request.messages)
        except TimeoutError:
            raise RequestError(
                f"The media of this request could not be fetched within {self._time:g} seconds.", param="messages"
            ) from None

        def inline(part: Part) -> Part:
            if isinstance(part, ToolResult):
                return replace(part, parts=[inline(p) for p in part.parts])
            if not isinstance(part, Media) or not isinstance(part.source, Url) or not _needs_bytes(part, capabilities):
                return part
            had = found.get(part.source.url)
            return part if had is None else replace(part, source=had[0], mime=part.mime or had[1])

        return replace(request, messages=[replace(m, parts=[inline(p) for p in m.parts]) for m in request.messages])

    async def _all(self, wanted: dict[str, Media], messages: list[Message]) -> dict[str, tuple[Inline, str | None]]:
        found, left = {}, self._most
        for url, part in wanted.items():
            try:
                data, mime = await self._one(url, left)
            except _Unfetched as error:
                path, name = place_of(messages, part)
                raise RequestError(f"{name}: {error}", code=error.code, param=path) from None
            left -= len(data)
            found[url] = Inline(base64.b64encode(data).decode()), mime
        return found

    async def _one(self, url: str, left: int) -> tuple[bytes, str | None]:
        try:
            async with self.call("GET", url) as response:
                if response.status != 200:
                    raise _failed(f"its server answered {response.status}")
                if (response.content_length or 0) > left:
                    raise _too_big(self._most)
                self._charge(url, response.content_length or 0)
                data = bytearray()
                async for piece in response.content.iter_chunked(_PIECE):
                    if len(data) + len(piece) > left:
                        raise _too_big(self._most)
                    self._charge(url, len(data) + len(piece))
                    data += piece
                mime = response.content_type if "content-type" in response.headers else None
                return bytes(data), mime
        except CallFailed as error:
            raise _failed(error.reason) from None


class _Refused(OSError):
    """An address that must not be called."""


class _Checked(AbstractResolver):
    """Looks a name up once and gives only addresses that may be called: what is checked is what is connected to."""

    def __init__(self, inner: AbstractResolver, permit: Callable[[Address], bool]) -> None:
        self._inner = inner
        self._permit = permit

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        # One private address among public ones is a trap, not a choice.
        if not found or not all(self._permit(ipaddress.ip_address(f["host"].partition("%")[0])) for f in found):
            raise _Refused
        return found

    async def close(self) -> None:
        await self._inner.close()


def _needs_bytes(media: Media, capabilities: Capabilities) -> bool:
    by_url, inline = Feature(f"{media.kind}_url"), Feature(f"{media.kind}_inline")
    return capabilities.request(by_url) is not Support.EXACT and capabilities.request(inline) is Support.EXACT


def _media(parts: Sequence[Part]) -> Iterator[Media]:
    """The media of a message, those in results of tools too."""
    for part in parts:
        if isinstance(part, Media):
            yield part
        elif isinstance(part, ToolResult):
            yield from _media(part.parts)


def _literal(host: str) -> Address | None:
    """Return the address in a host, if it is one: such a host is not resolved."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def _caused_by_refusal(error: BaseException | Any) -> bool:
    while error is not None:
        if isinstance(error, _Refused):
            return True
        error = getattr(error, "os_error", None) or error.__cause__
    return False


class _Unfetched(Exception):
    """Why a medium was not fetched, as a sentence."""

    def __init__(self, why: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(why)
        self.code = code


def _failed(why: str) -> _Unfetched:
    # The message is the same for every private name: a client must not explore the network by it.
    return _Unfetched(f"a URL of this message could not be fetched: {why}.")


def _too_big(most: int) -> _Unfetched:
    return _Unfetched(f"the media of this request are more than {most} bytes.", ErrorCode.TOO_LARGE)
