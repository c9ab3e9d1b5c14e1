"""Events -> the answers of one turn.

By default a turn is one HOLD_RESPONSE: many clients read exactly one answer for each inquiry. The task of a turn is
finished with it, or broken with the error if the turn failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bridge.codec import Context, Feature, FrameLike
from bridge.codec.borders import TextBorders
from bridge.codec.jsontext import dumps
from bridge.codec.media import answer_feature
from bridge.codec.sequencer import Sequencer
from bridge.dialects.aip.content import item_of
from bridge.dialects.aip.errors import error_text
from bridge.dialects.aip.messages import ContentItem, SessionStatus, TaskStatus
from bridge.dialects.aip.options import FrontOptions
from bridge.dialects.aip.request import Inquiry
from bridge.errors import ErrorCode, Failure
from bridge.model import FinishReason, Media, Origin, PartKind, as_markdown, interrupt_text
from bridge.model import events as ev
from bridge.model.events import Event

_FREE = (
    ev.RunStarted, ev.MessageStarted, ev.MessageEnded, ev.UsageReported, ev.Heartbeat, ev.StateChanged,
    ev.StepStarted, ev.StepEnded, ev.Custom, ev.Raw, ev.Interrupted, ev.RunFinished, ev.RunFailed,
)  # fmt: skip
_FINISHES = {
    FinishReason.LENGTH: Feature.FINISH_LENGTH,
    FinishReason.CONTENT_FILTER: Feature.FINISH_CONTENT_FILTER,
}
_MARK = "[reasoning] "
_UNREACHED = frozenset({ErrorCode.BACKEND_UNAVAILABLE, ErrorCode.BACKEND_AUTH, ErrorCode.OVERLOADED})


class Encoder:
    """Trusts the grammar. `stops` is set when the last frame ends the session."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lost = context.lost
        self._options = FrontOptions.of(context)
        self._inquiry = Inquiry.of(context.request)
        self._sequencer = Sequencer(context.lost, _FREE)
        self._items: list[ContentItem] = []
        self._texts: list[str] = []
        self._thoughts: dict[str, list[str]] = {}
        self._borders = TextBorders(self._options.message_separator, context.lost)
        self._begun: dict[str, str] = {}
        self._questions: list[str] = []
        self._usage: ev.UsageReported | None = None
        self._model = context.model
        self._out: list[FrameLike] = []
        self.stops = False

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        out = self._out = []
        self._sequencer.dispatch(events, self, _HANDLERS)
        self._flush_pieces()
        return out

    def close(self) -> list[FrameLike]:
        """Nothing follows the end of a turn."""
        return []

    # ------------------------------------------------------------------ content

    def _text(self, event: ev.TextDelta) -> None:
        text = event.text
        if text and self._begun and (message_id := self._begun.pop(event.part_id, None)) is not None:
            text = self._borders.before(message_id) + text
        self._say(text)

    def _say(self, text: str) -> None:
        if not text:
            return
        if self._options.stream == "delta" and not self._options.flush:
            self._send(TaskStatus.EXECUTING, [ContentItem(text=text)])
        else:
            self._texts.append(text)

    def _flush_pieces(self) -> None:
        """Write the text collected for this batch as one message."""
        if self._texts and self._options.stream == "delta":
            text, self._texts = "".join(self._texts), []
            self._send(TaskStatus.EXECUTING, [ContentItem(text=text)])

    def _item(self, item: ContentItem) -> None:
        if self._options.stream == "delta":
            self._flush_pieces()
            self._send(TaskStatus.EXECUTING, [ContentItem(text=""), item])
        else:
            self._flush_text()
            self._items.append(item)

    def _flush_text(self) -> None:
        if self._texts:
            self._items.append(ContentItem(text="".join(self._texts)))
            self._texts = []

    def _start_part(self, event: ev.PartStarted) -> None:
        if event.kind in (PartKind.TEXT, PartKind.REFUSAL):
            self._begun[event.part_id] = event.message_id
        if event.kind is PartKind.REASONING:
            self._thoughts[event.part_id] = []
        elif event.kind is PartKind.TOOL_CALL:
            self._lost.add(Feature.TOOL_CALL)
            if event.origin is not Origin.FUNCTION:
                self._lost.add(Feature.TOOL_ORIGIN)
        elif event.kind is PartKind.REFUSAL:
            self._lost.add(Feature.REFUSAL, "sent as text")

    def _think(self, event: ev.ReasoningDelta) -> None:
        self._thoughts[event.part_id].append(event.text)

    def _end_part(self, event: ev.PartEnded) -> None:
        if event.signature or event.redacted:
            self._lost.add(Feature.REASONING_SIGNATURE)
        thought = "".join(self._thoughts.pop(event.part_id, ()))
        if not thought:
            return
        self._lost.add(Feature.REASONING)
        if self._options.reasoning == "text":
            self._say("".join(f"{_MARK}{line}\n" for line in thought.splitlines()))

    def _add(self, event: ev.ContentAdded) -> None:
        part = event.part
        item = item_of(part) if isinstance(part, Media) else None
        if item is not None:
            self._item(item)
            return
        self._lost.add(answer_feature(part), "sent as text")
        if text := as_markdown(part):
            self._say(self._borders.before(event.message_id) + text)

    def _ask(self, event: ev.Interrupted) -> None:
        self._lost.add(Feature.INTERRUPT)
        if text := interrupt_text(event):
            self._questions.append(text)

    # ------------------------------------------------------------------ the end

    def _finish(self, event: ev.RunFinished) -> None:
        if event.reason is FinishReason.CANCELED:
            self._fail(ev.RunFailed(Failure(ErrorCode.CANCELED, "The run was canceled.")))
            return
        if event.reason in _FINISHES:
            self._lost.add(_FINISHES[event.reason])
        for number, question in enumerate(self._questions):
            self._say(self._borders.before(f"interrupt {number}") + question)
        self._flush_pieces()
        self._flush_text()
        items, self._items = self._items, []
        if self._options.extras == "embedded":
            items.append(ContentItem(embedded=self._extras(event.reason)))
        self.stops = self._options.close_after_turn
        status = SessionStatus.STOP_RESPONSE if self.stops else SessionStatus.HOLD_RESPONSE
        self._send(TaskStatus.FINISH, items, status)

    def _fail(self, event: ev.RunFailed) -> None:
        """Write the error after what was sent before. It ends the session if no backend can be reached."""
        self._flush_pieces()
        self._flush_text()
        items, self._items = self._items, []
        if items:
            self._send(TaskStatus.EXECUTING, items)
        choice = self._options.on_error
        self.stops = choice == "stop" or (choice == "auto" and event.error.code in _UNREACHED)
        self.stops = self.stops or self._options.close_after_turn
        status = SessionStatus.STOP_RESPONSE if self.stops else SessionStatus.HOLD_RESPONSE
        self._send(TaskStatus.BREAK, [ContentItem(text=error_text(event.error))], status)

    def _extras(self, reason: FinishReason) -> bytes:
        usage = self._usage
        extras: dict[str, Any] = {"aip_extras": 1, "finish_reason": str(reason), "model": self._model}
        if usage is not None:
            names = ("input", "output", "total", "cached", "reasoning")
            extras["usage"] = {n: value for n in names if (value := getattr(usage, n)) is not None}
        return dumps(extras)

    def _send(
        self, task: TaskStatus, items: list[ContentItem], status: SessionStatus = SessionStatus.HOLD_RESPONSE
    ) -> None:
        """One message. Clients read the text of the first item, so there is one, and it is text."""
        if not items or items[0].text is None:
            items = [ContentItem(text=""), *items]
        self._out.append(self._inquiry.answer(self._context, status, task, items).to_bytes())

    # ------------------------------------------------------------------ the rest

    def _begin(self, event: ev.RunStarted) -> None:
        self._model = event.model or self._model
        if event.model and self._options.extras != "embedded":
            self._lost.add(Feature.MODEL)

    def _count(self, event: ev.UsageReported) -> None:
        self._usage = event
        if self._options.extras != "embedded":
            self._lost.add(Feature.USAGE)
            if event.cached is not None or event.reasoning is not None:
                self._lost.add(Feature.USAGE_DETAILS)

    def _silent(self, event: Event) -> None:
        """Message borders have no form on this wire, a call is lost as a whole, and gRPC keeps its connections
        alive.
        """

    def _lose(self, event: Event) -> None:
        self._lost.add(_LOST[type(event)])

    def _raw(self, event: ev.Raw) -> None:
        self._lost.add_raw(event)


_LOST: dict[type, Feature] = {
    ev.ToolResulted: Feature.TOOL_RESULT,
    ev.StateChanged: Feature.STATE,
    ev.StepStarted: Feature.STEP,
    ev.StepEnded: Feature.STEP,
    ev.Custom: Feature.CUSTOM,
}

_HANDLERS: dict[type, Callable[[Encoder, Any], None]] = {
    ev.RunStarted: Encoder._begin,
    ev.TextDelta: Encoder._text,
    ev.ReasoningDelta: Encoder._think,
    ev.PartStarted: Encoder._start_part,
    ev.PartEnded: Encoder._end_part,
    ev.ContentAdded: Encoder._add,
    ev.Interrupted: Encoder._ask,
    ev.UsageReported: Encoder._count,
    ev.RunFinished: Encoder._finish,
    ev.RunFailed: Encoder._fail,
    ev.Raw: Encoder._raw,
    **dict.fromkeys(_LOST, Encoder._lose),
    **dict.fromkeys((ev.MessageStarted, ev.MessageEnded, ev.ArgsDelta, ev.Heartbeat), Encoder._silent),
}
