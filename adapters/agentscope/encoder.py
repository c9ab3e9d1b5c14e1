"""Events -> AgentScope stream, for one run (protocol page, sections 5, 13, 17).

One message is open at a time and stays open until the next one opens or the run ends: that is when its status,
the finish reason and the usage are known. Contents of a message follow one another; `Order` sees to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.codec import KEEPALIVE, Context, Feature, FrameLike
from bridge.codec.jsontext import dumps
from bridge.codec.order import DELTAS, Order
from bridge.errors import ErrorCode, Failure
from bridge.model import Data, Extras, FinishReason, MessageStatus, Part, PartKind, Refusal, Text, json_text
from bridge.model import events as ev
from bridge.model.events import Event

from .contents import (
    NAME,
    call_data,
    call_type,
    content_of,
    foreign_metadata,
    origin_note,
    output_of,
    own,
    reasoning_note,
)
from .errors import error_object
from .objects import WireMessage, WireResponse, content_object, usage_object
from .options import front
from .spelling import PYTHON, Spelling, safe

_STATUSES = {
    MessageStatus.COMPLETED: "completed",
    MessageStatus.INCOMPLETE: "completed",
    MessageStatus.FAILED: "incomplete",
    MessageStatus.CANCELED: "incomplete",
}
# These carry no place in the answer.
_FREE = (ev.RunStarted, ev.UsageReported, ev.Heartbeat, ev.StateChanged, ev.StepStarted, ev.StepEnded, ev.Custom)
# The reasons that a status cannot tell and the last message's metadata does.
_NOTED = frozenset({FinishReason.LENGTH, FinishReason.TOOL_CALLS, FinishReason.CONTENT_FILTER})
_ROLES = ("assistant", "user", "system", "tool")
# What OpenAI says of a whole answer and this wire says in the metadata of its last message (section 18).
_BESIDE = ("system_fingerprint", "service_tier")
_HANDLED = frozenset({"sequence_number", "object", "id", "type", "role", "content", "status", "usage", "metadata"})


@dataclass(slots=True)
class _Live:
    """The content that is being written. `prefix` is everything of a delta between its number and its text."""

    started: ev.PartStarted
    prefix: bytes = b""
    index: int = 0
    pieces: list[str] = field(default_factory=list)


class Encoder:
    """Trusts the grammar; every event becomes no, one or several payloads, numbered from 0 without gaps."""

    def __init__(self, context: Context, spelling: Spelling = PYTHON) -> None:
        self._context = context
        self._options = front(context)
        self._spelling = spelling
        self._head = spelling.head
        self._order = Order(context.lost, _FREE)
        self._out: list[FrameLike] = []
        self._number = 0
        self._response = WireResponse("", 0, "")
        self._message: WireMessage | None = None
        self._output: list[dict[str, Any]] = []
        self._live: _Live | None = None
        self._ids: set[str] = set()
        self._roles: dict[str, str] = {}
        self._calls: dict[str, tuple[str, str, str]] = {}
        self._note: dict[str, Any] = {}
        self._usage: dict[str, Any] | None = None

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        out = self._out = []
        order = self._order
        for event in events:
            kind = type(event)
            if kind in DELTAS and not order.busy:
                _HANDLERS[kind](self, event)
                continue
            for placed in order.feed(event):
                handler = _HANDLERS.get(type(placed))
                if handler is not None:
                    handler(self, placed)
        return out

    def close(self) -> list[FrameLike]:
        """Nothing follows the terminal response: there is no `[DONE]` here."""
        return []

    # ------------------------------------------------------------------ writing

    def _next(self) -> int:
        number = self._number
        self._number = number + 1
        return number

    def _write(self, event: dict[str, Any]) -> None:
        self._out.append(self._spelling.write(event))

    def _content(self, status: str, kind: str, index: int, delta: bool, payload: dict[str, Any]) -> None:
        """One content event of the open message; a completed one becomes part of the message."""
        assert self._message is not None
        content = content_object(self._next(), status, kind, index, delta, self._message.id, payload)
        if status == "completed":
            self._message.contents.append(content)
        self._write(content)

    def _open(self, owner: str, kind: str, role: str, metadata: dict[str, Any] | None = None) -> WireMessage:
        """Opens a message of its own, after closing the one that was open."""
        self._close_message()
        message = self._message = WireMessage(self._new_id(owner), kind, role, owner, metadata=dict(metadata or {}))
        self._write(message.opening(self._next()))
        return message

    def _join(self, owner: str) -> WireMessage:
        """The open message when it is an ordinary one of this owner, otherwise a new one."""
        message = self._message
        if message is not None and message.owner == owner and message.kind == "message":
            return message
        return self._open(owner, "message", self._roles.get(owner, "assistant"))

    def _close_message(self) -> None:
        message = self._message
        if message is not None:
            closed = message.closing(self._next())
            self._output.append(closed)
            self._write(closed)
            self._message = None

    def _new_id(self, wanted: str) -> str:
        """The id itself for the first message, `<id>-<n>` for those that have to be added to it."""
        chosen, n = wanted, 0
        while chosen in self._ids:
            n += 1
            chosen = f"{wanted}-{n}"
        self._ids.add(chosen)
        return chosen

    # ------------------------------------------------------------------ the run

    def _start_run(self, event: ev.RunStarted) -> None:
        context, request = self._context, self._context.request
        chosen = (request.run_id if request else None) or own(event.extras).get("id") or f"response_{event.run_id}"
        session = context.thread_id or event.thread_id or event.run_id
        beside = (event.extras or {}).get("openai-chat") or {}
        self._note = {name: beside[name] for name in _BESIDE if name in beside}
        self._response = WireResponse(str(chosen), int(event.created_at), session)
        self._write(self._response.event(self._next(), "created"))
        self._write(self._response.event(self._next(), "in_progress"))

    def _report(self, event: ev.UsageReported) -> None:
        self._usage = usage_object(event)

    def _finish(self, event: ev.RunFinished) -> None:
        """A reason other than stop stands in the last message's metadata, or in the status where so configured."""
        reason, status = event.reason, "completed"
        if reason is FinishReason.LENGTH:
            status = self._options.length
        elif reason is FinishReason.CONTENT_FILTER:
            status = self._options.content_filter
        elif reason is FinishReason.CANCELED:
            status = "canceled"
        if status == "failed":
            failure = Failure(ErrorCode.CONTENT_FILTER, "The answer was stopped by a content filter.")
            self._terminal(status, ended_at=None, error=error_object(failure))
            return
        if reason in _NOTED:
            message = self._message or self._open(self._context.make_id("msg"), "message", "assistant")
            message.metadata["finish_reason"] = str(reason)
        ended_at = None if status == "canceled" else event.ended_at or self._response.created_at
        self._terminal(status, ended_at=ended_at)

    def _fail(self, event: ev.RunFailed) -> None:
        word = own(event.extras).get("code")
        error = error_object(event.error, word if isinstance(word, str) else None)
        self._terminal("failed", ended_at=None, error=error)

    def _terminal(self, status: str, *, ended_at: float | None, error: dict[str, Any] | None = None) -> None:
        """The partial message is closed as incomplete: the web frontend shows `output` instead of what it had."""
        message = self._message
        if message is not None:
            message.usage = self._usage
            message.metadata.update(self._note)
            if status == "incomplete" or (status != "completed" and not message.ended):
                message.status = "canceled" if status == "canceled" else "incomplete"
        self._close_message()
        output = self._output if self._output or error is None else None
        completed_at = None if ended_at is None else int(ended_at)
        self._write(
            self._response.event(
                self._next(), status, output=output, usage=self._usage, completed_at=completed_at, error=error
            )
        )

    # ------------------------------------------------------------------ parts

    def _start_message(self, event: ev.MessageStarted) -> None:
        if event.role in _ROLES:
            self._roles[event.message_id] = event.role

    def _start_part(self, event: ev.PartStarted) -> None:
        """A text opens its message with its first piece, so that an empty one leaves no trace; a call at once."""
        self._live = _Live(event)
        if event.kind is PartKind.TOOL_CALL:
            kind = call_type(event.origin, event.extras, self._options.call_type)
            self._open(event.message_id, kind, "assistant", origin_note(event.origin, kind))
            self._calls[event.call_id or ""] = (kind, event.name or "", event.message_id)
            self._content("in_progress", "data", 0, False, self._call(event, kind, ""))

    def _delta(self, event: ev.TextDelta | ev.ReasoningDelta) -> None:
        live, text = self._live, event.text
        assert live is not None
        if not text:
            return
        prefix = live.prefix or self._open_text(live)
        live.pieces.append(text)
        if event.extras is not None:
            self._logprobs(event.extras)
        number = self._number
        self._number = number + 1
        said = dumps(text)
        self._out.append(b"%b%d%b%b}" % (self._head, number, prefix, said if said.isascii() else safe(said)))

    def _open_text(self, live: _Live) -> bytes:
        """Opens the message of a text where needed and prepares what all its deltas share."""
        if live.started.kind is PartKind.REASONING:
            message = self._open(live.started.message_id, "reasoning", "assistant")
        else:
            message = self._join(live.started.message_id)
        live.index = len(message.contents)
        kind, payload = self._text(live, "")
        event = content_object(0, "in_progress", kind, live.index, True, message.id, payload)
        # `{"sequence_number":0` before and `""}` behind are what changes from delta to delta.
        live.prefix = self._spelling.write(event)[len(self._head) + 1 : -3]
        return live.prefix

    def _logprobs(self, extras: Extras) -> None:
        """OpenAI's log probabilities have no field here and stand in the message's metadata (section 18)."""
        said = (extras.get("openai-chat") or {}).get("logprobs")
        if not isinstance(said, dict):
            return
        assert self._message is not None
        known = self._message.metadata.setdefault("logprobs", {})
        for name, items in said.items():
            if isinstance(items, list):
                known.setdefault(name, []).extend(items)

    @staticmethod
    def _text(live: _Live, text: str) -> tuple[str, dict[str, Any]]:
        return content_of(Refusal(text) if live.started.kind is PartKind.REFUSAL else Text(text))

    def _arguments(self, event: ev.ArgsDelta) -> None:
        live = self._live
        assert live is not None
        assert self._message is not None
        live.pieces.append(event.text)
        if self._options.arguments == "snapshots":
            payload = self._call(live.started, self._message.kind, "".join(live.pieces))
            self._content("in_progress", "data", 0, False, payload)

    @staticmethod
    def _call(event: ev.PartStarted, kind: str, arguments: str) -> dict[str, Any]:
        return {"data": call_data(kind, event.call_id or "", event.name or "", arguments, event.server_label)}

    def _end_part(self, event: ev.PartEnded) -> None:
        live = self._live
        assert live is not None
        if live.started.kind is PartKind.TOOL_CALL:
            assert self._message is not None
            # Readers parse the arguments as JSON, and an empty string is none.
            arguments = "".join(live.pieces) or "{}"
            self._content("completed", "data", 0, False, self._call(live.started, self._message.kind, arguments))
        else:
            self._end_text(live, reasoning_note(event.signature, event.redacted))
        self._live = None

    def _end_text(self, live: _Live, note: dict[str, Any]) -> None:
        if note and not live.prefix:
            self._open_text(live)
        if live.prefix:
            assert self._message is not None
            self._message.metadata.update(note)
            kind, payload = self._text(live, "".join(live.pieces))
            self._content("completed", kind, live.index, False, payload)

    def _add(self, event: ev.ContentAdded) -> None:
        """A whole part: once as a delta, since the frontend lays anything else over the content before it."""
        message = self._join(event.message_id)
        self._whole(len(message.contents), event.part)

    def _whole(self, index: int, part: Part) -> None:
        kind, payload = content_of(part)
        self._content("in_progress", kind, index, True, payload)
        self._content("completed", kind, index, False, payload)

    def _result(self, event: ev.ToolResulted) -> None:
        known = self._calls.get(event.call_id)
        kind, name, owner = known or (self._options.call_type, "", "")
        mine = own(event.extras)
        said = mine.get("type")
        kind = said if not known and isinstance(said, str) and said.endswith("_output") else f"{kind}_output"
        owner = event.message_id or owner or self._context.make_id("msg")
        note = {**foreign_metadata(mine.get("metadata")), **({"is_error": True} if event.is_error else {})}
        message = self._open(owner, kind, "tool", note)
        message.ended = True
        data = {"call_id": event.call_id, "name": event.name or name or None}
        self._content("in_progress", "data", 0, False, {"data": {**data, "output": ""}})
        output = output_of(event.parts, event.extras)
        self._content("completed", "data", 0, False, {"data": {**data, "output": output}})

    def _end_message(self, event: ev.MessageEnded) -> None:
        message = self._message
        if message is not None and message.owner == event.message_id and not message.ended:
            message.status = _STATUSES[event.status]
            message.ended = event.status is MessageStatus.COMPLETED
            message.metadata.update(foreign_metadata(own(event.extras).get("metadata")))

    # ------------------------------------------------------------------ the rest

    def _lose(self, event: ev.Custom | ev.StateChanged | ev.StepStarted) -> None:
        match event:
            case ev.Custom():
                self._context.lost.add(Feature.CUSTOM, event.name)
            case ev.StateChanged():
                self._context.lost.add(Feature.STATE)
            case _:
                self._context.lost.add(Feature.STEP)

    def _interrupt(self, event: ev.Interrupted) -> None:
        """A question for a person, as the confirm and cancel buttons of the web frontend.

        An interrupt of another dialect is told the same way, with its reason and payload kept beside it.
        """
        data, note = _approval(event)
        mine = own(event.extras)
        owner = mine.get("id") or self._context.make_id("msg")
        note = {**foreign_metadata(mine.get("metadata")), **note}
        message = self._open(str(owner), "mcp_approval_request", "assistant", note)
        message.ended = True
        self._whole(0, Data(data))

    def _beat(self, event: ev.Heartbeat) -> None:
        keepalive = self._options.keepalive
        if keepalive == "comment" or (keepalive == "message" and not self._number):
            self._out.append(KEEPALIVE)
        elif keepalive == "message":
            number = self._next()
            beat = WireMessage(f"{self._response.id}-beat-{number}", "heartbeat", "assistant", "")
            self._write(beat.opening(number))

    def _raw(self, event: ev.Raw) -> None:
        """A message of a type that only AgentScope knows, as it came, with this stream's numbers."""
        value = event.value
        if event.dialect != NAME or not isinstance(value, dict) or value.get("object") != "message":
            self._context.lost.add(Feature.RAW, event.dialect)
            return
        wanted, kind, role = value.get("id"), value.get("type"), value.get("role")
        message = self._open(
            wanted if isinstance(wanted, str) and wanted else self._context.make_id("msg"),
            kind if isinstance(kind, str) else "message",
            role if role in _ROLES else "assistant",
            foreign_metadata(value.get("metadata")),
        )
        message.extra = {k: v for k, v in value.items() if k not in _HANDLED}
        status = value.get("status")
        message.status, message.ended = status if isinstance(status, str) else "completed", True
        contents = value.get("content")
        for index, content in enumerate(contents if isinstance(contents, list) else []):
            if isinstance(content, dict):
                self._copy(index, content)

    def _copy(self, index: int, content: dict[str, Any]) -> None:
        template = content_object(None, "", "", 0, False, "", {})
        payload = {k: v for k, v in content.items() if k not in template}
        kind = content.get("type")
        self._content("completed", kind if isinstance(kind, str) else "data", index, False, payload)


# Functions of the class, not methods bound to each encoder: those would tie every encoder to itself, and all that a
# stream said would stay in memory until the cycle collector comes by.
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
    ev.Custom: Encoder._lose,
    ev.StateChanged: Encoder._lose,
    ev.StepStarted: Encoder._lose,
    ev.RunFailed: Encoder._fail,
    ev.RunFinished: Encoder._finish,
}


def _approval(event: ev.Interrupted) -> tuple[dict[str, Any], dict[str, Any]]:
    """`data` of an approval request, and the metadata that keeps what it cannot say."""
    payload = event.payload if isinstance(event.payload, dict) else {}
    looks = isinstance(payload.get("name"), str) and "arguments" in payload
    if looks and event.reason == "approval" and payload.get("id") == event.interrupt_id:
        return payload, {}
    arguments = payload["arguments"] if looks else event.payload
    data: dict[str, Any] = {
        "id": event.interrupt_id,
        "name": payload["name"] if looks else event.reason or "interrupt",
        "arguments": arguments if isinstance(arguments, str) else json_text(arguments),
        "server_label": payload.get("server_label") or "",
    }
    if event.call_id:
        data["call_id"] = event.call_id
    return data, {"interrupt": {"reason": event.reason, "payload": event.payload}}
