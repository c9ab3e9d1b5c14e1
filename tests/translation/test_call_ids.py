"""Ids of the calls in answers: whatever a backend names them, a client never gets one id for two calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge import decode, fold, translate
from bridge.contract import Losses, registry
from bridge.model import (
    Event,
    Interrupted,
    Message,
    PartKind,
    PartStarted,
    Request,
    Text,
    TextDelta,
    Tool,
    ToolCall,
    ToolResult,
    ToolResulted,
)
from bridge.translation.call_ids import of_calls
from bridge.translation.library import Translator
from bridge.translation.policies.stages import StageContext, prepare
from tests.translation.test_histories import calls, result, user

LLM = registry.get("openai-chat").capabilities
AGENT = registry.get("ag-ui").capabilities
FRONTS = [n for n in registry.served() if n not in ("openai-chat", "aip", "mcp") and not registry.get(n).over_grpc]


def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return "data: " + json.dumps({"id": "c", "model": "m", "choices": [choice]}) + "\n\n"


def two_calls(*ids: str) -> bytes:
    made = [
        {"index": n, "id": i, "type": "function", "function": {"name": "ls", "arguments": f'{{"d":{n}}}'}}
        for n, i in enumerate(ids)
    ]
    text = "".join(chunk({"tool_calls": [call]}) for call in made)
    return (text + chunk({}, "tool_calls") + "data: [DONE]\n\n").encode()


def through(events: list[Event], *messages: Message, back: Any = LLM, tools: list[Tool] | None = None) -> list[Event]:
    for stage in of_calls(Request(list(messages), tools=tools), back, Losses()):
        events = stage(events)
    return events


def begins(call_id: str, part: str = "p", name: str = "ls") -> PartStarted:
    return PartStarted(part, "m", PartKind.TOOL_CALL, call_id, name)


def ids(events: list[Event]) -> list[str | None]:
    return [e.call_id for e in events if isinstance(e, (PartStarted, ToolResulted, Interrupted))]


@pytest.mark.parametrize("front", FRONTS)
def test_two_calls_of_an_answer_have_two_ids_for_every_client(front: str) -> None:
    written = translate(two_calls("k", "k"), "openai-chat", front)
    found = fold(decode(written, front)).calls if front in registry.called() else None
    if found is not None:
        assert [json.loads(call.arguments) for call in found] == [{"d": 0}, {"d": 1}]
        assert len({call.call_id for call in found}) == 2
    else:
        assert b"k-repeat-2" in written


@pytest.mark.parametrize("arguments", ["", " ", "\n\t"])
@pytest.mark.parametrize("front", [n for n in FRONTS if n in registry.called() and n not in ("agent-runs", "a2a")])
def test_arguments_of_white_space_are_an_object_for_every_client(front: str, arguments: str) -> None:
    function = {"name": "now", "arguments": arguments}
    call = chunk({"tool_calls": [{"index": 0, "id": "k", "type": "function", "function": function}]})
    written = translate((call + chunk({}, "tool_calls")).encode() + b"data: [DONE]\n\n", "openai-chat", front)
    if front == "ai-sdk-ui":  # its clients read the input that follows the pieces
        assert b'"toolName":"now","input":{}}' in written
    else:
        assert [json.loads(c.arguments) for c in fold(decode(written, front)).calls] == [{}]


def test_an_id_of_the_conversation_is_not_used_again() -> None:
    history = [user(), calls("k"), result("k")]
    assert ids(through([begins("k")], *history)) == ["k-repeat-2"]
    assert ids(through([begins("other")], *history)) == ["other"]
    again = [*history, calls("k-repeat-2"), result("k-repeat-2")]
    assert ids(through([begins("k")], *again)) == ["k-repeat-3"]


def test_a_call_that_waits_is_continued_under_its_id() -> None:
    assert ids(through([begins("k")], user(), calls("k"))) == ["k"]


def test_results_and_questions_follow_their_calls() -> None:
    done: list[Event] = [ToolResulted("k", [], "ls")]
    one = [begins("k", "p1"), *done, begins("k", "p2"), *done]
    assert ids(through(one)) == ["k", "k", "k-repeat-2", "k-repeat-2"]
    side_by_side = [begins("k", "p1"), begins("k", "p2"), *done, *done, Interrupted("i", call_id="k")]
    assert ids(through(side_by_side)) == ["k", "k-repeat-2", "k", "k-repeat-2", "k-repeat-2"]
    unknown: list[Event] = [ToolResulted("x", []), Interrupted("i"), TextDelta("t", "k")]
    assert through(unknown) == unknown


def test_a_backend_with_a_memory_gets_the_id_that_it_gave() -> None:
    request = Request([result("k-repeat-2"), result("l"), user()])
    remembers = next(c for n in registry.called() if (c := registry.get(n).capabilities).takes_news)
    sent = prepare((), StageContext(request, LLM, remembers, None, Losses())).request
    assert [p.call_id for m in sent.messages for p in m.parts if isinstance(p, ToolResult)] == ["k", "l"]
    assert prepare((), StageContext(request, LLM, LLM, None, Losses())).request is request
    assert prepare((), StageContext(sent, LLM, remembers, None, Losses())).request is sent


@pytest.mark.parametrize("name", ["pick", "its own"])
def test_a_result_of_the_clients_tool_is_a_placeholder(name: str) -> None:
    events: list[Event] = [begins("k", name=name), ToolResulted("k", [Text("[Awaiting external execution]")], name)]
    kept = through(events, tools=[Tool("pick")], back=AGENT)
    assert [type(e) for e in kept] == [PartStarted] + [ToolResulted] * (name != "pick")


def test_a_client_of_an_agent_is_left_its_call() -> None:
    run = {"threadId": "t", "runId": "r"}
    said = [
        {"type": "RUN_STARTED", **run}, {"type": "TOOL_CALL_START", "toolCallId": "k", "toolCallName": "pick"},
        {"type": "TOOL_CALL_END", "toolCallId": "k"},
        {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "k", "content": "", "role": "tool"},
        {"type": "RUN_FINISHED", **run},
    ]  # fmt: skip
    tool = {"name": "pick", "description": "", "parameters": {"type": "object"}}
    body = {**run, "state": {}, "context": [], "forwardedProps": {}, "tools": [tool],
            "messages": [{"id": "1", "role": "user", "content": "hi"}]}  # fmt: skip
    translator = Translator("ag-ui", "ag-ui")
    translator.request(json.dumps(body).encode(), client="ag-ui")
    out = translator.feed("".join(f"data: {json.dumps(e)}\n\n" for e in said).encode()) + translator.close()
    assert b"TOOL_CALL_START" in out
    assert b"TOOL_CALL_RESULT" not in out
    assert "tool_result" in translator.lost


def test_a_client_sends_the_ids_back_that_it_got() -> None:
    """The second turn through the bridge: the call of the answer has its own id in the next request."""
    asked = {"model": "m", "messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None,
         "tool_calls": [{"id": "k", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "k", "content": "A"},
    ]}  # fmt: skip
    translator = Translator("openai-chat", "openai-chat")
    translator.request(json.dumps(asked).encode())
    answer = fold(decode(translator.feed(two_calls("k")) + translator.close(), "openai-chat"))
    assert [call.call_id for call in answer.calls] == ["k-repeat-2"]
    assert isinstance(answer.messages[0].parts[0], ToolCall)
