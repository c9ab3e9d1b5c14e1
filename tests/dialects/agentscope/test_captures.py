"""Recorded streams of real servers, however they are cut, become what a liberal reader should end up with."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from bridge.contract import WireResponse
from bridge.dialects.agentscope import dialect
from bridge.errors import ErrorCode
from bridge.model import Answer, FinishReason, Heartbeat, Origin, fold, url_of, verify
from bridge.model.events import TERMINAL
from bridge.translation import AnswerDecoder
from bridge.translation.framing.sse import Splitter

from .helpers import CAPTURES, CASES, body_of, check_schemas, context, decode, encode, payloads

EXPECTED = [name for name, case in CASES.items() if "expect" in case]
ERRORS = ["invalid_json", "invalid_body_array", "wrong_method", "chat_completions_absent"]
FAILURES = {
    "error_before_output": ErrorCode.BACKEND_ERROR,
    "error_known_code": ErrorCode.BACKEND_TIMEOUT,
    "stopped_stream": ErrorCode.TRUNCATED_STREAM,
}


def picture(answer: Answer) -> dict[str, Any]:
    """The answer in the terms of the captures' `expect`."""
    return {
        "text": answer.text,
        "reasoning": answer.reasoning,
        "refusal": answer.refusal,
        "calls": [(c.name, c.arguments) for c in answer.calls],
        "outputs": [(r.extras or {})["agentscope"]["output"] for r in answer.results],
        "media": [url_of(m) for m in answer.media],
        "usage": answer.usage and (answer.usage.input, answer.usage.output, answer.usage.total),
    }


def expected(expect: dict[str, Any]) -> dict[str, Any]:
    usage = expect["usage"]
    return {
        "text": expect["text"],
        "reasoning": expect["reasoning"],
        "refusal": expect["refusal"],
        "calls": [(c["name"], c["arguments"]) for c in expect["calls"]],
        "outputs": [o["output"] for o in expect["outputs"]],
        "media": [p["value"] for m in expect["messages"] for p in m["parts"] if p["type"] == "image"],
        "usage": usage and (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]),
    }


def cuts(data: bytes, way: str) -> list[bytes]:
    match way:
        case "whole":
            return [data]
        case "events":
            return [p + b"\n\n" for p in data.split(b"\n\n")]
        case "bytes":
            return [data[i : i + 1] for i in range(len(data))]
    rng, out = random.Random(way), []
    while data:
        size = rng.choice((1, 3, 17, 120, 900))
        out.append(data[:size])
        data = data[size:]
    return out


@pytest.mark.parametrize("way", ["whole", "events", "bytes", "random 1", "random 2"])
@pytest.mark.parametrize("name", EXPECTED)
def test_a_capture_becomes_what_it_shows(name: str, way: str) -> None:
    case = CASES[name]
    events = decode(cuts(body_of(case), way))
    answer, expect = fold(events), case["expect"]
    assert picture(answer) == expected(expect)
    # That capture names its session only when the run has long been started.
    assert answer.thread_id == (None if name == "builder_data_merge" else expect["session_id"])
    if expect["status"] == "completed":
        assert answer.failure is None
    else:
        assert answer.failure is not None
        assert answer.failure.code is FAILURES.get(name, ErrorCode.BACKEND_ERROR)
    if expect["error"]:
        assert answer.failure is not None
        assert (answer.failure.backend_code, answer.failure.message) == (
            expect["error"]["code"],
            expect["error"]["message"],
        )


@pytest.mark.parametrize("name", EXPECTED)
def test_the_cut_changes_nothing_and_every_prefix_ends_once(name: str) -> None:
    data = body_of(CASES[name])
    whole = decode([data])
    assert decode(cuts(data, "bytes")) == whole
    frames = [f for f in data.split(b"\n\n") if f]
    for end in range(len(frames)):
        decoder, splitter = dialect.decoder(context()), Splitter()
        events = decoder.feed(splitter.feed(b"".join(f + b"\n\n" for f in frames[:end])))
        events = verify([*events, *decoder.close()])
        assert sum(type(e) in TERMINAL for e in events) == 1
        assert decoder.feed([b'{"object":"heartbeat"}']) == decoder.close() == []


@pytest.mark.parametrize("name", EXPECTED)
def test_a_capture_decoded_and_encoded_again_is_a_valid_stream_with_the_same_picture(name: str) -> None:
    events = decode([body_of(CASES[name])])
    frames = encode(events)
    check_schemas(payloads(frames))
    second = fold(decode([b"data: " + f + b"\n\n" for f in frames if isinstance(f, bytes)]))
    first = fold(events)
    assert picture(second) == picture(first)
    assert [m.id for m in second.messages] == [m.id for m in first.messages]
    assert second.reason == first.reason
    assert (second.failure and second.failure.code) == (first.failure and first.failure.code)


@pytest.mark.parametrize("name", ["plugin_call", "reasoning_then_text", "mcp_call", "refusal", "function_call_deltas"])
def test_message_types_ids_and_outputs_survive_the_same_dialect(name: str) -> None:
    """The final output says what the real server's said, apart from numbers and what the page tells us to add."""

    def told(response: dict[str, Any]) -> list[Any]:
        fields = ("text", "refusal", "data")
        return [
            (m["id"], m["type"], m["role"], m["status"], [{k: c[k] for k in fields if k in c} for c in m["content"]])
            for m in response["output"]
        ]

    real = json.loads(body_of(CASES[name]).strip().split(b"\n\n")[-1][6:])
    ours = payloads(encode(decode([body_of(CASES[name])])))[-1]
    assert told(ours) == told(real)
    assert (ours["id"], ours["session_id"], ours["usage"]) == (real["id"], real["session_id"], real["usage"])


def _camel(value: Any) -> Any:
    """The value with the names of the camelCase form; what stands inside `data` keeps its own."""
    if isinstance(value, list):
        return [_camel(v) for v in value]
    if not isinstance(value, dict):
        return value
    return {re.sub("_(.)", lambda m: m[1].upper(), k): v if k == "data" else _camel(v) for k, v in value.items()}


def _is(event: dict[str, Any], kind: str, *statuses: str) -> bool:
    return event.get("object") == kind and (not statuses or event.get("status") in statuses)


HABITS: dict[str, Callable[[dict[str, Any]], list[dict[str, Any]]]] = {
    "camelCase": lambda e: [_camel(e)],
    "upper case types": lambda e: [{**e, "type": e["type"].upper()} if _is(e, "message") else e],
    "no object": lambda e: [{k: v for k, v in e.items() if k != "object"}],
    "no numbers": lambda e: [{**e, "sequence_number": None}],
    "no index": lambda e: [{**e, "index": None} if _is(e, "content") else e],
    "no msg_id": lambda e: [{**e, "msg_id": None} if _is(e, "content") else e],
    "no completed text": lambda e: [] if e.get("type") == "text" and _is(e, "content", "completed") else [e],
    "no completed message": lambda e: [] if _is(e, "message", "completed") else [e],
    "no output": lambda e: [{**e, "output": None} if _is(e, "response") else e],
    "messages open as created": lambda e: [{**e, "status": "created"} if _is(e, "message", "in_progress") else e],
    "heartbeats": lambda e: [{"object": "message", "type": "heartbeat", "id": "beat"}, e],
    "all but deltas twice": lambda e: [e] if e.get("delta") is True or e.get("error") else [e, e],
}


@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize("name", EXPECTED)
def test_the_habits_of_other_servers_change_nothing(name: str, habit: str) -> None:
    events = [json.loads(e[6:]) for e in body_of(CASES[name]).split(b"\n\n") if e.startswith(b"data: ")]
    told = [json.dumps(t).encode() for e in events for t in HABITS[habit](e)]
    decoder = dialect.decoder(context())
    answer = fold(verify([*decoder.feed(told), *decoder.close()]))
    assert picture(answer) == picture(fold(decode([body_of(CASES[name])])))


def test_calls_without_an_id_are_paired_with_their_output() -> None:
    answer = fold(decode([body_of(CASES["java_camelcase_tool"])]))
    assert [c.call_id for c in answer.calls] == [r.call_id for r in answer.results]
    assert answer.reason is FinishReason.STOP
    assert answer.created_at == pytest.approx(1795241823.525)


def test_java_results_come_as_approval_answers() -> None:
    answer = fold(decode([body_of(CASES["java_snakecase_tool"])]))
    assert [c.origin for c in answer.calls] == [Origin.MCP]
    assert [(r.call_id, r.parts[0].text) for r in answer.results] == [("c1", "sunny")]


def test_an_approval_request_interrupts() -> None:
    answer = fold(decode([body_of(CASES["approval_request"])]))
    assert answer.reason is FinishReason.INTERRUPTED
    assert [(i.interrupt_id, i.reason) for i in answer.interrupts] == [("appr_1", "approval")]


def test_heartbeats_are_told() -> None:
    events = decode([body_of(CASES["heartbeat_messages"])])
    assert sum(isinstance(e, Heartbeat) for e in events) == 2


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_status_is_told_with_the_backends_text(name: str) -> None:
    response = CASES[name]["response"]
    body = (CAPTURES / response["body_file"]).read_bytes()
    failure = dialect.decode_error(WireResponse(response["status"], response["headers"], body))
    wanted = {
        "invalid_json": (ErrorCode.INVALID_REQUEST, "11: JSON decode error"),
        "invalid_body_array": (ErrorCode.INVALID_REQUEST, "Input should be a valid dictionary"),
        "wrong_method": (ErrorCode.BACKEND_ERROR, "The backend answered with status 405."),
        "chat_completions_absent": (ErrorCode.BACKEND_ERROR, "The backend answered with status 404."),
    }
    assert (failure.code, failure.message) == wanted[name]


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c["response"]["body_file"].endswith(".response.json")])
def test_an_answer_in_one_piece_is_a_whole_run(name: str) -> None:
    """None of these is an agent's response, so each is a failed run and none raises."""
    response = CASES[name]["response"]
    body = (CAPTURES / response["body_file"]).read_bytes()
    reading = AnswerDecoder(dialect, context(), response["headers"], status=response["status"])
    assert fold(verify(reading.receive(body) + reading.close())).failure is not None
