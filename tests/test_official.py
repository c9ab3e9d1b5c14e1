"""Every recorded answer of every dialect, as clients of the three model APIs get it, by what the documents require."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, get_args

import pytest
from anthropic.types import ContentBlock, Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response
from pydantic import TypeAdapter

from bridge.codec import Frame, WireRequest, WireResponse, registry
from bridge.codec.jsontext import dumps, loads
from bridge.framing import sse
from bridge.model import Event, FinishReason, RunFailed, RunFinished, verify
from bridge.testing.wires import context
from bridge.translation import AnswerDecoder
from tests import official
from tests.cases import all_cases
from tests.recorded import answers
from tests.responses_judge import judge

_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
_BLOCKS = {get_args(block.model_fields["type"].annotation)[0] for block in get_args(get_args(ContentBlock)[0])}
"""The types of blocks that the SDK knows; recorded answers hold others as well."""
REQUESTS: dict[str, dict[str, Any]] = {
    "openai-responses": {"input": "Hi", "tools": [{"type": "function", "name": "f"}]},
    "anthropic-messages": {"max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]},
    "openai-chat": {
        "messages": [{"role": "user", "content": "Hi"}],
        "stream_options": {"include_usage": True},
    },
}


@cache
def recorded(back: str, name: str) -> list[Event]:
    """The events of a recorded answer; it ended at a known time, as in every run."""
    dialect = registry.get(back)
    reading = AnswerDecoder(dialect, context(dialect.back_options()))
    events = verify(reading.receive(answers(back)[name]) + reading.close())
    end = events[-1]
    assert isinstance(end, (RunFinished, RunFailed))
    end.ended_at = 1_700_000_009.5
    return events


def translated(front: str, events: list[Event]) -> tuple[list[dict[str, Any]], WireResponse, set[str]]:
    """The events of the stream, the answer in one piece, and what both name as lost."""
    dialect = registry.get(front)
    wire = WireRequest("POST", headers={"content-type": "application/json"})
    wire.body = dumps({"model": "m", "stream": True, **REQUESTS[front]})
    streamed, at_once = (context(dialect.front_options()) for _ in range(2))
    for each in (streamed, at_once):
        each.request = dialect.decode_request(wire, each)
    encoder = dialect.encoder(streamed)
    frames = [*encoder.encode(events), *encoder.close()]
    payloads = [f.data if isinstance(f, Frame) else f for f in sse.Splitter().feed(sse.join(frames))]
    whole = dialect.assemble(events, at_once)
    assert failed(events) or set(streamed.lost.names) == set(at_once.lost.names)
    return [loads(p) for p in payloads if p and p != b"[DONE]"], whole, set(streamed.lost.names)


def failed(events: list[Event]) -> bool:
    end = events[-1]
    return isinstance(end, RunFailed) or (isinstance(end, RunFinished) and end.reason is FinishReason.CANCELED)


def check_responses(back: str, name: str) -> None:
    events = recorded(back, name)
    streamed, whole, lost = translated("openai-responses", events)
    judge(streamed)
    if failed(events):
        assert whole.status >= 400
        return
    value = loads(whole.body)
    Response.model_validate(value, strict=True)
    official.judge_response(value)
    assert value == streamed[-1]["response"]
    counts = (value["usage"]["input_tokens"], value["usage"]["output_tokens"], value["usage"]["total_tokens"])
    assert ("usage" in lost) == (counts == (0, 0, 0))


def check_messages(back: str, name: str) -> None:
    events = recorded(back, name)
    streamed, whole, lost = translated("anthropic-messages", events)
    for event in streamed:
        official.judge_message_event(event)
        if event["type"] in ("message_start", "message_delta"):
            _EVENT.validate_json(dumps(event), strict=True)
    if failed(events):
        official.judge_message_event(loads(whole.body))
        return
    value = loads(whole.body)
    official.judge_message(value)
    known = [block for block in value["content"] if block["type"] in _BLOCKS]
    Message.model_validate_json(dumps({**value, "content": known}), strict=True)
    usage = value["usage"]
    assert ("usage" in lost) == ((usage["input_tokens"], usage["output_tokens"]) == (0, 0))


def check_chat(back: str, name: str) -> None:
    events = recorded(back, name)
    streamed, whole, lost = translated("openai-chat", events)
    official.judge_chunks(streamed)
    if failed(events):
        official.ChatFailure.model_validate(loads(whole.body))
        return
    for chunk in streamed:
        ChatCompletionChunk.model_validate_json(dumps(chunk), strict=True)
    value = loads(whole.body)
    ChatCompletion.model_validate_json(dumps(value), strict=True)
    official.judge_completion(value)
    assert value["usage"] == streamed[-1]["usage"]
    assert ("usage" in lost) == (value["usage"]["total_tokens"] == 0)


@pytest.mark.parametrize("back", registry.names())
@pytest.mark.parametrize("check", [check_responses, check_messages, check_chat])
def test_recorded_answers_are_written_as_the_documents_require(check: Callable[[str, str], None], back: str) -> None:
    with all_cases() as case:
        for name in answers(back):
            with case(name):
                check(back, name)
