"""Events as compact JSON: what is written comes back, and codes stay what they are."""

from __future__ import annotations

from typing import Any, get_args

import orjson
import pytest
from hypothesis import given

from bridge.errors import ErrorCode, Failure
from bridge.model import (
    ContentAdded,
    Custom,
    Data,
    Event,
    FileRef,
    FinishReason,
    Heartbeat,
    Inline,
    Interrupted,
    Media,
    MediaKind,
    Message,
    MessageEnded,
    MessageStarted,
    MessageStatus,
    Origin,
    PartEnded,
    PartKind,
    PartStarted,
    Raw,
    Reasoning,
    ReasoningDelta,
    Refusal,
    Request,
    RunFailed,
    RunFinished,
    RunStarted,
    StateChanged,
    StateOp,
    StepEnded,
    StepStarted,
    Text,
    TextDelta,
    Tool,
    ToolCall,
    ToolResult,
    ToolResulted,
    Url,
    UsageReported,
)
from bridge.model.dump import (
    _CODES,
    dump,
    load,
    load_message,
    load_request,
    load_tool,
)
from bridge.model.events import ArgsDelta
from bridge.model.request import HistoryMode, ResponseFormat, Resume, Sampling, ToolChoice, ToolMode
from tests.strategies import answers, failures, requests

# Stored data holds these; a change here breaks every log that was ever written.
STORED: list[tuple[Event, list[Any]]] = [
    (RunStarted("r", "t", None, 1.5), ["r", "r", "t", None, 1.5]),
    (RunStarted("r"), ["r", "r"]),
    (MessageStarted("m", "user", None, 2), ["m", "m", "user", None, 2]),
    (PartStarted("p", "m", PartKind.TEXT), ["p", "p", "m", "text"]),
    (
        PartStarted("p", "m", PartKind.TOOL_CALL, "c", "f", Origin.MCP, "s", {"d": {"a": 1}}),
        ["p", "p", "m", "tool_call", "c", "f", "mcp", "s", {"d": {"a": 1}}],
    ),
    (TextDelta("p", "hi"), ["t", "p", "hi"]),
    (ReasoningDelta("p", "hm"), ["k", "p", "hm"]),
    (ArgsDelta("p", "{"), ["a", "p", "{"]),
    (PartEnded("p"), ["q", "p"]),
    (PartEnded("p", "s", "x"), ["q", "p", "s", "x"]),
    (
        ContentAdded("m", Media(MediaKind.IMAGE, Url("u"), "image/png")),
        ["c", "m", ["M", "image", ["U", "u"], "image/png"]],
    ),
    (ContentAdded("m", Media(MediaKind.FILE, Inline("QQ=="))), ["c", "m", ["M", "file", ["I", "QQ=="]]]),
    (ContentAdded("m", Media(MediaKind.AUDIO, FileRef("f"))), ["c", "m", ["M", "audio", ["L", "f"]]]),
    (ContentAdded("m", Data(["t", "not an event"])), ["c", "m", ["D", ["t", "not an event"]]]),
    (ToolResulted("c", []), ["o", "c", []]),
    (
        ToolResulted(
            "c",
            [Text("a"), ToolResult("d", [Refusal("n")]), ToolCall("e", "f", "{", Origin.MCP), Reasoning("h")],
            "f",
            True,
        ),
        ["o", "c", [["T", "a"], ["O", "d", [["F", "n"]]], ["C", "e", "f", "{", "mcp"], ["R", "h"]], "f", True],
    ),
    (MessageEnded("m"), ["n", "m"]),
    (MessageEnded("m", MessageStatus.FAILED, FinishReason.LENGTH), ["n", "m", "failed", "length"]),
    (UsageReported(1, None, 3), ["u", 1, None, 3]),
    (StepStarted("s"), ["s", "s"]),
    (StepEnded("s"), ["e", "s"]),
    (StateChanged(StateOp.PATCH, [{"op": "add"}]), ["g", "patch", [{"op": "add"}]]),
    (Interrupted("i", None, {"a": 1}), ["i", "i", None, {"a": 1}]),
    (Custom("x"), ["x", "x"]),
    (Custom("x", ["z", "stop"]), ["x", "x", ["z", "stop"]]),
    (Raw("d", None), ["w", "d", None]),
    (Heartbeat(), ["h"]),
    (RunFailed(Failure(ErrorCode.INTERNAL, "x", status=500)), ["f", ["E", "internal", "x", None, 500]]),
    (RunFinished(), ["z"]),
    (RunFinished(FinishReason.LENGTH, 2.0), ["z", "length", 2.0]),
]  # fmt: skip


@pytest.mark.parametrize(("event", "array"), STORED, ids=lambda v: type(v).__name__)
def test_the_stored_form_is_fixed(event: Event, array: list[Any]) -> None:
    assert dump(event) == array
    assert load(array) == event
    assert repr(load(array)) == repr(event), "enumerations come back as such"


@given(answers())
def test_all_events_come_back(events: list[Event]) -> None:
    for event in events:
        again = load(orjson.loads(orjson.dumps(dump(event))))
        assert again == event
        assert repr(again) == repr(event), "types too"


@given(failures())
def test_failures_come_back(failure: Failure) -> None:
    again = load(orjson.loads(orjson.dumps(dump(RunFailed(failure)))))
    assert again == RunFailed(failure)
    assert isinstance(again, RunFailed)
    assert isinstance(again.error.code, ErrorCode)


def test_enumerations_come_back_as_such() -> None:
    again = load(["p", "p", "m", "text"])
    assert isinstance(again, PartStarted)
    assert isinstance(again.kind, PartKind)
    assert isinstance(again.origin, Origin)


def test_every_event_has_a_code() -> None:
    assert set(get_args(Event)) <= set(_CODES.values())
    assert {type(e) for e, _ in STORED} == set(get_args(Event))


@pytest.mark.parametrize(
    "array",
    [[], ["?"], ["t"], ["t", "p"], [1], [[]], [["t", "p", "x"]], ["T", "a part"], ["E", "internal", "x"], {}, None, 5,
     "t", "r", ["p", "p", "m", "no kind"], ["f", ["E", "no code", "x"]], ["c", "m", ["?", 1]]],
)  # fmt: skip
def test_anything_else_is_refused(array: Any) -> None:
    with pytest.raises(ValueError):
        load(array)


def test_loading_gives_a_new_value_each_time() -> None:
    first, second = load(["r", "r"]), load(["r", "r"])
    assert isinstance(first, RunStarted)
    assert isinstance(second, RunStarted)
    assert first.metadata is not second.metadata


MESSAGES: list[tuple[Message, list[Any]]] = [
    (Message("user", [Text("hi")]), ["N", "user", [["T", "hi"]]]),
    (Message("assistant", []), ["N", "assistant", []]),
    (
        Message("assistant", [ToolCall("c", "f", "{"), Data([["T", "no part"]])], "m", None, {"parts": ["T", "x"]}),
        ["N", "assistant", [["C", "c", "f", "{"], ["D", [["T", "no part"]]]], "m", None, {"parts": ["T", "x"]}],
    ),
    (
        Message("tool", [ToolResult("c", [Text("a")], None, True)], None, "f", {}, {"d": {"e": 1}}),
        ["N", "tool", [["O", "c", [["T", "a"]], None, True]], None, "f", {}, {"d": {"e": 1}}],
    ),
]
TOOLS: list[tuple[Tool, list[Any]]] = [
    (Tool("f"), ["W", "f"]),
    (Tool("f", None, {}), ["W", "f", None, {}]),
    (
        Tool("f", "does", {"type": ["T", "x"]}, False, {"d": {}}),
        ["W", "f", "does", {"type": ["T", "x"]}, False, {"d": {}}],
    ),
    (Tool("s", kind="search"), ["W", "s", None, None, None, None, "search"]),
]  # fmt: skip


@pytest.mark.parametrize(("message", "array"), MESSAGES)
def test_the_stored_form_of_messages_is_fixed(message: Message, array: list[Any]) -> None:
    assert dump(message) == array
    assert load_message(array) == message
    assert repr(load_message(array)) == repr(message)


@pytest.mark.parametrize(("tool", "array"), TOOLS)
def test_the_stored_form_of_tools_is_fixed(tool: Tool, array: list[Any]) -> None:
    assert dump(tool) == array
    assert load_tool(array) == tool


@given(requests())
def test_whatever_can_be_asked_comes_back(asked: Request) -> None:
    for message in asked.messages:
        again = load_message(orjson.loads(orjson.dumps(dump(message))))
        assert again == message
        assert repr(again) == repr(message)
    for tool in asked.tools or []:
        assert repr(load_tool(orjson.loads(orjson.dumps(dump(tool))))) == repr(tool)
    whole = load_request(orjson.loads(orjson.dumps(dump(asked))))
    assert whole == asked
    assert repr(whole) == repr(asked)


def test_the_stored_form_of_requests_is_fixed() -> None:
    asked = Request(
        [Message("user", [Text("hi")])],
        [Tool("f")],
        ToolChoice(ToolMode.REQUIRED, ["f"]),
        history=HistoryMode.DELTA,
        sampling=Sampling(0.5, stop=["x"]),
        response_format=ResponseFormat("json"),
        resume=[Resume("i", "resolved", ["N"])],
        state=["Q"],
    )
    array = [
        "Q", [["N", "user", [["T", "hi"]]]], [["W", "f"]], ["H", "required", ["f"]], None, None, None, None, None, None,
        True, "delta", ["S", 0.5, None, None, ["x"]], ["B", "json"], None, [["V", "i", "resolved", ["N"]]], ["Q"],
    ]  # fmt: skip
    assert dump(asked) == array
    assert repr(load_request(array)) == repr(asked)
    with pytest.raises(ValueError, match="expected a request"):
        load_request(["N", "user", []])


@pytest.mark.parametrize("array", [[], ["N"], ["T", "x"], ["t", "p", "x"], ["N", "user", [["?"]]], {}, None])
def test_messages_and_tools_are_nothing_else(array: Any) -> None:
    with pytest.raises(ValueError, match="expected a message"):
        load_message(array)
    with pytest.raises(ValueError, match="expected a tool"):
        load_tool(array)
    with pytest.raises(ValueError, match="expected a tool"):
        load_tool(["N", "user", []])
    with pytest.raises(ValueError, match="expected an event"):
        load(["N", "user", []])
