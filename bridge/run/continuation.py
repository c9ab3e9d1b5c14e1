"""Combines one backend's broken answer with another one's continuation.

Only text can be continued. After a tool call, media or the end of the text, a second call might repeat a side effect or
contradict the first, so that the failure stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bridge.model import (
    Event,
    Heartbeat,
    Message,
    MessageEnded,
    MessageStarted,
    PartEnded,
    PartKind,
    PartStarted,
    ReasoningDelta,
    Request,
    RunFailed,
    RunFinished,
    RunStarted,
    Text,
    TextDelta,
    UsageReported,
)

_WORDS: frozenset[type] = frozenset(
    {
        *(RunStarted, MessageStarted, PartStarted, TextDelta, ReasoningDelta, PartEnded, MessageEnded),
        *(UsageReported, Heartbeat, RunFailed, RunFinished),
    }
)
_ID = "begun"
GO_ON = (
    "Your answer above was cut off. Go on exactly where it stops, in the middle of the word if need be, "
    "without repeating any of it and without a remark on the interruption."
)


class StreamContinuation:
    """What the client has of an answer, and whether another backend may continue it.

    Call `observe` with what backends send and `record` with what is sent on; after a failure, call `left_open`, and
    `begin` once for each further backend, whose events then go through `join`.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._names: set[tuple[str, str]] = set()
        self._message: str | None = None
        self._part: str | None = None
        self._reasoned = False
        self.possible = True
        """The answer so far can be continued: it is nothing but words."""
        self.differs = False
        """The continuation does not begin with the text that the client has."""
        self._resumption: _Resumption | None = None

    @property
    def text(self) -> str:
        """The text that the client has."""
        return "".join(self._pieces)

    def observe(self, events: list[Event]) -> None:
        """A batch of a backend, before any stage: a tool call that is withheld counts too."""
        for event in events:
            match event:
                case PartStarted(kind=PartKind.TEXT | PartKind.REASONING) | MessageStarted(role="assistant", choice=0):
                    pass
                case PartStarted() | MessageStarted():
                    self.possible = False
                case _ if type(event) not in _WORDS:
                    self.possible = False

    def record(self, events: list[Event]) -> None:
        """Record a batch that goes to the client."""
        for event in events:
            match event:
                case TextDelta():
                    self._pieces.append(event.text)
                case PartStarted():
                    self._names.add(("part_id", event.part_id))
                    self._part_began(event)
                case PartEnded():
                    self.possible = self.possible and event.part_id != self._part
                case MessageStarted():
                    self._names.add(("message_id", event.message_id))
                    self._message = self._message if self._part is not None else event.message_id
                case MessageEnded() if event.message_id == self._message:
                    self._message = None
                case _:
                    pass

    def _part_began(self, event: PartStarted) -> None:
        if event.kind is PartKind.REASONING:
            self._reasoned = True
            return
        self.possible = self.possible and self._part is None
        self._part, self._message = event.part_id, event.message_id

    def left_open(self, events: list[Event]) -> list[Event]:
        """Return what the client gets of the failing batch: neither its failure nor the end of what may be
        continued.
        """
        body = events[:-1]
        self.record([event for event in body if type(event) not in (PartEnded, MessageEnded)])
        return [event for event in body if not self._ends(event)]

    def _ends(self, event: Event) -> bool:
        match event:
            case PartEnded():
                return event.part_id == self._part
            case MessageEnded():
                return event.message_id == self._message
            case _:
                return False

    def begin(self) -> None:
        """Another backend was called."""
        self._resumption = _Resumption(self.text, self._reasoned, self._message, self._part, set(self._names))

    def join(self, events: list[Event]) -> list[Event]:
        """A batch of that backend, as the rest of what the client has; empty once it `differs` from that."""
        if self._resumption is None:
            return events
        try:
            return list(self._resumption.feed(events))
        except _Differs:
            self.differs = True
            return []


class _Differs(Exception):
    pass


class _Resumption:
    """The events of a further backend: held back until it has repeated what the client has, then passed on with its
    ids.
    """

    def __init__(
        self, text: str, reasoned: bool, message: str | None, part: str | None, taken: set[tuple[str, str]]
    ) -> None:
        """`message` and `part` are what the client has open. `taken`: the names it has seen."""
        self._text = text
        self._at = 0
        self._on = not text and not reasoned and part is None
        self._message = message
        self._part = part
        self._taken = taken
        self._names: dict[tuple[str, str], str] = {}
        self._waiting: dict[str, MessageStarted] = {}
        self._unseen: set[str] = set()
        self._spoken: str | None = None

    def feed(self, events: list[Event]) -> Iterator[Event]:
        for event in events:
            if self._on:
                yield from self._further(event)
            else:
                yield from self._again(event)

    def _again(self, event: Event) -> Iterator[Event]:
        """Skip events until the client's text has been repeated. Reasoning is not shown a second time."""
        match event:
            case RunStarted() | Heartbeat() | UsageReported() | ReasoningDelta():
                pass
            case RunFailed():
                yield event
            case MessageStarted():
                self._waiting[event.message_id] = event
            case PartStarted(kind=PartKind.REASONING):
                self._unseen.add(event.part_id)
            case PartStarted(kind=PartKind.TEXT) if self._spoken is None:
                self._spoken = event.part_id
                yield from self._further(event)
                self._on = not self._text
            case TextDelta() if event.part_id == self._spoken:
                yield from self._compared(event)
            case PartEnded() if event.part_id in self._unseen:
                pass
            case MessageEnded() if self._waiting.pop(event.message_id, None) is not None:
                pass
            case _ if not self._text:
                self._on = True
                yield from self._part_closed()
                yield from self._further(event)
            case _:
                raise _Differs

    def _compared(self, event: TextDelta) -> Iterator[Event]:
        came, left = event.text, len(self._text) - self._at
        if not self._text.startswith(came[:left], self._at):
            raise _Differs
        self._at += min(len(came), left)
        self._on = self._at == len(self._text)
        if len(came) > left:
            yield from self._further(replace(event, text=came[left:]))

    def _further(self, event: Event) -> Iterator[Event]:
        match event:
            case RunStarted():
                return
            case MessageStarted():
                self._waiting[event.message_id] = event
                return
            case MessageEnded() if self._waiting.pop(event.message_id, None) is not None:
                return
            case PartStarted():
                yield from self._opened(event.message_id)
                if event.kind is PartKind.TEXT and self._part is not None:
                    self._names["part_id", event.part_id], self._part = self._part, None
                    return
            case PartEnded() | ReasoningDelta() if event.part_id in self._unseen:
                return
            case RunFinished():
                yield from self._closed()
            case _ if type(event) not in _WORDS:
                message = getattr(event, "message_id", None)
                if message is not None:
                    yield from self._opened(message)
        yield self._named(event)

    def _opened(self, message: str) -> Iterator[Event]:
        """A message gets its first content: it continues the client's open message, or begins a new one."""
        waiting = self._waiting.pop(message, None)
        if waiting is None:
            return
        if self._message is not None:
            self._names["message_id", message], self._message = self._message, None
            return
        yield self._named(waiting)

    def _closed(self) -> Iterator[Event]:
        """Return the events that close what the client has open, as no backend continued it."""
        yield from self._part_closed()
        if self._message is not None:
            yield MessageEnded(self._message)
            self._message = None

    def _part_closed(self) -> Iterator[Event]:
        if self._part is not None:
            yield PartEnded(self._part)
            self._part = None

    def _named(self, event: Event) -> Event:
        changes: dict[str, Any] = {}
        for kind in ("message_id", "part_id"):
            name = getattr(event, kind, None)
            if name is not None and (new := self._name(kind, name)) != name:
                changes[kind] = new
        return replace(event, **changes) if changes else event

    def _name(self, kind: str, name: str) -> str:
        """The client's name for it: its own, unless the client knows something else by that."""
        known = self._names.get((kind, name))
        if known is not None:
            return known
        new = name
        while (kind, new) in self._taken:
            new += "-2"
        self._names[kind, name] = new
        return new


class ContinuedText:
    """Prepends the text of the previous backend to the one that continues it."""

    def __init__(self, text: str) -> None:
        self._text: str | None = text

    def __call__(self, events: list[Event]) -> list[Event]:
        return events if self._text is None else [new for event in events for new in self._one(event)]

    def _one(self, event: Event) -> list[Event]:
        text = self._text
        if text is None or (isinstance(event, PartStarted) and event.kind is PartKind.REASONING):
            return [event]
        match event:
            case PartStarted(kind=PartKind.TEXT):
                self._text = None
                return [event, TextDelta(event.part_id, text)]
            case MessageStarted() | MessageEnded():
                return [event]
            case PartStarted() | RunFinished():
                self._text = None
            case _ if type(event) in _WORDS:
                return [event]
            case _:
                self._text = None
        part = PartStarted(_ID, _ID, PartKind.TEXT)
        return [MessageStarted(_ID), part, TextDelta(_ID, text), PartEnded(_ID), MessageEnded(_ID), event]


def continued_request(request: Request, text: str) -> Request:
    """Return the request to a model to continue after `text`, the text of its answer so far."""
    more = [Message("assistant", [Text(text)]), Message("user", [Text(GO_ON)])]
    return replace(request, messages=[*request.messages, *more])
