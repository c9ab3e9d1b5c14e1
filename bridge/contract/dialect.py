"""The contract that every dialect fulfils; the whole of what the engine knows of it.

Everything here is synchronous and pure. The two streaming halves are small stateful objects made per run; lists
cross the border, since losing the batch that one network read brought costs more than anything else on this path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict

from bridge.contract.capabilities import Capabilities
from bridge.contract.context import Context
from bridge.contract.demands import Demands
from bridge.contract.endings import failure_at_end
from bridge.contract.surface import Surface
from bridge.contract.wire import FrameLike, WireRequest, WireResponse, event_stream, json_response
from bridge.errors import BridgeError, ConfigError, Failure, Unsupported
from bridge.model.events import Event
from bridge.model.jsontext import dumps
from bridge.model.request import HistoryMode, Request


class Framing(StrEnum):
    """How frames become bytes. Each value is one module of `bridge.translation.framing`."""

    SSE = "sse"
    """Server-sent events."""
    JSON_LINES = "json_lines"
    """One JSON value a line. Comments, such as `KEEPALIVE`, are not written; routes cannot be durable."""
    MESSAGES = "messages"
    """Messages over gRPC."""


class Options(BaseModel):
    """Base of the option models that dialects declare; unknown options are configuration errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def of(cls, context: Context) -> Self:
        """Return the options of a context, or the defaults if it was made without options of this class."""
        return context.options if isinstance(context.options, cls) else cls()

    @property
    def keeps_alive(self) -> bool:
        """False if clients of a route get nothing on an idle stream."""
        return getattr(self, "keepalive", None) != "off"

    @property
    def sent_history(self) -> HistoryMode | None:
        """What clients of a route send of a conversation, where its options change that."""
        return None


class Decoder(Protocol):
    """Decodes one run: frames from the backend -> events."""

    def feed(self, frames: Sequence[FrameLike]) -> list[Event]:
        """The events of these frames. Never raises for invalid data, which becomes `RunFailed` or `Raw`.

        The first event of the run is `RunStarted`; after the terminal event the list is always empty.
        """

    def close(self, failure: Failure | None = None) -> list[Event]:
        """The input is over: cleanly, or because of `failure`. The terminal event is out after this at the latest."""


class EncoderLike(Protocol):
    """What a dialect needs for its streams: an `Encoder`, or one of its own making."""

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        """Return the frames of these events, possibly none. `Heartbeat` keeps the connection open."""
        raise NotImplementedError

    def whole(self, events: Sequence[Event]) -> Any:
        """Return the body of a whole answer, as JSON, of a run that did not fail.

        Raises `Unsupported` if the dialect has no answers in one piece, and a `BridgeError` for an answer that clients
        get as an error.
        """
        raise Unsupported("This dialect supports only streamed answers.")


class Dialect:
    """One protocol: the part of the contract that every dialect fulfils.

    Subclasses set the constants and implement the methods of the roles they play: as the front, towards clients, or as
    the back, towards backends. What only some protocols can do are contracts of their own, which a dialect inherits
    when it has that ability: `AgentDialect`, `AgentTasksDialect`, `AnsweringDialect`, `CountingDialect`,
    `DescribedDialect`, `EmbeddingsDialect`, `ModelsDialect`, `ModesDialect`, `QueuedRunsDialect`,
    `ResumableDialect`, `RpcDialect`, `SessionDialect`, `SingleRunDialect`, `SocketDialect`, `SteppedRunDialect`,
    `StoredAnswersDialect`, `TaskDialect`, `ToolHostDialect`, `ToolServerDialect`.
    """

    name: ClassVar[str]
    """Its name in configurations and commands."""
    capabilities: ClassVar[Capabilities]
    """Its card: what it carries, and what becomes of the rest."""
    provider: ClassVar[str] = ""
    """The vendor whose API it is, as OpenTelemetry spells it (`gen_ai.provider.name`); empty = the dialect's name."""
    surface: ClassVar[Surface] = ()
    """Its endpoints as the front, below the path where a route mounts it; empty if it is not served."""
    called: ClassVar[bool] = True
    """False if it is only served: there are no backends of it."""
    framing: ClassVar[Framing] = Framing.SSE
    """How the frames of its streams become bytes."""
    streams_json_lines: ClassVar[bool] = False
    """True if its servers may stream one JSON object a line although the framing is server-sent events."""
    streams_json_arrays: ClassVar[bool] = False
    """True if its servers may stream one JSON array although the framing is server-sent events."""
    event_ids: ClassVar[bool] = True
    """False if clients of its streams take no ids of events, so that they cannot resume a durable run."""
    content_type: ClassVar[str] = "application/json"
    """The media type of its requests and of its answers in one piece."""
    checks_content_type: ClassVar[bool] = True
    """False if its servers read bodies whatever media type they are declared as, as `curl -d` sends them."""
    requires_model: ClassVar[bool] = False
    """True if every request of it names a model, where no default is configured."""
    whole_is_stream: ClassVar[bool] = False
    """True if the protocol has no answers in one piece, and a client that wants one gets the whole event stream."""
    resumable: ClassVar[bool] = False
    """True if its clients can resume the stream of a durable run, since they name their runs or sessions."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Modules that serving and calling it needs beside what is always installed."""
    extra: ClassVar[str | None] = None
    """The extra of its package that installs them."""
    own_headers: ClassVar[tuple[str, ...]] = ()
    """Request headers, in lower case, that belong to the protocol and are forwarded if both sides use it."""
    stream_headers: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Headers, in lower case, that its streams carry beside those of every stream."""
    request_id_header: ClassVar[str | None] = None
    """The response header in which its clients expect the request's id, if it is not `x-request-id`."""
    mount: ClassVar[str] = ""
    """The default path of its clients, such as `/v1`; empty = `/` and the dialect's name."""
    url: ClassVar[str] = ""
    """The base URL at which such a backend usually is, which `dialect-bridge init` suggests."""
    key_variable: ClassVar[str] = ""
    """The environment variable that usually holds the key of such a backend."""
    spoken_by: ClassVar[tuple[str, ...]] = ()
    """Names of software that people write in place of the dialect's, in lower case. Errors then suggest the dialect."""
    front_options: ClassVar[type[Options]] = Options
    """The model of the options of its routes."""
    back_options: ClassVar[type[Options]] = Options
    """The model of the options of its backends."""

    @property
    def over_grpc(self) -> bool:
        """True if gRPC carries the dialect: `listen` instead of `path`, `host:port` instead of a URL."""
        return self.framing is Framing.MESSAGES

    @property
    def called_over_http(self) -> bool:
        """True if its backends are HTTP servers."""
        return not self.over_grpc

    @property
    def served(self) -> bool:
        """True if routes can use it."""
        return bool(self.surface)

    # ------------------------------------------------------------- as the front

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        """Raises `RequestError`, which names the field, the expected and the actual value."""
        raise Unsupported(f"{self.name} cannot be served.")

    def encoder(self, context: Context) -> EncoderLike:
        """The half that writes this run's stream to a client."""
        raise Unsupported(f"{self.name} cannot be served.")

    def card(self, options: Options | None) -> Capabilities:
        """Return the capabilities of a route with these options; None for the defaults."""
        if options is None:
            return self.capabilities
        card = self.capabilities_with(options)
        return replace(card, history=options.sent_history or card.history)

    def capabilities_with(self, options: Options) -> Capabilities:
        """Return the capabilities with these options of a route, for dialects whose options change what clients see."""
        return self.capabilities

    def writes_array(self, context: Context) -> bool:
        """Return whether the client of `context.request` gets its stream as one JSON array instead of the framing.

        A durable route answers such a client in one piece, since an array cannot be resumed.
        """
        return False

    def assemble(self, events: Sequence[Event], context: Context) -> WireResponse:
        """The whole answer at once, for a client that does not stream; a failed run is its error response.

        By default it is `EncoderLike.whole`: what a client makes of the stream. Raises `Unsupported` if the encoder has
        no answers in one piece.
        """
        failure = failure_at_end(events, self.capabilities, context.lost)
        if failure is not None:
            return self.encode_error(failure)
        encoder = self.encoder(context)
        if self.whole_is_stream:
            return event_stream(encoder.encode(events), self.stream_headers)
        try:
            return json_response(dumps(encoder.whole(events)))
        except Unsupported:
            raise
        except BridgeError as error:
            return self.encode_error(error.failure)

    def encode_error(self, failure: Failure) -> WireResponse:
        """The response for a failure before the stream began."""
        raise Unsupported(f"{self.name} cannot be served.")

    def encode_health(self, alive: bool) -> WireResponse:
        """Return the response to a health check."""
        raise Unsupported(f"{self.name} has no health endpoint.")

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        """Return a request with `text`: what `serve` prints and the documentation sends.

        `params` name the model where the path holds it.
        """
        raise Unsupported(f"{self.name} cannot be called.")

    # ------------------------------------------------------------- as the back

    def encode_request(self, request: Request, context: Context) -> WireRequest:
        """Return the request for a backend. Raises `Unsupported`, with the path, for what the capabilities refuse."""
        raise Unsupported(f"{self.name} cannot be called.")

    def decoder(self, context: Context) -> Decoder:
        """The half that reads this run's stream from a backend."""
        raise Unsupported(f"{self.name} cannot be called.")

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        """Return the events of an answer that is not streamed: a whole run, from `RunStarted` to the terminal event.

        Never raises on wire data. An answer that is no answer (HTML, an error object with status 200) is a
        run that failed. One with an error status is not passed: `decode_error` reads it.
        """
        raise Unsupported(f"{self.name} supports only streamed answers.")

    def decode_error(self, wire: WireResponse) -> Failure:
        """Return the failure in a response with an error status."""
        raise Unsupported(f"{self.name} cannot be called.")

    def demands(self, options: Options) -> Demands:
        """Return what the API of a backend with these options demands of a request."""
        return self.capabilities.demands

    def takes_bytes(self, options: Options) -> bool:
        """Return whether a backend with these options takes the body of a client of this dialect as it is."""
        return True

    def auth_headers(self, api_key: str) -> dict[str, str]:
        """Return the headers that authenticate the bridge at a backend."""
        return {"authorization": f"Bearer {api_key}"}


C = TypeVar("C", bound=Dialect)


def require(dialect: Dialect, contract: type[C]) -> C:
    """Return `dialect` as one that implements an optional contract, such as `CountingDialect`.

    Raises `ConfigError` if it does not inherit the contract, though its surface promises an operation that needs it.
    """
    if not isinstance(dialect, contract):
        raise ConfigError(f"dialect {dialect.name!r}: its operations need a {contract.__name__}")
    return dialect
