"""Failures before and inside a stream, to clients and from backends (sections 1, 5)."""

from __future__ import annotations

import json

import pytest

from bridge.contract import WireResponse
from bridge.dialects.ag_ui import dialect
from bridge.errors import ErrorCode, Failure, RequestError
from bridge.model import fold

from .helpers import OF_ANOTHER_BRIDGE, again, back, build, front, heard, old_client, read, said

STATUSES = {
    ErrorCode.INVALID_REQUEST: 422,
    ErrorCode.UNSUPPORTED: 422,
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.TOO_LARGE: 413,
    ErrorCode.RATE_LIMITED: 429,
    ErrorCode.BACKEND_AUTH: 502,
    ErrorCode.INTERNAL: 500,
}


@pytest.mark.parametrize(("code", "status"), STATUSES.items())
def test_before_the_stream(code: ErrorCode, status: int) -> None:
    wire = dialect.encode_error(Failure(code, "No: sk-abcdef123", param="threadId", headers={"retry-after": "3"}))
    assert (wire.status, wire.content_type, wire.headers["retry-after"]) == (status, "application/json", "3")
    error = json.loads(wire.body)["error"]
    assert error["message"] == "No: ***"
    assert error["param"] == "threadId"


@pytest.mark.parametrize(("body", "status"), [(b"", 400), (b"{", 400), (b"\xff", 400), (b"[]", 422), (b"{}", 422)])
def test_no_json_is_400_and_a_wrong_shape_422(body: bytes, status: int) -> None:
    with pytest.raises(RequestError) as caught:
        read(body)
    assert dialect.encode_error(caught.value.failure).status == status


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_comes_back(code: ErrorCode) -> None:
    events = build(lambda b: b.fail(Failure(code, "It broke.")))
    failure = again(events).failure
    assert failure is not None
    assert (failure.code, failure.backend_code) == (OF_ANOTHER_BRIDGE.get(code, code), None)
    said(events, old_client())


@pytest.mark.parametrize(
    ("word", "code", "shown"),
    [
        ("OVERLOADED", ErrorCode.OVERLOADED, "OVERLOADED"),
        ("MY_CODE", ErrorCode.BACKEND_ERROR, "MY_CODE"),
        ("UPSTREAM_HTTP_429", ErrorCode.RATE_LIMITED, "UPSTREAM_HTTP_429"),
        ("UPSTREAM_HTTP_9999999", ErrorCode.BACKEND_ERROR, "UPSTREAM_HTTP_9999999"),
        ("UNAUTHORIZED", ErrorCode.BACKEND_AUTH, "UPSTREAM_AUTH"),
        ("abort", ErrorCode.CANCELED, "abort"),
        (None, ErrorCode.BACKEND_ERROR, "UPSTREAM_ERROR"),
        (429, ErrorCode.RATE_LIMITED, "RATE_LIMITED"),
    ],
)
def test_the_words_of_backends(word: object, code: ErrorCode, shown: str) -> None:
    failure = heard({"type": "RUN_ERROR", "message": "m", "code": word}, ends=False).failure
    assert failure is not None
    assert failure.code is code
    assert said(build(lambda b: b.fail(failure)), front())[-1]["code"] == shown


def test_a_word_of_another_meaning_is_not_sent() -> None:
    failure = Failure(ErrorCode.BACKEND_ERROR, "m", backend_code="insufficient_quota")
    events = build(lambda b: b.fail(failure))
    assert said(events)[-1]["code"] == "UPSTREAM_ERROR"
    seen = again(events).failure
    assert seen is not None
    assert seen.code is ErrorCode.BACKEND_ERROR


def test_a_backend_never_says_why_it_refused_our_key() -> None:
    failure = dialect.decode_error(WireResponse(401, {}, b'{"error":{"message":"key sk-123456 is wrong"}}'))
    assert (failure.code, "sk-" in failure.message) == (ErrorCode.BACKEND_AUTH, False)


@pytest.mark.parametrize(
    ("status", "body", "code", "message", "word"),
    [
        (500, b"<html>", ErrorCode.BACKEND_ERROR, "The backend answered with status 500.", "UPSTREAM_HTTP_500"),
        (503, b'{"detail":"busy"}', ErrorCode.OVERLOADED, "busy", "UPSTREAM_HTTP_503"),
        (422, b'{"detail":[{"loc":["x"],"msg":"bad"}]}', ErrorCode.INVALID_REQUEST, "x: bad", "UPSTREAM_HTTP_422"),
        (404, b"", ErrorCode.BACKEND_ERROR, "The backend answered with status 404.", "UPSTREAM_HTTP_404"),
        (500, b'{"error":{"message":"full","code":"CONTEXT_LENGTH"}}', ErrorCode.CONTEXT_LENGTH, "full",
         "UPSTREAM_HTTP_500"),
        (418, b'{"message":"tea","code":"TEAPOT"}', ErrorCode.BACKEND_ERROR, "tea", "UPSTREAM_HTTP_418"),
    ],
)  # fmt: skip
def test_statuses_of_backends(status: int, body: bytes, code: ErrorCode, message: str, word: str) -> None:
    """The client's word is the status (section 5); the backend's own word comes along for who knows it."""
    failure = dialect.decode_error(WireResponse(status, {"retry-after": "9", "set-cookie": "x"}, body))
    assert (failure.code, failure.message, failure.headers) == (code, message, {"retry-after": "9"})
    out = said(build(lambda b: b.fail(failure)))[-1]
    assert out["code"] == word
    seen = again(build(lambda b: b.fail(failure))).failure
    assert seen is not None
    assert (seen.code, seen.backend_code) == (code, failure.backend_code)


def test_answers_in_one_piece() -> None:
    listed = b'[{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":"x"},{"type":"RUN_FINISHED"}]'
    answer = fold(dialect.parse_response(WireResponse(200, {"content-type": "application/json"}, listed), back()))
    assert (answer.text, answer.failure) == ("x", None)
    for body, code in (
        (b'{"error":{"message":"m"}}', ErrorCode.BACKEND_ERROR),
        (b"<html>", ErrorCode.BACKEND_PROTOCOL),
        (b"{}", ErrorCode.BACKEND_PROTOCOL),
    ):
        last = dialect.parse_response(WireResponse(200, {"content-type": "application/json"}, body), back())[-1]
        assert last.error.code is code  # type: ignore[union-attr]


def test_assembled_is_the_stream_or_the_error() -> None:
    wire = dialect.assemble(build(lambda b: None), front())
    assert wire.content_type == "text/event-stream"
    assert wire.body.endswith(b"\n\n")
    failed = dialect.assemble(build(lambda b: b.fail(Failure(ErrorCode.BACKEND_ERROR, "m"))), front())
    assert (failed.status, failed.content_type) == (502, "application/json")
