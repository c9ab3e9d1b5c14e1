"""Converts failures to AIP and back: gRPC statuses before a session answered, texts inside one.

A response with an error carries the name of its gRPC status in the header `grpc-status` and the details as body.
"""

from __future__ import annotations

from bridge.codec import WireResponse
from bridge.codec.errors import error_in, words_in
from bridge.codec.inner_errors import unwrapped
from bridge.codec.jsontext import loads
from bridge.codec.ratelimits import passed_on
from bridge.codec.redact import LONGEST_WORD, masked
from bridge.errors import BY_STATUS, KEY_REFUSED, RULES, ErrorCode, Failure

STATUS = "grpc-status"
"""The header that holds the name of the status, such as NOT_FOUND."""

LONGEST = 500
_PREFIX = "Error: "
_CODES = {
    "INVALID_ARGUMENT": ErrorCode.INVALID_REQUEST,
    "NOT_FOUND": ErrorCode.NOT_FOUND,
    "UNAVAILABLE": ErrorCode.BACKEND_UNAVAILABLE,
    "DEADLINE_EXCEEDED": ErrorCode.BACKEND_TIMEOUT,
    "RESOURCE_EXHAUSTED": ErrorCode.TOO_LARGE,
    "UNAUTHENTICATED": ErrorCode.BACKEND_AUTH,
    "PERMISSION_DENIED": ErrorCode.BACKEND_AUTH,
}


def error_text(failure: Failure) -> str:
    """The text of a message that reports a failure."""
    return _PREFIX + (masked(failure.message, LONGEST) or "The run failed.")


def failure_of(text: str) -> Failure:
    """Return the failure in a message with a failed task."""
    message = masked(text.removeprefix(_PREFIX).strip()) or "The agent failed."
    return unwrapped(Failure(ErrorCode.BACKEND_ERROR, message))


def encode_error(failure: Failure) -> WireResponse:
    headers = {**failure.headers, STATUS: RULES[failure.code].grpc, "content-type": "text/plain; charset=utf-8"}
    return WireResponse(failure.http_status, headers, masked(failure.message, LONGEST).encode("utf-8", "replace"))


def decode_error(wire: WireResponse) -> Failure:
    """Return the failure that a gRPC status means; that of a plain HTTP response (a proxy in between) by its HTTP
    status.
    """
    word = masked(wire.headers.get(STATUS, ""), LONGEST_WORD)
    code = _CODES.get(word) or BY_STATUS.get(wire.status)
    if word and word not in _CODES:
        code = ErrorCode.BACKEND_ERROR
    code = code or (ErrorCode.INVALID_REQUEST if 400 <= wire.status < 500 else ErrorCode.BACKEND_ERROR)
    if code is ErrorCode.BACKEND_AUTH:
        return Failure(code, KEY_REFUSED, backend_code=word or None)
    text = masked(_text(wire.body), addresses=True)
    fallback = f"The agent's side answered with the status {word or wire.status}."
    headers = passed_on(wire.headers)
    return Failure(code, text or fallback, backend_code=word or None, headers=headers)


def _text(body: bytes) -> str:
    """The details; a page of HTML and the like is not repeated, of JSON only its message."""
    text = body.decode("utf-8", "replace").strip()
    if text[:1] == "<":
        return ""
    if text[:1] not in ("{", "["):
        return text
    try:
        answer = loads(body)
    except ValueError:
        return ""
    return words_in(error_in(answer, refused=True) or {})
