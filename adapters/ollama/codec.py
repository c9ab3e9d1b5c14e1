"""The dialect `ollama`: Ollama's own API, served to clients that know no other, and called as a backend."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.contract import (
    Capabilities,
    Context,
    Decoder,
    EncoderLike,
    Endpoint,
    Framing,
    ModelInfo,
    Operation,
    Options,
    WireRequest,
    WireResponse,
    json_request,
    json_response,
)
from bridge.contract.optional.answering import AnsweringDialect, RouteFacts
from bridge.contract.optional.embeddings import Embeddings, EmbeddingsDialect, EmbeddingsRequest
from bridge.dialects.ollama import embeddings, errors, models, read_request, write_request
from bridge.dialects.ollama.capabilities import CAPABILITIES, card
from bridge.dialects.ollama.options import BackOptions, FrontOptions
from bridge.dialects.ollama.read_answer import OllamaDecoder
from bridge.dialects.ollama.wire import NAME, NOTES, ends_at_once, is_same_model
from bridge.dialects.ollama.write_answer import OllamaEncoder, moment
from bridge.errors import Failure
from bridge.model import Event, Request
from bridge.model.jsontext import dumps

_TEXT = {"content-type": "text/plain; charset=utf-8"}


class Ollama(AnsweringDialect, EmbeddingsDialect):
    """Both sides of Ollama's API."""

    name = NAME
    framing = Framing.JSON_LINES
    checks_content_type = False
    requires_model = True
    mount = "/"
    url = "http://127.0.0.1:11434"
    key_variable = "OLLAMA_API_KEY"
    capabilities = CAPABILITIES
    surface = (
        Endpoint("POST", "/api/chat", Operation.RUN),
        Endpoint("POST", read_request.GENERATE, Operation.RUN),
        Endpoint("GET", "/api/tags", Operation.MODELS),
        Endpoint("POST", "/api/show", Operation.MODELS),
        Endpoint("POST", "/api/embed", Operation.EMBED),
        Endpoint("POST", "/api/embeddings", Operation.EMBED),
        Endpoint("GET", "/api/version", Operation.ANSWER),
        Endpoint("GET", "/api/ps", Operation.ANSWER),
        Endpoint("POST", "/api/pull", Operation.MODELS),
        Endpoint("POST", "/api/push", Operation.ANSWER),
        Endpoint("POST", "/api/create", Operation.ANSWER),
        Endpoint("POST", "/api/copy", Operation.ANSWER),
        Endpoint("DELETE", "/api/delete", Operation.ANSWER),
        Endpoint("POST", "/api/blobs/{digest}", Operation.ANSWER),
        Endpoint("HEAD", "/api/blobs/{digest}", Operation.ANSWER),
        Endpoint("GET", "", Operation.HEALTH),
    )
    front_options = FrontOptions
    back_options = BackOptions

    # ------------------------------------------------------------- as the front

    def capabilities_with(self, options: Options) -> Capabilities:
        return card(options.media) if isinstance(options, FrontOptions) else CAPABILITIES

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        return read_request.decode_request(wire, context)

    def encoder(self, context: Context) -> EncoderLike:
        return OllamaEncoder(context)

    def encode_error(self, failure: Failure) -> WireResponse:
        return errors.encode_error(failure)

    def encode_health(self, alive: bool) -> WireResponse:
        text = b"Ollama is running" if alive else b"The server is stopping."
        return WireResponse(200 if alive else 503, dict(_TEXT), text)

    def encode_models(self, infos: Sequence[ModelInfo]) -> WireResponse:
        return models.encode_models(infos)

    def is_same_model(self, asked: str, listed: str) -> bool:
        return is_same_model(asked, listed)

    def answer(self, wire: WireRequest, facts: RouteFacts) -> WireResponse:
        return models.answer(wire, facts)

    def answer_run(self, wanted: Request, context: Context) -> WireResponse | None:
        """A request without messages only loads or unloads a model, and is never a stream."""
        if wanted.messages:
            return None
        extras = wanted.extra(NAME)
        notes = extras.get(NOTES) or {}
        said = {"response": ""} if "generate" in notes else {"message": {"role": "assistant", "content": ""}}
        reason = "unload" if ends_at_once(extras.get("keep_alive")) else "load"
        model = notes.get("model") or wanted.model or context.model or ""
        head = {"model": model, "created_at": moment(context.created_at)}
        return json_response(dumps({**head, **said, "done": True, "done_reason": reason}))

    def decode_embeddings_request(self, wire: WireRequest, context: Context) -> EmbeddingsRequest:
        return embeddings.decode_request(wire, context)

    def encode_embeddings(self, asked: EmbeddingsRequest, found: Embeddings, seconds: float) -> WireResponse:
        return embeddings.encode(asked, found, seconds)

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        message = {"role": "user", "content": text}
        return json_request("/api/chat", dumps({"model": "default", "messages": [message], "stream": stream}))

    # ------------------------------------------------------------- as the back

    def encode_request(self, wanted: Request, context: Context) -> WireRequest:
        return write_request.encode_request(wanted, context)

    def decoder(self, context: Context) -> Decoder:
        return OllamaDecoder(context)

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        decoder = OllamaDecoder(context)
        return [*decoder.feed([wire.body]), *decoder.close()]

    def decode_error(self, wire: WireResponse) -> Failure:
        return errors.ERRORS.decode(wire)

    def models_request(self) -> WireRequest:
        return WireRequest("GET", "/api/tags", {"accept": "application/json"})

    def decode_models(self, wire: WireResponse) -> list[ModelInfo]:
        return models.decode_models(wire)

    def embeddings_request(self, asked: EmbeddingsRequest, model: str) -> WireRequest:
        return embeddings.encode_request(asked, model)

    def decode_embeddings(self, wire: WireResponse) -> Embeddings:
        return embeddings.decode(wire)


dialect = Ollama()
