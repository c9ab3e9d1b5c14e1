"""The dialect `anthropic-messages`: Anthropic's Messages API, served to its clients and called as a backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bridge.contract import (
    Capabilities,
    Context,
    CountingDialect,
    Decoder,
    EncoderLike,
    Endpoint,
    ModelInfo,
    ModelsDialect,
    Operation,
    Options,
    WireRequest,
    WireResponse,
)
from bridge.contract.demands import Demands
from bridge.dialects.anthropic_messages import (
    errors,
    models,
    read_request,
    whole_answer,
    write_request,
)
from bridge.dialects.anthropic_messages.capabilities import CAPABILITIES, DEMANDS, INSIDE_KEPT, card
from bridge.dialects.anthropic_messages.options import BackOptions, FrontOptions
from bridge.dialects.anthropic_messages.read_answer import MessagesDecoder
from bridge.dialects.anthropic_messages.wire import NAME, VERSION, VERSION_HEADER
from bridge.dialects.anthropic_messages.write_answer import MessagesEncoder
from bridge.errors import Failure
from bridge.model import Event, Request
from bridge.model.jsontext import dumps


class AnthropicMessages(CountingDialect, ModelsDialect):
    """Both sides of Anthropic Messages."""

    name = NAME
    spoken_by = ("claude", "bedrock")
    provider = "anthropic"
    mount = "/v1"
    url = "https://api.anthropic.com/v1"
    key_variable = "ANTHROPIC_API_KEY"
    capabilities = CAPABILITIES
    requires_model = True
    surface = (
        Endpoint("POST", "/messages", Operation.RUN),
        Endpoint("POST", "/messages/count_tokens", Operation.COUNT),
        # OpenAI's clients use the same address; only Anthropic's send the version header.
        Endpoint("GET", "/models", Operation.MODELS, header=VERSION_HEADER),
        Endpoint("GET", "/models/{id:.+}", Operation.MODELS, header=VERSION_HEADER),
    )
    own_headers = (VERSION_HEADER, "anthropic-beta")
    request_id_header = "request-id"
    front_options = FrontOptions
    back_options = BackOptions

    # ------------------------------------------------------------- as the front

    def capabilities_with(self, options: Options) -> Capabilities:
        return card(options.reasoning, options.media) if isinstance(options, FrontOptions) else CAPABILITIES

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        return read_request.decode_request(wire, context)

    def encoder(self, context: Context) -> EncoderLike:
        return MessagesEncoder(context)

    def encode_error(self, failure: Failure) -> WireResponse:
        return errors.encode_error(failure)

    def encode_models(self, infos: Sequence[ModelInfo]) -> WireResponse:
        return models.encode_models(infos)

    def encode_model(self, model: ModelInfo) -> WireResponse:
        return models.encode_model(model)

    def decode_count_request(self, wire: WireRequest, context: Context) -> Request:
        return read_request.decode_request(wire, context, counting=True)

    def encode_count(self, tokens: int, estimated: bool) -> WireResponse:
        return models.encode_count(tokens, estimated)

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        message = {"role": "user", "content": text}
        value = {"model": "default", "max_tokens": 1024, "messages": [message], "stream": stream}
        headers = {"content-type": "application/json", VERSION_HEADER: VERSION}
        return WireRequest("POST", "/messages", headers, body=dumps(value))

    # ------------------------------------------------------------- as the back

    def encode_request(self, wanted: Request, context: Context) -> WireRequest:
        return write_request.encode_request(wanted, context)

    def takes_bytes(self, options: Options) -> bool:
        return not (isinstance(options, BackOptions) and options.endpoint == "vertex")

    def demands(self, options: Options) -> Demands:
        if not isinstance(options, BackOptions):
            return DEMANDS
        found = INSIDE_KEPT if options.system_inside == "system" else DEMANDS
        return replace(found, no_sampling_with_effort=True) if options.effort == "thinking" else found

    def decoder(self, context: Context) -> Decoder:
        return MessagesDecoder(context)

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        return whole_answer.parse_response(wire, context)

    def decode_error(self, wire: WireResponse) -> Failure:
        return errors.ERRORS.decode(wire)

    def auth_headers(self, api_key: str) -> dict[str, str]:
        return {"x-api-key": api_key}

    def count_request(self, wanted: Request, context: Context) -> WireRequest:
        return write_request.count_request(wanted, context)

    def decode_count(self, wire: WireResponse) -> int:
        return models.decode_count(wire)

    def models_request(self) -> WireRequest:
        headers = {"accept": "application/json", VERSION_HEADER: VERSION}
        return WireRequest("GET", "/v1/models", headers, {"limit": "1000"})

    def decode_models(self, wire: WireResponse) -> list[ModelInfo]:
        return models.decode_models(wire)


dialect = AnthropicMessages()
