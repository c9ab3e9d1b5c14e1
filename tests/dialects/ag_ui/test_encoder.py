"""What clients are sent: the rules of section 5, for clients of 1.0 and of 0.x."""

from __future__ import annotations

import gc
import json
import weakref
from dataclasses import replace
from typing import Any

import orjson
import pytest

from bridge.contract import KEEPALIVE
from bridge.dialects.ag_ui import dialect
from bridge.dialects.ag_ui.wire import own
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Custom,
    Data,
    Event,
    FinishReason,
    Heartbeat,
    Interrupted,
    Media,
    MediaKind,
    Origin,
    PartKind,
    Raw,
    Reasoning,
    Refusal,
    RunStarted,
    StateChanged,
    StateOp,
    StepEnded,
    StepStarted,
    Text,
    ToolCall,
    ToolResulted,
    Url,
    UsageReported,
    fold,
    unfold,
)
from bridge.translation import library
from bridge.translation.framing.sse import join

from .helpers import (
    again,
    asked,
    back,
    build,
    decode,
    encode,
    front,
    heard,
    new_client,
    old_client,
    payloads,
    read,
    said,
    types,
)
from .order import check_order


def calls_at_once(builder: Any) -> None:
    """Text, then two calls whose pieces interleave, with a state between them."""
    builder.flow("m", PartKind.TEXT, "Wait.")
    for name in ("a", "b"):
        builder.open_part(name, "m", PartKind.TOOL_CALL, call_id=name, name="f")
    builder.delta("a", '{"x"')
    builder.delta("b", '{"y"')
    builder.emit(StateChanged(StateOp.SNAPSHOT, {"busy": True}))
    builder.delta("a", ":1}")
    builder.delta("b", ":2}")
    builder.end_part("b")
    builder.end_part("a")


def test_one_thing_after_another() -> None:
    events = build(calls_at_once)
    out = said(events, new_client())
    assert types(out) == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "STATE_SNAPSHOT",
        "RUN_FINISHED",
    ]
    assert [e["delta"] for e in out if e["type"] == "TOOL_CALL_ARGS"] == ['{"x"', ":1}", '{"y"', ":2}"]
    assert {e["parentMessageId"] for e in out if "parentMessageId" in e} == {out[1]["messageId"]}
    old = said(events, old_client())
    check_order(old, alone=True)
    assert types(old)[-2:] == ["STATE_SNAPSHOT", "RUN_FINISHED"]


def test_state_does_not_wait_for_the_end_of_a_text_at_new_clients() -> None:
    def tell(builder: Any) -> None:
        builder.flow("m", PartKind.TEXT, "a")
        builder.emit(StateChanged(StateOp.PATCH, [{"op": "add", "path": "/a", "value": 1}]))
        builder.flow("m", PartKind.TEXT, "b")

    assert types(said(build(tell), new_client()))[2:5] == [
        "TEXT_MESSAGE_CONTENT",
        "STATE_DELTA",
        "TEXT_MESSAGE_CONTENT",
    ]
    check_order(said(build(tell), old_client()), alone=True)


def test_text_has_constant_bytes_around_it() -> None:
    frames = encode(build(lambda b: b.flow("m", PartKind.TEXT, 'é "x"\n')), front())
    assert frames[2] == '{"type":"TEXT_MESSAGE_CONTENT","messageId":"msg_run1","delta":"é \\"x\\"\\n"}'.encode()


def test_the_head_echoes_the_client() -> None:
    context = front(request=read(asked(parentRunId="r0")))
    out = said(build(lambda b: None), context)
    assert out[0] == {
        "type": "RUN_STARTED",
        "threadId": "t1",
        "runId": "r1",
        "protocolVersion": "1.0",
        "parentRunId": "r0",
    }
    assert out[-1] == {"type": "RUN_FINISHED", "threadId": "t1", "runId": "r1", "outcome": {"type": "success"}}
    out = said(build(lambda b: None), old_client())
    assert out == [
        {"type": "RUN_STARTED", "threadId": "t1", "runId": "r1"},
        {"type": "RUN_FINISHED", "threadId": "t1", "runId": "r1"},
    ]


@pytest.mark.parametrize(
    ("version", "new"), [("1.0", True), ("2.7", True), ("x", True), (3, True), ("0.0.59", False), (None, False)]
)
def test_which_version_a_client_speaks(version: Any, new: bool) -> None:
    out = said(build(lambda b: None), front(request=read(asked(version=None, protocolVersion=version))))
    assert ("protocolVersion" in out[0], "outcome" in out[-1]) == (new, new)


def test_empty_things_are_not_told() -> None:
    def tell(builder: Any) -> None:
        builder.add("m", Text(""))
        builder.add("m", Reasoning(""))
        builder.add("m", ToolCall("c", "f", ""))

    out = said(build(tell))
    assert types(out)[1:-1] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
    assert out[2]["delta"] == "{}"
    assert out[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c"]}


def test_calls_of_the_clients_tools_are_told_whole_at_the_end() -> None:
    """TanStack AI runs a tool on this event only. Calls of other tools, and answered ones, are none of the client's."""

    def tell(builder: Any) -> None:
        builder.add("m", ToolCall("c1", "mine", '{"a":1}'))
        builder.add("m", ToolCall("c2", "theirs", "{}"))
        builder.add("m", ToolCall("c3", "mine", ""))
        builder.add("m", ToolCall("c4", "mine", "{}"))
        builder.emit(ToolResulted("c4", [Text("done")]))

    tools = [{"name": "mine", "description": "", "parameters": {"type": "object"}}]
    for version in (None, "1.0"):
        context = front(request=read(asked(version=version, tools=tools)))
        out = said(build(tell), context)
        inputs = [each["value"] for each in out if each.get("name") == "tool-input-available"]
        assert inputs == [
            {"toolCallId": "c1", "toolName": "mine", "input": {"a": 1}},
            {"toolCallId": "c3", "toolName": "mine", "input": {}},
        ]
        assert types(out)[-3:] == ["CUSTOM", "CUSTOM", "RUN_FINISHED"]
        assert not [e for e in decode([join([orjson.dumps(e) for e in out])]) if isinstance(e, Custom)]


def test_ids_are_new_on_the_thread() -> None:
    """A backend that calls its first message `m1` in every run; and two texts in one message."""

    def tell(builder: Any) -> None:
        builder.message("k", message_id="m1")
        builder.add("k", Text("a"))
        builder.add("k", Text("b"))
        builder.add("k", ToolCall("c", "f", "{}"))
        builder.result("c", [Text("r")], message_id="m1")

    context = front(request=read(asked({"id": "m1", "role": "assistant", "content": "old"})))
    ids = [
        e["messageId"] for e in said(build(tell), context) if e["type"] in ("TEXT_MESSAGE_START", "TOOL_CALL_RESULT")
    ]
    assert len(set(ids)) == 3
    assert "m1" not in ids


def test_calls_of_a_turn_have_one_parent_and_a_result_ends_the_turn() -> None:
    def tell(builder: Any) -> None:
        for number in (1, 2):
            builder.add(number, ToolCall(f"c{number}", "f", "{}"))  # a message for each call
        builder.result("c1", [Text("r")])
        builder.add(3, ToolCall("c3", "f", "{}"))

    starts = [e for e in said(build(tell)) if e["type"] == "TOOL_CALL_START"]
    first, second, third = [e["parentMessageId"] for e in starts]
    assert first == second != third


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.CONTENT_FILTER])
def test_a_finish_without_an_outcome_stands_on_the_last_text(reason: FinishReason) -> None:
    def tell(builder: Any) -> None:
        builder.flow("m", PartKind.TEXT, "so far")
        builder.finish(reason)

    for context in (new_client(), old_client()):
        out = said(build(tell), context)
        assert out[-2] == {
            "type": "TEXT_MESSAGE_END",
            "messageId": out[1]["messageId"],
            "metadata": {"finish_reason": str(reason)},
        }
        assert "metadata" not in out[-1]
    assert again(build(tell)).reason is reason


def test_a_finish_after_something_else_stands_on_the_end() -> None:
    def tell(builder: Any) -> None:
        builder.add("m", ToolCall("c", "f", "{}"))
        builder.finish(FinishReason.LENGTH)

    assert said(build(tell))[-1]["metadata"] == {"finish_reason": "length"}
    assert again(build(tell)).reason is FinishReason.LENGTH


def test_a_filter_that_left_nothing_is_an_error() -> None:
    events = build(lambda b: b.finish(FinishReason.CONTENT_FILTER))
    out = said(events, old_client())
    assert (out[-1]["type"], out[-1]["code"]) == ("RUN_ERROR", "CONTENT_FILTER")
    assert again(events).reason is FinishReason.CONTENT_FILTER


def test_a_canceled_run() -> None:
    events = build(lambda b: b.finish(FinishReason.CANCELED))
    assert said(events, new_client())[-1]["outcome"] == {"type": "cancelled"}
    context = old_client()
    out = said(events, context)
    assert (out[-1]["type"], out[-1]["code"]) == ("RUN_ERROR", "RUN_CANCELLED")
    assert context.lost.names == ["finish_canceled"]


def test_everything_is_closed_before_an_error() -> None:
    def tell(builder: Any) -> None:
        builder.emit(StepStarted("work"))
        builder.flow("m", PartKind.TEXT, "half")
        builder.usage(UsageReported(3, 4))
        builder.fail(Failure(ErrorCode.BACKEND_TIMEOUT, "The backend stopped responding."))

    out = said(build(tell), new_client())
    assert types(out)[-3:] == ["TEXT_MESSAGE_END", "STEP_FINISHED", "RUN_ERROR"]
    assert out[-1] == {
        "type": "RUN_ERROR",
        "message": "The backend stopped responding.",
        "code": "UPSTREAM_TIMEOUT",
        "usage": [{"inputTokens": 3, "outputTokens": 4}],
    }
    context = old_client()
    assert said(build(tell), context)[-1] == out[-1]
    assert context.lost.names == []


def test_steps_that_clients_would_refuse() -> None:
    def tell(builder: Any) -> None:
        for event in (StepEnded("a"), StepStarted("a"), StepStarted("a"), StepEnded("a"), StepEnded("a")):
            builder.emit(event)
        builder.emit(StepStarted("open"))

    context = new_client()
    out = said(build(tell), context)
    assert types(out)[1:-1] == ["STEP_STARTED", "STEP_FINISHED", "STEP_STARTED", "STEP_FINISHED"]
    assert context.lost.names == ["step"]


def test_usage_names_the_model_for_every_version() -> None:
    def tell(builder: Any) -> None:
        builder.usage(UsageReported(10, 5, 15, 4, 2))

    events = build(tell)
    assert isinstance(events[0], RunStarted)
    events[0].model = "m"
    for context in (new_client(), old_client()):
        assert said(events, context)[-1]["usage"] == [
            {
                "model": "m",
                "inputTokens": 10,
                "outputTokens": 5,
                "totalTokens": 15,
                "cachedInputTokens": 4,
                "reasoningTokens": 2,
            }
        ]


def think(builder: Any) -> None:
    builder.add("m", Reasoning("Hm.", "sig"))
    builder.add("m", Text("42"))


def test_reasoning_in_three_ways() -> None:
    out = said(build(think), new_client())
    assert types(out)[1:7] == [
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_ENCRYPTED_VALUE",
        "REASONING_END",
    ]
    assert out[5]["entityId"] == out[2]["messageId"] != out[7]["messageId"]
    assert types(said(build(think), old_client()))[1:7] == types(out)[1:7]
    context = old_client(reasoning_events="thinking")
    out = said(build(think), context)
    assert types(out)[1:6] == [
        "THINKING_START",
        "THINKING_TEXT_MESSAGE_START",
        "THINKING_TEXT_MESSAGE_CONTENT",
        "THINKING_TEXT_MESSAGE_END",
        "THINKING_END",
    ]
    assert out[3] == {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "Hm."}
    assert context.lost.names == ["reasoning_signature"]
    context = new_client(reasoning_events="none")
    assert types(said(build(think), context))[1] == "TEXT_MESSAGE_START"
    assert context.lost.names == ["reasoning", "reasoning_signature"]


def test_reasoning_that_is_encrypted_only_comes_back_as_such() -> None:
    events = build(lambda b: b.add("m", Reasoning("", None, "xyz")))
    assert again(events).parts() == [Reasoning("", None, "xyz")]
    value = next(e["encryptedValue"] for e in said(events) if "encryptedValue" in e)
    request = read(asked({"id": "1", "role": "reasoning", "content": "", "encryptedValue": value}))
    assert request.messages[0].parts == [Reasoning("", None, "xyz")]


def test_media_data_and_refusals_are_text_of_their_own() -> None:
    def tell(builder: Any) -> None:
        builder.add("m", Text("See:"))
        builder.add("m", Media(MediaKind.IMAGE, Url("https://example.test/a.png")))
        builder.add("m", Data({"a": 1}))
        builder.add("m", Refusal("No."))

    context = new_client()
    out = said(build(tell), context)
    texts = [e["delta"] for e in out if e["type"] == "TEXT_MESSAGE_CONTENT"]
    assert texts == ["See:", "![image](https://example.test/a.png)", '{"a":1}', "No."]
    assert len({e["messageId"] for e in out if e["type"] == "TEXT_MESSAGE_START"}) == 4
    assert context.lost.names == ["image", "data", "refusal"]


def test_a_result_of_a_tool_that_failed() -> None:
    def tell(builder: Any) -> None:
        builder.add("m", ToolCall("c", "f", "{}"))
        builder.result("c", [Text("boom"), Data([1])], is_error=True)

    context = new_client()
    out = said(build(tell), context)
    assert out[-2]["content"] == "boom[1]"
    assert out[-2]["metadata"] == {"dialect-bridge": {"isError": True}}
    assert "pendingToolCallIds" not in out[-1]["outcome"]
    assert context.lost.names == []


def test_that_a_result_is_an_error_comes_back() -> None:
    said_by_agent = [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f"},
        {"type": "TOOL_CALL_END", "toolCallId": "c"},
        {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c", "content": "boom"},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ]
    said_by_agent[3]["metadata"] = {"cost": "1", "dialect-bridge": {"isError": True}}  # type: ignore[assignment]
    wire = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in said_by_agent)
    for _ in range(2):
        events = library.decode(wire, "ag-ui")
        (result,) = [event for event in events if isinstance(event, ToolResulted)]
        assert result.is_error
        assert own(result.extras)["metadata"] == {"cost": "1"}
        wire = library.encode(events, "ag-ui")


def test_an_error_in_a_snapshot_is_one_of_its_result() -> None:
    messages = [{"id": "m", "role": "tool", "toolCallId": "c", "content": "boom", "error": "it broke"}]
    said_by_agent: list[dict[str, Any]] = [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f"},
        {"type": "TOOL_CALL_END", "toolCallId": "c"},
        {"type": "MESSAGES_SNAPSHOT", "messages": messages},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ]
    events = library.decode(b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in said_by_agent), "ag-ui")
    assert [event.is_error for event in events if isinstance(event, ToolResulted)] == [True]


PAYLOADS: list[Any] = [
    None,
    "Sure?",
    {"message": "Sure?", "responseSchema": {"type": "object"}, "expiresAt": "2030-01-01T00:00:00Z"},
    {"message": "Sure?", "tool": "rm"},
    {"metadata": {"a": 1}},
    {"metadata": {}},
    {"metadata": {"dialect-bridge": {}}},
    {},
    [1, None],
]


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("reason", [None, "confirmation"])
def test_interrupts_come_back(payload: Any, reason: str | None) -> None:
    asks = Interrupted("i1", reason, payload, "c")

    def tell(builder: Any) -> None:
        builder.add("m", ToolCall("c", "f", "{}"))
        builder.interrupt(asks)

    for context in (new_client(), old_client()):
        out = said(build(tell), context)
        assert out[-1]["outcome"]["type"] == "interrupt"
        assert out[-1]["outcome"]["interrupts"][0]["reason"] == (reason or "tool_call")
    answer = again(build(tell))
    assert [replace(event, extras=None) for event in answer.interrupts] == [asks]
    assert answer.reason is FinishReason.INTERRUPTED


@pytest.mark.parametrize(
    ("asks", "message"),
    [
        (Interrupted("i", "approval", {"name": "wipe", "arguments": "{}"}), "approval: wipe({})"),
        (Interrupted("i", None, {"question": "Sure?", "steps": [1]}), "Sure?"),
        (Interrupted("i", None, "Sure?"), "Sure?"),
    ],
)
def test_a_question_of_another_protocol_has_a_message(asks: Interrupted, message: str) -> None:
    """It is what clients show."""
    end = said(build(lambda builder: builder.interrupt(asks)))[-1]
    assert end["outcome"]["interrupts"][0]["message"] == message


def test_an_interrupt_of_a_run_that_failed() -> None:
    def tell(builder: Any) -> None:
        builder.interrupt(Interrupted("i1", "approval", {"x": 1}))
        builder.fail(Failure(ErrorCode.INTERNAL, "It broke."))

    (asked,) = again(build(tell)).interrupts
    assert replace(asked, extras=None) == Interrupted("i1", "approval", {"x": 1})
    check_order(said(build(tell), old_client()))


@pytest.mark.parametrize(
    ("op", "value"),
    [
        (StateOp.PATCH, {"op": "add"}),
        (StateOp.PATCH, [{"op": "add", "path": "/a"}]),
        (StateOp.PATCH, [{"op": "move", "path": "/a", "from": "b"}]),
        (StateOp.PATCH, [{"op": "add", "path": "/~2", "value": 1}]),
        (StateOp.PATCH, ["x"]),
        (StateOp.MESSAGES, "x"),
        (StateOp.MESSAGES, [{"id": "1", "role": "robot", "content": ""}]),
        (StateOp.MESSAGES, [{"id": "1", "role": "user"}]),
        (StateOp.MESSAGES, [{"id": "1", "role": "tool", "content": ""}]),
        (StateOp.MESSAGES, [{"id": "1", "role": "activity", "content": ""}]),
    ],
)
def test_state_that_clients_would_refuse_is_left_out(op: StateOp, value: Any) -> None:
    context = new_client()
    assert types(said(build(lambda b: b.emit(StateChanged(op, value))), context)) == ["RUN_STARTED", "RUN_FINISHED"]
    assert context.lost.names == ["state"]


def test_custom_and_raw() -> None:
    def tell(builder: Any) -> None:
        builder.emit(Custom("x", None))
        builder.emit(Raw("other", {"n": 1}))
        builder.emit(Raw("ag-ui", {"type": "HOLOGRAM", "x": 1, "gone": None}))
        builder.emit(Raw("ag-ui", {"type": "RAW", "event": None}))
        builder.emit(Raw("ag-ui", "nothing"))

    context = new_client()
    out = said(build(tell), context, unknown=("HOLOGRAM",))
    assert out[1:5] == [
        {"type": "CUSTOM", "name": "x", "value": None},
        {"type": "RAW", "event": {"n": 1}, "source": "dialect-bridge/other"},
        {"type": "HOLOGRAM", "x": 1},
        {"type": "RAW", "event": None},
    ]
    assert context.lost.names == ["raw"]
    assert types(said(build(tell), old_client())) == ["RUN_STARTED", "CUSTOM", "RAW", "RAW", "RUN_FINISHED"]


ODD = [
    ({"type": "CUSTOM", "value": 1}, None),
    ({"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "x"}, None),
    ({"type": "ACTIVITY_SNAPSHOT", "messageId": "x"}, None),
    ({"type": "ACTIVITY_SNAPSHOT", "messageId": "x", "activityType": "P", "content": []}, None),
    ({"type": "ACTIVITY_DELTA", "messageId": "x", "activityType": "P", "patch": [{"op": "zap"}]}, None),
    ({"type": "REASONING_ENCRYPTED_VALUE", "subtype": "x", "entityId": "r", "encryptedValue": "s"}, None),
    ({"type": "SUBAGENT_ERROR", "subagentRunId": "s"}, None),
    ({"type": "RAW"}, None),
    ({"type": "RAW", "event": 1, "source": 3, "timestamp": 1.5, "metadata": "x"}, {"type": "RAW", "event": 1}),
    ({"type": "RAW", "event": 1, "timestamp": 2**53}, {"type": "RAW", "event": 1}),
    ({"type": "RAW", "event": 1, "timestamp": 2**53 - 1}, {"type": "RAW", "event": 1, "timestamp": 2**53 - 1}),
    (
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "x", "activityType": "P", "content": {}, "replace": "no"},
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "x", "activityType": "P", "content": {}},
    ),
]


@pytest.mark.parametrize(("odd", "repaired"), ODD)
def test_an_event_that_clients_would_refuse_does_not_end_their_run(odd: dict[str, Any], repaired: Any) -> None:
    """Measured: each of these alone makes the official client 1.0 reject the run."""
    out = said(build(lambda b: b.emit(Raw("ag-ui", odd))), new_client())
    assert out[1] == (repaired or {"type": "RAW", "event": odd})


def test_a_snapshot_of_messages_has_no_nulls_and_no_foreign_spelling() -> None:
    """Python agents write them; the official client refuses the run over one null."""
    wire = [
        {"id": "u", "role": "user", "content": [{"type": "binary", "mimeType": "image/png", "data": "aa", "id": None}]},
        {"id": "a", "role": "assistant", "content": "x", "name": None, "tool_calls": None, "metadata": None},
        {"id": "b", "role": "assistant", "content": None,
         "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"a": 1}}, "encrypted_value": None}]},
        {"id": "t", "role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "y"}], "error": None},
    ]  # fmt: skip
    events = build(lambda b: b.emit(StateChanged(StateOp.MESSAGES, wire)))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    image = {"type": "image", "source": {"type": "data", "value": "aa", "mimeType": "image/png"}}
    assert said(events, new_client())[1]["messages"] == [
        {"id": "u", "role": "user", "content": [image]},
        {"id": "a", "role": "assistant", "content": "x"},
        {"id": "b", "role": "assistant", "toolCalls": [call]},
        {"id": "t", "role": "tool", "toolCallId": "c", "content": [{"type": "text", "text": "y"}]},
    ]
    old = payloads(encode(events, old_client()))[1]["messages"]
    assert old[0]["content"] == [{"type": "binary", "mimeType": "image/png", "data": "aa"}]
    assert old[3]["content"] == "y"


def test_parts_of_a_result_are_written_anew() -> None:
    """What the agent sent may hold nulls and parts that nobody knows."""
    content = [
        {"type": "text", "text": "see", "id": None},
        {"type": "image", "source": {"type": "data", "value": "aa", "mimeType": "image/png"}},
        {"type": "?"},
    ]
    answer = heard(
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f"},
        {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c", "content": content},
    )
    image = {"type": "image", "source": {"type": "data", "value": "aa", "mimeType": "image/png"}}
    assert said(unfold(answer), new_client())[-2]["content"] == [
        {"type": "text", "text": "see"}, image, {"type": "text", "text": '{"type":"?"}'}
    ]  # fmt: skip
    assert said(unfold(answer), old_client())[-2]["content"] == 'see[image: image/png, 1 byte]{"type":"?"}'


def test_a_picture_that_a_tool_gave_is_a_part_for_new_clients() -> None:
    def tell(builder: Any) -> None:
        builder.add("m", ToolCall("c", "f", "{}"))
        builder.result("c", [Media(MediaKind.IMAGE, Url("https://example.test/a.png"))])

    assert said(build(tell), new_client())[-2]["content"] == [
        {"type": "image", "source": {"type": "url", "value": "https://example.test/a.png"}}
    ]
    assert said(build(tell), old_client())[-2]["content"] == "![image](https://example.test/a.png)"


def test_subagents_are_closed_and_live_once() -> None:
    def tell(builder: Any) -> None:
        for kind in ("STARTED", "STARTED", "ERROR", "FINISHED", "STARTED"):
            event = {"type": f"SUBAGENT_{kind}", "subagentRunId": "s", "name": "n", "message": "m"}
            builder.emit(Raw("ag-ui", event))
        builder.emit(Raw("ag-ui", {"type": "SUBAGENT_STARTED", "subagentRunId": "s2", "name": "n"}))

    out = said(build(tell), new_client())
    assert types(out)[1:-1] == ["SUBAGENT_STARTED", "SUBAGENT_ERROR", "SUBAGENT_STARTED", "SUBAGENT_FINISHED"]


def test_a_subagents_call_is_not_put_into_the_agents_message() -> None:
    """The official client 1.0 refuses the run; seen with calls that name no parent."""
    events = streamed(
        {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "n", "parentSubagentRunId": "unknown"},
        {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "Wait."},
        {"type": "TOOL_CALL_CHUNK", "toolCallId": "c", "toolCallName": "f", "subagentRunId": "s", "delta": "{}"},
        {"type": "TOOL_CALL_CHUNK", "toolCallId": "d", "toolCallName": "f", "delta": "{}"},
        {"type": "SUBAGENT_FINISHED", "subagentRunId": "s", "outcome": {"type": "zap"}},
    )
    out = said(events, new_client())
    hosts = [(e["toolCallId"], e["parentMessageId"]) for e in out if e["type"] == "TOOL_CALL_START"]
    assert hosts[1] == ("d", "m") != hosts[0]
    assert out[1] == {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "n"}
    assert {"type": "SUBAGENT_FINISHED", "subagentRunId": "s"} in out


def test_metadata_and_attribution_of_an_agents_events_reach_clients() -> None:
    """Clients keep a text's metadata with its message; those of a subagent belong to it alone."""
    note = {"metadata": {"a": 1}}
    sub = {"subagentRunId": "s", **note}
    wire: list[dict[str, Any]] = [
        {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "n"},
        {"type": "STEP_STARTED", "stepName": "x"},
        {"type": "STEP_STARTED", "stepName": "x", **sub},
        {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant", **note},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "a"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m", "metadata": {"b": 2}},
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f", "parentMessageId": "m", **note},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{}"},
        {"type": "TOOL_CALL_END", "toolCallId": "c", **note},
        {"type": "TOOL_CALL_RESULT", "messageId": "r", "toolCallId": "c", "content": "ok", "role": "tool", **note},
        {"type": "STATE_SNAPSHOT", "snapshot": {}, **sub},
        {"type": "STATE_DELTA", "delta": [], **note},
        {"type": "CUSTOM", "name": "n", "value": 1, **sub},
        {"type": "STEP_FINISHED", "stepName": "x", **sub},
        {"type": "STEP_FINISHED", "stepName": "x", **note},
        {"type": "SUBAGENT_FINISHED", "subagentRunId": "s"},
    ]
    events = decode([join([orjson.dumps(w) for w in (*wire, {"type": "RUN_FINISHED", **note})])])
    out = said(events, new_client())
    assert out[1:-1] == wire
    assert out[-1]["metadata"] == {"a": 1}
    old = said(events, old_client())
    assert [e["stepName"] for e in old if e["type"] == "STEP_STARTED"] == ["x"]
    assert not any("subagentRunId" in e for e in old)


@pytest.mark.parametrize("op", ["move", "copy"])
def test_a_patch_that_moves_names_two_places(op: str) -> None:
    whole = [{"op": op, "from": "/a", "path": "/b"}]
    assert {"type": "STATE_DELTA", "delta": whole} in said(streamed({"type": "STATE_DELTA", "delta": whole}))
    for half in ([{"op": op, "path": "/b"}], [{"op": op, "from": "a", "path": "/b"}]):
        told = said(streamed({"type": "STATE_DELTA", "delta": half}))
        assert "STATE_DELTA" not in [e["type"] for e in told], "clients end a run over a patch that is none"


def test_an_end_belongs_to_whoever_began() -> None:
    """The official client refuses the run over an end with another subagent."""
    out = said(streamed(
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f"},
        {"type": "TOOL_CALL_END", "toolCallId": "c", "subagentRunId": "s"},
    ), new_client())  # fmt: skip
    assert out[-2] == {"type": "TOOL_CALL_END", "toolCallId": "c"}


def test_a_finish_reason_joins_the_metadata_of_its_text() -> None:
    end = {"type": "TEXT_MESSAGE_END", "messageId": "m", "metadata": {"finish_reason": "length", "b": 2}}
    told = said(streamed({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "a"}, end), new_client())
    assert told[-2]["metadata"] == {"b": 2, "finish_reason": "length"}


def test_other_choices_and_origins_are_lost_and_named() -> None:
    def tell(builder: Any) -> None:
        builder.message(1, choice=1)
        builder.add(1, Text("other"))
        builder.add(1, Data(1))
        builder.end_message(1)
        builder.add(0, ToolCall("c", "f", "{}", Origin.MCP))

    context = new_client()
    out = said(build(tell), context)
    assert "TEXT_MESSAGE_START" not in types(out)
    assert context.lost.names == ["choices", "tool_origin"]


def test_names_and_roles_of_messages_are_for_new_clients() -> None:
    def tell(builder: Any) -> None:
        builder.message("m", name="Ann", role="system")
        builder.add("m", Text("a"))

    start = said(build(tell), new_client())[1]
    assert (start["name"], start["role"]) == ("Ann", "system")
    start = said(build(tell), old_client())[1]
    assert ("name" in start, start["role"]) == (False, "assistant")


def test_keep_alive_and_the_end_of_a_text_that_waits() -> None:
    events: list[Event] = build(lambda b: b.add("m", Text("a")))[:-2]
    assert types(payloads(encode(events)))[-1] == "TEXT_MESSAGE_CONTENT"
    frames = encode([*events, Heartbeat()])
    assert frames[-1] == KEEPALIVE
    assert b"TEXT_MESSAGE_END" in frames[-2]  # type: ignore[operator]


def test_nothing_keeps_an_encoder_or_a_decoder_alive() -> None:
    """Without cycles, what a stream said is gone with it and not when the collector comes by."""
    gc.collect()
    gc.disable()
    try:
        encoder = dialect.encoder(front())
        encoder.encode(build(calls_at_once))
        decoder = dialect.decoder(back())
        decoder.feed([b'{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","delta":"a"}'])
        decoder.close()
        alive = [weakref.ref(encoder), weakref.ref(decoder)]
        del encoder, decoder
        assert [seen() for seen in alive] == [None, None]
    finally:
        gc.enable()


def streamed(*wires: dict[str, Any]) -> list[Event]:
    return decode([join([orjson.dumps(w) for w in (*wires, {"type": "RUN_FINISHED"})])])


def test_a_snapshot_is_not_told_twice() -> None:
    """An agent that answers by a snapshot only: AG-UI clients have it from there, others get its text."""
    messages = [{"id": "u", "role": "user", "content": "Hi"}, {"id": "a", "role": "assistant", "content": "Hello"}]
    events = streamed({"type": "MESSAGES_SNAPSHOT", "messages": messages})
    assert fold(events).text == "Hello"
    assert types(said(events, new_client())) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]


def test_a_result_in_a_snapshot_is_not_told_twice() -> None:
    messages = [
        {"id": "u", "role": "user", "content": "Hi"},
        {"id": "t", "role": "tool", "toolCallId": "c", "content": "x"},
    ]
    call = {"type": "TOOL_CALL_CHUNK", "toolCallId": "c", "toolCallName": "f", "delta": "{}"}
    events = streamed(call, {"type": "MESSAGES_SNAPSHOT", "messages": messages})
    assert [r.call_id for r in fold(events).results] == ["c"]
    assert types(said(events, new_client()))[-3:] == ["TOOL_CALL_END", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]


def test_the_answer_in_a_snapshot_that_clients_would_refuse_is_told() -> None:
    messages = [{"id": "u", "role": "robot"}, {"id": "a", "role": "assistant", "content": "Hello"}]
    out = said(streamed({"type": "MESSAGES_SNAPSHOT", "messages": messages}), new_client())
    assert [e["delta"] for e in out if e["type"] == "TEXT_MESSAGE_CONTENT"] == ["Hello"]
