"""Stream <-> finished messages.

`fold` turns a stream into an `Answer`: messages with whole parts in the order in which the parts began, the last usage,
the finish reason, and the events that are not content. `unfold` is the inverse. Both preserve everything in the model
except where the deltas were cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bridge.errors import Failure
from bridge.model import events as ev
from bridge.model.events import Event, FinishReason, MessageStatus, PartKind
from bridge.model.parts import Extras, Media, Message, Part, Reasoning, Refusal, Text, ToolCall, ToolResult


@dataclass(slots=True)
class Ending:
    """How one message ended."""

    choice: int = 0
    status: MessageStatus = MessageStatus.COMPLETED
    reason: FinishReason | None = None
    results: list[tuple[int, Message]] = field(default_factory=list, compare=False)
    """Messages with a tool's result that came while this one was open and the last one, each with the number of parts
    before it.
    """


@dataclass(slots=True)
class Answer:
    """A finished run. `endings` is keyed by message id; `events` holds steps, states, customs and raws in order."""

    run_id: str = ""
    thread_id: str | None = None
    model: str | None = None
    created_at: float = 0.0
    ended_at: float | None = None
    messages: list[Message] = field(default_factory=list)
    endings: dict[str, Ending] = field(default_factory=dict)
    usage: ev.UsageReported | None = None
    reason: FinishReason | None = None
    failure: Failure | None = None
    interrupts: list[ev.Interrupted] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    extras: Extras | None = None
    end_extras: Extras | None = None

    def parts(self, choice: int = 0) -> list[Part]:
        """All parts of one choice in order, with tool results between them."""
        return [p for m in self.messages if self.choice_of(m) == choice for p in m.parts]

    def choice_of(self, message: Message) -> int:
        """Return the choice that a message belongs to."""
        ending = self.endings.get(message.id or "")
        return ending.choice if ending else 0

    @property
    def choices(self) -> list[int]:
        """The numbers of the choices, ascending."""
        return sorted({self.choice_of(m) for m in self.messages})

    def _joined(self, kind: type[Text] | type[Reasoning] | type[Refusal]) -> str:
        return "".join(p.text for p in self.parts() if isinstance(p, kind))

    @property
    def text(self) -> str:
        """All text of the first choice."""
        return self._joined(Text)

    @property
    def reasoning(self) -> str:
        """All reasoning of the first choice."""
        return self._joined(Reasoning)

    @property
    def refusal(self) -> str:
        """All refusals of the first choice."""
        return self._joined(Refusal)

    @property
    def calls(self) -> list[ToolCall]:
        """The tool calls of the first choice."""
        return [p for p in self.parts() if isinstance(p, ToolCall)]

    @property
    def results(self) -> list[ToolResult]:
        """The results of tools that ran on the backend's side."""
        return [p for p in self.parts() if isinstance(p, ToolResult)]

    @property
    def media(self) -> list[Media]:
        """The media of the first choice."""
        return [p for p in self.parts() if isinstance(p, Media)]


@dataclass(slots=True)
class _Part:
    started: ev.PartStarted
    message: Message
    place: int
    pieces: list[str] = field(default_factory=list)
    extras: list[Extras] = field(default_factory=list)


class Folder:
    """Feed events as they come; `answer` is complete when the terminal event was fed."""

    def __init__(self) -> None:
        self.answer = Answer()
        self._messages: dict[str, Message] = {}
        self._parts: dict[str, _Part] = {}
        self._latest: Message | None = None  # the last message, while it is open

    def feed(self, events: Iterable[Event]) -> None:
        parts = self._parts
        for event in events:
            kind = type(event)  # looked up: a `match` over twenty classes costs a multiple
            if kind in _DELTAS:
                open_part = parts.get(event.part_id)  # type: ignore[union-attr]
                if open_part is not None:
                    open_part.pieces.append(event.text)  # type: ignore[union-attr]
            elif kind in _HANDLERS:
                _HANDLERS[kind](self, event)
            else:
                self.answer.events.append(event)

    def cut(self) -> None:
        """The stream broke off without its end: what had come of open parts becomes their content."""
        for part_id, part in self._parts.items():
            part.message.parts[part.place] = _finished(part, ev.PartEnded(part_id))
        self._parts.clear()

    def _run_started(self, event: ev.RunStarted) -> None:
        answer = self.answer
        answer.run_id, answer.thread_id = event.run_id, event.thread_id
        answer.model, answer.created_at = event.model, event.created_at
        answer.metadata, answer.extras = event.metadata, event.extras

    def _message_started(self, event: ev.MessageStarted) -> None:
        message = Message(event.role, [], event.message_id, event.name, {}, event.extras)
        self._messages[event.message_id] = self._latest = message
        self.answer.messages.append(message)
        self.answer.endings[event.message_id] = Ending(event.choice)

    def _part_started(self, event: ev.PartStarted) -> None:
        owner = self._messages[event.message_id]
        self._parts[event.part_id] = _Part(event, owner, len(owner.parts))
        owner.parts.append(Text(""))  # keeps the place; replaced when the part ends

    def _part_ended(self, event: ev.PartEnded) -> None:
        part = self._parts.pop(event.part_id)
        part.message.parts[part.place] = _finished(part, event)

    def _content(self, event: ev.ContentAdded) -> None:
        self._messages[event.message_id].parts.append(event.part)

    def _result(self, event: ev.ToolResulted) -> None:
        result = ToolResult(event.call_id, event.parts, event.name, event.is_error, event.extras)
        message = Message("tool", [result], event.message_id, event.name)
        self.answer.messages.append(message)
        if self._latest is not None:
            self.answer.endings[self._latest.id or ""].results.append((len(self._latest.parts), message))

    def _message_ended(self, event: ev.MessageEnded) -> None:
        ending = self.answer.endings[event.message_id]
        ending.status, ending.reason = event.status, event.reason
        if self._latest is not None and self._latest.id == event.message_id:
            self._latest = None
        if event.extras:
            message = self._messages[event.message_id]
            message.extras = {**(message.extras or {}), **event.extras}

    def _usage(self, event: ev.UsageReported) -> None:
        self.answer.usage = event

    def _interrupted(self, event: ev.Interrupted) -> None:
        self.answer.interrupts.append(event)

    def _run_finished(self, event: ev.RunFinished) -> None:
        answer = self.answer
        answer.reason, answer.ended_at, answer.end_extras = event.reason, event.ended_at, event.extras

    def _run_failed(self, event: ev.RunFailed) -> None:
        answer = self.answer
        answer.failure, answer.ended_at, answer.end_extras = event.error, event.ended_at, event.extras

    def _nothing(self, event: ev.Heartbeat) -> None:
        pass


_DELTAS: frozenset[type] = frozenset({ev.TextDelta, ev.ReasoningDelta, ev.ArgsDelta})
# Functions, not methods bound to each folder: those would tie it to itself.
_HANDLERS: dict[type, Callable[[Folder, Any], None]] = {
    ev.RunStarted: Folder._run_started,
    ev.MessageStarted: Folder._message_started,
    ev.PartStarted: Folder._part_started,
    ev.PartEnded: Folder._part_ended,
    ev.ContentAdded: Folder._content,
    ev.ToolResulted: Folder._result,
    ev.MessageEnded: Folder._message_ended,
    ev.UsageReported: Folder._usage,
    ev.Interrupted: Folder._interrupted,
    ev.RunFinished: Folder._run_finished,
    ev.RunFailed: Folder._run_failed,
    ev.Heartbeat: Folder._nothing,
}


def _finished(part: _Part, ended: ev.PartEnded) -> Part:
    start, text = part.started, "".join(part.pieces)
    extras = start.extras
    if ended.extras:
        extras = {**(extras or {}), **ended.extras}
    match start.kind:
        case PartKind.TEXT:
            return Text(text, extras)
        case PartKind.REFUSAL:
            return Refusal(text, extras)
        case PartKind.REASONING:
            return Reasoning(text, ended.signature, ended.redacted, extras)
        case PartKind.TOOL_CALL:
            return ToolCall(start.call_id or "", start.name or "", text, start.origin, start.server_label, extras)


def coalesced(events: Sequence[Event]) -> Sequence[Event]:
    """Return the same stream without heartbeats and with few deltas: those of a part that no event but other deltas
    separates are one.

    Deltas with extras stay as they are.
    """
    has_delta = False
    for event in events:
        kind = type(event)
        if kind is ev.Heartbeat or (kind in _DELTAS and has_delta):
            break
        has_delta = has_delta or kind in _DELTAS
    else:
        return events
    out: list[Event] = []
    pieces: dict[str, list[Any]] = {}
    for event in events:
        kind = type(event)
        if kind in _DELTAS and not event.extras:
            pieces.setdefault(event.part_id, []).append(event)  # type: ignore[union-attr]
            continue
        if kind is ev.Heartbeat:
            continue
        if pieces:
            out += map(_one_delta, pieces.values())
            pieces = {}
        out.append(event)
    out += map(_one_delta, pieces.values())
    return out


def _one_delta(pieces: list[ev.Delta]) -> Event:
    first = pieces[0]
    return first if len(pieces) == 1 else replace(first, text="".join([piece.text for piece in pieces]))


def fold(events: Iterable[Event]) -> Answer:
    """Return the complete answer of a well-formed stream."""
    folder = Folder()
    folder.feed(events)
    return folder.answer


def unfold(answer: Answer) -> list[Event]:
    """Return a well-formed stream that folds to this answer; each part is one delta."""
    out: list[Event] = [
        ev.RunStarted(answer.run_id, answer.thread_id, answer.model, answer.created_at, answer.metadata, answer.extras)
    ]
    told: set[int] = set()  # the messages with results inside others
    for number, message in enumerate(answer.messages):
        if _is_result(message):
            out += _results_of(message, told)
            continue
        message_id = message.id or f"{answer.run_id}-{number}"
        ending = answer.endings.get(message.id or "") or Ending()
        out.append(ev.MessageStarted(message_id, message.role, message.name, ending.choice, message.extras))
        inside = deque(ending.results)
        for index, part in enumerate(message.parts):
            while inside and inside[0][0] <= index:
                out += _results_of(inside.popleft()[1], told)
            out.extend(_part_events(f"{message_id}-{index}", message_id, part, ending.choice))
        out.append(ev.MessageEnded(message_id, ending.status, ending.reason, choice=ending.choice))
    out.extend(answer.events)
    out.extend(answer.interrupts)
    if answer.usage is not None:
        out.append(answer.usage)
    if answer.failure is not None:
        out.append(ev.RunFailed(answer.failure, answer.ended_at, answer.end_extras))
    else:
        out.append(ev.RunFinished(answer.reason or FinishReason.STOP, answer.ended_at, answer.end_extras))
    return out


def _is_result(message: Message) -> bool:
    return message.role == "tool" and bool(message.parts) and all(isinstance(p, ToolResult) for p in message.parts)


def _results_of(message: Message, told: set[int]) -> list[Event]:
    """Return the results of a message, once."""
    if id(message) in told:
        return []
    told.add(id(message))
    results = [p for p in message.parts if isinstance(p, ToolResult)]
    return [ev.ToolResulted(r.call_id, r.parts, r.name, r.is_error, message.id, r.extras) for r in results]


def _part_events(part_id: str, message_id: str, part: Part, choice: int) -> list[Event]:
    signature: str | None = None
    redacted: str | None = None
    deltas: list[Event]
    match part:
        case Text(text=text) | Refusal(text=text):
            kind = PartKind.TEXT if isinstance(part, Text) else PartKind.REFUSAL
            start = ev.PartStarted(part_id, message_id, kind, extras=part.extras, choice=choice)
            deltas = [ev.TextDelta(part_id, text)]
        case Reasoning(text=text):
            signature, redacted = part.signature, part.redacted
            start = ev.PartStarted(part_id, message_id, PartKind.REASONING, extras=part.extras, choice=choice)
            deltas = [ev.ReasoningDelta(part_id, text)]
        case ToolCall(arguments=text):
            start = ev.PartStarted(
                part_id, message_id, PartKind.TOOL_CALL, part.call_id, part.name, part.origin, part.server_label,
                part.extras, choice,
            )  # fmt: skip
            deltas = [ev.ArgsDelta(part_id, text)]
        case ToolResult():
            return [ev.ToolResulted(part.call_id, part.parts, part.name, part.is_error, None, part.extras)]
        case _:
            return [ev.ContentAdded(message_id, part, choice=choice)]
    return [start, *(deltas if text else []), ev.PartEnded(part_id, signature, redacted)]
