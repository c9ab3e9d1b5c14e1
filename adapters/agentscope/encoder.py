"""Events -> AgentScope stream, for one run.

Contents of a message follow one another; `Sequencer` sees to it. What is open and how it is written is `Output`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.codec import KEEPALIVE, Context, Feature, FrameLike
from bridge.codec.cut_calls import CUT, CutCalls
from bridge.codec.jsontext import dumps
from bridge.codec.media import answer_feature
from bridge.codec.sequencer import ChoicesInTurn, Sequencer
from bridge.dialects.agentscope.approvals import approval_data
from bridge.dialects.agentscope.calls import call_data, call_type, origin_note, output_data, output_of
from bridge.dialects.agentscope.contents import content_of
from bridge.dialects.agentscope.errors import error_object
from bridge.dialects.agentscope.fields import said_of_end
from bridge.dialects.agentscope.forms import PYTHON, Form, safe
from bridge.dialects.agentscope.notes import NAME, foreign_metadata, own, reasoning_note, usage_of
from bridge.dialects.agentscope.objects import WireMessage, usage_object
from bridge.dialects.agentscope.options import FrontOptions, front
from bridge.dialects.agentscope.output import Output
from bridge.dialects.agentscope.spelling import payload_of
from bridge.errors import ErrorCode, Failure
from bridge.model import SHARED, Extras, FinishReason, MessageStatus, PartKind
from bridge.model import events as ev
from bridge.model.events import Event

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
# What is said of these reasons where they are to be failures.
_STOPPED = {
    FinishReason.CONTENT_FILTER: Failure(ErrorCode.CONTENT_FILTER, CUT[FinishReason.CONTENT_FILTER]),
    FinishReason.CANCELED: Failure(ErrorCode.CANCELED, "The run was canceled."),
}
# The options that name the status for a reason.
_OPTIONS = {
    FinishReason.LENGTH: "length",
    FinishReason.CONTENT_FILTER: "content_filter",
    FinishReason.CANCELED: "canceled",
}
# These carry no place in the answer.
_FREE = (ev.RunStarted, ev.UsageReported, ev.Heartbeat)
_EVENTS = (ev.StateChanged, ev.StepStarted, ev.StepEnded, ev.Custom)
# The reasons that a status cannot tell and the last message's metadata does, and what is lost without metadata.
_NOTED: dict[FinishReason, Feature | None] = {
    FinishReason.LENGTH: Feature.FINISH_LENGTH,
    FinishReason.CONTENT_FILTER: Feature.FINISH_CONTENT_FILTER,
    FinishReason.TOOL_CALLS: None,
}
_ROLES = ("assistant", "user", "system", "tool")
# What OpenAI says of a whole answer and this wire says in the metadata of its last message.
_BESIDE = ("system_fingerprint", "service_tier")
_HANDLED = frozenset({"sequence_number", "object", "id", "type", "role", "content", "status", "usage", "metadata"})


@dataclass(slots=True)
class _Live:
    """The content that is being written. `prefix` is everything of a delta between its number and its text."""

    started: ev.PartStarted
    kind: str
    prefix: bytes = b""
    pieces: list[str] = field(default_factory=list)


class Encoder:
    """Trusts the grammar; every event becomes no, one or several payloads."""

    def __init__(self, context: Context, form: Form = PYTHON, options: FrontOptions | None = None) -> None:
        self._context = context
        self._options = options or front(context)
        self._cut_calls = CutCalls()
        # Metadata says which answer a message belongs to; without it there is one answer.
        self._choices = None if form.exact else ChoicesInTurn()
        told = self._options.events == "messages"
        self._sequencer = Sequencer(context.lost if form.exact else None, _FREE if told else (*_FREE, *_EVENTS))
        self._wire = Output(form, context.lost)
        self._live: _Live | None = None
        self._roles: dict[str, str] = {}
        self._calls: dict[str, tuple[str, str, str]] = {}
        self._cut: WireMessage | None = None
        self._created_at = 0.0
        self._beside: dict[str, Any] = {}
        self._first: dict[str, Any] = {}
        self._usage: dict[str, Any] | None = None

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        out: list[FrameLike] = []
        self._wire.frames = out
        events = self._cut_calls.feed(events)
        if self._choices is not None:
            events = self._choices.feed(events)
        self._sequencer.dispatch(events, self, _HANDLERS)
        return out

    def close(self) -> list[FrameLike]:
        """Nothing follows the terminal response: there is no `[DONE]` here."""
        return []

    # ------------------------------------------------------------------ the run

    def _start_run(self, event: ev.RunStarted) -> None:
        context, request = self._context, self._context.request
        chosen = (request.run_id if request else None) or own(event.extras).get("id") or f"response_{event.run_id}"
        session = context.thread_id or event.thread_id or event.run_id
        beside = (event.extras or {}).get(SHARED) or {}
        self._beside = {name: beside[name] for name in _BESIDE if name in beside}
        self._created_at = event.created_at
        if event.model:
            self._first = {"model": event.model}
        self._wire.begin(str(chosen), event.created_at, session)

    def _report(self, event: ev.UsageReported) -> None:
        self._usage = usage_object(event)

    def _finish(self, event: ev.RunFinished) -> None:
        """A reason other than stop stands in the last message's metadata, or in the status where so configured."""
        reason = event.reason
        status = self._status_of(reason, own(event.extras).get("status"))
        if status == "failed":
            self._terminal(status, ended_at=None, error=error_object(_STOPPED[reason]))
            return
        if reason in _NOTED and not self._several:
            self._note_reason(reason, status)
        if reason in CUT and self._cut is not None and self._cut is self._wire.message:
            # A client that waits for this call learns why it is not complete.
            self._cut.extra = {"code": str(reason), "message": CUT[reason]}
        self._terminal(status, ended_at=None if status == "canceled" else event.ended_at or self._created_at)

    def _status_of(self, reason: FinishReason, said: object) -> str:
        """The status for a reason: what the route's option names, else what a backend of this dialect `said`."""
        option = _OPTIONS.get(reason)
        if option is None:
            return "completed"
        chosen = str(getattr(self._options, option))
        return said if isinstance(said, str) and option not in self._options.model_fields_set else chosen

    def _note_reason(self, reason: FinishReason, status: str) -> None:
        """The reason in the metadata of the last message, which is made where there is none."""
        wire, lost = self._wire, _NOTED[reason]
        if not wire.form.exact:
            if wire.message is None:
                wire.open(self._context.make_id("msg"), "message", "assistant")
            wire.note({"finish_reason": str(reason)})
        elif lost is not None and status == "completed":
            self._context.lost.add(lost)

    def _fail(self, event: ev.RunFailed) -> None:
        mine = own(event.extras)
        word, status = mine.get("code"), mine.get("status")
        status = status if isinstance(status, str) else "failed"
        error = error_object(event.error, word if isinstance(word, str) else None, status)
        self._terminal(status, ended_at=None, error=error)

    def _terminal(self, status: str, *, ended_at: float | None, error: dict[str, Any] | None = None) -> None:
        """The partial message is closed as incomplete: the web frontend shows `output` instead of what it had."""
        message = self._wire.message
        if self._first:
            self._context.lost.add(Feature.MODEL)
        if message is not None:
            message.usage = message.usage or self._usage
            message.metadata.update(self._beside)
            if status == "incomplete" or (status != "completed" and not message.ended):
                message.status = "canceled" if status == "canceled" else "incomplete"
        self._wire.end(status, usage=self._usage, ended_at=ended_at, error=error)

    # ------------------------------------------------------------------ parts

    def _start_message(self, event: ev.MessageStarted) -> None:
        if event.role in _ROLES:
            self._roles[event.message_id] = event.role

    def _start_part(self, event: ev.PartStarted) -> None:
        """A text opens its message with its first piece, so that an empty one leaves no trace; a call at once."""
        self._live = _Live(event, "refusal" if event.kind is PartKind.REFUSAL else "text")
        if event.kind is PartKind.REFUSAL and self._wire.form.exact:
            self._context.lost.add(Feature.REFUSAL, "sent as text")
        if event.kind is PartKind.TOOL_CALL:
            kind = call_type(event.origin, event.extras, self._options.call_type, noted=not self._wire.form.exact)
            self._open(event.message_id, kind, "assistant", origin_note(event.origin, kind))
            self._calls[event.call_id or ""] = (kind, event.name or "", event.message_id)
            self._say_call(event, "")

    def _delta(self, event: ev.TextDelta | ev.ReasoningDelta) -> None:
        live, text = self._live, event.text
        assert live is not None
        if not text:
            return
        prefix = live.prefix or self._open_text(live)
        live.pieces.append(text)
        if event.extras is not None:
            self._logprobs(event.extras)
        wire = self._wire
        number = wire.number
        wire.number = number + 1
        said = dumps(text)
        wire.frames.append(b"%b%d%b%b}" % (wire.head, number, prefix, said if said.isascii() else safe(said)))

    def _open_text(self, live: _Live) -> bytes:
        """Opens the message of a text where needed and prepares what all its deltas share."""
        owner = live.started.message_id
        if live.started.kind is PartKind.REASONING:
            self._open(owner, "reasoning", "assistant", {})
        else:
            self._join(owner)
        live.prefix = self._wire.text_prefix(live.kind)
        return live.prefix

    def _join(self, owner: str) -> None:
        """The open message if it is an ordinary one of this owner, otherwise a new one."""
        message = self._wire.message
        if message is None or message.owner != owner or message.kind != "message":
            self._open(owner, "message", self._roles.get(owner, "assistant"), {})

    def _open(self, owner: str, kind: str, role: str, note: dict[str, Any]) -> None:
        """Opens a message of an answer. The first one of all names the model."""
        choice = self._choices.choice_of(owner) if self._choices is not None else 0
        if choice:
            note = {"choice_index": choice, **note}
        if self._first and not self._wire.form.exact:
            note, self._first = {**self._first, **note}, {}
        self._wire.open(owner, kind, role, note)

    @property
    def _several(self) -> bool:
        return self._choices is not None and self._choices.several

    def _logprobs(self, extras: Extras) -> None:
        """OpenAI's log probabilities have no field here and stand in the message's metadata."""
        said = (extras.get(SHARED) or {}).get("logprobs")
        if not isinstance(said, dict):
            return
        assert self._wire.message is not None
        known = self._wire.message.metadata.setdefault("logprobs", {})
        for name, items in said.items():
            if isinstance(items, list):
                known.setdefault(name, []).extend(items)

    def _arguments(self, event: ev.ArgsDelta) -> None:
        live = self._live
        assert live is not None
        live.pieces.append(event.text)
        if self._options.arguments == "snapshots":
            self._say_call(live.started, "".join(live.pieces))
        elif self._options.arguments == "deltas":
            self._say_call(live.started, event.text, delta=True)

    def _say_call(
        self, event: ev.PartStarted, arguments: str, end: dict[str, Any] | None = None, *, delta: bool = False
    ) -> None:
        """A call with the arguments so far, or their next piece; with all of them if it has ended."""
        assert self._wire.message is not None
        kind = self._wire.message.kind
        data = call_data(kind, event.call_id or "", event.name or "", arguments, event.server_label)
        if end is None:
            self._wire.content("data", 0, delta, {"data": data})
        else:
            self._wire.end_content("data", {"data": data}, end)

    def _end_part(self, event: ev.PartEnded) -> None:
        live, end = self._live, own(event.extras)
        assert live is not None
        if "status" not in end and event.status in _PART_STATUSES:
            end = {"status": _PART_STATUSES[event.status]}
        if live.started.kind is PartKind.TOOL_CALL:
            arguments = "".join(live.pieces)
            if event.status is MessageStatus.INCOMPLETE and self._wire.message is not None:
                self._cut = self._wire.message
                self._cut.status, self._cut.ended = "incomplete", True
            elif not arguments and event.status is MessageStatus.COMPLETED:
                arguments = "{}"  # readers parse the arguments as JSON, and an empty string is none
            self._say_call(live.started, arguments, end)
        else:
            self._end_text(live, reasoning_note(event.signature, event.redacted), end)
            self._cite(event.extras)
        self._live = None

    def _end_text(self, live: _Live, note: dict[str, Any], end: dict[str, Any]) -> None:
        if (note or end) and not live.prefix:
            self._open_text(live)
        if live.prefix:
            self._wire.note(note)
            self._wire.end_content(live.kind, {live.kind: "".join(live.pieces)}, end)

    def _add(self, event: ev.ContentAdded) -> None:
        self._join(event.message_id)
        self._wire.whole(*content_of(event.part), own(event.part.extras))

    def _result(self, event: ev.ToolResulted) -> None:
        known = self._calls.get(event.call_id)
        kind, name, owner = known or (self._options.call_type, "", "")
        mine = own(event.extras)
        said = mine.get("type")
        kind = said if not known and isinstance(said, str) and said.endswith("_output") else f"{kind}_output"
        owner = event.message_id or owner or self._context.make_id("msg")
        data, note = self._wire.form.beside(
            output_data(event.call_id, event.name or name, output_of(event, self._context.lost, answer_feature)),
            {"is_error": True} if event.is_error else {},
        )
        self._whole_message(owner, kind, "tool", mine, note)
        self._wire.content("data", 0, False, {"data": {**data, "output": ""}})
        self._wire.end_content("data", {"data": data}, mine.get("end") or {})

    def _whole_message(self, owner: str, kind: str, role: str, mine: dict[str, Any], note: dict[str, Any]) -> None:
        """Opens a message of which no event tells the end. `mine`: what a backend of this dialect said beside it."""
        message = self._wire.open(owner, kind, role, {**foreign_metadata(mine.get("metadata")), **note})
        message.usage = usage_of(mine)
        message.ended = True

    def _end_message(self, event: ev.MessageEnded) -> None:
        message, mine = self._wire.message, own(event.extras)
        said = mine.get("status")
        if said is not None and not self._wire.told(event.message_id):
            message = self._wire.open(event.message_id, "message", self._roles.get(event.message_id, "assistant"))
        if message is not None and message.owner == event.message_id and not message.ended:
            message.status = said or _STATUSES[event.status]
            message.ended = said is not None or event.status is MessageStatus.COMPLETED
            message.extra = {name: mine[name] for name in ("error", "code", "message") if name in mine}
            message.usage = usage_of(mine)
            message.metadata.update(foreign_metadata(mine.get("metadata")))
            if event.reason in _NOTED and self._several:
                message.metadata["finish_reason"] = str(event.reason)

    # ------------------------------------------------------------------ the rest

    def _event(self, event: ev.Custom | ev.StateChanged | ev.StepStarted | ev.StepEnded) -> None:
        match event:
            case ev.Custom():
                feature, data = Feature.CUSTOM, {"name": event.name, "value": event.value}
            case ev.StateChanged():
                feature, data = Feature.STATE, {"op": str(event.op), "value": event.value}
            case _:
                status = "started" if isinstance(event, ev.StepStarted) else "ended"
                feature, data = Feature.STEP, {"name": event.name, "status": status}
        if self._options.events == "drop":
            self._context.lost.add(feature, event.name if isinstance(event, ev.Custom) else "")
            return
        self._whole_message(self._context.make_id("msg"), str(feature), "assistant", {}, {})
        self._wire.whole("data", {"data": data}, {})

    def _interrupt(self, event: ev.Interrupted) -> None:
        """A question for a person, as the confirm and cancel buttons of the web frontend."""
        data, note = self._wire.form.beside(*approval_data(event))
        mine = own(event.extras)
        owner = str(mine.get("id") or self._context.make_id("msg"))
        self._whole_message(owner, "mcp_approval_request", "assistant", mine, note)
        self._wire.whole("data", {"data": data}, {})

    def _beat(self, event: ev.Heartbeat) -> None:
        keepalive, wire = self._options.keepalive, self._wire
        if keepalive == "comment" or (keepalive == "message" and not wire.number):
            wire.frames.append(KEEPALIVE)
        elif keepalive == "message":
            number = wire.next()
            beat = WireMessage(f"{wire.response.id}-beat-{number}", "heartbeat", "assistant", "")
            wire.write(beat.opening(number))

    def _cite(self, extras: Extras | None) -> bool:
        """Put citations into the metadata of the message; returns False if there are none, or no place for them."""
        citations = ((extras or {}).get(SHARED) or {}).get("annotations")
        message = self._wire.message
        if not citations or message is None or self._wire.form.exact:
            return False
        message.metadata.setdefault("annotations", []).extend(citations)
        return True

    def _raw(self, event: ev.Raw) -> None:
        """A message or a content of a type that only AgentScope knows, as it came, with this stream's numbers."""
        value = event.value
        if self._cite(event.extras):
            return
        shape = value.get("object") if event.dialect == NAME and isinstance(value, dict) else None
        if shape == "message":
            self._raw_message(value)
        elif shape == "content":
            self._raw_content(value, own(event.extras))
        elif shape != "error":  # an error of the agent's own stands in its message already
            self._context.lost.add_raw(event)

    def _raw_content(self, value: dict[str, Any], beside: dict[str, Any]) -> None:
        owner, message = str(value["msg_id"]), self._wire.message
        if message is None or message.owner != owner:
            self._wire.open(owner, beside["type"], beside["role"])
        self._wire.whole(value["type"], payload_of(value), said_of_end(value))

    def _raw_message(self, value: dict[str, Any]) -> None:
        wanted, kind, role = value.get("id"), value.get("type"), value.get("role")
        self._whole_message(
            wanted if isinstance(wanted, str) and wanted else self._context.make_id("msg"),
            kind if isinstance(kind, str) else "message",
            role if role in _ROLES else "assistant",
            value,
            {},
        )
        message, status = self._wire.message, value.get("status")
        assert message is not None
        message.extra = {k: v for k, v in value.items() if k not in _HANDLED}
        message.status = status if isinstance(status, str) else "completed"
        contents = value.get("content")
        for content in contents if isinstance(contents, list) else []:
            if isinstance(content, dict):
                self._wire.copy(content)


_HANDLERS: dict[type, Callable[[Encoder, Any], None]] = {
    ev.TextDelta: Encoder._delta,
    ev.ReasoningDelta: Encoder._delta,
    ev.ArgsDelta: Encoder._arguments,
    ev.RunStarted: Encoder._start_run,
    ev.MessageStarted: Encoder._start_message,
    ev.PartStarted: Encoder._start_part,
    ev.PartEnded: Encoder._end_part,
    ev.ContentAdded: Encoder._add,
    ev.ToolResulted: Encoder._result,
    ev.MessageEnded: Encoder._end_message,
    ev.UsageReported: Encoder._report,
    ev.Interrupted: Encoder._interrupt,
    ev.Heartbeat: Encoder._beat,
    ev.Raw: Encoder._raw,
    **dict.fromkeys(_EVENTS, Encoder._event),
    ev.RunFailed: Encoder._fail,
    ev.RunFinished: Encoder._finish,
}
