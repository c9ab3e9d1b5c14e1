"""Failures: a body that the client shows as it is before the stream, an `error` chunk inside it."""

from __future__ import annotations

from typing import Any

from bridge.codec import WireResponse, json_response
from bridge.codec.errors import code_in, error_in, words_in
from bridge.codec.inner_errors import unwrapped
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
    return unwrapped(Failure(ErrorCode.BACKEND_ERROR, masked(text_of(text)) or _UNNAMED))


def failure_of(error: dict[str, Any]) -> Failure:
    """Return the failure of an error object in place of an answer."""
    code = code_in(error) or ErrorCode.BACKEND_ERROR
    if code is ErrorCode.BACKEND_AUTH:
        return Failure(code, KEY_REFUSED)
    return unwrapped(Failure(code, masked(words_in(error)) or _UNNAMED))


def decode_error(wire: WireResponse) -> Failure:
    """Return the failure of an error status, without a backend's message about keys."""
    headers, details = passed_on(wire.headers), {"backend_status": wire.status}
    code = BY_STATUS.get(wire.status, ErrorCode.BACKEND_ERROR)
    if code is ErrorCode.BACKEND_AUTH:
        return Failure(code, KEY_REFUSED, headers=headers, details=details)
    if code is ErrorCode.NOT_FOUND:
        code = ErrorCode.BACKEND_ERROR  # a wrong address does not concern the request
    text = text_of((error_in(read_json(wire.body), refused=True) or {}).get("message"))
    message = masked(text) if text else f"The backend answered with HTTP status {wire.status}."
    return unwrapped(Failure(code, message, headers=headers, details=details))
