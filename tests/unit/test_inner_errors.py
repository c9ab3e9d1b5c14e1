"""Exceptions of the models' SDKs, as agents put them into the text of an error."""

from __future__ import annotations

import time

import anthropic
import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import ErrorCode, Failure
from bridge.toolkit.inner_errors import unwrapped

SLOW = {"error": {"message": "Slow down, it's full.", "type": "requests", "code": "rate_limit_exceeded"}}


def told(text: str, code: ErrorCode = ErrorCode.BACKEND_ERROR) -> Failure:
    return unwrapped(Failure(code, text))


def of_openai(status: int, body: object) -> str:
    client = openai.OpenAI(api_key="x")
    answer = httpx2.Response(status, json=body, request=httpx2.Request("POST", "https://x.example"))
    return str(client._make_status_error_from_response(answer))


def of_anthropic(status: int, body: object) -> str:
    client = anthropic.Anthropic(api_key="x")
    answer = httpx2.Response(status, json=body, request=httpx2.Request("POST", "https://x.example"))
    return str(client._make_status_error_from_response(answer))


@pytest.mark.parametrize("wrap", ["{}", "RateLimitError({!r})", "litellm.RateLimitError: {}"])
def test_a_429_of_the_openai_sdk(wrap: str) -> None:
    failure = told(wrap.format(of_openai(429, SLOW)))
    assert failure == Failure(ErrorCode.RATE_LIMITED, "Slow down, it's full.")


@pytest.mark.parametrize("wrap", ["{}", "RateLimitError({!r})", "litellm.RateLimitError: {}"])
def test_a_429_of_earlier_openai_sdks(wrap: str) -> None:
    failure = told(wrap.format(f"Error code: 429 - {SLOW}"))
    assert failure == Failure(ErrorCode.RATE_LIMITED, "Slow down, it's full.", backend_code="rate_limit_exceeded")


def test_an_overload_of_the_anthropic_sdk() -> None:
    text = of_anthropic(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    assert told(text) == Failure(ErrorCode.OVERLOADED, "Overloaded")


@pytest.mark.parametrize(
    ("text", "code", "message", "headers"),
    [
        (
            "status_code: 429, model_name: gpt, body: {'message': 'Wait. Please try again in 1.2s.'}",
            ErrorCode.RATE_LIMITED, "Wait. Please try again in 1.2s.", {"retry-after": "2"},
        ),
        (
            "429 RESOURCE_EXHAUSTED. {'error': {'code': 429, 'message': 'Full.', 'details': [{'retryDelay': '34s'}]}}",
            ErrorCode.RATE_LIMITED, "Full.", {"retry-after": "34"},
        ),
        (
            '429 {"type":"error","error":{"type":"rate_limit_error","message":"Caf\\u00e9 \\"full\\""}}',
            ErrorCode.RATE_LIMITED, 'Café "full"', {},
        ),
        ("Error code: 503 - {'detail': 'Busy', 'retry_after': 5}", ErrorCode.OVERLOADED, "Busy", {"retry-after": "5"}),
        ("Error code: 500 - {'error': {}}", ErrorCode.BACKEND_ERROR, "Error code: 500", {}),
        ("Error code: 504", ErrorCode.BACKEND_TIMEOUT, "Error code: 504", {}),
        ("Error code: 400 - {'error': {'message': 'No such tool.'}}", ErrorCode.INVALID_REQUEST, "No such tool.", {}),
        ("Error code: 422 - {'detail': 'Odd.'}", ErrorCode.INVALID_REQUEST, "Odd.", {}),
        ("Error code: 418 - {'detail': 'Tea.'}", ErrorCode.INVALID_REQUEST, "Tea.", {}),
        ("Error code: 401 - {'error': {'message': 'No key.'}}", ErrorCode.BACKEND_AUTH, "No key.", {}),
        ("Error code: 404 - {'error': {'message': 'No model.'}}", ErrorCode.NOT_FOUND, "No model.", {}),
        ("Error code: 409 - {'error': {'message': 'Busy.'}}", ErrorCode.BACKEND_ERROR, "Busy.", {}),
        ("status_code: 400, model_name: m, body: {'message': 'Bad.'}", ErrorCode.INVALID_REQUEST, "Bad.", {}),
        ("litellm.BadRequestError: OpenAIException - no such tool",
         ErrorCode.INVALID_REQUEST, "litellm.BadRequestError: OpenAIException - no such tool", {}),
        ("Error code: 400 - {'error': {'message': 'prompt is too long: 9 tokens > 8 maximum'}}",
         ErrorCode.CONTEXT_LENGTH, "prompt is too long: 9 tokens > 8 maximum", {}),
        ("{'error': {'message': 'Broken.'}}", ErrorCode.BACKEND_ERROR, "Broken.", {}),
        ("429 Too many requests, try again in 500ms", ErrorCode.RATE_LIMITED,
         "Too many requests, try again in 500ms", {"retry-after": "1"}),
        ('litellm.RateLimitError: AnthropicException - {"type":"error","error":{"type":"x","message":"Wait a bit."}}',
         ErrorCode.RATE_LIMITED, "Wait a bit.", {}),
        ("litellm.ServiceUnavailableError: OpenAIException - 503 Service Unavailable",
         ErrorCode.OVERLOADED, "litellm.ServiceUnavailableError: OpenAIException - 503 Service Unavailable", {}),
        ("RateLimitError('Slow down')", ErrorCode.RATE_LIMITED, "Slow down", {}),
        ("openai.RateLimitError", ErrorCode.RATE_LIMITED, "openai.RateLimitError", {}),
        ("RateLimitError: Error code: 503 - {'message': 'Busy'}", ErrorCode.OVERLOADED, "Busy", {}),
    ],
)  # fmt: skip
def test_other_notations(text: str, code: ErrorCode, message: str, headers: dict[str, str]) -> None:
    failure = told(text)
    assert (failure.code, failure.message, failure.headers) == (code, message, headers)


@pytest.mark.parametrize(
    "text",
    [
        "The model fell over",
        "Room 429 is locked",
        "400 lines were read",
        "404",
        "The field 'message': 'x' is missing",
        "Expected {'a': 1}",
        "Tried 500 times",
        "The RateLimitError of yesterday",
        "RateLimitErrors",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert told(text) == Failure(ErrorCode.BACKEND_ERROR, text)


def test_the_backends_own_code_stays() -> None:
    failure = told("Error code: 429 - {'error': {'message': 'Slow.'}}", ErrorCode.CONTEXT_LENGTH)
    assert failure == Failure(ErrorCode.CONTEXT_LENGTH, "Slow.")


def test_escapes_of_json_become_characters() -> None:
    assert told(r"""429 {"message": "full \ud83d\ude00 \ud83d"}""").message == "full 😀 \ufffd"


def test_keys_in_the_inner_message_are_masked() -> None:
    assert "abcdef" not in told(r"Error code: 500 - {'error': {'message': 'Bad key: s\x6b-abcdef123456'}}").message


@given(st.text(st.sampled_from("{}[]'\"\\:, 429message codretryafteinErrorcod-"), max_size=300))
def test_any_text_is_taken(text: str) -> None:
    told(text)
    told(f"Error code: 429 - {text}")


@pytest.mark.parametrize("piece", ["'message': '", "429 ", "retry in ", "{", "\\", "http status ", "'", "message"])
def test_the_time_is_linear(piece: str) -> None:
    text = "Error code: 429 - " + piece * (200_000 // len(piece))
    begun = time.perf_counter()
    told(text)
    assert time.perf_counter() - begun < 1
