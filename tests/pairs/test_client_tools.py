"""Built-in tools that the client runs are offered to every backend as functions, called in the client's own form, and
their calls and results travel to every backend.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import Response

from bridge.translation.library import Translator
from tests.pairs.test_answers_carry import candidate, chat_stream, chat_whole, message_whole, sse, streamed
from tests.pairs.test_asked_for import CHAT, GEMINI, MESSAGES, RESPONSES, sent

Json = dict[str, Any]
ACTION = {"type": "click", "x": 1, "y": 2, "button": "left"}
PNG = "data:image/png;base64,iVBORw0KGgo="

# The tool, the arguments of a call, the fields of its item, and the fields of an output's item with its text.
TOOLS: list[tuple[Json, Json, str, Json, Json, str]] = [
    (
        {"type": "local_shell"}, {"command": ["ls", "-l"]},
        "local_shell_call", {"action": {"type": "exec", "command": ["ls", "-l"], "env": {}}},
        {"output": "one two"}, "one two",
    ),
    (
        {"type": "shell", "environment": {"type": "local"}}, {"commands": ["ls"], "timeout_ms": 9},
        "shell_call", {"action": {"commands": ["ls"], "timeout_ms": 9, "max_output_length": None}},
        {"output": [{"stdout": "one two", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}, "one two",
    ),
    (
        {"type": "apply_patch"}, {"type": "update_file", "path": "a.txt", "diff": "@@\n-a\n+b"},
        "apply_patch_call", {"operation": {"type": "update_file", "path": "a.txt", "diff": "@@\n-a\n+b"}},
        {"status": "completed", "output": "patched"}, "patched",
    ),
    (
        {"type": "tool_search", "execution": "client", "description": "Finds.", "parameters": {"type": "object"}},
        {"query": "mail"},
        "tool_search_call", {"arguments": {"query": "mail"}, "execution": "client"},
        {"execution": "client", "tools": [{"type": "function", "name": "send_mail", "parameters": {}}]}, "send_mail",
    ),
    (
        {"type": "computer_use_preview", "display_width": 8, "display_height": 6, "environment": "linux"}, ACTION,
        "computer_call", {"action": ACTION, "pending_safety_checks": []},
        {"output": {"type": "computer_screenshot", "image_url": PNG}}, "iVBORw0KGgo=",
    ),
    (
        {"type": "computer"}, {"actions": [ACTION]},
        "computer_call", {"actions": [ACTION], "pending_safety_checks": []},
        {"output": {"type": "computer_screenshot", "image_url": PNG}}, "iVBORw0KGgo=",
    ),
]  # fmt: skip
IDS = [tool[0]["type"] for tool in TOOLS]
OTHERS = [CHAT, MESSAGES, GEMINI]


def offered(back: str, body: Json) -> dict[str, Any]:
    """The functions that a backend may call, by name, with their schemas."""
    tools = body.get("tools") or []
    if back == CHAT:
        return {tool["function"]["name"]: tool["function"].get("parameters") for tool in tools}
    if back == MESSAGES:
        return {tool["name"]: tool["input_schema"] for tool in tools}
    if back == RESPONSES:
        return {tool["name"]: tool["parameters"] for tool in tools}
    return {each["name"]: each["parametersJsonSchema"] for tool in tools for each in tool["functionDeclarations"]}


def calling(back: str, name: str, arguments: Json) -> Json:
    """An answer that calls a function."""
    if back == CHAT:
        function = {"name": name, "arguments": json.dumps(arguments)}
        return chat_whole({"tool_calls": [{"id": "c1", "type": "function", "function": function}]}, "tool_calls")
    if back == MESSAGES:
        return message_whole({"type": "tool_use", "id": "c1", "name": name, "input": arguments}, stop="tool_use")
    if back == RESPONSES:
        call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": name,
                "arguments": json.dumps(arguments), "status": "completed"}  # fmt: skip
        return {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed",
                "output": [call]}  # fmt: skip
    answer = candidate("")
    answer["candidates"][0]["content"]["parts"] = [{"functionCall": {"id": "c1", "name": name, "args": arguments}}]
    return answer


def conversation(back: str, front: str, body: Json) -> Translator:
    translator = Translator(back, front, model="m")
    translator.request(json.dumps(body).encode(), client=front)
    return translator


@pytest.mark.parametrize("back", [*OTHERS, "ag-ui"])
@pytest.mark.parametrize(("tool", "arguments", "kind", "fields", "output", "told"), TOOLS, ids=IDS)
def test_a_tool_of_responses_is_a_function_elsewhere(
    tool: Json, arguments: Json, kind: str, fields: Json, output: Json, told: str, back: str
) -> None:
    name = tool["type"]
    body, lost = sent(RESPONSES, back, {"tools": [tool]})
    assert lost == []
    if back == "ag-ui":
        assert [each["name"] for each in body["tools"]] == [name]
        return
    assert offered(back, body)[name]["type"] == "object"
    answer = conversation(back, RESPONSES, {"model": "m", "input": "hi", "tools": [tool]}).response(
        json.dumps(calling(back, name, arguments)).encode()
    )
    (item,) = json.loads(answer)["output"]
    assert {**item, "id": ""}.items() >= {"type": kind, "call_id": "c1", "status": "completed", **fields}.items()
    (read,) = Response.model_validate_json(answer).output
    assert read.type == kind
    # The client runs it and goes on.
    result = {"type": kind.replace("tool_search_call", "tool_search") + "_output", "call_id": "c1", **output}
    items = [{"role": "user", "content": "hi"}, item, result, {"role": "user", "content": "Go on"}]
    again, lost = sent(RESPONSES, back, {"input": items, "tools": [tool]})
    text = json.dumps(again)
    assert told in text
    assert lost == []
    if back != GEMINI:
        assert text.count('"c1"') == 2
    assert name in text
    same, lost = sent(RESPONSES, RESPONSES, {"input": items, "tools": [tool]})
    assert (same["input"][1:3], same["tools"], lost) == ([item, result], [tool], [])


def test_a_call_streams_as_its_item() -> None:
    asked = {"model": "m", "input": "hi", "tools": [{"type": "shell"}], "stream": True}
    translator = conversation(CHAT, RESPONSES, asked)
    pieces = ['{"comm', 'ands":["ls"]}']
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "shell", "arguments": pieces[0]}}
    more = {"index": 0, "function": {"arguments": pieces[1]}}
    wire = chat_stream({"tool_calls": [call]}, {"tool_calls": [more]}, finish="tool_calls")
    out = (translator.feed(wire) + translator.close()).decode()
    events = [json.loads(line[6:]) for line in out.splitlines() if line.startswith("data: ")]
    items = [event["item"] for event in events if event["type"].startswith("response.output_item")]
    assert [(i["type"], i["status"]) for i in items] == [("shell_call", "in_progress"), ("shell_call", "completed")]
    assert items[0]["id"] == items[1]["id"] == events[-1]["response"]["output"][0]["id"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@pytest.mark.parametrize(
    ("name", "arguments", "wanted"),
    [
        ("local_shell", '{"command":"ls | wc"}', {"command": ["bash", "-lc", "ls | wc"]}),
        ("shell", '{"commands":"ls"}', {"commands": ["ls"]}),
        ("apply_patch", '{"type":"delete_file","path":"a"}', {"type": "delete_file", "path": "a"}),
        ("local_shell", '{"command":[1]}', None),
        ("shell", '{"commands":', None),
        ("apply_patch", '{"type":"update_file","path":"a"}', None),
        ("computer", '{"actions":[]}', None),
        ("computer_use_preview", '{"x":1}', None),
    ],
)
def test_arguments_that_fit_no_item_come_as_the_model_wrote_them(
    name: str, arguments: str, wanted: Json | None
) -> None:
    function = {"name": name, "arguments": arguments}
    answer = chat_whole({"tool_calls": [{"id": "c1", "type": "function", "function": function}]}, "tool_calls")
    translator = conversation(CHAT, RESPONSES, {"model": "m", "input": "hi", "tools": [{"type": name}]})
    (item,) = json.loads(translator.response(json.dumps(answer).encode()))["output"]
    if wanted is None:
        assert (item["type"], item["name"], item["arguments"]) == ("function_call", name, arguments)
    else:
        found = item.get("action") or item["operation"]
        assert wanted.items() <= found.items()


HOSTED = [
    {"type": "shell", "environment": {"type": "container_auto"}}, {"type": "tool_search"},
    {"type": "tool_search", "execution": "server"}, {"type": "code_interpreter"},
]  # fmt: skip


@pytest.mark.parametrize("tool", HOSTED, ids=str)
def test_what_the_provider_runs_stays_out(tool: Json) -> None:
    body, lost = sent(RESPONSES, CHAT, {"tools": [tool]})
    assert "tools" not in body
    assert lost == ["tools"]


@pytest.mark.parametrize("tool", [tool[0] for tool in TOOLS if tool[0]["type"] != "tool_search"], ids=str)
def test_the_client_may_require_such_a_tool(tool: Json) -> None:
    body, _ = sent(RESPONSES, CHAT, {"tools": [tool], "tool_choice": {"type": tool["type"]}})
    assert body["tool_choice"] == {"type": "function", "function": {"name": tool["type"]}}


@pytest.mark.parametrize("options", [None, {"hosted_tools": "drop"}])
@pytest.mark.parametrize("back", OTHERS)
def test_found_tools_can_be_called(back: str, options: Any) -> None:
    """By the names under which the search found them, each once, in namespaces too."""
    space = {"type": "namespace", "name": "mail", "tools": [{"type": "function", "name": "send", "parameters": {}}]}
    plain = {"type": "function", "name": "look", "description": "d", "parameters": {"type": "object", "properties": {}}}
    search = {"type": "tool_search", "execution": "client"}
    items: list[Json] = [{"role": "user", "content": "hi"}]
    for number, tools in enumerate(([space], [space, plain])):
        call = {"call_id": f"s{number}", "execution": "client", "status": "completed"}
        items.append({"type": "tool_search_call", **call, "arguments": {"query": "x"}})
        items.append({"type": "tool_search_output", **call, "tools": tools})
    fields = {"input": items, "tools": [search, plain]}
    body, lost = sent(RESPONSES, back, fields, options)
    assert sorted(offered(back, body)) == ["look", "mail__send", "tool_search"]
    assert lost == []
    answer = conversation(back, RESPONSES, {"model": "m", **fields}).response(
        json.dumps(calling(back, "mail__send", {})).encode()
    )
    (item,) = json.loads(answer)["output"]
    assert (item["type"], item["namespace"], item["name"]) == ("function_call", "mail", "send")
    same, _ = sent(RESPONSES, RESPONSES, fields, options)
    assert (same["tools"], same["input"][1:]) == ([search, plain], items[1:])


@pytest.mark.parametrize("back", OTHERS)
def test_items_of_unknown_tools_are_told_as_json(back: str) -> None:
    items = [
        {"role": "user", "content": "hi"},
        {"type": "later_call", "call_id": "l1", "question": "QUESTION"},
        {"type": "later_call_output", "call_id": "l1", "answer": "ANSWER"},
        {"role": "user", "content": "Go on"},
    ]
    body, _ = sent(RESPONSES, back, {"input": items})
    text = json.dumps(body)
    assert text.index("QUESTION") < text.index("ANSWER") < text.index("Go on")


@pytest.mark.parametrize("back", OTHERS)
def test_a_local_shells_output_names_its_call_by_id_as_the_api_says(back: str) -> None:
    call = {"type": "local_shell_call", "id": "lsh_1", "call_id": "l1", "status": "completed",
            "action": {"type": "exec", "command": ["ls"], "env": {}}}  # fmt: skip
    output = {"type": "local_shell_call_output", "id": "l1", "output": "one two"}
    body, lost = sent(RESPONSES, back, {"input": [{"role": "user", "content": "hi"}, call, output]})
    last = (body.get("messages") or body.get("contents"))[-1]
    assert "one two" in json.dumps(last)
    assert lost == []


# ---------------------------------------------------------------------- Anthropic's

BUILT_IN = [
    ({"type": "bash_20250124", "name": "bash"}, {"command": "ls"}),
    ({"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}, {"command": "view", "path": "/a"}),
    ({"type": "computer_20250124", "name": "computer", "display_width_px": 8, "display_height_px": 6},
     {"action": "left_click", "coordinate": [1, 2]}),
    ({"type": "memory_20250818", "name": "memory"}, {"command": "view", "path": "/memories"}),
]  # fmt: skip


@pytest.mark.parametrize("back", [CHAT, RESPONSES, GEMINI])
@pytest.mark.parametrize(("tool", "arguments"), BUILT_IN)
def test_a_tool_of_anthropic_is_a_function_elsewhere(tool: Json, arguments: Json, back: str) -> None:
    body, lost = sent(MESSAGES, back, {"tools": [tool], "tool_choice": {"type": "tool", "name": tool["name"]}})
    schema = offered(back, body)[tool["name"]]
    assert arguments.keys() <= schema["properties"].keys()
    assert set(schema["required"]) <= arguments.keys()
    assert lost == []
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "tools": [tool]}
    answer = conversation(back, MESSAGES, asked).response(json.dumps(calling(back, tool["name"], arguments)).encode())
    (block,) = json.loads(answer)["content"]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", tool["name"], arguments)
    assert sent(MESSAGES, MESSAGES, {"tools": [tool]})[0]["tools"] == [tool]


@pytest.mark.parametrize("kind", ["web_search_20250305", "web_fetch_20250910", "code_execution_20250825"])
def test_what_anthropic_runs_stays_out(kind: str) -> None:
    body, lost = sent(MESSAGES, CHAT, {"tools": [{"type": kind, "name": kind[:-9]}]})
    assert "tools" not in body
    assert lost == ["tools"]


def test_marks_of_such_a_tool_stay_with_it() -> None:
    marked = {"type": "bash_20250124", "name": "bash", "cache_control": {"type": "ephemeral"}}
    assert sent(MESSAGES, MESSAGES, {"tools": [marked]})[0]["tools"] == [marked]


def test_a_call_of_a_backend_of_this_dialect_passes_as_it_came() -> None:
    item = {"type": "local_shell_call", "id": "lsh_1", "call_id": "l1", "status": "completed",
            "action": {"type": "exec", "command": ["ls"], "env": {}}}  # fmt: skip
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed",
                "output": [item]}  # fmt: skip
    events, lost = streamed(RESPONSES, RESPONSES, sse({"type": "response.completed", "response": response}))
    assert events[-1]["response"]["output"] == [item]
    assert "tool_call" not in lost
