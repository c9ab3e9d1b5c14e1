"""Events -> chunks that every deployed client reads, strict builds of version 5 included.

Fields and types are those of version 5; option `ui_version` adds the approvals of version 6. One part is open at a time
(`Sequencer` sees to it), deltas are never empty, absent fields are left out. Per token only the text is dumped.
"""

from __future__ import annotations

from bridge.contract import KEEPALIVE, Context
from bridge.dialects.ai_sdk_ui.capabilities import CAPABILITIES
from bridge.dialects.ai_sdk_ui.errors import ERRORS
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
from bridge.model import FinishReason, Media, MessageStatus, PartKind, ToolCall
from bridge.model import events as ev
from bridge.model.jsontext import dumps, text_of
from bridge.toolkit import Encoder
from bridge.toolkit.citations import Citation, citations_in
from bridge.toolkit.media import result_as_text
from bridge.toolkit.template import HOLE, Template

_FREE = frozenset({ev.RunStarted, ev.MessageStarted, ev.MessageEnded, ev.UsageReported, ev.Heartbeat, ev.Interrupted})
_INLINE = (ev.StateChanged, ev.StepStarted, ev.StepEnded, ev.Custom, ev.ToolResulted)
_WORDS = {PartKind.TEXT: "text", PartKind.REASONING: "reasoning"}
_DONE = b"[DONE]"
_SOURCES = {"source-url": ("sourceId", "url"), "source-document": ("sourceId", "mediaType", "title")}


class UIMessageEncoder(Encoder):
    """One per run.

    Steps matter to clients: they send the results of their tools when all calls of the last step have one. So a step
    continues while a call in it has no result (`_pending`), and ends before what follows the results.
    """

    free = _FREE
    inline = _INLINE
    holds_cut_calls = True

    def __init__(self, context: Context) -> None:
        options = FrontOptions.of(context)
        super().__init__(context, CAPABILITIES)
        self._approves = options.ui_version >= 6
        request = context.request
        self._continued = own(request.extras).get("notes", {}).get("answer") if request else None
        self._called = _calls_of_answer(context)
        self._pending: set[str] = set()
        self._in_step = False
        self._breaks = False
        self._part: ev.PartStarted
        self._arguments: list[str] = []
        self._broken: dict[str, Wire] = {}
        self._template: Template
        self._interrupts: list[ev.Interrupted] = []
        self._cited_pages: set[str] = set()

    # ------------------------------------------------------------------ writing

    def _write(self, chunk: Wire) -> None:
        self.out.append(dumps(chunk))

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

    def run_started(self, event: ev.RunStarted) -> None:
        """The answer to the results of tools continues the message with their calls; a new id would duplicate it."""
        native = own(event.extras)
        metadata = native.get("metadata")
        if metadata is None and (model := event.model or self.context.model):
            metadata = {"model": model}
        chunk = {"type": "start", "messageId": self._continued or text_of(native.get("id")) or event.run_id}
        self._write({**chunk, "messageMetadata": metadata} if metadata is not None else chunk)

    def message_started(self, event: ev.MessageStarted) -> None:
        self._breaks = True

    # ------------------------------------------------------------------ parts

    def part_started(self, event: ev.PartStarted) -> None:
        self._enter()
        self._part = event
        if event.kind is PartKind.TOOL_CALL:
            self._call_started(event)
            return
        word, name = _WORDS[event.kind], event.part_id
        self._write({"type": f"{word}-start", "id": name})
        self._template = Template({"type": f"{word}-delta", "id": name, "delta": HOLE})

    def text(self, event: ev.TextDelta | ev.ReasoningDelta) -> None:
        if event.text:
            self.out.append(self._template(event.text))

    reasoning = text

    def arguments(self, event: ev.ArgsDelta) -> None:
        if event.text:
            self._arguments.append(event.text)
            self.out.append(self._template(event.text))

    def part_ended(self, event: ev.PartEnded) -> None:
        kind = self._part.kind
        if kind is PartKind.TOOL_CALL:
            self._call_ended(event)
            return
        if kind is PartKind.REASONING:
            metadata = with_signature(metadata_for(event.signature, event.redacted, event.extras), event.extras)
        else:
            metadata = metadata_in(event.extras)
        self._write(with_metadata({"type": f"{_WORDS[kind]}-end", "id": self._part.part_id}, metadata))
        for citation in citations_in(event.extras, self.lost, 0) if event.extras else ():
            self._cited(citation)

    def _cited(self, citation: Citation) -> None:
        """Write the page that a text cites, once in an answer; the wire has no place in the text for it."""
        if citation["url"] not in self._cited_pages:
            self._cited_pages.add(citation["url"])
            title = {"title": citation["title"]} if citation["title"] else {}
            number = len(self._cited_pages)
            self._write({"type": "source-url", "sourceId": f"source-{number}", "url": citation["url"], **title})

    def _call_started(self, event: ev.PartStarted) -> None:
        self._arguments = []
        call_id = event.call_id or ""
        self._called.add(call_id)
        self._pending.add(call_id)
        self._write({"type": "tool-input-start", **self._named(event)})
        self._template = Template({"type": "tool-input-delta", "toolCallId": call_id, "inputTextDelta": HOLE})

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

    def tool_resulted(self, event: ev.ToolResulted) -> None:
        """Write a result that the client must not send back. That of a call of an earlier answer may precede all
        steps.
        """
        native = own(event.extras)
        name = {"toolCallId": event.call_id}
        if event.call_id not in self._called:
            self._enter()
            self._called.add(event.call_id)
            call = {"toolName": event.name or "tool", "input": {}, "providerExecuted": True}
            self._write(with_metadata({"type": "tool-input-available", **name, **call}, EARLIER))
        ran = {"providerExecuted": True} if native.get("providerExecuted", True) else {}
        ran.update(picked(native, "dynamic"))
        if native.get("denied") and self._approves:
            self._write({"type": "tool-output-denied", **name})
        elif event.is_error:
            self._write({"type": "tool-output-error", **name, "errorText": result_as_text(event, self.lost), **ran})
        else:
            output = output_of(result_as_text(event, self.lost), event.extras)
            self._write({"type": "tool-output-available", **name, "output": output, **ran})
        self._pending.discard(event.call_id)
        self._broken.pop(event.call_id, None)
        self._breaks = True

    def content(self, event: ev.ContentAdded) -> None:
        part = event.part
        self._enter()
        if not isinstance(part, Media):
            self._write({"type": "data-json", "data": getattr(part, "value", None)})
            return
        self._write(noted_file(part))

    def custom(self, event: ev.Custom) -> None:
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

    def state_changed(self, event: ev.StateChanged) -> None:
        self._write({"type": "data-state", "data": {"op": str(event.op), "value": event.value}})

    def step_started(self, event: ev.StepStarted) -> None:
        self._step(event.name, "started")

    def step_ended(self, event: ev.StepEnded) -> None:
        self._step(event.name, "ended")

    def _step(self, name: str, status: str) -> None:
        self._write({"type": "data-step", "data": {"name": name, "status": status}, "transient": True})

    def interrupted(self, event: ev.Interrupted) -> None:
        self._interrupts.append(event)

    def heartbeat(self, event: ev.Heartbeat) -> None:
        self.out.append(KEEPALIVE)

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

    def finished(self, event: ev.RunFinished) -> None:
        metadata = told(self.usage, own(event.extras).get("metadata") or {})
        if event.reason is FinishReason.CANCELED:
            self._report(metadata)
            self._write({"type": "abort"})
            self.out.append(_DONE)
            return
        self._end_calls()
        for question in self._interrupts:
            self._asks(question)
        self._leave()
        chunk: Wire = {"type": "finish", "finishReason": FINISHES[event.reason]}
        self._write({**chunk, "messageMetadata": metadata} if metadata else chunk)
        self.out.append(_DONE)

    def failed(self, event: ev.RunFailed) -> None:
        """The client closes the connection at the error, so the usage precedes it."""
        self._end_calls()
        self._report(told(self.usage, {}))
        self._write({"type": "error", "errorText": ERRORS.text(event.error)})
        self._leave()
        self._write({"type": "finish", "finishReason": "error"})
        self.out.append(_DONE)

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


def _calls_of_answer(context: Context) -> set[str]:
    """The ids of the calls of the message that the answer continues."""
    calls: set[str] = set()
    for message in reversed(context.request.messages if context.request else ()):
        if message.role not in ("assistant", "tool"):
            break
        calls.update(p.call_id for p in message.parts if isinstance(p, ToolCall))
    return calls
