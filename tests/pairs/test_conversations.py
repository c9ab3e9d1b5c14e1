"""Pairs of dialects as people use them: tools and their results, pictures, failures, clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from bridge.run.backends.demo_backend import PICTURE
from tests.pairs.clients import CLIENTS, TOOL, Client, Seen, agentscope_client, routes
from tests.server.harness import Exchange, FakeBackend, fake_backend, serving

DATA_URL = f"data:image/png;base64,{PICTURE}"


# ---------------------------------------------------------------------- backends, as their protocols' pages say


def chat_stream(*deltas: dict[str, Any], finish: str = "stop", usage: bool = True) -> list[bytes]:
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m-1"}
    out = [{"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
    out.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if usage:
        out.append({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}})
    return [b"data: " + orjson.dumps({**base, **o}) + b"\n\n" for o in out] + [b"data: [DONE]\n\n"]


def chat_calls(*cities: str) -> list[bytes]:
    deltas: list[dict[str, Any]] = []
    for index, city in enumerate(cities):
        arguments = orjson.dumps({"city": city}).decode()
        function = {"name": "get_weather", "arguments": ""}
        deltas.append(
            {"tool_calls": [{"index": index, "id": f"call_{city}", "type": "function", "function": function}]}
        )
        for piece in (arguments[:5], arguments[5:]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    return chat_stream(*deltas, finish="tool_calls")


def scope_stream(*messages: dict[str, Any]) -> list[bytes]:
    """Each message: type, role, and its one content, given whole; texts come in two deltas."""
    head = {"object": "response", "id": "response_1", "created_at": 1_700_000_000, "session_id": "s"}
    events: list[dict[str, Any]] = [{**head, "status": s, "output": None} for s in ("created", "in_progress")]
    output = []
    for number, message in enumerate(messages):
        name = f"msg_{number}"
        content = {"object": "content", "index": 0, "msg_id": name, **message["content"]}
        opened = {"object": "message", "id": name, "type": message["type"], "role": message["role"]}
        events.append({**opened, "status": "in_progress", "content": None})
        if "text" in content:
            half = len(content["text"]) // 2
            for piece in (content["text"][:half], content["text"][half:]):
                events.append({**content, "status": "in_progress", "delta": True, "text": piece})
        done = {**content, "status": "completed", "delta": False}
        output.append({**opened, "status": "completed", "content": [done]})
        events += [done, output[-1]]
    usage = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
    events.append({**head, "status": "completed", "output": output, "usage": usage})
    return [
        b"data: " + orjson.dumps({"sequence_number": n, "error": None, **e}) + b"\n\n" for n, e in enumerate(events)
    ]


def scope_text(text: str, kind: str = "message") -> dict[str, Any]:
    return {"type": kind, "role": "assistant", "content": {"type": "text", "text": text}}


def scope_call(city: str) -> dict[str, Any]:
    data = {"call_id": f"call_{city}", "name": "get_weather", "arguments": orjson.dumps({"city": city}).decode()}
    return {"type": "plugin_call", "role": "assistant", "content": {"type": "data", "data": data}}


def claude_stream(*blocks: dict[str, Any], reason: str = "end_turn") -> list[bytes]:
    """A start and the deltas of each block; as the real one does, with a ping and cumulative usage."""
    usage = {"input_tokens": 9, "output_tokens": 1}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": []}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**head, "stop_reason": None, "stop_sequence": None, "usage": usage}},
        {"type": "ping"},
    ]
    for index, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block["start"]})
        events += [{"type": "content_block_delta", "index": index, "delta": d} for d in block["deltas"]]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": reason, "stop_sequence": None}
    events += [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 4}}, {"type": "message_stop"}]
    return [b"event: %b\ndata: %b\n\n" % (e["type"].encode(), orjson.dumps(e)) for e in events]


def claude_text(text: str) -> dict[str, Any]:
    deltas = [{"type": "text_delta", "text": piece} for piece in (text[:3], text[3:])]
    return {"start": {"type": "text", "text": ""}, "deltas": deltas}


def claude_thought(thought: str) -> dict[str, Any]:
    deltas = [{"type": "thinking_delta", "thinking": thought}, {"type": "signature_delta", "signature": "c2ln"}]
    return {"start": {"type": "thinking", "thinking": "", "signature": ""}, "deltas": deltas}


def claude_call(city: str) -> dict[str, Any]:
    arguments = orjson.dumps({"city": city}).decode()
    deltas = [{"type": "input_json_delta", "partial_json": p} for p in ("", arguments[:5], arguments[5:])]
    return {"start": {"type": "tool_use", "id": f"call_{city}", "name": "get_weather", "input": {}}, "deltas": deltas}


def claude_image(body: Any) -> str:
    source = body["messages"][-1]["content"][1]["source"]
    return source.get("url") or f"data:{source['media_type']};base64,{source['data']}"


def claude_results(body: Any) -> list[tuple[str, str]]:
    blocks = [b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]]
    return [(b["tool_use_id"], b["content"]) for b in blocks if b["type"] == "tool_result"]


def claude_said(body: Any) -> list[tuple[str, str]]:
    """The calls in the history, which stand in one message between the user's two."""
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user"]
    return [(b["id"], orjson.dumps(b["input"]).decode()) for b in body["messages"][1]["content"]]


def chat_said(body: Any) -> list[tuple[str, str]]:
    """The calls in the history, which stand in one message before their results."""
    user, assistant, *tools = body["messages"]
    assert (user["role"], assistant["role"], {m["role"] for m in tools}) == ("user", "assistant", {"tool"})
    return [(c["id"], c["function"]["arguments"]) for c in assistant["tool_calls"]]


def scope_said(body: Any) -> list[tuple[str, str]]:
    data = [m["content"][0]["data"] for m in body["input"] if m["type"] == "plugin_call"]
    return [(d["call_id"], d["arguments"]) for d in data]


def chat_tool(body: Any) -> tuple[str, Any]:
    """Name and schema of the first tool in a request; chat and agentscope spell it alike."""
    function = body["tools"][0]["function"]
    return function["name"], function["parameters"]


def responses_stream(*items: dict[str, Any]) -> list[bytes]:
    """Each item given whole at its end; texts and arguments come in two deltas before."""
    head = {"id": "resp_1", "object": "response", "created_at": 1_700_000_000, "model": "m-1", "output": []}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {**head, "status": "in_progress"}}]
    for index, item in enumerate(items):
        kind, text = _RESPONSES_DELTAS[item["type"]](item)
        opened = {**item, **{k: [] if k != "arguments" else "" for k in ("content", "arguments") if k in item}}
        place = {"output_index": index, "item_id": item["id"]}
        events.append({"type": "response.output_item.added", "output_index": index, "item": opened})
        half = len(text) // 2
        events += [{"type": kind, **place, "content_index": 0, "delta": d} for d in (text[:half], text[half:])]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    usage = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
    last = {**head, "status": "completed", "output": list(items), "usage": usage}
    events.append({"type": "response.completed", "response": last})
    return [
        b"event: %b\ndata: %b\n\n" % (e["type"].encode(), orjson.dumps({**e, "sequence_number": n}))
        for n, e in enumerate(events)
    ]


_RESPONSES_DELTAS: dict[str, Callable[[dict[str, Any]], tuple[str, str]]] = {
    "message": lambda item: ("response.output_text.delta", item["content"][0]["text"]),
    "reasoning": lambda item: ("response.reasoning_text.delta", item["content"][0]["text"]),
    "function_call": lambda item: ("response.function_call_arguments.delta", item["arguments"]),
}


def responses_text(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


def responses_thought(text: str) -> dict[str, Any]:
    content = [{"type": "reasoning_text", "text": text}]
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": content}


def responses_call(city: str) -> dict[str, Any]:
    call = {"call_id": f"call_{city}", "name": "get_weather", "arguments": orjson.dumps({"city": city}).decode()}
    return {"type": "function_call", "id": f"fc_{city}", "status": "completed", **call}


@dataclass
class Back:
    """What a backend of one dialect streams for a scene, and where its answers, images, tools and key stand."""

    url: Callable[[FakeBackend], str]
    say: Callable[[str], list[bytes]]
    think: Callable[[str, str], list[bytes]]
    call: Callable[..., list[bytes]]
    image_in: Callable[[Any], str]
    results_in: Callable[[Any], list[tuple[str, str]]]
    calls_in: Callable[[Any], list[tuple[str, str]]]
    error: bytes
    tool_in: Callable[[Any], tuple[str, Any]] = chat_tool
    key: tuple[str, str] = ("authorization", "Bearer backend-key")


BACKS = {
    "openai-chat": Back(
        lambda backend: f"{backend.url}/v1",
        lambda text: chat_stream({"role": "assistant", "content": ""}, {"content": text[:3]}, {"content": text[3:]}),
        lambda thought, text: chat_stream({"reasoning_content": thought}, {"content": text}),
        chat_calls,
        lambda body: body["messages"][-1]["content"][1]["image_url"]["url"],
        lambda body: [(m["tool_call_id"], m["content"]) for m in body["messages"] if m["role"] == "tool"],
        chat_said,
        b'data: {"error":{"message":"the model fell over","type":"server_error","code":null}}\n\n',
    ),
    "agentscope": Back(
        lambda backend: backend.url,
        lambda text: scope_stream(scope_text(text)),
        lambda thought, text: scope_stream(scope_text(thought, "reasoning"), scope_text(text)),
        lambda *cities: scope_stream(*(scope_call(c) for c in cities)),
        lambda body: body["input"][-1]["content"][1]["image_url"],
        lambda body: [
            (p["data"]["call_id"], p["data"]["output"])
            for m in body["input"]
            if m["type"].endswith("_output")
            for p in m["content"]
        ],
        scope_said,
        b'data: {"object":"response","status":"failed","error":{"code":"AGENT_ERROR","message":"the model fell over"},'
        b'"id":"response_1","output":null}\n\n',
    ),
    "anthropic-messages": Back(
        lambda backend: backend.url,
        lambda text: claude_stream(claude_text(text)),
        lambda thought, text: claude_stream(claude_thought(thought), claude_text(text)),
        lambda *cities: claude_stream(*(claude_call(c) for c in cities), reason="tool_use"),
        claude_image,
        claude_results,
        claude_said,
        b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"the model fell over"}}\n\n',
        lambda body: (body["tools"][0]["name"], body["tools"][0]["input_schema"]),
        ("x-api-key", "backend-key"),
    ),
    "openai-responses": Back(
        lambda backend: f"{backend.url}/v1",
        lambda text: responses_stream(responses_text(text)),
        lambda thought, text: responses_stream(responses_thought(thought), responses_text(text)),
        lambda *cities: responses_stream(*(responses_call(c) for c in cities)),
        lambda body: body["input"][-1]["content"][1]["image_url"],
        lambda body: [(i["call_id"], i["output"]) for i in body["input"] if i["type"] == "function_call_output"],
        lambda body: [(i["call_id"], i["arguments"]) for i in body["input"] if i["type"] == "function_call"],
        b'event: response.failed\ndata: {"type":"response.failed","response":{"id":"resp_1","status":"failed",'
        b'"error":{"code":"server_error","message":"the model fell over"},"output":[]}}\n\n',
        lambda body: (body["tools"][0]["name"], body["tools"][0]["parameters"]),
    ),
}

pytestmark = [pytest.mark.sampled(3), pytest.mark.turns(2)]

pairs = pytest.mark.parametrize(
    ("client", "back"),
    [pytest.param(c, b, id=f"{f} to {n}") for f, c in CLIENTS.items() for n, b in BACKS.items()],
)
NAMES = {id(back): name for name, back in BACKS.items()}
ASKED = [{"role": "user", "content": "What is the weather?"}]


def setup(back: Back, backend: FakeBackend, **section: Any) -> dict[str, Any]:
    return routes(NAMES[id(back)], back.url(backend), **section)


# ---------------------------------------------------------------------- scenes


@pairs
async def test_text_reasoning_and_usage(client: Client, back: Back) -> None:
    async with fake_backend() as backend, serving(setup(back, backend)) as base:
        backend.streams(*back.think("Hm, hm.", "Sunny: 21 °C \u2028 ☀"))
        seen = await client(base, ASKED)
    assert (seen.reasoning, seen.text) == ("Hm, hm.", "Sunny: 21 °C \u2028 ☀")
    assert (seen.usage, seen.finish, seen.error) == ((9, 4), "stop", None)


@pairs
@pytest.mark.parametrize("cities", [("Paris",), ("Paris", "Rome")], ids=["one call", "two calls"])
async def test_a_tool_round_trip(client: Client, back: Back, cities: tuple[str, ...]) -> None:
    async with fake_backend() as backend, serving(setup(back, backend)) as base:
        backend.streams(*back.call(*cities))
        first = await client(base, ASKED, tools=[TOOL])
        sent = orjson.loads(backend.seen[0].body)
        name, schema = back.tool_in(sent)
        assert (name, schema["properties"]) == ("get_weather", {"city": {"type": "string"}})
        assert [(c.id, c.name, orjson.loads(c.arguments)) for c in first.calls] == [
            (f"call_{city}", "get_weather", {"city": city}) for city in cities
        ]
        assert first.finish == "tool_calls"
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in first.calls
        ]
        answers = [{"role": "tool", "tool_call_id": c.id, "content": f"sunny in {c.id}"} for c in first.calls]
        backend.streams(*back.say("It is sunny."))
        conversation = [*ASKED, {"role": "assistant", "content": None, "tool_calls": calls}, *answers]
        second = await client(base, conversation, tools=[TOOL])
        assert (second.text, second.finish) == ("It is sunny.", "stop")
        sent = orjson.loads(backend.seen[1].body)
        assert back.results_in(sent) == [(f"call_{c}", f"sunny in call_{c}") for c in cities]
        check_history(back, sent, cities)


def check_history(back: Back, sent: dict[str, Any], cities: tuple[str, ...]) -> None:
    """Call ids and argument strings arrive as the model wrote them, and in order."""
    assert [(i, orjson.loads(a)) for i, a in back.calls_in(sent)] == [(f"call_{c}", {"city": c}) for c in cities]


@pairs
@pytest.mark.parametrize("url", [DATA_URL, "https://pictures.example/cat.png"], ids=["inline", "by address"])
async def test_a_picture_goes_in(client: Client, back: Back, url: str) -> None:
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]
    async with fake_backend() as backend, serving(setup(back, backend)) as base:
        backend.streams(*back.say("A square."))
        seen = await client(base, [{"role": "user", "content": parts}])
        assert back.image_in(orjson.loads(backend.seen[0].body)) == url
    assert seen.text == "A square."


@pairs
async def test_a_failure_before_the_stream(client: Client, back: Back) -> None:
    async with fake_backend() as backend, serving(setup(back, backend)) as base:
        backend.answers(429, b'{"error":{"message":"slow down"},"detail":"slow down"}', retry_after="7")
        seen = await client(base, ASKED)
    assert "slow down" in (seen.error or "")
    if seen.status != 200:
        assert (seen.status, seen.headers["retry-after"]) == (429, "7")
    else:
        assert seen.error_code == "RATE_LIMIT_EXCEEDED"


@pairs
@pytest.mark.parametrize("how", ["said", "reset", "closed", "garbage"])
async def test_a_failure_in_the_stream(client: Client, back: Back, how: str) -> None:
    begun = back.say("Half an answer")[:-2] if back is BACKS["openai-responses"] else back.say("Half an answer")[:-3]

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        for piece in begun:
            await exchange.send(piece)
        if how == "said":
            await exchange.send(back.error)
            await exchange.end()
        elif how == "garbage":
            await exchange.send(b"data: {this is not JSON\n\n")
            await exchange.left()
        elif how == "reset":
            exchange.reset()
        else:
            await exchange.end()

    async with fake_backend() as backend, serving(setup(back, backend)) as base:
        backend.plays(script)
        seen = await client(base, ASKED)
    assert seen.error
    assert seen.text == "Half an answer"
    if how == "said":
        assert seen.error == "the model fell over"


@pairs
async def test_secrets_stay_here(client: Client, back: Back) -> None:
    async with fake_backend() as backend, serving(setup(back, backend)) as base:
        backend.answers(401, b'{"error":{"message":"Incorrect API key provided: backend-key"}}')
        seen = await client(base, ASKED)
        header, value = back.key
        assert backend.seen[0].headers[header] == value
    assert "backend-key" not in (seen.error or "")
    assert seen.status in (200, 502)


@pairs
async def test_a_client_that_leaves_stops_the_backend(client: Client, back: Back) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        for piece in back.say("Half an answer")[:5]:
            await exchange.send(piece)
        await exchange.left()

    async with fake_backend() as backend, serving(setup(back, backend)) as base:
        backend.plays(script)
        seen = Seen()
        reading = asyncio.create_task(client(base, ASKED, seen=seen))
        await seen.started.wait()
        reading.cancel()
        await asyncio.wait_for(backend.seen[0].gone.wait(), 1)


@pairs
async def test_twenty_conversations_at_once_stay_apart(client: Client, back: Back) -> None:
    async def script(exchange: Exchange) -> None:
        body = exchange.seen.body.decode()
        number = body[body.index("number ") + 7 :].split(".")[0]
        await exchange.head()
        for piece in back.think(f"thinking of {number}", f"you said {number}"):
            await exchange.send(piece)
            await asyncio.sleep(0)
        await exchange.end()

    async with fake_backend() as backend, serving(setup(back, backend)) as base:
        backend.plays(script)
        conversations = [[{"role": "user", "content": f"This is number {n}."}] for n in range(20)]
        own = [{"session_id": f"s-{n}"} if client is agentscope_client else {} for n in range(20)]
        answers = await asyncio.gather(*(client(base, t, **more) for t, more in zip(conversations, own, strict=True)))
    assert [a.text for a in answers] == [f"you said {n}" for n in range(20)]
    assert [a.reasoning for a in answers] == [f"thinking of {n}" for n in range(20)]
