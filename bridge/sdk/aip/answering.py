"""The answering side of an agent's sessions: inquiries of all of them in one line, answers back to each.

A session that its caller leaves discards its inquiries, and answers to it are dropped: an agent serves all callers in
one loop, and must not stop for one that hung up.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc
import grpc.aio

from bridge.contract.optional.sessions import Handle, Refuse, Respond, Serve
from bridge.dialects.aip.wire import AgentMessage, SessionStatus

_AHEAD = 32
"""Inquiries of one session that wait to be received; then its caller has to wait."""
SLOW_READER = 60.0
"""Seconds for which a caller may leave an answer unread. An agent that serves all callers on one loop waits for this
caller meanwhile.
"""


class Dialogue:
    """One session with a caller."""

    def __init__(self, session_id: str, rpc: Any) -> None:
        self.session_id = session_id
        self.caller = ""
        self.last = AgentMessage()
        """The inquiry that was received last."""
        self.handled = True
        """True if handlers had it."""
        self.over = asyncio.Event()
        self.room = asyncio.Semaphore(_AHEAD)
        self.unread = False
        """True if the session is over because its caller does not read."""
        self._rpc = rpc
        self._writing = asyncio.Lock()

    async def send(self, message: AgentMessage) -> bool:
        """Return whether the caller was still connected."""
        async with self._writing:
            if self.over.is_set():
                return False
            try:
                async with asyncio.timeout(SLOW_READER):
                    await self._rpc.write(message.to_bytes())
            except (grpc.aio.BaseError, grpc.RpcError, asyncio.InvalidStateError, TimeoutError) as error:
                self.unread = isinstance(error, TimeoutError)
                self.over.set()
                return False
            if message.session_status == SessionStatus.STOP_RESPONSE:
                self.over.set()
            return True


class Inquiries:
    """See `bridge.server.grpc.grpc_server.GrpcHost`. `idle`: a session ends after so many seconds
    without messages."""

    def __init__(self, idle: float) -> None:
        self.conversations: dict[str, Dialogue] = {}
        self._idle = idle
        self._waiting: list[tuple[Dialogue, AgentMessage]] = []
        self._news = asyncio.Condition()

    # ------------------------------------------------------------------ for the program

    async def receive(self, session_id: str | None = None) -> AgentMessage:
        """The next inquiry, of any session or of one. Raises `EOFError` when that one is over."""
        async with self._news:
            while True:
                self._waiting = [
                    (conversation, message) for conversation, message in self._waiting if not conversation.over.is_set()
                ]
                for place, (conversation, message) in enumerate(self._waiting):
                    if session_id in (None, conversation.session_id):
                        del self._waiting[place]
                        conversation.last, conversation.handled = message, False
                        conversation.room.release()
                        return message
                if session_id is not None and session_id not in self.conversations:
                    raise EOFError(f"the session {session_id!r} has ended")
                await self._news.wait()

    async def for_handlers(self, session_id: str) -> AgentMessage:
        """The inquiry of a session that was received last, once; then the next one, as `receive` does."""
        conversation = self.conversations.get(session_id)
        if conversation is None or conversation.handled:
            await self.receive(session_id)
            conversation = self.conversations[session_id]
        conversation.handled = True
        return conversation.last

    # ------------------------------------------------------------------ for the server

    async def session(self, reply: Serve, first: bytes, rpc: Any, leaving: asyncio.Event) -> None:
        conversation = Dialogue(reply.session.name, rpc)
        conversation.caller = reply.session.owner
        self.conversations[conversation.session_id] = conversation
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[Any]] = [
            loop.create_task(self._listen(conversation, first, rpc)),
            loop.create_task(conversation.over.wait()),
            loop.create_task(leaving.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if conversation.unread:
                await rpc.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "The caller does not read the answers.")
            for body in reply.session.farewell() if not conversation.over.is_set() else ():
                await conversation.send(AgentMessage.from_bytes(body))
        finally:
            conversation.over.set()
            del self.conversations[conversation.session_id]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            async with self._news:
                self._news.notify_all()

    async def call(self, reply: Handle, body: bytes) -> Respond | Refuse:
        return Refuse("NOT_FOUND", "Receiver not found")

    async def _listen(self, conversation: Dialogue, first: bytes, rpc: Any) -> None:
        """Read until the caller asks for the end, hangs up, or is silent for too long."""
        body: Any = first
        with contextlib.suppress(grpc.aio.BaseError, asyncio.InvalidStateError):
            while body is not grpc.aio.EOF:
                try:
                    message = AgentMessage.from_bytes(body)
                except ValueError:
                    return
                message.session_id = conversation.session_id
                await conversation.room.acquire()
                async with self._news:
                    self._waiting.append((conversation, message))
                    self._news.notify_all()
                if message.session_status == SessionStatus.STOP_QUEST:
                    # Nothing that follows is answered; the program ends the session.
                    break
                body = await rpc.read()
        await asyncio.sleep(self._idle)
