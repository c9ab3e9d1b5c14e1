"""Failures in AG-Kit's words and back, before a stream and inside one."""

from __future__ import annotations

from typing import Any

from bridge.codec import WireResponse, json_response
from bridge.codec.fastapi import detail_response, told_in
from bridge.codec.inner_errors import unwrapped
from bridge.codec.jsontext import dumps, read_json
from bridge.codec.ratelimits import passed_on
from bridge.codec.redact import LONGEST_WORD, masked
from bridge.errors import BY_STATUS, KEY_REFUSED, RULES, ErrorCode, Failure

CANCELED = "The run was canceled."
LONGEST = 500
"""Characters of an error's text inside a stream: people read it in a chat."""

SECOND = "generation 2"
"""The key of `Failure.details` by which a failure is known to answer a request of generation 2."""

_OWN_CODES = frozenset(map(str, ErrorCode))
# Generation 2's words; those that the page names and those that its statuses suggest.
_WORDS: dict[ErrorCode, str] = {
    ErrorCode.INVALID_REQUEST: "INVALID_REQUEST",
    ErrorCode.UNSUPPORTED: "INVALID_REQUEST",
    ErrorCode.INTERNAL: "INTERNAL_ERROR",
}


# ------------------------------------------------------------------ inside a stream


def error_text(failure: Failure) -> str:
    """The text of an `error` event: short, without keys and addresses."""
    return masked(failure.message, LONGEST, addresses=True) or "The run failed."


def told_error(error: str) -> str:
    """Return an error as a text of the answer."""
    return f"Error: {error}"


def failure_of(event: dict[str, Any]) -> Failure:
    """Return the failure in an event with `error`: a text, or an object with a message; `details` in it or beside it
    adds to it.
    """
    said: Any = event.get("error")
    more: Any = event.get("details")
    if isinstance(said, dict):
        more = more or said.get("details")
        said = said.get("message")
    texts = [t for t in (said, more) if isinstance(t, str) and t.strip()]
    message = masked(": ".join(texts)) if texts else "The backend reported an error."
    return unwrapped(Failure(ErrorCode.BACKEND_ERROR, message))


# ------------------------------------------------------------------ before a stream


def encode_error(failure: Failure) -> WireResponse:
    """FastAPI's shape, which is the reference server's; invalid requests are 422 as there."""
    if SECOND in failure.details:
        return _second(failure)
    return detail_response(failure, masked(failure.message, LONGEST))


def _second(failure: Failure) -> WireResponse:
    """The shape of generation 2, whose server answers an invalid request with 400."""
    word = _WORDS.get(failure.code) or str(failure.code).upper()
    error = {"code": word, "message": masked(failure.message, LONGEST)}
    body = {"error": error, "requestId": failure.details.get(SECOND) or "unknown"}
    return json_response(dumps(body), failure.http_status, dict(failure.headers))


def decode_error(wire: WireResponse) -> Failure:
    """Return the failure that an error status of either generation means. An HTML page is not repeated."""
    headers = passed_on(wire.headers)
    if wire.status in (401, 403):
        return Failure(ErrorCode.BACKEND_AUTH, KEY_REFUSED, headers=headers)
    body = read_json(wire.body)
    if wire.status == 422 and _misses_conversation(body):
        text = "The backend speaks generation 1 of AG-Kit; its option generation must say so."
        return Failure(ErrorCode.BACKEND_PROTOCOL, text)
    text, word = told_in(body)
    more = body.get("details") if text else None
    if isinstance(more, str) and more:
        text = f"{text}: {more}"
    default = ErrorCode.BACKEND_ERROR if wire.status >= 500 else ErrorCode.INVALID_REQUEST
    code = ErrorCode(word) if word in _OWN_CODES else BY_STATUS.get(wire.status, default)
    message = masked(text) if text else f"The backend answered with HTTP status {wire.status}."
    word = masked(word, LONGEST_WORD)
    return unwrapped(Failure(code, message, None, _kept(code, wire.status), word or None, headers))


def _kept(code: ErrorCode, status: int) -> int | None:
    """The backend's own status where ours for the same code is another and both blame the caller."""
    return status if 400 <= RULES[code].http < 500 and 400 <= status < 500 and status != RULES[code].http else None


def _misses_conversation(body: Any) -> bool:
    """Requests of generation 1 always have the field: only one of generation 2 can be told that it is missing."""
    detail = body.get("detail") if isinstance(body, dict) else None
    items = detail if isinstance(detail, list) else []
    return any(
        isinstance(i, dict) and i.get("type") == "missing" and i.get("loc") == ["body", "conversationId"] for i in items
    )
