"""Events -> chunks that every deployed client reads, strict builds of version 5 included.

Fields and types are those of version 5; option `ui_version` adds the approvals of version 6. One part is open at a time
(`Sequencer` sees to it), deltas are never empty, absent fields are left out. Per token only the text is dumped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bridge.codec import KEEPALIVE, Context, Feature, FrameLike
from bridge.codec.cut_calls import CutCalls
from bridge.codec.jsontext import dumps, text_of
from bridge.codec.sequencer import Sequencer
from bridge.dialects.ai_sdk_ui.errors import error_text
from bridge.dialects.ai_sdk_ui.options import FrontOptions
from bridge.dialects.ai_sdk_ui.usage import told
from bridge.dialects.ai_sdk_ui.wire import (
    EARLIER,
    FINISHES,
    INVALID_INPUT,
    Wire,
    metadata_for,
    metadata_in,
    metadata_of,
    noted_file,
    output_of,
    own,
    parsed,
    picked,
    with_metadata,
    with_signature,
)
from bridge.model import FileRef, FinishReason, Media, MessageStatus, Origin, PartKind, ToolCall, result_text
from bridge.model import events as ev
from bridge.model.events import Event

_FREE = (ev.RunStarted, ev.MessageStarted, ev.MessageEnded, ev.UsageReported, ev.Heartbeat, ev.Interrupted)
_INLINE = (ev.StateChanged, ev.StepStarted, ev.StepEnded, ev.Custom, ev.ToolResulted)
_WORDS = {PartKind.TEXT: "text", PartKind.REFUSAL: "text", PartKind.REASONING: "reasoning"}
_SOURCES = {"source-url": ("sourceId", "url"), "source-document": ("sourceId", "mediaType", "title")}


class UIMessageEncoder:
    """One per run.

    Steps matter to clients: they send the results of their tools when all calls of the last step have one. So a step
    continues while a call in it has no result (`_pending`), and ends before what follows the results.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._approves = FrontOptions.of(context).ui_version >= 6
        self._cut_calls = CutCalls()
        self._sequencer = Sequencer(context.lost, _FREE, _INLINE)
        self._out: list[FrameLike] = []
        request = context.request
        self._continued = own(request.extras).get("notes", {}).get("answer") if request else None
        self._called = _calls_of_answer(context)
        self._pending: set[str] = set()
        self._in_step = False
        self._breaks = False
        self._part: ev.PartStarted
        self._arguments: list[str] = []
        self._broken: dict[str, Wire] = {}
        self._around = b"", b""
        self._interrupts: list[ev.Interrupted] = []
        self._usage: ev.UsageReported | None = None

    # ------------------------------------------------------------------ the contract

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        out = self._out = []
        self._sequencer.dispatch(self._cut_calls.feed(events), self, _HANDLERS)
        return out

    def close(self) -> list[FrameLike]:
        return [b"[DONE]"]

    # ------------------------------------------------------------------ writing

    def _write(self, chunk: Wire) -> None:
        self._out.append(dumps(chunk))

    def _enter(self) -> None:
        """Content is to follow: makes sure of a step that it belongs to."""
        if self._in_step and self._breaks and not self._pending:
            self._leave()
        if not self._in_step:
            self._in_step = True
            self._write({"type": "start-step"})
        self._breaks = False

    def _leave(self) -> None:
        if self._in_step:
            self._in_step = False
            self._write({"type": "finish-step"})

    def _run_started(self, event: ev.RunStarted) -> None:
        """The answer to the results of tools continues the message with their calls; a new id would duplicate it."""
        native = own(event.extras)
        metadata = native.get("metadata")
        if metadata is None and (model := event.model or self._context.model):
            metadata = {"model": model}
        chunk = {"type": "start", "messageId": self._continued or text_of(native.get("id")) or event.run_id}
        self._write({**chunk, "messageMetadata": metadata} if metadata is not None else chunk)

    def _message_started(self, event: ev.MessageStarted) -> None:
        self._breaks = True

    def _nothing(self, event: ev.MessageEnded) -> None:
        """The next message, or the end, ends the step."""

    # ------------------------------------------------------------------ parts

    def _part_started(self, event: ev.PartStarted) -> None:
        self._enter()
        self._part = event
        if event.kind is PartKind.TOOL_CALL:
            self._call_started(event)
            return
        if event.kind is PartKind.REFUSAL:
            self._context.lost.add(Feature.REFUSAL, "sent as text")
        word, name = _WORDS[event.kind], event.part_id
        self._write({"type": f"{word}-start", "id": name})
        head = dumps({"type": f"{word}-delta", "id": name})
        self._around = head[:-1] + b',"delta":', b"}"

    def _delta(self, event: ev.TextDelta | ev.ReasoningDelta) -> None:
        if event.text:
            before, after = self._around
            self._out.append(before + dumps(event.text) + after)

    def _arguments_delta(self, event: ev.ArgsDelta) -> None:
        if event.text:
            self._arguments.append(event.text)
            before, after = self._around
            self._out.append(before + dumps(event.text) + after)

    def _part_ended(self, event: ev.PartEnded) -> None:
        kind = self._part.kind
        if kind is PartKind.TOOL_CALL:
            self._call_ended(event)
            return
        if kind is PartKind.REASONING:
            metadata = with_signature(metadata_for(event.signature, event.redacted, event.extras), event.extras)
        else:
            metadata = metadata_in(event.extras)
        self._write(with_metadata({"type": f"{_WORDS[kind]}-end", "id": self._part.part_id}, metadata))

    def _call_started(self, event: ev.PartStarted) -> None:
        if event.origin is not Origin.FUNCTION:
            self._context.lost.add(Feature.TOOL_ORIGIN)
        self._arguments = []
        call_id = event.call_id or ""
        self._called[call_id] = event.name or ""
        self._pending.add(call_id)
        self._write({"type": "tool-input-start", **self._named(event)})
        head = dumps({"type": "tool-input-delta", "toolCallId": call_id})
        self._around = head[:-1] + b',"inputTextDelta":', b"}"

    def _named(self, event: ev.PartStarted) -> Wire:
        """The fields of a call that its first and its last chunk share."""
        more = picked(own(event.extras), "dynamic", "providerExecuted")
        return {"toolCallId": event.call_id or "", "toolName": event.name or "", **more}

    def _call_ended(self, event: ev.PartEnded) -> None:
        """A client runs what is available, so that half a call waits for its result, or for the end of the run."""
        value, is_json = parsed("".join(self._arguments))
        named = self._named(self._part)
        metadata = with_signature(metadata_in(event.extras), self._part.extras)
        if is_json and event.status is MessageStatus.COMPLETED:
            self._write(with_metadata({"type": "tool-input-available", **named, "input": value}, metadata))
            return
        chunk = {"type": "tool-input-error", **named, "input": "".join(self._arguments), "errorText": INVALID_INPUT}
        self._broken[named["toolCallId"]] = with_metadata(chunk, metadata)

    # ------------------------------------------------------------------ whole things

    def _resulted(self, event: ev.ToolResulted) -> None:
        """Write a result that the client must not send back. That of a call of an earlier answer may precede all
        steps.
        """
        native = own(event.extras)
        name = {"toolCallId": event.call_id}
        if event.call_id not in self._called:
            self._enter()
            self._called[event.call_id] = event.name or ""
            call = {"toolName": event.name or "tool", "input": {}, "providerExecuted": True}
            self._write(with_metadata({"type": "tool-input-available", **name, **call}, EARLIER))
        ran = {"providerExecuted": True} if native.get("providerExecuted", True) else {}
        ran.update(picked(native, "dynamic"))
        if native.get("denied") and self._approves:
            self._write({"type": "tool-output-denied", **name})
        elif event.is_error:
            self._write({"type": "tool-output-error", **name, "errorText": result_text(event.parts), **ran})
        else:
            output = output_of(event.parts, event.extras)
            self._write({"type": "tool-output-available", **name, "output": output, **ran})
        self._pending.discard(event.call_id)
        self._broken.pop(event.call_id, None)
        self._breaks = True

    def _content(self, event: ev.ContentAdded) -> None:
        part = event.part
        self._enter()
        if not isinstance(part, Media):
            self._write({"type": "data-json", "data": getattr(part, "value", None)})
            return
        if isinstance(part.source, FileRef):
            self._context.lost.add(Feature(str(part.kind)), "the file id in place of a URL")
        self._write(noted_file(part))

    def _custom(self, event: ev.Custom) -> None:
        value = event.value
        if event.name == "source" and isinstance(value, dict) and value.get("type") in _SOURCES:
            needed = _SOURCES[value["type"]]
            if all(isinstance(value.get(field), str) for field in needed):
                texts = {f: v for f in ("title", "filename") if isinstance(v := value.get(f), str)}
                if value["type"] == "source-url":
                    texts.pop("filename", None)
                chunk = {"type": value["type"], **picked(value, *needed), **texts}
                self._write(with_metadata(chunk, metadata_of(value.get("providerMetadata"))))
                return
        native = own(event.extras)
        self._write({"type": f"data-{event.name}", **_identity(native), "data": value})

    def _state(self, event: ev.StateChanged) -> None:
        self._write({"type": "data-state", "data": {"op": str(event.op), "value": event.value}})

    def _step(self, event: ev.StepStarted | ev.StepEnded) -> None:
        status = "started" if isinstance(event, ev.StepStarted) else "ended"
        self._write({"type": "data-step", "data": {"name": event.name, "status": status}, "transient": True})

    def _raw(self, event: ev.Raw) -> None:
        self._context.lost.add_raw(event)

    def _usage_reported(self, event: ev.UsageReported) -> None:
        self._usage = event

    def _interrupted(self, event: ev.Interrupted) -> None:
        self._interrupts.append(event)

    def _heartbeat(self, event: ev.Heartbeat) -> None:
        self._out.append(KEEPALIVE)

    # ------------------------------------------------------------------ the end

    def _asks(self, event: ev.Interrupted) -> None:
        """A question is a data part, unless the approval of a call contains all of it."""
        approves = self._approves and event.call_id in self._called
        if event.payload is not None or not approves:
            question = {"id": event.interrupt_id, "reason": event.reason, "payload": event.payload}
            question["toolCallId"] = event.call_id
            data = {k: v for k, v in question.items() if v is not None}
            self._write({"type": "data-interrupt", "id": event.interrupt_id, "data": data})
        if approves:
            chunk = {"type": "tool-approval-request", "approvalId": event.interrupt_id, "toolCallId": event.call_id}
            self._write({**chunk, **picked(own(event.extras), "signature", "approvalDescriptor", "inputSchemaInput")})

    def _finished(self, event: ev.RunFinished) -> None:
        metadata = told(self._usage, own(event.extras).get("metadata") or {})
        if event.reason is FinishReason.CANCELED:
            self._report(metadata)
            self._write({"type": "abort"})
            return
        self._end_calls()
        for question in self._interrupts:
            self._asks(question)
        self._leave()
        chunk: Wire = {"type": "finish", "finishReason": FINISHES[event.reason]}
        self._write({**chunk, "messageMetadata": metadata} if metadata else chunk)

    def _failed(self, event: ev.RunFailed) -> None:
        """The client closes the connection at the error, so the usage precedes it."""
        self._end_calls()
        self._report(told(self._usage, {}))
        self._write({"type": "error", "errorText": error_text(event.error)})
        self._leave()
        self._write({"type": "finish", "finishReason": "error"})

    def _end_calls(self) -> None:
        """Calls without a tool to run them are errors. In a canceled run they stay open, so that no client sends them
        back.
        """
        for chunk in self._broken.values():
            self._write(chunk)

    def _report(self, metadata: Wire) -> None:
        if metadata:
            self._write({"type": "message-metadata", "messageMetadata": metadata})


def _identity(native: Wire) -> Wire:
    """The id of a data part, and whether it is kept, as clients accept them."""
    known = {"id": native["id"]} if isinstance(native.get("id"), str) else {}
    return {**known, "transient": True} if native.get("transient") is True else known


def _calls_of_answer(context: Context) -> dict[str, str]:
    """The calls of the message that the answer continues, with their names."""
    calls: dict[str, str] = {}
    for message in reversed(context.request.messages if context.request else ()):
        if message.role not in ("assistant", "tool"):
            break
        calls.update({p.call_id: p.name for p in message.parts if isinstance(p, ToolCall)})
    return calls


_HANDLERS: dict[type, Callable[[UIMessageEncoder, Any], None]] = {
    ev.TextDelta: UIMessageEncoder._delta,
    ev.ReasoningDelta: UIMessageEncoder._delta,
    ev.ArgsDelta: UIMessageEncoder._arguments_delta,
    ev.RunStarted: UIMessageEncoder._run_started,
    ev.MessageStarted: UIMessageEncoder._message_started,
    ev.MessageEnded: UIMessageEncoder._nothing,
    ev.PartStarted: UIMessageEncoder._part_started,
    ev.PartEnded: UIMessageEncoder._part_ended,
    ev.ContentAdded: UIMessageEncoder._content,
    ev.ToolResulted: UIMessageEncoder._resulted,
    ev.StepStarted: UIMessageEncoder._step,
    ev.StepEnded: UIMessageEncoder._step,
    ev.StateChanged: UIMessageEncoder._state,
    ev.Custom: UIMessageEncoder._custom,
    ev.Raw: UIMessageEncoder._raw,
    ev.UsageReported: UIMessageEncoder._usage_reported,
    ev.Interrupted: UIMessageEncoder._interrupted,
    ev.Heartbeat: UIMessageEncoder._heartbeat,
    ev.RunFailed: UIMessageEncoder._failed,
    ev.RunFinished: UIMessageEncoder._finished,
}
