"""`Encoder`: the base of encoders. A subclass has one method for each type of event that its wire can say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Any, ClassVar

from bridge.contract.capabilities import Capabilities, Feature
from bridge.contract.context import Context
from bridge.contract.dialect import EncoderLike
from bridge.contract.wire import Frame, FrameLike
from bridge.model import events as ev
from bridge.model.events import Event, PartKind
from bridge.model.fold import coalesced
from bridge.model.jsontext import dumps, loads
from bridge.model.parts import Reasoning, ToolCall
from bridge.toolkit.counts import NOT_REPORTED
from bridge.toolkit.cut_calls import CutCalls
from bridge.toolkit.projection import Projection
from bridge.toolkit.sequencer import DELTAS, Lane, Sequencer, one_lane

_METHODS: Mapping[type, str] = {
    ev.TextDelta: "text",
    ev.ReasoningDelta: "reasoning",
    ev.ArgsDelta: "arguments",
    ev.RunStarted: "run_started",
    ev.MessageStarted: "message_started",
    ev.MessageEnded: "message_ended",
    ev.PartStarted: "part_started",
    ev.PartEnded: "part_ended",
    ev.ContentAdded: "content",
    ev.ToolResulted: "tool_resulted",
    ev.UsageReported: "usage_reported",
    ev.StepStarted: "step_started",
    ev.StepEnded: "step_ended",
    ev.StateChanged: "state_changed",
    ev.Interrupted: "interrupted",
    ev.Custom: "custom",
    ev.Raw: "raw",
    ev.Heartbeat: "heartbeat",
    ev.RunFailed: "failed",
    ev.RunFinished: "finished",
}
_PLACED = DELTAS | {ev.PartStarted, ev.PartEnded, ev.ContentAdded, ev.ToolResulted, ev.RunFinished, ev.RunFailed}


_PIECES: Mapping[PartKind, type] = {PartKind.REASONING: ev.ReasoningDelta, PartKind.TOOL_CALL: ev.ArgsDelta}
_VALUES = frozenset({dict})


class Encoder(EncoderLike):
    """Encodes one run: events -> frames for the client. The events obey the grammar.

    A subclass defines the methods of the events that its wire can say, and appends frames to `self.out`::

        class WordsEncoder(Encoder):
            def text(self, event: TextDelta) -> None:
                self.out.append(dumps({"text": event.text}))

            def failed(self, event: RunFailed) -> None:
                self.out.append(dumps({"error": event.error.message}))

            def finished(self, event: RunFinished) -> None:
                self.out.append(dumps({"done": True}))

            def accumulate(self, frames: Sequence[Any]) -> dict[str, Any]:
                return {"text": "".join([frame.get("text", "") for frame in frames])}

    The base does first what holds for all dialects: one part is open at a time, in each lane (`Sequencer`); what the
    card does not carry is dropped, becomes text or fails, and is reported as lost (`Projection`).
    """

    dialect: str = ""
    """The dialect whose `Raw` events `raw` gets; those of others only if the card carries them."""
    free: Set[type] = frozenset(_METHODS) - _PLACED
    """Types of events that never wait for the end of an open part."""
    inline: Collection[type] = ()
    """Types of events that may stand between the pieces of an open part unless something waits for its end."""
    within: ClassVar[Collection[PartKind]] = frozenset(PartKind)
    """The kinds of open parts for which `inline` counts."""
    keeps: ClassVar[Collection[Feature]] = frozenset()
    """Features of which the encoder itself decides what becomes of them, and records the loss."""
    marks_refusals: ClassVar[bool] = False
    """True to get a refusal that the card has as text as a `REFUSAL` all the same, to tell that it is one."""
    holds_cut_calls: ClassVar[bool] = False
    """True to send the end of a call with invalid arguments only when it is known whether a limit cut it off
    (`CutCalls`)."""
    buffered: ClassVar[Collection[PartKind]] = ()
    """The kinds of parts that the wire has in one piece, of `TOOL_CALL` and `REASONING`: `buffered_part` gets them."""
    _handlers: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {}
    _at_once: Set[type] = DELTAS
    """Types of events that are written at once while nothing waits."""
    _ends_batches: ClassVar[bool] = False
    """True if it has a `batch_ended` of its own."""
    _holds_events: ClassVar[bool] = False
    """True if `ready` may hold events back."""
    accumulates: ClassVar[bool] = False
    """True if it has answers in one piece: it defines `accumulate`."""
    _cut_calls: CutCalls | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Functions of the class, not bound methods: those would create reference cycles, which keep the data of a
        # stream in memory until the cycle collector runs.
        handlers = {event: getattr(cls, name) for event, name in _METHODS.items()}
        if cls.buffered:
            handlers |= {ev.PartStarted: _begin_buffered, ev.PartEnded: _end_buffered}
            handlers |= {_PIECES[kind]: _buffer for kind in cls.buffered}
        cls._handlers = handlers
        cls._at_once = _passing(cls.free)
        cls._ends_batches = cls.batch_ended is not Encoder.batch_ended
        cls._holds_events = cls.holds_cut_calls or cls.ready is not Encoder.ready
        cls.accumulates = cls.accumulate is not Encoder.accumulate

    def __init__(self, context: Context, card: Capabilities, lane: Lane = one_lane) -> None:
        """`card` is the card of the dialect with the options of the route; `lane` is that of `Sequencer`."""
        self.context = context
        """The run that is encoded."""
        self.lost = context.lost
        """The losses of this run, to which a subclass adds its own."""
        self.out: list[Any] = []
        """The frames of the events that are being encoded."""
        self.in_one_piece = False
        """True while `accumulate` gets the frames: payloads are then not made to bytes."""
        self.usage: ev.UsageReported | None = None
        """The token counts that the backend reported."""
        self.open_buffers: dict[str, tuple[ev.PartStarted, list[str]]]
        """The open parts of kinds that are `buffered`, with their pieces so far; unset if no kind is."""
        if self.buffered:
            self.open_buffers = {}
        self._projection = Projection(card, context.lost, self.dialect, self.keeps, marks_refusals=self.marks_refusals)
        one_choice = context.lost if self._projection.has_one_choice else None
        self._sequencer = Sequencer(one_choice, self.free, self.inline, self.within, lane)
        if self.free is not type(self).free:  # as an option of the route says
            self._at_once = _passing(self.free)
        if self.holds_cut_calls:
            self._cut_calls = CutCalls()

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        """Return the frames of these events, possibly none. `Heartbeat` keeps the connection open."""
        out = self.out
        handlers, at_once, sequencer, projection = self._handlers, self._at_once, self._sequencer, self._projection
        rules, watched = projection.rules, projection.watched
        try:
            for event in self.ready(events) if self._holds_events else events:
                kind = type(event)
                if sequencer.busy or not (kind in at_once or sequencer.at_once(event)):
                    for placed in sequencer.place(event):
                        for ready in projection.feed(placed):
                            handlers[type(ready)](self, ready)
                elif kind not in rules or (kind in DELTAS and not watched):
                    handlers[kind](self, event)
                else:
                    for ready in rules[kind](projection, event):
                        handlers[type(ready)](self, ready)
            if self._ends_batches:
                self.batch_ended()
        finally:
            self.out = []  # frames are not held while the next events are waited for
        return out

    def whole(self, events: Sequence[Event]) -> Any:
        """Return the body of a whole answer, as JSON, of a run that did not fail. Raises what `accumulate` raises."""
        if not self.accumulates:
            return super().whole(events)
        self.in_one_piece = True
        frames: list[Any] = self.encode(coalesced(events))
        if not _VALUES.issuperset(map(type, frames)):
            frames = [frame if isinstance(frame, dict) else _value_of(frame) for frame in frames]
        return self.accumulate(frames)

    def accumulate(self, frames: Sequence[Any]) -> Any:
        """Return the body of a whole answer, as JSON: what a client makes of these frames of a run that did not fail.

        The payloads of frames come as JSON values; they may share values with events and are not to be changed. Deltas
        are few, as all pieces of a text are one, and no frame only keeps a connection open. Raises a `BridgeError` for
        an answer that clients get as an error. Without this method there are no answers in one piece.
        """
        raise NotImplementedError

    def write(self, payload: Mapping[str, Any], event: str | None = None) -> None:
        """Append a frame with this payload, and with the name of its event if it has one."""
        if self.in_one_piece:
            self.out.append(payload)
        else:
            self.out.append(dumps(payload) if event is None else Frame(dumps(payload), event))

    def ready(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events that can be written now: all, but those that wait to know whether a call was cut off."""
        return events if self._cut_calls is None else self._cut_calls.feed(events)

    def counted(self) -> ev.UsageReported:
        """Return the token counts of an answer that ended, for a wire whose clients read numbers.

        They are zeros, reported as lost, if the backend reported none.
        """
        if self.usage is None:
            self.lost.add(Feature.USAGE, NOT_REPORTED)
        return self.usage or ev.UsageReported()

    def separator_before(self, part_id: str) -> int:
        """Return how many characters at the beginning of an open text separate it from the text before."""
        rare = self._projection.rare
        return 0 if rare is None else rare.separators.get(part_id, 0)

    def without_form(self, event: ev.ContentAdded) -> None:
        """Do what the card says with a medium of a kind that the encoder `keeps`, and that it has no form for."""
        for ready in self._projection.without_form(event):
            self._handlers[type(ready)](self, ready)

    # ------------------------------------------------------------------ what a subclass defines

    def run_started(self, event: ev.RunStarted) -> None:
        """Write the beginning of the run, which is always first."""

    def message_started(self, event: ev.MessageStarted) -> None:
        """Write the beginning of a message."""

    def message_ended(self, event: ev.MessageEnded) -> None:
        """Write the end of a message; parts of it may still wait for their turn."""

    def part_started(self, event: ev.PartStarted) -> None:
        """Write the beginning of a text, of reasoning or of a call; no other part of its lane is open."""

    def text(self, event: ev.TextDelta) -> None:
        """Write a piece of a text or of a refusal."""

    def reasoning(self, event: ev.ReasoningDelta) -> None:
        """Write a piece of reasoning."""

    def arguments(self, event: ev.ArgsDelta) -> None:
        """Write a piece of the arguments of a call."""

    def part_ended(self, event: ev.PartEnded) -> None:
        """Write the end of the open part."""

    def buffered_part(self, part: Reasoning | ToolCall, end: ev.PartEnded) -> None:
        """Write a part of a kind that is `buffered`; `end` has its status."""

    def content(self, event: ev.ContentAdded) -> None:
        """Write a medium or data, which are whole."""

    def tool_resulted(self, event: ev.ToolResulted) -> None:
        """Write the result of a call that the backend ran."""

    def usage_reported(self, event: ev.UsageReported) -> None:
        """Note token counts in `usage`; the last ones count."""
        self.usage = event

    def step_started(self, event: ev.StepStarted) -> None:
        """Write the beginning of an agent's step."""

    def step_ended(self, event: ev.StepEnded) -> None:
        """Write the end of an agent's step."""

    def state_changed(self, event: ev.StateChanged) -> None:
        """Write shared state."""

    def interrupted(self, event: ev.Interrupted) -> None:
        """Write or note what the run waits for: a person, or a tool of the client."""

    def custom(self, event: ev.Custom) -> None:
        """Write an event of an application."""

    def raw(self, event: ev.Raw) -> None:
        """Write an event of `dialect` that no other dialect understands. By default it is lost."""
        self.lost.add_raw(event)

    def heartbeat(self, event: ev.Heartbeat) -> None:
        """Keep the connection open."""

    def batch_ended(self) -> None:
        """Write what was held until the events of one call of `encode` are written."""

    def failed(self, event: ev.RunFailed) -> None:
        """Write the failure of the run, which is always last."""

    def finished(self, event: ev.RunFinished) -> None:
        """Write the end of the run, which is always last."""


def _value_of(frame: bytes | Frame) -> Any:
    """Return the payload of a frame as a JSON value."""
    return loads(frame.data if isinstance(frame, Frame) else frame)


def _passing(free: Set[type]) -> Set[type]:
    # A message is none of them: one of a further choice may be left out.
    return DELTAS | (free - {ev.MessageStarted})


def _begin_buffered(encoder: Encoder, event: ev.PartStarted) -> None:
    if event.kind in encoder.buffered:
        encoder.open_buffers[event.part_id] = (event, [])
    else:
        encoder.part_started(event)


def _buffer(encoder: Encoder, event: ev.ReasoningDelta | ev.ArgsDelta) -> None:
    encoder.open_buffers[event.part_id][1].append(event.text)


def _end_buffered(encoder: Encoder, event: ev.PartEnded) -> None:
    if (held := encoder.open_buffers.pop(event.part_id, None)) is None:
        encoder.part_ended(event)
        return
    start, text = held[0], "".join(held[1])
    if start.kind is PartKind.REASONING:
        encoder.buffered_part(Reasoning(text, event.signature, event.redacted, start.extras), event)
    else:
        call_id = start.call_id or start.part_id
        call = ToolCall(call_id, start.name or "", text, start.origin, start.server_label, start.extras)
        encoder.buffered_part(call, event)
