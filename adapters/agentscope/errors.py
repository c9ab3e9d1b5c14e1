"""Translate failures to AgentScope errors and back, before a stream and inside one."""

from __future__ import annotations

from typing import Any

from bridge.contract import WireResponse
from bridge.errors import ErrorCode, Failure
from bridge.model.jsontext import text_of
from bridge.toolkit.error_table import ErrorTable, members
from bridge.toolkit.errors import STATUSES
from bridge.toolkit.fastapi import detail_response
from bridge.toolkit.redact import LONGEST_WORD, masked

# Code of the bridge -> AgentScope's code; the default below for all others.
_WIRE_CODES: dict[ErrorCode, str] = {
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

# AgentScope's code -> code of the bridge; all others, such as the Java runtime's "500", are errors of the backend.
# AUTH_FAILED and similar codes refer to services that the agent called, so they are never a 401 for the client.
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
# A status that implies a code, for errors with an unknown one.
_CODES_BY_STATUS = {"rejected": ErrorCode.CONTENT_FILTER, "canceled": ErrorCode.CANCELED}

ERRORS = ErrorTable(
    words=_WIRE_CODES,
    default_word="AGENT_UNKNOWN_ERROR",
    codes=_CODES,
    words_of=members("reason", "code", "type"),
    told_of=members("code", "type"),
    statuses={**STATUSES, 499: ErrorCode.CANCELED},
    other_refusals=ErrorCode.INVALID_REQUEST,
    plain=True,
    own=frozenset(),
    inner=True,
)


# ------------------------------------------------------------------ inside a stream


def error_object(failure: Failure, wire_code: str | None = None, status: str = "failed") -> dict[str, Any]:
    """Return `error` of a response with this status. `wire_code` is the code of an AgentScope backend.

    If the code is ambiguous, `reason` contains the bridge's; clients read `code` and `message` only.
    """
    chosen = wire_code if wire_code and _code_of(wire_code, status) is failure.code else None
    if chosen is None and failure.code is ErrorCode.NOT_FOUND and failure.backend_code == "model_not_found":
        chosen = "MODEL_NOT_FOUND"
    chosen = masked(chosen, LONGEST_WORD) if chosen else ERRORS.word(failure)
    error = {"code": chosen, "message": masked(failure.message)}
    if _code_of(chosen, status) is not failure.code:
        error["reason"] = str(failure.code)
    return error


def _code_of(wire_code: str | None, status: object) -> ErrorCode:
    """Return the bridge's code for AgentScope's; for an unknown one, the code implied by the status."""
    default = (
        _CODES_BY_STATUS.get(status, ErrorCode.BACKEND_ERROR) if isinstance(status, str) else ErrorCode.BACKEND_ERROR
    )
    return _CODES.get(wire_code or "", default)


def has_error(error: object) -> bool:
    """Return whether an `error` is not empty: a text, or an object whose values are not all null."""
    return any(v is not None for v in error.values()) if isinstance(error, dict) else bool(error)


def failure_of(error: object, status: object = None) -> Failure:
    """Return the failure in an `error` of a stream: an object with `code` and `message`, or a text.

    `status` is that of the object with the error; it says what an unknown code does not.
    """
    known = error if isinstance(error, dict) else {"message": error}
    failure = ERRORS.failure(known)
    if failure.code is ErrorCode.BACKEND_ERROR:
        failure.code = _CODES_BY_STATUS.get(text_of(status), failure.code)
    return failure


# ------------------------------------------------------------------ before a stream


def encode_error(failure: Failure) -> WireResponse:
    """Return a response in the real server's shape, that of FastAPI; invalid requests are 422."""
    return detail_response(failure, masked(failure.message))
