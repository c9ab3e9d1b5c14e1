"""The asking side of a session: one call to an agent, through a gateway or straight to it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import grpc
import grpc.aio

from bridge.dialects.aip.wire import AgentMessage, SessionStatus
from bridge.run.backends.grpc.duplex import Duplex


class Client:
    """A session opened by this program, which has to end it. `close` releases it."""

    def __init__(self, session_id: str, receiver_id: str, call: Any) -> None:
        self.session_id = session_id
        self.receiver_id = receiver_id
        self.started = self.stopped = False
        self._call = Duplex(call)
        self._came: deque[AgentMessage] = deque()
        self._received: AgentMessage | None = None
        self._ended = False

    async def send(self, message: AgentMessage) -> None:
        """Raises `RuntimeError` after a STOP_QUEST: what follows one is never answered, and ends common agents."""
        if self.stopped:
            raise RuntimeError(f"the session {self.session_id!r} was asked to stop; nothing may follow")
        self.started = True
        self.stopped = message.session_status == SessionStatus.STOP_QUEST
        await self._call.send([message.to_bytes()])

    async def receive(self) -> AgentMessage:
        """The next answer. Raises `EOFError` when the agent ended the session, `grpc.aio.AioRpcError` when it failed.

        It may be canceled, by a time limit for example: the session continues.
        """
        while not self._came:
            batch = await self._call.batch(None)
            if batch is None:
                self._ended = True
                raise self._end()
            self._came.extend(AgentMessage.from_bytes(body) for body in batch)
        self._received = self._came.popleft()
        return self._received

    async def for_handlers(self) -> AgentMessage:
        """The answer that was received last, once; then the next one, as `receive` does."""
        message = self._received or await self.receive()
        self._received = None
        return message

    def _end(self) -> Exception:
        if self._call.status is None:
            return EOFError(f"the session {self.session_id!r} has ended")
        code, details = self._call.status
        failed: Exception = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)
        return failed

    async def close(self, goodbye: AgentMessage, grace: float) -> None:
        """End the session according to the protocol: ask for the end, and disconnect when the agent has said goodbye.

        Canceling a session that is being answered would stop common agents for everyone, so they have `grace` seconds.
        """
        try:
            async with asyncio.timeout(grace if self.started else 0):
                if self.started and not self.stopped and self._call.alive:
                    await self.send(goodbye)
                await self._call.finish()
                while not self._ended and await self._call.batch(None) is not None:
                    pass
        except TimeoutError:
            pass
        finally:
            self._call.cancel()
