"""Failures <-> Google's error object (docs/dialects/gemini.md).

`{"error": {"code", "message", "status", "details"}}`, the same before a stream and inside it. Clients use the HTTP
status, `status`, and the delay for a retry in the details.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from bridge.contract import WireResponse
from bridge.errors import RULES, ErrorCode, Failure
from bridge.model.jsontext import dicts_of, text_of
from bridge.toolkit.error_table import ErrorTable, Wire, members

_TYPE = "type.googleapis.com/google.rpc."
_INFO, _RETRY, _FIELDS = f"{_TYPE}ErrorInfo", f"{_TYPE}RetryInfo", f"{_TYPE}BadRequest"
_DOMAIN = "dialect-bridge"
_SECONDS = re.compile(r"(\d{1,6})(?:\.\d{1,9})?s?")


def _details(error: Wire) -> list[Wire]:
    return dicts_of(error.get("details"))


def _words(error: Wire) -> Sequence[str]:
    """Return the reason of the first `ErrorInfo`, the bridge's own in lower case, and the status."""
    info = next((each for each in _details(error) if each.get("@type") == _INFO), {})
    reason = text_of(info.get("reason"))
    return (reason.lower() if info.get("domain") == _DOMAIN else reason, text_of(error.get("status")))


class _Errors(ErrorTable):
    def failure(self, error: Wire, status: int | None = None) -> Failure:
        """Return the failure of an error object, with the delay that it names."""
        failure = super().failure(error, status)
        delays = (_SECONDS.fullmatch(text_of(each.get("retryDelay"))) for each in _details(error))
        if failure.code is not ErrorCode.BACKEND_AUTH and (delay := next(filter(None, delays), None)):
            failure.headers["retry-after"] = delay[1]
        return failure


ERRORS = _Errors(
    words={code: rule.grpc for code, rule in RULES.items()} | {ErrorCode.TOO_LARGE: "INVALID_ARGUMENT"},
    codes={
        "INVALID_ARGUMENT": ErrorCode.INVALID_REQUEST,
        "FAILED_PRECONDITION": ErrorCode.INVALID_REQUEST,
        "OUT_OF_RANGE": ErrorCode.INVALID_REQUEST,
        "API_KEY_INVALID": ErrorCode.BACKEND_AUTH,
        "API_KEY_SERVICE_BLOCKED": ErrorCode.BACKEND_AUTH,
        "UNAUTHENTICATED": ErrorCode.BACKEND_AUTH,
        "PERMISSION_DENIED": ErrorCode.BACKEND_AUTH,
        "NOT_FOUND": ErrorCode.NOT_FOUND,
        "ABORTED": ErrorCode.CONFLICT,
        "ALREADY_EXISTS": ErrorCode.CONFLICT,
        "RESOURCE_EXHAUSTED": ErrorCode.RATE_LIMITED,
        "CANCELLED": ErrorCode.CANCELED,
        "UNAVAILABLE": ErrorCode.OVERLOADED,
        "DEADLINE_EXCEEDED": ErrorCode.BACKEND_TIMEOUT,
    },
    words_of=_words,
    told_of=members("status"),
    own=frozenset(),
)
"""Errors about keys are about the bridge's own."""


def error_object(failure: Failure) -> dict[str, Any]:
    """Return the whole object."""
    message = ERRORS.text(failure)
    details: list[dict[str, Any]] = [
        {"@type": _INFO, "reason": failure.code.upper(), "domain": _DOMAIN, "metadata": {}}
    ]
    if failure.param:
        violation = {"field": failure.param, "description": message}
        details.append({"@type": _FIELDS, "fieldViolations": [violation]})
    if seconds := _SECONDS.fullmatch(failure.headers.get("retry-after", "")):
        details.append({"@type": _RETRY, "retryDelay": f"{seconds[1]}s"})
    return {
        "error": {"code": failure.http_status, "message": message, "status": ERRORS.word(failure), "details": details}
    }


def encode_error(failure: Failure) -> WireResponse:
    return ERRORS.response(failure, error_object(failure))
