"""Earlier calls and their results as an API demands them.

Chat completions: "an assistant message with tool_calls must be followed by tool messages responding to each
tool_call_id". Anthropic Messages: each `tool_use` has one `tool_result` in the next message, and ids are unique.
Clients send results late, early, twice, for no call or not at all, and servers name calls of different turns alike.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import is_

from bridge.contract.demands import NO_RESULT, Demands
from bridge.model import Message, Part, Reasoning, Text, ToolCall, ToolResult
from bridge.model.parts import LINKED
from bridge.toolkit.merging import Added
from bridge.translation.call_ids import CallIds

_Result = tuple[Message, int, ToolResult]
"""A result with its message and its position there."""


@dataclass(slots=True)
class _Call:
    """One call of the history. `call_id` is what it is sent as. `is_repeat`: it is an earlier call, sent again."""

    part: ToolCall
    call_id: str = ""
    result: _Result | None = None
    is_repeat: bool = False

    def written(self) -> ToolCall | None:
        """Return the part as it is sent; None if it is not."""
        if self.is_repeat:
            return None
        return self.part if self.call_id == self.part.call_id else replace(self.part, call_id=self.call_id)


@dataclass(slots=True)
class _Turn:
    """What the assistant says until results, or another role, follow."""

    calls: list[_Call] = field(default_factory=list)


_Step = tuple[Message, int, Part | _Call | None] | _Turn
"""A part with its message and position (None: of a message without parts), or the end of a turn with calls."""


def arranged(
    messages: list[Message], demands: Demands, *, own: bool, is_stored: bool = False
) -> tuple[list[Message], str]:
    """Return the messages as `demands` wants calls and results, and what was changed; the same list and "" if nothing.

    `own`: the client speaks the backend's dialect. Its ids may be of any length, and a part that only this dialect
    reads may be the call of a result. `is_stored`: the server adds earlier messages of its own, with calls.
    """
    longest = None if own else demands.longest_call_id
    if not _is_wrong(messages, demands, longest):
        return messages, ""
    history = _History(messages, longest, keeps_orphans=is_stored or (own and _may_hold_calls(messages)))
    written = history.written()
    return written, ", ".join(history.changes)


def _may_hold_calls(messages: list[Message]) -> bool:
    """Return whether the assistant's messages have parts that only their own dialect reads."""
    known = (Text, Reasoning, ToolCall, ToolResult)
    return any(m.role != "user" and not all(isinstance(p, known) for p in m.parts) for m in messages)


def _is_wrong(messages: list[Message], demands: Demands, longest: int | None) -> bool:
    """Return whether calls and results are not as demanded; one look at each part."""
    seen: set[str] = set()
    waiting: set[str] = set()
    order: deque[str] = deque()
    is_strict, has_results = not demands.results_anywhere, False
    for message in messages:
        is_assistant = message.role == "assistant"
        if LINKED.isdisjoint(map(type, message.parts)):
            if is_strict and waiting and (has_results or not is_assistant):
                return True
            continue
        for part in message.parts:
            if isinstance(part, ToolResult):
                if part.call_id not in waiting:
                    return True
                waiting.remove(part.call_id)
                if demands.results_in_order and order.popleft() != part.call_id:
                    return True
                has_results = True
            elif isinstance(part, ToolCall):
                call_id = part.call_id
                if (
                    not is_assistant
                    or call_id in seen
                    or not call_id
                    or (longest is not None and len(call_id) > longest)
                ):
                    return True
                if is_strict and waiting and has_results:
                    return True
                seen.add(call_id)
                waiting.add(call_id)
                order.append(call_id)
                has_results = False
            elif is_strict and waiting and (has_results or not is_assistant):
                return True
    return bool(waiting)


class _History:
    """The history of one request, rewritten. `changes` says what became different."""

    def __init__(self, messages: list[Message], longest: int | None, *, keeps_orphans: bool) -> None:
        self.changes: dict[str, None] = {}
        self._keeps_orphans = keeps_orphans
        self._steps: list[_Step] = []
        self._turn = _Turn()
        self._has_results = False  # of the current turn
        self._open: dict[str, deque[_Call]] = {}  # calls of the current turn without a result, by id
        self._older: dict[str, deque[_Call]] = {}
        self._first: dict[str, _Call] = {}
        self._early: dict[str, _Result] = {}
        self._read(messages)
        self._settle(CallIds(set(self._first), longest))

    # ------------------------------------------------------------------ reading

    def _read(self, messages: list[Message]) -> None:
        for message in messages:
            is_assistant = message.role == "assistant"
            if not message.parts:
                self._add(message, 0, None, is_assistant)
            for position, part in enumerate(message.parts):
                if isinstance(part, ToolResult):
                    self._match((message, position, part))
                elif not isinstance(part, ToolCall):
                    self._add(message, position, part, is_assistant)
                elif is_assistant:
                    self._call(message, position, part)
                else:
                    self.changes["a call of another than the assistant is left out"] = None
        self._end_turn()

    def _add(self, message: Message, position: int, part: Part | None, is_assistant: bool) -> None:
        if self._has_results or not is_assistant:
            self._end_turn()
        self._steps.append((message, position, part))

    def _call(self, message: Message, position: int, part: ToolCall) -> None:
        if self._has_results:
            self._end_turn()
        call = _Call(part)
        self._turn.calls.append(call)
        self._open.setdefault(part.call_id, deque()).append(call)
        self._first.setdefault(part.call_id, call)
        self._steps.append((message, position, call))

    def _match(self, found: _Result) -> None:
        """Give a result to the oldest call of this turn with its id, or else of the turns before."""
        call_id = found[2].call_id
        for calls in (self._open.get(call_id), self._older.get(call_id)):
            if calls:
                calls.popleft().result = found
                self._has_results = True
                return
        if call_id in self._first or call_id in self._early:
            self.changes["a second result of a call is left out"] = None
        elif self._keeps_orphans:
            self._end_turn()
            self._steps.append(found)
        else:
            self._early[call_id] = found

    def _end_turn(self) -> None:
        self._has_results = False
        if self._turn.calls:
            self._steps.append(self._turn)
            self._turn = _Turn()
        for call_id, calls in self._open.items():
            if calls:
                self._older.setdefault(call_id, deque()).extend(calls)
        self._open = {}

    def _settle(self, ids: CallIds) -> None:
        """Find the calls of early results, and give each call its id."""
        for call_id, found in self._early.items():
            call = self._first.get(call_id)
            if call is None or call.result is not None:
                self.changes["a result without a call is left out"] = None
            else:
                call.result = found
        for step in self._steps:
            if not isinstance(step, _Turn):
                continue
            kept: set[tuple[str, str, str]] = set()
            for call in step.calls:
                part = call.part
                key = (part.call_id, part.name, part.arguments)
                call.is_repeat = call.result is None and key in kept
                if call.is_repeat:
                    self.changes["a call that was sent twice is left out"] = None
                    continue
                kept.add(key)
                call.call_id = ids.id_for(part.call_id)
                if call.call_id != part.call_id:
                    self.changes["a call gets an id of its own"] = None

    # ------------------------------------------------------------------ writing

    def written(self) -> list[Message]:
        """Return the messages."""
        self._out: list[Message] = []
        self._pieces: dict[int, int] = {}
        current: Message | None = None
        pieces: list[tuple[int, Part]] = []
        for step in self._steps:
            message = None if isinstance(step, _Turn) else step[0]
            if message is not current and current is not None:
                self._piece(current, pieces)
            if message is not current:
                current, pieces = message, []
            if isinstance(step, _Turn):
                self._results(step)
                continue
            part = step[2].written() if isinstance(step[2], _Call) else step[2]
            if part is not None:
                pieces.append((step[1], part))
        if current is not None:
            self._piece(current, pieces)
        if not self.changes:
            self.changes["results stand after their calls"] = None
        return self._out

    def _piece(self, message: Message, pieces: list[tuple[int, Part]]) -> None:
        """Add a message, or what is left of it; only its first piece has its fields of other dialects."""
        if pieces or not message.parts:
            is_first = self._pieces.setdefault(id(message), len(self._out)) == len(self._out)
            self._out.append(with_parts(message, pieces, is_first=is_first))

    def _results(self, turn: _Turn) -> None:
        source: Message | None = None
        pieces: list[tuple[int, Part]] = []
        for call in turn.calls:
            if call.is_repeat:
                continue
            if call.result is None:
                self.changes["a call without a result gets one"] = None
                text: list[Part] = [Text(NO_RESULT)]
                missing = ToolResult(call.call_id, text, call.part.name, is_error=True)
                found: _Result = (Message("tool", [missing], name=call.part.name), 0, missing)
            else:
                found = call.result
            message, position, result = found
            if message is not source:
                self._result_message(source, pieces)
                source, pieces = message, []
            is_same = result.call_id == call.call_id
            pieces.append((position, result if is_same else replace(result, call_id=call.call_id)))
        self._result_message(source, pieces)

    def _result_message(self, source: Message | None, pieces: list[tuple[int, Part]]) -> None:
        if source is None:
            return
        if source.role == "tool" or (source.role == "user" and len(pieces) == len(source.parts)):
            self._piece(source, pieces)
        else:
            bare = Message("tool", source.parts, places=source.places)
            self._out.append(with_parts(bare, pieces, is_first=True))


def with_parts(message: Message, pieces: list[tuple[int, Part]], *, is_first: bool) -> Message:
    """Return the message with these parts, each with its position in `message`."""
    parts = [part for _, part in pieces]
    if len(parts) == len(message.parts) and all(map(is_, parts, message.parts)):
        return message
    places = message.places
    if len(parts) < len(message.parts) and places:
        whole, *known = places
        places = (whole, *(known[n] if n < len(known) else n for n, _ in pieces))
    if is_first:
        return replace(message, parts=parts, places=places)
    return replace(message, parts=parts, places=places, id=None, extras=None)


# ---------------------------------------------------------------------- one message for each turn


def joined(messages: list[Message], *, own: bool) -> list[Message]:
    """Return the messages with one message for each turn of the assistant that has calls; the same list if it is so.

    Calls join the message before them, and what the assistant says after calls or after reasoning joins that. Of a
    client of the backend's dialect (`own`), only what stands between calls and their results is joined.
    """
    if not any(a.role == b.role == "assistant" for a, b in pairwise(messages)):
        return messages
    out: list[Message] = []
    fields: dict[int, dict[str, Added]] = {}  # of each message that was made here, by its place, the fields of dialects
    is_thinking = has_calls = False  # of the last message
    is_turn = False
    for message in messages:
        kinds = {type(part) for part in message.parts if not _is_blank(part)}
        continues = message.role == "assistant" and ToolResult not in kinds
        wanted = has_calls or (bool(message.parts) and not own and (is_thinking or _is_calls(kinds)))
        if continues and is_turn and wanted:
            place = len(out) - 1
            if place not in fields:
                out[place] = replace(out[place], parts=[*out[place].parts])
                fields[place] = {dialect: Added(values) for dialect, values in (out[place].extras or {}).items()}
            last = out[place]
            last.parts += message.parts
            last.id, last.name = last.id or message.id, last.name or message.name
            for dialect, values in (message.extras or {}).items():
                fields[place].setdefault(dialect, Added()).add(values or {})
            is_thinking = is_thinking and kinds <= {Reasoning}
            has_calls = has_calls or ToolCall in kinds
            continue
        out.append(message)
        is_turn = continues and bool(message.parts)
        is_thinking, has_calls = is_turn and kinds == {Reasoning}, is_turn and ToolCall in kinds
    for place, added in fields.items():
        out[place].extras = {dialect: values.plain() for dialect, values in added.items()} or None
    return messages if len(out) == len(messages) else out


def _is_blank(part: Part) -> bool:
    """Return whether a text says nothing: what stands before and after it is one turn."""
    return isinstance(part, Text) and not part.text.strip() and not part.extras


def _is_calls(kinds: set[type]) -> bool:
    return ToolCall in kinds and kinds <= {ToolCall, Reasoning}
