"""Events -> objects of a stream, one a line: a piece of text or thinking, a whole call, and the last with the counts.

The objects of `/api/generate` have the text in `response`, those of `/api/chat` in a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from bridge.contract import Context, Feature
from bridge.dialects.ollama.capabilities import card
from bridge.dialects.ollama.errors import ERRORS
from bridge.dialects.ollama.options import FrontOptions
from bridge.dialects.ollama.wire import NAME, NOTES, Wire, line
from bridge.model import FinishReason, MessageStatus, PartKind, Reasoning, ToolCall
from bridge.model import events as ev
from bridge.model.jsontext import input_of, is_object
from bridge.toolkit import Encoder
from bridge.toolkit.template import HOLE, Template

_SECOND = 1_000_000_000


class OllamaEncoder(Encoder):
    """One per run."""

    dialect = NAME
    keeps = (Feature.MODEL,)
    buffered = (PartKind.TOOL_CALL,)

    def __init__(self, context: Context) -> None:
        super().__init__(context, card(FrontOptions.of(context).media))
        request = context.request
        self._notes: Wire = {} if request is None else request.extra(NAME).get(NOTES) or {}
        self._is_silent = request is not None and request.reasoning_effort == "none"
        self._head: Wire = {}
        self._text: Template | None = None
        self._thinking: Template | None = None
        self._calls = 0
        self._is_cut = False

    def run_started(self, event: ev.RunStarted) -> None:
        sent = self._notes.get("model") or self.context.model
        model = sent if self.context.request is not None and sent else event.model or sent or ""
        if event.model and event.model != model:
            self.lost.add(Feature.MODEL)
        self._head = {"model": model, "created_at": moment(event.created_at)}
        self._text = Template(self._object(HOLE), one_line=True)
        self._thinking = Template(self._object("", thinking=HOLE), one_line=True)

    def _object(self, text: object, **more: object) -> Wire:
        if "generate" in self._notes:
            return {**self._head, "response": text, **more, "done": False}
        return {**self._head, "message": {"role": "assistant", "content": text, **more}, "done": False}

    # ------------------------------------------------------------------ parts

    def text(self, event: ev.TextDelta) -> None:
        if event.text and self._text is not None:
            self.out.append(self._text(event.text))

    def reasoning(self, event: ev.ReasoningDelta) -> None:
        if self._is_silent:
            self.lost.add(Feature.REASONING, "not wanted: think is false")
        elif event.text and self._thinking is not None:
            self.out.append(self._thinking(event.text))

    def buffered_part(self, part: Reasoning | ToolCall, end: ev.PartEnded) -> None:
        assert isinstance(part, ToolCall)
        arguments = part.arguments
        is_whole = end.status is MessageStatus.COMPLETED and (not arguments.strip() or is_object(arguments))
        if not is_whole:  # clients run every call that they see
            self._is_cut = True
            self.lost.add(Feature.TOOL_CALL, "its arguments are not a JSON object")
            return
        function = {"index": self._calls, "name": part.name, "arguments": input_of(arguments)}
        self._calls += 1
        self.out.append(line(self._object("", tool_calls=[{"id": part.call_id, "function": function}])))

    # ------------------------------------------------------------------ the end

    def heartbeat(self, event: ev.Heartbeat) -> None:
        if self._text is not None:
            self.out.append(self._text(""))

    def failed(self, event: ev.RunFailed) -> None:
        self.out.append(line({"error": ERRORS.text(event.error)}))

    def finished(self, event: ev.RunFinished) -> None:
        is_cut = self._is_cut or event.reason is FinishReason.LENGTH
        last = {**self._object(""), "done": True, "done_reason": "length" if is_cut else "stop"}
        if "generate" in self._notes and "raw" not in self._notes:
            last["context"] = []
        self.out.append(line({**last, **self._measures(event.ended_at)}))

    def accumulate(self, frames: Sequence[Wire]) -> Wire:
        last = frames[-1]
        is_chat = "message" in last
        pieces: list[Wire] = [each["message"] if is_chat else each for each in frames]
        name = "content" if is_chat else "response"
        said: Wire = {name: "".join([piece[name] for piece in pieces])}
        if thinking := "".join([piece.get("thinking", "") for piece in pieces]):
            said["thinking"] = thinking
        if calls := [call for piece in pieces for call in piece.get("tool_calls", ())]:
            said["tool_calls"] = calls
        return {**last, "message": {"role": "assistant", **said}} if is_chat else {**last, **said}

    def _measures(self, ended_at: float | None) -> Wire:
        """The durations in nanoseconds, where times are known, and the counts; one of zero is left out."""
        out: Wire = {}
        usage, context = self.usage or ev.UsageReported(), self.context
        if usage.input:
            out["prompt_eval_count"] = usage.input
        if usage.output:
            out["eval_count"] = usage.output
        if ended_at is not None:
            begin = context.created_at
            first = min(max(context.answered_at or begin, begin), ended_at)
            out |= {
                "total_duration": _nanoseconds(ended_at - begin),
                "load_duration": 0,
                "prompt_eval_duration": _nanoseconds(first - begin),
                "eval_duration": _nanoseconds(ended_at - first),
            }
        return out


def moment(at: float) -> str:
    """Return a time as this API writes it."""
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def _nanoseconds(seconds: float) -> int:
    """Return a duration; at least 1, as clients divide by it."""
    return max(1, round(seconds * _SECOND))
