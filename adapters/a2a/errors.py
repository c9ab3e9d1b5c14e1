"""Errors of agents -> failures: the error object of JSON-RPC, and that of HTTP+JSON (docs/dialects/a2a.md)."""

from __future__ import annotations

from typing import Any

from bridge.codec import WireResponse
from bridge.codec.counts import is_count
from bridge.codec.errors import code_in, error_in, recognized, words_in
from bridge.codec.inner_errors import unwrapped
from bridge.codec.jsontext import read_json, text_of, whole
from bridge.codec.ratelimits import passed_on
from bridge.codec.redact import LONGEST_WORD, masked
from bridge.dialects.a2a.wire import ADK_ERROR_CODE
from bridge.errors import BY_STATUS, KEY_REFUSED, ErrorCode, Failure

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
_OWN_CODES = frozenset(map(str, ErrorCode)) - {ErrorCode.UNAUTHORIZED, ErrorCode.FORBIDDEN, ErrorCode.INTERNAL}
"""Codes of the bridge that mean the same when another bridge sends them, unlike its key check and its crash."""
_CODES = {
    UNKNOWN_TASK: ErrorCode.NOT_FOUND,
    OTHER_VERSION: ErrorCode.BACKEND_PROTOCOL,
    "-32600": ErrorCode.BACKEND_PROTOCOL,
    "-32601": ErrorCode.BACKEND_PROTOCOL,
    "-32700": ErrorCode.BACKEND_PROTOCOL,
}
"""The rest is a failure of the agent: it is the bridge that wrote the request, not its client."""


def failure_of(error: dict[str, Any], status: int | None = None) -> Failure:
    """Return the failure of an error object; `status` is the HTTP status, if it is not 200."""
    word = _number(error)
    said = words_in(error)
    code = BY_STATUS.get(status) if status in (401, 403, 413, 429, 503, 504) else None
    code = code or _own_code(error) or _CODES.get(word) or code_in(error) or ErrorCode.BACKEND_ERROR
    if code is ErrorCode.BACKEND_AUTH:
        return Failure(code, KEY_REFUSED)
    message = masked(said) or "The agent reported an error without a message."
    return recognized(Failure(code, message, backend_code=masked(word, LONGEST_WORD) or None))


def _number(error: dict[str, Any]) -> str:
    """The number of JSON-RPC for an error of either binding."""
    for detail in _details(error):
        if (told := REASONS.get(text_of(detail.get("reason")))) is not None:
            return told
    code = error.get("code")
    if is_count(code):
        return _BY_STATUS.get(code, str(code))
    number = whole(code)
    return text_of(code) if number is None else str(number)


def _own_code(error: dict[str, Any]) -> ErrorCode | None:
    """The code that another bridge names in the details."""
    words = (text_of(detail.get("reason")).lower() for detail in _details(error))
    return next((ErrorCode(word) for word in words if word in _OWN_CODES), None)


def _details(error: dict[str, Any]) -> list[dict[str, Any]]:
    found = error.get("data") or error.get("details")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def decode_error(wire: WireResponse) -> Failure:
    """Return the failure that a response with an error status means for the caller."""
    body = read_json(wire.body)
    error = error_in(body, refused=True)
    if error is not None and error.get("code") is None:
        error = {**error, "code": wire.status}  # HTTP+JSON of 0.3
    if error is not None:
        failure = failure_of(error, wire.status)
    else:
        code = BY_STATUS.get(wire.status, ErrorCode.BACKEND_ERROR)
        if code in (ErrorCode.INVALID_REQUEST, ErrorCode.NOT_FOUND, ErrorCode.CONFLICT):
            code = ErrorCode.BACKEND_ERROR  # a proxy's page does not concern the request
        text = KEY_REFUSED if code is ErrorCode.BACKEND_AUTH else f"The agent answered with status {wire.status}."
        failure = Failure(code, text)
    failure.headers = {**failure.headers, **passed_on(wire.headers)}
    return failure


def task_failure(said: str, metadata: dict[str, Any]) -> Failure:
    """The failure of a task that ended so; `metadata` are those of its status and of the message in it."""
    word = metadata.get(ADK_ERROR_CODE, metadata.get("code"))
    word = str(word) if is_count(word) else text_of(word)
    code = ErrorCode.RATE_LIMITED if word == "429" else ErrorCode.BACKEND_ERROR
    if word in _OWN_CODES:
        code = ErrorCode(word)
    message = masked(said) or "The agent's task failed, and it did not say why."
    return unwrapped(Failure(code, message, backend_code=masked(word, LONGEST_WORD) or None))
