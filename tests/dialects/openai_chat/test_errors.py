"""Section 7: errors in both directions, answers in one piece, models."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import ModelInfo, WireResponse
from bridge.dialects.openai_chat import dialect
from bridge.errors import BackendError, ErrorCode, Failure
from bridge.model import Answer, fold, verify
from bridge.toolkit.redact import masked
from bridge.translation import AnswerDecoder

from .helpers import back, capture


def refused(status: int, body: Any, headers: dict[str, str] | None = None) -> Failure:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return dialect.decode_error(WireResponse(status, headers or {}, data))


def error(**fields: Any) -> dict[str, Any]:
    return {"error": {"message": "boom", **fields}}


@pytest.mark.parametrize("status", [400, 404, 413, 422, 429, 503, 529])
def test_statuses_that_are_kept(status: int) -> None:
    failure = refused(status, error(code="some_word", param="n"))
    assert (failure.http_status, failure.message, failure.backend_code, failure.param) == (
        status,
        "boom",
        "some_word",
        "n",
    )
    shown = dialect.encode_error(failure)
    assert shown.status == status
    assert json.loads(shown.body)["error"]["code"] == "some_word"


def test_a_message_alone_is_an_error_beside_such_a_status() -> None:
    failure = refused(422, {"message": "boom", "request_id": "x"})
    assert (failure.code, failure.message, failure.http_status) == (ErrorCode.INVALID_REQUEST, "boom", 422)


def test_a_code_beside_an_error_in_one_word_is_kept() -> None:
    failure = refused(400, {"error": "boom", "code": "context_length_exceeded"})
    assert (failure.code, failure.message) == (ErrorCode.CONTEXT_LENGTH, "boom")


STREAM = b'data: {"choices":[\r\ndata: {"delta":{"content":"x"}}]}\r\n\r\ndata: [DONE]'


@pytest.mark.parametrize(
    ("content_type", "body", "text", "message"),
    [
        ("application/json", b": hi\r\n\r\n" + STREAM, "x", ""),
        ("application/json", b"\xef\xbb\xbf" + STREAM, "x", ""),
        ("text/event-stream", b'{"choices":[{"message":{"content":"x"}}]}', "x", ""),
        ("text/event-stream", b'event: error\ndata: {"message":"boom"}\n\ndata: [DONE]\n\n', "", "boom"),
        ("text/html", b"<img src=data:x>\ndata: 1", "", "neither a chat completion"),
    ],
    ids=["comment-first", "mark-first", "json-as-stream", "error-event", "page"],
)
def test_a_body_is_what_its_first_bytes_say(content_type: str, body: bytes, text: str, message: str) -> None:
    answer = parsed(body, kind=content_type)
    assert answer.text == text
    assert message in (answer.failure.message if answer.failure else "")
    assert bool(message) is (answer.failure is not None)


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("body", [error(code="invalid_api_key"), b"", b"<html>sk-secret99</html>"])
def test_a_refused_key_is_the_bridges_matter(status: int, body: Any) -> None:
    failure = refused(status, body)
    assert (failure.code, failure.http_status) == (ErrorCode.BACKEND_AUTH, 502)
    assert failure.message == "The backend refused the bridge's credentials."


@pytest.mark.parametrize(
    ("status", "body", "code", "shown"),
    [
        (500, error(), ErrorCode.BACKEND_ERROR, 502),
        (502, b"", ErrorCode.BACKEND_UNAVAILABLE, 502),
        (504, error(), ErrorCode.BACKEND_TIMEOUT, 504),
        (408, error(), ErrorCode.BACKEND_TIMEOUT, 504),
        (402, error(), ErrorCode.BACKEND_AUTH, 502),
        (400, b"<html>", ErrorCode.BACKEND_ERROR, 502),
        (404, b"<html>nginx</html>", ErrorCode.BACKEND_ERROR, 502),
        (404, error(type="invalid_request_error"), ErrorCode.NOT_FOUND, 404),
        (429, b"", ErrorCode.RATE_LIMITED, 429),
        (503, b"<html>", ErrorCode.OVERLOADED, 503),
        (413, b"<html>", ErrorCode.TOO_LARGE, 413),
        (400, error(code="context_length_exceeded"), ErrorCode.CONTEXT_LENGTH, 400),
        (400, error(code="content_filter"), ErrorCode.CONTENT_FILTER, 400),
        (
            400,
            {"object": "error", "message": "maximum context length is 5", "code": 400},
            ErrorCode.CONTEXT_LENGTH,
            400,
        ),
        (429, error(code="insufficient_quota"), ErrorCode.RATE_LIMITED, 429),
        (422, {"detail": [{"loc": ["body"], "msg": "bad"}]}, ErrorCode.INVALID_REQUEST, 422),
        (400, [error()], ErrorCode.INVALID_REQUEST, 400),
        (500, {"error": "Internal Server Error", "message": "boom"}, ErrorCode.BACKEND_ERROR, 502),
        (400, {"error": {"message": {"x": 1}}}, ErrorCode.INVALID_REQUEST, 400),
        (500, error(code=True), ErrorCode.BACKEND_ERROR, 502),
    ],
)
def test_what_a_status_means(status: int, body: Any, code: ErrorCode, shown: int) -> None:
    failure = refused(status, body)
    assert (failure.code, failure.http_status) == (code, shown)
    assert failure.message
    assert "<html" not in failure.message


def test_headers_that_pass() -> None:
    headers = {
        "retry-after": "7",
        "retry-after-ms": "70",
        "x-ratelimit-limit-requests": "9",
        "set-cookie": "a",
        "content-length": "5",
        "openai-organization": "acme",
        "x-request-id": "r",
    }
    for body in (error(), b"<html>"):
        failure = refused(429, body, headers)
        assert set(failure.headers) == {"retry-after", "retry-after-ms", "x-ratelimit-limit-requests"}
        assert dialect.encode_error(failure).headers["retry-after"] == "7"


@pytest.mark.parametrize(
    "text",
    [
        "sk-abcd1234",
        "Bearer abc.def",
        "bearer xyz",
        "sk-proj-a_b-c",
        "key sk-up****1234.",
        "api_key=12345",
        "gsk_abcdef",
        "AIzaSyA1234567890",
    ],
)
def test_keys_are_masked(text: str) -> None:
    shown = masked(f"Wrong: {text} given")
    assert "***" in shown
    assert text.split()[-1].split("=")[-1] not in shown
    body = dialect.encode_error(Failure(ErrorCode.BACKEND_ERROR, text)).body.decode()
    assert text not in body


@pytest.mark.parametrize("text", ["a task-force of 5", "the disk-cache", "maximum context length is 10", "keys: a, b"])
def test_plain_words_are_not(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_code_has_its_words(code: ErrorCode) -> None:
    wire = dialect.encode_error(Failure(code, "why"))
    shown = json.loads(wire.body)["error"]
    assert set(shown) == {"message", "type", "param", "code"}
    assert shown["type"]
    assert wire.status == Failure(code, "").http_status
    assert wire.content_type == "application/json"


@pytest.mark.parametrize(
    "code",
    [c for c in ErrorCode if c not in (ErrorCode.UNAUTHORIZED, ErrorCode.FORBIDDEN, ErrorCode.INTERNAL)],
)
def test_codes_come_back_behind_another_bridge(code: ErrorCode) -> None:
    """But for the three that a backend says of its own affairs."""
    assert dialect.decode_error(dialect.encode_error(Failure(code, "why"))).code is code


def test_pointless_retries_are_named() -> None:
    assert dialect.encode_error(Failure(ErrorCode.BACKEND_AUTH, "x")).headers["x-should-retry"] == "false"
    for code in (ErrorCode.RATE_LIMITED, ErrorCode.INVALID_REQUEST):
        assert "x-should-retry" not in dialect.encode_error(Failure(code, "x")).headers


# ------------------------------------------------------------------ answers in one piece


def parsed(body: Any, kind: str = "application/json") -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    reading = AnswerDecoder(dialect, back(), {"content-type": kind})
    return fold(verify(reading.receive(data) + reading.close()))


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "boom"}},
        {"error": "boom"},
        {"object": "error", "message": "boom"},
        {"detail": "boom"},
        {"code": 7, "message": "boom"},
    ],
)
def test_errors_with_status_200(body: Any) -> None:
    failure = parsed(body).failure
    assert failure is not None
    assert (failure.message, failure.http_status) == ("boom", 502)
    failure = parsed({"error": {"message": "boom", "code": "429"}}).failure
    assert failure is not None
    assert failure.http_status == 429


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"",
        b"[]",
        b"7",
        b'{"choices":[]}',
        b'{"choices":5}',
        b"{}",
        b'{"choices":[' + b"[" * 900 + b"]" * 900 + b"]}",
    ],
)
def test_what_is_no_completion(body: bytes) -> None:
    failure = fold(verify(dialect.parse_response(WireResponse(200, {}, body), back()))).failure
    assert failure is not None
    assert failure.code is ErrorCode.BACKEND_PROTOCOL


def test_a_poor_completion() -> None:
    got = parsed(
        {"choices": [{"message": {"content": [{"type": "text", "text": "Hi"}], "reasoning": "hm", "tool_calls": []}}]}
    )
    assert (got.text, got.reasoning, str(got.reason), got.usage) == ("Hi", "hm", "stop", None)


def test_ids_are_not_made_unique() -> None:
    got = parsed(
        {
            "choices": [
                {
                    "message": {
                        "content": None,
                        "tool_calls": [
                            {"id": "a", "function": {"name": "f", "arguments": {"x": 1}}},
                            {"id": "a", "function": {"name": "f", "arguments": "{}"}},
                        ],
                    }
                }
            ]
        }
    )
    assert [(c.name, c.arguments) for c in got.calls] == [("f", '{"x":1}'), ("f", "{}")]


def test_a_stream_where_a_completion_was_due() -> None:
    data = capture("openai-text-usage")
    for kind in ("text/event-stream", ""):
        got = parsed(data, kind=kind)
        assert (got.text, str(got.reason)) == ("Hello, world!", "stop")
    assert parsed(data[:900], kind="text/event-stream").failure is not None


def test_a_rich_completion_goes_around() -> None:
    """What only chat knows of a completion is in the completion that a chat client gets."""
    message = {
        "role": "assistant",
        "content": "See",
        "refusal": None,
        "annotations": [{"type": "url_citation", "url_citation": {"url": "https://x.test"}}],
        "audio": {"id": "a1", "data": "QUJD", "expires_at": 5, "transcript": "abc"},
        "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}],
        "mood": "fine",
    }
    choice = {
        "index": 0,
        "message": message,
        "logprobs": {"content": [{"token": "See", "logprob": -1.5}]},
        "finish_reason": "stop",
        "stop_reason": 7,
    }
    body = {
        "id": "c1",
        "object": "chat.completion",
        "created": 5,
        "model": "m",
        "choices": [choice, {**choice, "index": 1, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
        "system_fingerprint": "fp",
        "prompt_logprobs": [1],
    }
    wire = WireResponse(200, {"content-type": "application/json"}, json.dumps(body).encode())
    assert json.loads(dialect.assemble(dialect.parse_response(wire, back()), back()).body) == body


# ------------------------------------------------------------------ models


def test_models_request_and_answers() -> None:
    wire = dialect.models_request()
    assert wire is not None
    assert (wire.method, wire.path) == ("GET", "/models")
    infos = [ModelInfo("a", 5, "me"), ModelInfo("b")]
    assert dialect.decode_models(dialect.encode_models(infos)) == infos
    assert json.loads(dialect.encode_model(infos[0]).body) == {
        "id": "a",
        "object": "model",
        "created": 5,
        "owned_by": "me",
    }


@pytest.mark.parametrize(
    "body",
    [
        {"data": [{"id": "a"}, {"id": 5}, {}, 7]},
        [{"id": "a", "created": "x"}],
        {"models": [{"id": "a", "owned_by": 3}]},
    ],
)
def test_odd_lists_of_models(body: Any) -> None:
    assert [m.id for m in dialect.decode_models(WireResponse(200, {}, json.dumps(body).encode()))] == ["a"]


def test_no_models() -> None:
    """Ollama says null when it has none."""
    assert dialect.decode_models(WireResponse(200, {}, b'{"object":"list","data":null}')) == []


def test_no_list_of_models() -> None:
    for body in (b"<html>", b"{}", b'{"data":5}'):
        with pytest.raises(BackendError):
            dialect.decode_models(WireResponse(200, {}, body))
