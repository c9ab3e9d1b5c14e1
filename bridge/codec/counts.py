"""Token counts as APIs of models write them."""

from __future__ import annotations

from typing import Any, TypeGuard

from bridge.errors import BackendError, ErrorCode

from .jsontext import is_number, read_json
from .wire import WireResponse

NOT_REPORTED = "zeros; the backend reported no usage"
"""The detail of a lost usage: the wire requires one, and the backend did not report any."""


def is_count(value: Any) -> TypeGuard[int]:
    """Return whether this JSON value is a count."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1e15


def is_all_zeros(usage: dict[str, Any]) -> bool:
    """Return whether all numbers of a usage object are zero.

    Servers that do not count tokens write zeros, because clients require numbers. No real answer takes zero tokens.
    """
    inner = (v for value in usage.values() for v in (value.values() if isinstance(value, dict) else (value,)))
    return not any(is_number(v) and v for v in inner)


def input_tokens_in(wire: WireResponse) -> int:
    """Return the `input_tokens` in a backend's count. Raises `BackendError` if there are none."""
    value = read_json(wire.body)
    tokens = value.get("input_tokens") if isinstance(value, dict) else None
    if not is_count(tokens):
        raise BackendError("The backend's answer is not a token count.", code=ErrorCode.BACKEND_PROTOCOL)
    return tokens
