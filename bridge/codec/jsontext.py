"""JSON as wires really carry it.

orjson is the fast path. It refuses what some servers send - lone surrogate escapes - and what some clients
try - NaN, very deep nesting; the slow path reads the former and names the latter.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

import orjson

from bridge.errors import ErrorCode, RequestError

loads = orjson.loads
"""The fast path. Raises `ValueError` (orjson.JSONDecodeError) for everything it refuses."""

MAX_DEPTH = 256


def loads_ragged(data: bytes) -> Any:
    """Reads JSON that orjson refused because of lone surrogates; strings may then hold them.

    Raises `ValueError` for what is not JSON, NaN and Infinity included.
    """
    try:
        return json.loads(data, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise _TooDeep("nested too deep") from None


class _TooDeep(ValueError):
    """Beyond what the slow path can read at all."""


def _finite(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise ValueError(f"{digits} is beyond what a number can hold")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def dumps(value: Any) -> bytes:
    """Compact JSON in UTF-8. Lone surrogates become U+FFFD, integers beyond 64 bits are written whole."""
    try:
        return orjson.dumps(value)
    except TypeError:
        from bridge.model.builder import mend

        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return mend(text).encode()


def read_body(body: bytes) -> dict[str, Any]:
    """A request body that must be a JSON object.

    Raises `RequestError` that says where the JSON breaks, or what came instead of an object.
    """
    if not body.strip():
        raise RequestError("The request body is empty; a JSON object is expected.")
    try:
        value = orjson.loads(body)
    except ValueError as error:
        value = _read_slowly(body, error)
    if not isinstance(value, dict):
        raise RequestError(f"The request body must be a JSON object, but it is {kind_of(value)}.")
    if too_deep(body) and _depth(value) > MAX_DEPTH:
        raise RequestError(f"The request body is nested deeper than {MAX_DEPTH} levels.")
    return value


def _read_slowly(body: bytes, error: ValueError) -> Any:
    try:
        return loads_ragged(body)
    except _TooDeep:
        raise RequestError(f"The request body is nested deeper than {MAX_DEPTH} levels.") from None
    except UnicodeDecodeError:
        raise RequestError("The request body is not UTF-8.") from None
    except ValueError:
        place = getattr(error, "pos", None)
        where = f" at character {place}" if place is not None else ""
        reason = str(error).partition(":")[0]
        raise RequestError(
            f"The request body is not valid JSON{where}: {reason}.", code=ErrorCode.INVALID_REQUEST
        ) from None


def too_deep(body: bytes) -> bool:
    """A cheap look: can this body be nested beyond the limit at all?"""
    return body.count(b"[") + body.count(b"{") > MAX_DEPTH


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(v for v in item.values() if isinstance(v, (dict, list)))
            elif isinstance(item, list):
                below.extend(v for v in item if isinstance(v, (dict, list)))
        level = below
    return depth


def kind_of(value: Any) -> str:
    """What a JSON value is, in a person's words."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case dict():
            return "an object"
    return type(value).__name__
