"""The dialect `openai-responses`: the Responses API of OpenAI, and of the servers that offer it too."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.contract import (
    Capabilities,
    Context,
    CountingDialect,
    Decoder,
    EncoderLike,
    Endpoint,
    FrameLike,
    Operation,
    Options,
    SocketDialect,
    StoredAnswer,
    WireRequest,
    WireResponse,
)
from bridge.dialects.openai.api import EXTRAS, MODELS, OpenAIDialect
from bridge.dialects.openai_responses import (
    background,
    counting,
    input_items,
    read_request,
    stored,
    websocket_messages,
    whole_answer,
    write_request,
)
from bridge.dialects.openai_responses.capabilities import CAPABILITIES, card
from bridge.dialects.openai_responses.options import BackOptions, FrontOptions
from bridge.dialects.openai_responses.read_answer import ResponsesDecoder
from bridge.dialects.openai_responses.wire import NAME
from bridge.dialects.openai_responses.write_answer import ResponsesEncoder
from bridge.model import Event, Request
from bridge.model.jsontext import dumps


class OpenAIResponses(CountingDialect, SocketDialect, OpenAIDialect):
    """Both sides of the Responses API."""

    name = NAME
    spoken_by = ("codex",)
    provider = "openai"
    mount = "/v1"
    url = "https://api.openai.com/v1"
    key_variable = "OPENAI_API_KEY"
    capabilities = CAPABILITIES
    requires_model = True
    surface = (
        Endpoint("POST", "/responses", Operation.RUN),
        Endpoint("GET", "/responses", Operation.SOCKET, live=True),
        Endpoint("POST", "/responses/compact", Operation.RUN, live=True),
        Endpoint("POST", "/responses/input_tokens", Operation.COUNT),
        Endpoint("GET", "/responses/{id}", Operation.RETRIEVE, query=stored.REREAD),
        Endpoint("DELETE", "/responses/{id}", Operation.DELETE),
        Endpoint("POST", "/responses/{id}/cancel", Operation.CANCEL),
        Endpoint("GET", "/responses/{id}/input_items", Operation.ITEMS, query=input_items.PAGING),
        *MODELS,
        *EXTRAS,
    )
    front_options = FrontOptions
    back_options = BackOptions

    # ------------------------------------------------------------- as the front

    def capabilities_with(self, options: Options) -> Capabilities:
        return card(options.media) if isinstance(options, FrontOptions) else CAPABILITIES

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        return read_request.decode_request(wire, context)

    def encoder(self, context: Context) -> EncoderLike:
        return ResponsesEncoder(context)

    def keeps_answers(self, options: Options | None) -> bool:
        return isinstance(options, FrontOptions) and options.stored == "bridge"

    def takes_sockets(self, options: Options | None) -> bool:
        return isinstance(options, FrontOptions) and options.websocket

    def decode_message(self, message: str) -> WireRequest:
        return websocket_messages.decode_message(message)

    def encode_refusal(self, response: WireResponse) -> bytes:
        return websocket_messages.encode_refusal(response)

    def stored_ids(self, wire: WireRequest) -> list[str]:
        return stored.stored_ids(wire)

    def encode_stored(self, answer: StoredAnswer) -> WireResponse:
        return stored.encode_stored(answer)

    def encode_items(self, answer: StoredAnswer, wire: WireRequest) -> WireResponse:
        return input_items.encode_items(answer, wire)

    def decode_reread(self, answer: StoredAnswer, wire: WireRequest) -> int | None:
        return stored.decode_reread(answer, wire)

    def answer_so_far(self, events: Sequence[Event], context: Context) -> StoredAnswer:
        return background.answer_so_far(events, context)

    def encode_queued(self, context: Context) -> list[FrameLike]:
        return background.encode_queued(context)

    def decode_count_request(self, wire: WireRequest, context: Context) -> Request:
        return read_request.decode_request(wire, context, counting=True)

    def encode_count(self, tokens: int, estimated: bool) -> WireResponse:
        return counting.encode_count(tokens, estimated)

    def encode_deleted(self, answer_id: str) -> WireResponse:
        return stored.encode_deleted(answer_id)

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        value = {"model": "default", "input": text, "stream": stream}
        return WireRequest("POST", "/responses", {"content-type": "application/json"}, body=dumps(value))

    # ------------------------------------------------------------- as the back

    def encode_request(self, wanted: Request, context: Context) -> WireRequest:
        return write_request.encode_request(wanted, context)

    def decoder(self, context: Context) -> Decoder:
        return ResponsesDecoder(context)

    def count_request(self, wanted: Request, context: Context) -> WireRequest:
        return counting.count_request(wanted, context)

    def decode_count(self, wire: WireResponse) -> int:
        return counting.decode_count(wire)

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        return whole_answer.parse_response(wire, context)


dialect = OpenAIResponses()
