"""FastAPI's error body, which several agent servers answer with: `{"detail": [{"type", "loc", "msg"}]}`."""

from __future__ import annotations

import re

from bridge.contract.wire import WireResponse, json_response
from bridge.errors import ErrorCode, Failure, Wrong
from bridge.model.jsontext import dumps
from bridge.toolkit.redact import LONGEST_WORD, masked

_KINDS: dict[Wrong | None, str] = {Wrong.JSON: "json_invalid", Wrong.MISSING: "missing"}
_INVALID = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED})


def detail_response(failure: Failure, message: str) -> WireResponse:
    """`failure` as such a body, with `message` as its text. Invalid requests are 422, as FastAPI answers them."""
    status = failure.status or (422 if failure.code in _INVALID else failure.http_status)
    item = {"type": _kind(failure), "loc": ["body", *location(failure.param)], "msg": message}
    return json_response(dumps({"detail": [item]}), status, dict(failure.headers))


def _kind(failure: Failure) -> str:
    """Return Pydantic's error type if there is one, else the bridge's code."""
    if failure.code is not ErrorCode.INVALID_REQUEST:
        return str(failure.code)
    return _KINDS.get(failure.wrong, "value_error")


_BETWEEN = re.compile(r"[.\[\]]+")
_INDEX = re.compile(r"\d{1,9}", re.ASCII)


def location(param: str | None) -> list[str | int]:
    """Return the parameter `input[0].content` as the pieces `input`, 0, `content`."""
    pieces = _BETWEEN.split(masked(param or "", LONGEST_WORD))
    return [int(p) if _INDEX.fullmatch(p) else p for p in pieces if p]
