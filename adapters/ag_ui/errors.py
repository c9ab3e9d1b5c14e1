"""Converts failures to AG-UI and back: `RUN_ERROR` inside a stream, a JSON body before it.

The protocol does not define codes. Those used here are common among servers or, where there is none, the bridge's own
in capitals.
"""

from __future__ import annotations

from typing import Any

from bridge.codec import WireResponse, json_response
from bridge.codec.errors import error_in
from bridge.codec.inner_errors import unwrapped
from bridge.codec.jsontext import dumps, read_json, text_of
from bridge.codec.ratelimits import passed_on
from bridge.codec.redact import LONGEST_WORD, masked
from bridge.dialects.ag_ui.wire import OURS
from bridge.errors import BY_STATUS, KEY_REFUSED, ErrorCode, Failure

WORDS: dict[ErrorCode, str] = {
    **{code: str(code).upper() for code in ErrorCode},
    ErrorCode.BACKEND_AUTH: "UPSTREAM_AUTH",
    ErrorCode.BACKEND_UNAVAILABLE: "UPSTREAM_UNAVAILABLE",
    ErrorCode.BACKEND_TIMEOUT: "UPSTREAM_TIMEOUT",
    ErrorCode.BACKEND_ERROR: "UPSTREAM_ERROR",
    ErrorCode.BACKEND_PROTOCOL: "UPSTREAM_PROTOCOL_ERROR",
    ErrorCode.TRUNCATED_STREAM: "UPSTREAM_INCOMPLETE",
    ErrorCode.CANCELED: "RUN_CANCELLED",
}
_HTTP = "UPSTREAM_HTTP_"

# Code of the wire -> code of the bridge. An agent's error about a key is about its own key: never the client's 401.
_CODES: dict[str, ErrorCode] = {
    **{word: code for code, word in WORDS.items()},
    "UNAUTHORIZED": ErrorCode.BACKEND_AUTH,
    "FORBIDDEN": ErrorCode.BACKEND_AUTH,
    "INTERNAL": ErrorCode.BACKEND_ERROR,
    "CANCELLED": ErrorCode.CANCELED,
    "ABORTED": ErrorCode.CANCELED,
    "ABORT": ErrorCode.CANCELED,
    "TIMEOUT": ErrorCode.BACKEND_TIMEOUT,
    "RATE_LIMIT_EXCEEDED": ErrorCode.RATE_LIMITED,
    "CONTEXT_LENGTH_EXCEEDED": ErrorCode.CONTEXT_LENGTH,
}
_INVALID = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED})
_OWN_CODES = frozenset(map(str, ErrorCode))


# ------------------------------------------------------------------ inside a stream


def run_error(failure: Failure) -> dict[str, Any]:
    """Return a `RUN_ERROR`. If its code is ambiguous, the metadata contain the bridge's code and the backend's."""
    word = _word(failure)
    out: dict[str, Any] = {
        "type": "RUN_ERROR",
        "message": masked(failure.message) or "Unknown error.",
        "code": word,
    }
    ours = {} if _code(word) is failure.code else {"code": str(failure.code)}
    if failure.backend_code and word.startswith(_HTTP):
        ours["backend_code"] = masked(failure.backend_code, LONGEST_WORD)
    if ours:
        out["metadata"] = {OURS: ours}
    return out


def _word(failure: Failure) -> str:
    """Return the status of the backend's refusal, else its own code if it is generally understood, else the
    bridge's.
    """
    status = failure.details.get("backend_status")
    if isinstance(status, int) and 100 <= status <= 999:
        return f"{_HTTP}{status}"
    code = failure.backend_code
    if code and _code(code) is failure.code:
        return masked(code, LONGEST_WORD)
    return WORDS[failure.code]


def failure_of(event: dict[str, Any]) -> Failure:
    """Return the failure in a `RUN_ERROR`, or in the `error` object of a body: a message and perhaps a code."""
    word = event.get("code")
    word = str(word) if isinstance(word, (str, int)) and not isinstance(word, bool) else ""
    code = _code(word)
    metadata = event.get("metadata")
    ours = metadata.get(OURS) if isinstance(metadata, dict) else None
    ours = ours if isinstance(ours, dict) else {}
    if text_of(ours.get("code")) in _OWN_CODES:
        code = ErrorCode(ours["code"])
    elif code is ErrorCode.BACKEND_AUTH:
        return Failure(code, KEY_REFUSED)
    message = masked(text_of(event.get("message"))) or "The backend reported an error."
    status = _status(word)
    details = {} if status is None else {"backend_status": status}
    said = _foreign(word) if status is None else _foreign(text_of(ours.get("backend_code")))
    return unwrapped(Failure(code, message, backend_code=said, details=details))


def _foreign(word: str) -> str | None:
    """Return the code if it is the backend's own; one of the bridge's adds nothing."""
    return masked(word, LONGEST_WORD) if word and word.upper() not in WORDS.values() else None


def _status(word: str) -> int | None:
    """The HTTP status of an `UPSTREAM_HTTP_<status>`."""
    digits = word.upper().removeprefix(_HTTP)
    fits = len(digits) == 3 and digits.isascii() and digits.isdigit() and len(word) > len(digits)
    return int(digits) if fits else None


def _code(word: str) -> ErrorCode:
    status = _status(word)
    if status is not None:
        return BY_STATUS.get(status, ErrorCode.BACKEND_ERROR)
    return _CODES.get(word.upper(), ErrorCode.BACKEND_ERROR)


# ------------------------------------------------------------------ before a stream


def encode_error(failure: Failure) -> WireResponse:
    """`application/json`, since the official client shows any other type as raw text. Invalid bodies are 422."""
    status = failure.status or (422 if failure.code in _INVALID else failure.http_status)
    error: dict[str, Any] = {"code": _word(failure), "message": masked(failure.message) or "Unknown error."}
    if failure.param:
        error["param"] = masked(failure.param, LONGEST_WORD)
    return json_response(dumps({"error": error}), status, dict(failure.headers))


def decode_error(wire: WireResponse) -> Failure:
    """Return the failure that an error status means. Only a JSON error's own message is repeated, and nothing about
    keys.
    """
    headers = passed_on(wire.headers)
    code = BY_STATUS.get(wire.status, ErrorCode.BACKEND_ERROR)
    details = {"backend_status": wire.status}
    if code is ErrorCode.BACKEND_AUTH:
        return Failure(code, KEY_REFUSED, headers=headers, details=details)
    error = error_in(read_json(wire.body), refused=True) or {}
    text, word = text_of(error.get("message")), text_of(error.get("code"))
    if code is ErrorCode.BACKEND_ERROR and word:
        code = _code(word)
        if code is ErrorCode.BACKEND_AUTH:
            return Failure(code, KEY_REFUSED, headers=headers)
    elif code is ErrorCode.NOT_FOUND and not word:
        code = ErrorCode.BACKEND_ERROR  # a wrong address does not concern the request
    message = masked(text) if text else f"The backend answered with HTTP status {wire.status}."
    return unwrapped(Failure(code, message, backend_code=_foreign(word), headers=headers, details=details))
