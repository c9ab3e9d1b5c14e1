"""FastAPI's error body, which several agent servers answer with: `{"detail": [{"type", "loc", "msg"}]}`."""

from __future__ import annotations

import re

from bridge.errors import ErrorCode, Failure

from .jsontext import dumps
from .wire import WireResponse, json_response

_INVALID = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED})


def detail_response(failure: Failure, message: str) -> WireResponse:
    """`failure` as such a body, with `message` as its text. Invalid requests are 422, as FastAPI answers them."""
    status = failure.status or (422 if failure.code in _INVALID else failure.http_status)
    item = {"type": _kind(failure), "loc": ["body", *_location(failure.param)], "msg": message}
    return json_response(dumps({"detail": [item]}), status, dict(failure.headers))


def _kind(failure: Failure) -> str:
    """Pydantic's word for the mistake where there is one, else our code."""
    if failure.code is not ErrorCode.INVALID_REQUEST:
        return str(failure.code)
    if "not valid JSON" in failure.message:
        return "json_invalid"
    return "missing" if ": required," in failure.message else "value_error"


def _location(param: str | None) -> list[str | int]:
    """`input[0].content` as the pieces `input`, 0, `content`."""
    return [int(p) if p.isdigit() else p for p in re.split(r"[.\[\]]+", param or "") if p]
