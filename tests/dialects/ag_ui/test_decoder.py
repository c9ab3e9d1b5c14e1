"""What is accepted from backends: every version, and what real agents make of it (sections 3, 5, 10)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.dialects.ag_ui import dialect
from bridge.errors import ErrorCode
from bridge.model import (
    Custom,
    Data,
    FileRef,
    FinishReason,
    Interrupted,
    Media,
    MediaKind,
    PartEnded,
    PartStarted,
    Raw,
    Reasoning,
    RunStarted,
    StepEnded,
    StepStarted,
    Text,
    ToolCall,
    ToolResult,
    UsageReported,
    interrupt_text,
)

from .helpers import asked, back, decode, encode, front, heard, new_client, payloads, read, said, types


def text(key: str, delta: Any, **more: Any) -> dict[str, Any]:
    return {"type": "TEXT_MESSAGE_CONTENT", "messageId": key, "delta": delta, **more}


def start(key: str, **more: Any) -> dict[str, Any]:
    return {"type": "TEXT_MESSAGE_START", "messageId": key, **more}


def call(key: str, name: str = "f", parent: str | None = None) -> dict[str, Any]:
    return {"type": "TOOL_CALL_START", "toolCallId": key, "toolCallName": name, "parentMessageId": parent}


def piece(key: str, delta: Any) -> dict[str, Any]:
    return {"type": "TOOL_CALL_ARGS", "toolCallId": key, "delta": delta}


def test_what_was_never_opened_is_opened() -> None:
    answer = heard(text("m", "a"), {"type": "REASONING_MESSAGE_CONTENT", "messageId": "r", "delta": "b"})
    assert answer.parts() == [Text("a"), Reasoning("b")]


def test_arguments_of_a_call_that_never_began_are_an_error() -> None:
    failure = heard(text("m", "a"), piece("c", "{}")).failure
    assert failure is not None
    assert failure.code is ErrorCode.BACKEND_PROTOCOL


def test_open_things_are_closed_at_the_end() -> None:
    answer = heard(start("m"), text("m", "a"), call("c", parent="m"), piece("c", "{"))
    assert [type(p) for p in answer.parts()] == [Text, ToolCall]
    assert len(answer.messages) == 1


def test_null_and_absent_are_the_same() -> None:
    answer = heard(
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "parentRunId": None, "input": None, "rawEvent": None},
        start("m", role=None, name=None),
        text("m", "a", timestamp=None),
        text("m", None),
        {"type": "TEXT_MESSAGE_END", "messageId": "m", "metadata": None},
        {"type": "RUN_FINISHED", "outcome": None, "usage": None, "result": None},
        ends=False,
    )
    assert (answer.text, answer.reason, answer.thread_id) == ("a", FinishReason.STOP, "t")


def test_names_with_underscores() -> None:
    answer = heard(
        {"type": "RUN_STARTED", "thread_id": "t", "run_id": "r"},
        {"type": "TEXT_MESSAGE_CONTENT", "message_id": "m", "delta": "a"},
        {"type": "TOOL_CALL_START", "tool_call_id": "c", "tool_call_name": "f", "parent_message_id": "m"},
    )
    assert answer.thread_id == "t"
    assert answer.parts() == [Text("a"), ToolCall("c", "f", "", extras={"ag-ui": {"parent": "m"}})]


def test_chunks_end_with_the_next_event_of_their_owner() -> None:
    events = decode(
        [
            b'data: {"type":"TEXT_MESSAGE_CHUNK","messageId":"m","delta":"a"}\n\n'
            b'data: {"type":"RAW","event":1}\n\n'
            b'data: {"type":"TEXT_MESSAGE_CHUNK","delta":"b"}\n\n'
            b'data: {"type":"TOOL_CALL_CHUNK","toolCallId":"c","toolCallName":"f","delta":"{"}\n\n'
            b'data: {"type":"TOOL_CALL_CHUNK","delta":"}"}\n\n'
            b'data: {"type":"REASONING_MESSAGE_CHUNK","messageId":"r","delta":"hm"}\n\n'
            b'data: {"type":"TEXT_MESSAGE_CHUNK","messageId":"n","delta":"c"}\n\n'
            b'data: {"type":"STEP_STARTED","stepName":"s"}\n\n'
            b'data: {"type":"TEXT_MESSAGE_CHUNK","delta":"d"}\n\n'
            b'data: {"type":"RUN_FINISHED"}\n\n'
        ]
    )
    out = payloads(encode(events, front()))
    assert [e.get("delta") for e in out if "delta" in e] == ["a", "b", "{", "}", "hm", "c", "d"]
    opened = 0
    for event in events:
        opened += isinstance(event, PartStarted) - isinstance(event, PartEnded)
        assert opened <= 1
        assert not (opened and isinstance(event, StepStarted))


def test_chunks_of_two_subagents_do_not_end_each_other() -> None:
    def chunk(owner: str, key: str | None, delta: str) -> dict[str, Any]:
        return {"type": "TEXT_MESSAGE_CHUNK", "messageId": key, "delta": delta, "subagentRunId": owner}

    answer = heard(chunk("s1", "a", "1"), chunk("s2", "b", "2"), chunk("s1", "a", "3"), chunk("s2", "b", "4"))
    assert [p.text for p in answer.parts()] == ["13", "24"]  # type: ignore[union-attr]


def test_chunks_without_an_id_go_on_with_their_own_subagents_text() -> None:
    """As the official client joins them."""

    def chunk(owner: str, key: str | None, delta: str) -> dict[str, Any]:
        return {"type": "TEXT_MESSAGE_CHUNK", "messageId": key, "delta": delta, "subagentRunId": owner}

    answer = heard(chunk("s1", "a", "1"), chunk("s2", "b", "2"), chunk("s1", None, "3"), chunk("s2", None, "4"))
    assert [p.text for p in answer.parts()] == ["13", "24"]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["f", None])
def test_chunks_of_parallel_calls_in_turns_are_two_calls(name: str | None) -> None:
    def chunk(key: str, delta: str, name: str | None) -> dict[str, Any]:
        return {"type": "TOOL_CALL_CHUNK", "toolCallId": key, "toolCallName": name, "delta": delta}

    answer = heard(chunk("a", "[1", "f"), chunk("b", "[2", "g"), chunk("a", ",3]", name), chunk("b", ",4]", name))
    assert [(c.call_id, c.name, c.arguments) for c in answer.calls] == [("a", "f", "[1,3]"), ("b", "g", "[2,4]")]


def test_a_call_that_is_over_is_told_once() -> None:
    """Agents that tell a call again, or go on with it: two calls with one id would be run twice, or not at all."""
    end = {"type": "TOOL_CALL_END", "toolCallId": "c"}
    result = {"type": "TOOL_CALL_RESULT", "messageId": "r", "toolCallId": "c", "content": "ok"}
    late = {"type": "TOOL_CALL_CHUNK", "toolCallId": "c", "delta": "late"}
    answer = heard(call("c"), piece("c", "{}"), end, call("c"), piece("c", "{}"), end, late)
    assert [(c.call_id, c.arguments) for c in answer.calls] == [("c", "{}")]
    assert [e.value["type"] for e in answer.events if isinstance(e, Raw)] == [
        "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_CHUNK",
    ]  # fmt: skip
    again = heard(call("c"), piece("c", "[1]"), end, result, call("c"), piece("c", "[2]"), end, result)
    assert [c.arguments for c in again.calls] == ["[1]", "[2]"]  # an agent that counts anew after each result
    assert len(again.results) == 2


def test_interleaved_texts_and_calls() -> None:
    answer = heard(
        start("a"), start("b"), text("a", "1"), text("b", "2"), text("a", "3"),
        call("c", parent="a"), call("d", parent="a"), piece("d", "D"), piece("c", "C"),
    )  # fmt: skip
    assert [p.text for p in answer.parts() if isinstance(p, Text)] == ["13", "2"]
    assert [c.arguments for c in answer.calls] == ["C", "D"]


@pytest.mark.parametrize("begun", [True, False])
def test_a_text_that_nobody_ends_keeps_back_neither_calls_nor_texts(begun: bool) -> None:
    """As AG-Kit's server of generation 2 tells it: what an event says must reach clients with that event."""
    decoder, encoder = dialect.decoder(back()), dialect.encoder(new_client())

    def seen(*events: dict[str, Any]) -> list[str]:
        frames = [json.dumps(e).encode() for e in events]
        return types(payloads(encoder.encode(decoder.feed(frames))))

    def says(key: str) -> list[dict[str, Any]]:
        return [start(key), text(key, "a")] if begun else [text(key, "a")]

    seen({"type": "RUN_STARTED"}, *says("m"))
    assert seen(call("c")) == ["TEXT_MESSAGE_END", "TOOL_CALL_START"]
    seen(piece("c", "{}"), {"type": "TOOL_CALL_END", "toolCallId": "c"})
    assert seen(*says("n"))[-2:] == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"]
    result = {"type": "TOOL_CALL_RESULT", "messageId": "r", "toolCallId": "c", "content": "ok"}
    assert seen(result) == ["TEXT_MESSAGE_END", "TOOL_CALL_RESULT"]
    assert seen(text("n", "more"))[-1] == "TEXT_MESSAGE_CONTENT"
    if not begun:
        assert seen(text("o", "a"))[-1] == "TEXT_MESSAGE_CONTENT"


def test_a_text_that_goes_on_after_its_end_is_one_text() -> None:
    end = {"type": "TEXT_MESSAGE_END", "messageId": "m"}
    answer = heard(start("m"), text("m", "a"), end, text("m", "b"), end)
    assert [part.text for part in answer.parts() if isinstance(part, Text)] == ["ab"]


def test_an_empty_message_is_no_answer_but_a_parent() -> None:
    answer = heard(start("p"), {"type": "TEXT_MESSAGE_END", "messageId": "p"}, call("c", parent="p"))
    assert [(m.id, [type(p) for p in m.parts]) for m in answer.messages] == [("p", [ToolCall])]


def test_messages_of_others_are_not_the_answer() -> None:
    for role in ("user", "system", "developer"):
        assert heard(start("m", role=role), text("m", "x"), {"type": "TEXT_MESSAGE_END", "messageId": "m"}).text == ""
        assert heard({"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "role": role, "delta": "x"}).text == ""


def test_calls_without_a_parent_are_one_turn() -> None:
    answer = heard(
        text("m", "a"), call("1"), call("2"), {"type": "TOOL_CALL_RESULT", "toolCallId": "1", "content": "r"}, call("3")
    )
    assert [len(m.parts) for m in answer.messages] == [3, 1, 1]
    assert answer.reason is FinishReason.TOOL_CALLS


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("r", [Text("r")]),
        ([{"type": "text", "text": "r"}], [Text("r")]),
        (
            [{"type": "document", "source": {"type": "file", "value": "f"}}, {"type": "?"}, 3],
            [Media(MediaKind.FILE, FileRef("f")), Data({"type": "?"}), Data(3)],
        ),
        ({"a": 1}, [Text('{"a":1}')]),
        (None, []),
    ],
)
def test_results(content: Any, parts: list[Any]) -> None:
    result = heard(
        call("c"), {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c", "content": content}
    ).results[0]
    assert (result.call_id, result.parts) == ("c", parts)


def test_arguments_as_an_object() -> None:
    assert heard(call("c"), piece("c", {"a": 1})).calls[0].arguments == '{"a":1}'


def test_encrypted_values() -> None:
    end = {"type": "REASONING_MESSAGE_END", "messageId": "r"}
    secret = {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", "entityId": "r", "encryptedValue": "s"}
    hm = {"type": "REASONING_MESSAGE_CONTENT", "messageId": "r", "delta": "hm"}
    span = {"type": "REASONING_END", "messageId": "r"}
    for events in ([hm, end, secret, span], [hm, end, span, secret], [hm, secret, end]):
        assert heard(*events).parts() == [Reasoning("hm", "s")]
    assert heard(end, secret).parts() == [Reasoning("", "s")]
    late = heard(hm, end, text("m", "a"), secret)
    assert late.events == [Raw("ag-ui", secret)]
    of_call = {**secret, "subtype": "tool-call"}
    assert heard(hm, end, of_call).events == [Raw("ag-ui", of_call)]


def test_thinking_of_old_agents() -> None:
    begin, end = {"type": "THINKING_TEXT_MESSAGE_START"}, {"type": "THINKING_TEXT_MESSAGE_END"}
    hm = {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "hm"}
    answer = heard(
        {"type": "THINKING_START", "title": "T"}, begin, hm, hm, end, begin, hm, end, {"type": "THINKING_END"}
    )
    assert answer.parts() == [Reasoning("hmhm"), Reasoning("hm")]


SNAPSHOT: list[Any] = [
    {"id": "u", "role": "user", "content": "Hi"},
    {"id": "r", "role": "reasoning", "content": "hm"},
    {
        "id": "a",
        "role": "assistant",
        "content": "Hello",
        "toolCalls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"id": "t", "role": "tool", "toolCallId": "c", "content": "done"},
    {"id": "b", "role": "assistant", "content": "Bye"},
    None,
]


def test_a_snapshot_is_the_answer_when_nothing_was_streamed() -> None:
    context = back(request=read(asked(SNAPSHOT[0])))
    answer = heard({"type": "MESSAGES_SNAPSHOT", "messages": SNAPSHOT}, ctx=context)
    assert answer.parts() == [
        Reasoning("hm"),
        Text("Hello"),
        ToolCall("c", "f", "{}"),
        ToolResult("c", [Text("done")], extras={"ag-ui": {"snapshot": True}}),
        Text("Bye"),
    ]
    assert answer.reason is FinishReason.STOP


def test_a_snapshot_is_not_told_after_deltas_or_before_them() -> None:
    whole = {"type": "MESSAGES_SNAPSHOT", "messages": SNAPSHOT}
    for events in ([text("a", "Hello"), whole], [whole, text("a", "Hello")]):
        assert heard(*events).text == "Hello"


def test_reasoning_that_was_streamed_is_not_told_again_from_a_snapshot() -> None:
    hm = {"type": "REASONING_MESSAGE_CONTENT", "messageId": "r", "delta": "hm"}
    whole = {"type": "MESSAGES_SNAPSHOT", "messages": SNAPSHOT[:3]}
    answer = heard(hm, whole, ctx=back(request=read(asked(SNAPSHOT[0]))))
    assert (answer.reasoning, answer.text) == ("hm", "Hello")


def test_encrypted_reasoning_of_a_snapshot_keeps_its_value() -> None:
    messages = [SNAPSHOT[0], {"id": "r", "role": "reasoning", "content": "", "encryptedValue": "s"}]
    assert heard({"type": "MESSAGES_SNAPSHOT", "messages": messages}).parts() == [Reasoning("", "s")]


def test_the_result_of_a_streamed_call_may_stand_in_a_snapshot_alone() -> None:
    """As LlamaIndex sends it (llama-index-protocols-ag-ui 0.6): chunks, no event for results, a snapshot each step."""
    call = {"type": "TOOL_CALL_CHUNK", "toolCallId": "c", "toolCallName": "f", "delta": "{}"}
    asking = {"type": "MESSAGES_SNAPSHOT", "messages": [SNAPSHOT[0], {**SNAPSHOT[2], "content": None}]}
    ran = {"type": "MESSAGES_SNAPSHOT", "messages": [*asking["messages"], SNAPSHOT[3]]}
    bye = {"type": "TEXT_MESSAGE_CHUNK", "messageId": "b", "role": "assistant", "delta": "Bye"}
    after = {"type": "MESSAGES_SNAPSHOT", "messages": [*ran["messages"], SNAPSHOT[4]]}
    told = ToolResult("c", [Text("done")], extras={"ag-ui": {"snapshot": True}})
    answer = heard(call, asking, ran, bye, after)
    assert answer.parts() == [ToolCall("c", "f", "{}"), told, Text("Bye")]
    assert answer.reason is FinishReason.STOP

    event = {"type": "TOOL_CALL_RESULT", "messageId": "t", "toolCallId": "c", "content": "done", "role": "tool"}
    answer = heard(call, ran, event, bye)
    assert answer.parts() == [ToolCall("c", "f", "{}"), told, Text("Bye")]
    assert Raw("ag-ui", event) in answer.events
    assert len(heard(call, ran, call, event).results) == 2


def test_only_what_is_new_in_a_snapshot_is_the_answer() -> None:
    """The second turn: the call is known, and so is its result, whatever ids the agent gave them."""
    known = [SNAPSHOT[0], {**SNAPSHOT[2], "id": "x"}, {**SNAPSHOT[3], "id": "y"}]
    context = back(request=read(asked(*known)))
    assert heard({"type": "MESSAGES_SNAPSHOT", "messages": SNAPSHOT}, ctx=context).parts() == [Text("Bye")]


def test_outcomes_and_usage() -> None:
    usage = [
        {"provider": "p", "inputTokens": 3, "outputTokens": 1, "reasoningTokens": 1},
        {"inputTokens": 4, "outputTokens": 2, "totalTokens": 6, "cachedInputTokens": 1, "cacheWriteInputTokens": 1},
        "?",
    ]
    end = {"type": "RUN_FINISHED", "outcome": {"type": "cancelled"}, "usage": usage}
    events = decode([b"data: " + json.dumps(end).encode() + b"\n\n"])
    report = next(e for e in events if isinstance(e, UsageReported))
    assert (report.input, report.output, report.total, report.cached, report.reasoning) == (7, 3, 6, 1, 1)
    out = said(events)[-1]
    assert (out["outcome"], out["usage"]) == ({"type": "cancelled"}, usage[:2])
    for odd in (None, [], {}, [{}], [{"inputTokens": "x"}], [{"inputTokens": -1}], [{"inputTokens": True}]):
        assert heard({"type": "RUN_FINISHED", "usage": odd}, ends=False).usage is None


def test_usage_that_a_client_would_refuse_is_mended() -> None:
    end = b'data: {"type":"RUN_FINISHED","usage":[{"inputTokens":3.0,"model":7,"extra":[1]}]}\n\n'
    assert said(decode([end]))[-1]["usage"] == [{"inputTokens": 3}]


def test_interrupts_of_ag_kit() -> None:
    answer = heard({"type": "CUSTOM", "name": "on_interrupt", "value": '{"ask": "Sure?"}'})
    told = {"ag-ui": {"told": ['{"ask": "Sure?"}']}}
    assert answer.interrupts == [Interrupted("on_interrupt_run1", None, {"ask": "Sure?"}, extras=told)]
    assert answer.reason is FinishReason.INTERRUPTED
    assert heard({"type": "CUSTOM", "name": "on_interrupt", "value": "no json"}).interrupts[0].payload == "no json"


# What the adapter @ag-ui/mastra sends for a tool that suspended: always the event, and from 1.1 on the outcome, too.
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SUSPENDED = {
    "type": "mastra_suspend",
    "toolCallId": "call_1",
    "toolName": "book",
    "suspendPayload": {"message": "Which city?"},
    "args": {"days": 3},
    "resumeSchema": json.dumps(CITY),
    "runId": "r7",
}
SUSPENSION = {"type": "CUSTOM", "name": "on_interrupt", "value": json.dumps(SUSPENDED)}
SUSPENDING = {
    "id": "r7::call_1",
    "reason": "mastra:tool_suspend",
    "toolCallId": "call_1",
    "responseSchema": CITY,
    "metadata": {"mastra": SUSPENDED},
}


def test_an_interrupt_that_an_event_and_the_outcome_tell_is_one() -> None:
    outcome = {"type": "interrupt", "interrupts": [SUSPENDING]}
    (asked,) = heard(SUSPENSION, {"type": "RUN_FINISHED", "outcome": outcome}, ends=False).interrupts
    assert (asked.interrupt_id, asked.call_id) == ("r7::call_1", "call_1")
    assert interrupt_text(asked) == 'book({"days":3})\n\nWhich city?'


@pytest.mark.parametrize("end", [{"type": "RUN_FINISHED"}, {"type": "RUN_ERROR", "message": "x"}, None])
def test_a_suspended_call_of_mastra(end: dict[str, Any] | None) -> None:
    (asked,) = heard(SUSPENSION, *([end] if end else []), ends=False).interrupts
    assert (asked.interrupt_id, asked.call_id) == ("on_interrupt_r7::call_1", "call_1")
    assert asked.payload == {"responseSchema": CITY, "metadata": {"mastra": SUSPENDED}}
    assert interrupt_text(asked) == 'book({"days":3})\n\nWhich city?'


@pytest.mark.parametrize("more", [{"runId": 5}, {"resumeSchema": "{"}, {"resumeSchema": 7, "toolCallId": None}])
def test_a_suspended_call_that_is_not_wholly_described(more: dict[str, Any]) -> None:
    event = {**SUSPENSION, "value": json.dumps({**SUSPENDED, **more})}
    (asked,) = heard(event).interrupts
    assert asked.interrupt_id.startswith("on_interrupt_")


@pytest.mark.parametrize("named", [None, "", 5, ["x"]])
def test_an_interrupt_that_is_not_named_gets_an_id(named: Any) -> None:
    outcome = {"type": "interrupt", "interrupts": [{"id": named, "message": "Sure?"}]}
    answer = heard({"type": "RUN_FINISHED", "outcome": outcome}, ends=False)
    assert answer.interrupts == [Interrupted("int_run1", None, {"message": "Sure?"})]


def test_a_run_that_began_is_told_before_it_says_anything() -> None:
    decoder = dialect.decoder(back())
    (event,) = decoder.feed([b'{"type":"RUN_STARTED","threadId":"theirs","runId":"r"}'])
    assert isinstance(event, RunStarted)
    assert event.thread_id == "theirs"


def test_what_stands_alone() -> None:
    answer = heard(
        {"type": "STEP_STARTED", "stepName": "s"},
        {"type": "STEP_FINISHED", "step_name": "s"},
        {"type": "CUSTOM", "name": "c", "value": [1]},
        {"type": "CUSTOM", "value": 1},
        {"type": "RAW", "event": 1, "source": "langgraph"},
        {"type": "RAW", "event": 2, "source": "dialect-bridge/other"},
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "x", "activityType": "PLAN", "content": {}},
        {"type": "HOLOGRAM"},
    )
    assert answer.events == [
        StepStarted("s"),
        StepEnded("s"),
        Custom("c", [1]),
        Raw("ag-ui", {"type": "CUSTOM", "value": 1}),
        Raw("ag-ui", {"type": "RAW", "event": 1, "source": "langgraph"}),
        Raw("other", 2),
        Raw("ag-ui", {"type": "ACTIVITY_SNAPSHOT", "messageId": "x", "activityType": "PLAN", "content": {}}),
        Raw("ag-ui", {"type": "HOLOGRAM"}),
    ]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"not json", ErrorCode.BACKEND_PROTOCOL),
        (b'{"type":"CUSTOM","name":"x","value":' + b"[" * 300 + b"]" * 300 + b"}", ErrorCode.BACKEND_PROTOCOL),
        (b'{"error":{"message":"m","code":"OVERLOADED"}}', ErrorCode.OVERLOADED),
        (b'{"type":"RUN_ERROR","message":"m","run_id":"r"}', ErrorCode.BACKEND_ERROR),
    ],
)
def test_what_ends_a_run(frame: bytes, code: ErrorCode) -> None:
    answer = heard(text("m", "half"), frame, {"type": "RUN_ERROR"})
    assert answer.text == "half"
    assert answer.failure is not None
    assert answer.failure.code is code


@pytest.mark.parametrize("frame", [b"", b"[DONE]", b"3", b"null", b"[]", b"{}", b'{"type":7}', b'{"type":{}}'])
def test_what_is_passed_over(frame: bytes) -> None:
    assert heard(text("m", "a"), frame, text("m", "b")).text == "ab"


def test_nothing_follows_the_end() -> None:
    answer = heard({"type": "RUN_FINISHED"}, text("m", "late"), {"type": "RUN_ERROR", "message": "late"})
    assert (answer.text, answer.failure) == ("", None)


def test_halves_of_a_surrogate_pair() -> None:
    answer = heard(
        start("m"),
        b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a\\ud83d"}',
        b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"\\ude00b"}',
        b'{"type":"CUSTOM","name":"x\\ud83d","value":1}',
    )
    assert answer.text == "a\U0001f600b"
    assert answer.events == [Custom("x\ufffd", 1)]
