"""Failures <-> Google's error object (docs/dialects/gemini.md).

`{"error": {"code", "message", "status", "details"}}`, the same before a stream and inside it. Clients use the HTTP
status, `status`, and the delay for a retry in the details.
"""

from __future__ import annotations

import re
from typing import Any

from bridge.codec import WireResponse, json_response
from bridge.codec.counts import is_count
from bridge.codec.errors import code_in, error_in, is_full_context, words_in
from bridge.codec.jsontext import dumps, read_json, text_of
from bridge.codec.ratelimits import passed_on
from bridge.codec.redact import LONGEST_WORD, masked
from bridge.errors import BY_STATUS, KEY_REFUSED, RULES, ErrorCode, Failure

_TYPE = "type.googleapis.com/google.rpc."
_INFO, _RETRY, _FIELDS = f"{_TYPE}ErrorInfo", f"{_TYPE}RetryInfo", f"{_TYPE}BadRequest"
_DOMAIN = "dialect-bridge"
_WORDS = {code: rule.grpc for code, rule in RULES.items()} | {ErrorCode.TOO_LARGE: "INVALID_ARGUMENT"}
_SECONDS = re.compile(r"(\d{1,6})(?:\.\d{1,9})?s?")

# `status` of the wire -> code of the bridge, for backends: errors about keys are about the bridge's own.
_CODES: dict[str, ErrorCode] = {
    "INVALID_ARGUMENT": ErrorCode.INVALID_REQUEST,
    "FAILED_PRECONDITION": ErrorCode.INVALID_REQUEST,
    "OUT_OF_RANGE": ErrorCode.INVALID_REQUEST,
    "UNAUTHENTICATED": ErrorCode.BACKEND_AUTH,
    "PERMISSION_DENIED": ErrorCode.BACKEND_AUTH,
    "NOT_FOUND": ErrorCode.NOT_FOUND,
    "ABORTED": ErrorCode.CONFLICT,
    "ALREADY_EXISTS": ErrorCode.CONFLICT,
    "RESOURCE_EXHAUSTED": ErrorCode.RATE_LIMITED,
    "CANCELLED": ErrorCode.CANCELED,
    "UNAVAILABLE": ErrorCode.OVERLOADED,
    "DEADLINE_EXCEEDED": ErrorCode.BACKEND_TIMEOUT,
}
_OWN_CODES = frozenset(map(str, ErrorCode)) - {ErrorCode.UNAUTHORIZED, ErrorCode.FORBIDDEN, ErrorCode.INTERNAL}
"""Codes of the bridge that mean the same when another bridge sends them, unlike its key check and its crash."""
_SHUT = (401, 403, 407)


# ------------------------------------------------------------------ towards clients


def error_object(failure: Failure) -> dict[str, Any]:
    """The whole object."""
    message = masked(failure.message) or "Unknown error."
    details: list[dict[str, Any]] = [
        {"@type": _INFO, "reason": failure.code.upper(), "domain": _DOMAIN, "metadata": {}}
    ]
    if failure.param:
        violation = {"field": failure.param, "description": message}
        details.append({"@type": _FIELDS, "fieldViolations": [violation]})
    if seconds := _SECONDS.fullmatch(failure.headers.get("retry-after", "")):
        details.append({"@type": _RETRY, "retryDelay": f"{seconds[1]}s"})
    status = failure.http_status
    return {"error": {"code": status, "message": message, "status": _WORDS[failure.code], "details": details}}


def encode_error(failure: Failure) -> WireResponse:
    return json_response(dumps(error_object(failure)), failure.http_status, dict(failure.headers))


# ------------------------------------------------------------------ from backends


def decode_error(wire: WireResponse) -> Failure:
    """Return the failure that a response with an error status means for the caller."""
    error = error_in(read_json(wire.body), refused=True)
    if error is None:
        code = BY_STATUS.get(wire.status, ErrorCode.BACKEND_ERROR)
        if code in (ErrorCode.INVALID_REQUEST, ErrorCode.NOT_FOUND, ErrorCode.CONFLICT):
            code = ErrorCode.BACKEND_ERROR  # a proxy's page does not concern the request: wrong address, crash
        text = KEY_REFUSED if code is ErrorCode.BACKEND_AUTH else f"The backend answered with status {wire.status}."
        failure = Failure(code, text)
    else:
        failure = failure_of(error, wire.status)
    failure.headers = {**failure.headers, **passed_on(wire.headers)}
    return failure


def failure_of(error: dict[str, Any], status: int | None = None) -> Failure:
    """The failure that an error object means; `status` is the HTTP status, by default the object's own."""
    said = error.get("code")
    status = status if status is not None else said if is_count(said) else None
    details = [each for each in error.get("details") or () if isinstance(each, dict)] if _has_details(error) else []
    message = words_in(error)
    word = text_of(error.get("status"))
    code = _classify(error, _reason(details), status)
    if code is ErrorCode.BACKEND_AUTH:
        return Failure(code, KEY_REFUSED)
    delays = (_SECONDS.fullmatch(text_of(each.get("retryDelay"))) for each in details)
    delay = next((found for found in delays if found), None)
    return Failure(
        code,
        masked(message) or "The backend reported an error without a message.",
        backend_code=masked(word, LONGEST_WORD) or None,
        headers={"retry-after": delay[1]} if delay else {},
    )


def _has_details(error: dict[str, Any]) -> bool:
    return isinstance(error.get("details"), list)


def _reason(details: list[dict[str, Any]]) -> str:
    """Return the reason of the first `ErrorInfo`; the bridge's own in lower case."""
    info = next((each for each in details if each.get("@type") == _INFO), {})
    reason = text_of(info.get("reason"))
    return reason.lower() if info.get("domain") == _DOMAIN else reason


def _classify(error: dict[str, Any], reason: str, status: int | None) -> ErrorCode:
    if status in _SHUT or reason in ("API_KEY_INVALID", "API_KEY_SERVICE_BLOCKED"):
        return ErrorCode.BACKEND_AUTH
    if reason in _OWN_CODES:
        return ErrorCode(reason)
    by_status = BY_STATUS.get(status) if status else None
    found = _CODES.get(text_of(error.get("status"))) or by_status or code_in(error) or ErrorCode.BACKEND_ERROR
    if status == 413:
        return ErrorCode.TOO_LARGE
    if found is ErrorCode.INVALID_REQUEST and is_full_context(words_in(error)):
        return ErrorCode.CONTEXT_LENGTH
    return found
