"""Failures <-> the error object of Anthropic Messages (docs/dialects/anthropic-messages.md).

`{"type": "error", "error": {"type", "message"}}`, the same before a stream and inside it. Clients act on the HTTP
status, on `error.type`, and on the beginning of one message: "prompt is too long" makes them shorten the conversation.
"""

from __future__ import annotations

from bridge.contract import WireResponse
from bridge.errors import ErrorCode, Failure
from bridge.toolkit.error_table import ErrorTable, Wire
from bridge.toolkit.ratelimits import ANTHROPIC

_REQUEST, _API = "invalid_request_error", "api_error"

# Code of the bridge -> `type` of the wire.
WORDS: dict[ErrorCode, str] = {
    ErrorCode.INVALID_REQUEST: _REQUEST,
    ErrorCode.UNAUTHORIZED: "authentication_error",
    ErrorCode.FORBIDDEN: "permission_error",
    ErrorCode.NOT_FOUND: "not_found_error",
    ErrorCode.CONFLICT: _REQUEST,
    ErrorCode.TOO_LARGE: "request_too_large",
    ErrorCode.UNSUPPORTED: _REQUEST,
    ErrorCode.RATE_LIMITED: "rate_limit_error",
    ErrorCode.OVERLOADED: "overloaded_error",
    ErrorCode.CONTEXT_LENGTH: _REQUEST,
    ErrorCode.CONTENT_FILTER: _REQUEST,
    ErrorCode.BACKEND_AUTH: _API,
    ErrorCode.BACKEND_UNAVAILABLE: _API,
    ErrorCode.BACKEND_TIMEOUT: "timeout_error",
    ErrorCode.BACKEND_ERROR: _API,
    ErrorCode.BACKEND_PROTOCOL: _API,
    ErrorCode.TRUNCATED_STREAM: _API,
    ErrorCode.CANCELED: _API,
    ErrorCode.RUN_LOST: _API,
    ErrorCode.RUN_TIMEOUT: "timeout_error",
    ErrorCode.STORE_UNAVAILABLE: _API,
    ErrorCode.INTERNAL: _API,
}

TOO_LONG = "prompt is too long"
ERROR_CODE = "error_code"
"""The key, in the details of a failure and of the wire, of a word that clients act on."""

ERRORS = ErrorTable(
    words=WORDS,
    codes={
        "authentication_error": ErrorCode.BACKEND_AUTH,
        "permission_error": ErrorCode.BACKEND_AUTH,
        "billing_error": ErrorCode.BACKEND_AUTH,
        "not_found_error": ErrorCode.NOT_FOUND,
        "request_too_large": ErrorCode.TOO_LARGE,
        "rate_limit_error": ErrorCode.RATE_LIMITED,
        "timeout_error": ErrorCode.BACKEND_TIMEOUT,
        "overloaded_error": ErrorCode.OVERLOADED,
    },
    kept=frozenset({400, 404, 413, 422, 429}),
    headers=ANTHROPIC,
    tells_retries=True,
)
"""Errors about keys and bills are about the bridge's own."""


def error_object(failure: Failure) -> Wire:
    """Return the whole object. `code` is the bridge's, if the wire's type is less precise. Clients read the request's
    id in a header, but the field is required all the same.
    """
    message, kind = ERRORS.text(failure), ERRORS.word(failure)
    if failure.code is ErrorCode.CONTEXT_LENGTH and not message.lower().startswith(TOO_LONG):
        message = f"{TOO_LONG}: {message}"
    error: Wire = {"type": kind, "message": message}
    if _TYPES.get(kind) is not failure.code:
        error["code"] = str(failure.code)
    if ERROR_CODE in failure.details:
        error["details"] = {ERROR_CODE: failure.details[ERROR_CODE]}
    return {"type": "error", "error": error, "request_id": None}


_TYPES = {**ERRORS.codes, _API: ErrorCode.BACKEND_ERROR, _REQUEST: ErrorCode.INVALID_REQUEST}


def encode_error(failure: Failure) -> WireResponse:
    """Return the error response. An overloaded backend is always a 529 here, whatever its own status."""
    status = 529 if failure.code is ErrorCode.OVERLOADED else None
    body = error_object(failure)
    if failure.code is ErrorCode.BACKEND_ERROR:  # by its status, it could not be reached
        body["error"]["code"] = str(failure.code)
    return ERRORS.response(failure, body, status)
