"""Failures of the server: of its HTTP answers, of its `error` events, and of runs and threads that failed."""

from __future__ import annotations

from typing import Any

from bridge.contract.wire import WireResponse
from bridge.errors import ErrorCode, Failure
from bridge.model.jsontext import dict_of, read_json
from bridge.toolkit.error_table import ErrorTable, members, names
from bridge.toolkit.errors import STATUSES, error_in
from bridge.toolkit.redact import masked

_OURS = frozenset({400, 404, 422})
"""Statuses about an address or a body, both of which the bridge made."""
_BUSY = b"already running a task"
"""What langgraph.js says with status 422, and Python's server with 409."""
_NOT_OPEN = b"not in interrupted state"
"""What aegra says of an answer to a thread that waits for none, with status 400."""
_INTERRUPTED = "Run was interrupted"
"""What aegra says in the `error` event of a run that another caller canceled."""
_LONGEST = 300
"""The most bytes of a refusal in plain text that are read; longer ones are pages."""

ERRORS = ErrorTable(
    statuses={
        **STATUSES,
        **dict.fromkeys(_OURS, ErrorCode.BACKEND_ERROR),
    },
    codes={"UserInterrupt": ErrorCode.CANCELED, "UserRollback": ErrorCode.CANCELED},
    words_of=members("error", "code", "type"),
    told_of=names("error", "code", "type"),
    inner=True,
    wordless="The agent failed.",
)


_CRASHES = frozenset({ErrorCode.BACKEND_ERROR, ErrorCode.BACKEND_TIMEOUT, ErrorCode.OVERLOADED})
"""What statuses from 500 on mean. Where the body has a `detail`, all mean that the server itself has failed."""


def refusal(wire: WireResponse) -> Failure:
    """Return the failure in a response with an error status."""
    failure = ERRORS.decode(wire)
    body = read_json(wire.body)
    if (wire.status == 422 and _BUSY in wire.body[:_LONGEST]) or (
        wire.status == 400 and _NOT_OPEN in wire.body[:_LONGEST]
    ):
        failure.code = ErrorCode.CONFLICT
    if wire.status in _OURS and wire.headers.get("content-type", "").startswith("text/plain"):
        # langgraph.js refuses some requests in one line of text.
        words = wire.body[: _LONGEST + 1].decode("utf-8", "replace").strip()
        if words and len(wire.body) <= _LONGEST and words.isprintable() and not words.startswith("<"):
            failure.message = masked(words)
    if wire.status >= 500 and failure.code in _CRASHES:
        own, page = "detail" in dict_of(body), not isinstance(body, dict) and failure.code is ErrorCode.BACKEND_ERROR
        if own or page:
            failure.code = ErrorCode.BACKEND_UNAVAILABLE
    return failure


def run_failure(error: Any) -> Failure:
    """Return the failure in an `error` event, or in the `error` of a run or a thread: an object or a text."""
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        if error["message"] == _INTERRUPTED:
            return canceled()
        return ERRORS.failure(error)
    if isinstance(error, str):
        return ERRORS.failure({"message": error})
    return ERRORS.failure(error_in({"error": error}) or {"message": ""})


def canceled() -> Failure:
    """Return the failure of a run that another caller canceled."""
    return Failure(ErrorCode.CANCELED, "The run was canceled at the backend.")
