"""The list of models and the count of tokens: what clients ask beside runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.contract import ModelInfo, WireResponse, json_response
from bridge.dialects.gemini.wire import MODEL_PREFIX
from bridge.errors import BackendError, ErrorCode
from bridge.model.jsontext import dumps, read_json, text_of
from bridge.toolkit.counts import is_count

_METHODS = ["generateContent", "streamGenerateContent", "countTokens"]


def encode_models(infos: Sequence[ModelInfo]) -> WireResponse:
    """Return all of them in one page, whatever page was requested."""
    return json_response(dumps({"models": [_model(info) for info in infos]}))


def encode_model(info: ModelInfo) -> WireResponse:
    return json_response(dumps(_model(info)))


def _model(info: ModelInfo) -> dict[str, Any]:
    return {
        "name": MODEL_PREFIX + info.id,
        "version": "",
        "displayName": info.id,
        "supportedGenerationMethods": _METHODS,
    }


def decode_models(wire: WireResponse) -> list[ModelInfo]:
    """The models of a backend that generate content. Raises `BackendError`."""
    value = read_json(wire.body)
    models = value.get("models") if isinstance(value, dict) else None
    if not isinstance(models, list):
        raise BackendError("The backend's answer is not a list of models.", code=ErrorCode.BACKEND_PROTOCOL)
    names = [text_of(each.get("name")) for each in models if isinstance(each, dict) and _generates(each)]
    return [ModelInfo(name.removeprefix(MODEL_PREFIX), owned_by="unknown") for name in names if name]


def _generates(model: dict[str, Any]) -> bool:
    """Return whether a model answers requests; a list without methods is one of such models."""
    methods = model.get("supportedGenerationMethods")
    return not isinstance(methods, list) or "generateContent" in methods


def encode_count(tokens: int) -> WireResponse:
    return json_response(dumps({"totalTokens": tokens}))


def decode_count(wire: WireResponse) -> int:
    """Raises `BackendError`."""
    value = read_json(wire.body)
    tokens = value.get("totalTokens") if isinstance(value, dict) else None
    if not is_count(tokens):
        raise BackendError("The backend's answer is not a token count.", code=ErrorCode.BACKEND_PROTOCOL)
    return tokens
