"""JSON as wires really carry it.

orjson is the fast path. It refuses what some servers send - lone surrogate escapes - and what some clients
try - NaN, very deep nesting; the slow path reads the former and names the latter.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, TypeGuard

import orjson

from bridge.errors import ErrorCode, RequestError, Wrong
from bridge.model.surrogates import repair, repaired
from bridge.model.text import json_text

loads = orjson.loads
"""The fast path. Raises `ValueError` (orjson.JSONDecodeError) for everything it refuses."""

MAX_DEPTH = 200
"""Deeper values are refused: orjson writes 254 levels, the standard library a few hundred before it gives up."""
NESTABLE = 2 * MAX_DEPTH
"""Bytes; a shorter text cannot be nested too deep."""


def loads_unpaired(data: bytes | str) -> Any:
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
        raise ValueError(f"{digits} is too large for a number")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def loads_repaired(data: bytes | str) -> Any:
    """As `loads_unpaired`, with lone surrogates replaced. Raises `ValueError`, also for what is too deep."""
    value = loads_unpaired(data)
    if deeper_than(value, MAX_DEPTH):
        raise ValueError("nested too deep")
    return repaired(value)


def read_json(body: bytes) -> Any:
    """Return the JSON value of a backend's body; None if it is invalid or too deeply nested."""
    try:
        value = loads(body)
    except ValueError:
        try:
            return loads_repaired(body)
        except ValueError:
            return None
    return None if len(body) > NESTABLE and may_nest(body) and deeper_than(value, MAX_DEPTH) else value


_NUMBERS = frozenset({int, float})  # excludes true and false


def text_of(value: object) -> str:
    """Return the value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def dict_of(value: object) -> dict[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def dicts_of(value: object) -> list[dict[str, Any]]:
    """Return the objects of a list; an empty list for any other value."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def is_object(text: str) -> bool:
    """Return whether a text is a JSON object."""
    try:
        return isinstance(loads(text), dict)
    except ValueError:
        return False


def escape_line_breaks(payload: bytes) -> bytes:
    """Return JSON with U+0085, U+2028 and U+2029 escaped, for readers that split at all Unicode line breaks.

    In valid UTF-8 these bytes encode nothing else, and in JSON they occur inside strings only.
    """
    if payload.isascii():
        return payload
    # A search for one byte is fast, and most text has neither of these lead bytes (measured: 60 ns instead of 200).
    if 0xE2 in payload:
        payload = payload.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return payload.replace(b"\xc2\x85", b"\\u0085") if 0xC2 in payload else payload


def is_number(value: Any) -> TypeGuard[int | float]:
    """Return whether this JSON value is a finite number, not a bool."""
    return type(value) in _NUMBERS and abs(value) < 1e15


def whole(value: Any) -> int | None:
    """Such a number as an integer; None for anything else."""
    return int(value) if type(value) in _NUMBERS and abs(value) < 1e15 else None


def dumps(value: Any) -> bytes:
    """Compact JSON in UTF-8. Lone surrogates become U+FFFD, integers beyond 64 bits are written whole."""
    try:
        return orjson.dumps(value)
    except TypeError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return repair(text).encode()


def read_body(body: bytes) -> dict[str, Any]:
    """A request body that must be a JSON object.

    Raises `RequestError` with the position of a JSON error, or the kind of the value if it is not an object.
    """
    if not body.strip():
        raise RequestError("The request body is empty; a JSON object is expected.", wrong=Wrong.EMPTY)
    try:
        value = orjson.loads(body)
    except ValueError as error:
        value = _read_slowly(body, error)
    if not isinstance(value, dict):
        raise RequestError(f"The request body must be a JSON object, but it is {kind_of(value)}.")
    if len(body) > NESTABLE and may_nest(body) and deeper_than(value, MAX_DEPTH):
        raise RequestError(f"The request body is nested deeper than {MAX_DEPTH} levels.")
    return value


def _read_slowly(body: bytes, error: ValueError) -> Any:
    try:
        return loads_unpaired(body)
    except _TooDeep:
        raise RequestError(f"The request body is nested deeper than {MAX_DEPTH} levels.") from None
    except UnicodeDecodeError:
        raise RequestError("The request body is not UTF-8.", wrong=Wrong.ENCODING) from None
    except ValueError:
        position = getattr(error, "pos", None)
        where = f" at character {position}" if position is not None else ""
        reason = str(error).partition(":")[0]
        raise RequestError(
            f"The request body is not valid JSON{where}: {reason}.", code=ErrorCode.INVALID_REQUEST, wrong=Wrong.JSON
        ) from None


def repeats(body: bytes, name: str) -> bool:
    """Return whether a JSON object has this member more than once. Readers differ in which of them they take."""
    last: list[tuple[str, Any]] = []

    def keep(pairs: list[tuple[str, Any]]) -> None:
        last[:] = pairs  # that of the outermost object comes last

    json.loads(body, object_pairs_hook=keep)
    return sum(each == name for each, _ in last) > 1


_PIECE = 64 * 1024
"""Bytes in which brackets are counted together."""


def may_nest(body: bytes, limit: int = MAX_DEPTH) -> bool:
    """A cheap look: can this JSON text be nested deeper than `limit` at all?"""
    if len(body) <= 2 * limit:
        return False
    for start in range(0, len(body), _PIECE):
        piece = body[start : start + _PIECE]
        for bracket in (b"[", b"{"):
            # As a count, a tenth of what `bytes.count` takes: that looks at each byte, this skips those between two.
            limit -= len(piece) - len(piece.replace(bracket, b""))
        if limit < 0:
            return True
    return False


def deeper_than(value: Any, limit: int) -> bool:
    """Return whether objects and lists are nested deeper than `limit`. Walks by level, so depth costs no stack."""
    level: list[Any] = [value]
    for _ in range(limit + 1):
        level = [each for each in level if type(each) in _NESTED]
        if not level:
            return False
        below: list[Any] = []
        for each in level:
            below += each.values() if type(each) is dict else each
        level = below
    return True


_NESTED = frozenset({dict, list})


def kind_of(value: Any) -> str:
    """Return the name of a JSON type for an error message."""
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


_INVALID = "INVALID_JSON"


def input_of(arguments: str) -> dict[str, Any]:
    """Return the object for an arguments string. Text that is not a JSON object is put under a key of its own,
    unchanged; Anthropic's page on fine-grained tool streaming names that key.
    """
    if not arguments.strip():
        return {}
    try:
        value = loads(arguments)
    except ValueError:
        return {_INVALID: arguments}
    return value if isinstance(value, dict) else {_INVALID: arguments}


def arguments_text(value: Any) -> str:
    """Return a call's arguments as the text that they are on the wire; some servers and agents send the object."""
    return value if isinstance(value, str) else "" if value is None else json_text(value)


def arguments_of(value: Any) -> str:
    """Return the arguments string for such an object; `input_of` undoes it."""
    if isinstance(value, dict) and value.keys() == {_INVALID} and isinstance(value[_INVALID], str):
        return str(value[_INVALID])
    return json_text(value)
