"""The errors of OpenAI's APIs: `{"error": {"message", "type", "param", "code"}}`.

Clients act on the HTTP status and on `code`, so a backend's own values are kept where they are about the request, and
hidden where they are about the bridge's key. Status and headers are those of `ErrorTable.response`.
"""

from __future__ import annotations

from typing import Any

from bridge.contract.wire import WireResponse
from bridge.errors import RULES, ErrorCode, Failure
from bridge.toolkit.error_table import ErrorTable
from bridge.toolkit.ratelimits import OPENAI
from bridge.toolkit.redact import LONGEST_WORD, masked

_REQUEST, _SERVER, _UPSTREAM = "invalid_request_error", "server_error", "upstream_error"

# Error code of the bridge -> `type` and `code` of the wire.
WORDS: dict[ErrorCode, tuple[str, str | None]] = {
    ErrorCode.INVALID_REQUEST: (_REQUEST, None),
    ErrorCode.UNAUTHORIZED: (_REQUEST, "invalid_api_key"),
    ErrorCode.FORBIDDEN: (_REQUEST, "permission_denied"),
    ErrorCode.NOT_FOUND: (_REQUEST, "model_not_found"),
    ErrorCode.CONFLICT: (_REQUEST, "conflict"),
    ErrorCode.TOO_LARGE: (_REQUEST, "request_too_large"),
    ErrorCode.UNSUPPORTED: (_REQUEST, "unsupported"),
    ErrorCode.RATE_LIMITED: ("rate_limit_error", "rate_limit_exceeded"),
    ErrorCode.OVERLOADED: (_SERVER, "overloaded"),
    ErrorCode.CONTEXT_LENGTH: (_REQUEST, "context_length_exceeded"),
    ErrorCode.CONTENT_FILTER: (_REQUEST, "content_filter"),
    ErrorCode.BACKEND_AUTH: (_UPSTREAM, "backend_auth"),
    ErrorCode.BACKEND_UNAVAILABLE: (_UPSTREAM, "backend_unavailable"),
    ErrorCode.BACKEND_TIMEOUT: (_UPSTREAM, "backend_timeout"),
    ErrorCode.BACKEND_ERROR: (_UPSTREAM, "upstream_error"),
    ErrorCode.BACKEND_PROTOCOL: (_UPSTREAM, "backend_protocol"),
    ErrorCode.TRUNCATED_STREAM: (_UPSTREAM, "truncated_stream"),
    ErrorCode.CANCELED: ("canceled", "canceled"),
    ErrorCode.RUN_LOST: (_SERVER, "run_lost"),
    ErrorCode.RUN_TIMEOUT: (_SERVER, "run_timeout"),
    ErrorCode.STORE_UNAVAILABLE: (_SERVER, "store_unavailable"),
    ErrorCode.INTERNAL: (_SERVER, "internal_error"),
}

_STATUS_NAMES = frozenset(rule.grpc for rule in RULES.values())
"""Words of Google that only repeat the status."""


ERRORS = ErrorTable(
    codes={
        **{word: code for code, (_, word) in WORDS.items() if word and code is not ErrorCode.INTERNAL},
        "invalid_api_key": ErrorCode.BACKEND_AUTH,
        "permission_denied": ErrorCode.BACKEND_AUTH,
        "authentication_error": ErrorCode.BACKEND_AUTH,
        "insufficient_quota": ErrorCode.RATE_LIMITED,
        "overloaded_error": ErrorCode.OVERLOADED,
        "content_policy_violation": ErrorCode.CONTENT_FILTER,
        "data_inspection_failed": ErrorCode.CONTENT_FILTER,  # DashScope, capture dashscope-error-inline
    },
    kept=frozenset({400, 404, 413, 422, 429, 503, 529}),
    own=frozenset(),
    headers=OPENAI,
    tells_retries=True,
)


def error_object(failure: Failure) -> dict[str, Any]:
    """Return the object under `error`. All four members are always there; the SDK reads each."""
    kind, word = WORDS[failure.code]
    theirs = failure.backend_code
    if theirs in _STATUS_NAMES or failure.code is ErrorCode.CONTEXT_LENGTH:
        theirs = None  # clients shorten the conversation only if they see the code of this API
    return {
        "message": ERRORS.text(failure),
        "type": kind,
        "param": None if failure.param is None else masked(failure.param, LONGEST_WORD),
        "code": masked(theirs, LONGEST_WORD) if theirs else word,
    }


def encode_error(failure: Failure) -> WireResponse:
    """Return the error response."""
    return ERRORS.response(failure, {"error": error_object(failure)})
