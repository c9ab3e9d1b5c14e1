"""Marks for the prompt cache: `cache_control` here, `prompt_cache_breakpoint` there, named as lost where neither is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import Context, Losses, registry
from bridge.model import Message, Request, Text
from bridge.run.backend import CallInfo
from bridge.run.backends.http_backend import HttpBackend, HttpCall
from bridge.testing import FakeBackend, fake_backend
from tests.pairs.keeping import KEEPING, request, route, run_input
from tests.server.harness import Reply, ask, post, serving

PATHS = {"anthropic-messages": "/messages", "openai-responses": "/responses", "openai-chat": "/chat/completions"}
SHORT, LONG = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
BREAK = {"mode": "explicit"}


def fields_in(value: Any, field: str) -> list[dict[str, Any]]:
    """The objects within a JSON value that have this field, in their order."""
    if isinstance(value, list):
        return [found for item in value for found in fields_in(item, field)]
    if not isinstance(value, dict):
        return []
    inner = [found for item in value.values() for found in fields_in(item, field)]
    return [*inner, value] if field in value else inner


async def asked(front: str, back: str, body: dict[str, Any], **options: Any) -> tuple[Any, Reply]:
    """What the backend was sent, and the reply."""
    async with fake_backend(back) as backend:
        config = {
            "backends": {"it": {"dialect": back, "url": f"{backend.url}/v1", "options": options}},
            "routes": [{"dialect": front, "path": "/v1", "backend": "it"}],
            "stores": {"history": "off"},
        }
        async with serving(config) as base:
            backend.says("Hello.")
            reply = await post(f"{base}/v1{PATHS.get(front, '')}", body)
            assert reply.status == 200, reply.body
            return backend.seen[-1].json, reply


def messages(system: Any, *said: Any, **more: Any) -> dict[str, Any]:
    """A request of an Anthropic client."""
    return {
        "model": "m",
        "max_tokens": 9,
        "system": [system],
        "messages": [{"role": "user", "content": list(said)}],
        **more,
    }


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


MARKED = messages(text("Be brief.", cache_control=SHORT), text("A book.", cache_control=LONG), text("Hi"))
TOOL = {"name": "f", "input_schema": {"type": "object"}, "cache_control": SHORT}


@pytest.mark.parametrize("back", ["openai-responses", "openai-chat"])
async def test_of_anthropic_clients(back: str) -> None:
    sent, reply = await asked("anthropic-messages", back, MARKED, prompt_cache="breakpoints")
    found = fields_in(sent, "prompt_cache_breakpoint")
    assert [(f["text"], f["prompt_cache_breakpoint"]) for f in found] == [
        ("Be brief.", BREAK),
        ("A book.", {**BREAK, "ttl": "12h"}),
    ]
    assert "extras" not in reply.headers.get("x-bridge-lost", "")
    sent, reply = await asked("anthropic-messages", back, MARKED)
    assert fields_in(sent, "prompt_cache_breakpoint") == []
    assert "extras" in reply.headers["x-bridge-lost"]
    tools = {**MARKED, "tools": [TOOL]}
    _, reply = await asked("anthropic-messages", back, tools, prompt_cache="breakpoints")
    assert "extras" in reply.headers["x-bridge-lost"], "tools have no marks there"


@pytest.mark.parametrize("back", ["ag-ui", "agentscope"])
async def test_backends_without_any(back: str) -> None:
    _, reply = await asked("anthropic-messages", back, MARKED)
    assert "extras" in reply.headers["x-bridge-lost"]
    _, reply = await asked("anthropic-messages", back, messages(text("Be brief."), text("Hi")))
    assert "extras" not in reply.headers["x-bridge-lost"]


def input_text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "input_text", "text": words, **fields}


async def test_of_responses_clients() -> None:
    parts = [input_text(f"p{n}", prompt_cache_breakpoint=BREAK) for n in range(6)]
    body = {"model": "m", "input": [{"role": "user", "content": [*parts, input_text("Hi")]}]}
    sent, reply = await asked("openai-responses", "anthropic-messages", body)
    assert [(f["text"], f["cache_control"]) for f in fields_in(sent, "cache_control")] == [
        (f"p{n}", SHORT) for n in range(2, 6)
    ], "the API takes four, and the latest count"
    assert "extras" in reply.headers["x-bridge-lost"]
    parts[3]["prompt_cache_breakpoint"] = {**BREAK, "ttl": "12h"}
    body = {"model": "m", "input": [{"role": "user", "content": parts[2:]}]}
    sent, reply = await asked("openai-responses", "anthropic-messages", body)
    assert [f["cache_control"] for f in fields_in(sent, "cache_control")] == [LONG] * 4
    assert "extras" not in reply.headers.get("x-bridge-lost", "")
    sent, _ = await asked("openai-responses", "openai-responses", body)
    assert sent["input"][0]["content"] == parts[2:]


async def test_arguments_and_schemas_are_nobodys_marks() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"cache_control": 1}'}
    result = {"type": "function_call_output", "call_id": "c1", "output": "1"}
    parts = [input_text(f"p{n}", prompt_cache_breakpoint=BREAK) for n in range(5)]
    schema = {"type": "object", "properties": {"cache_control": {"type": "number"}}}
    tool = {"type": "function", "name": "f", "parameters": schema}
    body = {"model": "m", "tools": [tool], "input": [call, result, {"role": "user", "content": parts}]}
    sent, _ = await asked("openai-responses", "anthropic-messages", body)
    assert sent["tools"][0]["input_schema"] == schema
    assert sent["messages"][0]["content"][0]["input"] == {"cache_control": 1}


async def test_of_chat_clients() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": [text("Hi", prompt_cache_breakpoint=BREAK)]}]}
    sent, _ = await asked("openai-chat", "anthropic-messages", body)
    assert sent["messages"][0]["content"] == [text("Hi", cache_control=SHORT)]
    sent, _ = await asked("openai-chat", "openai-chat", body)
    assert sent["messages"] == body["messages"]


CONTROLLED: list[dict[str, Any]] = [
    {"role": "system", "content": [text("S", cache_control=LONG)]},
    {"role": "user", "content": "q", "cache_control": SHORT},
    {"role": "assistant", "content": "a", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "r", "cache_control": LONG},
    {"role": "user", "content": "b"},
]  # fmt: skip
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


@pytest.mark.parametrize("tool", [
    {**FUNCTION, "cache_control": SHORT},
    {"type": "function", "function": {**FUNCTION["function"], "cache_control": SHORT}},  # type: ignore[dict-item]
])  # fmt: skip
async def test_marks_of_chat_clients_in_the_words_of_anthropic(tool: dict[str, Any]) -> None:
    """On parts, messages, results and tools, as OpenRouter and LiteLLM have them: each arrives as it was said."""
    body = {"model": "m", "tools": [tool], "messages": CONTROLLED}
    sent, reply = await asked("openai-chat", "anthropic-messages", body)
    assert sent["system"] == [text("S", cache_control=LONG)]
    assert sent["messages"][0]["content"] == [text("q", cache_control=SHORT)]
    (result,) = (b for b in sent["messages"][2]["content"] if b["type"] == "tool_result")
    assert result["cache_control"] == LONG
    assert sent["tools"][0]["cache_control"] == SHORT
    assert "extras" not in reply.headers.get("x-bridge-lost", "")
    same, reply = await asked("openai-chat", "openai-chat", body)
    assert (same["messages"], same["tools"]) == (CONTROLLED, [tool])
    assert "extras" not in reply.headers.get("x-bridge-lost", "")


@pytest.mark.parametrize("back", ["openai-responses", "gemini", "ag-ui"])
async def test_marks_of_chat_clients_are_named_where_they_are_lost(back: str) -> None:
    _, reply = await asked("openai-chat", back, {"model": "m", "messages": CONTROLLED})
    assert "extras" in reply.headers["x-bridge-lost"]


async def test_too_many_marks_of_a_chat_client() -> None:
    parts = [text(f"p{n}", cache_control=SHORT) for n in range(6)]
    body = {"model": "m", "messages": [{"role": "user", "content": parts}]}
    sent, reply = await asked("openai-chat", "anthropic-messages", body)
    assert [f["text"] for f in fields_in(sent, "cache_control")] == ["p2", "p3", "p4", "p5"]
    assert "extras" in reply.headers["x-bridge-lost"]


async def test_the_mark_of_a_whole_request() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "cache_control": SHORT}
    for back in ("anthropic-messages", "openai-chat"):
        sent, reply = await asked("openai-chat", back, body)
        assert sent["cache_control"] == SHORT
        assert "extras" not in reply.headers.get("x-bridge-lost", "")


async def test_marks_of_anthropic_clients_for_chat_servers_that_know_them() -> None:
    body = messages(text("Be brief.", cache_control=SHORT), text("A book.", cache_control=LONG), text("Hi"))
    body["tools"] = [TOOL]
    body["messages"] += [
        {"role": "assistant", "content": [text("a", cache_control=SHORT),
            {"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "r", "cache_control": LONG}]},
    ]  # fmt: skip
    sent, reply = await asked("anthropic-messages", "openai-chat", body, prompt_cache="marks")
    said = sent["messages"]
    assert said[0]["content"] == [text("Be brief.", cache_control=SHORT)]
    assert said[1]["content"] == [text("A book.", cache_control=LONG), text("Hi")]
    assert said[2]["content"] == [text("a", cache_control=SHORT)]
    assert said[3]["content"] == [text("r", cache_control=LONG)]
    assert sent["tools"][0]["cache_control"] == SHORT
    assert "extras" not in reply.headers.get("x-bridge-lost", "")
    sent, reply = await asked("anthropic-messages", "openai-chat", body)
    assert fields_in(sent, "cache_control") == []
    assert "extras" in reply.headers["x-bridge-lost"]


# ---------------------------------------------------------------------- what only Anthropic's servers read

BILLING = "x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli; cch={};"


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("back", ["openai-chat", "openai-responses", "gemini", "ag-ui", "anthropic-messages"])
@pytest.mark.parametrize("listed", [False, True])
async def test_the_billing_line_of_claude_code_goes_to_anthropic_alone(listed: bool, back: str, alone: bool) -> None:
    """It differs in each request, and at the begin of the prompt it would keep all of it from the cache."""
    seen = []
    for number in "ab":
        line, rest = BILLING.format(number), [] if alone else ["You are brief."]
        blocks = [text(each) for each in (line, *rest)]
        body = {**messages(None, text("Hi")), "system": blocks if listed else "\n".join([line, *rest])}
        sent, reply = await asked("anthropic-messages", back, body)
        seen.append(sent)
        assert "extras" not in reply.headers.get("x-bridge-lost", "")
        if back == "anthropic-messages":
            assert sent["system"] == body["system"]
    if back not in ("anthropic-messages", "ag-ui"):
        assert seen[0] == seen[1]
    if back != "anthropic-messages":
        assert "billing" not in json.dumps(seen)
        assert ("You are brief." in json.dumps(seen)) is not alone


async def test_its_own_pass_as_they_are() -> None:
    body = messages(text("Be brief.", cache_control=SHORT), *(text(f"p{n}", cache_control=LONG) for n in range(5)))
    body["tools"] = [TOOL]
    body["messages"].append(
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}, "cache_control": SHORT}],
        }
    )
    body["messages"].append({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c1", "content": "1", "cache_control": SHORT}]})  # fmt: skip
    sent, reply = await asked("anthropic-messages", "anthropic-messages", body)
    assert (sent["system"], sent["messages"], sent["tools"]) == (body["system"], body["messages"], body["tools"])
    assert "extras" not in reply.headers.get("x-bridge-lost", "")


# ---------------------------------------------------------------------- by itself


async def test_long_prefixes_are_marked_by_option() -> None:
    long = "x" * 5000
    body = {"model": "m", "instructions": long, "input": "Hi"}
    sent, _ = await asked("openai-responses", "anthropic-messages", body, prompt_cache="auto")
    assert sent["system"] == [text(long, cache_control=SHORT)]
    assert sent["messages"][-1]["content"] == [text("Hi", cache_control=SHORT)]
    sent, _ = await asked("openai-responses", "anthropic-messages", body)
    assert fields_in(sent, "cache_control") == []
    sent, _ = await asked("openai-responses", "anthropic-messages", {**body, "instructions": "x"}, prompt_cache="auto")
    assert sent["system"] == "x", "too short to be cached"
    sent, _ = await asked("anthropic-messages", "anthropic-messages", MARKED, prompt_cache="auto")
    assert len(fields_in(sent, "cache_control")) == 2, "the client knows what it does"


async def sent_by(front: str, back: str, said: str, **options: Any) -> Any:
    """Return what the backend is sent for one message of a client of any dialect that keeps no marks."""
    async with fake_backend(back) as backend:
        config = {
            "backends": {"it": {"dialect": back, "url": f"{backend.url}/v1", "options": options, "model": "m"}},
            "routes": [route(front)],
            "stores": {"history": "sqlite:///:memory:"},
        }
        async with serving(config) as base:
            backend.says("Hello.")
            match front:
                case "openai-chat":
                    path, body, headers = "/chat/completions", {"model": "m", "messages": [user(said)]}, {}
                case "ag-ui":
                    path, body, headers = "", run_input(said, 1), {}
                case "gemini":
                    path, headers = "/models/m:generateContent", {}
                    body = {"contents": [{"role": "user", "parts": [{"text": said}]}]}
                case _:
                    path, body, headers = request(front, said, 1)
            await post(f"{base}/r{path}", body, **headers)
            if front == "agent-runs":
                await ask("GET", f"{base}/r/runs/t/events?runId=r1")
            return backend.seen[-1].json


def user(said: str) -> dict[str, Any]:
    return {"role": "user", "content": said}


@pytest.mark.parametrize("front", ["openai-chat", "ag-ui", "gemini", *KEEPING])
async def test_clients_without_marks_are_cached_by_default(front: str) -> None:
    found = fields_in(await sent_by(front, "anthropic-messages", "x" * 5000), "cache_control")
    assert [(f["text"], f["cache_control"]) for f in found] == [("x" * 5000, SHORT)]
    sent = await sent_by(front, "anthropic-messages", "x" * 5000, prompt_cache="marks")
    assert fields_in(sent, "cache_control") == []


async def test_a_short_prompt_is_not_marked_by_default() -> None:
    """No model caches it."""
    assert fields_in(await sent_by("openai-chat", "anthropic-messages", "Hi"), "cache_control") == []
    sent = await sent_by("openai-chat", "anthropic-messages", "Hi", prompt_cache="auto")
    assert len(fields_in(sent, "cache_control")) == 1


@pytest.mark.parametrize("front", ["anthropic-messages", "openai-responses"])
async def test_clients_with_marks_decide(front: str) -> None:
    body = messages(text("x" * 5000), text("Hi")) if front == "anthropic-messages" else {"model": "m", "input": "Hi"}
    sent, _ = await asked(front, "anthropic-messages", body)
    assert fields_in(sent, "cache_control") == []


async def test_the_marks_of_a_chat_client_win() -> None:
    first, last = text("x" * 5000, prompt_cache_breakpoint=BREAK), text("Hi")
    body = {"model": "m", "messages": [{"role": "user", "content": [first, last]}]}
    sent, _ = await asked("openai-chat", "anthropic-messages", body)
    assert [f["text"] for f in fields_in(sent, "cache_control")] == ["x" * 5000]


async def test_an_empty_text_is_not_marked() -> None:
    """The API refuses that."""
    body = {"model": "m", "messages": [{"role": "user", "content": [text("x" * 5000), text("")]}]}
    sent, _ = await asked("openai-chat", "anthropic-messages", body)
    assert all(f["text"] for f in fields_in(sent, "cache_control"))


@pytest.mark.parametrize("back", ["openai-responses", "openai-chat"])
@pytest.mark.parametrize(
    ("url", "front", "is_set"),
    [
        ("https://api.openai.com/v1", "ag-ui", True),
        ("https://eu.api.openai.com/v1", "openai-chat", True),
        ("https://api.openai.com/v1", "openai-responses", False),
        ("https://api.openai.com/v1", "anthropic-messages", False),
        ("https://api.openai.com.example.org/v1", "ag-ui", False),
        ("http://127.0.0.1:1/v1", "ag-ui", False),
    ],
)
def test_a_key_where_the_host_takes_it(back: str, url: str, front: str, is_set: bool) -> None:
    caches = not registry.get(front).capabilities.clients_cache
    backend = HttpBackend("it", registry.get(back), url)
    asked = Request([Message("system", [Text("Be brief.")]), Message("user", [Text("Hi")])])
    call = backend.call(asked, CallInfo("run", None, 0.0, caches=caches), Losses())
    assert isinstance(call, HttpCall)
    assert ("prompt_cache_key" in json.loads(call.sent.body)) is is_set


def test_nothing_to_cache_has_no_key() -> None:
    context = Context("run", caches=True, host="api.openai.com")
    wire = registry.get("openai-chat").encode_request(Request([Message("user", [Text("Hi")])]), context)
    assert "prompt_cache_key" not in json.loads(wire.body)


@pytest.mark.parametrize("back", ["openai-responses", "openai-chat"])
async def test_a_key_for_the_prefix(back: str) -> None:
    async def key(system: str, said: str, **more: Any) -> str | None:
        body = {"model": "m", "messages": [{"role": "system", "content": system}, {"role": "user", "content": said}]}
        sent, _ = await asked("openai-chat", back, {**body, **more}, prompt_cache="key")
        found: str | None = sent.get("prompt_cache_key")
        return found

    first = await key("Be brief.", "Hi")
    assert first is not None
    assert await key("Be brief.", "Something else") == first
    assert await key("Be long.", "Hi") != first
    assert await key("Be brief.", "Hi", prompt_cache_key="mine") == "mine"


# ---------------------------------------------------------------------- usage


async def test_cached_tokens_come_back() -> None:
    theirs = {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 70, "cache_creation_input_tokens": 30}
    whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [text("Hello.")],
             "stop_reason": "end_turn", "usage": theirs}  # fmt: skip
    usage = await used("openai-responses", "anthropic-messages", whole, {"model": "m", "input": "Hi"})
    assert usage["input_tokens"] == 105
    assert usage["input_tokens_details"] == {"cached_tokens": 70, "cache_write_tokens": 30}
    whole = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [], "usage": usage}
    back = await used("anthropic-messages", "openai-responses", whole, messages(text("Be brief."), text("Hi")))
    assert {name: back[name] for name in theirs} == theirs


async def used(front: str, back: str, whole: dict[str, Any], body: dict[str, Any]) -> Any:
    async with fake_backend() as backend:
        assert isinstance(backend, FakeBackend)
        config = {
            "backends": {"it": {"dialect": back, "url": f"{backend.url}/v1"}},
            "routes": [{"dialect": front, "path": "/v1", "backend": "it"}],
            "stores": {"history": "off"},
        }
        async with serving(config) as base:
            backend.answers(200, json.dumps(whole).encode())
            return (await post(f"{base}/v1{PATHS[front]}", body)).json["usage"]
