"""`WebSocketCarrier`: a WebSocket, as server or as client, with one message in each text frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from aiohttp import (
    ClientError,
    ClientSession,
    ClientWebSocketResponse,
    ClientWSTimeout,
    WebSocketError,
    WSCloseCode,
    WSMsgType,
    WSServerHandshakeError,
    web,
)

from bridge.jsonrpc.carrier import CarrierEnded, FrameTooLong
from bridge.jsonrpc.peer import MAX_FRAME

_CLOSE = 2.0
"""Seconds that the other side has to confirm the end."""


class WebSocketCarrier:
    """An open WebSocket: `accept` and `connect` create one. Binary frames are ignored.

    Who may connect, and from which origin, is checked before: browsers let any page open a WebSocket.
    """

    def __init__(self, socket: web.WebSocketResponse | ClientWebSocketResponse, max_frame: int) -> None:
        self.socket = socket
        self._max_frame = max_frame

    @classmethod
    async def accept(
        cls,
        request: web.Request,
        *,
        headers: Mapping[str, str] | None = None,
        max_frame: int = MAX_FRAME,
        heartbeat: float | None = None,
    ) -> Self:
        """Answer the request of a client for a WebSocket, with these headers.

        `heartbeat`: seconds between pings; a client that answers none is gone. The handler of the request must return
        `socket`. Raises `aiohttp.web.HTTPBadRequest` for a request of something else.
        """
        socket = web.WebSocketResponse(timeout=_CLOSE, heartbeat=heartbeat, compress=False, max_msg_size=max_frame)
        socket.headers.update(headers or {})
        await socket.prepare(request)
        return cls(socket, max_frame)

    @classmethod
    async def connect(
        cls,
        session: ClientSession,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        max_frame: int = MAX_FRAME,
        heartbeat: float | None = None,
    ) -> Self:
        """Open a WebSocket at a server. Raises `CarrierEnded` if the server cannot be reached or refuses."""
        try:
            socket = await session.ws_connect(
                url,
                headers=headers,
                timeout=ClientWSTimeout(ws_close=_CLOSE),
                heartbeat=heartbeat,
                max_msg_size=max_frame,
            )
        except WSServerHandshakeError as error:
            raise CarrierEnded(f"the server answers the request for a WebSocket with status {error.status}") from error
        except (ClientError, OSError) as error:
            raise CarrierEnded(f"the server cannot be reached ({type(error).__name__})") from error
        return cls(socket, max_frame)

    async def receive(self) -> list[bytes]:
        while True:
            message = await self.socket.receive()
            if message.type is WSMsgType.TEXT:
                return [message.data.encode()]
            if message.type is WSMsgType.BINARY:
                continue
            if isinstance(message.data, WebSocketError) and message.data.code == WSCloseCode.MESSAGE_TOO_BIG:
                raise FrameTooLong(self._max_frame)
            raise CarrierEnded(f"the WebSocket was closed with code {self.socket.close_code}")

    async def send(self, frames: Sequence[bytes]) -> None:
        try:
            for frame in frames:
                await self.socket.send_frame(frame, WSMsgType.TEXT)
        except ConnectionError as error:
            raise CarrierEnded("the WebSocket was closed") from error

    async def close(self) -> None:
        await self.socket.close()
