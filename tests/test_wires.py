"""Every form of an answer, as clients of the four model APIs get it from each backend, before the strictest judge."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from bridge.contract import Dialect, WireResponse, registry
from bridge.errors import BridgeError, Unsupported
from bridge.model import Event
from bridge.model.jsontext import dumps
from bridge.testing.wires import context, encode
from bridge.translation.framing import sse
from bridge.translation.library import Translator
from tests.cases import all_cases
from tests.responses_judge import stream_faults
from tests.wire_judge import JUDGES, Frames, chat_stream, frames_of
from tests.wire_scenes import SCENES, asked, events, prepared

Json = dict[str, Any]

OPTIONS: dict[str, list[Json]] = {
    "openai-chat": [{}, {"reasoning_field": "reasoning_details"}, {"media": "images"}, {"media": "drop"}],
    "openai-responses": [{}, {"reasoning": "content"}, {"reasoning": "summary", "media": "drop"}],
    "anthropic-messages": [{}, {"reasoning": "drop"}, {"media": "drop"}],
    "gemini": [{}, {"reasoning": "drop"}],
}
"""Options that change the form of what is written."""


@pytest.mark.parametrize("front", JUDGES)
def test_each_form_of_an_answer_keeps_the_rules_of_its_wire(front: str) -> None:
    dialect, (stream, whole, error) = registry.get(front), JUDGES[front]
    with all_cases() as case:
        for (name, scene), options in product(SCENES.items(), OPTIONS[front]):
            told = events(scene)
            with case((name, options, "stream")):
                encoder = dialect.encoder(prepared(front, options, True))
                assert stream(frames_of(sse.join(encoder.encode(told)))) == []
            with case((name, options, "whole")):
                answer = dialect.assemble(told, prepared(front, options, False))
                assert (whole if answer.status < 400 else error)(json.loads(answer.body)) == []


@pytest.mark.sampled(11)
@pytest.mark.turns(2)
@pytest.mark.parametrize("front", JUDGES)
@pytest.mark.parametrize("back", [name for name in registry.called() if registry.get(name).served])
def test_answers_of_each_backend_keep_the_rules_of_every_wire(back: str, front: str) -> None:
    dialect, (stream, whole, error) = registry.get(back), JUDGES[front]
    with all_cases() as case:
        for name, scene in SCENES.items():
            told = events(scene)
            with case((name, "stream")):
                translator, wire = translated(back, front, True), encode(dialect, told)
                assert stream(frames_of(translator.feed(wire) + translator.close())) == []
            with case((name, "whole")):
                translator, answer = translated(back, front, False), in_one_piece(dialect, told)
                try:
                    found = whole(json.loads(translator.response(answer.body, status=answer.status)))
                except BridgeError as failure:
                    found = error(json.loads(translator.encode_error(failure).body))
                assert found == []


def in_one_piece(dialect: Dialect, told: list[Event]) -> WireResponse:
    """The answer without a stream; some dialects have streams only."""
    made = context(dialect.front_options())
    try:
        return dialect.assemble(told, made)
    except Unsupported:
        return WireResponse(body=encode(dialect, told))


def translated(back: str, front: str, stream: bool) -> Translator:
    """A translator whose client has asked."""
    translator = Translator(back, front, run_id="run1", created_at=1_700_000_000.0)
    wire = asked(front, stream)
    translator.request(wire.body, client=front, path=wire.target)
    return translator


def chat(*deltas: Json, finish: str = "stop") -> Frames:
    """A stream of one choice."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices = [{"index": 0, "delta": d, "finish_reason": None, "logprobs": None} for d in deltas]
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    chunks = [{**head, "choices": [c]} for c in [*choices, {**choices[0], "delta": {}, "finish_reason": finish}]]
    return [(None, dumps(c)) for c in [*chunks, {**head, "choices": [], "usage": usage}]] + [(None, b"[DONE]")]


ROLE = {"role": "assistant", "content": ""}
CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("deltas", "finish", "fault"),
    [
        ([ROLE, {"content": "Hi"}], "stop", None),
        ([ROLE, ROLE], "stop", "the role is in the first chunk"),
        ([{"content": "Hi"}], "stop", "the role is in the first chunk"),
        ([ROLE, {"content": ""}], "stop", "content is empty"),
        ([ROLE, {"contents": "Hi"}], "stop", "contents: unknown in ChoiceDelta"),
        ([ROLE, {"content": 1}], "stop", "str expected"),
        ([ROLE], "end_turn", "'end_turn' is none of"),
        ([ROLE], "tool_calls", "finish_reason tool_calls"),
        ([ROLE, {"tool_calls": [CALL]}], "tool_calls", None),
        ([ROLE, {"tool_calls": [CALL]}], "stop", "finish_reason stop"),
        ([ROLE, {"tool_calls": [CALL]}, {"tool_calls": [CALL]}], "tool_calls", "told again"),
        ([ROLE, {"tool_calls": [{**CALL, "index": 1}]}], "tool_calls", "a fragment of call 1"),
        ([ROLE, {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}], "tool_calls", "a call begins with"),
    ],
)
def test_the_judge_of_chat_streams_sees(deltas: list[Json], finish: str, fault: str | None) -> None:
    found = chat_stream(chat(*deltas, finish=finish), usage=True)
    assert found == [] if fault is None else fault in str(found)


FLAT = {"code": "c", "message": "No", "param": None}
NESTED = {"type": "t", **FLAT}


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        ({**FLAT, "error": NESTED}, None),
        (FLAT, "an error event of another shape"),
        ({"message": "No", "error": NESTED}, "an error event of another shape"),
        ({**FLAT, "error": {**NESTED, "message": "Yes"}}, "an error event of another shape"),
        ({**FLAT, "error": FLAT}, "an error event of another shape"),
        ({**FLAT, "error": NESTED, "status": 500}, "status: unknown in ResponseErrorEvent"),
        (None, "no error before response.failed"),
    ],
)
def test_the_judge_of_responses_sees_how_a_stream_fails(error: Json | None, fault: str | None) -> None:
    encoder = registry.get("openai-responses").encoder(prepared("openai-responses", {}, True))
    *told, old, last = [json.loads(data) for _, data in frames_of(sse.join(encoder.encode(events(SCENES["failure"]))))]
    assert old["type"] == "error"
    if error is not None:
        told.append({"type": "error", "sequence_number": old["sequence_number"], **error})
    found = stream_faults([*told, last])
    assert found == [] if fault is None else fault in str(found)


def good(front: str) -> Frames:
    """A stream with reasoning, text and a call."""
    encoder = registry.get(front).encoder(prepared(front, {}, True))
    return frames_of(sse.join(encoder.encode(events(SCENES["mixed"]))))


_PIECES = (
    b'"content_block_delta"',
    b'"delta":{"content":',
    b'"delta":{"reasoning_content":',
    b'"function":{"arguments":',
)
"""Marks of pieces of text that no rule tells from others; Responses repeat each text as a whole."""


@pytest.mark.parametrize("front", JUDGES)
def test_the_judges_miss_each_event_that_is_left_out_and_see_each_that_comes_twice(front: str) -> None:
    frames, stream = list(good(front)), JUDGES[front][0]
    assert stream(frames) == []
    if front == "gemini":
        frames = frames[-1:]  # its chunks are independent of each other: only the last one is needed
    with all_cases() as case:
        for number, (name, data) in enumerate(frames):
            with case((number, name, data)):
                if not any(mark in data for mark in _PIECES):
                    assert stream(frames[:number] + frames[number + 1 :])
                    assert stream(frames[: number + 1] + frames[number:])
