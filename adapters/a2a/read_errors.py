"""Errors of agents -> failures: the error object of JSON-RPC, and that of HTTP+JSON (docs/dialects/a2a.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.dialects.a2a.wire import ADK_ERROR_CODE, CODE
from bridge.errors import ErrorCode, Failure
from bridge.model.jsontext import dict_of, text_of, whole
from bridge.toolkit.counts import is_count
from bridge.toolkit.error_table import OWN, ErrorTable, Wire
from bridge.toolkit.errors import STATUSES
from bridge.toolkit.inner_errors import unwrapped
from bridge.toolkit.redact import LONGEST_WORD, masked

UNKNOWN_TASK, UNSUPPORTED, OTHER_VERSION, PARAMS = "-32001", "-32004", "-32009", "-32602"

REASONS: dict[str, str] = {
    "TASK_NOT_FOUND": UNKNOWN_TASK,
    "TASK_NOT_CANCELABLE": "-32002",
    "PUSH_NOTIFICATION_NOT_SUPPORTED": "-32003",
    "UNSUPPORTED_OPERATION": UNSUPPORTED,
    "CONTENT_TYPE_NOT_SUPPORTED": "-32005",
    "INVALID_AGENT_RESPONSE": "-32006",
    "VERSION_NOT_SUPPORTED": OTHER_VERSION,
    "INVALID_PARAMS": PARAMS,
    "INVALID_REQUEST": "-32600",
    "METHOD_NOT_FOUND": "-32601",
    "INTERNAL_ERROR": "-32603",
}
"""What HTTP+JSON calls a failure -> its number in JSON-RPC."""
_BY_STATUS = {404: UNKNOWN_TASK}
_ABOUT_AGENT = (408, 413, 429, 502, 503, 504, 529)
"""Statuses with one meaning; for others the number counts, as the bridge wrote the request."""


def _told(error: Wire) -> Sequence[str]:
    """Return the number of JSON-RPC for an error of either binding."""
    for detail in _details(error):
        if (told := REASONS.get(text_of(detail.get("reason")))) is not None:
            return (told,)
    code = error.get("code")
    if is_count(code):
        return (_BY_STATUS.get(code, str(code)),)
    number = whole(code)
    return (text_of(code) if number is None else str(number),)


def _words(error: Wire) -> Sequence[str]:
    """Return the number, and codes that another bridge names in the details."""
    details = _details(error)
    named = (dict_of(detail.get("metadata")).get(CODE) for detail in details)
    reasons = (text_of(detail.get("reason")).lower() for detail in details)
    return (*_told(error), *map(text_of, named), *reasons)


def _details(error: Wire) -> list[Wire]:
    found = error.get("data") or error.get("details")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


class _Errors(ErrorTable):
    def failure(self, error: Wire, status: int | None = None) -> Failure:
        """Return the failure of an error object; HTTP+JSON of 0.3 has no code in it."""
        if status is not None and error.get("code") is None:
            error = {**error, "code": status}
        return super().failure(error, status)


ERRORS = _Errors(
    codes={
        UNKNOWN_TASK: ErrorCode.NOT_FOUND,
        OTHER_VERSION: ErrorCode.BACKEND_PROTOCOL,
        "-32600": ErrorCode.BACKEND_PROTOCOL,
        "-32601": ErrorCode.BACKEND_PROTOCOL,
        "-32700": ErrorCode.BACKEND_PROTOCOL,
    },
    words_of=_words,
    told_of=_told,
    statuses={status: STATUSES[status] for status in _ABOUT_AGENT},
    own=frozenset(),
    inner=True,
)


def task_failure(said: str, metadata: dict[str, Any]) -> Failure:
    """The failure of a task that ended so; `metadata` are those of its status and of the message in it."""
    word = metadata.get(ADK_ERROR_CODE, metadata.get(CODE))
    word = str(word) if is_count(word) else text_of(word)
    code = ErrorCode.RATE_LIMITED if word == "429" else ErrorCode.BACKEND_ERROR
    code = OWN.get(word, code)
    message = masked(said) or "The agent's task failed without a reason."
    return unwrapped(Failure(code, message, backend_code=masked(word, LONGEST_WORD) or None))
