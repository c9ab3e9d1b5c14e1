"""Converts failures to AIP and back: gRPC statuses before a session answered, texts inside one.

A response with an error carries the name of its gRPC status in the header `grpc-status` and the details as body.
"""

from __future__ import annotations

from bridge.contract import WireResponse
from bridge.errors import RULES, ErrorCode, Failure
from bridge.model.jsontext import read_json
from bridge.toolkit.error_table import ErrorTable
from bridge.toolkit.errors import error_in, words_in
from bridge.toolkit.redact import LONGEST_WORD, masked

STATUS = "grpc-status"
"""The header that holds the name of the status, such as NOT_FOUND."""
CODE = "bridge-code"
"""The header that holds the code of another bridge: several codes have one status."""

LONGEST = 500
_PREFIX = "Error: "
_LIMIT, _TOO_LONG = "RESOURCE_EXHAUSTED", "message larger than max"


class _Errors(ErrorTable):
    def decode(self, wire: WireResponse) -> Failure:
        """Return the failure that a gRPC status means; a plain HTTP response (a proxy in between) has none.

        The body is the text of the details: a page of HTML and the like is not repeated, of JSON only its message.
        """
        word = masked(wire.headers.get(STATUS, ""), LONGEST_WORD)
        text = wire.body.decode("utf-8", "replace").strip()
        if text[:1] in ("{", "["):
            text = words_in(error_in(read_json(wire.body), refused=True) or {})
        text = "" if text[:1] == "<" else masked(text, addresses=True)
        error = {"message": text or f"The agent's side answered with the status {word or wire.status}.", "type": word}
        if word == _LIMIT and _TOO_LONG in text:  # gRPC's own limit
            error["code"] = str(ErrorCode.TOO_LARGE)
        else:
            error["code"] = masked(wire.headers.get(CODE, ""), LONGEST_WORD)
        failure = self.failure(error, None if word else wire.status)
        failure.backend_code = word or None
        return self.with_headers(failure, wire)


ERRORS = _Errors(
    words={code: rule.grpc for code, rule in RULES.items()},
    unnamed="The run failed.",
    codes={
        "INVALID_ARGUMENT": ErrorCode.INVALID_REQUEST,
        "NOT_FOUND": ErrorCode.NOT_FOUND,
        "UNAVAILABLE": ErrorCode.BACKEND_UNAVAILABLE,
        "DEADLINE_EXCEEDED": ErrorCode.BACKEND_TIMEOUT,
        _LIMIT: ErrorCode.RATE_LIMITED,
        "UNAUTHENTICATED": ErrorCode.BACKEND_AUTH,
        "PERMISSION_DENIED": ErrorCode.BACKEND_AUTH,
    },
    other_refusals=ErrorCode.INVALID_REQUEST,
    own=frozenset(),
    inner=True,
    wordless="The agent failed.",
)


def error_text(failure: Failure) -> str:
    """The text of a message that reports a failure."""
    return _PREFIX + ERRORS.text(failure, LONGEST)


def failure_of(text: str) -> Failure:
    """Return the failure in a message with a failed task."""
    return ERRORS.failure({"message": text.removeprefix(_PREFIX).strip()})


def encode_error(failure: Failure) -> WireResponse:
    told = {STATUS: ERRORS.word(failure), CODE: str(failure.code), "content-type": "text/plain; charset=utf-8"}
    headers = {**failure.headers, **told}
    return WireResponse(failure.http_status, headers, masked(failure.message, LONGEST).encode("utf-8", "replace"))
