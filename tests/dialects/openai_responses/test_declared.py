"""Tools that clients run and that are no plain functions, in the shapes in which coding agents declare them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from bridge.contract import registry
from bridge.dialects.openai_responses.read_answer import ResponsesDecoder
from bridge.errors import Unsupported
from bridge.model import Builder, PartKind, Request

from .helpers import asked, assembled, back, build, emitted, final, front, request, sent

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin" /.+/'}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": GRAMMAR}
SPAWN = {"type": "function", "name": "spawn", "description": "Starts one.", "parameters": {"type": "object"}}
WAIT = {"type": "function", "name": "wait", "parameters": {"type": "object"}, "strict": False}
AGENTS = {"type": "namespace", "name": "agents", "description": "Others.", "tools": [SPAWN, WAIT]}
CODE = {"type": "custom", "name": "exec", "format": {"type": "text"}}
DECLARING = {
    "type": "additional_tools",
    "id": "at_1",
    "role": "developer",
    "tools": [{"type": "namespace", "name": "functions", "tools": [CODE]}, {"type": "web_search"}],
}
USER = {"type": "message", "role": "user", "content": "Hi"}
CALLED = [
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"},
    {"type": "custom_tool_call_output", "id": "ctco_1", "call_id": "c1", "output": "Done."},
    {"type": "function_call", "call_id": "c2", "name": "spawn", "namespace": "agents", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c2", "output": "Started."},
    {"type": "custom_tool_call", "call_id": "c3", "name": "exec", "namespace": "functions", "input": "run()"},
    {
        "type": "custom_tool_call_output",
        "call_id": "c3",
        "output": [{"type": "input_text", "text": "Ran."}, {"type": "input_text", "text": "hi\n"}],
    },
]
OTHERS = ["ag-kit", "ag-ui", "agentscope", "anthropic-messages", "openai-chat"]


def told(body: dict[str, Any], name: str = "openai-chat") -> dict[str, Any]:
    """What a backend of another dialect gets."""
    value: dict[str, Any] = json.loads(registry.get(name).encode_request(request(body), back()).body)
    return value


def spoken(body: dict[str, Any], tell: Callable[[Builder], Any]) -> list[dict[str, Any]]:
    """The events of the answer to this request."""
    return emitted(build(tell), front(request=request(body)))


def calls(*named: tuple[str, str]) -> Callable[[Builder], None]:
    """An answer with these calls: names and arguments, which come in two pieces."""

    def tell(b: Builder) -> None:
        b.message(0)
        for number, (name, arguments) in enumerate(named):
            b.open_part(number, 0, PartKind.TOOL_CALL, call_id=f"c{number}", name=name)
            b.delta(number, arguments[:4])
            b.delta(number, arguments[4:])
            b.end_part(number)

    return tell


def test_backends_of_this_dialect_get_all_of_it_as_it_came() -> None:
    body = asked([DECLARING, USER, *CALLED], tools=[PATCH, AGENTS, {"type": "web_search"}], tool_choice="auto")
    context = back()
    got = sent(request(body), context=context)
    assert (got["input"], got["tools"], got["tool_choice"]) == (body["input"], body["tools"], "auto")
    assert context.lost.names == []


def update(**settings: Any) -> dict[str, Any]:
    return {"type": "configuration_update", "id": "cu_1", **settings}


SHAPE = {"type": "json_schema", "name": "city", "schema": {"type": "object"}}
UPDATES = [
    update(reasoning={"effort": "high"}, text={"format": SHAPE}),
    USER,
    update(reasoning={"effort": "low"}),
]


@pytest.mark.parametrize("said", [{}, {"reasoning": {"effort": "none"}, "text": {"verbosity": "low"}}])
def test_settings_that_items_change_are_those_of_backends_of_other_dialects(said: dict[str, Any]) -> None:
    got = told(asked([USER, *UPDATES], **said))
    assert [message["role"] for message in got["messages"]] == ["user", "user"]
    assert got["reasoning_effort"] == "low"
    assert got["response_format"] == {"type": "json_schema", "json_schema": {"name": "city", "schema": SHAPE["schema"]}}
    plain = told(asked([USER, *UPDATES, update(text={"format": {"type": "text"}})], **said))
    assert "json_schema" not in str(plain)


@pytest.mark.parametrize("said", [{}, {"reasoning": {"effort": "none"}, "text": {"verbosity": "low"}}])
def test_a_backend_of_this_dialect_gets_changes_of_settings_as_they_came(said: dict[str, Any]) -> None:
    body = asked([USER, *UPDATES], **said)
    for options in (front(), front({"hosted_tools": "drop"})):
        got = sent(request(body, options))
        assert got["input"] == body["input"]
    assert {name: got[name] for name in ("reasoning", "text") if name in got} == said


@pytest.mark.parametrize("places", [[0], [2], [0, 2, 3]])
def test_items_that_declare_tools_keep_their_places(places: list[int]) -> None:
    items = [USER, {**USER, "content": "More"}]
    for place in places:
        items.insert(place, DECLARING)
    assert sent(request(asked(items, instructions="Be short.")))["input"] == items


def test_others_know_them_as_functions() -> None:
    got = told(asked([DECLARING, USER], tools=[PATCH, AGENTS]))
    assert [m["role"] for m in got["messages"]] == ["user"]
    functions = [tool["function"] for tool in got["tools"]]
    assert [f["name"] for f in functions] == ["apply_patch", "agents__spawn", "agents__wait", "functions__exec"]
    assert functions[0]["description"].startswith("Edits files.\n\n")
    assert GRAMMAR["definition"] in functions[0]["description"]
    assert functions[0]["parameters"]["required"] == ["input"]
    assert functions[1]["description"] == "Starts one."


def test_a_tool_with_free_text_is_called_with_its_text() -> None:
    arguments = json.dumps({"input": '*** Begin "a"\n'})
    events = spoken(asked(tools=[PATCH]), calls(("apply_patch", arguments)))
    said = [e for e in events if "custom_tool_call_input" in e["type"]]
    assert [e.get("delta") or e.get("input") for e in said] == ['*** Begin "a"\n'] * 2
    assert events[-1]["response"]["output"] == [
        {
            "id": said[0]["item_id"],
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": "c0",
            "name": "apply_patch",
            "input": '*** Begin "a"\n',
        }
    ]


@pytest.mark.parametrize("arguments", ["*** Begin", '{"patch": "x", "why": "y"}', '{"input": 1}', "{}", "[]", ""])
def test_a_model_that_keeps_to_no_schema_is_taken_at_its_word(arguments: str) -> None:
    output = final(build(calls(("apply_patch", arguments))), front(request=request(asked(tools=[PATCH]))))["output"]
    assert output[0]["input"] == arguments


@pytest.mark.parametrize("arguments", ['{"input": "*** Begin"}', '{"patch": "*** Begin"}', "*** Begin"])
def test_a_server_of_this_dialect_that_calls_it_as_a_function(arguments: str) -> None:
    """antirez/ds4#745, Wei-Shaw/sub2api#5659: Codex refuses such a call of its tool."""
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "apply_patch", "arguments": arguments}
    response = {"id": "r", "status": "completed", "output": [{**call, "status": "completed", "x_own": 1}]}
    events = ResponsesDecoder(back()).whole(response)
    (item,) = final(events, front(request=request(asked(tools=[PATCH]))))["output"]
    assert (item["type"], item["call_id"], item["input"]) == ("custom_tool_call", "c1", "*** Begin")
    assert not item.keys() & {"arguments", "x_own"}
    (item,) = final(events, front(request=request(asked())))["output"]
    assert (item["type"], item["arguments"]) == ("function_call", arguments)


def test_members_of_namespaces_are_called_by_their_own_names() -> None:
    body = asked([DECLARING, USER], tools=[PATCH, AGENTS])
    told_whole = assembled(
        build(calls(("agents__spawn", '{"a":1}'), ("functions__exec", '{"input":"x"}'), ("other", "{}"))),
        front(request=request(body)),
    )
    named = [(item["type"], item["name"], item.get("namespace")) for item in told_whole["output"]]
    assert named == [
        ("function_call", "spawn", "agents"),
        ("custom_tool_call", "exec", "functions"),
        ("function_call", "other", None),
    ]
    assert told_whole["output"][0]["arguments"] == '{"a":1}'
    assert [tool["type"] for tool in told_whole["tools"]] == ["custom", "namespace"]


@pytest.mark.parametrize("name", OTHERS)
def test_calls_and_results_of_the_history(name: str) -> None:
    text = json.dumps(told(asked([USER, *CALLED], tools=[PATCH, AGENTS]), name))
    assert "custom_tool_call" not in text
    assert "agents__spawn" in text
    assert "Begin" in text


def test_calls_and_results_of_the_history_over_chat() -> None:
    got = told(asked([USER, *CALLED], tools=[PATCH, AGENTS]))["messages"]
    assert [(m["role"], m.get("tool_call_id")) for m in got] == [
        ("user", None), ("assistant", None), ("tool", "c1"), ("assistant", None), ("tool", "c2"),
        ("assistant", None), ("tool", "c3"),
    ]  # fmt: skip
    assert got[1]["tool_calls"][0]["function"] == {"name": "apply_patch", "arguments": '{"input":"*** Begin"}'}
    assert got[3]["tool_calls"][0]["function"]["name"] == "agents__spawn"


# ---------------------------------------------------------------------- what the provider runs


def test_what_is_left_out_by_option_is_left_out_of_items_too() -> None:
    body = asked([DECLARING, {**DECLARING, "tools": None}, USER], tools=[PATCH, {"type": "web_search"}])
    got = sent(request(body, front({"hosted_tools": "drop"})))
    assert got["tools"] == [PATCH]
    assert [item.get("tools") for item in got["input"]] == [DECLARING["tools"][:1], [], None]


def lossy(body: dict[str, Any], name: str = "openai-chat") -> tuple[Request, list[str]]:
    wanted, context = request(body), back()
    registry.get(name).encode_request(wanted, context)
    return wanted, context.lost.names


@pytest.mark.parametrize("name", OTHERS)
def test_a_search_that_this_backend_does_not_have_is_left_out_and_named(name: str) -> None:
    wanted, lost = lossy(asked(tools=[SPAWN, {"type": "web_search"}], tool_choice="auto"), name)
    assert [t.kind for t in wanted.tools or []] == ["function", "web_search"]
    assert "tools" in lost


@pytest.mark.parametrize(
    ("tools", "choice"),
    [([SPAWN, {"type": "web_search"}], {"type": "web_search"}), ([{"type": "web_search"}], "required")],
)
def test_a_search_that_the_model_must_use_is_refused(tools: list[Any], choice: Any) -> None:
    with pytest.raises(Unsupported, match="got 'web_search'"):
        lossy(asked(tools=tools, tool_choice=choice))
