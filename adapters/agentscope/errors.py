"""Failures in AgentScope's words and back, before a stream and inside one."""

from __future__ import annotations

from typing import Any

from bridge.codec import WireResponse
from bridge.codec.fastapi import detail_response, told_in
from bridge.codec.inner_errors import unwrapped
from bridge.codec.jsontext import read_json
from bridge.codec.ratelimits import passed_on
from bridge.codec.redact import LONGEST_WORD, masked
from bridge.errors import BY_STATUS, KEY_REFUSED, ErrorCode, Failure

# Our code -> AgentScope's word. What is not here is said as the last resort below.
_WORDS: dict[ErrorCode, str] = {
    ErrorCode.INVALID_REQUEST: "INVALID_PARAMETER",
    ErrorCode.UNSUPPORTED: "INVALID_PARAMETER",
    ErrorCode.TOO_LARGE: "INVALID_PARAMETER",
    ErrorCode.UNAUTHORIZED: "AUTH_FAILED",
    ErrorCode.FORBIDDEN: "PERMISSION_DENIED",
    ErrorCode.NOT_FOUND: "RESOURCE_NOT_FOUND",
    ErrorCode.RATE_LIMITED: "RATE_LIMIT_EXCEEDED",
    ErrorCode.OVERLOADED: "EXTERNAL_SERVICE_ERROR",
    ErrorCode.CONTEXT_LENGTH: "MODEL_CONTEXT_LENGTH_EXCEEDED",
    ErrorCode.CONTENT_FILTER: "RESPONSE_ERROR",
    ErrorCode.BACKEND_AUTH: "CONFIGURATION_ERROR",
    ErrorCode.BACKEND_UNAVAILABLE: "NETWORK_ERROR",
    ErrorCode.BACKEND_TIMEOUT: "MODEL_TIMEOUT",
    ErrorCode.BACKEND_PROTOCOL: "RESPONSE_ERROR",
    ErrorCode.TRUNCATED_STREAM: "NETWORK_ERROR",
    ErrorCode.RUN_TIMEOUT: "TIMEOUT",
    ErrorCode.CANCELED: "CANCELED",
}
_UNKNOWN = "AGENT_UNKNOWN_ERROR"

# AgentScope's word -> our code; every other word, the Java runtime's "500" among them, is an error of the backend.
# AUTH_FAILED and its like speak of what the agent called, so they are never the client's 401.
_CODES: dict[str, ErrorCode] = {
    "MODEL_TIMEOUT": ErrorCode.BACKEND_TIMEOUT,
    "TIMEOUT": ErrorCode.BACKEND_TIMEOUT,
    "MODEL_UNAUTHORIZED_ACCESS": ErrorCode.BACKEND_AUTH,
    "AUTH_FAILED": ErrorCode.BACKEND_AUTH,
    "TOKEN_EXPIRED": ErrorCode.BACKEND_AUTH,
    "INVALID_TOKEN": ErrorCode.BACKEND_AUTH,
    "CONFIGURATION_ERROR": ErrorCode.BACKEND_AUTH,
    "MODEL_QUOTA_EXCEEDED": ErrorCode.RATE_LIMITED,
    "RATE_LIMIT_EXCEEDED": ErrorCode.RATE_LIMITED,
    "MODEL_CONTEXT_LENGTH_EXCEEDED": ErrorCode.CONTEXT_LENGTH,
    "NETWORK_ERROR": ErrorCode.BACKEND_UNAVAILABLE,
    "INVALID_PARAMETER": ErrorCode.INVALID_REQUEST,
    "MISSING_PARAMETER": ErrorCode.INVALID_REQUEST,
    "PARAMETER_VALIDATION": ErrorCode.INVALID_REQUEST,
    "CANCELED": ErrorCode.CANCELED,
}
# A status that says why says it also of an error whose word is unknown.
_BY_STATUS = {"rejected": ErrorCode.CONTENT_FILTER, "canceled": ErrorCode.CANCELED}
_STATUSES = {**BY_STATUS, 499: ErrorCode.CANCELED}
_OWN_CODES = frozenset(map(str, ErrorCode))


# ------------------------------------------------------------------ inside a stream


def error_object(failure: Failure, word: str | None = None, status: str = "failed") -> dict[str, Any]:
    """`error` of a response with this status. `word` is what an AgentScope backend called it.

    Where the word says less than we know, `reason` names our own code; clients read `code` and `message` only.
    """
    chosen = word if word and _code_of(word, status) is failure.code else None
    if chosen is None and failure.code is ErrorCode.NOT_FOUND and failure.backend_code == "model_not_found":
        chosen = "MODEL_NOT_FOUND"
    chosen = masked(chosen, LONGEST_WORD) if chosen else _WORDS.get(failure.code, _UNKNOWN)
    error = {"code": chosen, "message": masked(failure.message)}
    if _code_of(chosen, status) is not failure.code:
        error["reason"] = str(failure.code)
    return error


def _code_of(word: str | None, status: object) -> ErrorCode:
    """Return our code for AgentScope's word; for an unknown one, what the status says."""
    default = _BY_STATUS.get(status, ErrorCode.BACKEND_ERROR) if isinstance(status, str) else ErrorCode.BACKEND_ERROR
    return _CODES.get(word or "", default)


def has_error(error: object) -> bool:
    """Return whether an `error` says anything: a text, or an object whose values are not all null."""
    return any(v is not None for v in error.values()) if isinstance(error, dict) else bool(error)


def failure_of(error: object, fallback: str = "The backend reported an error.", status: object = None) -> Failure:
    """Return the failure in an `error` of a stream: an object with `code` and `message`, or a text.

    `status` is that of the object with the error.
    """
    if isinstance(error, dict):
        word, text, own = error.get("code"), error.get("message"), error.get("reason")
    else:
        word, text, own = None, error, None
    word = str(word) if isinstance(word, (str, int)) and not isinstance(word, bool) else None
    code = _code_of(word, status)
    if isinstance(own, str) and own in _OWN_CODES:
        code = ErrorCode(own)
    message = masked(text) if isinstance(text, str) and text else fallback
    return unwrapped(Failure(code, message, backend_code=word and masked(word, LONGEST_WORD)))


# ------------------------------------------------------------------ before a stream


def encode_error(failure: Failure) -> WireResponse:
    """FastAPI's shape, which is the real server's. Invalid requests are 422 as there."""
    return detail_response(failure, masked(failure.message))


def decode_error(wire: WireResponse) -> Failure:
    """Return the failure that an error status means. A refused key gets our own message; an HTML page is not
    repeated.
    """
    headers = passed_on(wire.headers)
    if wire.status in (401, 403):
        return Failure(ErrorCode.BACKEND_AUTH, KEY_REFUSED, headers=headers)
    text, kind = told_in(read_json(wire.body))
    default = ErrorCode.BACKEND_ERROR if wire.status >= 500 else ErrorCode.INVALID_REQUEST
    code = _STATUSES.get(wire.status, default)
    if kind in _OWN_CODES:
        code = ErrorCode(kind)
    message = masked(text) if text else f"The backend answered with HTTP status {wire.status}."
    return unwrapped(Failure(code, message, backend_code=masked(kind, LONGEST_WORD) or None, headers=headers))
