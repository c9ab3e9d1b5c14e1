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
    RunFailed,
    RunFinished,
    RunStarted,
    StateChanged,
    StateOp,
    StepEnded,
    StepStarted,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolResulted,
    Url,
    UsageReported,
)
from bridge.model.dump import _CODES, dump, load
from bridge.model.events import ArgsDelta
from tests.strategies import answers, failures

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
