"""A base class of simple dialects, whose frames are independent JSON objects.

Where objects depend on each other, or frames are many and small, a dialect needs its own encoder and decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from bridge.contract.capabilities import Capabilities
from bridge.contract.context import Context
from bridge.contract.dialect import Decoder, Dialect, EncoderLike
from bridge.contract.wire import KEEPALIVE, WireResponse, json_response
from bridge.errors import ErrorCode, Failure, RequestError
from bridge.model.builder import Builder
from bridge.model.events import Event, Heartbeat, RunFailed
from bridge.model.jsontext import dumps, kind_of
from bridge.toolkit.check import Node
from bridge.toolkit.decoder import JsonDecoder
from bridge.toolkit.encoder import Encoder
from bridge.toolkit.error_table import ErrorTable
from bridge.toolkit.merging import Added

EncodeEvent = Callable[[Event], Mapping[str, Any] | None]
DecodeObject = Callable[[Node, Builder], None]


class ObjectDialect(Dialect):
    """Subclasses implement `encode_event` and `decode_object`.

    A whole answer is one such object, to which those of a stream add up. A dialect with its own `decoder` for streams
    may define `decode_object` for whole answers alone.
    """

    errors: ClassVar[ErrorTable] = ErrorTable()
    """How it reads the errors of backends, and the statuses of those for clients."""

    def encode_event(self, event: Event) -> Mapping[str, Any] | None:
        """Return the object of an event; None if the protocol has none for it."""
        raise NotImplementedError

    def decode_object(self, node: Node, builder: Builder) -> None:
        """Pass the content of an object to the builder. Raises `RequestError` for invalid values, as `Node` does."""
        raise NotImplementedError

    def encoder(self, context: Context) -> EncoderLike:
        """Return an encoder that writes each event separately."""
        card = self.capabilities_with(self.front_options.of(context))
        return ObjectEncoder(self.encode_event, context, card, self.name)

    def encode_error(self, failure: Failure) -> WireResponse:
        """Return the body of an error response, with its status."""
        return self.errors.response(failure, self.error_body(failure))

    def error_body(self, failure: Failure) -> Mapping[str, Any] | None:
        """Return the body of an error response: by default the object of `RunFailed`."""
        return self.encode_event(RunFailed(failure))

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
        return [*decoder.feed([wire.body]), *decoder.close()]

    def decode_error(self, wire: WireResponse) -> Failure:
        """Return the failure that `errors` reads in a response with an error status."""
        return self.errors.decode(wire)


class ObjectEncoder(Encoder):
    """Each event by itself, and each part after the one before it, as far as the card carries them."""

    def __init__(self, encode_event: EncodeEvent, context: Context, card: Capabilities, name: str) -> None:
        self.dialect = name
        super().__init__(context, card)
        self._encode = encode_event

    def _event(self, event: Event) -> None:
        if (value := self._encode(event)) is not None:
            self.write(value)

    def accumulate(self, frames: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Add objects up: texts and lists of one name grow, other values replace those before them."""
        whole = Added()
        for value in frames:
            whole.add(value)
        return whole.plain()

    def heartbeat(self, event: Heartbeat) -> None:
        self.out.append(KEEPALIVE)

    run_started = message_started = message_ended = part_started = part_ended = _event
    text = reasoning = arguments = content = tool_resulted = _event
    usage_reported = step_started = step_ended = state_changed = interrupted = custom = raw = _event
    failed = finished = _event


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
