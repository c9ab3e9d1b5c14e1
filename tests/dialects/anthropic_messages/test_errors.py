"""Failures in this dialect's words and back."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest

from bridge.contract import ModelInfo, WireResponse
from bridge.dialects.anthropic_messages import dialect
from bridge.dialects.anthropic_messages.errors import WORDS
from bridge.errors import BackendError, ErrorCode, Failure

from .helpers import sdk, strange

CLASSES = [
    (Failure(ErrorCode.INVALID_REQUEST, "bad"), anthropic.BadRequestError, 400, "invalid_request_error"),
    (Failure(ErrorCode.UNAUTHORIZED, "who?"), anthropic.AuthenticationError, 401, "authentication_error"),
    (Failure(ErrorCode.FORBIDDEN, "no"), anthropic.PermissionDeniedError, 403, "permission_error"),
    (Failure(ErrorCode.NOT_FOUND, "no such model"), anthropic.NotFoundError, 404, "not_found_error"),
    (Failure(ErrorCode.TOO_LARGE, "big"), anthropic.APIStatusError, 413, "request_too_large"),
    (Failure(ErrorCode.RATE_LIMITED, "slow"), anthropic.RateLimitError, 429, "rate_limit_error"),
    (Failure(ErrorCode.OVERLOADED, "busy", status=503), anthropic.APIStatusError, 529, "overloaded_error"),
    (Failure(ErrorCode.CONTEXT_LENGTH, "long"), anthropic.BadRequestError, 400, "invalid_request_error"),
    (Failure(ErrorCode.BACKEND_AUTH, "our key"), anthropic.InternalServerError, 502, "api_error"),
    (Failure(ErrorCode.BACKEND_TIMEOUT, "late"), anthropic.APIStatusError, 504, "timeout_error"),
    (Failure(ErrorCode.INTERNAL, "broke"), anthropic.InternalServerError, 500, "api_error"),
]


@pytest.mark.parametrize(("failure", "kind", "status", "word"), CLASSES, ids=[str(c[0].code) for c in CLASSES])
def test_the_sdk_raises_what_it_should(
    failure: Failure, kind: type[anthropic.APIStatusError], status: int, word: str
) -> None:
    with pytest.raises(kind) as caught:
        sdk(dialect.encode_error(failure)).messages.create(model="m", max_tokens=1, messages=[])
    body: Any = caught.value.body
    assert (caught.value.status_code, body["error"]["type"]) == (status, word)
    assert failure.message in body["error"]["message"]


@pytest.mark.parametrize("code", list(ErrorCode))
def test_a_failure_survives_two_bridges(code: ErrorCode) -> None:
    """What one says to its client another reads from its backend; the first one's keys are not the second's."""
    response = dialect.encode_error(Failure(code, "it went wrong", headers={"retry-after": "7"}))
    again = dialect.decode_error(response)
    meant = {
        ErrorCode.UNAUTHORIZED: ErrorCode.BACKEND_AUTH,
        ErrorCode.FORBIDDEN: ErrorCode.BACKEND_AUTH,
        ErrorCode.INTERNAL: ErrorCode.BACKEND_ERROR,
    }
    assert again.code is meant.get(code, code)
    assert again.headers == {"retry-after": "7"}


def test_every_code_has_a_word() -> None:
    assert WORDS.keys() == set(ErrorCode)


def test_a_long_prompt_is_told_in_the_words_that_clients_look_for() -> None:
    for text in ("Prompt is too long: 9 > 8", "This model's maximum context length is 8"):
        body = json.loads(dialect.encode_error(Failure(ErrorCode.CONTEXT_LENGTH, text)).body)
        assert body["error"]["message"].lower().startswith("prompt is too long")
        assert body["error"]["message"].lower().count("prompt is too long") == 1


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, {"error": {"type": "invalid_request_error", "message": "`max_tokens` exceed context limit"}},
         ErrorCode.CONTEXT_LENGTH),
        (400, {"detail": "bad"}, ErrorCode.INVALID_REQUEST),
        (404, {"error": {"type": "not_found_error", "message": "model: x"}}, ErrorCode.NOT_FOUND),
        (422, {"error": {"message": "bad"}}, ErrorCode.INVALID_REQUEST),
        (500, {"error": {"type": "overloaded_error", "message": "busy"}}, ErrorCode.OVERLOADED),
        (500, "nonsense", ErrorCode.BACKEND_ERROR),
        (404, "nonsense", ErrorCode.BACKEND_ERROR),
        (403, {"error": {"type": "permission_error", "message": "key sk-ant-0123456789"}}, ErrorCode.BACKEND_AUTH),
        (402, {"error": {"type": "billing_error", "message": "pay"}}, ErrorCode.BACKEND_AUTH),
        (529, "nonsense", ErrorCode.OVERLOADED),
    ],
)  # fmt: skip
def test_what_backends_say(status: int, body: Any, code: ErrorCode) -> None:
    failure = dialect.decode_error(WireResponse(status, {}, json.dumps(body).encode()))
    assert failure.code is code
    assert "sk-ant" not in failure.message


def test_headers_that_reach_the_client() -> None:
    headers = {"retry-after": "7", "anthropic-ratelimit-requests-remaining": "0", "set-cookie": "x", "request-id": "r"}
    failure = dialect.decode_error(WireResponse(429, headers, b"{}"))
    assert failure.headers == {"retry-after": "7", "anthropic-ratelimit-requests-remaining": "0"}


# ---------------------------------------------------------------------- models and counts


def test_models() -> None:
    infos = [ModelInfo("a/b", 1_700_000_000, "me"), ModelInfo("c"), ModelInfo("late", 10**15)]
    page = sdk(dialect.encode_models(infos)).models.list()
    assert [(m.id, m.display_name, m.type, m.lifecycle) for m in page.data] == [
        (n, n, "model", "active") for n in ("a/b", "c", "late")
    ]
    assert [str(m.created_at.date()) for m in page.data] == ["2023-11-14", "1970-01-01", "9999-12-31"]
    assert (page.first_id, page.last_id, page.has_more) == ("a/b", "late", False)
    assert strange(page.data) == []
    assert sdk(dialect.encode_model(infos[0])).models.retrieve("a/b").id == "a/b"
    again = dialect.decode_models(dialect.encode_models(infos[:2]))
    assert [(m.id, m.created) for m in again] == [("a/b", 1_700_000_000), ("c", 0)]
    assert sdk(dialect.encode_models([])).models.list().data == []


@pytest.mark.parametrize(
    ("created", "seconds"),
    [
        ({"created_at": "2025-02-19T00:00:00Z"}, 1739923200),
        ({"created_at": "2025-02-19"}, 1739923200),
        ({"created": 5}, 5),
        ({"created_at": "soon"}, 0),
        ({}, 0),
    ],
)
def test_times_of_models(created: dict[str, Any], seconds: int) -> None:
    body = json.dumps({"data": [{"id": "a", **created}, {"no": "id"}, 5]}).encode()
    assert [(m.id, m.created) for m in dialect.decode_models(WireResponse(200, {}, body))] == [("a", seconds)]


@pytest.mark.parametrize("body", [b"[]", b"{}", b"nonsense", b'{"data":{}}'])
def test_what_is_no_list_of_models(body: bytes) -> None:
    with pytest.raises(BackendError, match="is not a list of models"):
        dialect.decode_models(WireResponse(200, {}, body))


def test_counts() -> None:
    counted = sdk(dialect.encode_count(5, False)).messages.count_tokens(model="m", messages=[])
    assert counted.to_dict() == {"input_tokens": 5}
    assert json.loads(dialect.encode_count(5, True).body) == {"input_tokens": 5, "estimated": True}
    assert dialect.decode_count(WireResponse(200, {}, b'{"input_tokens":5}')) == 5
    for body in (b"{}", b'{"input_tokens":"5"}', b'{"input_tokens":-1}', b"nonsense"):
        with pytest.raises(BackendError, match="not a token count"):
            dialect.decode_count(WireResponse(200, {}, body))


def test_a_refusal_whose_message_stands_beside_its_type() -> None:
    failure = dialect.decode_error(WireResponse(400, {}, b'{"type":"error","message":"no such tool"}'))
    assert failure.message == "no such tool"
