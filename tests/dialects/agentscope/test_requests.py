"""Requests: what frontends send is understood or refused with its place, what backends get is what theirs accepts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import WireRequest
from bridge.dialects.agentscope import dialect
from bridge.dialects.agentscope.options import BackOptions, FrontOptions
from bridge.errors import RequestError, Unsupported
from bridge.model import (
    Data,
    FileRef,
    HistoryMode,
    Inline,
    Media,
    MediaKind,
    Message,
    Origin,
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
    result_text,
)

from .helpers import CAPTURES, CASES, SCHEMAS, context


def read(body: Any, **options: Any) -> Request:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return dialect.decode_request(WireRequest(body=data), context(options=FrontOptions(**options)))


def write(request: Request, **fields: Any) -> dict[str, Any]:
    wire = dialect.encode_request(request, context(**fields))
    assert (wire.method, wire.headers["content-type"]) == ("POST", "application/json")
    body = json.loads(wire.body)
    SCHEMAS.AgentRequest.model_validate(body)
    return dict(body)


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "type": "message", "content": list(parts)}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


ACCEPTED = [
    n for n, c in CASES.items()
    if (c["request"] or {}).get("path") == "/process" and c["response"]["status"] == 200
    and not n.startswith(("invalid", "error_bare"))
]  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_recorded_requests_are_understood(name: str) -> None:
    body = (CAPTURES / CASES[name]["request"]["body_file"]).read_bytes()
    request = read(body)
    assert len(request.messages) == len(json.loads(body)["input"])
    assert request.thread_id == json.loads(body).get("session_id")
    assert (request.history, request.stream) == (HistoryMode.DELTA, True)


@pytest.mark.parametrize("name", ["invalid_no_input", "invalid_content_type", "invalid_string_content"])
def test_recorded_mistakes_are_refused(name: str) -> None:
    place = {"invalid_no_input": "input", "invalid_content_type": "input[0].content[0].type"}
    with pytest.raises(RequestError) as caught:
        read((CAPTURES / CASES[name]["request"]["body_file"]).read_bytes())
    assert caught.value.failure.param == place.get(name, "input[0].content")
    response = dialect.encode_error(caught.value.failure)
    assert response.status == 422


def test_the_fields_of_a_request() -> None:
    request = read((CAPTURES / "echo_request.request.json").read_bytes())
    assert (request.model, request.thread_id, request.user_id) == ("m-1", "sess-1", "user-1")
    assert request.sampling == Sampling(temperature=0.2, max_tokens=99, top_p=0.9, stop=["END"], seed=7)
    assert request.tools == [Tool("f", "d", {"type": "object", "properties": {}, "required": []})]
    assert request.extras == {"agentscope": {"biz_params": {"user_prompt_params": {"lang": "en"}}}}


def test_history_with_tools() -> None:
    request = read((CAPTURES / "history_request.request.json").read_bytes())
    assert [(m.role, type(m.parts[0])) for m in request.messages] == [
        ("user", Text), ("assistant", ToolCall), ("tool", ToolResult), ("assistant", Text), ("user", Text),
    ]  # fmt: skip
    assert request.messages[4].parts[1] == Media(MediaKind.IMAGE, Url("https://example.com/a.png"))


def test_the_java_form_is_read() -> None:
    request = read((CAPTURES / "java_camelcase.request.json").read_bytes())
    assert request.messages == [Message("user", [Text("hi")], "msg_1162b6da-e031-4269-8dc6-4b1c783cf275")]
    body = {
        "input": [
            {"type": "FUNCTION_CALL", "role": "assistant", "content": [{"type": "data", "data": {"name": "f"}}]},
            {"type": "FUNCTION_CALL_OUTPUT", "role": "tool", "content": [{"type": "data", "data": {"output": "x"}}]},
        ],
        "maxTokens": 5, "sessionId": "s", "userId": "u", "responseId": "r", "topP": 0.5,
    }  # fmt: skip
    request = read(body)
    assert (request.sampling.max_tokens, request.sampling.top_p) == (5, 0.5)
    assert (request.thread_id, request.user_id, request.run_id) == ("s", "u", "r")
    call, result = (m.parts[0] for m in request.messages)
    assert isinstance(call, ToolCall)
    assert isinstance(result, ToolResult)
    assert (call.call_id, call.origin) == (result.call_id, Origin.FUNCTION)


def test_java_calls_without_an_id_take_that_of_their_output() -> None:
    def call(name: str, **more: Any) -> dict[str, Any]:
        return {"type": "FUNCTION_CALL", "content": [{"type": "data", "data": {"name": name, **more}}]}

    def output(value: str, **more: Any) -> dict[str, Any]:
        return {"type": "FUNCTION_CALL_OUTPUT", "content": [{"type": "data", "data": {"output": value, **more}}]}

    def pairs(*entries: dict[str, Any]) -> list[tuple[str, str]]:
        parts = [m.parts[0] for m in read({"input": list(entries)}).messages]
        names = {p.call_id: p.name for p in parts if isinstance(p, ToolCall)}
        return [(names[p.call_id], result_text(p.parts)) for p in parts if isinstance(p, ToolResult)]

    assert pairs(call("f"), output("1", call_id="x")) == [("f", "1")]
    assert pairs(call("f"), call("g"), output("1", call_id="x"), output("2", call_id="y")) == [("f", "1"), ("g", "2")]
    assert pairs(call("f", call_id="a"), output("1", call_id="a"), call("g"), output("2")) == [("f", "1"), ("g", "2")]
    assert pairs(call("f"), call("g", call_id="b"), output("2", call_id="b"), output("1")) == [("g", "2"), ("f", "1")]


def test_a_type_that_names_a_role_is_one() -> None:
    entries = [{"type": kind, "content": [text("x")]} for kind in ("user", "SYSTEM", "assistant", "message")]
    assert [m.role for m in read({"input": entries}).messages] == ["user", "system", "assistant", "assistant"]


def test_the_same_dialect_sends_what_it_was_sent() -> None:
    def one(kind: str, role: str, *contents: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"type": kind, "role": role, "content": list(contents), **more}

    def holds(**value: Any) -> dict[str, Any]:
        return {"type": "data", "data": value}

    blocks = '[{"type": "text", "text": "42"}]'
    entries = [
        one("message", "user", {**text("hi"), "cache": True}, id="u1", metadata={"original_id": "o"}, turn=3),
        one("reasoning", "assistant", text("hm"), id="r1"),
        one("component_call", "assistant", holds(call_id="c1", name="f", arguments='{ "a":1}'), id="a1"),
        one("component_call_output", "tool", holds(call_id="c1", name="f", output=blocks), id="t1"),
        one("mcp_call", "assistant", holds(call_id="c2", arguments="{}", name="g", server_label="s"), id="a2"),
        one("mcp_call_output", "tool", holds(call_id="c2", name="g", output="plain"), id="t2"),
        one("mcp_list_tools", "assistant", holds(tools=[]), id="l1", extra={"a": 1}),
        one("weather_card", "assistant", text("sunny"), holds(degrees=20), id="w1"),
        one("empty_card", "assistant", id="w2"),
        one(
            "message", "user", {"type": "file", "file_url": "https://x.example/a", "filename": "a", "file_size": 3},
            {"type": "image", "image_url": "https://x.example/b", "detail": "low"},
            {"type": "video", "video_url": "https://x.example/c"}, {"type": "audio", "data": "aGk=", "format": "wav"},
            id="u2",
        ),
    ]  # fmt: skip
    body = {
        "input": entries, "stream": True, "id": "q", "session_id": "s", "user_id": "u", "temperature": 0.5,
        "tools": [{"type": "other"}], "biz_params": {"a": [1]}, "reconnect": False, "channel": "c",
        "metadata": {"m": 1},
    }  # fmt: skip
    assert write(read(body)) == body


def test_oddities_of_the_web_frontend() -> None:
    file = {"type": "file", "file_url": "https://x.example/a.pdf", "file_name": "a.pdf", "file_size": 3}
    request = read({"input": [user(text(""), file)], "temperature": "0.5", "id": None})
    (part,) = request.messages[0].parts
    url = Url("https://x.example/a.pdf")
    assert part == Media(MediaKind.FILE, url, None, "a.pdf", {"agentscope": {"file_size": 3}})
    assert request.sampling.temperature == 0.5
    assert read({"input": [user(text(""))]}).messages[0].parts == [Text("")]
    assert read({"input": []}).messages == []
    assert read({"input": [{"content": [text("x")]}]}).messages[0].role == "assistant"


def test_answers_are_streams_whatever_is_asked() -> None:
    assert read({"input": [], "stream": False}).stream is True
    assert read({"input": []}).stream is True


def test_fields_in_openais_shape() -> None:
    body = {
        "input": [], "tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": False,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        "reasoning_effort": "low", "metadata": {"a": "b"}, "logit_bias": {"1": 2},
        "tools": [{"type": "web_search"}, {"type": "function", "function": {"name": "f"}}, {"function": {"name": 1}}],
    }  # fmt: skip
    request = read(body)
    assert request.tool_choice == ToolChoice(ToolMode.REQUIRED, ["f"])
    assert request.parallel_tool_calls is False
    assert request.response_format == ResponseFormat("json_schema", "n", {"type": "object"})
    assert (request.reasoning_effort, request.metadata) == ("low", {"a": "b"})
    assert request.tools == [Tool("f")]
    sent = write(request)
    for name in ("tool_choice", "parallel_tool_calls", "reasoning_effort", "metadata", "logit_bias", "response_format"):
        assert sent[name] == body[name]
    assert [t.get("type") for t in sent["tools"]] == ["function", "web_search", None]
    odd = {"tool_choice": 5, "response_format": "x", "parallel_tool_calls": "y", "metadata": []}
    assert read({"input": [], **odd}).extras == {"agentscope": odd}


ASKED = {"id": "a1", "name": "rm", "arguments": "{}", "server_label": "fs"}
ANSWER = {"approve": True, "id": "a1", "approval_request_id": "a1", "reason": None}


def approval(**answer: Any) -> list[dict[str, Any]]:
    """An approval request and its answer, as frontends send the two."""
    return [
        {"type": "mcp_approval_request", "role": "assistant", "content": [{"type": "data", "data": ASKED}]},
        {"type": "mcp_approval_response", "role": "user", "content": [{"type": "data", "data": {**ANSWER, **answer}}]},
    ]


def test_an_approval_comes_back() -> None:
    request = read({"input": [user(text("go on")), *approval()]})
    assert request.resume == [Resume("a1", "resolved", ANSWER)]
    assert [m.role for m in request.messages] == ["user"]
    request.messages.insert(0, Message("user", [Text("from the stored history")]))
    sent = write(request)["input"]
    assert [m["type"] for m in sent] == ["message", "message", "mcp_approval_request", "mcp_approval_response"]
    made = write(Request([], resume=[Resume("a1", "cancelled", {"reason": "no"})]))["input"]
    assert made[0]["content"][0]["data"] == {
        "approve": False, "id": "a1", "approval_request_id": "a1", "reason": "no",
    }  # fmt: skip


def test_an_approval_that_something_follows_is_history() -> None:
    ended = [*approval(), {"role": "assistant", "content": [text("Gone.")]}]
    last = [approval()[0], {**approval()[1], "content": [{"type": "data", "data": {**ANSWER, "id": "a2"}}]}]
    last[1]["content"][0]["data"]["approval_request_id"] = "a2"
    body = {"input": [user(text("rm")), *ended, user(text("again")), *last]}
    request = read(body)
    assert [r.interrupt_id for r in request.resume] == ["a2"]
    assert [(m.role, *(p.text for p in m.parts)) for m in request.messages] == [  # type: ignore[union-attr]
        ("user", "rm"), ("assistant", "approval: rm({})"), ("user", "Approved"), ("assistant", "Gone."),
        ("user", "again"),
    ]  # fmt: skip
    sent = write(request)["input"]
    assert [m["type"] for m in sent] == [
        "message", "mcp_approval_request", "mcp_approval_response", "message", "message", "mcp_approval_request",
        "mcp_approval_response",
    ]  # fmt: skip
    assert sent[2]["content"] == approval()[1]["content"]


def test_what_a_person_answered_is_told_with_the_reason() -> None:
    (_, said, _) = read({"input": [*approval(approve=False, reason="too risky"), user(text("why?"))]}).messages
    assert said.parts == [Text("Not approved: too risky")]


def test_nothing_comes_between_a_call_and_its_output() -> None:
    call = {
        "type": "plugin_call",
        "content": [{"type": "data", "data": {"call_id": "c", "name": "f", "arguments": "{}"}}],
    }
    output = {"type": "plugin_call_output", "content": [{"type": "data", "data": {"call_id": "c", "output": "x"}}]}
    request = read({"input": [call, *approval(), output, user(text("thanks"))]})
    assert request.resume == []
    assert [m.role for m in request.messages] == ["assistant", "tool", "user"]
    assert [m["type"] for m in write(request)["input"]] == [
        "plugin_call", "mcp_approval_request", "mcp_approval_response", "plugin_call_output", "message",
    ]  # fmt: skip


def test_what_goes_to_a_backend() -> None:
    request = Request(
        [
            Message("developer", [Text("be brief")]),
            Message("user", [Text("hi"), Media(MediaKind.IMAGE, Inline("aGk="), "image/png")], "u1", "Ann"),
            Message("assistant", [Text("let me see"), ToolCall("c1", "f", ""), Text("and")], "a1"),
            Message("tool", [ToolResult("c1", [Text("42")])]),
            Message("assistant", [Refusal("no")]),
            Message("assistant", []),
        ],
        model="asked", run_id="r1", user_id="ann", sampling=Sampling(n=2, stop=["a"]),
        extras={"agentscope": {"biz_params": {"x": 1}}},
        shared={"logprobs": True, "other": 1},
    )  # fmt: skip
    sent = write(request, model="served", thread_id="t1", options=BackOptions(call_type="function_call"))
    assert [(m["type"], m["role"]) for m in sent["input"]] == [
        ("message", "system"), ("message", "user"), ("message", "assistant"), ("function_call", "assistant"),
        ("message", "assistant"), ("function_call_output", "tool"), ("message", "assistant"), ("message", "assistant"),
    ]  # fmt: skip
    assert [m.get("id") for m in sent["input"][1:5]] == ["u1", "a1", "a1-1", "a1-2"]
    assert sent["input"][1]["content"][1] == {"type": "image", "image_url": "data:image/png;base64,aGk="}
    assert sent["input"][1]["name"] == sent["input"][1]["metadata"]["original_name"] == "Ann"
    assert sent["input"][3]["content"][0]["data"] == {"call_id": "c1", "name": "f", "arguments": "{}"}
    assert sent["input"][5]["content"][0]["data"] == {"call_id": "c1", "name": "f", "output": "42"}
    assert sent["input"][6]["content"] == [text("no")]
    assert sent["input"][7]["content"] == []
    assert (sent["model"], sent["session_id"], sent["user_id"], sent["id"]) == ("served", "t1", "ann", "r1")
    assert (sent["stream"], sent["n"], sent["logprobs"], sent["biz_params"]) == (True, 2, True, {"x": 1})
    assert "other" not in sent


def test_the_session_id_is_always_sent() -> None:
    assert write(Request([]))["session_id"] == "run1"
    assert write(Request([], thread_id="t"))["session_id"] == "t"
    wire = dialect.encode_request(Request([]), context(options=BackOptions(path="/chat")))
    assert wire.path == "/chat"


@pytest.mark.parametrize("n", [0, 6])
def test_n_beyond_the_limit_is_refused(n: int) -> None:
    with pytest.raises(Unsupported, match="from 1 to 5") as caught:
        write(Request([], sampling=Sampling(n=n)))
    assert caught.value.failure.param == "n"


def test_media_for_the_agent() -> None:
    parts = [
        Media(MediaKind.IMAGE, Url("https://x.example/a.png"), detail="low"),
        Media(MediaKind.AUDIO, Inline("aGk="), "audio/wav"),
        Media(MediaKind.VIDEO, Url("https://x.example/a.mp4")),
        Media(MediaKind.FILE, Inline("aGk="), "text/plain", "a.txt"),
        Media(MediaKind.FILE, FileRef("f1")),
        Media(MediaKind.IMAGE, FileRef("f2")),
        Data({"a": 1}),
    ]
    sent = write(Request([Message("user", list(parts))]))
    url = "data:text/plain;base64,aGk="
    assert sent["input"][0]["content"] == [
        {"type": "image", "image_url": "https://x.example/a.png", "detail": "low"},
        {"type": "audio", "data": "aGk=", "format": "wav"},
        {"type": "video", "video_url": "https://x.example/a.mp4"},
        {"type": "file", "file_url": url, "filename": "a.txt", "file_data": url},
        {"type": "file", "file_id": "f1"},
        {"type": "image", "file_id": "f2"},
        {"type": "data", "data": {"a": 1}},
    ]


def test_a_request_survives_the_trip() -> None:
    request = Request(
        [
            Message("system", [Text("be brief")]),
            Message("user", [Text("hi"), Media(MediaKind.AUDIO, Inline("aGk="), "audio/mpeg")], "u1"),
            Message("assistant", [Reasoning("hm", "sig", "red")], "r1"),
            Message("assistant", [ToolCall("c1", "f", '{"a":1}')], "a1"),
            Message("assistant", [ToolCall("c2", "g", "{}", Origin.MCP, "srv")], "a2"),
            Message("assistant", [ToolCall("c3", "h", "{}", Origin.COMPONENT)], "a3"),
            Message("tool", [ToolResult("c1", [Text("42")], "f", True)], "t1"),
            Message("user", [Data([1])], "u2", "Ann"),
        ],
        tools=[Tool("f", "d", {"type": "object"}, True)],
        tool_choice=ToolChoice(ToolMode.AUTO, ["f", "g"]),
        parallel_tool_calls=True,
        model="m",
        thread_id="t",
        run_id="r",
        user_id="u",
        sampling=Sampling(0.1, 0.2, 3, ["x"], 4, 2, 0.5, 0.6),
        response_format=ResponseFormat("json_schema", "n", {"type": "object"}, True, "d"),
        reasoning_effort="high",
        metadata={"k": "v"},
        extras={"agentscope": {"channel": "c"}},
    )
    back = read(dialect.encode_request(request, context()).body)
    for message in back.messages:
        message.metadata = {}
        for part in message.parts:
            if isinstance(part, (ToolCall, ToolResult)):
                part.extras = None
    request.history = HistoryMode.DELTA
    assert back == request


@pytest.mark.parametrize(("kind", "wire"), [("json", "json_object"), ("text", "text")])
def test_a_format_without_a_schema(kind: str, wire: str) -> None:
    request = Request([Message("user", [Text("hi")])], response_format=ResponseFormat(kind))
    sent = json.loads(dialect.encode_request(request, context()).body)
    assert sent["response_format"] == {"type": wire}


TEXT = user(text("x"))
CALL = {"type": "plugin_call", "content": [{"type": "data", "data": {"name": "f"}}]}
BAD: list[tuple[Any, str, str]] = [
    ({}, "input", "required, expected a list"),
    ({"input": "hi"}, "input", "expected a list, got 'hi'"),
    ({"input": None}, "input", "expected a list, got null"),
    ({"input": [1]}, "input[0]", "expected an object, got 1"),
    ({"input": [{**TEXT, "role": "developer"}]}, "input[0].role", "one of assistant, system, tool, user"),
    ({"input": [TEXT, {**TEXT, "role": 5}]}, "input[1].role", "expected a string, got 5"),
    ({"input": [{**TEXT, "type": {}}]}, "input[0].type", "expected a string, got an object"),
    ({"input": [{**TEXT, "id": 5}]}, "input[0].id", "expected a string"),
    ({"input": [{**TEXT, "metadata": "x"}]}, "input[0].metadata", "expected an object"),
    ({"input": [{"role": "user", "content": "hi"}]}, "input[0].content", "expected a list, got 'hi'"),
    ({"input": [user("hi")]}, "input[0].content[0]", "expected an object, got 'hi'"),
    ({"input": [user({"text": "x"})]}, "input[0].content[0].type", "required, expected a string"),
    ({"input": [user({"type": "hologram"})]}, "input[0].content[0].type", "one of audio, data, file, image"),
    ({"input": [user(text("a"), {"type": "text", "text": 5})]}, "input[0].content[1].text", "a string, got 5"),
    ({"input": [user({"type": "image", "image_url": {}})]}, "input[0].content[0].image_url", "a string, got an"),
    ({"input": [user({"type": "audio", "data": {}})]}, "input[0].content[0].data", "expected a string"),
    ({"input": [user({"type": "data", "data": "x"})]}, "input[0].content[0].data", "expected an object"),
    ({"input": [CALL]}, "input[0].content[0].data.call_id", "required, expected a string"),
    ({"input": [], "stream": "yes"}, "stream", "true or false, got 'yes'"),
    ({"input": [], "n": 6}, "n", "from 1 to 5, got 6"),
    ({"input": [], "temperature": "warm"}, "temperature", "expected a number, got 'warm'"),
    ({"input": [], "max_tokens": 1.5}, "max_tokens", "expected a whole number, got 1.5"),
    ({"input": [], "stop": [1]}, "stop", "a string or a list of strings"),
    ({"input": [], "tools": {}}, "tools", "expected a list, got an object"),
    ({"input": [], "tools": ["f"]}, "tools[0]", "expected an object, got 'f'"),
    ({"input": [], "session_id": 7}, "session_id", "expected a string, got 7"),
    ({"input": [], "user_id": []}, "user_id", "expected a string, got a list"),
    ({"input": [], "model": {}}, "model", "expected a string"),
    ({"input": [], "id": 1}, "id", "expected a string"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "place", "said"), BAD)
def test_a_mistake_is_named(body: Any, place: str, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(body)
    failure = caught.value.failure
    assert failure.param == place
    assert failure.message.startswith(f"{place}: ")
    assert said in failure.message
    (item,) = json.loads(dialect.encode_error(failure).body)["detail"]
    assert item["loc"][0] == "body"
    assert len(item["loc"]) == 1 + place.count(".") + place.count("[") + 1
    assert item["type"] == ("missing" if "required" in failure.message else "value_error")


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'{"input":[' + b"[" * 300 + b"]" * 300 + b"]}", b"\xff"])
def test_a_body_that_is_no_object(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        read(body)
    assert dialect.encode_error(caught.value.failure).status == 422


def test_long_values_are_not_repeated() -> None:
    with pytest.raises(RequestError) as caught:
        read({"input": "secret " * 50})
    assert "secret" not in caught.value.message


def test_another_content_type_is_refused() -> None:
    wire = WireRequest(headers={"content-type": "text/plain"}, body=b'{"input":[]}')
    with pytest.raises(RequestError, match="expected application/json, got text/plain"):
        dialect.decode_request(wire, context())
    wire.headers["content-type"] = "application/json; charset=utf-8"
    assert dialect.decode_request(wire, context()).messages == []


def test_the_example_is_a_request() -> None:
    wire = dialect.example_request("hi", stream=False)
    SCHEMAS.AgentRequest.model_validate(json.loads(wire.body))
    request = dialect.decode_request(wire, context())
    assert request.messages[0].parts == [Text("hi")]


@pytest.mark.parametrize(("state", "lost"), [(None, []), ({}, []), ({"a": 1}, ["state"]), (0, ["state"])])
def test_a_state_is_lost_only_where_there_is_one(state: Any, lost: list[str]) -> None:
    """AG-UI clients always send one, mostly empty."""
    ctx = context()
    dialect.encode_request(Request([Message("user", [Text("hi")])], state=state), ctx)
    assert ctx.lost.names == lost
