"""A gRPC call in both directions, read by a task of its own: `grpc.aio` cancels the call whose read is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

import grpc
import grpc.aio

_AHEAD = 64
"""Messages that are read ahead; then the peer has to wait."""

_WRITTEN_TOO_LATE = "Internal error from Core"

_OVER = (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError)
"""What `grpc.aio` raises for a write into a finished call; reading reports how the call ended."""


class Duplex:
    """`call` is a new stream-stream call of bytes. Its creator must `cancel` it in the end.

    `status`: code and details, once the call has ended with another one than OK.
    """

    def __init__(self, call: Any) -> None:
        self.status: tuple[grpc.StatusCode, str | None] | None = None
        self._call = call
        self._came: asyncio.Queue[bytes | None] = asyncio.Queue(_AHEAD)
        self._reader = asyncio.get_running_loop().create_task(self._read())
        self._eof = False

    @property
    def alive(self) -> bool:
        """True if the peer has not ended the call, as far as was read."""
        return not self._eof and not self._reader.done()

    @property
    def waiting(self) -> bool:
        """True if there is a message that was not taken."""
        return not self._came.empty()

    async def send(self, messages: Iterable[bytes]) -> None:
        """Sends these; nothing, where the call is over."""
        with contextlib.suppress(*_OVER):
            for message in messages:
                await self._call.write(message)

    async def finish(self) -> None:
        """Close the sending half."""
        with contextlib.suppress(*_OVER):
            await self._call.done_writing()

    async def batch(self, seconds: float | None) -> list[bytes] | None:
        """All messages that are there, at least one; none after `seconds` of silence; None at the end of the call."""
        if self._eof:
            return None
        try:
            async with asyncio.timeout(seconds):
                message = await self._came.get()
        except TimeoutError:
            return []
        out: list[bytes] = []
        while message is not None:
            out.append(message)
            if self._came.empty():
                return out
            message = self._came.get_nowait()
        self._eof = True
        return out or None

    def cancel(self) -> None:
        """Cancel the call at once; harmless if it is over."""
        self._call.cancel()
        self._reader.cancel()

    async def _read(self) -> None:
        try:
            while (message := await self._call.read()) is not grpc.aio.EOF:
                await self._came.put(message)
            self._end(await self._call.code(), await self._call.details())
        except grpc.aio.AioRpcError as error:
            self._end(error.code(), error.details())
        except Exception as error:
            # grpc.aio raises what has no name outside of it for calls that it cannot even begin.
            self.status = (grpc.StatusCode.INTERNAL, f"The call could not be made ({type(error).__name__}).")
        await self._came.put(None)

    def _end(self, code: grpc.StatusCode, details: str | None) -> None:
        """Note the status. A write into a call that the peer has just ended makes grpc hide the peer's own."""
        if code is not grpc.StatusCode.OK and details != _WRITTEN_TOO_LATE:
            self.status = (code, details)
