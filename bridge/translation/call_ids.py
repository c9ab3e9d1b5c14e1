"""Calls and results of an answer: an id of its own for each call, and no result of a tool that the client runs.

Servers of models name calls alike in every answer (`call_0`), or all with one id. Clients find a call by its id: they
add the arguments of the second call to those of the first, or give both its result.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Collection
from dataclasses import replace

from bridge.contract import Capabilities, Feature, Losses, RunsTools
from bridge.model import (
    Event,
    Interrupted,
    Message,
    PartKind,
    PartStarted,
    Request,
    ToolCall,
    ToolResult,
    ToolResulted,
)
from bridge.translation.stage import Stage
from bridge.translation.survey import Survey

REPEAT = "-repeat-"
"""Between the id that a backend gave a call of an answer and the number of the call that has it."""
COPY = "-copy-"
"""The same for calls of earlier messages: another mark, so that ids of answers do not change those of earlier calls."""
_OURS = re.compile(rf"(.+){REPEAT}\d{{1,9}}", re.DOTALL | re.ASCII)
_TOOL_CALL = PartKind.TOOL_CALL


class CallIds:
    """Gives each call an id of its own; the first call with an id keeps it. The same calls get the same ids."""

    def __init__(
        self, taken: set[str], longest: int | None = None, used: Collection[str] = (), mark: str = COPY
    ) -> None:
        """`taken` are ids that no other call may get; `used`, those that no call may get. `mark` precedes numbers."""
        self._mark = mark
        self._taken = taken
        self._longest = longest
        self._used = set(used)
        self._last: dict[str, int] = {}

    def id_for(self, call_id: str) -> str:
        """Return the id of the next call that is named `call_id`."""
        chosen = self._fitted(call_id)
        if chosen in self._used or not chosen:
            number = self._last.get(call_id, 1)
            while chosen in self._used or chosen in self._taken or not chosen:
                number += 1
                chosen = self._fitted(f"{call_id or 'call'}{self._mark}{number}")
            self._last[call_id] = number
        self._used.add(chosen)
        return chosen

    def _fitted(self, call_id: str) -> str:
        if self._longest is None or len(call_id) <= self._longest:
            return call_id
        digest = hashlib.sha256(call_id.encode(errors="surrogatepass")).hexdigest()[:12]
        return f"{call_id[: self._longest - len(digest) - 1]}-{digest}"


class UniqueCallIds(Stage):
    """Gives a call whose id the conversation or this answer has used already another one; its result follows it.

    A call of the conversation that has no result is not finished: a backend that names it again continues it.
    """

    passes_deltas = True

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self._names: _Names | None = None

    def __call__(self, events: list[Event]) -> list[Event]:
        for event in events:
            kind = type(event)
            if kind in _OF_CALLS and (kind is not PartStarted or event.kind is _TOOL_CALL):  # type: ignore[union-attr]
                break
        else:
            return events
        if self._names is None:
            self._names = _Names(self._messages)
        rename = self._names.rename
        return [rename(event) if type(event) in _OF_CALLS else event for event in events]


class _Names:
    """The ids of the calls of one answer, once it has one."""

    def __init__(self, messages: list[Message]) -> None:
        """`messages`: of the conversation before it."""
        self._messages = messages
        self._ids: CallIds | None = None
        self._waiting: dict[str, deque[str]] = {}  # calls without a result, by the backend's id
        self._last: dict[str, str] = {}  # the last call that had a result, by the backend's id

    def rename(self, event: Event) -> Event:
        """Return an event of a call with the id of that call."""
        if isinstance(event, PartStarted):
            if event.kind is not _TOOL_CALL or not event.call_id:
                return event
            if self._ids is None:
                made, finished = _calls_in(self._messages)
                self._ids = CallIds(made, used=finished, mark=REPEAT)
            call_id = self._ids.id_for(event.call_id)
            self._waiting.setdefault(event.call_id, deque()).append(call_id)
            return event if call_id == event.call_id else replace(event, call_id=call_id)
        if isinstance(event, ToolResulted):
            waiting = self._waiting.get(event.call_id)
            if waiting:
                self._last[event.call_id] = waiting.popleft()
            call_id = self._last.get(event.call_id, event.call_id)
            return event if call_id == event.call_id else replace(event, call_id=call_id)
        if isinstance(event, Interrupted) and event.call_id:
            waiting = self._waiting.get(event.call_id)
            call_id = waiting[-1] if waiting else self._last.get(event.call_id, event.call_id)
            return event if call_id == event.call_id else replace(event, call_id=call_id)
        return event


_OF_CALLS: frozenset[type] = frozenset({PartStarted, ToolResulted, Interrupted})


class OnlyResultsOfTheBackend(Stage):
    """Leaves out results of the client's own tools: agents that leave such a call to the client report a placeholder.

    agentscope-ai/agentscope-java#2024 ("[Awaiting external execution]"), ag-ui-protocol/ag-ui#1346.
    """

    passes_deltas = True

    def __init__(self, offered: frozenset[str], lost: Losses) -> None:
        self._offered = offered
        self._lost = lost
        self._calls: set[str] = set()

    def __call__(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if isinstance(event, PartStarted) and event.name in self._offered and event.call_id:
                self._calls.add(event.call_id)
            elif isinstance(event, ToolResulted) and event.call_id in self._calls:
                self._lost.add(Feature.TOOL_RESULT, "a result of a tool that the client runs")
                continue
            out.append(event)
        return out


def of_calls(request: Request, back: Capabilities, lost: Losses) -> list[Stage]:
    """Return the stages that every answer passes first."""
    stages: list[Stage] = [UniqueCallIds(request.messages)]
    if request.tools and back.runs_tools is RunsTools.UNLISTED:
        stages.append(OnlyResultsOfTheBackend(frozenset(tool.name for tool in request.tools), lost))
    return stages


def with_ids_of(request: Request, survey: Survey) -> Request:
    """Return the request with the ids that a backend with a memory gave its calls, where this answer changed them."""
    if ToolResult not in survey.kinds:
        return request
    messages: list[Message] = []
    for message in request.messages:
        parts = [
            replace(part, call_id=found[1])
            if isinstance(part, ToolResult) and (found := _OURS.fullmatch(part.call_id))
            else part
            for part in message.parts
        ]
        is_same = all(new is old for new, old in zip(parts, message.parts, strict=True))
        messages.append(message if is_same else replace(message, parts=parts))
    is_same = all(new is old for new, old in zip(messages, request.messages, strict=True))
    return request if is_same else replace(request, messages=messages)


def _calls_in(messages: list[Message]) -> tuple[set[str], set[str]]:
    """Return the ids of calls, and of those that have a result."""
    made: set[str] = set()
    done: set[str] = set()
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                made.add(part.call_id)
            elif isinstance(part, ToolResult):
                done.add(part.call_id)
    return made, made & done
