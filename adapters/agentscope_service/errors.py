"""Failures of the service: of its HTTP answers, and of replies in its stream."""

from __future__ import annotations

from typing import Any

from bridge.codec import WireResponse
from bridge.codec.errors import code_in, recognized, words_in
from bridge.codec.fastapi import refusal_in
from bridge.codec.inner_errors import unwrapped
from bridge.codec.jsontext import read_json
from bridge.codec.ratelimits import passed_on
from bridge.codec.redact import LONGEST_WORD, masked
from bridge.errors import BY_STATUS, KEY_REFUSED, ErrorCode, Failure

_OURS = frozenset({400, 404, 422})
"""Statuses about a session or a body, both of which the bridge made."""


def decode_error(wire: WireResponse) -> Failure:
    """Return the failure that an error status means. Only a JSON error's own message is repeated."""
    headers = passed_on(wire.headers)
    details = {"backend_status": wire.status}
    default = ErrorCode.BACKEND_UNAVAILABLE if wire.status > 500 else ErrorCode.BACKEND_ERROR
    code = ErrorCode.BACKEND_ERROR if wire.status in _OURS else BY_STATUS.get(wire.status, default)
    if code is ErrorCode.BACKEND_AUTH:
        return Failure(code, KEY_REFUSED, headers=headers, details=details)
    text, word = refusal_in(read_json(wire.body))
    message = masked(text) if text else f"The backend answered with HTTP status {wire.status}."
    word = masked(word, LONGEST_WORD)
    return recognized(Failure(code, message, backend_code=word or None, headers=headers, details=details))


# The service's messages are fixed, and written for its own page: these are the equivalents for a backend.
_REPLIES: dict[str, tuple[ErrorCode, str]] = {
    "authentication": (ErrorCode.BACKEND_ERROR, "The agent's model refused the credentials of the agent service."),
    "permission": (ErrorCode.BACKEND_ERROR, "The agent's model does not permit the agent service to call it."),
    "rate_limit": (ErrorCode.RATE_LIMITED, "The agent's model is called too often."),
    "invalid_request": (
        ErrorCode.BACKEND_ERROR,
        "The agent's model refused the request, or the session has no model: option chat_model_config.",
    ),
    "upstream": (ErrorCode.BACKEND_UNAVAILABLE, "The agent's model failed."),
    "connection": (ErrorCode.BACKEND_UNAVAILABLE, "The agent's model cannot be reached, or broke off its answer."),
    "setup": (ErrorCode.BACKEND_ERROR, "The agent service could not prepare the agent for this request."),
}


def reply_failure(error: Any) -> Failure:
    """Return the failure in the `error` of a `REPLY_END`."""
    word = error.get("type") if isinstance(error, dict) else None
    word = word if isinstance(word, str) else None
    code, message = _REPLIES.get(word or "", (ErrorCode.BACKEND_ERROR, "The agent failed."))
    return Failure(code, message)


def stray_failure(error: dict[str, Any]) -> Failure:
    """Return the failure of an error object in place of an event."""
    code = code_in(error) or ErrorCode.BACKEND_ERROR
    if code is ErrorCode.BACKEND_AUTH:
        return Failure(code, KEY_REFUSED)
    return unwrapped(Failure(code, masked(words_in(error)) or "The agent failed."))
