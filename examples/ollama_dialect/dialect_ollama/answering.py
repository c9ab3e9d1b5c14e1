"""Answers: events to objects of the wire and back."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from bridge import ErrorCode, Failure
from bridge.codec import Capabilities, Context, Encoder, FrameLike, Node
from bridge.codec.jsontext import dumps, loads
from bridge.codec.redact import masked
from bridge.model import (
    Builder,
    FinishReason,
    Inline,
    Media,
    MediaKind,
    PartKind,
    mime_of,
)
from bridge.model import events as ev

Wire = dict[str, Any]

_INVALID = "INVALID_JSON"


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


class AnswerEncoder(Encoder):
    """Writes one answer, one object for each piece of text, each complete call, and the end."""

    def __init__(self, context: Context, card: Capabilities) -> None:
        super().__init__(context, card)
        self._head: Wire = {}
        self._call: ev.PartStarted | None = None
        self._arguments: list[str] = []
        self._usage: ev.UsageReported | None = None

    def _say(self, **said: Any) -> None:
        self._write(message={"role": "assistant", **said}, done=False)

    def _write(self, **fields: Any) -> None:
        self.out.append(dumps({**self._head, **fields}))

    def run_started(self, event: ev.RunStarted) -> None:
        at = datetime.fromtimestamp(event.created_at, UTC).isoformat().replace("+00:00", "Z")
        self._head = {"model": event.model or self.context.model or "", "created_at": at}

    def text(self, event: ev.TextDelta) -> None:
        self._say(content=event.text)

    def reasoning(self, event: ev.ReasoningDelta) -> None:
        self._say(content="", thinking=event.text)

    def part_started(self, event: ev.PartStarted) -> None:
        if event.kind is PartKind.TOOL_CALL:
            self._call, self._arguments = event, []

    def arguments(self, event: ev.ArgsDelta) -> None:
        self._arguments.append(event.text)

    def part_ended(self, event: ev.PartEnded) -> None:
        call, self._call = self._call, None
        if call is not None:
            function = {"name": call.name or "", "arguments": arguments_object("".join(self._arguments))}
            self._say(content="", tool_calls=[{"function": function}])

    def usage_reported(self, event: ev.UsageReported) -> None:
        self._usage = event

    def failed(self, event: ev.RunFailed) -> None:
        self.out.append(dumps({"error": event.error.message}))

    def finished(self, event: ev.RunFinished) -> None:
        reason = "length" if event.reason is FinishReason.LENGTH else "stop"
        usage = self._usage or ev.UsageReported()
        counts = {"prompt_eval_count": usage.input, "eval_count": usage.output}
        known = {name: count for name, count in counts.items() if count is not None}
        self._write(message={"role": "assistant", "content": ""}, done=True, done_reason=reason, **known)


def assembled(frames: Iterable[FrameLike]) -> Wire:
    """The one object of an answer: what a client makes of the objects of a stream."""
    said: list[Wire] = [loads(frame) for frame in frames if isinstance(frame, bytes)]
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
