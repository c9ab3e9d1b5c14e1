"""Every type of message (section 6) and of content (section 7), from an AgentScope backend to every frontend."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge import Translator
from bridge.contract import Dialect, WireRequest, registry
from bridge.dialects.agentscope import dialect, java
from bridge.model import Heartbeat, Interrupted, Origin, Raw, Resume, fold

from .helpers import check_schemas, context, decode, encode, payloads

CALL = {"call_id": "c", "name": "f", "arguments": "{}"}
MCP = {"call_id": "c", "arguments": "{}", "name": "f", "server_label": "srv"}
OUTPUT = {"call_id": "c", "name": "f", "output": "42"}
ASKED = {"id": "a1", "name": "rm", "arguments": '{"path":"a"}', "server_label": "fs"}
LISTED = {"id": "l1", "server_label": "fs", "tools": [{"name": "rm", "input_schema": {}}], "error": None}
ANSWER = {"approval_request_id": "a1", "approve": True, "id": "a1", "reason": None}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def data(value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "data", "data": value}


# Type, role and contents of messages; those that belong together stand in one row.
KINDS: dict[str, list[tuple[str, str, list[dict[str, Any]]]]] = {
    "message": [("message", "assistant", [text("hi"), {"type": "refusal", "refusal": "no"}])],
    "media": [
        (
            "message", "assistant",
            [
                {"type": "image", "image_url": "https://x.example/a.png"},
                {"type": "video", "video_url": "https://x.example/a.mp4"},
                {"type": "audio", "data": "aGk=", "format": "wav"},
                {"type": "file", "file_url": "https://x.example/a", "filename": "a"},
                data({"a": {"b": [1]}}),
            ],
        )
    ],
    "reasoning": [("reasoning", "assistant", [text("hm")])],
    "function": [("function_call", "assistant", [data(CALL)]), ("function_call_output", "tool", [data(OUTPUT)])],
    "plugin": [("plugin_call", "assistant", [data(CALL)]), ("plugin_call_output", "tool", [data(OUTPUT)])],
    "component": [("component_call", "assistant", [data(CALL)]), ("component_call_output", "tool", [data(OUTPUT)])],
    "mcp": [("mcp_call", "assistant", [data(MCP)]), ("mcp_call_output", "tool", [data(OUTPUT)])],
    "mcp list": [("mcp_list_tools", "assistant", [data(LISTED)])],
    "approval": [("mcp_approval_request", "assistant", [data(ASKED)])],
    "approval answer": [("mcp_approval_response", "user", [data(ANSWER)])],
    "a2ui": [("a2ui_response", "assistant", [data({"ui": []})]), ("a2ui_action", "user", [data({"action": 1})])],
    "of its own": [("weather_card", "assistant", [text("sunny"), data({"degrees": 20})])],
}  # fmt: skip


def stream(name: str) -> list[dict[str, Any]]:
    """A response in which each message says a usage and a metadata of its own."""
    head = {"object": "response", "id": "r", "created_at": 1_700_000_000, "session_id": "s"}
    events: list[dict[str, Any]] = [{**head, "status": s, "output": None} for s in ("created", "in_progress")]
    output = []
    for number, (kind, role, contents) in enumerate(KINDS[name]):
        opened = {"object": "message", "id": f"m{number}", "type": kind, "role": role, "content": None}
        events.append({**opened, "status": "in_progress"})
        whole = [{"object": "content", "msg_id": f"m{number}", "index": i, **c} for i, c in enumerate(contents)]
        events += [{**c, "status": "completed", "delta": False} for c in whole]
        beside = {"usage": {"input_tokens": number + 1, "own": True}, "metadata": {"original_id": f"o{number}"}}
        output.append({**opened, **beside, "status": "completed", "content": whole})
        events.append(output[-1])
    return [*events, {**head, "status": "completed", "output": output, "usage": output[-1]["usage"]}]


def wire(events: list[dict[str, Any]]) -> list[bytes]:
    return [b"data: " + json.dumps(e).encode() + b"\n\n" for e in events]


@pytest.mark.parametrize("name", KINDS)
def test_every_message_reaches_a_frontend_of_the_same_dialect(name: str) -> None:
    out = payloads(encode(decode(wire(stream(name)))))
    check_schemas(out)
    told = [(m["id"], m["type"], m["role"], m["usage"], m["metadata"]) for m in out[-1]["output"]]
    wanted = stream(name)[-1]["output"]
    assert told == [(m["id"], m["type"], m["role"], m["usage"], m["metadata"]) for m in wanted]
    for message, (_, _, contents) in zip(out[-1]["output"], KINDS[name], strict=True):
        assert [{k: c[k] for k in said} for c, said in zip(message["content"], contents, strict=True)] == contents
    # What was streamed before the end says the same.
    assert [e for e in out if e["object"] == "message" and e["status"] == "completed"] == out[-1]["output"]


@pytest.mark.parametrize("name", KINDS)
def test_and_one_of_the_java_form_and_back(name: str) -> None:
    there = decode(wire(stream(name)))
    back = decode([b"data: " + f + b"\n\n" for f in encode(there, front=java) if isinstance(f, bytes)], back=java)
    out = payloads(encode(back))[-1]["output"]
    assert [(m["id"], m["type"], m["role"]) for m in out] == [
        (f"m{n}", kind, role) for n, (kind, role, _) in enumerate(KINDS[name])
    ]
    if name not in ("message", "media"):
        assert [[c.get("text") or c["data"] for c in m["content"]] for m in out] == [
            [c.get("text") or c["data"] for c in contents] for _, _, contents in KINDS[name]
        ]
    assert [m["usage"] for m in out] == [m["usage"] for m in stream(name)[-1]["output"]]


@pytest.mark.parametrize("front", registry.served())
@pytest.mark.parametrize("name", KINDS)
def test_every_message_comes_to_a_good_end_at_every_frontend(name: str, front: str) -> None:
    translator = Translator("agentscope", front, run_id="r")
    assert translator.feed(b"".join(wire(stream(name)))) + translator.close()
    passes_as_it_came = name in ("mcp list", "approval answer", "a2ui", "of its own")
    kept = front.startswith("agentscope") or front in ("ag-ui", "agent-runs")
    assert ("raw" in translator.lost) == (passes_as_it_came and not kept)


def test_what_they_mean() -> None:
    def answer(name: str) -> Any:
        return fold(decode(wire(stream(name))))

    assert [(c.origin, c.server_label) for c in answer("mcp").calls] == [(Origin.MCP, "srv")]
    assert [c.origin for c in answer("component").calls] == [Origin.COMPONENT]
    assert [r.call_id for r in answer("component").results] == ["c"]
    assert [(i.interrupt_id, i.payload) for i in answer("approval").interrupts] == [("a1", ASKED)]
    assert any(isinstance(e, Raw) and e.value["type"] == "mcp_list_tools" for e in answer("mcp list").events)
    assert answer("message").refusal == "no"
    assert [str(m.kind) for m in answer("media").media] == ["image", "video", "audio", "file"]


def test_heartbeats_between_anything() -> None:
    beat = {"object": "message", "type": "heartbeat", "id": "beat", "status": "created", "content": None}
    for name in KINDS:
        events = decode(wire([e for event in stream(name) for e in (beat, event)][1:]))
        assert sum(isinstance(e, Heartbeat) for e in events) == len(stream(name)) - 1
        quiet = [e for e in events if not isinstance(e, Heartbeat)]
        assert quiet == decode(wire(stream(name)))


# ------------------------------------------------------------------ the approval round trip


@pytest.mark.parametrize("form", [dialect, java], ids=lambda d: d.name)
def test_an_approval_is_asked_for_and_given(form: Dialect) -> None:
    """The frontend sends back the message that it was given, and its answer (section 6)."""
    events = decode(wire(stream("approval")))
    assert [e.interrupt_id for e in events if isinstance(e, Interrupted)] == ["a1"]
    shown = payloads(encode(events, front=form))[-1]["output"]
    answer = {"type": "mcp_approval_response", "role": "user", "content": [data(ANSWER)]}
    body = json.dumps({"input": [*shown, answer], "session_id": "s"}).encode()
    request = form.decode_request(WireRequest(body=body), context())
    assert request.resume == [Resume("a1", "resolved", ANSWER)]
    sent = json.loads(dialect.encode_request(request, context()).body)["input"]
    assert [(m["type"], m["content"][0]["data"]) for m in sent] == [
        ("mcp_approval_request", ASKED), ("mcp_approval_response", ANSWER),
    ]  # fmt: skip


def test_an_interrupt_of_another_dialect_comes_back_as_its_answer() -> None:
    """What a person says to the buttons of the web frontend reaches a backend that asked in words of its own."""
    builder = context(run_id="back").builder()
    builder.interrupt(Interrupted("i1", "tool_call", {"name": "rm", "arguments": {"a": 1}}, "c1"))
    builder.finish()
    builder.end()
    (shown,) = payloads(encode(builder.take()))[-1]["output"]
    answer = {
        "type": "mcp_approval_response",
        "role": "user",
        "content": [data({**ANSWER, "approve": False, "id": "i1"})],
    }
    answer["content"][0]["data"]["approval_request_id"] = "i1"  # type: ignore[index]
    body = json.dumps({"input": [shown, answer]}).encode()
    (resume,) = dialect.decode_request(WireRequest(body=body), context()).resume
    assert (resume.interrupt_id, resume.decision) == ("i1", "cancelled")


def test_a_text_that_is_no_text_breaks_no_decoder() -> None:
    """Contents without an index are compared with those before them, whatever their texts are."""
    content = {"object": "content", "status": "completed", "type": "text", "msg_id": "a"}
    frames = [
        {"object": "message", "status": "in_progress", "id": "a", "type": "message", "role": "assistant"},
        {**content, "index": 0, "text": "Hello"},
        {**content, "text": ["a"]},
        {**content, "text": {"a": 1}},
        {**content, "text": "Hello"},
        {"object": "response", "status": "completed", "id": "r"},
    ]
    assert fold(decode(wire(frames))).text == "Hello"
