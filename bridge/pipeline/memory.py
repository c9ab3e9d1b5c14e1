"""Joins frontends and backends that disagree on who remembers the talk.

Some clients send only what is new and rely on the server's memory (AgentScope's web frontend, AG-Kit); others send the
whole talk each time (OpenAI chat, AG-UI). Some backends keep the talk by an id, others forget. Where the two sides
disagree, the bridge keeps the history: it expands an increment to the whole talk for a backend that forgets, and
trims a whole talk to what is new for one that remembers. Rules: ag-kit protocol page, Part 1, section 3.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from bridge.codec import Card
from bridge.codec.jsontext import dumps
from bridge.errors import BridgeError, ErrorCode, RequestError
from bridge.model import (
    Answer,
    FinishReason,
    HistoryMode,
    Message,
    Part,
    Reasoning,
    Request,
    Text,
    ToolCall,
    ToolResult,
    result_text,
)
from bridge.model.dump import dump_message
from bridge.stores.base import Conversation, History

log = logging.getLogger("bridge.memory")

_PRUNE_EVERY = 3600.0
"""Seconds."""

NO_RESULT = "No result was provided."
"""What a backend is told of a tool call that the client went past without answering: it insists on an answer."""


class Turn:
    """One request of one conversation, from the moment its history is known until it is kept.

    `request` is what the backend is to be sent.
    """

    def __init__(self, history: History, owner: str, scope: str, request: Request) -> None:
        self.request = request
        self._new: list[Message] = []
        self._history = history
        self._owner = owner
        self._scope = scope
        self._held = AsyncExitStack()
        self._talk = Conversation("")

    async def _enter(self, thread: str) -> None:
        """Waits for earlier requests of this conversation, then loads it."""
        await self._held.enter_async_context(self._history.turn(self._owner, self._scope, thread))
        self._talk = await self._history.load(self._owner, self._scope, thread) or Conversation(thread)

    async def begin(self, run_id: str) -> None:
        """Loads what is needed and rewrites `request`. Raises `BridgeError`."""
        raise NotImplementedError

    async def keep(self, answer: Answer) -> None:
        """The run is over: stores what the next request needs. Raises `BridgeError` when the store fails."""
        raise NotImplementedError

    async def close(self) -> None:
        """Lets the next request of this conversation go on."""
        await self._held.aclose()

    async def _commit(self, new: list[Message], *, keep: int | None = None, digest: str | None = None) -> None:
        await self._history.commit(self._owner, self._scope, self._talk, new, keep=keep, digest=digest)


class Expand(Turn):
    """The client sent what is new, the backend wants the whole talk."""

    async def begin(self, run_id: str) -> None:
        request = self.request
        await self._enter(request.thread_id or run_id)
        stored = self._talk.messages
        # Some clients can be told to send everything (AgentScope's web frontend): then it is theirs that counts.
        known = len(stored)
        if known and list(map(_mark, request.messages[:known])) == list(map(_mark, stored)):
            new = request.messages[known:]
        else:
            new = request.messages
        self._new = [*_answers_for_skipped_calls(stored, new), *new]
        tools = self._talk.tools if request.tools is None else request.tools
        self.request = replace(request, messages=[*stored, *self._new], tools=tools, history=HistoryMode.FULL)

    async def keep(self, answer: Answer) -> None:
        """What the client said stays in any case; a broken answer does not, half a cancelled one does."""
        self._talk.tools = self.request.tools
        await self._commit([*self._new, *_said(answer)])


class Trim(Turn):
    """The client sent the whole talk, the backend remembers it by an id.

    Only what the client said is stored: the backend made its answers itself, and clients bring them back in their own
    shape. The digest of the whole talk finds it again for clients that send no conversation id.
    """

    async def begin(self, run_id: str) -> None:
        request = self.request
        self._whole = request.messages
        thread = request.thread_id or await self._thread_of(request.messages) or run_id
        await self._enter(thread)
        stored = self._talk.messages
        place = _continues(stored, self._whole) if self._talk.backend_thread else None
        if place is None:
            # A new talk, an edited or regenerated one, or one whose backend side is not known for sure: it begins anew.
            self._known, place = 0, 0
            self._talk.backend_thread = thread if self._talk.version == 0 else run_id
        else:
            self._known = len(stored)
        self._new = self._whole[place:]
        self.request = replace(
            request, messages=self._new, thread_id=self._talk.backend_thread, history=HistoryMode.DELTA
        )

    async def _thread_of(self, messages: list[Message]) -> str | None:
        """The conversation whose last state is the talk up to the last answer, for clients that send no id."""
        answered = next((n for n in range(len(messages), 0, -1) if messages[n - 1].role == "assistant"), 0)
        if not answered:
            return None
        return await self._history.find(self._owner, self._scope, _digest(messages[:answered]))

    async def keep(self, answer: Answer) -> None:
        """After a failed or cancelled run nobody knows what the backend remembers: the next one begins anew there."""
        if answer.failure is not None or answer.reason in (None, FinishReason.CANCELED):
            self._talk.backend_thread = None
            await self._commit([], keep=self._known)
            return
        said = [m for m in self._new if m.role != "assistant"]
        await self._commit(said, keep=self._known, digest=_digest([*self._whole, _as_client_sees(answer)]))


class Memory:
    """Makes the turns of a bridge on one history store."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._pruning: asyncio.Task[None] | None = None

    def start(self, retention: float) -> None:
        """From now on conversations that were silent for `retention` seconds are forgotten."""
        self._pruning = asyncio.get_running_loop().create_task(self._prune(retention))

    async def _prune(self, retention: float) -> None:
        while True:
            # Not at once: a store is opened by the first conversation, not by the start.
            await asyncio.sleep(_PRUNE_EVERY)
            try:
                await self._history.prune(retention)
            except BridgeError as error:
                log.warning("old conversations were not forgotten: %s", error.message)

    async def begin(self, owner: str, scope: str, request: Request, back: Card, run_id: str) -> Turn | None:
        """The turn of this request, begun; None when both sides agree on who remembers.

        A request without a conversation id whose client sends increments is a talk of its own.
        """
        turn: Turn
        if request.history is HistoryMode.DELTA and not back.keeps_history:
            if request.thread_id is None:
                return None
            turn = Expand(self._history, owner, scope, request)
        elif request.history is HistoryMode.FULL and back.keeps_history:
            turn = Trim(self._history, owner, scope, request)
        else:
            return None
        try:
            await turn.begin(run_id)
        except BaseException:
            await turn.close()
            raise
        return turn

    async def close(self) -> None:
        if self._pruning is not None:
            self._pruning.cancel()
        await self._history.close()


# ---------------------------------------------------------------------- talks as values


def _calls(message: Message) -> list[ToolCall]:
    return [p for p in message.parts if isinstance(p, ToolCall)]


def _results(message: Message) -> list[ToolResult]:
    return [p for p in message.parts if isinstance(p, ToolResult)]


def _answers_for_skipped_calls(stored: list[Message], new: list[Message]) -> list[Message]:
    """Results for calls that nobody answered: backends refuse a talk in which one is missing.

    Raises `RequestError` for a result whose call is not known.
    """
    waiting: dict[str, ToolCall] = {}
    for message in stored:
        waiting.update((c.call_id, c) for c in _calls(message))
        for result in _results(message):
            waiting.pop(result.call_id, None)
    for place, message in enumerate(new):
        waiting.update((c.call_id, c) for c in _calls(message))
        for result in _results(message):
            if waiting.pop(result.call_id, None) is None:
                raise RequestError(
                    f"messages[{place}]: there is no open tool call {result.call_id[:80]!r} in this conversation.",
                    param=f"messages[{place}]",
                )
    skipped = [c for c in waiting.values() if not any(c in _calls(m) for m in new)]
    return [Message("tool", [ToolResult(c.call_id, [Text(NO_RESULT)], c.name)], name=c.name) for c in skipped]


def _said(answer: Answer) -> list[Message]:
    """The messages of an answer that become part of the talk."""
    messages = [m for m in answer.messages if m.role == "tool" or answer.choice_of(m) == 0]
    if answer.reason not in (None, FinishReason.CANCELED):
        return [m for m in messages if m.parts]
    if answer.failure is not None and answer.failure.code is not ErrorCode.CANCELED:
        return []
    done = {r.call_id for m in messages for r in _results(m)}
    halves = []
    for message in messages:
        parts = [p for p in message.parts if not isinstance(p, ToolCall) or p.call_id in done]
        if parts:
            halves.append(replace(message, parts=parts))
    return halves


def _mark(message: Message) -> tuple[Any, ...]:
    """What makes a message the same one: role, text, media, and which calls it makes or answers.

    Reasoning, ids, names and how arguments are spelled do not count: clients drop and rewrite them.
    """
    rest: list[Part] = [p for p in message.parts if not isinstance(p, (Text, ToolCall, ToolResult, Reasoning))]
    return (
        "system" if message.role == "developer" else message.role,
        "".join(p.text for p in message.parts if isinstance(p, Text)).strip(),
        [c.call_id for c in _calls(message)],
        [(r.call_id, result_text(r.parts)) for r in _results(message)],
        dump_message(Message("", rest)) if rest else None,
    )


def _continues(stored: list[Message], messages: list[Message]) -> int | None:
    """Where what is new begins in `messages`, when they continue what is stored; None when they do not.

    Answers are left out of the comparison; those that follow directly on the known part are known too.
    """
    place = 0
    for known in stored:
        place = _past_answers(messages, place)
        if place == len(messages) or _mark(messages[place]) != _mark(known):
            return None
        place += 1
    place = _past_answers(messages, place)
    return place if place < len(messages) else None


def _past_answers(messages: list[Message], place: int) -> int:
    while place < len(messages) and messages[place].role == "assistant":
        place += 1
    return place


def _as_client_sees(answer: Answer) -> Message:
    """The answer as a client sends it back: its text, and the calls that it has to run."""
    done = {r.call_id for r in answer.results}
    calls = [c for c in answer.calls if c.call_id not in done]
    return Message("assistant", [Text(answer.text), *calls])


def _digest(messages: list[Message]) -> str:
    """A name for this state of a talk; consecutive answers are one. SHA-256, hexadecimal."""
    marks: list[tuple[Any, ...]] = []
    for message in messages:
        mark = _mark(message)
        if marks and mark[0] == "assistant" == marks[-1][0]:
            mark = ("assistant", marks[-1][1] + mark[1], marks[-1][2] + mark[2], marks[-1][3] + mark[3], mark[4])
            marks.pop()
        marks.append(mark)
    return hashlib.sha256(dumps(marks)).hexdigest()
