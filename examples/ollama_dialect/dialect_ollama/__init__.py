"""The dialect `ollama`: the chat API of Ollama (`POST /api/chat`, `GET /api/tags`), both sides."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from bridge import BackendError, ErrorCode, Event, Request, RunFailed
from bridge.codec import (
    ANSWER_FEATURES,
    REQUEST_FEATURES,
    Capabilities,
    Context,
    EncoderLike,
    Endpoint,
    Feature,
    Framing,
    ModelInfo,
    ModelsDialect,
    Node,
    ObjectDialect,
    Operation,
    WireRequest,
    WireResponse,
    body_of,
    entries,
    failure_at_end,
    json_request,
    json_response,
)
from bridge.codec.jsontext import dumps, read_json
from bridge.model import Builder
from dialect_ollama import asking
from dialect_ollama.answering import AnswerEncoder, assembled, decode_object

_NO_FIELD = "the wire has no field for it"
_AS_TEXT = "a link or JSON in the content"
_BYTES_ONLY = "the wire takes images only, as bytes"


class Ollama(ObjectDialect, ModelsDialect):
    """Objects that each stand for themselves, one a line; all but the last have `"done": false`."""

    name = "ollama"
    framing = Framing.JSON_LINES
    requires_model = True
    mount = "/api"
    url = "http://127.0.0.1:11434/api"
    key_variable = "OLLAMA_API_KEY"
    surface = (Endpoint("POST", "/chat", Operation.RUN), Endpoint("GET", "/tags", Operation.MODELS))
    capabilities = Capabilities(
        answers=entries(
            ANSWER_FEATURES,
            text={
                Feature.REFUSAL: "in the content",
                Feature.IMAGE: _AS_TEXT,
                Feature.AUDIO: _AS_TEXT,
                Feature.VIDEO: _AS_TEXT,
                Feature.FILE: _AS_TEXT,
                Feature.DATA: _AS_TEXT,
                Feature.INTERRUPT: "the call that waits, else the question in the content",
            },
            drop={
                Feature.REASONING_SIGNATURE: _NO_FIELD,
                Feature.TOOL_ORIGIN: "every call is a function call",
                Feature.TOOL_RESULT: _NO_FIELD,
                Feature.USAGE_DETAILS: _NO_FIELD,
                Feature.STATE: _NO_FIELD,
                Feature.STEP: _NO_FIELD,
                Feature.CUSTOM: _NO_FIELD,
                Feature.RAW: _NO_FIELD,
                Feature.CHOICES: "there is one answer",
                Feature.PART_BORDERS: "texts that follow each other become one",
            },
            refuse={
                Feature.FINISH_CONTENT_FILTER: "told as an error, since done_reason has no word for it",
                Feature.FINISH_CANCELED: "told as an error, since done_reason has no word for it",
            },
        ),
        requests=entries(
            REQUEST_FEATURES,
            text={Feature.DATA: "JSON in the content", Feature.REFUSAL_HISTORY: "in the content"},
            drop={
                Feature.MESSAGE_NAME: _NO_FIELD,
                Feature.TOOL_CHOICE: "none leaves the tools out; the model chooses among them",
                Feature.PARALLEL_TOOL_CALLS: _NO_FIELD,
                Feature.SAMPLING: "n; the others are sent",
                Feature.TOOL_ORIGIN: "every call is a function call",
                Feature.USER_ID: _NO_FIELD,
                Feature.THREAD_ID: "every request carries the whole conversation",
                Feature.METADATA: _NO_FIELD,
                Feature.CONTEXT: _NO_FIELD,
                Feature.STATE: _NO_FIELD,
            },
            refuse={
                Feature.IMAGE_URL: _BYTES_ONLY,
                Feature.AUDIO_URL: _BYTES_ONLY,
                Feature.AUDIO_INLINE: _BYTES_ONLY,
                Feature.VIDEO_URL: _BYTES_ONLY,
                Feature.VIDEO_INLINE: _BYTES_ONLY,
                Feature.FILE_URL: _BYTES_ONLY,
                Feature.FILE_INLINE: _BYTES_ONLY,
                Feature.FILE_REF: _BYTES_ONLY,
                Feature.RESUME: "the protocol has no interrupts",
            },
        ),
        usage_on_failure=False,
        media_types=False,
        call_ids=False,
        exact_arguments=False,
    )

    # ------------------------------------------------------------- as the front

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        return asking.decoded(body_of(wire), context.model)

    def encoder(self, context: Context) -> EncoderLike:
        return AnswerEncoder(context, self.capabilities)

    def assemble(self, events: Sequence[Event], context: Context) -> WireResponse:
        failure = failure_at_end(events, self.capabilities, context.lost)
        if failure is not None:
            return self.encode_error(failure)
        return json_response(dumps(assembled(self.encoder(context).encode(events))))

    def encode_event(self, event: Event) -> dict[str, Any] | None:
        return {"error": event.error.message} if isinstance(event, RunFailed) else None

    def encode_models(self, models: Sequence[ModelInfo]) -> WireResponse:
        times = [datetime.fromtimestamp(model.created, UTC).isoformat() for model in models]
        said = [{"name": m.id, "model": m.id, "modified_at": at} for m, at in zip(models, times, strict=True)]
        return json_response(dumps({"models": said}))

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        message = {"role": "user", "content": text}
        return json_request("/chat", dumps({"model": "default", "messages": [message], "stream": stream}))

    # ------------------------------------------------------------- as the back

    def encode_request(self, request: Request, context: Context) -> WireRequest:
        return json_request("/chat", dumps(asking.encoded(request, context)))

    def decode_object(self, node: Node, builder: Builder) -> None:
        decode_object(node, builder)

    def models_request(self) -> WireRequest:
        return WireRequest("GET", "/tags")

    def decode_models(self, wire: WireResponse) -> list[ModelInfo]:
        said = read_json(wire.body)
        models = said.get("models") if isinstance(said, dict) else None
        if not isinstance(models, list):
            raise BackendError("The backend's answer is not a list of models.", code=ErrorCode.BACKEND_PROTOCOL)
        names = [model.get("model") or model.get("name") for model in models if isinstance(model, dict)]
        return [ModelInfo(name) for name in names if isinstance(name, str)]


dialect = Ollama()
