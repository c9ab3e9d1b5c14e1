"""What clients get: steps, calls, results, questions, ends."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.dialects.ai_sdk_ui.wire import OURS, noted_file, read_file
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Custom,
    FinishReason,
    Interrupted,
    Message,
    PartKind,
    Raw,
    Reasoning,
    Request,
    StateChanged,
    StateOp,
    StepStarted,
    Text,
    ToolCall,
    UsageReported,
)

from .helpers import asked, heard, run, sent, told, types

CALL = ToolCall("c1", "get_weather", '{"city": "Paris"}')
ANSWERED = {
    "id": "chat",
    "messages": [
        {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
        {
            "id": "a1",
            "role": "assistant",
            "parts": [
                {"type": "step-start"},
                {"type": "tool-wipe", "toolCallId": "c1", "state": "approval-responded", "input": {},
                 "approval": {"id": "p1", "approved": True}},
            ],
        },
    ],
}  # fmt: skip


def finished(builder: Any, reason: FinishReason = FinishReason.STOP) -> Any:
    builder.finish(reason)
    builder.end()
    return builder


def test_a_text_is_one_step() -> None:
    builder = run()
    builder.begin(model="m-1")
    builder.flow(0, PartKind.TEXT, "hel")
    builder.flow(0, PartKind.TEXT, "lo")
    builder.usage(UsageReported(12, 34, 46, 5, 6))
    usage = {
        "inputTokens": 12, "outputTokens": 34, "totalTokens": 46, "cachedInputTokens": 5, "reasoningTokens": 6,
        "inputTokenDetails": {"cacheReadTokens": 5}, "outputTokenDetails": {"reasoningTokens": 6},
    }  # fmt: skip
    assert told(finished(builder)) == [
        {"type": "start", "messageId": "run1", "messageMetadata": {"model": "m-1"}},
        {"type": "start-step"},
        {"type": "text-start", "id": "msg_run1-0"},
        {"type": "text-delta", "id": "msg_run1-0", "delta": "hel"},
        {"type": "text-delta", "id": "msg_run1-0", "delta": "lo"},
        {"type": "text-end", "id": "msg_run1-0"},
        {"type": "finish-step"},
        {"type": "finish", "finishReason": "stop", "messageMetadata": {"usage": usage}},
    ]


def test_parallel_calls_are_in_one_step_whatever_their_messages() -> None:
    builder = run()
    builder.add(0, CALL)
    builder.end_message(0)
    builder.add(1, ToolCall("c2", "get_time", ""))
    chunks = told(finished(builder))
    assert types(chunks).count("start-step") == 1
    assert [c["input"] for c in chunks if c["type"] == "tool-input-available"] == [{"city": "Paris"}, {}]
    assert chunks[-1]["finishReason"] == "tool-calls"


def test_a_result_ends_the_step_before_more_is_said() -> None:
    builder = run()
    builder.add(0, CALL)
    builder.result("c1", [Text('{"temp": 21}')])
    builder.flow(0, PartKind.TEXT, "warm")
    chunks = told(finished(builder))
    (output,) = [c for c in chunks if c["type"] == "tool-output-available"]
    assert output == {
        "type": "tool-output-available", "toolCallId": "c1", "output": {"temp": 21}, "providerExecuted": True,
    }  # fmt: skip
    after = types(chunks)[chunks.index(output) + 1 :]
    assert after[:3] == ["finish-step", "start-step", "text-start"]


def test_the_answer_to_an_approval_goes_on_in_its_message() -> None:
    request = asked(ANSWERED)
    builder = run()
    builder.result("c1", [Text("wiped")])
    builder.flow(0, PartKind.TEXT, "done")
    chunks = told(finished(builder), request)
    assert chunks[0]["messageId"] == "a1"
    assert types(chunks)[:3] == ["start", "tool-output-available", "start-step"]


def test_a_result_of_an_unknown_call_brings_its_call() -> None:
    builder = run()
    builder.result("c9", [Text("so")], name="search", is_error=True)
    chunks = told(finished(builder))
    call = {"type": "tool-input-available", "toolCallId": "c9", "toolName": "search", "input": {}}
    known = {"providerExecuted": True, "providerMetadata": {"dialect_bridge": {"earlier": True}}}
    assert {**call, **known} in chunks
    assert heard(chunks).calls == []
    assert {"type": "tool-output-error", "toolCallId": "c9", "errorText": "so", "providerExecuted": True} in chunks


@pytest.mark.parametrize("arguments", ['{"city": "P', "not json"])
def test_arguments_that_are_no_json_are_an_error(arguments: str) -> None:
    builder = run()
    builder.add(0, ToolCall("c1", "get_weather", arguments))
    (chunk,) = [c for c in told(finished(builder)) if c["type"].startswith("tool-input-e")]
    assert chunk["input"] == arguments
    assert chunk["errorText"]


def test_half_a_call_of_a_canceled_run_stays_open() -> None:
    builder = run()
    builder.open_part("c", 0, PartKind.TOOL_CALL, call_id="c1", name="get_weather")
    builder.delta("c", '{"city"')
    builder.usage(UsageReported(1, 2))
    chunks = told(finished(builder, FinishReason.CANCELED))
    assert types(chunks)[-2:] == ["message-metadata", "abort"]
    assert not [t for t in types(chunks) if t in ("tool-input-error", "tool-input-available", "finish")]


def test_a_call_that_a_limit_cut_off_before_its_arguments_is_not_run() -> None:
    builder = run()
    builder.open_part("c", 0, PartKind.TOOL_CALL, call_id="c1", name="get_weather")
    chunks = told(finished(builder, FinishReason.LENGTH))
    assert "tool-input-available" not in types(chunks)
    assert chunks[-1]["finishReason"] == "length"


def test_a_failure_is_never_a_finish() -> None:
    builder = run()
    builder.flow(0, PartKind.TEXT, "half")
    builder.usage(UsageReported(1, 2))
    builder.fail(Failure(ErrorCode.BACKEND_TIMEOUT, "too slow"))
    chunks = told(builder)
    assert types(chunks)[-5:] == ["text-end", "message-metadata", "error", "finish-step", "finish"]
    assert chunks[-3] == {"type": "error", "errorText": "too slow"}
    assert chunks[-1] == {"type": "finish", "finishReason": "error"}


def waiting(payload: Any = None, call_id: str | None = "c1") -> Any:
    builder = run()
    builder.add(0, CALL)
    builder.interrupt(Interrupted("p1", "tool_call", payload, call_id))
    return finished(builder)


def test_a_question_about_a_call_is_an_approval() -> None:
    chunks = told(waiting())
    assert {"type": "tool-approval-request", "approvalId": "p1", "toolCallId": "c1"} in chunks
    assert "data-interrupt" not in types(chunks)
    assert chunks[-1]["finishReason"] == "tool-calls"


def test_version_5_and_other_questions_get_a_data_part() -> None:
    for chunks in (
        told(waiting(), ui_version=5),
        told(waiting({"message": "Sure?"})),
        told(waiting(call_id=None)),
    ):
        (found,) = [c for c in chunks if c["type"] == "data-interrupt"]
        assert (found["id"], found["data"]["id"], found["data"]["reason"]) == ("p1", "p1", "tool_call")
    both = heard(told(waiting({"message": "Sure?"})))
    assert [(i.interrupt_id, i.call_id, i.payload) for i in both.interrupts] == [("p1", "c1", {"message": "Sure?"})]


def test_what_has_no_chunk_is_a_data_part_or_lost() -> None:
    builder = run()
    builder.emit(Custom("weather", {"t": 1}, {"ai-sdk-ui": {"id": "w1", "transient": True}}))
    builder.emit(StateChanged(StateOp.SNAPSHOT, {"a": 1}))
    builder.emit(StepStarted("plan"))
    builder.emit(Raw("ai-sdk-ui", {"type": "steering-message"}))
    chunks = told(finished(builder))
    assert chunks[1:4] == [
        {"type": "data-weather", "id": "w1", "transient": True, "data": {"t": 1}},
        {"type": "data-state", "data": {"op": "snapshot", "value": {"a": 1}}},
        {"type": "data-step", "data": {"name": "plan", "status": "started"}, "transient": True},
    ]
    assert len(chunks) == 5


def test_a_source_of_a_foreign_form_is_a_data_part() -> None:
    good = {"type": "source-url", "sourceId": "s", "url": "https://x.example", "title": None, "new": 1}
    builder = run()
    builder.emit(Custom("source", good))
    builder.emit(Custom("source", {"type": "source-url", "sourceId": "s"}))
    chunks = told(finished(builder))
    assert chunks[1] == {"type": "source-url", "sourceId": "s", "url": "https://x.example"}
    assert chunks[2]["type"] == "data-source"


def test_a_signature_keeps_its_namespace_on_the_way_through_another_dialect() -> None:
    """A client of any dialect returns the signature as it got it."""
    metadata = {"anthropic": {"signature": "c2ln"}}
    thought = [
        {"type": "reasoning-start", "id": "r"},
        {"type": "reasoning-delta", "id": "r", "delta": "hm"},
        {"type": "reasoning-end", "id": "r", "providerMetadata": metadata},
        {"type": "finish"},
    ]
    (part,) = [p for p in heard(thought).parts() if isinstance(p, Reasoning)]
    bare = Reasoning(part.text, part.signature)
    body = sent(Request([Message("assistant", [bare]), Message("user", [Text("so?")])]))
    assert body["messages"][0]["parts"][1]["providerMetadata"] == metadata


def test_metadata_of_a_file_goes_through_as_it_came() -> None:
    vendor = {"google": {"mediaResolution": "low"}}
    wire = {"type": "file", "url": "https://files.example/a.bin", "mediaType": "application/octet-stream"}
    both = {**vendor, OURS: {"filename": "a.bin"}}
    assert noted_file(read_file({**wire, "providerMetadata": vendor})) == {**wire, "providerMetadata": vendor}
    assert noted_file(read_file({**wire, "providerMetadata": both})) == {**wire, "providerMetadata": both}
    assert "providerMetadata" not in noted_file(read_file(wire))
