"""Tools with free text as input, and the bodies that Cursor sends: chat completions with tools of the Responses API, or
bodies of that API, on the path of chat completions.

The shapes are those of BerriAI/litellm#34029, archestra-ai/archestra#7375 and icebear0828/codex-proxy#708.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from bridge.contract import registry
from bridge.model import Builder, PartKind, Request, ToolCall
from tests.dialects.openai_chat.helpers import answer, asked, back, build, chunks_of, encode, front, request, sent

GRAMMAR = {"syntax": "lark", "definition": 'start: "*** Begin" /.+/'}
FIELDS = {"name": "ApplyPatch", "description": "Edits files."}
NESTED = {"type": "custom", "custom": {**FIELDS, "format": {"type": "grammar", "grammar": GRAMMAR}}}
FLAT = {"type": "custom", **FIELDS, "format": {"type": "grammar", **GRAMMAR}}
READ = {"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": {"type": "object"}}}
FLAT_READ = {"type": "function", **READ["function"]}  # type: ignore[dict-item]
PATCH = '*** Begin Patch\n"a"'
FUNCTION = {"name": "ApplyPatch", "arguments": PATCH}
OTHERS = ["anthropic-messages", "gemini", "ollama", "ag-ui"]


def told(wanted: Request, name: str) -> Any:
    """The body that a backend of another dialect gets."""
    return json.loads(registry.get(name).encode_request(wanted, back()).body)


def calling(arguments: str, name: str = "ApplyPatch") -> Callable[[Builder], None]:
    def tell(b: Builder) -> None:
        b.message(0)
        b.open_part(0, 0, PartKind.TOOL_CALL, call_id="c1", name=name)
        b.delta(0, arguments[:9])
        b.delta(0, arguments[9:])
        b.end_part(0)

    return tell


def called(tool: dict[str, Any], arguments: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The call that a client of this tool gets, and the pieces that it adds up."""
    data = encode(build(calling(arguments)), front(request=request(asked(tools=[tool]))))
    first, *rest = pieces_of(chunks_of(data)[:-1])
    return first, rest


def pieces_of(chunks: list[Any]) -> list[dict[str, Any]]:
    """The calls, or pieces of calls, in these chunks."""
    return [call for c in chunks for choice in c["choices"] for call in choice["delta"].get("tool_calls", [])]


@pytest.mark.parametrize("tool", [NESTED, FLAT], ids=["nested", "flat"])
def test_a_backend_of_this_dialect_gets_the_nested_form(tool: dict[str, Any]) -> None:
    got = sent(request(asked(tools=[READ, tool])))
    assert got["tools"] == [READ, NESTED]


def test_functions_are_read_in_the_flat_form() -> None:
    got = sent(request(asked(tools=[FLAT_READ], tool_choice={"type": "function", "name": "read"})))
    assert got["tools"] == [READ]
    assert got["tool_choice"] == {"type": "function", "function": {"name": "read"}}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("tool", [NESTED, FLAT], ids=["nested", "flat"])
def test_others_know_it_as_a_function(tool: dict[str, Any], name: str) -> None:
    body = json.dumps(told(request(asked(tools=[tool])), name))
    assert '"ApplyPatch"' in body
    assert '"input"' in body
    assert json.dumps(GRAMMAR["definition"])[1:-1] in body


@pytest.mark.parametrize("arguments", [json.dumps({"input": PATCH}), json.dumps({"patch": PATCH}), PATCH])
def test_a_call_has_its_text(arguments: str) -> None:
    first, rest = called(NESTED, arguments)
    assert first == {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "ApplyPatch", "input": ""}}
    assert rest == [{"index": 0, "custom": {"input": PATCH}}]


def test_a_client_of_the_flat_form_finds_it_in_the_function_as_well() -> None:
    first, rest = called(FLAT, json.dumps({"input": PATCH}))
    assert (first["type"], first["custom"]["name"], first["function"]["name"]) == ("custom", "ApplyPatch", "ApplyPatch")
    assert rest == [{"index": 0, "custom": {"input": PATCH}, "function": {"arguments": PATCH}}]


def test_a_whole_answer_has_the_same_call() -> None:
    context = front(request=request(asked(tools=[NESTED])))
    whole = registry.get("openai-chat").encoder(context).whole(build(calling(json.dumps({"input": PATCH}))))
    (call,) = whole["choices"][0]["message"]["tool_calls"]
    assert call == {"id": "c1", "type": "custom", "custom": {"name": "ApplyPatch", "input": PATCH}}


def test_other_calls_are_functions() -> None:
    tools = [NESTED, READ]
    data = encode(build(calling("{}", "read")), front(request=request(asked(tools=tools))))
    (call,) = answer(data).calls
    assert (call.name, call.arguments) == ("read", "{}")


@pytest.mark.parametrize(
    "call",
    [
        {"type": "custom", "custom": {"name": "ApplyPatch", "input": PATCH}},
        {
            "type": "custom",
            "custom": {"name": "ApplyPatch", "input": PATCH},
            "function": {"name": "ApplyPatch", "arguments": PATCH},
        },
        {"type": "function", "function": {"name": "ApplyPatch", "arguments": PATCH}},
    ],
    ids=["custom", "both", "function"],
)
@pytest.mark.parametrize("content", [None, [], ""], ids=["null", "no parts", "empty"])
def test_calls_of_the_history_are_read_back(call: dict[str, Any], content: Any) -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": content, "tool_calls": [{"id": "c1", **call}]},
        {"role": "tool", "tool_call_id": "c1", "content": "Done."},
    ]
    wanted = request(asked(messages, tools=[FLAT]))
    (part,) = wanted.messages[1].parts
    assert isinstance(part, ToolCall)
    assert json.loads(part.arguments) == {"input": PATCH}
    got = sent(wanted)["messages"][1]
    assert got["tool_calls"] == [{"id": "c1", "type": "custom", "custom": {"name": "ApplyPatch", "input": PATCH}}]
    assert not got.get("content")
    assert got.get("content") != []
    blocks = told(wanted, "anthropic-messages")["messages"][1]["content"]
    assert blocks == [{"type": "tool_use", "id": "c1", "name": "ApplyPatch", "input": {"input": PATCH}}]


RESPONSES = {
    "model": "m",
    "stream": True,
    "stream_options": {"include_usage": True},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "reasoning": {"effort": "medium", "summary": "auto"},
    "input": [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "function_call", "call_id": "c0", "name": "read", "arguments": '{"path":"a"}'},
        {"type": "function_call_output", "call_id": "c0", "output": "text"},
    ],
    "tools": [FLAT_READ, FLAT],
    "tool_choice": "auto",
}


def test_a_body_of_the_responses_api_is_read() -> None:
    wanted = request(RESPONSES)
    assert wanted.stream
    got = sent(wanted)
    assert [m["role"] for m in got["messages"]] == ["system", "user", "assistant", "tool"]
    assert [tool["function"]["name"] for tool in got["tools"]] == ["read", "ApplyPatch"]
    assert got["stream_options"] == {"include_usage": True}
    assert got["reasoning_effort"] == "medium"
    assert "input" not in got
    assert "store" not in got or got["store"] is False


def test_its_answer_is_a_chat_completion() -> None:
    data = encode(build(calling(json.dumps({"input": PATCH}))), front(request=request(RESPONSES)))
    chunks = chunks_of(data)
    assert all(c["object"] == "chat.completion.chunk" for c in chunks[:-1])
    assert pieces_of(chunks[:-1])[-1] == {"index": 0, "custom": {"input": PATCH}, "function": {"arguments": PATCH}}
