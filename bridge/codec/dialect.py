"""The contract that every dialect fulfils; the whole of what the engine knows of it.

Everything here is synchronous and pure. The two streaming halves are small stateful objects made per run; lists
cross the border, since losing the batch that one network read brought costs more than anything else on this path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict

from bridge.codec.card import Card
from bridge.codec.context import Context, StoredAnswer
from bridge.codec.surface import Surface
from bridge.codec.tools import OfferedTool
from bridge.codec.wire import FrameLike, WireRequest, WireResponse
from bridge.errors import Failure, Unsupported
from bridge.model.events import Event
from bridge.model.parts import Part
from bridge.model.request import Request

if TYPE_CHECKING:
    from bridge.codec.queued import QueuedRun
    from bridge.codec.session import CallerSession, Channel, Hub, Member, OwnAgent


class Framing(StrEnum):
    """How frames become bytes. Each value is one module of `bridge.framing`."""

    SSE = "sse"
    MESSAGES = "messages"


class Options(BaseModel):
    """Base of the option models that dialects declare; unknown options are configuration errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Decoder(Protocol):
    """Backend wire -> events, for one run."""

    def feed(self, frames: Sequence[FrameLike]) -> list[Event]:
        """The events of these frames. Never raises on wire data: what is wrong becomes `RunFailed` or `Raw`.

        The first event of the run is `RunStarted`; after the terminal event the list is empty for ever.
        """
        ...

    def close(self, failure: Failure | None = None) -> list[Event]:
        """The input is over: cleanly, or because of `failure`. The terminal event is out after this at the latest."""
        ...


class Encoder(Protocol):
    """Events -> frontend wire, for one run. May trust the grammar."""

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        """The frames of these events, possibly none. `Heartbeat` becomes whatever keeps this wire warm."""
        ...

    def close(self) -> list[FrameLike]:
        """Frames that follow the terminal event."""
        ...


@dataclass(slots=True)
class ModelInfo:
    """One entry of a model list; `created` is in Unix seconds."""

    id: str
    created: int = 0
    owned_by: str = "dialect-bridge"


class Dialect:
    """One protocol. Subclasses fill in the constants and the methods of the roles they play."""

    name: ClassVar[str]
    card: ClassVar[Card]
    provider: ClassVar[str] = ""
    """The vendor whose API it is, as OpenTelemetry spells it (`gen_ai.provider.name`); empty = the dialect's name."""
    surface: ClassVar[Surface]
    framing: ClassVar[Framing] = Framing.SSE
    content_type: ClassVar[str] = "application/json"
    """The media type of its requests and of its answers in one piece."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Modules that serving and calling it needs beside what is always installed."""
    extra: ClassVar[str | None] = None
    """The extra of its package that installs them."""
    own_headers: ClassVar[tuple[str, ...]] = ()
    """Request headers, in lower case, that belong to the protocol: where both sides speak it, the client's go on."""
    request_id_header: ClassVar[str | None] = None
    """The response header in which its clients look for the request's id, where `x-request-id` is not it."""
    front_options: ClassVar[type[Options]] = Options
    back_options: ClassVar[type[Options]] = Options
    modes: ClassVar[tuple[str, ...]] = ()
    """The words by which its requests choose between the backends of a route; the first one's is the default."""
    offers_tools: ClassVar[bool] = False
    """Whether tools are found and called at the address of such a backend."""

    @property
    def over_grpc(self) -> bool:
        """Whether it is carried by gRPC: `listen` instead of `path`, `host:port` instead of a URL."""
        return self.framing is Framing.MESSAGES

    # ------------------------------------------------------------- sessions

    def channel(self, options: Options) -> Channel:
        """How connections are made and taken, by the options of a route or a backend."""
        raise Unsupported(f"{self.name} has no sessions.")

    def session_key(self, request: Request, context: Context) -> str | None:
        """The name under which the session of this request is kept for the next one; None = it has its own."""
        return None

    def caller(self, context: Context) -> CallerSession:
        """A new session towards a backend."""
        raise Unsupported(f"{self.name} has no sessions.")

    def hub(self, address: str, agents: Mapping[str, OwnAgent]) -> Hub:
        """The registry of the address `host:port` with our own agents, by their ids, in it."""
        raise Unsupported(f"{self.name} has no sessions.")

    def member(self, address: str, agent_id: str, agent: OwnAgent) -> Member | None:
        """How this agent, served at `address`, registers elsewhere; None when its options do not want that."""
        return None

    def own_tools(self, options: Options) -> int | None:
        """In how many rounds the model behind a route may call the tools at the route's own address; None = never."""
        return None

    # ------------------------------------------------------------- as the front

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        """Raises `RequestError` that names the field, what was expected and what came."""
        raise Unsupported(f"{self.name} cannot be served.")

    def mode_of(self, request: Request) -> str | None:
        """Which of `modes` the request named."""
        return None

    def encoder(self, context: Context) -> Encoder:
        """The half that writes this run's stream to a client."""
        raise Unsupported(f"{self.name} cannot be served.")

    def assemble(self, events: Sequence[Event], context: Context) -> WireResponse:
        """The whole answer at once, for a client that does not stream; a failed run is its error response."""
        raise Unsupported(f"{self.name} has no answer in one piece.")

    def encode_error(self, failure: Failure) -> WireResponse:
        """The response for a failure before the stream began."""
        raise Unsupported(f"{self.name} cannot be served.")

    def encode_models(self, models: Sequence[ModelInfo]) -> WireResponse:
        """The list of models."""
        raise Unsupported(f"{self.name} has no list of models.")

    def encode_model(self, model: ModelInfo) -> WireResponse:
        """One model of the list."""
        raise Unsupported(f"{self.name} has no single model.")

    def decode_count_request(self, wire: WireRequest, context: Context) -> Request:
        """The request whose tokens are to be counted; usually it looks like one that is to be run."""
        return self.decode_request(wire, context)

    def encode_count(self, tokens: int, estimated: bool) -> WireResponse:
        """`tokens` of input; `estimated`: by a rule of thumb here, since no backend would say."""
        raise Unsupported(f"{self.name} counts no tokens.")

    def keeps_answers(self, options: Options | None) -> bool:
        """Whether clients of a route with these options may ask for answers again, or go on from them, by id."""
        return False

    def stored_ids(self, wire: WireRequest) -> list[str]:
        """The ids of the stored answers that a request rests on. Never raises: `decode_request` says what is wrong."""
        return []

    def encode_stored(self, answer: StoredAnswer) -> WireResponse:
        """A stored answer, or one that is being made, as it is now."""
        raise Unsupported(f"{self.name} has no stored answers.")

    def encode_items(self, answer: StoredAnswer, wire: WireRequest) -> WireResponse:
        """The part of what an answer was made from that is asked for. Raises `RequestError`."""
        raise Unsupported(f"{self.name} does not list what answers are made from.")

    def decode_reread(self, answer: StoredAnswer, wire: WireRequest) -> int | None:
        """How many frames of an answer's stream the client has that wants the rest; None = it wants the answer whole.

        Raises `RequestError`, also where the answer has no stream.
        """
        return None

    def answer_so_far(self, events: Sequence[Event], context: Context) -> StoredAnswer:
        """The answer of a run in the background after these events; without any, it waits in the queue."""
        raise Unsupported(f"{self.name} has no runs in the background.")

    def encode_queued(self, context: Context) -> list[FrameLike]:
        """What the stream of a run in the background begins with, before the run does; its encoder goes on from it."""
        return []

    def encode_deleted(self, answer_id: str) -> WireResponse:
        """That a stored answer is forgotten now."""
        raise Unsupported(f"{self.name} has no stored answers.")

    def encode_health(self, alive: bool) -> WireResponse:
        """Whether the service is alive."""
        raise Unsupported(f"{self.name} has no health endpoint.")

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        """A request that says `text`: what `serve` prints and the documentation sends."""
        raise Unsupported(f"{self.name} cannot be called.")

    # ------------------------------------------------------------- as the back

    def encode_request(self, request: Request, context: Context) -> WireRequest:
        """Raises `Unsupported` for a part that the card refuses, naming its place (`messages[2]...`)."""
        raise Unsupported(f"{self.name} cannot be called.")

    def queued(self, request: Request, context: Context) -> QueuedRun | None:
        """How a backend is asked that queues its runs; None where the answer to `encode_request` is the events.

        Raises `Unsupported` as `encode_request` does.
        """
        return None

    def stop_request(self, request: Request, context: Context) -> WireRequest | None:
        """How to tell a backend that the run of a request is given up; None where hanging up is enough."""
        return None

    def decoder(self, context: Context) -> Decoder:
        """The half that reads this run's stream from a backend."""
        raise Unsupported(f"{self.name} cannot be called.")

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        """The events of an answer that came in one piece: a whole run, from `RunStarted` to the terminal event.

        Never raises on wire data. An answer that is no answer (HTML, an error object with status 200) is a
        run that failed.
        """
        raise Unsupported(f"{self.name} has no answer in one piece.")

    def decode_error(self, wire: WireResponse) -> Failure:
        """What a response with an error status means."""
        raise Unsupported(f"{self.name} cannot be called.")

    def auth_headers(self, api_key: str) -> dict[str, str]:
        """The headers by which a backend of this dialect knows us."""
        return {"authorization": f"Bearer {api_key}"}

    def count_request(self, request: Request, context: Context) -> WireRequest | None:
        """How to ask a backend for the input tokens of a request; None when the dialect has no such question."""
        return None

    def decode_count(self, wire: WireResponse) -> int:
        """Raises `BackendError` when the answer is no count."""
        raise Unsupported(f"{self.name} counts no tokens.")

    def tools_request(self) -> WireRequest:
        """How to ask for the tools that are to be found at an address; for dialects with `offers_tools`."""
        raise Unsupported(f"{self.name} has no tools to be found.")

    def decode_tools(self, wire: WireResponse, options: Options) -> list[OfferedTool]:
        """Raises `BackendError` when the answer is no list of tools; `options` are a backend's, or a route's."""
        raise Unsupported(f"{self.name} has no tools to be found.")

    def call_request(self, tool: OfferedTool, arguments: Mapping[str, Any], context: Context) -> WireRequest:
        """How to call one of them."""
        raise Unsupported(f"{self.name} has no tools to be found.")

    def decode_call(self, wire: WireResponse) -> tuple[list[Part], bool]:
        """What it answered, and whether that is an error. Raises `BackendError` when it is no answer of a tool."""
        raise Unsupported(f"{self.name} has no tools to be found.")

    def models_request(self) -> WireRequest | None:
        """How to ask a backend for its models; None when the dialect has no such question."""
        return None

    def decode_models(self, wire: WireResponse) -> list[ModelInfo]:
        """Raises `BackendError` when the answer is no list of models."""
        raise Unsupported(f"{self.name} has no list of models.")
