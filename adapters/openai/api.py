"""What OpenAI's APIs share: the list of models, media, metadata, embeddings, caching."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from bridge.contract.capabilities import Feature
from bridge.contract.context import Context, Losses
from bridge.contract.optional.embeddings import Embeddings, EmbeddingsDialect, EmbeddingsRequest, vectors_in
from bridge.contract.optional.models import ModelInfo, ModelsDialect, described
from bridge.contract.surface import Endpoint, Operation, Surface
from bridge.contract.wire import WireRequest, WireResponse, json_request, json_response
from bridge.dialects.openai.errors import ERRORS, encode_error
from bridge.errors import BackendError, ErrorCode, Failure
from bridge.model import Extras, FileRef, Inline, Request, Source, Url, source_of
from bridge.model.jsontext import dumps, read_json, whole
from bridge.toolkit.caching import CONTROL, marked, marks_in, note_lost_marks, seconds_of
from bridge.toolkit.counts import counts_in

# ------------------------------------------------------------------ models


MODELS: Surface = (
    Endpoint("GET", "/models", Operation.MODELS, shared=True),
    Endpoint("GET", "/models/{id:.+}", Operation.MODELS, shared=True),
)


EXTRAS: Surface = tuple(
    Endpoint("POST", path, Operation.FORWARD, shared=True)
    for path in (
        "/embeddings",
        "/audio/transcriptions",
        "/audio/translations",
        "/audio/speech",
        "/images/generations",
        "/images/edits",
        "/completions",
        "/moderations",
        "/rerank",
    )
)
"""APIs beside chat, which a route passes on to one backend."""


_PARAMETERS = frozenset({"reasoning", "tools"})
"""Abilities that are parameters of a request; the others are kinds of input."""


def _model(info: ModelInfo) -> dict[str, Any]:
    """The fields of the official API, then what is known besides, as OpenRouter writes it."""
    out: dict[str, Any] = {"id": info.id, "object": "model", "created": info.created, "owned_by": info.owned_by}
    if info.name:
        out["name"] = info.name
    if info.context:
        out["context_length"] = info.context
    if info.abilities is not None:
        out["architecture"] = {"input_modalities": ["text", *sorted(info.abilities - _PARAMETERS)]}
        out["supported_parameters"] = sorted(info.abilities & _PARAMETERS)
    return out


def _info(value: dict[str, Any]) -> ModelInfo:
    created, owner = value.get("created"), value.get("owned_by")
    info = ModelInfo(value["id"], whole(created) or 0, owner if isinstance(owner, str) and owner else "unknown")
    return described(info, value)


# ------------------------------------------------------------------ requests


_MOST_PAIRS = 16
_LONGEST_USER = 64
_URL = re.compile("data:|https?://", re.IGNORECASE)
_FORMATS = {
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/pcm": "pcm16",
    "audio/wave": "wav",
}
_AUDIO_TYPES = {"mp3": "audio/mpeg", "pcm16": "audio/pcm"}


def bytes_or_url(data: str) -> tuple[Source, str | None]:
    """Return data and media type of a field of base64 that may also hold a URL (OpenRouter, DashScope)."""
    return source_of(data) if _URL.match(data) else (Inline(data), None)


def audio_type(audio_format: str) -> str:
    """The media type of the `format` of an `input_audio`."""
    return _AUDIO_TYPES.get(audio_format, f"audio/{audio_format}")


def audio_format(mime: str | None) -> str:
    """Return the `format` of an `input_audio` for a media type, WAV by default."""
    mime = mime or "audio/wav"
    return _FORMATS.get(mime) or mime.partition("/")[2] or mime


def describe_source(source: Source) -> str:
    """Return how a medium is given, for error messages."""
    return _SOURCES[type(source)]


_SOURCES: dict[type, str] = {Url: "by URL", Inline: "as bytes", FileRef: "by file id"}


SHARED = frozenset({"service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "verbosity"})
"""Request fields without a place in the model that every API of OpenAI has, under the name that chat gives them."""


COMMON = SHARED | {"logprobs", "logit_bias", "store", CONTROL}
"""Such fields of chat requests that servers of other protocols, made after chat, know by the same names as well."""


def shared_fields(request: Request, dialect: str) -> dict[str, Any]:
    """The fields of `Request.shared` that every API of OpenAI has, from a client of another dialect than `dialect`.

    The others are among the extras of `dialect`.
    """
    if not request.shared or dialect in (request.extras or {}):
        return {}
    return {name: value for name, value in request.shared.items() if name in SHARED and value is not None}


_BREAKPOINT = "prompt_cache_breakpoint"
_LIFETIMES = {"30m": 1800, "12h": 43200}
_DEFAULT_LIFETIME = 300


def with_mark(extras: Extras, fields: Mapping[str, Any]) -> Extras:
    """Return `extras` with the mark for the prompt cache among the fields of a part."""
    found = fields.get(_BREAKPOINT)
    if not isinstance(found, dict):
        return extras
    return marked(extras, _LIFETIMES.get(str(found.get("ttl")), _DEFAULT_LIFETIME))


def breakpoint_of(extras: Extras | None) -> dict[str, Any]:
    """Return the field of a part that is marked for the prompt cache; empty for others."""
    seconds = seconds_of(extras)
    if seconds is None:
        return {}
    lifetime = next((name for name, most in _LIFETIMES.items() if seconds <= most), "12h")
    return {_BREAKPOINT: {"mode": "explicit", **({"ttl": lifetime} if seconds > _LIFETIMES["30m"] else {})}}


_TAKES_KEYS = re.compile(r"(?:[a-z]+\.)?api\.openai\.com")
"""Hosts that are known to take `prompt_cache_key`; other servers may refuse a field that they do not know."""


def set_cache(body: dict[str, Any], request: Request, option: str | None, context: Context) -> None:
    """Set the key of the prompt cache if the option demands it, and name marks that are not sent as lost.

    Without an option, the key is set where the host takes it and the client cannot decide what is cached.
    """
    lost = context.lost
    if option is None and context.caches and _TAKES_KEYS.fullmatch(context.host):
        option = "key"
    conversation = body["messages"] if "messages" in body else body["input"]
    if marks := marks_in(request):
        tools = [tool for tool in body.get("tools") or () if isinstance(tool, dict)]
        functions = [tool.get("function") for tool in tools]
        note_lost_marks(marks, [*conversation, *tools, *functions], (_BREAKPOINT, CONTROL), lost)
    if option != "key" or (request.shared or {}).get("prompt_cache_key"):
        return
    fixed = [body.get("tools"), body.get("instructions")]
    fixed += [m for m in conversation if m.get("role") in ("system", "developer")]
    if not any(fixed):
        return
    body.setdefault("prompt_cache_key", hashlib.sha256(dumps(fixed)).hexdigest()[:32])


def metadata_of(request: Request, lost: Losses) -> dict[str, Any] | None:
    """Return the metadata as a field; None if there is none, and for what OpenAI refuses, which is named as lost: what
    other dialects call metadata may be anything.
    """
    metadata = request.metadata
    if metadata and not fits_metadata(metadata):
        lost.add(Feature.METADATA, "at most 16 string pairs can be sent")
        return None
    return request.metadata or None


def fits_metadata(metadata: Mapping[str, Any]) -> TypeGuard[Mapping[str, str]]:
    """Return whether OpenAI accepts this as `metadata`: at most 16 pairs of strings."""
    return len(metadata) <= _MOST_PAIRS and all(isinstance(v, str) for v in metadata.values())


def user_of(request: Request, lost: Losses) -> str | None:
    """The user's id as these APIs take it: of 64 characters at most. Clients of one of them know that themselves.

    A longer one (coding agents of other dialects put JSON there) would have the whole request refused.
    """
    user = request.user_id
    if user is None or len(user) <= _LONGEST_USER or request.shared is not None:
        return user
    lost.add(Feature.USER_ID, f"longer than {_LONGEST_USER} characters")
    return None


# ------------------------------------------------------------------ the dialect


class OpenAIDialect(ModelsDialect, EmbeddingsDialect):
    """The responses and requests that all OpenAI APIs have in common."""

    def encode_error(self, failure: Failure) -> WireResponse:
        return encode_error(failure)

    def encode_models(self, models: Sequence[ModelInfo]) -> WireResponse:
        return json_response(dumps({"object": "list", "data": [_model(info) for info in models]}))

    def encode_model(self, model: ModelInfo) -> WireResponse:
        return json_response(dumps(_model(model)))

    def decode_error(self, wire: WireResponse) -> Failure:
        return ERRORS.decode(wire)

    def models_request(self) -> WireRequest:
        return WireRequest("GET", "/models", {"accept": "application/json"})

    def decode_models(self, wire: WireResponse) -> list[ModelInfo]:
        """The models of a backend: `{"data": [...]}`, a bare list (Together), or `{"models": [...]}`."""
        value = read_json(wire.body)
        if isinstance(value, dict) and ("data" in value or "models" in value):
            value = value.get("data") or value.get("models") or []  # null if there are none (Ollama)
        if not isinstance(value, list):
            raise BackendError("The backend's answer is not a list of models.", code=ErrorCode.BACKEND_PROTOCOL)
        return [_info(v) for v in value if isinstance(v, dict) and isinstance(v.get("id"), str) and v["id"]]

    def embeddings_request(self, asked: EmbeddingsRequest, model: str) -> WireRequest:
        body: dict[str, Any] = {"model": model, "input": asked.inputs}
        if asked.dimensions is not None:
            body["dimensions"] = asked.dimensions
        return json_request("/embeddings", dumps(body))

    def decode_embeddings(self, wire: WireResponse) -> Embeddings:
        value = read_json(wire.body)
        data = value.get("data") if isinstance(value, dict) else None
        entries = [each for each in data if isinstance(each, dict)] if isinstance(data, list) else []
        entries.sort(key=lambda entry: whole(entry.get("index")) or 0)
        vectors = vectors_in([entry.get("embedding") for entry in entries])
        if not entries or vectors is None:
            raise BackendError("The backend's answer has no embeddings.", code=ErrorCode.BACKEND_PROTOCOL)
        return Embeddings(vectors, counts_in(value.get("usage")).get("input"))
