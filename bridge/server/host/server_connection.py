"""Client connections: aiohttp's, with the bridge's own errors for requests that reach no handler."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time
import uuid
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

from aiohttp import StreamReader, hdrs, web
from aiohttp.http import HttpVersion10, HttpVersion11, RawRequestMessage
from aiohttp.http_exceptions import BadHttpMessage, ContentEncodingError, HttpProcessingError, LineTooLong
from multidict import CIMultiDict, CIMultiDictProxy

from bridge.contract import Dialect
from bridge.errors import ErrorCode, Failure, log_unexpected, shortened
from bridge.server.operations.websocket_frames import ReceivedFrames
from bridge.server.requests.http_messages import error_of

log = logging.getLogger("bridge.server.http")

Note = Callable[[Failure, str | None], None]
Shape = Callable[[str], Dialect | None]
LONGEST = 32 * 1024
"""Bytes of a URL and of a header. Cookies and tokens of a single sign-on take more than the 8 KiB of most servers."""

MOST_HEADERS = 128
_END_OF_HEAD = b"\r\n\r\n"
_PATH = re.compile(rb"[A-Z]{1,20} (/[^\s?#]{0,200})")
"""The beginning of a request, up to the end of its path."""


class ServerConnection(web.RequestHandler):
    """Answers what cannot be read as a request with an error and a request id, and does not name its software.

    The error has the shape of the dialect near its path, as far as that can be read, else it is a plain JSON object.
    `frames`: what a client has sent since its connection became a WebSocket. `has_asked`: it has sent a request.
    `idle_since`: since when it waits for a request, in monotonic seconds; None while it serves one.
    `refused`: why its last request is refused whatever the path. `behind_head`: bytes that came behind the first head
    of the last read that has one, or more. `body_left`: bytes of the body of a request that offers another protocol
    which have not come; more than those close the connection.
    """

    frames: ReceivedFrames | None = None
    has_asked = False
    idle_since: float | None = None
    refused: Failure | None = None
    behind_head = 0
    body_left: int | None = None

    def __init__(self, server: web.Server, note: Note, shape: Shape, **options: Any) -> None:
        """`note` gets the failure of what is no request and the peer's address; `shape` returns the dialect near a
        path, if there is one.
        """
        limits: dict[str, Any] = {"max_line_size": LONGEST, "max_field_size": LONGEST, "max_headers": MOST_HEADERS}
        super().__init__(server, **limits, **options)
        self._note = note
        self._shape = shape
        self._path = ""  # of the last read, if it begins like a request
        self._last = b""

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """Read what follows as a WebSocket."""
        self.frames = ReceivedFrames(parser)
        super().set_parser(cast(Any, self.frames), data_received_cb)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.idle_since = time.monotonic()
        super().connection_made(transport)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the rest of the response; the connection waits for another request then."""
        finished = await super().finish_response(request, resp, start_time)
        self.idle_since = time.monotonic()
        return finished

    def close(self) -> None:
        """Close it when the requests that it serves are answered: at once if there are none.

        aiohttp leaves the transport of one that waits open, and drops what comes from then on.
        """
        if self.idle_since is None:
            super().close()
        else:
            self.force_close()

    def data_received(self, data: bytes) -> None:
        """Parse what came, and note what `checking_heads` and `handle_error` need of it."""
        self._path = begun[1].decode("latin-1") if (begun := _PATH.match(data)) else ""
        joint = self._last + data[:3]  # where the end of a head is split
        end = joint.find(_END_OF_HEAD)
        end = end - len(self._last) if end >= 0 else data.find(_END_OF_HEAD)
        self.behind_head = len(data) + (self.behind_head if end < 0 else -end - len(_END_OF_HEAD))
        self._last = data[-3:] if len(data) >= 3 else joint[-3:]
        super().data_received(data)
        if self.body_left is not None:
            self.body_left -= len(data)
            if self.body_left < 0:
                self.close()
            elif not self.body_left:
                self.body_left = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        failure = _failure(status, exc)
        if exc is not None and status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log_unexpected(log, "a request broke", exc)
        else:
            # What could not be parsed may be half a key: its kind is all that is logged.
            log.info("invalid request (%s)", type(exc).__name__)
            self._note(failure, request.remote)
        if request.writer.output_size > 0:
            raise ConnectionError("a response was begun already")
        path = self._path if isinstance(exc, HttpProcessingError) else request.path
        response = error_of(self._shape(path) if path else None, failure)
        response.headers["x-request-id"] = uuid.uuid4().hex
        response.headers["server"] = "dialect-bridge"
        response.force_close()
        return response


def _failure(status: int, error: BaseException | None) -> Failure:
    if isinstance(error, ContentEncodingError):
        text = "The request's content-encoding is not one of gzip, deflate."
        return Failure(ErrorCode.INVALID_REQUEST, text, status=415)
    if isinstance(error, LineTooLong):
        # A URL without its end is no line yet; aiohttp does not tell which of them it was.
        text = f"The URL or a header of the request is longer than the limit of {LONGEST} bytes."
        return Failure(ErrorCode.TOO_LARGE, text, status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    if isinstance(error, BadHttpMessage) and error.message == "Too many headers received":
        text = f"The request has more than {MOST_HEADERS} headers."
        return Failure(ErrorCode.TOO_LARGE, text, status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return Failure(ErrorCode.INVALID_REQUEST, "The request is not valid HTTP/1.1.", status=status)
    return Failure(ErrorCode.INTERNAL, "The bridge failed while it handled this request.")


def checking_heads(make: Callable[..., web.BaseRequest]) -> Callable[..., web.BaseRequest]:
    """Return a `web.Server.request_factory` that refuses requests of other versions than HTTP/1, and those that expect
    something unknown: see `ServerConnection.refused`. It closes connections whose client sends more behind the offer of
    another protocol.

    aiohttp takes requests of other versions, and would answer in the version that it was asked in. It refuses unknown
    expectations before any handler, as a text. Its parser stops at the end of a request that offers another protocol,
    and drops the rest of that read: a later answer would be taken for that of a request that was dropped. A client that
    waits for its answer keeps its connection; some offer h2c with each request.
    """

    def request(
        message: RawRequestMessage, payload: StreamReader, connection: ServerConnection, *rest: Any
    ) -> web.BaseRequest:
        connection.refused = connection.body_left = connection.idle_since = None
        connection.has_asked = True
        if hdrs.UPGRADE in message.headers:
            left = int(message.headers.get(hdrs.CONTENT_LENGTH, "0")) - connection.behind_head
            if message.chunked or left < 0:
                message = message._replace(should_close=True)
            elif left:
                connection.body_left = left
        expected = message.headers.get(hdrs.EXPECT)
        if message.version not in (HttpVersion11, HttpVersion10):
            text = f"Expected HTTP/1.1, got HTTP/{message.version.major}.{message.version.minor}."
            connection.refused = Failure(ErrorCode.INVALID_REQUEST, text, status=505)
            message = message._replace(version=HttpVersion11, should_close=True)
        elif expected and expected.lower() != "100-continue" and message.version == HttpVersion11:
            text = f"expect: expected 100-continue, got {shortened(expected)!r}."
            connection.refused = Failure(ErrorCode.INVALID_REQUEST, text, param="expect", status=417)
            headers = CIMultiDict(message.headers)
            del headers[hdrs.EXPECT]
            message = message._replace(headers=CIMultiDictProxy(headers))
        return make(message, payload, connection, *rest)

    return request


async def listen(
    server: web.Server, sock: socket.socket, backlog: int, note: Note, shape: Shape, accepted: Callable[[], None]
) -> asyncio.Server:
    """Accepts connections on a bound socket. `note`, `shape`: see `ServerConnection`.

    `accepted` is called for each new connection.
    """
    loop = asyncio.get_running_loop()

    def connection() -> ServerConnection:
        accepted()
        return ServerConnection(server, note, shape, loop=loop, access_log=None, logger=log)

    return await loop.create_server(connection, sock=sock, backlog=backlog)
