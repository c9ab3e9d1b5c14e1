"""The dialect `inhouse`: a chat protocol as companies make them for themselves, both sides.

`POST /talk` with `{"model", "turns", "tools", "stream"}` is answered by one JSON object a line: `{"model"}`, then
`{"thought"}`, `{"text"}`, `{"call": {"name", "input"}}`, and last `{"end", "tokens"}` or `{"error"}`; without a stream
by one object with all of them. `GET /models` is `{"models": [name, ...]}`.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    json_request,
    json_response,
)
from bridge.codec.jsontext import dumps, read_json
from bridge.model import Builder
from dialect_inhouse import asking
from dialect_inhouse.answering import AnswerEncoder, decode_object

_NO_FIELD = "the protocol has no field for it"
_AS_TEXT = "a link or JSON in the text"
_BYTES_ONLY = "turns have pictures only, as bytes"
_AS_TEXTS = (
    Feature.REFUSAL,
    Feature.IMAGE,
    Feature.AUDIO,
    Feature.VIDEO,
    Feature.FILE,
    Feature.DATA,
    Feature.INTERRUPT,
)
_NOT_ANSWERED = (
    Feature.REASONING_SIGNATURE, Feature.TOOL_ORIGIN, Feature.TOOL_RESULT, Feature.USAGE_DETAILS, Feature.STATE,
    Feature.STEP, Feature.CUSTOM, Feature.RAW, Feature.CHOICES, Feature.PART_BORDERS,
)  # fmt: skip
_NOT_ASKED = (
    Feature.MESSAGE_NAME, Feature.TOOL_CHOICE, Feature.PARALLEL_TOOL_CALLS, Feature.RESPONSE_FORMAT, Feature.SAMPLING,
    Feature.REASONING_EFFORT, Feature.TOOL_ORIGIN, Feature.USER_ID, Feature.THREAD_ID, Feature.METADATA,
    Feature.CONTEXT, Feature.STATE,
)  # fmt: skip
_NO_PICTURES = (
    Feature.IMAGE_URL, Feature.AUDIO_URL, Feature.AUDIO_INLINE, Feature.VIDEO_URL, Feature.VIDEO_INLINE,
    Feature.FILE_URL, Feature.FILE_INLINE, Feature.FILE_REF,
)  # fmt: skip


class InHouse(ObjectDialect, ModelsDialect):
    name = "inhouse"
    framing = Framing.JSON_LINES
    requires_model = True
    surface = (Endpoint("POST", "/talk", Operation.RUN), Endpoint("GET", "/models", Operation.MODELS))
    capabilities = Capabilities(
        answers=entries(
            ANSWER_FEATURES,
            text=dict.fromkeys(_AS_TEXTS, _AS_TEXT),
            drop=dict.fromkeys(_NOT_ANSWERED, _NO_FIELD),
            refuse=dict.fromkeys((Feature.FINISH_CONTENT_FILTER, Feature.FINISH_CANCELED), "sent as an error"),
        ),
        requests=entries(
            REQUEST_FEATURES,
            text={Feature.DATA: "JSON in the text", Feature.REFUSAL_HISTORY: "in the text"},
            drop=dict.fromkeys(_NOT_ASKED, _NO_FIELD),
            refuse={**dict.fromkeys(_NO_PICTURES, _BYTES_ONLY), Feature.RESUME: "the protocol has no questions"},
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

    def encode_event(self, event: Event) -> dict[str, Any] | None:
        return {"error": event.error.message} if isinstance(event, RunFailed) else None

    def encode_models(self, models: Sequence[ModelInfo]) -> WireResponse:
        return json_response(dumps({"models": [model.id for model in models]}))

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        return json_request(
            "/talk", dumps({"model": "default", "turns": [{"from": "user", "text": text}], "stream": stream})
        )

    # ------------------------------------------------------------- as the back

    def encode_request(self, request: Request, context: Context) -> WireRequest:
        return json_request("/talk", dumps(asking.encoded(request, context, self.capabilities)))

    def decode_object(self, node: Node, builder: Builder) -> None:
        decode_object(node, builder)

    def models_request(self) -> WireRequest:
        return WireRequest("GET", "/models")

    def decode_models(self, wire: WireResponse) -> list[ModelInfo]:
        said = read_json(wire.body)
        models = said.get("models") if isinstance(said, dict) else None
        if not isinstance(models, list):
            raise BackendError("The backend's answer is not a list of models.", code=ErrorCode.BACKEND_PROTOCOL)
        return [ModelInfo(name) for name in models if isinstance(name, str)]


dialect = InHouse()
