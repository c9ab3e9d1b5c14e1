"""Failures: a body that the client shows as it is before the stream, an `error` chunk inside it."""

from __future__ import annotations

from typing import Any

from bridge.codec import WireResponse, json_response
from bridge.codec.jsontext import dumps, read_json, text_of
from bridge.codec.ratelimits import passed_on
from bridge.codec.redact import masked
from bridge.errors import BY_STATUS, KEY_REFUSED, ErrorCode, Failure

_UNNAMED = "The backend reported an error."


def error_text(failure: Failure) -> str:
    """The text of an `error` chunk."""
    return masked(failure.message) or "An error occurred."


def encode_error(failure: Failure) -> WireResponse:
    """`{"error": text}`: the official client makes the whole body its error message."""
    return json_response(dumps({"error": error_text(failure)}), failure.http_status, dict(failure.headers))


def failure_in(text: Any) -> Failure:
    """Return the failure that an `error` chunk reports; the protocol has no codes."""
    return Failure(ErrorCode.BACKEND_ERROR, masked(text_of(text)) or _UNNAMED)


def decode_error(wire: WireResponse) -> Failure:
    """Return the failure of an error status, without a backend's message about keys."""
    headers, details = passed_on(wire.headers), {"backend_status": wire.status}
    code = BY_STATUS.get(wire.status, ErrorCode.BACKEND_ERROR)
    if code is ErrorCode.BACKEND_AUTH:
        return Failure(code, KEY_REFUSED, headers=headers, details=details)
    if code is ErrorCode.NOT_FOUND:
        code = ErrorCode.BACKEND_ERROR  # a wrong address does not concern the request
    text = message_in(read_json(wire.body))
    message = masked(text) if text else f"The backend answered with HTTP status {wire.status}."
    return Failure(code, message, headers=headers, details=details)


def message_in(value: Any) -> str:
    """Return the message in a JSON body: of the bridge, of frameworks, and Pydantic's list of errors."""
    if isinstance(value, list):
        return "; ".join(filter(None, map(_entry, value)))
    if isinstance(value, dict):
        inner = next((value[k] for k in ("error", "detail", "message") if value.get(k)), None)
        return inner if isinstance(inner, str) else message_in(inner)
    return ""


def _entry(value: Any) -> str:
    """One of Pydantic's errors: the place and what is wrong there; the input itself is not repeated."""
    if not isinstance(value, dict):
        return ""
    place = value.get("loc")
    where = ".".join(map(str, place)) if isinstance(place, list) else ""
    text = text_of(value.get("msg"))
    return f"{where}: {text}" if where and text else text
