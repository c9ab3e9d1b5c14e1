"""The rounds in which a model calls tools that are run here, as one run: see `bridge.run.tools.tool_sources`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from bridge.contract import Losses
from bridge.contract.optional.tool_host import OfferedTool
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Event,
    FinishReason,
    Folder,
    Message,
    MessageEnded,
    MessageStarted,
    PartEnded,
    PartStarted,
    Request,
    RunFailed,
    RunFinished,
    RunStarted,
    Text,
    ToolCall,
    ToolMode,
    ToolResult,
    ToolResulted,
)
from bridge.model import events as ev
from bridge.model.events import UsageReported
from bridge.run.backend import CallInfo
from bridge.run.conversation.comparison import messages_of
from bridge.run.wrapped import WrappedCall

if TYPE_CHECKING:
    from bridge.run.tools.tool_sources import WithTools

_COUNTS = tuple(f.name for f in fields(UsageReported) if f.name != "extras")
_AT_ONCE = 16
"""Calls of one round that run side by side."""
_CONTINUES = (FinishReason.TOOL_CALLS, FinishReason.STOP)


def not_run(call: ToolCall, text: str) -> ToolResulted:
    """The result of a call that came to nothing, and why."""
    return ToolResulted(call.call_id, [Text(f"Error: {text}")], call.name, is_error=True)


class Rounds(WrappedCall):
    """As many calls of the backend as its model needs, as one run."""

    def __init__(
        self, user: WithTools, own: Mapping[str, OfferedTool], request: Request, info: CallInfo, lost: Losses
    ) -> None:
        super().__init__(user.inner.call(request, info, lost))
        self._user = user
        self._own = own
        self._request = request
        self._info = info
        self._lost = lost
        self._round = 1
        self._ids = _Ids()
        self._usage: UsageReported | None = None
        self._folder = Folder()
        self._waiting: list[ToolCall] = []
        self._end: RunFinished | None = None
        self._ask_again = False
        self._received = 0

    @property
    def received(self) -> int:
        return self._received + self.inner.received

    async def read(self) -> list[Event]:
        if self._waiting:
            return await self._run_tools()
        if self._ask_again:
            await self._next()
        return self._heard(await self.inner.read())

    def pass_deltas(self, take: Callable[[list[Event]], bool]) -> None:
        """Nothing: every event is changed or counted here."""

    def fail(self, failure: Failure) -> list[Event]:
        if self._waiting or self._ask_again:
            return [RunFailed(failure)]
        return self._heard(self.inner.fail(failure))

    # ------------------------------------------------------------------ one round

    def _heard(self, events: list[Event]) -> list[Event]:
        events = self._ids.apply(events, self._round)
        if self._round > 1 and events and type(events[0]) is RunStarted:
            events = events[1:]
        self._folder.feed(events)
        if _PLAIN.issuperset(map(type, events)):
            return events
        events = [self._rare(event) for event in events]
        return self._ended(events, events[-1]) if events and isinstance(events[-1], RunFinished) else events

    def _rare(self, event: Event) -> Event:
        if isinstance(event, MessageEnded) and event.reason is FinishReason.TOOL_CALLS and not self._open(own=False):
            # The client has nothing to run: what this message waits for happens here.
            return replace(event, reason=None)
        return _sum(self._usage, event) if isinstance(event, UsageReported) and self._usage is not None else event

    def _open(self, *, own: bool) -> list[ToolCall]:
        """The calls of this round that have no result: those that are run here, or the client's."""
        answer = self._folder.answer
        done = {result.call_id for result in answer.results}
        return [c for c in answer.calls if c.call_id not in done and (c.name in self._own) is own]

    def _ended(self, events: list[Event], end: RunFinished) -> list[Event]:
        """The model has finished a round: run its calls before the next one, or before the client runs its own."""
        calls = self._open(own=True)
        if not calls:
            return events
        if end.reason not in _CONTINUES:
            results = [not_run(c, "the answer ended before the call was complete; it was not run.") for c in calls]
            return [*events[:-1], *results, end]
        if self._round > self._user.rounds:
            bound = f"max_tool_rounds: {self._user.rounds}"
            text = f"The model still called tools when the limit of rounds was reached ({bound})."
            return [*events[:-1], RunFailed(Failure(ErrorCode.BACKEND_ERROR, text))]
        self._waiting = calls
        self._end = end if self._open(own=False) else None
        return events[:-1]

    async def _run_tools(self) -> list[Event]:
        """Some of the calls that wait, side by side: each read brings results before the run counts as silent."""
        user, info, now = self._user, self._next_info, self._waiting[:_AT_ONCE]
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(user.source.call(self._own[c.name], c, info, user.call_seconds)) for c in now]
        results = [call.result() for call in calls]
        self._waiting = self._waiting[len(now) :]
        self._folder.feed(results)
        if self._waiting:
            return list(results)
        if self._end is not None:
            return [*results, self._end]
        self._ask_again = True
        return list(results)

    # ------------------------------------------------------------------ the next round

    @property
    def _next_info(self) -> CallInfo:
        """Ids that are made for a round are its own."""
        return replace(self._info, run_id=f"{self._info.run_id}-{self._round}")

    async def _next(self) -> None:
        answer = self._folder.answer
        answer.reason = FinishReason.TOOL_CALLS
        choice = self._request.tool_choice
        if choice is not None and choice.mode is ToolMode.REQUIRED:
            choice = None  # the required call was made; required again, the model would never answer
        results = {r.call_id: r for r in answer.results}
        messages = [*self._request.messages, *_in_order(messages_of(answer), results)]
        self._request = replace(self._request, messages=messages, tool_choice=choice)
        if answer.usage is not None:
            self._usage = answer.usage if self._usage is None else _sum(self._usage, answer.usage)
        self._received += self.inner.received
        await self.inner.close()
        info = self._next_info
        self._round += 1
        self._folder = Folder()
        self._folder.feed([RunStarted(info.run_id)])
        self.inner = self._user.inner.call(self._request, info, self._lost)
        self._ask_again = False
        await self.inner.open()


_PLAIN: frozenset[type] = frozenset({ev.TextDelta, ev.ReasoningDelta, ev.ArgsDelta})


def _in_order(messages: list[Message], results: Mapping[str, ToolResult]) -> list[Message]:
    """Put results directly after the messages with their calls, as backends require."""
    out: list[Message] = []
    for message in messages:
        if message.role != "tool":
            out.append(message)
            calls = [p.call_id for p in message.parts if isinstance(p, ToolCall)]
            out += [Message("tool", [results[c]], name=results[c].name) for c in calls if c in results]
    return out


def _sum(before: UsageReported, now: UsageReported) -> UsageReported:
    """Add up the usage of all rounds; what neither of the two reports stays None."""
    counts: dict[str, Any] = {}
    for name in _COUNTS:
        said_both = [n for n in (getattr(before, name), getattr(now, name)) if n is not None]
        counts[name] = sum(said_both) if said_both else None
    return replace(now, **counts)


class _Ids:
    """Keeps ids apart: there are servers that give every answer the same ones, or every call of one."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._new: dict[str, str] = {}
        self.inners: dict[str, str] = {}

    def apply(self, events: list[Event], number: int) -> list[Event]:
        return [self._first(event) if number == 1 else self._one(event, number) for event in events]

    def _first(self, event: Event) -> Event:
        """In the first round only calls may be alike."""
        if isinstance(event, PartStarted) and f"call {event.call_id}" in self._seen and event.call_id is not None:
            event = replace(event, call_id=self._unseen(f"call {event.call_id}", 2).removeprefix("call "))
        self._note(event)
        return event

    def _note(self, event: Event) -> None:
        match event:
            case MessageStarted():
                self._seen.add(event.message_id)
            case PartStarted():
                self._seen.update((event.part_id, f"call {event.call_id}"))

    def _one(self, event: Event, number: int) -> Event:
        match event:
            case RunStarted():
                self._new.clear()
                self.inners.clear()
            case MessageStarted():
                event = replace(event, message_id=self._fresh(event.message_id, number))
            case PartStarted():
                call_id = event.call_id
                if call_id is not None:
                    call_id = self.inners[call_id] = self._unseen(f"call {call_id}", number).removeprefix("call ")
                message = self._new.get(event.message_id, event.message_id)
                event = replace(event, part_id=self._fresh(event.part_id, number), message_id=message, call_id=call_id)
            case ev.TextDelta() | ev.ReasoningDelta() | ev.ArgsDelta() | PartEnded():
                new = self._new.get(event.part_id, event.part_id)
                event = event if new == event.part_id else replace(event, part_id=new)
            case MessageEnded() | ev.ContentAdded():
                event = replace(event, message_id=self._new.get(event.message_id, event.message_id))
            case ToolResulted():
                event = replace(event, call_id=self.inners.get(event.call_id, event.call_id))
        self._note(event)
        return event

    def _fresh(self, old: str, number: int) -> str:
        self._new[old] = self._unseen(old, number)
        return self._new[old]

    def _unseen(self, old: str, number: int) -> str:
        new = old
        while new in self._seen:
            new, number = f"{old}-{number}", number + 1
        return new
