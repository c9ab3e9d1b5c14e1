"""Small requests over aiohttp's connections, without what its session does for requests of all kinds.

For each request a session sees to redirects, cookies, proxies, traces, forms and bodies of unknown length, and sends
the body from a task of its own in a second write: a sixth of the CPU time of a short stream. A backend gets a few
headers and a body that is all there. Finding a connection, TLS, parsing and reading stay aiohttp's, by names without an
underscore. What does not fit is the session's, as is all while somebody listens there: traces, and tests that mock it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import aiohttp.client
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from bridge.codec import WireRequest

if TYPE_CHECKING:
    from aiohttp.connector import Connection
    from aiohttp.http import RawResponseMessage
    from aiohttp.streams import StreamReader

_SMALL = 64 * 1024
"""Bytes of a body that goes with its head; who sends a longer one may have to wait for a slow backend."""
_HTTPS_OWN = re.compile(r"^(?:host|connection|content-length|transfer-encoding|expect):", re.I | re.M)
"""Headers that change how a request is sent."""
_ACCEPT = re.compile(r"^accept:", re.I | re.M)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_FEW = 64  # addresses; those with ids in them are not worth remembering


def _of_aiohttp(function: object) -> bool:
    return getattr(getattr(function, "__code__", None), "co_filename", "") == aiohttp.client.__file__


_REQUEST = aiohttp.ClientSession._request
_KNOWN = _of_aiohttp(_REQUEST)


@dataclass(frozen=True, slots=True)
class _Address:
    """`asked`: what aiohttp finds a connection by; never sent. `first`: the first lines of each head."""

    asked: aiohttp.ClientRequest
    first: str

    @classmethod
    def of(cls, url: URL, session: aiohttp.ClientSession) -> _Address | None:
        """None for an address that is more than a place, and for those that nobody can ask."""
        if url.scheme not in ("http", "https") or not url.raw_host or url.raw_user or url.raw_password:
            return None
        asked = aiohttp.ClientRequest("POST", url, loop=asyncio.get_running_loop(), session=session)
        return cls(asked, f"POST {url.raw_path_qs} HTTP/1.1\r\nhost: {asked.headers['host']}\r\n")

    def head(self, headers: Mapping[str, str]) -> bytes | None:
        """All but the length of the body. Raises `ValueError` for what no head may hold."""
        lines = "\n".join([f"{name}: {value}" for name, value in headers.items()])
        if lines.count("\n") >= len(headers) or _CONTROL.search(lines):
            raise ValueError("a header holds a control character")
        if _HTTPS_OWN.search(lines):
            return None
        accepts = "" if _ACCEPT.search(lines) else "accept: */*\r\n"
        return (self.first + accepts + lines.replace("\n", "\r\n") + "\r\n").encode()


class Response:
    """See `Answer`; the connection goes back by itself when all has come, as with aiohttp's."""

    __slots__ = ("_connection", "content", "headers", "status")

    def __init__(self, connection: Connection, message: RawResponseMessage, content: StreamReader) -> None:
        self._connection: Connection | None = connection
        self.status = message.code
        self.headers = message.headers
        self.content = content
        content.on_eof(self._ended)

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def _ended(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.release()

    def release(self) -> None:
        """Lets go of the connection, which is used again if all of the answer has come."""
        self._cut()
        self._ended()

    def close(self) -> None:
        self._cut()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _cut(self) -> None:
        """Who still reads is told: a connection that was closed from here says nothing any more."""
        if not self.content.is_eof() and self.content.exception() is None:
            self.content.set_exception(aiohttp.ClientConnectionError("The answer was closed while it was read."))

    async def __aenter__(self) -> Response:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()


class Direct:
    """Asks with the connections of one session."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._known: dict[str, _Address | None] = {}

    async def ask(self, wire: WireRequest, url: URL) -> Response | None:
        """The head of the answer; None when the request is for the session.

        Raises what the session raises, and `ValueError` for a header that cannot be sent.
        """
        address = self._fits(wire, url)
        if address is None:
            return None
        head = address.head(wire.headers)
        if head is None:
            return None
        asked = address.asked
        assert self._session.connector is not None
        connection = await self._session.connector.connect(asked, [], self._session.timeout)
        try:
            protocol, transport = connection.protocol, connection.transport
            if protocol is None or transport is None or transport.is_closing():
                raise aiohttp.ClientConnectionResetError("the connection was closed as soon as it was made")
            protocol.set_response_params(read_until_eof=True)
            transport.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(wire.body), wire.body))
            message, content = await protocol.read()
            while 100 <= message.code < 200 and message.code != 101:
                message, content = await protocol.read()
        except HttpProcessingError as error:
            connection.close()
            told = aiohttp.ClientResponseError(asked.request_info, (), status=error.code, message=error.message)
            raise told from None
        except BaseException:
            connection.close()
            raise
        return Response(connection, message, content)

    def _fits(self, wire: WireRequest, url: URL) -> _Address | None:
        if (
            wire.method != "POST"
            or wire.query
            or not 0 < len(wire.body) < _SMALL
            or "content-type" not in wire.headers
            or aiohttp.ClientSession._request is not _REQUEST
            or self._session.trace_configs
        ):
            return None
        try:
            return self._known[wire.path]
        except KeyError:
            made = _Address.of(url, self._session) if _KNOWN else None
            if len(self._known) < _FEW:
                self._known[wire.path] = made
            return made
