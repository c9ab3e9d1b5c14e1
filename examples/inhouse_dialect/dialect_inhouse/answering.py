"""Answers: events to objects of the protocol and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge import ErrorCode, Failure
from bridge.codec import Capabilities, Context, Encoder, Node
from bridge.codec.jsontext import arguments_of, input_of
from bridge.codec.redact import masked
from bridge.model import Builder, FinishReason, PartKind
from bridge.model import events as ev


class AnswerEncoder(Encoder):
    """Writes one answer: an object for each piece of text or thought, each complete call, and the end."""

    def __init__(self, context: Context, card: Capabilities) -> None:
        super().__init__(context, card)
        self._call: ev.PartStarted | None = None
        self._arguments: list[str] = []

    def run_started(self, event: ev.RunStarted) -> None:
        self.write({"model": event.model or self.context.model or ""})

    def text(self, event: ev.TextDelta) -> None:
        self.write({"text": event.text})

    def reasoning(self, event: ev.ReasoningDelta) -> None:
        self.write({"thought": event.text})

    def part_started(self, event: ev.PartStarted) -> None:
        if event.kind is PartKind.TOOL_CALL:
            self._call, self._arguments = event, []

    def arguments(self, event: ev.ArgsDelta) -> None:
        self._arguments.append(event.text)

    def part_ended(self, event: ev.PartEnded) -> None:
        call, self._call = self._call, None
        if call is not None:
            self.write({"call": {"name": call.name, "input": input_of("".join(self._arguments))}})

    def failed(self, event: ev.RunFailed) -> None:
        self.write({"error": event.error.message})

    def finished(self, event: ev.RunFinished) -> None:
        end: dict[str, Any] = {"end": "length" if event.reason is FinishReason.LENGTH else "stop"}
        if self.usage is not None:
            end["tokens"] = {"in": self.usage.input, "out": self.usage.output}
        self.write(end)

    def accumulate(self, frames: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the one object of an answer: what a client makes of the objects of a stream."""
        whole: dict[str, Any] = {}
        for name, value in (field for frame in frames for field in frame.items()):
            if name == "call":
                whole.setdefault("calls", []).append(value)
            else:
                whole[name] = whole.get(name, "") + value if name in ("text", "thought") else value
        return whole


def decode_object(node: Node, builder: Builder) -> None:
    """Pass the content of one object of a stream, or of a whole answer, to the builder."""
    if (error := node.string("error")) is not None:
        builder.fail(Failure(ErrorCode.BACKEND_ERROR, masked(error)))
        return
    builder.begin(model=node.string("model"))
    if thought := node.string("thought"):
        builder.flow(0, PartKind.REASONING, thought)
    if text := node.string("text"):
        builder.flow(0, PartKind.TEXT, text)
    call = node.object("call")
    for each in [call] if call is not None else node.objects("calls"):
        given = each.object("input")
        builder.open_part("call", 0, PartKind.TOOL_CALL, name=each.need_string("name"))
        builder.delta("call", arguments_of(given.value) if given else "{}")
        builder.end_part("call")
    if (end := node.one_of("end", ("stop", "length"))) is not None:
        if (tokens := node.object("tokens")) is not None:
            builder.usage(ev.UsageReported(tokens.integer("in", least=0), tokens.integer("out", least=0)))
        builder.finish(FinishReason(end))
        builder.end()
