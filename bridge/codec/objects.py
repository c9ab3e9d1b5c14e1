"""A base class of simple dialects, whose frames are independent JSON objects.

Where objects depend on each other, or frames are many and small, a dialect needs its own encoder and decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from bridge.codec.check import Node
from bridge.codec.context import Context
from bridge.codec.decoder import JsonDecoder
from bridge.codec.dialect import Decoder, Dialect, EncoderLike
from bridge.codec.error_table import ErrorTable
from bridge.codec.jsontext import dumps, kind_of
from bridge.codec.sequencer import Sequencer
from bridge.codec.wire import KEEPALIVE, FrameLike, WireResponse, json_response
from bridge.errors import ErrorCode, Failure, RequestError
from bridge.model import events as ev
from bridge.model.builder import Builder
from bridge.model.events import Event, Heartbeat, RunFailed

_FREE = (
    ev.RunStarted, ev.MessageStarted, ev.MessageEnded, ev.UsageReported, ev.Heartbeat, ev.StateChanged,
    ev.StepStarted, ev.StepEnded, ev.Custom, ev.Interrupted, ev.Raw,
)  # fmt: skip
EncodeEvent = Callable[[Event], Mapping[str, Any] | None]
DecodeObject = Callable[[Node, Builder], None]


class ObjectDialect(Dialect):
    """Subclasses implement `encode_event` and `decode_object`.

    A whole answer is one such object (`encode_whole`). The body of an error is the object of `RunFailed`. A dialect
    with its own `decoder` for streams may define `decode_object` for whole answers alone.
    """

    errors: ClassVar[ErrorTable] = ErrorTable()
    """How it reads the errors of backends."""

    def encode_event(self, event: Event) -> Mapping[str, Any] | None:
        """Return the object of an event; None if the protocol has none for it."""
        raise NotImplementedError

    def decode_object(self, node: Node, builder: Builder) -> None:
        """Pass the content of an object to the builder. Raises `RequestError` for invalid values, as `Node` does."""
        raise NotImplementedError

    def encode_whole(self, events: Sequence[Event]) -> Mapping[str, Any]:
        """The object of a run that did not fail."""
        raise NotImplementedError

    def encoder(self, context: Context) -> EncoderLike:
        """Return an encoder that writes each event separately."""
        return ObjectEncoder(self.encode_event, context)

    def assemble(self, events: Sequence[Event], context: Context) -> WireResponse:
        """The one object of the whole answer; a failed run is its error response."""
        last = events[-1]
        if isinstance(last, RunFailed):
            return self.encode_error(last.error)
        return json_response(dumps(self.encode_whole(Sequencer(context.lost, _FREE).feed(events))))

    def encode_error(self, failure: Failure) -> WireResponse:
        """Return the body of an error response, with its status."""
        return json_response(dumps(self.encode_event(RunFailed(failure))), failure.http_status, dict(failure.headers))

    def encode_health(self, alive: bool) -> WireResponse:
        """`{"alive": true}`, or false with status 503."""
        return json_response(dumps({"alive": alive}), 200 if alive else 503)

    def decoder(self, context: Context) -> Decoder:
        """Return a decoder that reads each object separately."""
        return ObjectDecoder(self.decode_object, context)

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        """The whole answer, read by `decode_object`; without one, by `decoder` as one object of a stream."""
        by_object = type(self).decode_object is not ObjectDialect.decode_object
        decoder = ObjectDecoder(self.decode_object, context) if by_object else self.decoder(context)
        if wire.status >= 400:
            return decoder.close(self.decode_error(wire))
        return [*decoder.feed([wire.body]), *decoder.close()]

    def decode_error(self, wire: WireResponse) -> Failure:
        """Return the failure that `errors` reads in a response with an error status."""
        return self.errors.decode(wire)


class ObjectEncoder:
    """Each event by itself, and each part after the one before it."""

    def __init__(self, encode_event: EncodeEvent, context: Context) -> None:
        self._write = encode_event
        self._sequencer = Sequencer(context.lost, _FREE)

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        frames: list[FrameLike] = []
        for event in self._sequencer.feed(events):
            if isinstance(event, Heartbeat):
                frames.append(KEEPALIVE)
            elif (value := self._write(event)) is not None:
                frames.append(dumps(value))
        return frames


class ObjectDecoder(JsonDecoder):
    """Decode each object by itself; an invalid one fails the run."""

    def __init__(self, decode_object: DecodeObject, context: Context) -> None:
        super().__init__(context)
        self._read = decode_object

    def read(self, event: dict[str, Any], name: str | None) -> None:
        try:
            self._read(Node(event), self.builder)
        except RequestError as error:
            self._ill_formed(error.message)

    def read_value(self, value: Any, name: str | None) -> None:
        self._ill_formed(f"an object is expected, but it is {kind_of(value)}.")

    def _ill_formed(self, why: str) -> None:
        text = f"The backend sent something ill-formed: {why}"
        self.fail(Failure(ErrorCode.BACKEND_PROTOCOL, text))
