"""Translate failures to AG-Kit errors and back, before a stream and inside one."""

from __future__ import annotations

from typing import Any

from bridge.contract import WireResponse
from bridge.errors import ErrorCode, Failure
from bridge.model.jsontext import dict_of, read_json
from bridge.toolkit.error_table import CODE_OR_TYPE, ErrorTable, Wire
from bridge.toolkit.errors import error_in, words_in
from bridge.toolkit.fastapi import detail_response
from bridge.toolkit.redact import masked

MAX_ERROR_LENGTH = 500
"""Maximum length of an error's text inside a stream, in characters: chat clients display it."""

GENERATION_2 = "generation 2"
"""The key of `Failure.details` that marks the failure of a request of generation 2."""


class _Errors(ErrorTable):
    def decode(self, wire: WireResponse) -> Failure:
        """Return the failure of an error response of either generation."""
        if wire.status == 422 and _is_missing_conversation(read_json(wire.body)):
            text = "The backend uses generation 1 of AG-Kit: set its option `generation`."
            return Failure(ErrorCode.BACKEND_PROTOCOL, text)
        return super().decode(wire)

    def failure(self, error: Wire, status: int | None = None) -> Failure:
        """Return the failure of an error object, with the details that servers put beside its words."""
        details = error.get("details")
        if isinstance(details, str) and details and (said := words_in(error)) and said != details:
            error = {**error, "message": f"{said}: {details}"}
        return super().failure(error, status)


ERRORS = _Errors(
    # Of generation 2: those documented, and those that match documented statuses.
    words={code: str(code).upper() for code in ErrorCode}
    | {
        ErrorCode.INVALID_REQUEST: "INVALID_REQUEST",
        ErrorCode.UNSUPPORTED: "INVALID_REQUEST",
        ErrorCode.INTERNAL: "INTERNAL_ERROR",
    },
    unnamed="The run failed.",
    told_of=CODE_OR_TYPE,
    other_refusals=ErrorCode.INVALID_REQUEST,
    plain=True,
    kept=frozenset(range(400, 500)) - {405, 408},
    own=frozenset(),
    inner=True,
)


# ------------------------------------------------------------------ inside a stream


def error_text(failure: Failure) -> str:
    """Return the text of an `error` event: shortened, without keys and addresses."""
    return ERRORS.text(failure, MAX_ERROR_LENGTH, addresses=True)


def error_as_text(error: str) -> str:
    """Return an error as a text of the answer."""
    return f"Error: {error}"


def failure_of(event: Wire) -> Failure:
    """Return the failure in an event with `error`, a text or an object; `details` may stand in it or beside it."""
    error = error_in(event) or {}
    return ERRORS.failure({**error, "details": event.get("details") or error.get("details")})


# ------------------------------------------------------------------ before a stream


def encode_error(failure: Failure) -> WireResponse:
    """Return a response in the reference server's shape, that of FastAPI; invalid requests are 422."""
    if GENERATION_2 in failure.details:
        return _encode_generation2(failure)
    return detail_response(failure, masked(failure.message, MAX_ERROR_LENGTH))


def _encode_generation2(failure: Failure) -> WireResponse:
    """Return a response in the shape of generation 2, whose server answers an invalid request with 400."""
    error = {"code": ERRORS.word(failure), "message": masked(failure.message, MAX_ERROR_LENGTH)}
    return ERRORS.response(failure, {"error": error, "requestId": failure.details.get(GENERATION_2) or "unknown"})


def _is_missing_conversation(body: Any) -> bool:
    """Return whether a request was refused for lack of `conversationId`, which only requests of generation 2 lack."""
    detail = dict_of(body).get("detail")
    items = detail if isinstance(detail, list) else []
    return any(
        isinstance(i, dict) and i.get("type") == "missing" and i.get("loc") == ["body", "conversationId"] for i in items
    )
