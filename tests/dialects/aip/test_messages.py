"""Our bytes are protobuf's bytes, and protobuf's are read by us; every recorded message is one of them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from bridge.dialects.aip import wire as m
from bridge.dialects.aip.generation import arguments_of, of_registration, write_arguments
from bridge.dialects.aip.proto import Wire

from . import schema

CAPTURES = Path(__file__).parents[2] / "captures" / "aip"
OURS: dict[str, type[Wire]] = {
    "AgentMessage": m.AgentMessage,
    "AgentInfo": m.AgentInfo,
    "ToolInfo": m.ToolInfo,
    "ToolBoxInfo": m.ToolBoxInfo,
    "ToolRequest": m.ToolRequest,
    "ToolResponse": m.ToolResponse,
    "RegisterAgentResponse": m.RegisterAgentResponse,
    "RegisterToolResponse": m.Done,
    "DeregisterNodeRequest": m.Named,
    "DeregisterNodeResponse": m.Done,
    "GetNodesRequest": m.GetNodesRequest,
    "GetNodesResponse": m.Peers,
    "HeartbeatRequest": m.Named,
    "HeartbeatResponse": m.Done,
    "UpdateSubscriptionRequest": m.Subscription,
    "UnsubscribeRequest": m.Subscription,
}


def recorded() -> list[tuple[str, str, str, bytes, dict[str, Any]]]:
    """Capture, generation, type, bytes and JSON of every recorded message."""
    found = []
    for path in sorted(CAPTURES.glob("*.json")):
        if path.name == "index.json":
            continue
        capture = json.loads(path.read_text())
        for rpc in capture["rpcs"]:
            for event in rpc["events"]:
                if "raw_b64" in event:
                    raw = base64.b64decode(event["raw_b64"])
                    found.append((path.stem, capture["generation"], event["type"], raw, event.get("json") or {}))
    return found


def test_every_recorded_message_is_read_and_written_as_it_was() -> None:
    seen = set()
    for name, generation, kind, raw, _ in recorded():
        seen.add(kind)
        ours = OURS[kind].from_bytes(raw).to_bytes()
        judge = getattr(schema.toolbox() if generation == "toolbox" else schema.tool(), kind, None)
        judge = judge or getattr(schema.tool(), kind)
        assert judge.FromString(ours) == judge.FromString(raw), f"{name}: {kind}"
    assert {"AgentMessage", "AgentInfo", "ToolInfo", "ToolBoxInfo", "ToolRequest", "ToolResponse"} <= seen


def test_a_message_with_everything_is_the_same_to_protobuf() -> None:
    ours = m.AgentMessage(
        "a", "b", "s", m.SessionStatus.STOP_RESPONSE, m.TaskInfo("t", ["p", "q"], m.TaskStatus.FINISH), "m", "r",
        [m.ContentItem("你好"), m.ContentItem(image=b"\xff"), m.ContentItem(audio=b""), m.ContentItem(embedded=b"{}")],
    )  # fmt: skip
    theirs = schema.tool().AgentMessage.FromString(ours.to_bytes())
    assert json_format.MessageToDict(theirs, preserving_proto_field_name=True) == {
        "sender_id": "a",
        "receiver_id": "b",
        "session_id": "s",
        "session_status": "STOP_RESPONSE",
        "task_info": {"task_id": "t", "parent_task_ids": ["p", "q"], "task_status": "FINISH"},
        "message_id": "m",
        "reply_to_message_id": "r",
        "content": [{"text": "你好"}, {"image": "/w=="}, {"audio": ""}, {"embedded": "e30="}],
    }
    assert m.AgentMessage.from_bytes(theirs.SerializeToString()) == ours


def test_zero_values_are_not_written() -> None:
    assert m.AgentMessage(session_status=m.SessionStatus.START_QUEST).to_bytes() == b""
    assert m.ToolResponse(error_message="No Error").to_bytes() == (
        schema.message("ToolResponse", error_message="No Error").SerializeToString()
    )


@pytest.mark.parametrize("size", [1, 126, 127, 128, 16383, 16384])
def test_lengths_are_written_in_as_few_bytes_as_protobuf_writes(size: int) -> None:
    told = "x" * size
    assert m.ToolResponse(error_message=told).to_bytes() == (
        schema.message("ToolResponse", error_message=told).SerializeToString()
    )


def test_modes_are_read_packed_and_one_by_one() -> None:
    packed = schema.message("AgentInfo", agent_id="a", input_mode=[0, 3]).SerializeToString()
    assert m.AgentInfo.from_bytes(packed).input_mode == [0, 3]
    assert m.AgentInfo.from_bytes(b"\x28\x00\x28\x03").input_mode == [0, 3]


def test_unknown_fields_are_skipped() -> None:
    odd = b"\x78\x05" + b"\x92\x01\x03abc" + b"\x99\x01" + bytes(8) + b"\x9d\x01" + bytes(4) + b"\x0a\x01x"
    assert m.Named.from_bytes(odd) == m.Named("x")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\x0a\x05ab", "field 1 is truncated: 5 bytes expected, 2 left"),
        (b"\x0a", "a number is truncated"),
        (b"\x00\x01", "number 0"),
        (b"\x0b", "unknown wire type 3"),
        (b"\xff" * 11, "a number is truncated or too long"),
        (b"\x0a\x01\xff", "utf-8"),
    ],
)
def test_bytes_that_are_no_message_are_told(data: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        m.Named.from_bytes(data)


@given(st.binary(max_size=60))
def test_what_protobuf_takes_we_take_and_mean_the_same(data: bytes) -> None:
    judge = schema.tool().ToolResponse
    try:
        theirs = judge.FromString(data)
    except Exception:
        return
    try:
        ours = m.ToolResponse.from_bytes(data)
    except ValueError as error:
        # Groups, which proto3 has no more and protobuf skips.
        if "unknown wire type" not in str(error):
            raise
        return
    assert (ours.sender_id, ours.is_error, ours.error_message) == (
        theirs.sender_id, theirs.is_error, theirs.error_message,
    )  # fmt: skip


# ---------------------------------------------------------------------- generations


def test_registrations_tell_their_generation() -> None:
    told = {(kind, of_registration(raw)) for _, _, kind, raw, _ in recorded() if kind in ("ToolInfo", "ToolBoxInfo")}
    assert told == {("ToolInfo", "tool"), ("ToolBoxInfo", "toolbox")}
    bare = schema.message("ToolBoxInfo", box=True, toolbox_id="b", address="a:1", name="n", description="words")
    assert of_registration(bare.SerializeToString()) == "toolbox"
    modes = schema.message("ToolInfo", tool_id="t", address="a:1", name="n", input_mode=[0, 1])
    assert of_registration(modes.SerializeToString()) == "tool"
    nothing = schema.message("ToolInfo", tool_id="t", address="a:1").SerializeToString()
    assert (of_registration(nothing), of_registration(nothing, "toolbox")) == ("tool", "toolbox")


def test_arguments_of_both_generations_are_read() -> None:
    mapped = schema.message("ToolRequest", arguments={"a": "1", "b": "x"}).SerializeToString()
    assert arguments_of(m.ToolRequest.from_bytes(mapped).arguments) == {"a": "1", "b": "x"}
    text = schema.message("ToolRequest", box=True, arguments=' {"a": 1}').SerializeToString()
    assert arguments_of(m.ToolRequest.from_bytes(text).arguments) == {"a": 1}
    assert arguments_of([]) == {}
    with pytest.raises(ValueError, match="expected a JSON object, got list"):
        arguments_of([b" []"])


def test_arguments_are_written_as_the_node_takes_them() -> None:
    said = {"a": 1, "b": "x", "c": [True, None]}
    mapped = m.ToolRequest(arguments=write_arguments(said, "tool")).to_bytes()
    assert dict(schema.tool().ToolRequest.FromString(mapped).arguments) == {"a": "1", "b": "x", "c": "[true,null]"}
    text = m.ToolRequest(arguments=write_arguments(said, "toolbox")).to_bytes()
    assert json.loads(schema.toolbox().ToolRequest.FromString(text).arguments) == said
