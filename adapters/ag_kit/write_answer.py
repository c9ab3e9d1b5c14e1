"""Events -> generation 1's stream, for one run.

Seven kinds of event, each one line of compact JSON, then `[DONE]`. The available client concatenates the field
`content` of all events, whatever their types, so only `text` events have that field.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.contract import KEEPALIVE, Context, FrameLike
from bridge.dialects.ag_kit.capabilities import card
from bridge.dialects.ag_kit.errors import error_as_text, error_text
from bridge.dialects.ag_kit.options import FrontOptions
from bridge.dialects.ag_kit.wire import DONE, NAME, request_notes, write
from bridge.model import MessageStatus, PartKind
from bridge.model import events as ev
from bridge.model.events import Event
from bridge.model.jsontext import dumps
from bridge.toolkit import Encoder
from bridge.toolkit.cut_calls import CUT, CUT_CALL
from bridge.toolkit.media import result_as_text
from bridge.toolkit.template import HOLE, Template

# Events that may come inside a text but not inside a call: clients handle calls better when they are not interrupted.
_INLINE = (ev.ToolResulted, ev.Raw)
_TEXT_KINDS = (PartKind.TEXT, PartKind.REFUSAL, PartKind.REASONING)
_SAY = Template({"type": "text", "content": HOLE}, one_line=True)


class GenerationOneEncoder(Encoder):
    """Encodes a valid sequence of events; each becomes zero or more payloads."""

    dialect = NAME
    free = Encoder.free - {ev.Raw}
    inline = _INLINE
    within = _TEXT_KINDS
    holds_cut_calls = True

    def __init__(self, context: Context) -> None:
        self._options = options = FrontOptions.of(context)
        super().__init__(context, card(options))
        conversation_id = request_notes(context.request.extras).get("conversation") if context.request else None
        # Appended to each event if the request did not name its conversation.
        self._conversation_suffix = b',"conversationId":' + dumps(conversation_id) + b"}" if conversation_id else b""
        self._has_truncated_call = False
        self._call: ev.PartStarted | None = None
        self._template: Template
        self._has_arguments = False
        self._open_reasoning: set[str] = set()
        self._has_text = False
        self._has_message = False  # a text or a call, of which clients make a message
        self._interrupts: list[bytes] = []

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        frames = super().encode(events)
        if self._conversation_suffix:
            return [
                frame[:-1] + self._conversation_suffix if isinstance(frame, bytes) and frame != DONE else frame
                for frame in frames
            ]
        return frames

    # ------------------------------------------------------------------ text

    def text(self, event: ev.TextDelta) -> None:
        if event.text:
            self._has_text = True
            self._write_text(event.text)

    def _write_text(self, text: str) -> None:
        self._has_message = True
        self.out.append(_SAY(text))

    def reasoning(self, event: ev.ReasoningDelta) -> None:
        if not event.text:
            return
        if event.part_id in self._open_reasoning:
            self._write_text(event.text)
        else:
            self._open_reasoning.add(event.part_id)
            self._write_text("<think>" + event.text)

    # ------------------------------------------------------------------ calls

    def part_started(self, event: ev.PartStarted) -> None:
        if event.kind is not PartKind.TOOL_CALL:
            return
        call_id = event.call_id or ""
        self._call, self._has_arguments, self._has_message = event, False, True
        self.out.append(write({"type": "tool-call-start", "toolCallId": call_id, "toolCallName": event.name or ""}))
        self._template = Template({"type": "tool-call-args", "toolCallId": call_id, "delta": HOLE}, one_line=True)

    def arguments(self, event: ev.ArgsDelta) -> None:
        if event.text:
            self._has_arguments = self._has_arguments or not event.text.isspace()
            self.out.append(self._template(event.text))

    def part_ended(self, event: ev.PartEnded) -> None:
        if event.part_id in self._open_reasoning:
            self._write_text("</think>\n\n")
        elif self._call is not None and event.part_id == self._call.part_id:
            self._has_truncated_call = self._has_truncated_call or event.status is MessageStatus.INCOMPLETE
            if event.status is MessageStatus.COMPLETED:
                if not self._has_arguments:
                    self.out.append(self._template("{}"))
                self.out.append(write({"type": "tool-call-end", "toolCallId": self._call.call_id or ""}))
            self._call = None

    def tool_resulted(self, event: ev.ToolResulted) -> None:
        result = result_as_text(event, self.lost, marks_errors=False)
        self.out.append(write({"type": "tool-result", "toolCallId": event.call_id, "result": result}))

    # ------------------------------------------------------------------ the end

    def interrupted(self, event: ev.Interrupted) -> None:
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

    def finished(self, event: ev.RunFinished) -> None:
        # Inform a client that waits for the end of a truncated call why it is missing.
        is_error = self._has_truncated_call or (event.reason in CUT and self._options.finish_notice == "error")
        self._end(CUT.get(event.reason, CUT_CALL) if is_error else None)

    def failed(self, event: ev.RunFailed) -> None:
        self._end(error_text(event.error))

    def _end(self, error: str | None) -> None:
        if self._interrupts and not self._has_message:
            self._write_text("")  # AG-Kit's client shows a question only in a message
        self.out += self._interrupts
        if error is not None:
            if self._options.errors == "text":
                self._write_text(("\n\n" if self._has_text else "") + error_as_text(error))
            self.out.append(write({"type": "error", "error": error}))
        self.out.append(DONE)

    # ------------------------------------------------------------------ the rest

    def heartbeat(self, event: ev.Heartbeat) -> None:
        self.out.append(KEEPALIVE)

    def raw(self, event: ev.Raw) -> None:
        """Write an event of this dialect that has no model event, unchanged."""
        if isinstance(event.value, dict):
            self.out.append(write(event.value))
        else:
            self.lost.add_raw(event)
