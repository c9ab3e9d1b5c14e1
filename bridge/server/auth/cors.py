"""Protection of the server against web pages: the `Host` it is called by, and the origins that may call it (CORS).

A browser sends requests for any page to any address, loopback included. CORS alone only hides responses: a request that
needs no preflight is served all the same. So requests of pages that are not allowed are refused before they run.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from multidict import CIMultiDict, istr

from bridge.contract import Operation
from bridge.engine.config.kinds import is_loopback
from bridge.errors import ErrorCode, RequestError

if TYPE_CHECKING:
    from bridge.engine.config import ServerSection

PRIVATE_OPERATIONS = frozenset(
    {
        Operation.ATTACH,
        Operation.CANCEL,
        Operation.CONNECT,
        Operation.DELETE,
        Operation.HISTORY,
        Operation.ITEMS,
        Operation.RETRIEVE,
        Operation.SIGN,
        Operation.STATUS,
        Operation.SUBSCRIBE,
        Operation.TOOLS,
    }
)
"""Operations on what the server keeps, and calls of tools. Only origins that `server.cors.origins` names may call them.
"""

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
PREFLIGHT = istr("access-control-request-method")
"""The header that tells a browser's CORS preflight from other requests of `OPTIONS`."""
_FETCH = tuple(map(istr, ("sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest", "sec-fetch-user")))
"""Headers by which browsers describe a request (Fetch Metadata). Pages can neither set nor leave them out."""
_PRIVATE = frozenset({"internal", "local", "localhost"})
"""Top-level domains for private use: RFC 6761, RFC 6762, and ICANN's resolution 2024.07.29.06."""
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_EXPOSED = (
    "Mcp-Session-Id, X-Request-Id, Request-Id, X-Bridge-Lost, X-Bridge-Estimated, Retry-After, Retry-After-Ms, "
    "X-RateLimit-Remaining-Requests"
)
_PREFLIGHT = "Access-Control-Request-Method, Access-Control-Request-Headers, Access-Control-Request-Private-Network"


class OriginPolicy:
    """Checks requests against the hosts and origins of the configuration; `*` admits every page to what keeps nothing.

    `hosts`: the names under which the server may be called, None for any. `may_have_address`: also IP addresses, and
    names that nobody can register. A browser can be led here under any other name (DNS rebinding), which matters where
    a caller needs no key.
    """

    def __init__(self, server: ServerSection, *, on_loopback: bool = False) -> None:
        origins = server.cors.origins
        self.hosts: Collection[str] | None = server.known_hosts
        self.may_have_address = server.hosts is None and not on_loopback
        self._any = "*" in origins
        # Any page can get the origin `null` from a sandboxed frame, so that naming it opens no more than `*` does.
        self._named = frozenset(origin.lower() for origin in origins) - {"*", "null"}
        self._admits_null = self._any or "null" in origins
        self._public = _authority(server.public_url) if server.public_url else None
        self._is_local = is_loopback(server.host)

    def check_host(self, http: web.Request) -> None:
        """Raises `RequestError` (421) for a request that came under another name than the server's."""
        if self.hosts is None:
            return
        hosts = http.headers.getall(hdrs.HOST, [])
        # HTTP/1.0 may leave it out; no browser does.
        if len(hosts) > 1 or (hosts and (name := _name(hosts[0])) not in self.hosts and not self._is_local_name(name)):
            raise RequestError(
                "This server does not accept this Host (server.hosts, server.public_url).",
                code=ErrorCode.FORBIDDEN,
                status=421,
            )

    def initiator_of(self, http: web.Request) -> Initiator | None:
        """Return the page for which a browser sent a request; None for a program.

        Raises `RequestError` (forbidden) for a page whose origin may not call the server.
        """
        headers = http.headers
        if hdrs.ORIGIN not in headers and not any(map(headers.__contains__, _FETCH)):
            return None
        site = headers.get("sec-fetch-site")
        if "origin" not in headers:
            foreign = site not in (None, "same-origin", "none")
            if foreign and http.method not in _SAFE:
                raise _forbidden("A page of another site sent this request without an Origin.")
            return Initiator(None, is_foreign=foreign, may_read=False)
        sent = headers.getall("origin")
        origin = sent[0] if len(sent) == 1 else ""
        named = origin.lower() in self._named
        own = site in ("same-origin", "none") or _authority(origin) in {headers.get("host", "").lower(), self._public}
        foreign = not (named or own)
        if foreign and not (self._admits_null if origin == "null" else self._any):
            raise _forbidden(f"Pages of {origin[:100]!r} may not call this server (server.cors.origins).")
        return Initiator(origin, is_foreign=foreign, may_read=named or self._any or not own)

    def _is_local_name(self, name: str) -> bool:
        return self.may_have_address and bool(name) and (_is_address(name) or _is_private(name))

    def check_endpoint(self, initiator: Initiator, *, private: bool, local: bool = False) -> None:
        """Raises `RequestError` (forbidden) for a page that may not call this endpoint; `private`: its operation is one
        of `PRIVATE_OPERATIONS`.

        `local`: programs of the same machine may call it with the origin of their own page, if the server is on
        loopback.
        """
        origin = initiator.origin
        if private and not (local and self._is_local and is_loopback(_host(origin or ""))):
            initiator.check_named()
        elif origin is None and initiator.is_foreign and not self._any:
            raise _forbidden("A page of another site may not call this server (server.cors.origins).")

    def add_headers(
        self, http: web.Request, initiator: Initiator | None, headers: CIMultiDict[str], *, is_preflight: bool
    ) -> None:
        """Adds the CORS headers of a response."""
        if not (self._any or self._named or self._admits_null):
            return
        varies = f"Origin, {_PREFLIGHT}" if is_preflight else "Origin"
        headers[hdrs.VARY] = f"{headers[hdrs.VARY]}, {varies}" if hdrs.VARY in headers else varies
        if initiator is None or initiator.origin is None or not initiator.may_read:
            return
        origin = initiator.origin
        named = origin.lower() in self._named
        headers["access-control-allow-origin"] = origin
        if named:
            # Cookies, client certificates and passwords of a proxy in front are the visitor's, not the page's.
            headers["access-control-allow-credentials"] = "true"
        headers["access-control-expose-headers"] = _EXPOSED
        if is_preflight:
            headers["access-control-allow-methods"] = http.headers[PREFLIGHT]
            headers["access-control-allow-headers"] = http.headers.get("access-control-request-headers", "*")
            headers["access-control-max-age"] = "600"
            if named and "access-control-request-private-network" in http.headers:
                headers["access-control-allow-private-network"] = "true"


@dataclass(slots=True)
class Initiator:
    """The page for which a browser sent a request.

    Attributes:
        origin: Its origin; None if the browser does not name it, as for a plain link.
        is_foreign: The configuration does not name its origin, and it is none of the server's own.
        may_read: It may read the response.
    """

    origin: str | None
    is_foreign: bool
    may_read: bool

    def check_named(self) -> None:
        """Raise `RequestError` (forbidden) for a page whose origin is not named: it may not reach what is kept."""
        if self.is_foreign:
            self.may_read = False
            raise _forbidden("Pages of this origin may not read stored data; name the origin in server.cors.origins.")

    def check_json(self, http: web.Request) -> None:
        """Raise `RequestError` (415) for a body that is not declared as JSON.

        Bodies of such types are sent without a preflight. Clients other than pages may leave the type out, as
        `curl -d` does.
        """
        if http.can_read_body and not is_json(http):
            raise RequestError("Expected a body of content-type application/json.", status=415, param="content-type")


def is_json(http: web.Request) -> bool:
    """Return whether the body is declared as JSON, which pages cannot send without a preflight."""
    declared = http.content_type
    return declared == "application/json" or declared.endswith("+json")


def _authority(url: str) -> str:
    """Host and port as a `Host` header names them; empty for `null` and what is no URL."""
    try:
        parts = urlsplit(url.lower())
    except ValueError:
        return ""
    return parts.netloc.removesuffix(_DEFAULT_PORTS.get(parts.scheme, "-")) or "-"


def _host(origin: str) -> str:
    """The host name of an origin; empty for what is no URL."""
    try:
        return urlsplit(origin.lower()).hostname or ""
    except ValueError:
        return ""


@lru_cache(maxsize=64)
def _name(host: str) -> str:
    """The host name in a `Host` header."""
    name, colon, port = host.strip().lower().rpartition(":")
    if not colon or host.endswith("]"):
        name = host.strip().lower()
    elif not (port.isascii() and port.isdigit()):
        return ""
    return name.removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _is_private(name: str) -> bool:
    """Return whether nobody can register this name: one without a dot, or below a domain for private use."""
    return name.rpartition(".")[2] in _PRIVATE or ("." not in name and ":" not in name)


def _forbidden(message: str) -> RequestError:
    return RequestError(message, code=ErrorCode.FORBIDDEN)
