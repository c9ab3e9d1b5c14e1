"""Events -> generation 1's stream, for one run.

Seven kinds of event, each one line of compact JSON, then `[DONE]`. The available client concatenates the field
`content` of all events, whatever their types, so only `text` events have that field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bridge.codec import KEEPALIVE, Context, Feature, FrameLike
from bridge.codec.cut_calls import CUT, CUT_CALL, CutCalls
from bridge.codec.jsontext import dumps, escape_line_breaks
from bridge.codec.media import answer_feature, result_as_text
from bridge.codec.sequencer import Sequencer
from bridge.dialects.ag_kit.errors import CANCELED, error_as_text, error_text
from bridge.dialects.ag_kit.options import FrontOptions
from bridge.dialects.ag_kit.wire import DONE, NAME, request_notes, write
from bridge.errors import ErrorCode
from bridge.model import FinishReason, MessageStatus, Origin, PartKind, as_markdown
from bridge.model import events as ev
from bridge.model.events import Event

_ANYWHERE = (
    ev.RunStarted, ev.MessageStarted, ev.MessageEnded, ev.UsageReported, ev.Heartbeat, ev.StateChanged,
    ev.StepStarted, ev.StepEnded, ev.Custom, ev.Interrupted,
)  # fmt: skip
# Events that may come inside a text but not inside a call: clients handle calls better when they are not interrupted.
_INLINE = (ev.ToolResulted, ev.Raw)
_TEXT_KINDS = (PartKind.TEXT, PartKind.REFUSAL, PartKind.REASONING)
_TEXT_PREFIX = b'{"type":"text","content":'
_USAGE_FIELDS = {
    "input": "inputTokens",
    "output": "outputTokens",
    "total": "totalTokens",
    "cached": "cachedTokens",
    "reasoning": "reasoningTokens",
}
_FINISH_FEATURES = {
    FinishReason.LENGTH: Feature.FINISH_LENGTH,
    FinishReason.CONTENT_FILTER: Feature.FINISH_CONTENT_FILTER,
}


class Encoder:
    """Encodes a valid sequence of events; each becomes zero or more payloads."""

    def __init__(self, context: Context) -> None:
        self._lost = context.lost
        self._options = FrontOptions.of(context)
        conversation_id = request_notes(context.request.extras).get("conversation") if context.request else None
        # Appended to each event if the request did not name its conversation.
        self._conversation_suffix = b',"conversationId":' + dumps(conversation_id) + b"}" if conversation_id else b""
        self._cut_calls = CutCalls()
        self._has_truncated_call = False
        self._sequencer = Sequencer(context.lost, _ANYWHERE, _INLINE, _TEXT_KINDS)
        self._frames: list[FrameLike] = []
        self._call: ev.PartStarted | None = None
        self._arguments_prefix = b""
        self._has_arguments = False
        self._open_reasoning: set[str] = set()
        self._has_text = False
        self._has_message = False  # a text or a call, of which clients make a message
        self._begun_in: str | None = None  # the message of a text that has no piece yet
        self._spoke: str | None = None  # the message of the last text that a client may append to
        self._interrupts: list[bytes] = []
        self._final_fields: dict[str, Any] = {}

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        frames = self._frames = []
        self._sequencer.dispatch(self._cut_calls.feed(events), self, _HANDLERS)
        if self._conversation_suffix:
            return [
                frame[:-1] + self._conversation_suffix if isinstance(frame, bytes) and frame != DONE else frame
                for frame in frames
            ]
        return frames

    def close(self) -> list[FrameLike]:
        """Return no frames: `[DONE]` is sent with the terminal event."""
        return []

    # ------------------------------------------------------------------ text

    def _text(self, event: ev.TextDelta) -> None:
        if event.text and self._begun_in is not None:
            self._begin_text(self._begun_in, event.text)
        elif event.text:
            self._write_text(event.text)

    def _begin_text(self, message_id: str, text: str) -> None:
        """Begin a text, which clients append to the one before unless a tool's result came in between."""
        border = "" if self._spoke in (None, message_id) else self._options.message_separator
        self._begun_in, self._spoke = None, message_id
        self._write_text(border + text)

    def _write_text(self, text: str) -> None:
        self._has_message = True
        encoded = dumps(text)
        self._frames.append(_TEXT_PREFIX + (encoded if encoded.isascii() else escape_line_breaks(encoded)) + b"}")

    def _reasoning(self, event: ev.ReasoningDelta) -> None:
        if not event.text:
            return
        if self._options.reasoning == "drop" and self._options.extra_fields:
            self._frames.append(write({"type": "text", "content": "", "reasoning": event.text}))
        elif self._options.reasoning == "drop":
            self._lost.add(Feature.REASONING)
        elif event.part_id in self._open_reasoning:
            self._write_text(event.text)
        else:
            self._open_reasoning.add(event.part_id)
            self._write_text("<think>" + event.text)

    def _content(self, event: ev.ContentAdded) -> None:
        self._lost.add(answer_feature(event.part), "sent as text" if self._options.media == "text" else "dropped")
        if self._options.media == "text" and (text := as_markdown(event.part)):
            self._begin_text(event.message_id, text)

    # ------------------------------------------------------------------ calls

    def _run_started(self, event: ev.RunStarted) -> None:
        if event.model and self._options.extra_fields:
            self._final_fields["model"] = event.model
        elif event.model:
            self._lost.add(Feature.MODEL)

    def _part_started(self, event: ev.PartStarted) -> None:
        if event.kind in (PartKind.TEXT, PartKind.REFUSAL):
            self._begun_in = event.message_id
        if event.kind is PartKind.TEXT:
            if self._has_text:
                self._lost.add(Feature.PART_BORDERS)
            self._has_text = True
        elif event.kind is PartKind.REFUSAL:
            self._lost.add(Feature.REFUSAL, "sent as text")
        if event.kind is not PartKind.TOOL_CALL:
            return
        if event.origin is not Origin.FUNCTION:
            self._lost.add(Feature.TOOL_ORIGIN)
        call_id = event.call_id or ""
        self._call, self._has_arguments, self._has_message = event, False, True
        self._frames.append(write({"type": "tool-call-start", "toolCallId": call_id, "toolCallName": event.name or ""}))
        self._arguments_prefix = (
            b'{"type":"tool-call-args","toolCallId":' + escape_line_breaks(dumps(call_id)) + b',"delta":'
        )

    def _arguments(self, event: ev.ArgsDelta) -> None:
        if event.text:
            self._has_arguments = self._has_arguments or not event.text.isspace()
            encoded = dumps(event.text)
            self._frames.append(
                self._arguments_prefix + (encoded if encoded.isascii() else escape_line_breaks(encoded)) + b"}"
            )

    def _part_ended(self, event: ev.PartEnded) -> None:
        if event.signature or event.redacted:
            self._lost.add(Feature.REASONING_SIGNATURE)
        if event.part_id in self._open_reasoning:
            self._write_text("</think>\n\n")
        elif self._call is not None and event.part_id == self._call.part_id:
            self._has_truncated_call = self._has_truncated_call or event.status is MessageStatus.INCOMPLETE
            if event.status is MessageStatus.COMPLETED:
                if not self._has_arguments:
                    self._frames.append(self._arguments_prefix + b'"{}"}')
                self._frames.append(write({"type": "tool-call-end", "toolCallId": self._call.call_id or ""}))
            self._call = None

    def _result(self, event: ev.ToolResulted) -> None:
        self._spoke = None
        result = result_as_text(event.parts, self._lost, answer_feature)
        self._frames.append(write({"type": "tool-result", "toolCallId": event.call_id, "result": result}))

    # ------------------------------------------------------------------ the end

    def _interrupted(self, event: ev.Interrupted) -> None:
        """Withhold the interrupt until the end, after all calls. A missing reason is sent as an empty string."""
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

    def _finished(self, event: ev.RunFinished) -> None:
        if event.reason is FinishReason.CANCELED:
            self._end(CANCELED, ErrorCode.CANCELED)
            return
        if event.reason in _FINISH_FEATURES:
            self._lost.add(_FINISH_FEATURES[event.reason])
        # Inform a client that waits for the end of a truncated call why it is missing.
        is_error = self._has_truncated_call or (event.reason in CUT and self._options.finish_notice == "error")
        self._end(CUT.get(event.reason, CUT_CALL) if is_error else None, event.reason)

    def _failed(self, event: ev.RunFailed) -> None:
        self._end(error_text(event.error), event.error.code)

    def _end(self, error: str | None, code: str | None = None) -> None:
        """Write the end of the stream. `code` is sent with the option `extra_fields` only."""
        if self._interrupts and not self._has_message:
            self._write_text("")  # AG-Kit's client shows a question only in a message
        self._frames += self._interrupts
        fields = self._final_fields
        if error is not None:
            if self._options.errors == "text":
                self._write_text(("\n\n" if self._has_text else "") + error_as_text(error))
            fields = {**fields, "code": code} if self._options.extra_fields and code else fields
            self._frames.append(write({"type": "error", "error": error, **fields}))
        elif fields:
            self._frames.append(write({"type": "text", "content": "", **fields}))
        if self._options.done_mark:
            self._frames.append(DONE)

    # ------------------------------------------------------------------ the rest

    def _heartbeat(self, event: ev.Heartbeat) -> None:
        if self._options.keepalive == "comment":
            self._frames.append(KEEPALIVE)

    def _raw(self, event: ev.Raw) -> None:
        """Write an event of this dialect that has no model event, unchanged."""
        if event.dialect == NAME and isinstance(event.value, dict):
            self._frames.append(write(event.value))
        else:
            self._lost.add_raw(event)

    def _usage_reported(self, event: ev.UsageReported) -> None:
        if self._options.extra_fields:
            counts = {_USAGE_FIELDS[name]: getattr(event, name) for name in _USAGE_FIELDS}
            if present := {name: count for name, count in counts.items() if count is not None}:
                self._final_fields["usage"] = present
            return
        self._lost.add(Feature.USAGE)
        if event.cached is not None or event.reasoning is not None:
            self._lost.add(Feature.USAGE_DETAILS)

    def _ignore(self, event: ev.MessageStarted | ev.MessageEnded) -> None:
        """Write nothing: the protocol does not delimit messages."""

    def _record_loss(self, event: Event) -> None:
        self._lost.add(_LOST_FEATURES[type(event)])


_LOST_FEATURES: dict[type, Feature] = {
    ev.StateChanged: Feature.STATE,
    ev.StepStarted: Feature.STEP,
    ev.StepEnded: Feature.STEP,
    ev.Custom: Feature.CUSTOM,
}

# Functions of the class, not methods bound to each encoder, which would tie every encoder to itself.
_HANDLERS: dict[type, Callable[[Encoder, Any], None]] = {
    ev.RunStarted: Encoder._run_started,
    ev.MessageStarted: Encoder._ignore,
    ev.MessageEnded: Encoder._ignore,
    ev.TextDelta: Encoder._text,
    ev.ReasoningDelta: Encoder._reasoning,
    ev.ArgsDelta: Encoder._arguments,
    ev.PartStarted: Encoder._part_started,
    ev.PartEnded: Encoder._part_ended,
    ev.ContentAdded: Encoder._content,
    ev.ToolResulted: Encoder._result,
    ev.Interrupted: Encoder._interrupted,
    ev.RunFailed: Encoder._failed,
    ev.RunFinished: Encoder._finished,
    ev.Heartbeat: Encoder._heartbeat,
    ev.Raw: Encoder._raw,
    ev.UsageReported: Encoder._usage_reported,
    **dict.fromkeys(_LOST_FEATURES, Encoder._record_loss),
}
