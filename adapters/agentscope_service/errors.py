"""Failures of the service: of its HTTP answers, and of replies in its stream."""

from __future__ import annotations

from typing import Any

from bridge.errors import BY_STATUS, ErrorCode, Failure
from bridge.toolkit.error_table import CODE_OR_TYPE, ErrorTable

_OURS = frozenset({400, 404, 422})
"""Statuses about a session or a body, both of which the bridge made."""

ERRORS = ErrorTable(
    statuses={
        **dict.fromkeys(range(501, 600), ErrorCode.BACKEND_UNAVAILABLE),
        **{status: code for status, code in BY_STATUS.items() if status not in _OURS},
    },
    told_of=CODE_OR_TYPE,
    own=frozenset(),
    inner=True,
    wordless="The agent failed.",
)


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
