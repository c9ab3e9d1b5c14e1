"""The documented Java form: what the recorded streams show is what we write, and every form is read on every route."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings

from bridge import translate
from bridge.contract import Dialect, Feature, WireRequest
from bridge.dialects.agentscope import dialect, java
from bridge.dialects.agentscope.options import JavaBackOptions, JavaFrontOptions
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Data,
    Event,
    FileRef,
    FinishReason,
    Inline,
    Interrupted,
    Media,
    MediaKind,
    Message,
    Origin,
    Part,
    PartKind,
    Reasoning,
    Refusal,
    Request,
    ResponseFormat,
    Resume,
    Sampling,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
    ToolResult,
    Url,
    UsageReported,
    fold,
)
from bridge.testing.outline import outline, project
from bridge.toolkit.cut_calls import is_json
from bridge.translation.framing.sse import join

from .helpers import CAPTURES, CASES, again, body_of, check_schemas, context, decode, encode, payloads
from .test_captures import EXPECTED
from .test_properties import streams

CAMELCASE = ["java_camelcase_text", "java_camelcase_tool"]
# By-products of getters, which no parser reads.
NOISE = {"textContent", "imageContent"}


def recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(e[6:]) for e in body_of(CASES[name]).split(b"\n\n") if e]


def fields_seen() -> dict[str, set[str]]:
    """Which fields the real classes write, by object and type of content."""
    out: dict[str, set[str]] = {}

    def look(value: dict[str, Any]) -> None:
        name = value["object"] + (f":{value['type']}" if value["object"] == "content" else "")
        out.setdefault(name, set()).update(value.keys() - NOISE)
        for inner in (value.get("content") or []) + (value.get("output") or []):
            look(inner)

    for name in CAMELCASE:
        for event in recorded(name):
            look(event)
    out["content:image"] = out["content:text"] - {"text"} | {"imageUrl"}
    return out


FIELDS = fields_seen()
CONSTANTS = {
    "CHUNK", "MESSAGE", "SYSTEM", "USER", "ASSISTANT", "FUNCTION_CALL", "FUNCTION_CALL_OUTPUT", "PLUGIN_CALL",
    "PLUGIN_CALL_OUTPUT", "COMPONENT_CALL", "COMPONENT_CALL_OUTPUT", "MCP_LIST_TOOLS", "MCP_APPROVAL_REQUEST",
    "MCP_TOOL_CALL", "MCP_APPROVAL_RESPONSE", "HEARTBEAT", "ERROR",
    "REASONING",  # not in the enumeration; an option writes MESSAGE
}  # fmt: skip
STATUSES = {"created", "in_progress", "completed", "canceled", "failed", "rejected", "unknown"}


def check_form(value: dict[str, Any]) -> None:
    """Exactly the documented fields, constants and statuses (section 14); times in milliseconds."""
    name = value["object"]
    name += f":{value['type']}" if name == "content" else ""
    assert value.keys() == FIELDS[name], name
    assert value["status"] in STATUSES
    if name == "message":
        assert value["type"] in CONSTANTS
        assert isinstance(value["content"], list)
    if name == "response":
        assert value["createdAt"] > 10**12
        assert isinstance(value["output"], list)
        assert value["error"] is None or value["error"].keys() == {"code", "message"}
    for inner in (value.get("content") or []) + (value.get("output") or []):
        check_form(inner)


def snake(value: dict[str, Any]) -> dict[str, Any]:
    """An event of this form as the Python schemas name things; what the form has no field for is null."""
    out = {re.sub("[A-Z]", lambda m: f"_{m[0].lower()}", k): v for k, v in value.items()}
    for name in ("created_at", "completed_at"):
        if out.get(name):
            out[name] //= 1000
    if out["object"] == "message":
        out = {**out, "type": out["type"].lower(), "metadata": None}
    for name in ("content", "output"):
        if name in out:
            out[name] = [snake(v) for v in out[name] or []]
    return out


def java_payloads(events: list[Event], **fields: Any) -> list[dict[str, Any]]:
    """What is written, after it was held against the form and the real schemas."""
    out = payloads(encode(events, context(**fields), front=java))
    for event in out:
        check_form(event)
    check_schemas([snake(e) for e in out])
    assert [e["sequenceNumber"] for e in out] == list(range(len(out)))
    return out


def run(*parts: Part, reason: FinishReason | None = None) -> list[Event]:
    builder = context(run_id="back").builder()
    for part in parts:
        builder.add("m", part)
    builder.finish(reason)
    builder.end()
    return builder.take()


# ------------------------------------------------------------------ streams


def _steady(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what is by the way: getters, numbers and places inside repeated contents, the time of the end."""
    out = []
    for event in events:
        event = {k: v for k, v in event.items() if k not in NOISE | {"sequenceNumber", "completedAt"}}
        if event["object"] == "response":
            event["output"] = _steady(event["output"])
        if event["object"] == "message":
            places = {"sequenceNumber", "status", "index", "delta", "msgId"}
            event["content"] = [{k: v for k, v in c.items() if k not in places} for c in event["content"]]
        out.append(event)
    return out


def test_a_text_is_written_as_the_real_classes_write_it() -> None:
    theirs = recorded("java_camelcase_text")
    ours = java_payloads(decode([body_of(CASES["java_camelcase_text"])], back=java))
    assert _steady(ours) == _steady(theirs)
    assert [list(e) for e in ours] == [[k for k in e if k not in NOISE] for e in theirs], "the order of the fields"


def test_a_tool_round_is_written_as_the_real_classes_write_it_but_with_its_call_id() -> None:
    theirs = recorded("java_camelcase_tool")
    ours = java_payloads(decode([body_of(CASES["java_camelcase_tool"])], back=java))
    calls = [e["data"] for e in ours if e["object"] == "content" and "arguments" in e.get("data", {})]
    outputs = [e["data"] for e in ours if e["object"] == "content" and "output" in e.get("data", {})]
    assert {d["call_id"] for d in calls} == {d["call_id"] for d in outputs}
    told, known = ours[-1]["output"], theirs[-1]["output"]
    assert [(m["id"], m["type"], m["role"]) for m in told] == [(m["id"], m["type"], m["role"]) for m in known]
    assert [m["content"][0].get("text") for m in told] == [m["content"][0].get("text") for m in known]
    assert calls[-1].items() >= known[0]["content"][0]["data"].items()
    assert outputs[-1]["output"] == known[1]["content"][0]["data"]["output"]


@pytest.mark.parametrize("back", [dialect, java], ids=lambda d: d.name)
@pytest.mark.parametrize("front", [dialect, java], ids=lambda d: d.name)
@pytest.mark.parametrize("name", EXPECTED)
def test_every_recorded_form_is_read_on_every_route_and_written_in_the_route_s_own(
    name: str, front: Dialect, back: Dialect
) -> None:
    events = decode([body_of(CASES[name])], back=back)
    assert events == decode([body_of(CASES[name])])
    assert outline(again(events, form=front)).items == project(fold(events), front.capabilities).items
    if front is java:
        java_payloads(events)
    else:
        check_schemas(payloads(encode(events)))


def test_everything_at_once() -> None:
    usage = UsageReported(3, 4, cached=1)
    events = run(
        Reasoning("think", "sig"), Text("Hello"), Media(MediaKind.IMAGE, Url("https://x.example/a.png")),
        Refusal("no"), ToolCall("c1", "f", '{"x":1}'), ToolCall("c2", "g", "{}", Origin.MCP, "srv"),
        ToolCall("c3", "h", "{}", Origin.PLUGIN), ToolResult("c2", [Text("2")], "g"), ToolResult("c1", [Text("1")]),
    )  # fmt: skip
    events.insert(-1, usage)
    ctx = context()
    out = payloads(encode(events, ctx, front=java))
    final = out[-1]
    check_form(final)
    assert [m["type"] for m in final["output"]] == [
        "REASONING", "MESSAGE", "FUNCTION_CALL", "MCP_TOOL_CALL", "PLUGIN_CALL", "PLUGIN_CALL_OUTPUT",
        "FUNCTION_CALL_OUTPUT",
    ]  # fmt: skip
    assert [(c["type"], c.get("text")) for c in final["output"][1]["content"]] == [
        ("text", "Hello"), ("image", None), ("text", "no"),
    ]  # fmt: skip
    assert final["usage"]["input_tokens"] == 3
    assert out[2]["status"] == "created"
    assert ctx.lost.names == ["reasoning_signature", "refusal"]


@pytest.mark.parametrize(
    "part",
    [
        Media(MediaKind.IMAGE, Inline("aGk="), "image/png"),
        Media(MediaKind.IMAGE, FileRef("f1")),
        Media(MediaKind.AUDIO, Inline("aGk="), "audio/wav"),
        Media(MediaKind.VIDEO, Url("https://x.example/a.mp4")),
        Media(MediaKind.FILE, Inline("aGk="), "text/plain", "a.txt"),
        Media(MediaKind.FILE, FileRef("f1"), None, "a.txt"),
        Data({"k": [1, None]}),
        Data({"type": "weather", "file_url": "x"}),
        Data([1, 2]),
        Data(None),
    ],
)
def test_what_has_no_class_stands_in_data(part: Part) -> None:
    java_payloads(run(part))
    assert again(run(part), form=java).parts() == [part]
    # Nothing of it is taken for a medium in the Python form, where each has its own type.
    stand_in = {"type": "file", "file_url": "https://x.example/a"}
    assert again(run(Data(stand_in))).parts() == [Data(stand_in)]


def test_an_error_of_a_tool_stands_in_its_data() -> None:
    failed = run(ToolCall("c", "f", "{}"), ToolResult("c", [Text("boom")], is_error=True))
    java_payloads(failed)
    assert [r.is_error for r in again(failed, form=java).results] == [True]


@pytest.mark.parametrize(
    "interrupt",
    [
        Interrupted("i1", "approval", {"id": "i1", "name": "rm", "arguments": "{}", "server_label": "fs"}),
        Interrupted("i1", "tool_call", {"name": "rm", "arguments": {"a": 1}}, "c1"),
        Interrupted("i1", None, {"question": "sure?"}),
    ],
)
def test_interrupts_survive_without_metadata(interrupt: Interrupted) -> None:
    builder = context(run_id="back").builder()
    builder.interrupt(interrupt)
    builder.finish()
    builder.end()
    events = builder.take()
    assert java_payloads(events)[-1]["output"][0]["type"] == "MCP_APPROVAL_REQUEST"
    (found,) = again(events, form=java).interrupts
    assert (found.interrupt_id, found.reason, found.payload, found.call_id) == (
        interrupt.interrupt_id, interrupt.reason, interrupt.payload, interrupt.call_id,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "options", "status", "lost"),
    [
        (FinishReason.LENGTH, {}, "completed", ["finish_length"]),
        (FinishReason.CONTENT_FILTER, {}, "rejected", []),
        (FinishReason.CONTENT_FILTER, {"content_filter": "completed"}, "completed", ["finish_content_filter"]),
        (FinishReason.CONTENT_FILTER, {"content_filter": "failed"}, "failed", []),
        (FinishReason.CANCELED, {}, "canceled", []),
        (FinishReason.STOP, {}, "completed", []),
    ],
)
def test_how_an_answer_ends(reason: FinishReason, options: dict[str, Any], status: str, lost: list[str]) -> None:
    ctx = context(options=JavaFrontOptions(**options))
    out = payloads(encode(run(Text("x"), reason=reason), ctx, front=java))
    for event in out:
        check_form(event)
    assert out[-1]["status"] == status
    assert ctx.lost.names == lost
    assert [m["content"][0]["text"] for m in out[-1]["output"]] == ["x"]


def test_a_failure_keeps_the_half_answer() -> None:
    builder = context(run_id="back").builder()
    builder.flow("m", PartKind.TEXT, "half an ans")
    builder.fail(Failure(ErrorCode.BACKEND_UNAVAILABLE, "It broke."))
    final = java_payloads(builder.take())[-1]
    assert final["error"] == {"code": "NETWORK_ERROR", "message": "It broke."}
    assert final["completedAt"] is None
    assert [(m["status"], m["content"][0]["text"]) for m in final["output"]] == [("failed", "half an ans")]


def test_options_of_this_form() -> None:
    events = run(Reasoning("hm"), ToolCall("c", "f", "{}"))
    options = JavaFrontOptions(reasoning="message", call_type="plugin_call")
    ctx = context(options=options)
    final = payloads(encode(events, ctx, front=java))[-1]
    assert [m["type"] for m in final["output"]] == ["MESSAGE", "PLUGIN_CALL"]
    assert ctx.lost.names == ["reasoning", "tool_origin"]


def test_a_function_that_the_python_form_called_a_plugin_is_a_function_here() -> None:
    """There its origin stands in the metadata, here only the type can tell it."""
    calls = run(ToolCall("c", "f", "{}", Origin.FUNCTION), ToolCall("d", "g", "{}", Origin.PLUGIN))
    there = decode([join(encode(calls))])
    assert [m["type"] for m in java_payloads(there)[-1]["output"]] == ["FUNCTION_CALL", "PLUGIN_CALL"]


def test_milliseconds_are_kept() -> None:
    events = run(Text("x"))
    start, end = events[0], events[-1]
    start.created_at, end.ended_at = 1795241823.113, 1795241823.195  # type: ignore[union-attr]
    out = java_payloads(events)
    assert (out[-1]["createdAt"], out[-1]["completedAt"]) == (1795241823113, 1795241823195)
    assert again(events, form=java).created_at == 1795241823.113


def test_messages_of_other_types_pass_without_what_the_form_has_no_field_for() -> None:
    own = {
        "object": "message", "status": "completed", "id": "m9", "type": "mcp_list_tools", "role": "assistant",
        "content": [{"object": "content", "type": "data", "data": {"tools": []}}], "metadata": {"a": 1}, "extra": 1,
        "usage": {"input_tokens": 1},
    }  # fmt: skip
    wire = [own, {"object": "response", "status": "completed"}]
    (message,) = java_payloads(decode([b"data: " + json.dumps(e).encode() + b"\n\n" for e in wire]))[-1]["output"]
    assert (message["id"], message["type"], message["usage"]) == ("m9", "MCP_LIST_TOOLS", {"input_tokens": 1})
    back = payloads(encode(decode([b"data: " + json.dumps({**message, "type": "MCP_LIST_TOOLS"}).encode() + b"\n\n"])))
    (message,) = back[-1]["output"]
    assert (message["type"], message["content"][0]["data"]) == ("mcp_list_tools", {"tools": []})
    assert "msgId" not in message["content"][0]


@settings(max_examples=40, deadline=None)
@given(streams())
def test_nothing_is_lost_that_the_card_does_not_name(events: list[Event]) -> None:
    java_payloads(events)
    out, wanted = outline(again(events, form=java)), project(fold(events), java.capabilities)
    # Words for failures are fewer here than our codes: there is no field for the reason behind them.
    assert (out.error is None) == (wanted.error is None)
    out.error = wanted.error
    if fold(events).reason is FinishReason.LENGTH and any(not is_json(c.arguments) for c in fold(events).calls):
        # The code of a call that was cut off tells a reason that the form has no other word for.
        wanted.reason = out.reason if out.reason == "length" else wanted.reason
    assert out == wanted


@settings(max_examples=50, deadline=None)
@given(streams())
def test_the_same_events_give_the_same_bytes_in_any_batch(events: list[Event]) -> None:
    assert join(encode(events, front=java)) == join(encode(events, size=1, front=java))


def test_line_separators_are_escaped() -> None:
    data = join(encode(run(Text("a\u2028b")), front=java))
    assert "\u2028" not in data.decode()
    assert again(run(Text("a\u2028b")), form=java).text == "a\u2028b"


# ------------------------------------------------------------------ requests

RECORDED = json.loads((CAPTURES / "java_camelcase.request.json").read_text())


def write(request: Request, **fields: Any) -> dict[str, Any]:
    return dict(json.loads(java.encode_request(request, context(**fields)).body))


def read(body: Any, of: Dialect = java) -> Request:
    return of.decode_request(WireRequest(body=json.dumps(body).encode()), context())


@pytest.mark.parametrize("of", [dialect, java], ids=lambda d: d.name)
def test_the_recorded_request_is_read(of: Dialect) -> None:
    request = read(RECORDED, of)
    (message,) = request.messages
    assert (message.role, message.parts) == ("user", [Text("hi")])
    assert request.stream
    assert request.sampling.n == 1


def everything() -> Request:
    return Request(
        [
            Message("developer", [Text("be brief")]),
            Message("user", [Text("hi"), Media(MediaKind.IMAGE, Inline("aGk="), "image/png")], "u1", "Ann"),
            Message("user", [Media(MediaKind.FILE, FileRef("f1"), None, "a.txt"), Data([1])], "u2"),
            Message("assistant", [Reasoning("hm", "sig")], "r1"),
            Message("assistant", [ToolCall("c1", "f", '{"a":1}')], "a1"),
            Message("assistant", [ToolCall("c2", "g", "{}", Origin.MCP, "srv")], "a2"),
            Message("tool", [ToolResult("c1", [Text("42")], "f", True)], "t1"),
        ],
        tools=[Tool("f", "d", {"type": "object"}, True)],
        tool_choice=ToolChoice(ToolMode.REQUIRED),
        parallel_tool_calls=False,
        model="m", thread_id="t", run_id="r", user_id="u",
        sampling=Sampling(0.1, 0.2, 3, ["x"], 4, 2, 0.5, 0.6),
        response_format=ResponseFormat("json"),
        reasoning_effort="high",
        metadata={"k": "v"},
        extras={"agentscope": {"channel": "c"}},
    )  # fmt: skip


def test_a_request_has_the_documented_fields_and_no_others() -> None:
    ctx = context()
    sent = json.loads(java.encode_request(everything(), ctx).body)
    assert sent.keys() <= RECORDED.keys()
    for message in sent["input"]:
        assert message.keys() <= FIELDS["message"]
        assert message["type"] in CONSTANTS
        for content in message["content"]:
            assert content.keys() <= FIELDS[f"content:{content['type']}"]
    assert (sent["topP"], sent["maxTokens"], sent["sessionId"], sent["userId"], sent["responseId"]) == (
        0.2, 3, "t", "u", "r",
    )  # fmt: skip
    assert sent["tools"] == [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
    ]
    lost = {
        Feature.MESSAGE_NAME, Feature.TOOL_CHOICE, Feature.PARALLEL_TOOL_CALLS, Feature.RESPONSE_FORMAT,
        Feature.REASONING_EFFORT, Feature.METADATA, Feature.EXTRAS, Feature.TOOLS,
    }  # fmt: skip
    assert set(ctx.lost.names) == {str(f) for f in lost}
    assert java.decode_request(java.example_request("hi"), context()).messages[0].parts == [Text("hi")]
    assert json.loads(java.example_request("hi").body)["input"][0]["type"] == "MESSAGE"


@pytest.mark.parametrize("of", [dialect, java], ids=lambda d: d.name)
def test_a_request_survives_the_trip_but_for_what_is_lost(of: Dialect) -> None:
    request = everything()
    back = read(write(request), of)
    assert [m.role for m in back.messages] == ["system", *(m.role for m in request.messages[1:])]
    told = [p for m in back.messages for p in m.parts]
    wanted = [p for m in request.messages for p in m.parts]
    for part in told:
        if isinstance(part, (ToolCall, ToolResult)):
            part.extras = None
    wanted[5] = Reasoning("hm")
    assert told == wanted
    assert back.sampling == request.sampling
    assert (back.model, back.thread_id, back.run_id, back.user_id) == ("m", "t", "r", "u")
    assert (back.tools, back.extras) == ([Tool("f", "d", {"type": "object"})], None)


def test_tools_that_must_not_be_called_are_not_offered() -> None:
    ctx = context()
    request = Request([], tools=[Tool("f")], tool_choice=ToolChoice(ToolMode.NONE))
    assert "tools" not in json.loads(java.encode_request(request, ctx).body)
    assert ctx.lost.names == []


def test_reasoning_in_a_history_by_option() -> None:
    request = Request([Message("assistant", [Reasoning("hm")])])
    assert write(request)["input"][0]["type"] == "REASONING"
    assert write(request, options=JavaBackOptions(reasoning="message"))["input"][0]["type"] == "MESSAGE"


@pytest.mark.parametrize("of", [dialect, java], ids=lambda d: d.name)
def test_approvals_change_their_form_with_the_route(of: Dialect) -> None:
    """What only agents of this protocol understand is passed on to them, in the words of their form."""
    asked = {"id": "a1", "name": "rm", "arguments": "{}", "server_label": "fs"}
    answer = {"approve": True, "id": "a1", "approval_request_id": "a1", "reason": None}
    upper = of is java
    entries = [
        {"type": t.upper() if upper else t, "role": r, "content": [{"type": "data", "data": d}]}
        for t, r, d in (
            ("mcp_approval_request", "assistant", asked),
            ("mcp_approval_response", "user", answer),
            ("a2ui_action", "user", {"a": 1}),
        )
    ]
    request = read({"input": entries}, of)
    assert request.resume == [Resume("a1", "resolved", answer)]
    for back in (dialect, java):
        sent = json.loads(back.encode_request(request, context()).body)["input"]
        shown = [m["type"] for m in sent]
        types = ["mcp_approval_request", "mcp_approval_response", "a2ui_action"]
        assert shown == ([t.upper() for t in types] if back is java else types)
        assert [m["content"][0]["data"] for m in sent] == [asked, answer, {"a": 1}]


def test_requests_change_their_form() -> None:
    python = {
        "input": [{"type": "message", "role": "user", "content": [{"type": "file", "file_url": "https://x.example/a"}]}],
        "session_id": "s", "max_tokens": 5,
    }  # fmt: skip
    camel = json.loads(translate(json.dumps(python).encode(), "agentscope", "agentscope-java", what="request"))
    assert (camel["maxTokens"], camel["sessionId"]) == (5, "s")
    data = {"type": "file", "file_url": "https://x.example/a"}
    assert camel["input"][0]["content"] == [{"type": "data", "data": data}]
    back = json.loads(translate(json.dumps(camel).encode(), "agentscope-java", "agentscope", what="request"))
    assert back["input"][0]["content"] == [data]
    assert (back["max_tokens"], back["session_id"]) == (5, "s")
