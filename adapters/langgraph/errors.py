"""Failures of the server: of its HTTP answers, of its `error` events, and of runs and threads that failed."""

from __future__ import annotations

from typing import Any

from bridge.codec.error_table import ErrorTable, members, names
from bridge.codec.errors import error_in
from bridge.errors import BY_STATUS, ErrorCode, Failure

_OURS = frozenset({400, 404, 422})
"""Statuses about an address or a body, both of which the bridge made."""

ERRORS = ErrorTable(
    statuses={
        **{status: code for status, code in BY_STATUS.items() if status not in _OURS},
        **dict.fromkeys(_OURS, ErrorCode.BACKEND_ERROR),
        **dict.fromkeys(range(500, 600), ErrorCode.BACKEND_UNAVAILABLE),
    },
    codes={"UserInterrupt": ErrorCode.CANCELED, "UserRollback": ErrorCode.CANCELED},
    words_of=members("error"),
    told_of=names("error"),
    inner=True,
    wordless="The agent failed.",
)


def run_failure(error: Any) -> Failure:
    """Return the failure in an `error` event, or in the `error` of a run or a thread: an object or a text."""
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return ERRORS.failure(error)
    if isinstance(error, str):
        return ERRORS.failure({"message": error})
    return ERRORS.failure(error_in({"error": error}) or {"message": ""})


def canceled() -> Failure:
    """Return the failure of a run that somebody else canceled."""
    return Failure(ErrorCode.CANCELED, "The run was canceled at the backend.")
