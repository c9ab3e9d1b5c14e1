"""A backend's stream -> events, by the rules of docs/dialects/ag-kit.md.

Generation 1 is read here. Event types with upper case letters are AG-UI, whatever was asked for (a server of generation
2 takes a request of generation 1 and answers in its own way, capture g2-gen1-body): they go to that decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bridge.codec import Context, FrameLike
from bridge.codec.decoder import JsonDecoder
from bridge.codec.dialect import Decoder as AnyDecoder
from bridge.codec.jsontext import loads, repaired
from bridge.dialects.ag_kit.errors import failure_of
from bridge.dialects.ag_kit.options import back
from bridge.dialects.ag_kit.wire import NAME
from bridge.errors import BridgeError, ErrorCode, Failure
from bridge.model import Event, Interrupted, PartKind, Raw, RunStarted, Text, json_text

_TEXT = PartKind.TEXT
_Wire = dict[str, Any]


class Decoder(JsonDecoder):
    """One per run. `second` makes the decoder of generation 2 when it is needed; it may raise `BridgeError`."""

    def __init__(self, context: Context, second: Callable[[Context], AnyDecoder]) -> None:
        super().__init__(context)
        self._context = context
        self._make_second = second
        self._second: AnyDecoder | None = None
        self._is_second = False
        self._needs_end = back(context).generation == 2
        self._told = False
        self._unpaired = False
        self._put = self.builder.flow
        self._turn = 0
        self._turned = False
        # The pieces of the arguments of open calls.
        self._calls: dict[str, list[str]] = {}
        self._over: set[str] = set()

    # ------------------------------------------------------------------ the contract

    def feed(self, frames: Sequence[FrameLike]) -> list[Event]:
        if self._second is not None:
            return self._passed_on(self._second.feed(frames))
        for place, frame in enumerate(frames):
            if self.builder.done:
                break
            if type(frame) is bytes:
                self.payload(frame, None)
            else:
                self.payload(frame.data, frame.event)  # type: ignore[union-attr]
            if self._is_second:
                return self._hand_over(frames[place:])
        return self._take()

    def close(self, failure: Failure | None = None) -> list[Event]:
        if self._second is not None:
            return self._passed_on(self._second.close(failure))
        if not self.builder.done:
            # The published page's streams have no end mark: the end of the body is the end (rule 4). A server of
            # generation 2 says how its run ended, so that there silence is none.
            if failure is None and not self._calls and (self._told or not self._needs_end):
                self.builder.finish()
            self.builder.close(failure)
        return self._take()

    def _take(self) -> list[Event]:
        events = self.builder.take()
        self._told = self._told or bool(events)
        return events

    # ------------------------------------------------------------------ the other generation

    def _hand_over(self, frames: Sequence[FrameLike]) -> list[Event]:
        try:
            self._second = self._make_second(self._context)
        except BridgeError as error:
            text = f"The backend speaks generation 2 of AG-Kit, which cannot be read: {error.message}"
            self.builder.fail(Failure(ErrorCode.BACKEND_PROTOCOL, text))
            return self._take()
        self.builder.end_message(self._turn)
        return [*self._take(), *self._passed_on(self._second.feed(frames))]

    def _passed_on(self, events: list[Event]) -> list[Event]:
        """The other decoder's events; a run begins only once."""
        return events[1:] if self._told and events and type(events[0]) is RunStarted else events

    # ------------------------------------------------------------------ frames

    def read(self, event: _Wire, name: str | None) -> None:
        kind = event.get("type")
        if kind == "text":
            content = event.get("content")
            if type(content) is str and content:
                self._put(self._message() if self._turned else self._turn, _TEXT, content)
        elif isinstance(kind, str) and kind:
            handler = _HANDLERS.get(kind)
            self._is_second = handler is None and kind != kind.lower()
            if not self._is_second:
                (handler or Decoder._unknown)(self, event)
        elif event.get("error") is not None:
            self._error(event)
        else:
            self._unknown(event)

    def read_unpaired(self, event: _Wire, name: str | None) -> None:
        # Halves of a pair may come in two pieces, so these two are left to the builder.
        halves = {k: event[k] for k in ("content", "delta") if isinstance(event.get(k), str)}
        self._unpaired, self._put = True, self.builder.unpaired_flow
        self.read({**repaired(event), **halves}, name)
        self._unpaired, self._put = False, self.builder.flow

    def _unknown(self, event: _Wire) -> None:
        """Means nothing to us (rules 5 and 6); a client of this dialect gets it as it came."""
        self.builder.emit(Raw(NAME, repaired(event) if self._unpaired else event))

    # ------------------------------------------------------------------ text and calls

    def _message(self) -> int:
        """The key of the message that goes on; after results, and once no call is open, that is a new one."""
        if self._turned and not self._calls:
            self.builder.end_message(self._turn)
            self._turn += 1
            self._turned = False
        return self._turn

    def _start(self, event: _Wire) -> None:
        """A start is sent once for each id; a call without an id gets one."""
        key, name = _call_of(event), event.get("toolCallName")
        if key and (key in self._calls or key in self._over):
            return
        self.builder.end_part(key)
        self._calls[key] = []
        self.builder.open_part(
            key, self._message(), PartKind.TOOL_CALL, call_id=key or None, name=name if isinstance(name, str) else ""
        )

    def _arguments(self, event: _Wire) -> None:
        key, delta = _call_of(event), event.get("delta")
        pieces = self._calls.get(key)
        if pieces is None:
            # Of a call whose start never came: the reference server does so with parallel calls.
            self._unknown(event)
            return
        if delta is not None and delta != "":
            piece = delta if isinstance(delta, str) else json_text(delta)
            pieces.append(piece)
            (self.builder.unpaired if self._unpaired else self.builder.delta)(key, piece)

    def _end(self, event: _Wire) -> None:
        key = _call_of(event)
        if self._calls.pop(key, None) is None:
            self._unknown(event)
            return
        self._over.add(key)
        self.builder.end_part(key)

    def _result(self, event: _Wire) -> None:
        """Text after a result is a message of its own."""
        said, name = event.get("result"), _call_of(event)
        if not self._calls:
            self.builder.end_message(self._turn)
        self._turned = True
        result = said if isinstance(said, str) else "" if said is None else json_text(said)
        self.builder.result(name, [Text(result)])

    # ------------------------------------------------------------------ the end

    def _interrupt(self, event: _Wire) -> None:
        wanted, reason = event.get("id"), event.get("reason")
        name = str(wanted) if isinstance(wanted, (str, int)) and wanted != "" else self._context.make_id("interrupt")
        said = reason if isinstance(reason, str) and reason else None
        self.builder.interrupt(Interrupted(name, said, event.get("payload")))

    def _error(self, event: _Wire) -> None:
        self.builder.fail(failure_of(event))

    def end_mark(self) -> None:
        """The reference server swallows failures and ends as if all were well: a call cut in two gives it away."""
        if any(not _is_object("".join(pieces)) for pieces in self._calls.values()):
            text = "The backend's answer ended in the middle of a tool call."
            self.builder.fail(Failure(ErrorCode.TRUNCATED_STREAM, text))
            return
        self.builder.finish()
        self.builder.end()


_HANDLERS: dict[str, Callable[[Decoder, _Wire], None]] = {
    "tool-call-start": Decoder._start,
    "tool-call-args": Decoder._arguments,
    "tool-call-end": Decoder._end,
    "tool-result": Decoder._result,
    "interrupt": Decoder._interrupt,
    "error": Decoder._error,
}


def _call_of(event: _Wire) -> str:
    """The call's id, empty when there is none."""
    value = event.get("toolCallId")
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(loads(arguments), dict)
    except ValueError:
        return False
