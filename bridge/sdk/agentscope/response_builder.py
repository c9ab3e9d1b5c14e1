"""`ResponseBuilder`: one response, with its messages, and the ends that it can have."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bridge.dialects.agentscope.forms import JAVA, PYTHON, Form
from bridge.dialects.agentscope.objects import WireResponse
from bridge.sdk.agentscope.content_builder import Fields, Snapshot, fields_of
from bridge.sdk.agentscope.message_builder import MessageBuilder

_FORMS: dict[str, Form] = {"agentscope": PYTHON, "agentscope-java": JAVA}


class ResponseBuilder:
    """One response: `created`, `in_progress`, messages, and an end.

    As in the runtime, any method may be called at any time, also after the end: their order is the caller's. Invalid
    values raise `ValueError`. `dialect`: the form in which `sse()` and `json()` write.
    """

    def __init__(
        self, session_id: str | None = None, response_id: str | None = None, *, dialect: str = "agentscope"
    ) -> None:
        if dialect not in _FORMS:
            raise ValueError(f"dialect: expected one of {', '.join(_FORMS)}, got {dialect!r}.")
        self.form = _FORMS[dialect]
        self.session_id = session_id or self.new_id("session")
        self._given_id = response_id
        self.reset()

    def reset(self) -> None:
        """Start over: no messages, a new time, the same session, and the same id if one was given."""
        self._wire = WireResponse(
            self._given_id or self.new_id("response"), self.form.time(time.time()), self.session_id
        )
        self._messages: dict[str, MessageBuilder | dict[str, Any]] = {}
        self._status: str | None = None
        self._number = 0

    @property
    def id(self) -> str:
        return self._wire.id

    @property
    def response(self) -> Snapshot:
        """Return the response in its present state."""
        return self.get_response_data()

    # ------------------------------------------------------------------ the response

    def created(self) -> Snapshot:
        self._status = "created"
        return self.get_response_data()

    def in_progress(self) -> Snapshot:
        self._status = "in_progress"
        return self.get_response_data()

    def completed(self, *, usage: dict[str, Any] | None = None) -> Snapshot:
        """End the response, with every message; those that are not complete are `incomplete`.

        Without `usage`, that of the last message counts, as in the runtime.
        """
        return self._end("completed", usage=usage, completed_at=self.form.time(time.time()))

    def failed(self, code: str, message: str) -> Snapshot:
        """End the response with an error. Open messages are part of the output, as `incomplete`."""
        return self._end("failed", error={"code": str(code), "message": str(message)})

    def canceled(self) -> Snapshot:
        """End the response as canceled. The web frontend stops waiting only if it requested that itself."""
        return self._end("canceled")

    def rejected(self, code: str | None = None, message: str = "") -> Snapshot:
        """End the response as rejected. The web frontend keeps waiting: it understands `failed`."""
        return self._end("rejected", error=None if code is None else {"code": str(code), "message": str(message)})

    def get_response_data(self) -> Snapshot:
        """Return the response in its present state."""
        status = self._status or "created"
        event = self._wire.event(None, status, output=[dict(m) for m in self._output("in_progress")])
        return Snapshot.of(event, self.form)

    def number(self, event: Snapshot) -> Snapshot:
        """Return the event with the next sequence number, from 0. Number the events that you send, in that order."""
        numbered = Snapshot.of({**event, "sequence_number": self._number}, self.form)
        self._number += 1
        return numbered

    # ------------------------------------------------------------------ messages

    def create_message_builder(self, role: str = "assistant", message_type: str = "message") -> MessageBuilder:
        """Return a builder of a new message, which is part of the output."""
        message = MessageBuilder(self, role, message_type)
        self._messages[message.id] = message
        return message

    def add_message(self, message: MessageBuilder | Fields) -> None:
        """Add a message to the output, or replace the one with its id.

        `message`: a builder, a mapping, or an object with `model_dump()`, such as a message of the runtime.
        """
        whole = message if isinstance(message, MessageBuilder) else fields_of(message, "message")
        self._messages[_id_of(whole)] = whole

    def update_message(self, message: MessageBuilder | Fields) -> None:
        """Like `add_message`, but only for an id that the output contains."""
        whole = message if isinstance(message, MessageBuilder) else fields_of(message, "message")
        if _id_of(whole) in self._messages:
            self._messages[_id_of(whole)] = whole

    # ------------------------------------------------------------------ a whole stream

    def generate_streaming_response(
        self, text_tokens: Iterable[str], role: str = "assistant", *, numbered: bool = False
    ) -> Iterator[Snapshot]:
        """Yield all events of an answer that consists of these pieces of text. Starts over, like `reset()`."""
        events = self._stream(text_tokens, role)
        return map(self.number, events) if numbered else events

    def _stream(self, text_tokens: Iterable[str], role: str) -> Iterator[Snapshot]:
        self.reset()
        yield self.created()
        yield self.in_progress()
        message = self.create_message_builder(role)
        yield message.get_message_data()
        content = message.create_content_builder("text")
        for token in text_tokens:
            yield content.add_text_delta(token)
        yield content.complete()
        yield message.complete()
        yield self.completed()

    # ------------------------------------------------------------------ inside

    def new_id(self, prefix: str) -> str:
        return f"{prefix}_{uuid.uuid4()}"

    def _end(
        self,
        status: str,
        *,
        usage: dict[str, Any] | None = None,
        completed_at: int | None = None,
        error: dict[str, Any] | None = None,
    ) -> Snapshot:
        output = self._output("canceled" if status == "canceled" else "incomplete")
        usage = usage or (output[-1].get("usage") if output else None)
        self._status = status
        event = self._wire.event(None, status, output=output, usage=usage, completed_at=completed_at, error=error)
        return Snapshot.of(event, self.form)

    def _output(self, unfinished: str) -> list[dict[str, Any]]:
        """Every message but heartbeats, whole or as far as it came."""
        every = [dict(m.cut(unfinished)) if isinstance(m, MessageBuilder) else m for m in self._messages.values()]
        return [m for m in every if m.get("type") != "heartbeat"]


StreamingResponseBuilder = ResponseBuilder
"""The runtime's other name of it."""


def _id_of(message: MessageBuilder | Mapping[str, Any]) -> str:
    wire_id = message.id if isinstance(message, MessageBuilder) else message.get("id")
    if not isinstance(wire_id, str) or not wire_id:
        raise ValueError(f"message: expected one with an id, got {wire_id!r}.")
    return wire_id
