"""The list of models (section 1): many UIs ask for it first and show nothing without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adapters.openai_chat.errors import decode_error, read_json
from adapters.openai_chat.wire import is_number
from bridge.codec import ModelInfo, WireResponse, json_response
from bridge.codec.jsontext import dumps
from bridge.errors import BackendError, BridgeError, ErrorCode


def encode_models(infos: Sequence[ModelInfo]) -> WireResponse:
    return json_response(dumps({"object": "list", "data": [_model(i) for i in infos]}))


def encode_model(info: ModelInfo) -> WireResponse:
    return json_response(dumps(_model(info)))


def _model(info: ModelInfo) -> dict[str, Any]:
    return {"id": info.id, "object": "model", "created": info.created, "owned_by": info.owned_by}


def decode_models(wire: WireResponse) -> list[ModelInfo]:
    """The models of a backend: `{"data": [...]}`, a bare list (Together), or `{"models": [...]}`."""
    if wire.status >= 400:
        raise BridgeError.of(decode_error(wire))
    value = read_json(wire.body)
    if isinstance(value, dict) and ("data" in value or "models" in value):
        value = value.get("data") or value.get("models") or []  # null when there are none (Ollama)
    if not isinstance(value, list):
        raise BackendError("The backend's answer is no list of models.", code=ErrorCode.BACKEND_PROTOCOL)
    return [_info(v) for v in value if isinstance(v, dict) and isinstance(v.get("id"), str) and v["id"]]


def _info(value: dict[str, Any]) -> ModelInfo:
    created, owner = value.get("created"), value.get("owned_by")
    return ModelInfo(
        value["id"],
        int(created) if is_number(created) else 0,
        owner if isinstance(owner, str) and owner else "unknown",
    )
