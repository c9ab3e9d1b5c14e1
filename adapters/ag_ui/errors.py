"""Converts failures to AG-UI and back: `RUN_ERROR` inside a stream, a JSON body before it.

The protocol does not define codes. Those used here are common among servers or, where there is none, the bridge's own
in capitals.
"""

from __future__ import annotations

from typing import Any

from bridge.contract import WireResponse
from bridge.dialects.ag_ui.wire import OURS
from bridge.errors import ErrorCode, Failure
from bridge.model.jsontext import dict_of
from bridge.toolkit.error_table import UNPROCESSABLE, ErrorTable, Wire, members
from bridge.toolkit.redact import LONGEST_WORD, masked

WORDS: dict[ErrorCode, str] = {
    **{code: str(code).upper() for code in ErrorCode},
    ErrorCode.BACKEND_AUTH: "UPSTREAM_AUTH",
    ErrorCode.BACKEND_UNAVAILABLE: "UPSTREAM_UNAVAILABLE",
    ErrorCode.BACKEND_TIMEOUT: "UPSTREAM_TIMEOUT",
    ErrorCode.BACKEND_ERROR: "UPSTREAM_ERROR",
    ErrorCode.BACKEND_PROTOCOL: "UPSTREAM_PROTOCOL_ERROR",
    ErrorCode.TRUNCATED_STREAM: "UPSTREAM_INCOMPLETE",
    ErrorCode.CANCELED: "RUN_CANCELLED",
}
_HTTP = "UPSTREAM_HTTP_"
_code = members("code")


def _ours(error: Wire) -> Wire:
    """Return what another bridge adds to an error whose word is ambiguous."""
    return dict_of(dict_of(error.get("metadata")).get(OURS))


class _Errors(ErrorTable):
    def failure(self, error: Wire, status: int | None = None) -> Failure:
        """Return the failure of a `RUN_ERROR`, or of the error object of a body.

        The code `UPSTREAM_HTTP_<status>` is the status that an agent's own backend answered with.
        """
        word = next(iter(_code(error)), "")
        inner = _status(word)
        if inner is not None:
            error = {**error, "code": _ours(error).get("backend_code")}
        failure = super().failure(error, status if inner is None else inner)
        if inner is not None:
            failure.details["backend_status"] = inner
        return failure


ERRORS = _Errors(
    words=WORDS,
    sent=UNPROCESSABLE,
    codes={
        **{word: code for code, word in WORDS.items()},
        # An agent's error about a key is about its own key: never the client's 401.
        "UNAUTHORIZED": ErrorCode.BACKEND_AUTH,
        "FORBIDDEN": ErrorCode.BACKEND_AUTH,
        "INTERNAL": ErrorCode.BACKEND_ERROR,
        "CANCELLED": ErrorCode.CANCELED,
        "ABORTED": ErrorCode.CANCELED,
        "ABORT": ErrorCode.CANCELED,
        "TIMEOUT": ErrorCode.BACKEND_TIMEOUT,
        "RATE_LIMIT_EXCEEDED": ErrorCode.RATE_LIMITED,
        "CONTEXT_LENGTH_EXCEEDED": ErrorCode.CONTEXT_LENGTH,
    },
    words_of=lambda error: [*_code(_ours(error)), *_code(error)],
    named=frozenset({404}),
    plain=True,
    own=frozenset({*WORDS.values(), *map(str, ErrorCode)}),
    inner=True,
)


# ------------------------------------------------------------------ inside a stream


def run_error(failure: Failure) -> dict[str, Any]:
    """Return a `RUN_ERROR`. If its code is ambiguous, the metadata contain the bridge's code and the backend's."""
    word = _word(failure)
    out: dict[str, Any] = {"type": "RUN_ERROR", "message": ERRORS.text(failure), "code": word}
    ours = {} if _code_of(word) is failure.code else {"code": str(failure.code)}
    if failure.backend_code and word.startswith(_HTTP):
        ours["backend_code"] = masked(failure.backend_code, LONGEST_WORD)
    if ours:
        out["metadata"] = {OURS: ours}
    return out


def _word(failure: Failure) -> str:
    """Return the status of the backend's refusal, else its own code if it is generally understood, else the
    bridge's.
    """
    status = failure.details.get("backend_status")
    if isinstance(status, int) and 100 <= status <= 999:
        return f"{_HTTP}{status}"
    code = failure.backend_code
    if code and _code_of(code) is ERRORS.code_of({"code": code}) is failure.code:
        return masked(code, LONGEST_WORD)
    return ERRORS.word(failure)


def _status(word: str) -> int | None:
    """The HTTP status of an `UPSTREAM_HTTP_<status>`."""
    digits = word.upper().removeprefix(_HTTP)
    fits = len(digits) == 3 and digits.isascii() and digits.isdigit() and len(word) > len(digits)
    return int(digits) if fits else None


def _code_of(word: str) -> ErrorCode:
    status = _status(word)
    if status is not None:
        return ERRORS.statuses.get(status, ErrorCode.BACKEND_ERROR)
    return ERRORS.codes.get(word.upper(), ErrorCode.BACKEND_ERROR)


# ------------------------------------------------------------------ before a stream


def encode_error(failure: Failure) -> WireResponse:
    """`application/json`, since the official client shows any other type as raw text. Invalid bodies are 422."""
    error: dict[str, Any] = {"code": _word(failure), "message": ERRORS.text(failure)}
    if failure.param:
        error["param"] = masked(failure.param, LONGEST_WORD)
    return ERRORS.response(failure, {"error": error})
