"""One table of errors for every dialect: which of status, word and text counts, and what clients get to see."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import WireResponse, registry
from bridge.dialects.agentscope.errors import ERRORS as agentscope
from bridge.errors import KEY_REFUSED, RULES, ErrorCode, Failure
from bridge.model import RunFailed, RunStarted
from bridge.testing.wires import decode, encode
from bridge.toolkit.error_table import OWN, UNPROCESSABLE, ErrorTable, members, names
from bridge.toolkit.errors import STATUSES

BACKS = [name for name in registry.called() if not registry.get(name).over_grpc]
WITH_WORDS = [name for name in BACKS if name != "a2a"]
"""Dialects whose errors have a word of any kind; those of A2A have numbers, and words in their details."""


def refused(dialect: str, status: int, body: Any) -> Failure:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return registry.get(dialect).decode_error(WireResponse(status, {"content-type": "application/json"}, data))


# ------------------------------------------------------------------ all dialects


@pytest.mark.parametrize("code", sorted(set(OWN.values()) - {ErrorCode.BACKEND_AUTH}))
@pytest.mark.parametrize("dialect", [name for name in WITH_WORDS if name != "gemini"])
def test_the_code_of_another_bridge_counts_more_than_its_status(dialect: str, code: ErrorCode) -> None:
    failure = refused(dialect, RULES[code].http, {"error": {"message": "It broke.", "code": str(code)}})
    assert (failure.code, failure.message) == (code, "It broke.")


SPOKEN = [name for name in registry.served() if registry.get(name).called]
"""Dialects whose errors are both written and read."""
FOREIGN = {
    ErrorCode.UNAUTHORIZED: ErrorCode.BACKEND_AUTH,
    ErrorCode.FORBIDDEN: ErrorCode.BACKEND_AUTH,
    ErrorCode.INTERNAL: ErrorCode.BACKEND_ERROR,
}
"""What a key that is not accepted, and a crash, of another bridge are for this one."""
BY_STATUS = {"ai-sdk-ui": {404: ErrorCode.BACKEND_ERROR}, "ollama": dict[int, ErrorCode]()}
"""Dialects whose error is a text and its status, and what other statuses mean there than everywhere."""
IN_STREAMS = ("ag-kit", "ai-sdk-ui", "aip", "ollama")
"""Dialects in whose streams an error is a text."""


@pytest.mark.parametrize("code", ErrorCode)
@pytest.mark.parametrize("dialect", SPOKEN)
def test_the_code_that_a_bridge_writes_another_one_reads(dialect: str, code: ErrorCode) -> None:
    """Where the wire has a status alone, that decides; where it has a place for the code, nothing is lost."""
    each = registry.get(dialect)
    failure = each.decode_error(each.encode_error(Failure(code, "It broke.")))
    expected = FOREIGN.get(code, code)
    if dialect in BY_STATUS and code not in FOREIGN:
        status = RULES[code].http
        refused = ErrorCode.INVALID_REQUEST if status in (400, 422) else ErrorCode.BACKEND_ERROR
        expected = BY_STATUS[dialect].get(status) or STATUSES.get(status) or refused
    if (dialect, code) == ("a2a", ErrorCode.INVALID_REQUEST):
        expected = ErrorCode.BACKEND_ERROR  # the calls of an agent are the bridge's own
    assert failure.code is expected
    assert failure.code is ErrorCode.BACKEND_AUTH or "It broke." in failure.message


@pytest.mark.parametrize("code", ErrorCode)
@pytest.mark.parametrize("dialect", [name for name in SPOKEN if name not in IN_STREAMS])
def test_the_code_of_a_stream_that_failed_is_read_as_it_was_written(dialect: str, code: ErrorCode) -> None:
    each = registry.get(dialect)
    wire = encode(each, [RunStarted("r"), RunFailed(Failure(code, "It broke."))])
    (failure,) = [event.error for event in decode(each, [wire]) if isinstance(event, RunFailed)]
    expected = FOREIGN.get(code, code)
    if dialect == "a2a" and code in (*FOREIGN, ErrorCode.INVALID_REQUEST):
        expected = ErrorCode.BACKEND_ERROR  # a task that failed, whoever is to blame
    if dialect == "agentscope-java":
        expected = agentscope.code_of({"code": agentscope.word(Failure(code, ""))})  # the whole error is its word
    assert failure.code is expected
    assert failure.code is ErrorCode.BACKEND_AUTH or "It broke." in failure.message


@pytest.mark.parametrize("dialect", BACKS)
def test_the_crash_of_another_bridge_is_not_ours(dialect: str) -> None:
    failure = refused(dialect, 500, {"error": {"message": "It broke.", "code": "internal"}})
    assert failure.code is ErrorCode.BACKEND_ERROR


@pytest.mark.parametrize("status", [401, 402, 403, 407])
@pytest.mark.parametrize("body", [b"", b"<html>", {"error": {"message": "the key abc", "code": "rate_limited"}}])
@pytest.mark.parametrize("dialect", BACKS)
def test_a_status_about_the_key_counts_most_and_its_text_is_hidden(dialect: str, body: Any, status: int) -> None:
    failure = refused(dialect, status, body)
    assert (failure.code, failure.message) == (ErrorCode.BACKEND_AUTH, KEY_REFUSED)
    assert failure.backend_code is None


@pytest.mark.parametrize(
    "text", ["Not Found", "404 page not found", "Route not found.", "Invalid URL (POST /v1/v1/x)", "Cannot POST /x"]
)
@pytest.mark.parametrize("dialect", BACKS)
def test_what_a_router_answers_is_not_about_the_request(dialect: str, text: str) -> None:
    for body in ({"detail": text}, {"error": text}, {"error": {"message": text}}):
        failure = refused(dialect, 404, body)
        assert (failure.code, failure.message) == (
            ErrorCode.BACKEND_ERROR,
            "The backend answered with status 404.",
        ), body


@pytest.mark.parametrize("status", [408, 413, 429, 502, 503, 504, 529])
@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"busy"])
@pytest.mark.parametrize("dialect", BACKS)
def test_the_page_of_a_proxy_means_what_its_status_means(dialect: str, body: bytes, status: int) -> None:
    failure = refused(dialect, status, body)
    expected = refused("anthropic-messages", status, body).code
    if dialect == "agentscope-service" and status == 529:
        expected = ErrorCode.BACKEND_UNAVAILABLE  # of a service without such a status
    assert failure.code is expected
    assert failure.message == f"The backend answered with status {status}."


@pytest.mark.parametrize("dialect", BACKS)
def test_the_text_of_an_error_is_masked_and_cut(dialect: str) -> None:
    text = "The key sk-abcdefghijkl is old. " * 500
    failure = refused(dialect, 500, {"error": {"message": text, "code": text, "param": text}})
    for shown in (failure.message, failure.param or "", failure.backend_code or ""):
        assert "sk-abc" not in shown
        assert len(shown) < 2100


# ------------------------------------------------------------------ the class


TABLE = ErrorTable(
    words={ErrorCode.NOT_FOUND: "GONE"},
    default_word="BROKEN",
    sent=UNPROCESSABLE,
    codes={"FULL": ErrorCode.OVERLOADED, "WRONG": ErrorCode.INVALID_REQUEST},
    kept=frozenset({404, 503}),
    tells_retries=True,
)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        ({"code": "FULL"}, 400, ErrorCode.OVERLOADED),
        ({"code": "full"}, None, ErrorCode.OVERLOADED),
        ({"code": "FULL"}, 401, ErrorCode.BACKEND_AUTH),
        ({"code": "rate_limited", "type": "FULL"}, 500, ErrorCode.RATE_LIMITED),
        ({"code": "WRONG"}, 413, ErrorCode.TOO_LARGE),
        ({"code": "WRONG"}, None, ErrorCode.INVALID_REQUEST),
        ({"code": "WRONG", "type": "FULL"}, None, ErrorCode.OVERLOADED),
        ({"code": "WRONG", "message": "The prompt is too long."}, 400, ErrorCode.CONTEXT_LENGTH),
        ({"code": "FULL", "message": "The prompt is too long."}, 400, ErrorCode.OVERLOADED),
        ({"message": "The prompt is too long."}, 429, ErrorCode.RATE_LIMITED),
        ({"type": "invalid_request_error"}, 500, ErrorCode.BACKEND_ERROR),
        ({"type": "invalid_request_error"}, 418, ErrorCode.INVALID_REQUEST),
        ({"type": "overloaded_error"}, 500, ErrorCode.OVERLOADED),
        ({"type": "invalid_request"}, 404, ErrorCode.NOT_FOUND),
        ({"code": 429}, None, ErrorCode.RATE_LIMITED),
        ({}, None, ErrorCode.BACKEND_ERROR),
    ],
)
def test_which_of_status_word_and_text_counts(error: dict[str, Any], status: int | None, code: ErrorCode) -> None:
    assert TABLE.failure(error, status).code is code


def test_a_status_is_kept_only_if_it_blames_the_same_side_as_the_code() -> None:
    assert TABLE.failure({}, 404).status == 404
    assert TABLE.failure({}, 503).status == 503
    assert TABLE.failure({"code": "FULL"}, 404).status is None
    assert TABLE.failure({"code": "unsupported"}, 503).status is None
    assert TABLE.failure({}, 409).status is None


def test_what_clients_are_sent() -> None:
    assert (TABLE.word(Failure(ErrorCode.NOT_FOUND, "x")), TABLE.word(Failure(ErrorCode.INTERNAL, "x"))) == (
        "GONE",
        "BROKEN",
    )
    assert TABLE.text(Failure(ErrorCode.NOT_FOUND, "")) == "Unknown error."
    invalid = TABLE.response(Failure(ErrorCode.INVALID_REQUEST, "x"), {"a": 1})
    assert (invalid.status, invalid.body) == (422, b'{"a":1}')
    assert TABLE.response(Failure(ErrorCode.INVALID_REQUEST, "x", status=415), {}).status == 415
    assert "x-should-retry" not in invalid.headers
    assert TABLE.response(Failure(ErrorCode.CONFLICT, "x"), {}).headers["x-should-retry"] == "false"
    assert "x-should-retry" not in TABLE.response(Failure(ErrorCode.RATE_LIMITED, "x"), {}).headers


def test_what_is_read_of_an_error() -> None:
    error = {"code": 7, "type": "t", "no": True, "empty": "", "digits": "42"}
    assert members("code", "type", "no", "empty", "digits", "absent")(error) == ["7", "t", "42"]
    assert names("code", "type", "no", "empty", "digits", "absent")(error) == ["t"]
