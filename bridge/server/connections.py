"""Client connections: aiohttp's, with the bridge's own errors for requests that reach no handler."""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import ContentEncodingError

from bridge.errors import ErrorCode, Failure, log_unexpected
from bridge.server.frames import ReceivedFrames
from bridge.server.wire import error_of

log = logging.getLogger("bridge.server.http")


class Connection(web.RequestHandler):
    """Answers what cannot be read as a request with a JSON error and a request id, and does not name its software.

    `frames`: what a client has sent since its connection became a WebSocket.
    """

    frames: ReceivedFrames | None = None

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """Read what follows as a WebSocket."""
        self.frames = ReceivedFrames(parser)
        super().set_parser(cast(Any, self.frames), data_received_cb)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if exc is not None and status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log_unexpected(log, "a request broke", exc)
        else:
            # What could not be parsed may be half a key: its kind is all that is logged.
            log.info("invalid request (%s)", type(exc).__name__)
        if request.writer.output_size > 0:
            raise ConnectionError("a response was begun already")
        response = error_of(None, _failure(status, exc))
        response.headers["x-request-id"] = uuid.uuid4().hex
        response.headers["server"] = "dialect-bridge"
        response.force_close()
        return response


def _failure(status: int, error: BaseException | None) -> Failure:
    if isinstance(error, ContentEncodingError):
        text = "The request's content-encoding is not one of gzip, deflate."
        return Failure(ErrorCode.INVALID_REQUEST, text, status=415)
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return Failure(ErrorCode.INVALID_REQUEST, "The request is not valid HTTP/1.1.", status=status)
    return Failure(ErrorCode.INTERNAL, "The bridge failed while it handled this request.")


async def listen(server: web.Server, sock: socket.socket, backlog: int) -> asyncio.Server:
    """Accepts connections on a bound socket."""
    loop = asyncio.get_running_loop()

    def connection() -> Connection:
        return Connection(server, loop=loop, access_log=None, logger=log)  # type: ignore[arg-type]

    return await loop.create_server(connection, sock=sock, backlog=backlog)
