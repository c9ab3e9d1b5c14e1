"""Failures <-> the error object of chat completions (section 7).

`{"error": {"message", "type", "param", "code"}}`. Clients act on the HTTP status and on `code`, so the backend's own
are kept where they are about the request, and hidden where they are about the bridge's key.
"""

from __future__ import annotations

from typing import Any

from adapters.openai_chat.wire import PIECES
from bridge.codec import WireResponse, json_response
from bridge.codec.jsontext import MAX_DEPTH, deeper_than, dumps, loads, loads_ragged, mended
from bridge.codec.redact import masked
from bridge.errors import BY_STATUS, KEY_REFUSED, ErrorCode, Failure

_REQUEST, _SERVER, _UPSTREAM = "invalid_request_error", "server_error", "upstream_error"

# Our code -> the wire's `type` and `code`.
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

# Said by a backend these mean something else: its key check, its crash.
_NOT_OURS = frozenset({ErrorCode.UNAUTHORIZED, ErrorCode.FORBIDDEN, ErrorCode.INTERNAL})

# The wire's `code` (or `type`) -> our code: the words above, and those of other servers.
_CODES: dict[str, ErrorCode] = {
    **{word: code for code, (_, word) in WORDS.items() if word and code not in _NOT_OURS},
    "invalid_api_key": ErrorCode.BACKEND_AUTH,
    "permission_denied": ErrorCode.BACKEND_AUTH,
    "authentication_error": ErrorCode.BACKEND_AUTH,
    "insufficient_quota": ErrorCode.RATE_LIMITED,
    "overloaded_error": ErrorCode.OVERLOADED,
    "content_policy_violation": ErrorCode.CONTENT_FILTER,
    "data_inspection_failed": ErrorCode.CONTENT_FILTER,  # DashScope, capture dashscope-error-inline
    "invalid_request_error": ErrorCode.INVALID_REQUEST,
}

_STATUSES = {**BY_STATUS, 529: ErrorCode.OVERLOADED}
_KEPT_STATUSES = frozenset({400, 404, 413, 422, 429, 503, 529})
"""Statuses that tell the caller something true of this request; the client sees them as they are."""

_LIMIT_TEXTS = ("maximum context length", "context length exceeded", "context window")


# ------------------------------------------------------------------ towards clients


def error_object(failure: Failure) -> dict[str, Any]:
    """The object under `error`. All four members are always there; the SDK reads each."""
    kind, word = WORDS[failure.code]
    return {
        "message": masked(failure.message) or "Unknown error.",
        "type": kind,
        "param": failure.param,
        "code": failure.backend_code or word,
    }


def encode_error(failure: Failure) -> WireResponse:
    """The whole response. The SDK repeats 408, 409, 429 and 5xx by itself, so it is told when that is pointless."""
    status = failure.http_status
    headers = dict(failure.headers)
    if not failure.may_retry and (status in (408, 409, 429) or status >= 500):
        headers.setdefault("x-should-retry", "false")
    return json_response(dumps({"error": error_object(failure)}), status, headers)


# ------------------------------------------------------------------ from backends


def decode_error(wire: WireResponse) -> Failure:
    """What a response with an error status means for the caller."""
    value = read_json(wire.body)
    error = error_in(value)
    if error is None and isinstance(value, dict) and _message(value):
        error = value  # `{"message": "..."}` alone (Mistral) tells of an error only beside such a status
    headers = {k: v for k, v in wire.headers.items() if _passes(k)}
    if error is None and wire.status not in (401, 403):
        code = _STATUSES.get(wire.status, ErrorCode.BACKEND_ERROR)
        if code not in (ErrorCode.RATE_LIMITED, ErrorCode.OVERLOADED, ErrorCode.BACKEND_TIMEOUT, ErrorCode.TOO_LARGE):
            code = ErrorCode.BACKEND_ERROR  # a proxy's page says nothing of the request: wrong address, crash
        status = wire.status if code is not ErrorCode.BACKEND_ERROR and wire.status in _KEPT_STATUSES else None
        return Failure(code, f"The backend answered with status {wire.status}.", status=status, headers=headers)
    failure = failure_of(error or {}, wire.status)
    failure.headers = headers
    return failure


def _passes(header: str) -> bool:
    return header in ("retry-after", "retry-after-ms") or header.startswith("x-ratelimit-")


def read_json(body: bytes) -> Any:
    """The JSON value of a body, None when it is none or too deep to be handed on."""
    try:
        value = loads(body)
    except ValueError:
        try:
            value = mended_body(body)
        except ValueError:
            return None
    return None if deeper_than(value, MAX_DEPTH) else value


def mended_body(data: bytes) -> Any:
    """JSON with lone surrogates, which orjson refuses. Raises `ValueError` for what is not JSON or too deep."""
    value = loads_ragged(data)
    if deeper_than(value, MAX_DEPTH):
        raise ValueError("nested too deep")
    return mended(value, PIECES)


def error_in(value: Any) -> dict[str, Any] | None:
    """The error that a JSON value tells of, in one shape; None when it tells of none.

    Seen: `{"error": {...}}`, `{"error": "text"}`, `{"object": "error", "message"}` (vLLM), `{"detail"}` (FastAPI),
    `{"code", "message"}`; a list around one of them comes from Gemini's gateway.
    """
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if isinstance(error, dict) and error:
        return error
    if error:
        # `{"error": "Not Found", "message": "...", "status": 404}`: the word stands beside the rest
        return {**value, "message": value.get("message") or error}
    if value.get("object") == "error" or ("message" in value and "code" in value):
        return value
    if value.get("detail"):
        return {"message": value["detail"]}
    return None


def failure_of(error: dict[str, Any], status: int | None = None) -> Failure:
    """The failure that an error object means; without an HTTP status its own numeric code stands for one."""
    code, kind = error.get("code"), error.get("type")
    if status is None:
        status = _as_status(code) or _as_status(error.get("status"))
    ours = _classify(code, kind, status, _message(error))
    if ours is ErrorCode.BACKEND_AUTH:
        return Failure(ours, KEY_REFUSED)
    param = error.get("param")
    return Failure(
        ours,
        masked(_message(error)) or "The backend reported an error without a message.",
        param=param if isinstance(param, str) and param else None,
        status=status if status in _KEPT_STATUSES else None,
        backend_code=_word(code),
    )


def _classify(code: Any, kind: Any, status: int | None, message: str) -> ErrorCode:
    """Status first where it is about the key; then the words; then the status."""
    if status in (401, 403):
        return ErrorCode.BACKEND_AUTH
    found = _CODES.get(code) if isinstance(code, str) else None
    if found is None and status in (None, 400) and any(t in message.lower() for t in _LIMIT_TEXTS):
        found = ErrorCode.CONTEXT_LENGTH  # vLLM has no code for it, capture vllm-400-object-error
    if found is None and isinstance(kind, str):
        found = _CODES.get(kind)
    by_status = _STATUSES.get(status, ErrorCode.BACKEND_ERROR) if status else None
    if found is ErrorCode.INVALID_REQUEST and by_status is not None:
        found = None  # OpenAI says invalid_request_error with 404 and 413 as well
    return found or by_status or ErrorCode.BACKEND_ERROR


def _message(error: dict[str, Any]) -> str:
    for name in ("message", "msg", "detail"):
        value = error.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, (dict, list)) and value:
            return dumps(value).decode()
    return ""


def _as_status(code: Any) -> int | None:
    if isinstance(code, str) and code.isdecimal() and len(code) == 3:
        code = int(code)
    return code if isinstance(code, int) and not isinstance(code, bool) and 400 <= code <= 599 else None


def _word(code: Any) -> str | None:
    """The backend's code when it is a word: numbers repeat the status and mean nothing to clients."""
    return masked(code) if isinstance(code, str) and code and not code.isdecimal() else None
