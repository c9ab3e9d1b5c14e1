"""Events -> generation 1's stream, for one run.

Seven kinds of event, each one line of compact JSON, then `[DONE]`. The one client that could be had joins the field
`content` of every event whatever its type, so that name stands on `text` and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bridge.codec import KEEPALIVE, Context, Feature, FrameLike
from bridge.codec.cut_calls import CUT, CUT_CALL, CutCalls
from bridge.codec.jsontext import dumps
from bridge.codec.media import answer_feature, result_words
from bridge.codec.sequencer import Sequencer
from bridge.dialects.ag_kit.errors import CANCELED, error_text, told_error
from bridge.dialects.ag_kit.options import front
from bridge.dialects.ag_kit.wire import DONE, NAME, notes, safe, write
from bridge.errors import ErrorCode
from bridge.model import FinishReason, MessageStatus, Origin, PartKind, as_markdown
from bridge.model import events as ev
from bridge.model.events import Event

_FREE = (
    ev.RunStarted, ev.MessageStarted, ev.MessageEnded, ev.UsageReported, ev.Heartbeat, ev.StateChanged,
    ev.StepStarted, ev.StepEnded, ev.Custom, ev.Interrupted,
)  # fmt: skip
# These interrupt a text, but no call: clients do better when a call is finished before anything else comes.
_INLINE = (ev.ToolResulted, ev.Raw)
_WORDS = (PartKind.TEXT, PartKind.REFUSAL, PartKind.REASONING)
_TEXT = b'{"type":"text","content":'
_COUNTS = {
    "input": "inputTokens",
    "output": "outputTokens",
    "total": "totalTokens",
    "cached": "cachedTokens",
    "reasoning": "reasoningTokens",
}
_FINISHES = {
    FinishReason.LENGTH: Feature.FINISH_LENGTH,
    FinishReason.CONTENT_FILTER: Feature.FINISH_CONTENT_FILTER,
}


class Encoder:
    """Trusts the grammar; every event becomes no, one or several payloads."""

    def __init__(self, context: Context) -> None:
        self._lost = context.lost
        self._options = front(context)
        made = notes(context.request.extras).get("conversation") if context.request else None
        # Appended to each event if the client does not know the id of its conversation yet.
        self._tail = b',"conversationId":' + dumps(made) + b"}" if made else b""
        self._cut_calls = CutCalls()
        self._cut = False
        self._sequencer = Sequencer(context.lost, _FREE, _INLINE, _WORDS)
        self._out: list[FrameLike] = []
        self._call: ev.PartStarted | None = None
        self._piece = b""
        self._argued = False
        self._thinking: set[str] = set()
        self._spoken = False
        self._interrupts: list[bytes] = []
        self._more: dict[str, Any] = {}

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        out = self._out = []
        self._sequencer.dispatch(self._cut_calls.feed(events), self, _HANDLERS)
        if self._tail:
            return [f[:-1] + self._tail if isinstance(f, bytes) and f != DONE else f for f in out]
        return out

    def close(self) -> list[FrameLike]:
        """Nothing: `[DONE]` goes out with the terminal event, in the same write."""
        return []

    # ------------------------------------------------------------------ text

    def _text(self, event: ev.TextDelta) -> None:
        if event.text:
            self._say(event.text)

    def _say(self, text: str) -> None:
        said = dumps(text)
        self._out.append(_TEXT + (said if said.isascii() else safe(said)) + b"}")

    def _think(self, event: ev.ReasoningDelta) -> None:
        if not event.text:
            return
        if self._options.reasoning == "drop" and self._options.extra_fields:
            self._out.append(write({"type": "text", "content": "", "reasoning": event.text}))
        elif self._options.reasoning == "drop":
            self._lost.add(Feature.REASONING)
        elif event.part_id in self._thinking:
            self._say(event.text)
        else:
            self._thinking.add(event.part_id)
            self._say("<think>" + event.text)

    def _add(self, event: ev.ContentAdded) -> None:
        self._lost.add(answer_feature(event.part), "sent as text" if self._options.media == "text" else "dropped")
        if self._options.media == "text" and (text := as_markdown(event.part)):
            self._say(text)

    # ------------------------------------------------------------------ calls

    def _start_run(self, event: ev.RunStarted) -> None:
        if event.model and self._options.extra_fields:
            self._more["model"] = event.model
        elif event.model:
            self._lost.add(Feature.MODEL)

    def _start_part(self, event: ev.PartStarted) -> None:
        if event.kind is PartKind.TEXT:
            if self._spoken:
                self._lost.add(Feature.PART_BORDERS)
            self._spoken = True
        elif event.kind is PartKind.REFUSAL:
            self._lost.add(Feature.REFUSAL, "sent as text")
        if event.kind is not PartKind.TOOL_CALL:
            return
        if event.origin is not Origin.FUNCTION:
            self._lost.add(Feature.TOOL_ORIGIN)
        call_id = event.call_id or ""
        self._call, self._argued = event, False
        self._out.append(write({"type": "tool-call-start", "toolCallId": call_id, "toolCallName": event.name or ""}))
        self._piece = b'{"type":"tool-call-args","toolCallId":' + safe(dumps(call_id)) + b',"delta":'

    def _argue(self, event: ev.ArgsDelta) -> None:
        if event.text:
            self._argued = self._argued or not event.text.isspace()
            said = dumps(event.text)
            self._out.append(self._piece + (said if said.isascii() else safe(said)) + b"}")

    def _end_part(self, event: ev.PartEnded) -> None:
        if event.signature or event.redacted:
            self._lost.add(Feature.REASONING_SIGNATURE)
        if event.part_id in self._thinking:
            self._say("</think>\n\n")
        elif self._call is not None and event.part_id == self._call.part_id:
            self._cut = self._cut or event.status is MessageStatus.INCOMPLETE
            if event.status is MessageStatus.COMPLETED:
                if not self._argued:
                    self._out.append(self._piece + b'"{}"}')
                self._out.append(write({"type": "tool-call-end", "toolCallId": self._call.call_id or ""}))
            self._call = None

    def _result(self, event: ev.ToolResulted) -> None:
        result = result_words(event.parts, self._lost, answer_feature)
        self._out.append(write({"type": "tool-result", "toolCallId": event.call_id, "result": result}))

    # ------------------------------------------------------------------ the end

    def _interrupt(self, event: ev.Interrupted) -> None:
        """Written last of all, and after the ends of all calls. The reason must be a string, said or not."""
        self._interrupts.append(
            write(
                {
                    "type": "interrupt",
                    "id": event.interrupt_id,
                    "reason": event.reason or "",
                    "payload": event.payload,
                }
            )
        )

    def _finish(self, event: ev.RunFinished) -> None:
        if event.reason is FinishReason.CANCELED:
            self._end(CANCELED, ErrorCode.CANCELED)
            return
        if event.reason in _FINISHES:
            self._lost.add(_FINISHES[event.reason])
        # A client that waits for the end of a call learns why it does not come.
        is_error = self._cut or (event.reason in CUT and self._options.finish_notice == "error")
        self._end(CUT.get(event.reason, CUT_CALL) if is_error else None, event.reason)

    def _fail(self, event: ev.RunFailed) -> None:
        self._end(error_text(event.error), event.error.code)

    def _end(self, error: str | None, code: str | None = None) -> None:
        """`code` goes to clients that read `extra_fields`."""
        self._out += self._interrupts
        more = self._more
        if error is not None:
            if self._options.errors == "text":
                self._say(("\n\n" if self._spoken else "") + told_error(error))
            more = {**more, "code": code} if self._options.extra_fields and code else more
            self._out.append(write({"type": "error", "error": error, **more}))
        elif more:
            self._out.append(write({"type": "text", "content": "", **more}))
        if self._options.done_mark:
            self._out.append(DONE)

    # ------------------------------------------------------------------ the rest

    def _beat(self, event: ev.Heartbeat) -> None:
        if self._options.keepalive == "comment":
            self._out.append(KEEPALIVE)

    def _raw(self, event: ev.Raw) -> None:
        """An event that only a server of this dialect knows, as it came."""
        if event.dialect == NAME and isinstance(event.value, dict):
            self._out.append(write(event.value))
        else:
            self._lost.add_raw(event)

    def _use(self, event: ev.UsageReported) -> None:
        if self._options.extra_fields:
            counts = {_COUNTS[name]: getattr(event, name) for name in _COUNTS}
            if found := {name: count for name, count in counts.items() if count is not None}:
                self._more["usage"] = found
            return
        self._lost.add(Feature.USAGE)
        if event.cached is not None or event.reasoning is not None:
            self._lost.add(Feature.USAGE_DETAILS)

    def _nothing(self, event: ev.MessageStarted | ev.MessageEnded) -> None:
        """Messages have no borders on this wire."""

    def _lose(self, event: Event) -> None:
        self._lost.add(_LOST[type(event)])


_LOST: dict[type, Feature] = {
    ev.StateChanged: Feature.STATE,
    ev.StepStarted: Feature.STEP,
    ev.StepEnded: Feature.STEP,
    ev.Custom: Feature.CUSTOM,
}

# Functions of the class, not methods bound to each encoder, which would tie every encoder to itself.
_HANDLERS: dict[type, Callable[[Encoder, Any], None]] = {
    ev.RunStarted: Encoder._start_run,
    ev.MessageStarted: Encoder._nothing,
    ev.MessageEnded: Encoder._nothing,
    ev.TextDelta: Encoder._text,
    ev.ReasoningDelta: Encoder._think,
    ev.ArgsDelta: Encoder._argue,
    ev.PartStarted: Encoder._start_part,
    ev.PartEnded: Encoder._end_part,
    ev.ContentAdded: Encoder._add,
    ev.ToolResulted: Encoder._result,
    ev.Interrupted: Encoder._interrupt,
    ev.RunFailed: Encoder._fail,
    ev.RunFinished: Encoder._finish,
    ev.Heartbeat: Encoder._beat,
    ev.Raw: Encoder._raw,
    ev.UsageReported: Encoder._use,
    **dict.fromkeys(_LOST, Encoder._lose),
}
