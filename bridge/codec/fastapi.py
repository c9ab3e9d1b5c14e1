"""FastAPI's error body, which several agent servers answer with: `{"detail": [{"type", "loc", "msg"}]}`.

As a backend they also answer with `{"detail": "text"}`, and their own code with `{"error": ...}` or `{"message": ...}`.
"""

from __future__ import annotations

import re
from typing import Any

from bridge.codec.jsontext import text_of
from bridge.errors import ErrorCode, Failure

from .jsontext import dumps
from .redact import LONGEST_WORD, masked
from .wire import WireResponse, json_response

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
    if "not valid JSON" in failure.message:
        return "json_invalid"
    return "missing" if ": required," in failure.message else "value_error"


_BETWEEN = re.compile(r"[.\[\]]+")
_INDEX = re.compile(r"\d{1,9}", re.ASCII)


def location(param: str | None) -> list[str | int]:
    """Return the parameter `input[0].content` as the pieces `input`, 0, `content`."""
    pieces = _BETWEEN.split(masked(param or "", LONGEST_WORD))
    return [int(p) if _INDEX.fullmatch(p) else p for p in pieces if p]


def error_in(body: Any) -> tuple[str, str]:
    """Return the text of such an error body and its `type` or `code`, each empty if it is missing."""
    if not isinstance(body, dict):
        return "", ""
    detail = body.get("detail") or body.get("error") or body.get("message")
    if isinstance(detail, str):
        return detail, text_of(body.get("code"))
    if isinstance(detail, dict):
        return text_of(detail.get("message") or detail.get("msg")), text_of(detail.get("code"))
    items = _items(detail)
    return invalid_fields(detail), text_of(items[0].get("type")) if items else ""


def invalid_fields(detail: Any) -> str:
    """Return the list under `detail` in words; empty if it is none."""
    return "; ".join(t for t in map(_item, _items(detail)) if t)


def _items(detail: Any) -> list[dict[str, Any]]:
    return [d for d in detail if isinstance(d, dict)] if isinstance(detail, list) else []


def _item(item: dict[str, Any]) -> str:
    """Return one entry of the list. The bridge's own messages name the place already."""
    text, location = text_of(item.get("msg")), item.get("loc")
    pieces = [str(p) for p in location if p != "body"] if isinstance(location, list) else []
    own = pieces and text.startswith(pieces[0])
    return f"{'.'.join(pieces)}: {text}" if pieces and text and not own else text
