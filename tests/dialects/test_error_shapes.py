"""Errors in the shapes of many servers, with status 200, in streams and with an error status, for every backend."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import Context, Losses, WireResponse, registry
from bridge.errors import ErrorCode, Failure
from bridge.model.fold import Answer, fold
from bridge.toolkit.errors import FULL_CONTEXT, ROWS, code_in, code_of_word, error_in, is_full_context, recognized
from bridge.translation.framing.sse import Splitter

WORDS = "the disk is full"

# What servers send in place of an answer, with status 200.
SHAPES: dict[str, Any] = {
    "MiniMax": {"base_resp": {"status_code": 1000, "status_msg": WORDS}},
    "code and msg": {"code": 500, "msg": WORDS, "data": None},
    "code and message": {"code": "Failed", "message": WORDS, "request_id": "r"},
    "not successful": {"success": False, "message": WORDS},
    "not successful, with errors": {"success": False, "errors": [{"code": 1000, "message": WORDS}], "result": None},
    "status": {"status": "error", "message": WORDS},
    "OpenAI": {"error": {"message": WORDS, "type": "server_error", "code": None}},
    "text": {"error": WORDS},
    "text and type": {"error": WORDS, "error_type": "generation"},
    "vLLM": {"object": "error", "message": WORDS, "type": "InternalServerError", "code": 500},
    "FastAPI": {"detail": WORDS},
    "Baidu": {"error_code": 336000, "error_msg": WORDS, "id": "i"},
    "Spark": {"header": {"code": 10013, "message": WORDS, "sid": "s"}},
    "Tencent": {"Response": {"Error": {"Code": "InternalError", "Message": WORDS}, "RequestId": "r"}},
    "GraphQL": {"errors": [{"message": WORDS}]},
}

# The same names, and no error.
FINE: list[Any] = [
    {"base_resp": {"status_code": 0, "status_msg": "success"}},
    {"base_resp": None},
    {"error": None},
    {"error": {}},
    {"error": ""},
    {"error": {"message": None, "code": None}},
    {"code": 0, "message": "ok"},
    {"code": "200", "msg": "success", "data": {}},
    {"success": True, "message": "done"},
    {"header": {"code": 0, "message": "Success"}},
    {"detail": ""},
    {"detail": None},
    {"errors": []},
    {"object": "progress", "message": "searching", "code": "search"},
    {"type": "billing_notice", "detail": "cached"},
    {"type": "billing_notice", "error": "none so far"},
    {"status": "failed"},
    {"status": {"state": "failed"}, "message": "x"},
    {"choices": [{"index": 0}], "code": "x", "message": "y"},
    {},
    [],
    None,
    "error",
    7,
]

BACKS = [name for name in registry.called() if not registry.get(name).over_grpc]
STREAMS = [name for name in BACKS if name not in ("agentscope-service",)]


def context(dialect: str) -> Context:
    each = registry.get(dialect)
    return Context("run", "thread", 1.0, each.back_options(), "m", None, Losses())


def streamed(dialect: str, value: Any) -> Answer:
    decoder = registry.get(dialect).decoder(context(dialect))
    frames = Splitter().feed(b"data: " + json.dumps(value).encode() + b"\n\n")
    return fold([*decoder.feed(frames), *decoder.close()])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dialect", STREAMS)
def test_an_error_in_a_stream_fails_the_answer_with_its_words(dialect: str, shape: str) -> None:
    failure = streamed(dialect, SHAPES[shape]).failure
    assert failure is not None
    assert WORDS in failure.message
    assert failure.code is ErrorCode.BACKEND_ERROR


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dialect", STREAMS)
def test_an_error_in_place_of_a_whole_answer_fails_it_with_its_words(dialect: str, shape: str) -> None:
    wire = WireResponse(200, {"content-type": "application/json"}, json.dumps(SHAPES[shape]).encode())
    failure = fold(registry.get(dialect).parse_response(wire, context(dialect))).failure
    assert failure is not None
    assert WORDS in failure.message


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dialect", BACKS)
def test_an_error_with_an_error_status_has_its_words(dialect: str, shape: str) -> None:
    wire = WireResponse(500, {"content-type": "application/json"}, json.dumps(SHAPES[shape]).encode())
    failure = registry.get(dialect).decode_error(wire)
    assert WORDS in failure.message


@pytest.mark.parametrize("value", FINE, ids=json.dumps)
def test_what_is_no_error(value: Any) -> None:
    assert error_in(value) is None


CHAT_END = {"choices": [{"index": 0, "delta": {"content": "part"}, "finish_reason": None}]}


def test_an_error_beside_the_last_choices_fails_the_answer() -> None:
    for choices in ([], None, CHAT_END["choices"]):
        value = {"choices": choices, "base_resp": {"status_code": 1027, "status_msg": WORDS}}
        answer = streamed("openai-chat", value)
        assert answer.failure is not None
        assert (answer.failure.code, answer.failure.message) == (ErrorCode.CONTENT_FILTER, WORDS)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (1001, ErrorCode.BACKEND_TIMEOUT),
        (1002, ErrorCode.RATE_LIMITED),
        (1004, ErrorCode.BACKEND_AUTH),
        (1008, ErrorCode.RATE_LIMITED),
        (1026, ErrorCode.CONTENT_FILTER),
        (1027, ErrorCode.CONTENT_FILTER),
        (2013, ErrorCode.INVALID_REQUEST),
        (2049, ErrorCode.BACKEND_AUTH),
        (9999, ErrorCode.BACKEND_ERROR),
    ],
)
@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic-messages", "gemini"])
def test_what_the_numbers_of_minimax_mean(dialect: str, number: int, code: ErrorCode) -> None:
    failure = streamed(dialect, {"base_resp": {"status_code": number, "status_msg": WORDS}}).failure
    assert failure is not None
    assert failure.code is code
    assert (WORDS in failure.message) is (code is not ErrorCode.BACKEND_AUTH)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": "1302"}, ErrorCode.RATE_LIMITED),
        ({"code": "1305"}, ErrorCode.RATE_LIMITED),
        ({"code": "rate_limit_exceeded"}, ErrorCode.RATE_LIMITED),
        ({"type": "rate_limit_reached_error"}, ErrorCode.RATE_LIMITED),
        ({"type": "service_unavailable_error", "code": "server_is_overloaded"}, ErrorCode.OVERLOADED),
        ({"type": "engine_overloaded_error"}, ErrorCode.OVERLOADED),
        ({"code": "UNAVAILABLE"}, ErrorCode.OVERLOADED),
    ],
)
@pytest.mark.parametrize("dialect", [name for name in STREAMS if name != "acp"])
def test_words_for_a_busy_server_are_known_in_every_stream(dialect: str, error: Any, code: ErrorCode) -> None:
    """router-for-me/CLIProxyAPI#2712: servers say so in streams with status 200, too."""
    failure = streamed(dialect, {"error": {"message": WORDS, **error}}).failure
    assert failure is not None
    assert failure.code is code


# ------------------------------------------------------------------ a full context

FULL = [
    "request (4267 tokens) exceeds the available context size (4096 tokens), try increasing it",
    "Context size has been exceeded.",
    "Your request exceeded model token limit: 262144 (requested: 291351)",
    "tokens in request more than max tokens allowed",
    "Prompt too long: 32799 tokens exceeds max context window of 32768 tokens",
    "This model's maximum context length is 8192 tokens.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
    "Range of input length should be [1, 30720]",
    "Input is too long for requested model.",
    "Please reduce the length of the messages or completion.",
    "You passed 9 input tokens and requested 0 output tokens. However, the model's context length is only 8 tokens.",
    "The decoder prompt (length 21535) is longer than the maximum model length of 16384.",
    "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
    "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",
    "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 9>= n_ctx: 8).",
    "Total tokens of image and text exceed max message tokens",
    "Input exceeds the max input token limit",
    "total tokens exceeds the model's max of 4096",
    "context_overflow: 40000 > 32000",
]
OTHER = [
    "This request exceeds the limit of 30000 tokens per minute",
    "Too many tokens per minute",
    "max_tokens is too large: 200000. This model supports at most 128000 completion tokens",
    "Rate limit reached: tokens per minute (TPM), maximum context length aside",
    "You exceeded your current quota",
    "max_tokens exceeds the model's maximum of 8192",
    "tools[0].function.name exceeds the maximum allowed length (64)",
]


@pytest.mark.parametrize("text", FULL)
@pytest.mark.parametrize("dialect", BACKS)
def test_words_for_a_full_context_are_known_from_every_backend(dialect: str, text: str) -> None:
    for body in ({"error": {"message": text, "code": 400}}, {"error": text}, {"detail": text}):
        wire = WireResponse(400, {"content-type": "application/json"}, json.dumps(body).encode())
        assert registry.get(dialect).decode_error(wire).code is ErrorCode.CONTEXT_LENGTH, body


@pytest.mark.parametrize("text", FULL)
@pytest.mark.parametrize("dialect", STREAMS)
def test_words_for_a_full_context_are_known_in_every_stream(dialect: str, text: str) -> None:
    failure = streamed(dialect, {"error": {"message": text, "code": 400}}).failure
    assert failure is not None
    assert failure.code is ErrorCode.CONTEXT_LENGTH


@pytest.mark.parametrize("text", OTHER)
@pytest.mark.parametrize("dialect", BACKS)
def test_words_of_other_limits_are_no_full_context(dialect: str, text: str) -> None:
    for status in (400, 429):
        wire = WireResponse(status, {"content-type": "application/json"}, json.dumps({"error": text}).encode())
        assert registry.get(dialect).decode_error(wire).code is not ErrorCode.CONTEXT_LENGTH


# What the clients of each dialect act on, in the error response and at the end of a stream.
ACTED_ON = {
    "openai-chat": "context_length_exceeded",
    "openai-responses": "context_length_exceeded",
    "anthropic-messages": "prompt is too long",
    "agentscope": "context_length",
    "ag-ui": "CONTEXT_LENGTH",
    "agent-runs": "CONTEXT_LENGTH",
    "gemini": "CONTEXT_LENGTH",
}


@pytest.mark.parametrize("dialect", ACTED_ON)
def test_clients_get_the_word_that_they_act_on_whatever_the_backend_said(dialect: str) -> None:
    for theirs in (None, "INVALID_ARGUMENT", "exceed_context_size_error", "400"):
        failure = Failure(ErrorCode.CONTEXT_LENGTH, "It is full.", backend_code=theirs)
        body = registry.get(dialect).encode_error(failure).body
        assert ACTED_ON[dialect].encode() in body, theirs


# ------------------------------------------------------------------ the tables


def test_the_tables_have_sources_and_no_word_twice() -> None:
    words = [word for _, each, _ in ROWS for word in each.split()]
    assert len(set(words)) == len(words)
    assert all(source for _, _, source in ROWS)
    assert all(source and text == text.lower() for text, source in FULL_CONTEXT)
    assert len({text for text, _ in FULL_CONTEXT}) == len(FULL_CONTEXT)


@pytest.mark.parametrize("text", [text for text, _ in FULL_CONTEXT])
def test_each_row_of_a_full_context_is_read(text: str) -> None:
    assert is_full_context(f"Error: {text.upper()}!")
    assert not is_full_context(f"{text} per minute")
    failure = Failure(ErrorCode.RATE_LIMITED, text)
    assert recognized(failure) is failure


def test_the_issues_of_zod_are_words_with_their_places() -> None:
    issues = [{"code": "invalid_type", "path": ["input", "messages"], "message": "Required"}, {"message": "Odd"}]
    found = error_in({"success": False, "error": {"name": "ZodError", "issues": issues}}, refused=True)
    assert found is not None
    assert found["message"] == "input.messages: Required; Odd"


@pytest.mark.parametrize("word", ["rate_limit_exceeded", "RateLimitExceeded", "RATE-LIMIT-EXCEEDED"])
def test_spellings_of_a_word(word: str) -> None:
    assert code_of_word(word) is ErrorCode.RATE_LIMITED


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["error", "message", "code", "detail", "base_resp", "status_code", "header", "Response", "Error", "errors",
             "success", "type", "object", "status", "msg", "loc", "ErrorMsg", "details", "choices"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.parametrize("refused", [True, False])
def test_deep_and_long_values_are_read(refused: bool) -> None:
    deep: Any = {"error": "x"}
    for _ in range(900):
        deep = [deep]
    long = {"error": {"message": [{"msg": "x"}] * 100_000}}
    for value, is_error in ((deep, False), ([{}] * 100_000, False), ({"errors": [deep] * 1000}, True), (long, True)):
        assert (error_in(value, refused=refused) is not None) is is_error


@given(JSON, st.booleans())
def test_any_value_is_read(value: Any, refused: bool) -> None:
    error = error_in(value, refused=refused)
    if error is not None:
        assert isinstance(error["message"], str)
        assert code_in(error) is None or code_in(error) in ErrorCode


@given(JSON, st.sampled_from(BACKS), st.sampled_from([200, 400, 401, 422, 429, 500]))
def test_any_body_is_read_by_every_backend(value: Any, dialect: str, status: int) -> None:
    wire = WireResponse(status, {"content-type": "application/json"}, json.dumps(value).encode())
    if status == 200:
        if dialect in STREAMS:
            registry.get(dialect).parse_response(wire, context(dialect))
            streamed(dialect, value)
    else:
        assert registry.get(dialect).decode_error(wire).message
