"""Translate failures to AG-Kit errors and back, before a stream and inside one."""

from __future__ import annotations

from typing import Any

from bridge.codec import WireResponse, json_response
from bridge.codec.fastapi import detail_response, refusal_in
from bridge.codec.inner_errors import unwrapped
from bridge.codec.jsontext import dumps, read_json
from bridge.codec.ratelimits import passed_on
from bridge.codec.redact import LONGEST_WORD, masked
from bridge.errors import BY_STATUS, KEY_REFUSED, RULES, ErrorCode, Failure

MAX_ERROR_LENGTH = 500
"""Maximum length of an error's text inside a stream, in characters: chat clients display it."""

GENERATION_2 = "generation 2"
"""The key of `Failure.details` that marks the failure of a request of generation 2."""

_OWN_CODES = frozenset(map(str, ErrorCode))
# Error codes of generation 2: those documented, and those that match documented statuses.
_GENERATION_2_CODES: dict[ErrorCode, str] = {
    ErrorCode.INVALID_REQUEST: "INVALID_REQUEST",
    ErrorCode.UNSUPPORTED: "INVALID_REQUEST",
    ErrorCode.INTERNAL: "INTERNAL_ERROR",
}


# ------------------------------------------------------------------ inside a stream


def error_text(failure: Failure) -> str:
    """Return the text of an `error` event: shortened, without keys and addresses."""
    return masked(failure.message, MAX_ERROR_LENGTH, addresses=True) or "The run failed."


def error_as_text(error: str) -> str:
    """Return an error as a text of the answer."""
    return f"Error: {error}"


def failure_of(event: dict[str, Any]) -> Failure:
    """Return the failure in an event with `error`, a text or an object with a message.

    `details`, in that object or in the event, are appended.
    """
    error: Any = event.get("error")
    details: Any = event.get("details")
    if isinstance(error, dict):
        details = details or error.get("details")
        error = error.get("message")
    texts = [t for t in (error, details) if isinstance(t, str) and t.strip()]
    message = masked(": ".join(texts)) if texts else "The backend reported an error."
    return unwrapped(Failure(ErrorCode.BACKEND_ERROR, message))


# ------------------------------------------------------------------ before a stream


def encode_error(failure: Failure) -> WireResponse:
    """Return a response in the reference server's shape, that of FastAPI; invalid requests are 422."""
    if GENERATION_2 in failure.details:
        return _encode_generation2(failure)
    return detail_response(failure, masked(failure.message, MAX_ERROR_LENGTH))


def _encode_generation2(failure: Failure) -> WireResponse:
    """Return a response in the shape of generation 2, whose server answers an invalid request with 400."""
    wire_code = _GENERATION_2_CODES.get(failure.code) or str(failure.code).upper()
    error = {"code": wire_code, "message": masked(failure.message, MAX_ERROR_LENGTH)}
    body = {"error": error, "requestId": failure.details.get(GENERATION_2) or "unknown"}
    return json_response(dumps(body), failure.http_status, dict(failure.headers))


def decode_error(wire: WireResponse) -> Failure:
    """Return the failure of an error response of either generation. HTML pages are not quoted."""
    headers = passed_on(wire.headers)
    if wire.status in (401, 403):
        return Failure(ErrorCode.BACKEND_AUTH, KEY_REFUSED, headers=headers)
    body = read_json(wire.body)
    if wire.status == 422 and _is_missing_conversation(body):
        text = "The backend speaks generation 1 of AG-Kit; its option generation must say so."
        return Failure(ErrorCode.BACKEND_PROTOCOL, text)
    text, wire_code = refusal_in(body)
    details = body.get("details") if text and isinstance(body, dict) else None
    if isinstance(details, str) and details:
        text = f"{text}: {details}"
    default = ErrorCode.BACKEND_ERROR if wire.status >= 500 else ErrorCode.INVALID_REQUEST
    code = ErrorCode(wire_code) if wire_code in _OWN_CODES else BY_STATUS.get(wire.status, default)
    message = masked(text) if text else f"The backend answered with HTTP status {wire.status}."
    wire_code = masked(wire_code, LONGEST_WORD)
    return unwrapped(Failure(code, message, None, _kept_status(code, wire.status), wire_code or None, headers))


def _kept_status(code: ErrorCode, status: int) -> int | None:
    """Return the backend's status if it and the default status of the code are different 4xx statuses."""
    return status if 400 <= RULES[code].http < 500 and 400 <= status < 500 and status != RULES[code].http else None


def _is_missing_conversation(body: Any) -> bool:
    """Return whether a request was refused for lack of `conversationId`, which only requests of generation 2 lack."""
    detail = body.get("detail") if isinstance(body, dict) else None
    items = detail if isinstance(detail, list) else []
    return any(
        isinstance(i, dict) and i.get("type") == "missing" and i.get("loc") == ["body", "conversationId"] for i in items
    )
