"""The dialect `gemini`: Google's Gemini API, served to its clients and called as a backend."""

from __future__ import annotations

from collections.abc import Sequence

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
    QueryParameter,
    WireRequest,
    WireResponse,
)
from bridge.contract.demands import Demands
from bridge.dialects.gemini import (
    errors,
    models,
    read_request,
    whole_answer,
    write_request,
)
from bridge.dialects.gemini.capabilities import CAPABILITIES, DEMANDS, INSIDE_KEPT, card
from bridge.dialects.gemini.options import BackOptions, FrontOptions
from bridge.dialects.gemini.read_answer import GeminiDecoder
from bridge.dialects.gemini.wire import NAME
from bridge.dialects.gemini.write_answer import GeminiEncoder
from bridge.errors import Failure
from bridge.model import Event, Request
from bridge.model.jsontext import dumps

_KEY_HEADER, _QUERY_KEY = "x-goog-api-key", "key"
_RUN = "/{model:.+}:"
"""`{model}` is everything before the method: `v1beta/models/NAME`, or `models/NAME` on a route at `/v1beta`."""
_ONE = "/{id:(?!.*:[a-z]+[A-Z]).+}"
"""A model without a method: unknown ones are a 404, whatever the HTTP method."""
_ALT = QueryParameter("alt", "sse for server-sent events; without it, one JSON array", choices=("sse", "json"))


def _listing(path: str, header: str | None = None) -> tuple[Endpoint, ...]:
    """The endpoints of the models. Clients of OpenAI and Anthropic ask at the same address without that header."""
    return tuple(
        Endpoint("GET", path + rest, Operation.MODELS, header=header, query_key=_QUERY_KEY) for rest in ("", _ONE)
    )


class Gemini(CountingDialect, ModelsDialect):
    """Both sides of the Gemini API."""

    name = NAME
    spoken_by = ("google", "vertex", "vertexai")
    provider = "gcp.gemini"
    url = "https://generativelanguage.googleapis.com/v1beta"
    key_variable = "GEMINI_API_KEY"
    capabilities = CAPABILITIES
    requires_model = True
    event_ids = False
    streams_json_arrays = True
    surface = (
        Endpoint("POST", _RUN + "generateContent", Operation.RUN, query_key=_QUERY_KEY),
        Endpoint("POST", _RUN + "streamGenerateContent", Operation.RUN, query_key=_QUERY_KEY, query=(_ALT,)),
        Endpoint("POST", _RUN + "countTokens", Operation.COUNT, query_key=_QUERY_KEY),
        *_listing("/models", _KEY_HEADER),
        *_listing("/v1/models", _KEY_HEADER),
        *_listing("/{version:v1(?:alpha|beta1?)}/models"),
    )
    front_options = FrontOptions
    back_options = BackOptions

    # ------------------------------------------------------------- as the front

    def capabilities_with(self, options: Options) -> Capabilities:
        return card(options.media) if isinstance(options, FrontOptions) else CAPABILITIES

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        return read_request.decode_request(wire, context)

    def encoder(self, context: Context) -> EncoderLike:
        return GeminiEncoder(context)

    def writes_array(self, context: Context) -> bool:
        return whole_answer.wants_array(context)

    def encode_error(self, failure: Failure) -> WireResponse:
        return errors.encode_error(failure)

    def encode_models(self, infos: Sequence[ModelInfo]) -> WireResponse:
        return models.encode_models(infos)

    def encode_model(self, model: ModelInfo) -> WireResponse:
        return models.encode_model(model)

    def decode_count_request(self, wire: WireRequest, context: Context) -> Request:
        return read_request.decode_request(wire, context, counting=True)

    def encode_count(self, tokens: int, estimated: bool) -> WireResponse:
        return models.encode_count(tokens)

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        value = {"contents": [{"role": "user", "parts": [{"text": text}]}]}
        method, query = ("streamGenerateContent", {"alt": "sse"}) if stream else ("generateContent", {})
        headers, params = {"content-type": "application/json"}, {"model": "default"}
        return WireRequest("POST", f"/v1beta/models/default:{method}", headers, query, params, dumps(value))

    # ------------------------------------------------------------- as the back

    def encode_request(self, wanted: Request, context: Context) -> WireRequest:
        return write_request.encode_request(wanted, context)

    def demands(self, options: Options) -> Demands:
        keeps = isinstance(options, BackOptions) and options.system_inside == "user"
        return INSIDE_KEPT if keeps else DEMANDS

    def decoder(self, context: Context) -> Decoder:
        return GeminiDecoder(context)

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        return whole_answer.parse_response(wire, context)

    def decode_error(self, wire: WireResponse) -> Failure:
        return errors.ERRORS.decode(wire)

    def auth_headers(self, api_key: str) -> dict[str, str]:
        return {_KEY_HEADER: api_key}

    def count_request(self, wanted: Request, context: Context) -> WireRequest:
        return write_request.count_request(wanted, context)

    def decode_count(self, wire: WireResponse) -> int:
        return models.decode_count(wire)

    def models_request(self) -> WireRequest:
        return WireRequest("GET", "/v1beta/models", {"accept": "application/json"}, {"pageSize": "1000"})

    def decode_models(self, wire: WireResponse) -> list[ModelInfo]:
        return models.decode_models(wire)


dialect = Gemini()
