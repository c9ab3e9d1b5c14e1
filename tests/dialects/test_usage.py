"""Usage is read in every spelling and place, and every count that a client's SDK adds up is a number in every frame."""

from __future__ import annotations

import json
from typing import Any

import anthropic.types as claude
import openai.types.chat as chat
import openai.types.responses as responses
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import Context, Feature, Losses, Support, registry
from bridge.model.events import UsageReported
from bridge.model.fold import fold
from bridge.toolkit.counts import counts_in
from bridge.translation.framing.sse import Splitter
from bridge.translation.library import translate

SPELLINGS: dict[str, dict[str, Any]] = {
    "OpenAI": {
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    },
    "Responses": {
        "input_tokens": 9,
        "output_tokens": 4,
        "total_tokens": 13,
        "input_tokens_details": {"cached_tokens": 3},
        "output_tokens_details": {"reasoning_tokens": 2},
    },
    "DeepSeek": {
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "total_tokens": 13,
        "prompt_cache_hit_tokens": 3,
        "completion_tokens_details": {"reasoning_tokens": 2},
    },
    "Moonshot": {
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "total_tokens": 13,
        "cached_tokens": 3,
        "reasoning_tokens": 2,
    },
    "AI SDK": {
        "inputTokens": 9,
        "outputTokens": 4,
        "totalTokens": 13,
        "cachedInputTokens": 3,
        "reasoningTokens": 2,
    },
    "AI SDK, later": {
        "inputTokens": 9,
        "outputTokens": 4,
        "totalTokens": 13,
        "inputTokenDetails": {"cacheReadTokens": 3},
        "outputTokenDetails": {"reasoningTokens": 2},
    },
    "doubles": {
        "prompt_tokens": 9.0,
        "completion_tokens": 4.0,
        "total_tokens": 13.0,
        "cached_tokens": 3.0,
        "reasoning_tokens": 2.0,
    },
}


def lines(*objects: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in objects)


def _chat(usage: Any) -> list[bytes]:
    """The places in which chat servers report usage."""

    def chunk(delta: Any, end: str | None = None, **beside: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": end, **beside}
        return {"id": "c", "model": "m", "choices": [choice]}

    text = chunk({"content": "x"})
    return [
        lines(text, chunk({}, "stop"), {"id": "c", "choices": [], "usage": usage}),
        lines(text, {**chunk({}, "stop"), "usage": usage}),
        lines(text, chunk({}, "stop", usage=usage)),
        lines(text, {**chunk({}, "stop"), "x_groq": {"usage": usage}}),
        lines({**text, "usage": usage}, chunk({}, "stop")),
    ]


def _responses(usage: Any) -> list[bytes]:
    return [lines({"type": "response.completed", "response": {"id": "r", "status": "completed", "usage": usage}})]


def _agentscope(usage: Any) -> list[bytes]:
    return [lines({"object": "response", "status": "completed", "output": [], "usage": usage})]


def _ui(usage: Any) -> list[bytes]:
    return [
        lines({"type": "start"}, {"type": "finish", "messageMetadata": {name: usage}})
        for name in ("usage", "totalUsage")
    ]


def _ag_ui(usage: Any) -> list[bytes]:
    run = {"threadId": "t", "runId": "r"}
    ends = [{"type": "RUN_FINISHED", **run, "usage": each} for each in (usage, [usage])]
    return [lines({"type": "RUN_STARTED", **run}, end) for end in ends]


BACKS = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "agentscope": _agentscope,
    "ai-sdk-ui": _ui,
    "ag-ui": _ag_ui,
}


def usage_of(dialect: str, body: bytes) -> UsageReported | None:
    each = registry.get(dialect)
    decoder = each.decoder(Context("run", "thread", 1.0, each.back_options(), "m", None, Losses()))
    return fold([*decoder.feed(Splitter().feed(body)), *decoder.close()]).usage


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("dialect", BACKS)
def test_usage_is_read_in_every_spelling_and_place(dialect: str, spelling: str) -> None:
    for number, body in enumerate(BACKS[dialect](SPELLINGS[spelling])):
        usage = usage_of(dialect, body)
        assert usage is not None, number
        counts = (usage.input, usage.output, usage.total, usage.cached, usage.reasoning)
        assert counts == (9, 4, 13, 3, 2), number


def _langgraph(usage: dict[str, Any]) -> bytes:
    said = {"type": "AIMessageChunk", "id": "m", "content": "x", "tool_call_chunks": [], "usage_metadata": usage}
    events = [("metadata", {"run_id": "r"}), ("messages", [said, {"langgraph_node": "agent"}]), ("end", None)]
    return b"".join(b"event: %s\ndata: %s\n\n" % (name.encode(), json.dumps(data).encode()) for name, data in events)


def _service(usage: dict[str, Any]) -> bytes:
    reply = {"reply_id": "m"}
    return lines(
        {"type": "REPLY_START", **reply, "name": "Friday", "role": "assistant"},
        {"type": "MODEL_CALL_START", **reply, "model_name": "m"},
        {"type": "MODEL_CALL_END", **reply, **usage},
        {"type": "REPLY_END", **reply},
    )


CALLED_ONLY: dict[str, tuple[Any, Any]] = {
    "langgraph": (
        _langgraph,
        {
            "input_tokens": 9,
            "output_tokens": 4,
            "total_tokens": 13,
            "input_token_details": {"cache_read": 3},
            "output_token_details": {"reasoning": 2},
        },
    ),
    "agentscope-service": (_service, {"input_tokens": 9, "output_tokens": 4, "cache_input_tokens": 3}),
}
"""The suite writes the wires of all others, and reads them again."""


def test_each_dialect_that_is_only_called_and_counts_tokens_is_in_the_table() -> None:
    cards = {name: registry.get(name) for name in registry.called()}
    exact = {name for name, each in cards.items() if each.capabilities.answer(Feature.USAGE) is Support.EXACT}
    assert exact - set(registry.served()) == set(CALLED_ONLY)


@pytest.mark.parametrize("dialect", CALLED_ONLY)
def test_usage_is_read_in_the_words_of_the_dialect(dialect: str) -> None:
    body, usage = CALLED_ONLY[dialect]
    read = usage_of(dialect, body(usage))
    assert read is not None
    assert (read.input, read.output, read.total, read.cached) == (9, 4, 13, 3)
    details = registry.get(dialect).capabilities.answer(Feature.USAGE_DETAILS)
    assert read.reasoning == (2 if details is Support.EXACT else None)


def test_a_messages_backend_may_count_in_the_words_of_another_api() -> None:
    body = lines(
        {"type": "message_start", "message": {"id": "m", "content": []}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": SPELLINGS["OpenAI"]},
        {"type": "message_stop"},
    )
    usage = usage_of("anthropic-messages", body)
    assert usage is not None
    assert (usage.input, usage.output, usage.cached) == (9, 4, 3)


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses"])
def test_zeros_are_no_usage(dialect: str) -> None:
    zeros = {"prompt_tokens": 0, "completion_tokens": 0, "input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    bodies = BACKS[dialect](zeros)
    assert [usage_of(dialect, body) for body in bodies] == [None] * len(bodies)


# ------------------------------------------------------------------ towards clients

ANSWERS = [
    lines({"id": "c", "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]}, *usage)
    for usage in ([], [{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": None}}])
]


@pytest.mark.parametrize("answer", ANSWERS, ids=["none", "half"])
def test_messages_clients_get_numbers_in_every_frame(answer: bytes) -> None:
    events = [
        json.loads(line[6:])
        for line in translate(answer, "openai-chat", "anthropic-messages").splitlines()
        if line[:6] == b"data: "
    ]
    start = claude.RawMessageStartEvent.model_validate(events[0], strict=True)
    delta = claude.RawMessageDeltaEvent.model_validate(events[-2], strict=True)
    for usage in (start.message.usage, delta.usage):
        counts = (
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_input_tokens,
            usage.cache_creation_input_tokens,
        )
        assert all(type(count) is int for count in counts)


@pytest.mark.parametrize("answer", ANSWERS, ids=["none", "half"])
def test_clients_of_openai_get_numbers_at_the_end(answer: bytes) -> None:
    told = translate(answer, "openai-chat", "openai-responses").splitlines()
    last = json.loads(next(line for line in reversed(told) if line[:6] == b"data: ")[6:])
    done = responses.ResponseCompletedEvent.model_validate(last, strict=True)
    assert done.response.usage is not None
    assert type(done.response.usage.total_tokens) is int
    for line in translate(answer, "openai-chat", "openai-chat").splitlines():
        if line[:6] == b"data: " and line[6:] != b"[DONE]":
            chunk = chat.ChatCompletionChunk.model_validate(json.loads(line[6:]))
            assert chunk.usage is None or type(chunk.usage.total_tokens) is int


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "prompt_tokens",
                        "input_tokens",
                        "inputTokens",
                        "total_tokens",
                        "cached_tokens",
                        "prompt_tokens_details",
                        "reasoning_tokens",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=8,
    )
)
def test_any_usage_is_read(value: Any) -> None:
    assert all(type(count) is int and count >= 0 for count in counts_in(value).values())
