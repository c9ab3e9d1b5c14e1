"""A backend's stream -> events, by the rules of docs/dialects/ag-kit.md.

Generation 1 is read here. Event types with upper case letters are AG-UI, whatever generation was requested (a server of
generation 2 accepts a request of generation 1 and answers in generation 2, capture g2-gen1-body): that decoder reads
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bridge.contract import Context, FrameLike
from bridge.contract.dialect import Decoder as AnyDecoder
from bridge.dialects.ag_kit.errors import failure_of
from bridge.dialects.ag_kit.options import BackOptions
from bridge.dialects.ag_kit.wire import NAME
from bridge.errors import BridgeError, ErrorCode, Failure
from bridge.model import Event, Interrupted, PartKind, Raw, RunStarted, Text, json_text
from bridge.model.jsontext import is_object
from bridge.toolkit.decoder import JsonDecoder
from bridge.toolkit.errors import error_in

_TEXT = PartKind.TEXT
_Wire = dict[str, Any]


class Decoder(JsonDecoder):
    """Decodes one run. `make_generation2` creates the decoder of generation 2; it may raise `BridgeError`."""

    def __init__(self, context: Context, make_generation2: Callable[[Context], AnyDecoder]) -> None:
        super().__init__(context)
        self._context = context
        self._make_generation2 = make_generation2
        self._generation2: AnyDecoder | None = None
        self._is_generation2 = False
        self._needs_end_event = BackOptions.of(context).generation == 2
        self._has_events = False
        self._message_number = 0
        self._has_results = False
        # The pieces of the arguments of open calls.
        self._open_calls: dict[str, list[str]] = {}
        self._ended_calls: set[str] = set()

    # ------------------------------------------------------------------ the contract

    def feed(self, frames: Sequence[FrameLike]) -> list[Event]:
        if self._generation2 is not None:
            return self._forwarded(self._generation2.feed(frames))
        for position, frame in enumerate(frames):
            if self.builder.done:
                break
            if type(frame) is bytes:
                self.payload(frame, None)
            else:
                self.payload(frame.data, frame.event)  # type: ignore[union-attr]
            if self._is_generation2:
                return self._switch_generation(frames[position:])
        return self._take_events()

    def close(self, failure: Failure | None = None) -> list[Event]:
        if self._generation2 is not None:
            return self._forwarded(self._generation2.close(failure))
        if not self.builder.done:
            # The documented streams have no end mark: the end of the body ends the run (rule 4). A server of
            # generation 2 always sends a terminal event, so a stream without one is truncated.
            if failure is None and not self._open_calls and (self._has_events or not self._needs_end_event):
                self.finish()
            self.builder.close(failure)
        return self._take_events()

    def _take_events(self) -> list[Event]:
        events = self.builder.take()
        self._has_events = self._has_events or bool(events)
        return events

    # ------------------------------------------------------------------ the other generation

    def _switch_generation(self, frames: Sequence[FrameLike]) -> list[Event]:
        try:
            self._generation2 = self._make_generation2(self._context)
        except BridgeError as error:
            text = f"The backend speaks generation 2 of AG-Kit, which cannot be read: {error.message}"
            self.builder.fail(Failure(ErrorCode.BACKEND_PROTOCOL, text))
            return self._take_events()
        self.builder.end_message(self._message_number)
        return [*self._take_events(), *self._forwarded(self._generation2.feed(frames))]

    def _forwarded(self, events: list[Event]) -> list[Event]:
        """Return the other decoder's events, without a second `RunStarted`."""
        return events[1:] if self._has_events and events and type(events[0]) is RunStarted else events

    # ------------------------------------------------------------------ frames

    def read(self, event: _Wire, name: str | None) -> None:
        kind = event.get("type")
        if kind == "text":
            content = event.get("content")
            if type(content) is str and content:
                self.builder.flow(
                    self._current_message() if self._has_results else self._message_number, _TEXT, content
                )
        elif isinstance(kind, str) and kind:
            handler = _HANDLERS.get(kind)
            if handler is None and (error := error_in(event)) is not None:
                self._error({"error": error["message"]})
                return
            self._is_generation2 = handler is None and kind != kind.lower()
            if not self._is_generation2:
                (handler or Decoder._unknown)(self, event)
        elif event.get("error") is not None:
            self._error(event)
        elif (error := error_in(event)) is not None:
            self._error({"error": error["message"]})
        else:
            self._unknown(event)

    def _unknown(self, event: _Wire) -> None:
        """Pass an unknown event (rules 5 and 6) unchanged to clients of this dialect."""
        self.saw_unknown = True
        self.builder.emit(Raw(NAME, event))

    # ------------------------------------------------------------------ text and calls

    def _current_message(self) -> int:
        """Return the key of the current message; after results, once no call is open, of a new one."""
        if self._has_results and not self._open_calls:
            self.builder.end_message(self._message_number)
            self._message_number += 1
            self._has_results = False
        return self._message_number

    def _call_started(self, event: _Wire) -> None:
        """Open a call, once for each id; a call without an id gets one."""
        key, name = _call_id_of(event), event.get("toolCallName")
        if key and (key in self._open_calls or key in self._ended_calls):
            return
        self.builder.end_part(key)
        self._open_calls[key] = []
        self.builder.open_part(
            key,
            self._current_message(),
            PartKind.TOOL_CALL,
            call_id=key or None,
            name=name if isinstance(name, str) else "",
        )

    def _arguments(self, event: _Wire) -> None:
        key, delta = _call_id_of(event), event.get("delta")
        pieces = self._open_calls.get(key)
        if pieces is None:
            # The call was never started: the reference server omits starts of parallel calls.
            self._unknown(event)
            return
        if delta is not None and delta != "":
            piece = delta if isinstance(delta, str) else json_text(delta)
            pieces.append(piece)
            self.builder.delta(key, piece)

    def _call_ended(self, event: _Wire) -> None:
        key = _call_id_of(event)
        if self._open_calls.pop(key, None) is None:
            self._unknown(event)
            return
        self._ended_calls.add(key)
        self.builder.end_part(key)

    def _result(self, event: _Wire) -> None:
        """Emit a tool result; text after it begins a new message."""
        value, call_id = event.get("result"), _call_id_of(event)
        if not self._open_calls:
            self.builder.end_message(self._message_number)
        self._has_results = True
        result = value if isinstance(value, str) else "" if value is None else json_text(value)
        self.builder.result(call_id, [Text(result)])

    # ------------------------------------------------------------------ the end

    def _interrupted(self, event: _Wire) -> None:
        wire_id, wire_reason = event.get("id"), event.get("reason")
        interrupt_id = (
            str(wire_id) if isinstance(wire_id, (str, int)) and wire_id != "" else self._context.make_id("interrupt")
        )
        reason = wire_reason if isinstance(wire_reason, str) and wire_reason else None
        self.builder.interrupt(Interrupted(interrupt_id, reason, event.get("payload")))

    def _error(self, event: _Wire) -> None:
        self.builder.fail(failure_of(event))

    def end_mark(self) -> None:
        """End the run. The reference server also ends failed runs normally: incomplete arguments of a call show it."""
        if any(not is_object("".join(pieces)) for pieces in self._open_calls.values()):
            text = "The backend's answer ended in the middle of a tool call."
            self.builder.fail(Failure(ErrorCode.TRUNCATED_STREAM, text))
            return
        self.finish()
        self.builder.end()


_HANDLERS: dict[str, Callable[[Decoder, _Wire], None]] = {
    "tool-call-start": Decoder._call_started,
    "tool-call-args": Decoder._arguments,
    "tool-call-end": Decoder._call_ended,
    "tool-result": Decoder._result,
    "interrupt": Decoder._interrupted,
    "error": Decoder._error,
}


def _call_id_of(event: _Wire) -> str:
    """Return the call's id, or an empty string."""
    value = event.get("toolCallId")
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""
