"""Failures <-> the error object of Anthropic Messages (docs/dialects/anthropic-messages.md).

`{"type": "error", "error": {"type", "message"}}`, the same before a stream and inside it. Clients act on the HTTP
status, on `error.type`, and on the beginning of one message: "prompt is too long" makes them shorten the conversation.
"""

from __future__ import annotations

from typing import Any

from bridge.codec import WireResponse, json_response
from bridge.codec.errors import STATUSES, code_in, error_in, is_full_context, words_in
from bridge.codec.jsontext import dumps, read_json, text_of
from bridge.codec.ratelimits import ANTHROPIC, passed_on
from bridge.codec.redact import LONGEST_WORD, masked
from bridge.errors import KEY_REFUSED, ErrorCode, Failure

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

# `type` of the wire -> code of the bridge, for backends: errors about keys and bills are about the bridge's own.
_CODES: dict[str, ErrorCode] = {
    "authentication_error": ErrorCode.BACKEND_AUTH,
    "permission_error": ErrorCode.BACKEND_AUTH,
    "billing_error": ErrorCode.BACKEND_AUTH,
    "not_found_error": ErrorCode.NOT_FOUND,
    "request_too_large": ErrorCode.TOO_LARGE,
    "rate_limit_error": ErrorCode.RATE_LIMITED,
    "timeout_error": ErrorCode.BACKEND_TIMEOUT,
    "overloaded_error": ErrorCode.OVERLOADED,
    "api_error": ErrorCode.BACKEND_ERROR,
    _REQUEST: ErrorCode.INVALID_REQUEST,
}
_OWN_CODES = frozenset(map(str, ErrorCode)) - {ErrorCode.UNAUTHORIZED, ErrorCode.FORBIDDEN, ErrorCode.INTERNAL}
"""Codes of the bridge that mean the same when another bridge sends them, unlike its key check and its crash."""

_KEPT_STATUSES = frozenset({400, 404, 413, 422, 429})
"""Statuses that concern the client's request; the client gets them unchanged."""

TOO_LONG = "prompt is too long"


# ------------------------------------------------------------------ towards clients


def error_object(failure: Failure) -> dict[str, Any]:
    """Return the whole object. `code` is the bridge's, if the wire's type is less precise. Clients read the request's
    id in a header, but the field is required all the same.
    """
    message = masked(failure.message) or "Unknown error."
    if failure.code is ErrorCode.CONTEXT_LENGTH and not message.lower().startswith(TOO_LONG):
        message = f"{TOO_LONG}: {message}"
    error = {"type": WORDS[failure.code], "message": message}
    if _CODES.get(error["type"]) is not failure.code:
        error["code"] = str(failure.code)
    return {"type": "error", "error": error, "request_id": None}


def encode_error(failure: Failure) -> WireResponse:
    """Return the error response. The SDK repeats 408, 409, 429 and 5xx, so a header tells it if that is pointless."""
    # An overloaded backend is always a 529 here, whatever its own status.
    status = 529 if failure.code is ErrorCode.OVERLOADED else failure.http_status
    headers = dict(failure.headers)
    if not failure.may_retry and (status in (408, 409, 429) or status >= 500):
        headers.setdefault("x-should-retry", "false")
    return json_response(dumps(error_object(failure)), status, headers)


# ------------------------------------------------------------------ from backends


def decode_error(wire: WireResponse) -> Failure:
    """Return the failure that a response with an error status means for the caller."""
    error = error_in(read_json(wire.body), refused=True)
    headers = passed_on(wire.headers, ANTHROPIC)
    code = STATUSES.get(wire.status, ErrorCode.BACKEND_ERROR)
    if error is None and code not in _TOLD_BY_STATUS:
        code = ErrorCode.BACKEND_ERROR  # a proxy's page does not concern the request: wrong address, crash
    if error is None and code is not ErrorCode.BACKEND_AUTH:
        failure = Failure(code, f"The backend answered with status {wire.status}.")
    else:
        failure = failure_of(error or {}, wire.status)
    failure.status = wire.status if wire.status in _KEPT_STATUSES and failure.code in _ABOUT_THE_REQUEST else None
    failure.headers = headers
    return failure


_TOLD_BY_STATUS = frozenset(
    {
        ErrorCode.RATE_LIMITED, ErrorCode.OVERLOADED, ErrorCode.BACKEND_TIMEOUT, ErrorCode.TOO_LARGE,
        ErrorCode.BACKEND_AUTH, ErrorCode.BACKEND_UNAVAILABLE,
    }
)  # fmt: skip
_ABOUT_THE_REQUEST = frozenset(
    {
        ErrorCode.INVALID_REQUEST, ErrorCode.NOT_FOUND, ErrorCode.TOO_LARGE, ErrorCode.RATE_LIMITED,
        ErrorCode.CONTEXT_LENGTH, ErrorCode.CONTENT_FILTER, ErrorCode.UNSUPPORTED,
    }
)  # fmt: skip


def failure_of(error: dict[str, Any], status: int | None = None) -> Failure:
    """The failure that an error object means; the status decides where it is about keys or nothing else is known."""
    message = words_in(error)
    code = _classify(error, status)
    if code is ErrorCode.BACKEND_AUTH:
        return Failure(code, KEY_REFUSED)
    word = text_of(error.get("code"))
    return Failure(
        code,
        masked(message) or "The backend reported an error without a message.",
        backend_code=masked(word, LONGEST_WORD) if word and word not in _OWN_CODES else None,
    )


def _classify(error: dict[str, Any], status: int | None) -> ErrorCode:
    kind, word = text_of(error.get("type")), text_of(error.get("code"))
    by_status = STATUSES.get(status) if status else None
    if by_status is ErrorCode.BACKEND_AUTH:
        return by_status
    if word in _OWN_CODES:
        return ErrorCode(word)
    found = _CODES.get(kind)
    if found in (None, ErrorCode.INVALID_REQUEST) and status != 429 and is_full_context(words_in(error)):
        return ErrorCode.CONTEXT_LENGTH
    if found in (ErrorCode.INVALID_REQUEST, ErrorCode.BACKEND_ERROR) and by_status is not None:
        return by_status  # the two types that servers use for everything
    return found or by_status or code_in(error) or ErrorCode.BACKEND_ERROR
