"""What a backend wrote and the bridge passes on: the official clients end a run over one value of the wrong shape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.codec import Context
from bridge.model import Raw, StateChanged, StateOp

from .helpers import build, decode, new_client, old_client, said, types


def snapshot_of(messages: list[Any], context: Context | None = None) -> list[dict[str, Any]]:
    events = build(lambda b: b.emit(StateChanged(StateOp.MESSAGES, messages)))
    (snapshot,) = (e for e in said(events, context or new_client()) if e["type"] == "MESSAGES_SNAPSHOT")
    found: list[dict[str, Any]] = snapshot["messages"]
    return found


def test_nulls_in_a_snapshot_are_left_out() -> None:
    """Python agents write them, and every official client refuses the run over one."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}, "metadata": None}
    picture = {"type": "image", "source": {"type": "url", "value": "https://a/b.png", "mimeType": None}, "id": None}
    talk = [
        {"id": "1", "role": "user", "name": None, "content": [picture]},
        {"id": "2", "role": "assistant", "content": None, "toolCalls": [call]},
        {"id": "3", "role": "tool", "toolCallId": "c", "content": "x", "error": None},
        {"id": "4", "role": "activity", "activityType": "PLAN", "content": {"kept": None}},
    ]
    sent = snapshot_of(talk)
    assert "null" not in json.dumps(sent[:3])
    assert sent[1]["toolCalls"] == [{k: v for k, v in call.items() if v is not None}]
    assert sent[3]["content"] == {"kept": None}


def test_results_in_parts_are_for_new_clients() -> None:
    talk = [{"id": "3", "role": "tool", "toolCallId": "c", "content": [{"type": "text", "text": "sunny"}]}]
    assert snapshot_of(talk) == talk
    assert snapshot_of(talk, old_client())[0]["content"] == "sunny"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ([{"type": "text", "text": "a", "id": None}], [{"type": "text", "text": "a"}]),
        ([{"type": "text", "text": 1}], '{"type":"text","text":1}'),
        ([{"type": "image", "source": "b.png"}], '{"type":"image","source":"b.png"}'),
    ],
)
def test_a_result_whose_parts_clients_would_refuse_is_text(content: Any, told: Any) -> None:
    result = {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c", "content": content}
    events = decode([b"data: " + json.dumps(result).encode() + b"\n\n"])
    (sent,) = (e for e in said(events, new_client()) if e["type"] == "TOOL_CALL_RESULT")
    assert sent["content"] == told


@pytest.mark.parametrize(
    "event",
    [
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "PLAN"},
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "PLAN", "content": []},
        {"type": "ACTIVITY_DELTA", "messageId": "a", "activityType": "PLAN", "patch": [{"op": "add"}]},
        {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "thought", "entityId": "a", "encryptedValue": "s"},
        {"type": "SUBAGENT_STARTED", "subagentRunId": "s"},
        {"type": "SUBAGENT_ERROR", "subagentRunId": "s"},
        {"type": "RAW"},
        {"type": "CUSTOM", "value": 1},
        {"type": "TEXT_MESSAGE_START", "messageId": "a"},
    ],
    ids=lambda event: event["type"],
)
def test_events_of_a_backend_that_clients_would_refuse_are_left_out(event: dict[str, Any]) -> None:
    """One of them ended the whole run at the official client."""
    context = new_client()
    assert types(said(build(lambda b: b.emit(Raw("ag-ui", event))), context)) == ["RUN_STARTED", "RUN_FINISHED"]
    assert context.lost.names == ["raw"]


def test_fields_of_a_backend_that_clients_would_refuse_are_left_out() -> None:
    event = {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "PLAN", "content": {"x": None}, "more": 1}
    odd = {**event, "timestamp": "now", "metadata": 1, "replace": "no"}
    secret = {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", "entityId": "a", "encryptedValue": "s"}
    ended = {"type": "SUBAGENT_FINISHED", "subagentRunId": "s"}

    def tell(builder: Any) -> None:
        builder.emit(Raw("ag-ui", odd))
        # Clients refuse one that contradicts the message it belongs to.
        builder.emit(Raw("ag-ui", {**secret, "subagentRunId": "s"}))
        builder.emit(Raw("ag-ui", {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "n"}))
        builder.emit(Raw("ag-ui", {**ended, "outcome": {"type": "vanished"}}))

    out = said(build(tell), new_client())
    assert (out[1], out[2], out[4]) == (event, secret, ended)
