"""One session of an agent: its open prompt, and the questions that wait for an answer."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bridge.contract.optional.agents import AgentPrompt, PromptAnswer
from bridge.jsonrpc import RpcError
from bridge.model import Resume
from bridge.model.jsontext import dumps

if TYPE_CHECKING:
    from bridge.run.backends.agents.agent_process import AgentProcess

Wire = dict[str, Any]

_MOST_WAITING = 4 * 2**20
"""Bytes of messages that may wait for a reader; then the agent waits."""
_MESSAGE = 200
"""Bytes that each message counts for at least."""


class Received:
    """A message of the agent that waits to be read; a question has a future for its answer."""

    __slots__ = ("answer", "message", "size")

    def __init__(self, message: Wire, answer: asyncio.Future[Wire] | None) -> None:
        self.message = message
        self.answer = answer
        self.size = len(dumps(message))


class OpenPrompt:
    """A prompt that the agent has not answered.

    `reading` is the dialect's part. `asked` are the questions that a client was told, by the ids of their interrupts.
    """

    def __init__(self, reading: AgentPrompt, work: asyncio.Task[Any]) -> None:
        self.reading = reading
        self.work = work
        self.asked: dict[str, Received] = {}
        self.timer: asyncio.TimerHandle | None = None
        """Set while the agent waits for the answer of a person, and nobody reads."""
        self.canceled = False
        self._inbox: deque[Received] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        work.add_done_callback(self._done)

    def _done(self, work: asyncio.Task[Any]) -> None:
        if not work.cancelled():
            work.exception()  # nobody may be left to ask for it
        self._news.set()

    @property
    def parked(self) -> bool:
        return self.timer is not None

    # ------------------------------------------------------------------ the agent's side

    async def put(self, message: Wire) -> None:
        """Keep a notification for the reader. Waits while too much is unread."""
        if not self.canceled:
            self._add(Received(message, None))
            if self.floods and not self.parked:
                self._room.clear()
                await self._room.wait()

    async def ask(self, message: Wire) -> Wire | None:
        """Return the answer to a question; None if nobody will answer, or too much is unread."""
        if self.canceled or self.floods:
            return None
        question = Received(message, asyncio.get_running_loop().create_future())
        assert question.answer is not None
        self._add(question)
        return await question.answer

    def _add(self, received: Received) -> None:
        self._inbox.append(received)
        self._size += received.size + _MESSAGE
        self._news.set()

    # ------------------------------------------------------------------ the reader's side

    async def wait(self) -> None:
        """Wait for messages, or for the end of the prompt."""
        while not self._inbox and not self.work.done():
            self._news.clear()
            await self._news.wait()

    def take(self) -> list[Received]:
        """Return the messages that wait, without questions that were withdrawn."""
        taken = list(self._inbox)
        self._inbox.clear()
        self._size = 0
        self._room.set()
        return [each for each in taken if each.answer is None or not each.answer.done()]

    @property
    def floods(self) -> bool:
        """Return whether more waits than may wait."""
        return self._size > _MOST_WAITING

    @property
    def waits(self) -> bool:
        """Return whether the agent waits for an answer that a person was asked for."""
        return any(each.answer is not None and not each.answer.done() for each in self.asked.values())

    def answer(self, resumes: Sequence[Resume]) -> list[tuple[Received, PromptAnswer]]:
        """Return the answers to the questions that wait, by those of a person; an answer without an id is for all
        that no other names.
        """
        by_id = {each.interrupt_id: each for each in resumes}
        found = []
        for interrupt_id, question in self.asked.items():
            resume = by_id.get(interrupt_id) or by_id.get("")
            if resume is not None and question.answer is not None and not question.answer.done():
                found.append((question, self.reading.answer(question.message, resume)))
        return found

    def discard(self) -> None:
        """Nobody reads any more: what waits and what comes is dropped."""
        self.canceled = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for question in [*self.asked.values(), *self._inbox]:
            if question.answer is not None and not question.answer.done():
                question.answer.set_result({})
        self.asked.clear()
        self._inbox.clear()
        self._size = 0
        self._room.set()


class AgentSession:
    """A session of an agent, with one prompt at a time: runs hold `lock`."""

    def __init__(self, process: AgentProcess, session_id: str) -> None:
        self.process = process
        self.id = session_id
        self.lock = asyncio.Lock()
        self.prompt: OpenPrompt | None = None
        self.used = self.heard = time.monotonic()
        """When it was used last, and when the agent said something last."""
        self.fresh = True
        """Nothing was said in it."""

    @property
    def is_idle(self) -> bool:
        """Return whether no run and no question needs it."""
        return self.prompt is None and not self.lock.locked()

    @property
    def usable(self) -> bool:
        return self.process.alive and self.process.sessions.get(self.id) is self


def outcome(work: asyncio.Task[Any]) -> tuple[Any, RpcError | BaseException | None]:
    """Return the result of a prompt that is over, or its error."""
    if work.cancelled():
        return None, asyncio.CancelledError()
    error = work.exception()
    return (None, error) if error is not None else (work.result(), None)
