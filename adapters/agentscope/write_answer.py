"""Events -> AgentScope stream, for one run.

`Sequencer` orders the contents of messages; `Output` writes them and keeps the open message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.contract import KEEPALIVE, Context, Feature, FrameLike
from bridge.dialects.agentscope.approvals import approval_data
from bridge.dialects.agentscope.calls import call_data, call_type, origin_metadata, output_data, output_of
from bridge.dialects.agentscope.capabilities import card
from bridge.dialects.agentscope.contents import content_of
from bridge.dialects.agentscope.errors import error_object
from bridge.dialects.agentscope.extras import NAME, foreign_metadata, own, reasoning_metadata, usage_of
from bridge.dialects.agentscope.fields import end_fields
from bridge.dialects.agentscope.forms import PYTHON, Form
from bridge.dialects.agentscope.normalization import payload_of
from bridge.dialects.agentscope.objects import WireMessage, usage_object
from bridge.dialects.agentscope.options import FrontOptions
from bridge.dialects.agentscope.output import Output
from bridge.errors import ErrorCode, Failure
from bridge.model import SHARED, Extras, FinishReason, MessageStatus, PartKind
from bridge.model import events as ev
from bridge.model.events import Event
from bridge.toolkit import Encoder
from bridge.toolkit.cut_calls import CUT
from bridge.toolkit.sequencer import ChoicesInTurn
from bridge.toolkit.template import Template

_STATUSES = {
    MessageStatus.COMPLETED: "completed",
    MessageStatus.INCOMPLETE: "completed",
    MessageStatus.FAILED: "incomplete",
    MessageStatus.CANCELED: "incomplete",
}
_PART_STATUSES = {
    MessageStatus.INCOMPLETE: "incomplete",
    MessageStatus.FAILED: "incomplete",
    MessageStatus.CANCELED: "canceled",
}
# Failures for finish reasons that an option maps to status `failed`.
_REASON_FAILURES = {
    FinishReason.CONTENT_FILTER: Failure(ErrorCode.CONTENT_FILTER, CUT[FinishReason.CONTENT_FILTER]),
    FinishReason.CANCELED: Failure(ErrorCode.CANCELED, "The run was canceled."),
}
# The options with the status for a finish reason. An answer that reached its token limit is completed.
_REASON_OPTIONS = {
    FinishReason.LENGTH: None,
    FinishReason.CONTENT_FILTER: "content_filter",
    FinishReason.CANCELED: "canceled",
}
# Events that may come anywhere, also inside a part.
_ANYWHERE = frozenset({ev.RunStarted, ev.UsageReported, ev.Heartbeat})
_CUSTOM_EVENTS = frozenset({ev.StateChanged, ev.StepStarted, ev.StepEnded, ev.Custom})
# Finish reasons without a status, sent in the last message's metadata, and the features lost without metadata.
_REASON_FEATURES: dict[FinishReason, Feature | None] = {
    FinishReason.LENGTH: Feature.FINISH_LENGTH,
    FinishReason.CONTENT_FILTER: Feature.FINISH_CONTENT_FILTER,
    FinishReason.TOOL_CALLS: None,
}
_ROLES = ("assistant", "user", "system", "tool")
# OpenAI's fields of a whole answer, sent in the metadata of the last message.
_ANSWER_METADATA = ("system_fingerprint", "service_tier")
_MESSAGE_FIELDS = frozenset(
    {"sequence_number", "object", "id", "type", "role", "content", "status", "usage", "metadata"}
)


@dataclass(slots=True)
class _OpenPart:
    """The content that is being written. `template`: a delta of a text, once one is written."""

    started: ev.PartStarted
    kind: str
    template: Template | None = None
    pieces: list[str] = field(default_factory=list)


class MessagesEncoder(Encoder):
    """Encodes a valid sequence of events; each becomes zero or more payloads."""

    dialect = NAME
    holds_cut_calls = True
    keeps = (Feature.MODEL, Feature.FINISH_LENGTH, Feature.PART_BORDERS, Feature.RAW)

    def __init__(self, context: Context, form: Form = PYTHON, options: FrontOptions | None = None) -> None:
        self._options = options = options or FrontOptions.of(context)
        self.free = _ANYWHERE if options.events == "messages" else _ANYWHERE | _CUSTOM_EVENTS
        super().__init__(context, card(form.exact, options.events))
        # The choice of a message is sent in its metadata; without metadata only one choice is supported.
        self._choices = None if form.exact else ChoicesInTurn()
        self._output = Output(form, context.lost)
        self._open_part: _OpenPart | None = None
        self._roles: dict[str, str] = {}
        self._calls: dict[str, tuple[str, str, str]] = {}
        self._waiting: dict[str, tuple[str, str]] = {}
        """Name and arguments of the calls without a result."""
        self._truncated_call: WireMessage | None = None
        self._created_at = 0.0
        self._answer_metadata: dict[str, Any] = {}
        self._first_metadata: dict[str, Any] = {}
        self._usage: dict[str, Any] | None = None

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        frames = self._output.frames = []
        super().encode(events)
        return frames

    def ready(self, events: Sequence[Event]) -> Sequence[Event]:
        events = super().ready(events)
        return events if self._choices is None else self._choices.feed(events)

    # ------------------------------------------------------------------ the run

    def run_started(self, event: ev.RunStarted) -> None:
        context, request = self.context, self.context.request
        response_id = (request.run_id if request else None) or own(event.extras).get("id") or f"response_{event.run_id}"
        session = context.thread_id or event.thread_id or event.run_id
        shared = (event.extras or {}).get(SHARED) or {}
        self._answer_metadata = {name: shared[name] for name in _ANSWER_METADATA if name in shared}
        self._created_at = event.created_at
        if event.model:
            self._first_metadata = {"model": event.model}
        self._output.begin(str(response_id), event.created_at, session)

    def usage_reported(self, event: ev.UsageReported) -> None:
        self._usage = usage_object(event)

    def finished(self, event: ev.RunFinished) -> None:
        """End the run. Reasons other than stop are sent in the last message's metadata, or by option as the status."""
        reason = event.reason
        status = self._status_of(reason, own(event.extras).get("status"))
        if status == "failed":
            self._end_run(status, ended_at=None, error=error_object(_REASON_FAILURES[reason]))
            return
        if reason in _REASON_FEATURES and not self._has_choices:
            self._record_reason(reason, status)
        if reason in CUT and self._truncated_call is not None and self._truncated_call is self._output.message:
            # Inform a client that waits for this call why it is incomplete.
            self._truncated_call.extra = {"code": str(reason), "message": CUT[reason]}
        self._end_run(status, ended_at=None if status == "canceled" else event.ended_at or self._created_at)

    def _status_of(self, reason: FinishReason, backend_status: object) -> str:
        """Return the status for a reason: the route's option, else the status sent by a backend of this dialect."""
        if reason not in _REASON_OPTIONS:
            return "completed"
        option = _REASON_OPTIONS[reason]
        if isinstance(backend_status, str) and option not in self._options.model_fields_set:
            return backend_status
        return "completed" if option is None else str(getattr(self._options, option))

    def _record_reason(self, reason: FinishReason, status: str) -> None:
        """Write the reason into the metadata of the last message; open a message if there is none."""
        output, lost = self._output, _REASON_FEATURES[reason]
        if not output.form.exact:
            if output.message is None:
                output.open(self.context.make_id("msg"), "message", "assistant")
            output.add_metadata({"finish_reason": str(reason)})
        elif lost is not None and status == "completed":
            self.lost.add(lost)

    def failed(self, event: ev.RunFailed) -> None:
        own_extras = own(event.extras)
        wire_code, status = own_extras.get("code"), own_extras.get("status")
        status = status if isinstance(status, str) else "failed"
        error = error_object(event.error, wire_code if isinstance(wire_code, str) else None, status)
        self._end_run(status, ended_at=None, error=error)

    def _end_run(self, status: str, *, ended_at: float | None, error: dict[str, Any] | None = None) -> None:
        """End the run. A partial message is closed as incomplete: the web frontend replaces its content by `output`."""
        message = self._output.message
        if self._first_metadata:
            self.lost.add(Feature.MODEL)
        if message is not None:
            message.usage = message.usage or self._usage
            message.metadata.update(self._answer_metadata)
            if status == "incomplete" or (status != "completed" and not message.ended):
                message.status = "canceled" if status == "canceled" else "incomplete"
        self._output.end(status, usage=self._usage, ended_at=ended_at, error=error)

    # ------------------------------------------------------------------ parts

    def message_started(self, event: ev.MessageStarted) -> None:
        if event.role in _ROLES:
            self._roles[event.message_id] = event.role

    def part_started(self, event: ev.PartStarted) -> None:
        """Open a part. Text opens its message with its first delta, so that empty text is omitted; a call at once."""
        self._open_part = _OpenPart(event, "refusal" if event.kind is PartKind.REFUSAL else "text")
        if event.kind is PartKind.TOOL_CALL:
            kind = call_type(
                event.origin, event.extras, self._options.call_type, has_metadata=not self._output.form.exact
            )
            self._open_message(event, kind, "assistant", origin_metadata(event.origin, kind))
            self._calls[event.call_id or ""] = (kind, event.name or "", event.message_id)
            self._write_call(event, "")

    def text(self, event: ev.TextDelta | ev.ReasoningDelta) -> None:
        part, text = self._open_part, event.text
        assert part is not None
        if not text:
            return
        template = part.template or self._open_text(part)
        part.pieces.append(text)
        if event.extras is not None:
            self._add_logprobs(event.extras)
        output = self._output
        number = output.number
        output.number = number + 1
        output.frames.append(template(text, number))

    reasoning = text

    def _open_text(self, part: _OpenPart) -> Template:
        """Open the message of a text if needed; return its delta."""
        if part.started.kind is PartKind.REASONING:
            self._open_message(part.started, "reasoning", "assistant", {})
        else:
            self._continue_message(part.started)
        part.template = self._output.text_template(part.kind)
        return part.template

    def _continue_message(self, event: ev.PartStarted | ev.ContentAdded) -> None:
        """Keep the open message if it is an ordinary one of the event's message, else open a new one."""
        message, owner = self._output.message, event.message_id
        if message is None or message.owner != owner or message.kind != "message":
            self._open_message(event, "message", self._roles.get(owner, "assistant"), {})

    def _open_message(
        self, event: ev.PartStarted | ev.ContentAdded, kind: str, role: str, metadata: dict[str, Any]
    ) -> None:
        """Open a message of an answer. The first message of a run names the model."""
        if event.choice:
            metadata = {"choice_index": event.choice, **metadata}
        if self._first_metadata and not self._output.form.exact:
            metadata, self._first_metadata = {**self._first_metadata, **metadata}, {}
        self._output.open(event.message_id, kind, role, metadata)

    @property
    def _has_choices(self) -> bool:
        return self._choices is not None and self._choices.several

    def _add_logprobs(self, extras: Extras) -> None:
        """Add OpenAI's log probabilities, which have no field of their own, to the message's metadata."""
        logprobs = (extras.get(SHARED) or {}).get("logprobs")
        if not isinstance(logprobs, dict):
            return
        assert self._output.message is not None
        known = self._output.message.metadata.setdefault("logprobs", {})
        for name, items in logprobs.items():
            if isinstance(items, list):
                known.setdefault(name, []).extend(items)

    def arguments(self, event: ev.ArgsDelta) -> None:
        part = self._open_part
        assert part is not None
        part.pieces.append(event.text)

    def _write_call(self, event: ev.PartStarted, arguments: str, end: dict[str, Any] | None = None) -> None:
        """Write a call with the arguments so far; `end` ends it."""
        assert self._output.message is not None
        kind = self._output.message.kind
        data = call_data(kind, event.call_id or "", event.name or "", arguments, event.server_label)
        if end is None:
            self._output.content("data", 0, False, {"data": data})
        else:
            self._output.end_content("data", {"data": data}, end)

    def part_ended(self, event: ev.PartEnded) -> None:
        part, end = self._open_part, own(event.extras)
        assert part is not None
        if "status" not in end and event.status in _PART_STATUSES:
            end = {"status": _PART_STATUSES[event.status]}
        if part.started.kind is PartKind.TOOL_CALL:
            arguments = "".join(part.pieces)
            if event.status is MessageStatus.INCOMPLETE and self._output.message is not None:
                self._truncated_call = self._output.message
                self._truncated_call.status, self._truncated_call.ended = "incomplete", True
            elif not arguments.strip() and event.status is MessageStatus.COMPLETED:
                arguments = "{}"  # readers parse the arguments as JSON, which white space is not
            self._write_call(part.started, arguments, end)
            self._waiting[part.started.call_id or ""] = part.started.name or "", arguments
        else:
            self._end_text(part, reasoning_metadata(event.signature, event.redacted), end)
            self._add_citations(event.extras)
        self._open_part = None

    def _end_text(self, part: _OpenPart, metadata: dict[str, Any], end: dict[str, Any]) -> None:
        if (metadata or end) and part.template is None:
            self._open_text(part)
        if part.template is not None:
            self._output.add_metadata(metadata)
            self._output.end_content(part.kind, {part.kind: "".join(part.pieces)}, end)

    def content(self, event: ev.ContentAdded) -> None:
        self._continue_message(event)
        self._output.complete_content(*content_of(event.part), own(event.part.extras))

    def tool_resulted(self, event: ev.ToolResulted) -> None:
        self._waiting.pop(event.call_id, None)
        known = self._calls.get(event.call_id)
        kind, name, owner = known or (self._options.call_type, "", "")
        own_extras = own(event.extras)
        sent_type = own_extras.get("type")
        kind = (
            sent_type
            if not known and isinstance(sent_type, str) and sent_type.endswith("_output")
            else f"{kind}_output"
        )
        owner = event.message_id or owner or self.context.make_id("msg")
        data, metadata = self._output.form.place_metadata(
            output_data(event.call_id, event.name or name, output_of(event, self.lost)),
            {"is_error": True} if event.is_error else {},
        )
        self._open_complete_message(owner, kind, "tool", own_extras, metadata)
        self._output.content("data", 0, False, {"data": {**data, "output": ""}})
        self._output.end_content("data", {"data": data}, own_extras.get("end") or {})

    def _open_complete_message(
        self, owner: str, kind: str, role: str, own_extras: dict[str, Any], metadata: dict[str, Any]
    ) -> None:
        """Open a message that no event ends. `own_extras`: its extras from a backend of this dialect."""
        message = self._output.open(owner, kind, role, {**foreign_metadata(own_extras.get("metadata")), **metadata})
        message.usage = usage_of(own_extras)
        message.ended = True

    def message_ended(self, event: ev.MessageEnded) -> None:
        message, own_extras = self._output.message, own(event.extras)
        sent_status = own_extras.get("status")
        if sent_status is not None and not self._output.has_message(event.message_id):
            message = self._output.open(event.message_id, "message", self._roles.get(event.message_id, "assistant"))
        if message is not None and message.owner == event.message_id and not message.ended:
            message.status = sent_status or _STATUSES[event.status]
            message.ended = sent_status is not None or event.status is MessageStatus.COMPLETED
            message.extra = {name: own_extras[name] for name in ("error", "code", "message") if name in own_extras}
            message.usage = usage_of(own_extras)
            message.metadata.update(foreign_metadata(own_extras.get("metadata")))
            if event.reason in _REASON_FEATURES and self._has_choices:
                message.metadata["finish_reason"] = str(event.reason)

    # ------------------------------------------------------------------ the rest

    def custom(self, event: ev.Custom) -> None:
        self._data_message(Feature.CUSTOM, {"name": event.name, "value": event.value})

    def state_changed(self, event: ev.StateChanged) -> None:
        self._data_message(Feature.STATE, {"op": str(event.op), "value": event.value})

    def step_started(self, event: ev.StepStarted) -> None:
        self._data_message(Feature.STEP, {"name": event.name, "status": "started"})

    def step_ended(self, event: ev.StepEnded) -> None:
        self._data_message(Feature.STEP, {"name": event.name, "status": "ended"})

    def _data_message(self, feature: Feature, data: dict[str, Any]) -> None:
        """Write a message that holds an event of another kind."""
        self._open_complete_message(self.context.make_id("msg"), str(feature), "assistant", {}, {})
        self._output.complete_content("data", {"data": data}, {})

    def interrupted(self, event: ev.Interrupted) -> None:
        """Write an interrupt as an approval request, for which the web frontend shows confirm and cancel buttons."""
        data, metadata = self._output.form.place_metadata(*approval_data(event, self._waiting.get(event.call_id or "")))
        own_extras = own(event.extras)
        owner = str(own_extras.get("id") or self.context.make_id("msg"))
        self._open_complete_message(owner, "mcp_approval_request", "assistant", own_extras, metadata)
        self._output.complete_content("data", {"data": data}, {})

    def heartbeat(self, event: ev.Heartbeat) -> None:
        keepalive, output = self._options.keepalive, self._output
        if keepalive == "comment" or (keepalive == "message" and not output.number):
            output.frames.append(KEEPALIVE)
        elif keepalive == "message":
            number = output.next_number()
            message = WireMessage(f"{output.response.id}-beat-{number}", "heartbeat", "assistant", "")
            output.write(message.opening(number))

    def _add_citations(self, extras: Extras | None) -> bool:
        """Add citations to the message's metadata. Returns False without citations, message or metadata."""
        citations = ((extras or {}).get(SHARED) or {}).get("annotations")
        message = self._output.message
        if not citations or message is None or self._output.form.exact:
            return False
        message.metadata.setdefault("annotations", []).extend(citations)
        return True

    def raw(self, event: ev.Raw) -> None:
        """Write a message or content of a type specific to AgentScope, unchanged but for sequence numbers."""
        value = event.value
        if self._add_citations(event.extras):
            return
        object_type = value.get("object") if event.dialect == NAME and isinstance(value, dict) else None
        if object_type == "message":
            self._raw_message(value)
        elif object_type == "content":
            self._raw_content(value, own(event.extras))
        elif object_type != "error":  # an error of the agent is already in its message
            self.lost.add_raw(event)

    def _raw_content(self, value: dict[str, Any], message_fields: dict[str, Any]) -> None:
        owner, message = str(value["msg_id"]), self._output.message
        if message is None or message.owner != owner:
            self._output.open(owner, message_fields["type"], message_fields["role"])
        self._output.complete_content(value["type"], payload_of(value), end_fields(value))

    def _raw_message(self, value: dict[str, Any]) -> None:
        wire_id, kind, role = value.get("id"), value.get("type"), value.get("role")
        self._open_complete_message(
            wire_id if isinstance(wire_id, str) and wire_id else self.context.make_id("msg"),
            kind if isinstance(kind, str) else "message",
            role if role in _ROLES else "assistant",
            value,
            {},
        )
        message, status = self._output.message, value.get("status")
        assert message is not None
        message.extra = {k: v for k, v in value.items() if k not in _MESSAGE_FIELDS}
        message.status = status if isinstance(status, str) else "completed"
        contents = value.get("content")
        for content in contents if isinstance(contents, list) else []:
            if isinstance(content, dict):
                self._output.copy_content(content)
