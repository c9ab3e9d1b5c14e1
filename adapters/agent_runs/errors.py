"""Failures as problem details (RFC 9457) with the codes that clients test, in both directions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from bridge.contract import CONNECTIONS, Operation, WireResponse
from bridge.errors import ErrorCode, Failure
from bridge.model.jsontext import dumps
from bridge.toolkit.error_table import OWN, ErrorTable, names
from bridge.toolkit.errors import STATUSES
from bridge.toolkit.fastapi import location

TYPE = "application/problem+json"

_MESSAGES = re.compile(r"messages(\[\d+\])?")
_INVALID = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED})
_DOWN = frozenset({ErrorCode.STORE_UNAVAILABLE, ErrorCode.OVERLOADED})
INPUT = "AGENT_RUN_INPUT_INVALID"

_PARAMS = {"runId": "AGENT_INVALID_RUN_ID", "Last-Event-ID": "AGENT_INVALID_LAST_EVENT_ID"}


@dataclass(frozen=True, slots=True)
class _Words:
    """The names of one operation's failures. `reasons` are those of a rejected file."""

    reasons: dict[str, str]
    missing: str = "AGENT_THREAD_NOT_FOUND"
    large: str = INPUT
    down: str = "AGENT_STORAGE_UNAVAILABLE"


_IMAGE = {"empty": "AGENT_ATTACHMENT_EMPTY", "unsupported_type": "AGENT_ATTACHMENT_UNSUPPORTED_TYPE"}
_AUDIO = {"empty": "AGENT_AUDIO_EMPTY", "unsupported_format": "AGENT_AUDIO_UNSUPPORTED_FORMAT"}
_QUEUE = _Words({}, down="AGENT_QUEUE_UNAVAILABLE")
_FILE = _Words(_IMAGE, "AGENT_ATTACHMENT_NOT_FOUND", "AGENT_ATTACHMENT_TOO_LARGE")
_WORDS: dict[str, _Words] = {
    Operation.START: _QUEUE,
    Operation.SUBSCRIBE: _QUEUE,
    Operation.CANCEL: _QUEUE,
    Operation.HISTORY: _Words({}),
    Operation.ATTACH: _FILE,
    Operation.SIGN: _FILE,
    Operation.FETCH: _FILE,
    Operation.TRANSCRIBE: _Words(_AUDIO, large="AGENT_AUDIO_TOO_LARGE", down="AGENT_ASR_UNAVAILABLE"),
}
_PLAIN: dict[ErrorCode, str] = {
    ErrorCode.UNAUTHORIZED: "UNAUTHORIZED",
    ErrorCode.FORBIDDEN: "FORBIDDEN",
    ErrorCode.CONFLICT: "AGENT_RUN_CONFLICT",
}
_CONNECTION_LIMIT = "AGENT_SSE_CONNECTION_LIMIT"


def encode_error(failure: Failure) -> WireResponse:
    """A problem. Whatever is wrong with a request is 422; nothing but the place of the mistake is repeated."""
    status = failure.http_status
    if failure.code in _INVALID and status in (400, 415):
        status = 422
    word = word_of(failure)
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": word.replace("_", " ").capitalize(),
        "status": status,
        "detail": ERRORS.text(failure),
        "code": word,
    }
    if path := failure.details.get("path"):
        body["instance"] = path
    if failure.param and failure.code in _INVALID:
        body["errors"] = [{"loc": location(failure.param), "msg": body["detail"]}]
    return WireResponse(status, {"content-type": TYPE, **failure.headers}, dumps(body))


def word_of(failure: Failure) -> str:
    """Return the code that clients test; if this API has none, the bridge's own in capitals."""
    words = _WORDS.get(failure.details.get("operation", ""))
    code = failure.code
    if words is None:
        return _PLAIN.get(code, str(code).upper())
    if failure.details.get("reason") == CONNECTIONS:
        return _CONNECTION_LIMIT
    if failure.http_status == 410:
        return "AGENT_EVENTS_EXPIRED"
    if code in _INVALID:
        param = failure.param or ""
        known = words.reasons.get(failure.details.get("reason", "")) or _PARAMS.get(param)
        return known or ("AGENT_RUN_MESSAGES_INVALID" if _MESSAGES.fullmatch(param) else INPUT)
    if code in _DOWN or (code is ErrorCode.BACKEND_UNAVAILABLE and words.reasons is _AUDIO):
        return words.down
    if code is ErrorCode.NOT_FOUND:
        return words.missing
    if code is ErrorCode.TOO_LARGE:
        return words.large
    return _PLAIN.get(code, str(code).upper())


# ------------------------------------------------------------------ as the back

ERRORS = ErrorTable(
    codes={
        **{word.upper(): code for word, code in OWN.items()},
        **{word: code for code, word in _PLAIN.items()},
        _CONNECTION_LIMIT: ErrorCode.RATE_LIMITED,
        "UNAUTHORIZED": ErrorCode.BACKEND_AUTH,
        "FORBIDDEN": ErrorCode.BACKEND_AUTH,
        "AGENT_QUEUE_UNAVAILABLE": ErrorCode.OVERLOADED,
        "AGENT_STORAGE_UNAVAILABLE": ErrorCode.OVERLOADED,
        # What a queued run left behind has expired; the rest of its answer will not come.
        "AGENT_THREAD_NOT_FOUND": ErrorCode.RUN_LOST,
        "AGENT_EVENTS_EXPIRED": ErrorCode.TRUNCATED_STREAM,
        "AGENT_ATTACHMENT_NOT_FOUND": ErrorCode.NOT_FOUND,
    },
    statuses={**STATUSES, 404: ErrorCode.BACKEND_ERROR},  # it may also mean a wrong address
    words_of=names("code", "detail"),
    told_of=names("code", "detail"),
    plain=True,
    own=frozenset(),
    inner=True,
)
