"""Answers: events to objects of the wire and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from bridge import ErrorCode, Event, Failure
from bridge.codec import Context, Feature, FrameLike, Node
from bridge.codec.jsontext import dumps, loads
from bridge.codec.redact import masked
from bridge.codec.sequencer import Sequencer
from bridge.model import (
    Builder,
    FinishReason,
    Inline,
    Media,
    MediaKind,
    Origin,
    PartKind,
    as_markdown,
    interrupt_text,
    mime_of,
)
from bridge.model import events as ev

Wire = dict[str, Any]

_INVALID = "INVALID_JSON"
_LOST: dict[type[Event], Feature] = {
    ev.ToolResulted: Feature.TOOL_RESULT,
    ev.StateChanged: Feature.STATE,
    ev.StepStarted: Feature.STEP,
    ev.StepEnded: Feature.STEP,
    ev.Custom: Feature.CUSTOM,
    ev.Raw: Feature.RAW,
}
_FREE = {
    ev.RunStarted,
    ev.MessageStarted,
    ev.MessageEnded,
    ev.UsageReported,
    ev.Heartbeat,
    ev.Interrupted,
    ev.RunFailed,
    ev.RunFinished,
    *_LOST,
}
_REFUSED = {
    FinishReason.CONTENT_FILTER: Failure(ErrorCode.CONTENT_FILTER, "The answer was stopped by a content filter."),
    FinishReason.CANCELED: Failure(ErrorCode.CANCELED, "The run was canceled."),
}
_MEDIA = {
    MediaKind.IMAGE: Feature.IMAGE,
    MediaKind.AUDIO: Feature.AUDIO,
    MediaKind.VIDEO: Feature.VIDEO,
    MediaKind.FILE: Feature.FILE,
}


def arguments_of(value: Wire) -> str:
    """The arguments of a call as text."""
    invalid = value.get(_INVALID)
    return invalid if isinstance(invalid, str) and len(value) == 1 else dumps(value).decode()


def arguments_object(text: str) -> Wire:
    """The arguments of a call as an object; what is no JSON object goes unchanged under a key of its own."""
    try:
        value = loads(text or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {_INVALID: text}


def image_of(data: str) -> Media:
    """The image of these bytes in base64; the wire does not name its type."""
    image = Media(MediaKind.IMAGE, Inline(data))
    image.mime = mime_of(image)
    return image


def refusal_of(end: Event) -> Failure | None:
    """Return the failure that the terminal event is for a client, or None for an answer."""
    if isinstance(end, ev.RunFailed):
        return end.error
    return _REFUSED.get(end.reason) if isinstance(end, ev.RunFinished) else None


class AnswerEncoder:
    """Writes one answer, one object for each piece of text, each complete call, and the end."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._sequencer = Sequencer(context.lost, _FREE)
        self._head: Wire = {}
        self._called: set[str | None] = set()
        self._names: dict[str, str] = {}
        self._arguments: dict[str, list[str]] = {}
        self._has_text = False
        self._usage: ev.UsageReported | None = None
        self._questions: list[ev.Interrupted] = []

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        return [dumps(said) for said in self.objects(events)]

    def objects(self, events: Sequence[Event]) -> Iterable[Wire]:
        """The objects of these events, not yet as bytes."""
        for event in self._sequencer.feed(events):
            yield from self._objects(event)

    def _objects(self, event: Event) -> Iterable[Wire]:
        match event:
            case ev.RunStarted():
                at = datetime.fromtimestamp(event.created_at, UTC).isoformat().replace("+00:00", "Z")
                self._head = {"model": event.model or self._context.model or "", "created_at": at}
            case ev.PartStarted():
                self._part_started(event)
            case ev.TextDelta():
                yield self._piece(content=event.text)
            case ev.ReasoningDelta():
                yield self._piece(content="", thinking=event.text)
            case ev.ArgsDelta():
                self._arguments[event.part_id].append(event.text)
            case ev.PartEnded():
                if event.signature or event.redacted:
                    self._context.lost.add(Feature.REASONING_SIGNATURE)
                if (pieces := self._arguments.pop(event.part_id, None)) is not None:
                    function = {"name": self._names.pop(event.part_id), "arguments": arguments_object("".join(pieces))}
                    yield self._piece(content="", tool_calls=[{"function": function}])
            case ev.ContentAdded():
                feature = _MEDIA[event.part.kind] if isinstance(event.part, Media) else Feature.DATA
                self._context.lost.add(feature, "told as text")
                yield self._piece(content=as_markdown(event.part))
            case ev.UsageReported():
                self._usage = event
            case ev.Interrupted():
                self._context.lost.add(Feature.INTERRUPT, "told as text")
                self._questions.append(event)
            case ev.RunFailed() | ev.RunFinished() if (failure := refusal_of(event)) is not None:
                yield {"error": failure.message}
            case ev.RunFinished():
                yield from self._end(event)
            case _ if type(event) in _LOST:
                self._context.lost.add(_LOST[type(event)])

    def _piece(self, **said: Any) -> Wire:
        return {**self._head, "message": {"role": "assistant", **said}, "done": False}

    def _part_started(self, event: ev.PartStarted) -> None:
        lost = self._context.lost
        if event.kind is PartKind.TOOL_CALL:
            if event.origin is not Origin.FUNCTION:
                lost.add(Feature.TOOL_ORIGIN)
            self._called.add(event.call_id)
            self._names[event.part_id] = event.name or ""
            self._arguments[event.part_id] = []
        elif event.kind is not PartKind.REASONING:
            if event.kind is PartKind.REFUSAL:
                lost.add(Feature.REFUSAL, "told as text")
            if self._has_text:
                lost.add(Feature.PART_BORDERS)
            self._has_text = True

    def _end(self, event: ev.RunFinished) -> Iterable[Wire]:
        for question in self._questions:
            if question.call_id not in self._called:
                yield self._piece(content=interrupt_text(question))
        reason = "length" if event.reason is FinishReason.LENGTH else "stop"
        yield {**self._piece(content=""), "done": True, "done_reason": reason, **self._counts()}

    def _counts(self) -> Wire:
        usage = self._usage
        if usage is None:
            return {}
        if usage.cached or usage.reasoning:
            self._context.lost.add(Feature.USAGE_DETAILS)
        counts = {"prompt_eval_count": usage.input, "eval_count": usage.output}
        return {name: count for name, count in counts.items() if count is not None}


def assembled(events: Sequence[Event], context: Context) -> Wire:
    """The one object of an answer that did not fail."""
    said = list(AnswerEncoder(context).objects(events))
    messages = [each["message"] for each in said]
    whole: Wire = {"role": "assistant", "content": "".join(m["content"] for m in messages)}
    if thinking := "".join(m.get("thinking", "") for m in messages):
        whole["thinking"] = thinking
    if calls := [call for m in messages for call in m.get("tool_calls", ())]:
        whole["tool_calls"] = calls
    return {**said[-1], "message": whole}


def decode_object(node: Node, builder: Builder) -> None:
    """Pass the content of one object of a stream, or of a whole answer, to the builder."""
    if (error := node.string("error")) is not None:
        builder.fail(Failure(ErrorCode.BACKEND_ERROR, masked(error)))
        return
    builder.begin(model=node.string("model"))
    message = node.object("message")
    if message is not None:
        if thinking := message.string("thinking"):
            builder.flow(0, PartKind.REASONING, thinking)
        if content := message.string("content"):
            builder.flow(0, PartKind.TEXT, content)
        for image in message.strings("images") or ():
            builder.add(0, image_of(image))
        for number, call in enumerate(message.objects("tool_calls")):
            function = call.need_object("function")
            builder.open_part(number, 0, PartKind.TOOL_CALL, name=function.need_string("name"))
            arguments = function.object("arguments")
            builder.delta(number, arguments_of(arguments.value) if arguments else "{}")
            builder.end_part(number)
    if node.boolean("done"):
        counts = (node.integer("prompt_eval_count", least=0), node.integer("eval_count", least=0))
        if any(count is not None for count in counts):
            builder.usage(ev.UsageReported(*counts))
        builder.finish(FinishReason.LENGTH if node.string("done_reason") == "length" else FinishReason.STOP)
        builder.end()
