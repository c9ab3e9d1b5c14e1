"""The list of models and the count of tokens: what clients ask beside runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from bridge.contract import ModelInfo, WireResponse, json_response
from bridge.contract.optional.models import described
from bridge.errors import BackendError, ErrorCode
from bridge.model.jsontext import dumps, read_json, text_of
from bridge.toolkit.counts import input_tokens_in, is_count

_FOREVER = 253_402_300_799  # 9999-12-31, the last day that the format can write


def encode_models(infos: Sequence[ModelInfo]) -> WireResponse:
    """Return all of them in one page, whatever page was requested."""
    data = [_model(info) for info in infos]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return json_response(dumps({"data": data, "has_more": False, "first_id": first, "last_id": last}))


def encode_model(info: ModelInfo) -> WireResponse:
    return json_response(dumps(_model(info)))


def _model(info: ModelInfo) -> dict[str, Any]:
    """An unknown time is the epoch; a model that can be called is `active`, which the SDK's type requires."""
    created = datetime.fromtimestamp(min(max(info.created, 0), _FOREVER), UTC)
    return {
        "type": "model",
        "id": info.id,
        "display_name": info.name or info.id,
        "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        **({"max_input_tokens": info.context} if info.context else {}),
    }


def decode_models(wire: WireResponse) -> list[ModelInfo]:
    """The models of a backend. Raises `BackendError`."""
    value = read_json(wire.body)
    data = value.get("data") if isinstance(value, dict) else None
    if not isinstance(data, list):
        raise BackendError("The backend's answer is not a list of models.", code=ErrorCode.BACKEND_PROTOCOL)
    entries = [v for v in data if isinstance(v, dict) and text_of(v.get("id"))]
    return [described(ModelInfo(v["id"], _unix(v), "unknown"), v) for v in entries]


def _unix(value: dict[str, Any]) -> int:
    """Unix seconds of a `created_at`; compatible servers write `created` as a number."""
    try:
        created_at = datetime.fromisoformat(text_of(value.get("created_at")))
        return max(0, int((created_at if created_at.tzinfo else created_at.replace(tzinfo=UTC)).timestamp()))
    except (ValueError, OverflowError):
        created = value.get("created")
        return created if is_count(created) else 0


def encode_count(tokens: int, estimated: bool) -> WireResponse:
    """`estimated` is in the body only if it is true; the SDK's type ignores it."""
    return json_response(dumps({"input_tokens": tokens, **({"estimated": True} if estimated else {})}))


def decode_count(wire: WireResponse) -> int:
    """Raises `BackendError`."""
    return input_tokens_in(wire)
