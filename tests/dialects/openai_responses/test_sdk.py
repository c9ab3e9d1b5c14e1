"""The real SDK drives the running bridge, over each kind of backend, in each way that it knows of asking."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import openai
import orjson
import pydantic
import pytest
from openai.types.responses import Response

from bridge.engine.bridge import Bridge
from bridge.errors import ConfigError
from tests.pairs.test_conversations import (
    BACKS,
    chat_stream,
    responses_call,
    responses_stream,
    responses_text,
)
from tests.responses_judge import judge, wire_events
from tests.server.harness import FakeBackend, ask, fake_backend, serving

pytestmark = pytest.mark.interop

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Current weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


@dataclass
class Bridged:
    """The SDK's client of a running bridge, and what its backend is."""

    client: openai.AsyncOpenAI
    backend: FakeBackend
    url: str


@contextlib.asynccontextmanager
async def bridged(dialect: str, *, history: str = "off", **route: Any) -> AsyncIterator[Bridged]:
    async with fake_backend() as backend:
        config: dict[str, Any] = {
            "backends": {
                "it": {"dialect": dialect, "url": f"{backend.url}/v1", "api_key": "backend-key"},
                "demo": {"dialect": "demo"},
            },
            "routes": [
                {"dialect": "openai-responses", "path": "/v1", "backend": "it", **route},
                {"dialect": "openai-chat", "path": "/v1", "backend": "it"},
                {"dialect": "openai-responses", "path": "/demo/v1", "backend": "demo"},
            ],
            "stores": {"history": history},
        }
        async with (
            serving(config) as base,
            openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="client-key", max_retries=0) as client,
        ):
            yield Bridged(client, backend, base)


@contextlib.asynccontextmanager
async def demo() -> AsyncIterator[openai.AsyncOpenAI]:
    async with bridged("openai-chat") as it:
        yield it.client.with_options(base_url=f"{it.url}/demo/v1")


both = pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses"])


# ---------------------------------------------------------------------- texts


@both
async def test_create(dialect: str) -> None:
    async with bridged(dialect) as it:
        it.backend.streams(*BACKS[dialect].think("Hm.", "It is sunny."))
        whole = await it.client.responses.create(
            model="m", input="Weather?", instructions="Be short.", metadata={"a": "b"}
        )
        assert it.backend.seen[0].headers["authorization"] == "Bearer backend-key"
    assert whole.output_text == "It is sunny."
    assert [item.type for item in whole.output] == ["reasoning", "message"]
    assert whole.usage is not None
    assert (whole.usage.input_tokens, whole.usage.output_tokens, whole.usage.total_tokens) == (9, 4, 13)
    assert (whole.status, whole.instructions, whole.metadata) == ("completed", "Be short.", {"a": "b"})
    Response.model_validate(whole.to_dict(), strict=True)


@both
async def test_plain_iteration(dialect: str) -> None:
    async with bridged(dialect) as it:
        it.backend.streams(*BACKS[dialect].think("Hm.", "It is sunny."))
        stream = await it.client.responses.create(model="m", input="Weather?", stream=True)
        events = [event async for event in stream]
    judge([event.to_dict() for event in events])
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "It is sunny."
    assert "".join(e.delta for e in events if e.type == "response.reasoning_text.delta") == "Hm."


@both
async def test_the_helper(dialect: str) -> None:
    async with bridged(dialect) as it:
        it.backend.streams(*BACKS[dialect].say("It is sunny."))
        async with it.client.responses.stream(model="m", input="Weather?") as stream:
            done = [event.text async for event in stream if event.type == "response.output_text.done"]
            final = await stream.get_final_response()
    assert done == [final.output_text] == ["It is sunny."]


class City(pydantic.BaseModel):
    name: str
    people: int


@both
@pytest.mark.parametrize("streamed", [False, True])
async def test_parse(dialect: str, streamed: bool) -> None:
    async with bridged(dialect) as it:
        it.backend.streams(*BACKS[dialect].say('{"name":"Oslo","people":7}'))
        if streamed:
            async with it.client.responses.stream(model="m", input="A city", text_format=City) as stream:
                parsed = (await stream.get_final_response()).output_parsed
        else:
            parsed = (await it.client.responses.parse(model="m", input="A city", text_format=City)).output_parsed
        sent = it.backend.seen[0].json
    assert parsed == City(name="Oslo", people=7)
    schema = sent["text"]["format"] if dialect == "openai-responses" else sent["response_format"]["json_schema"]
    assert (schema["name"], schema["strict"]) == ("City", True)
    assert schema["schema"]["required"] == ["name", "people"]


# ---------------------------------------------------------------------- tools


def replies(*answers: list[bytes]) -> Callable[[Any], Any]:
    """A backend that gives one answer after the other."""
    waiting = list(answers)

    async def script(exchange: Any) -> None:
        await exchange.stream(*waiting.pop(0))

    return script


REASONED = [
    {
        "type": "reasoning",
        "id": "rs_9",
        "summary": [{"type": "summary_text", "text": "Two."}],
        "encrypted_content": "e/==",
    },
    responses_call("Paris"),
    responses_call("Rome"),
]


def reasoned_stream() -> list[bytes]:
    """Reasoning that must go back, then two calls."""
    head = {"id": "resp_1", "object": "response", "created_at": 1_700_000_000, "model": "m-1", "output": []}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {**head, "status": "in_progress"}}]
    for index, item in enumerate(REASONED):
        events += [
            {"type": f"response.output_item.{w}", "output_index": index, "item": item} for w in ("added", "done")
        ]
    events.append({"type": "response.completed", "response": {**head, "status": "completed", "output": REASONED}})
    return [b"data: " + orjson.dumps({**e, "sequence_number": n}) + b"\n\n" for n, e in enumerate(events)]


async def loop(client: openai.AsyncOpenAI, streamed: bool) -> tuple[list[Any], Response]:
    """A tool loop as people write it: the whole output goes back, and a result for each call."""
    conversation: list[Any] = [{"role": "user", "content": "Weather in Paris and Rome?"}]
    seen: list[Any] = []
    for _ in range(3):
        asked: dict[str, Any] = {
            "model": "m",
            "input": conversation,
            "tools": [WEATHER],
            "include": ["reasoning.encrypted_content"],
        }
        if streamed:
            async with client.responses.stream(**asked) as stream:
                answer: Any = await stream.get_final_response()
        else:
            answer = await client.responses.create(**asked)
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return seen, answer
        seen += calls
        conversation += answer.output
        for call in calls:
            city = json.loads(call.arguments)["city"]
            conversation.append({"type": "function_call_output", "call_id": call.call_id, "output": f"sunny in {city}"})
    raise AssertionError("the loop does not end")


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_tool_loop_over_chat(streamed: bool) -> None:
    """All calls of a turn stand in one message there, together with the reasoning before them."""
    whole = [
        {"index": n, "id": f"call_{c}", "function": {"name": "get_weather", "arguments": f'{{"city":"{c}"}}'}}
        for n, c in enumerate(("Paris", "Rome"))
    ]
    deltas = [{"reasoning_content": "Two."}, *({"tool_calls": [call]} for call in whole)]
    calling = chat_stream(*deltas, finish="tool_calls")
    async with bridged("openai-chat") as it:
        it.backend.plays(replies(calling, chat_stream({"content": "Sunny in both."})))
        calls, answer = await loop(it.client, streamed)
        sent = it.backend.seen[1].json["messages"]
    assert [(c.call_id, json.loads(c.arguments)) for c in calls] == [
        ("call_Paris", {"city": "Paris"}),
        ("call_Rome", {"city": "Rome"}),
    ]
    assert answer.output_text == "Sunny in both."
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "tool"]
    assert sent[1]["reasoning_content"] == "Two."
    assert [c["id"] for c in sent[1]["tool_calls"]] == ["call_Paris", "call_Rome"]
    assert [m["content"] for m in sent[2:]] == ["sunny in Paris", "sunny in Rome"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_tool_loop_over_responses(streamed: bool) -> None:
    """Reasoning goes back as it came: its id, its summary, its encrypted content."""
    async with bridged("openai-responses") as it:
        it.backend.plays(replies(reasoned_stream(), responses_stream(responses_text("Sunny in both."))))
        calls, answer = await loop(it.client, streamed)
        first, second = (seen.json for seen in it.backend.seen)
    assert [c.id for c in calls] == ["fc_Paris", "fc_Rome"]
    assert answer.output_text == "Sunny in both."
    assert (first["tools"], first["include"], first["store"]) == ([WEATHER], ["reasoning.encrypted_content"], False)
    assert second["input"][1:4] == REASONED
    assert [(i["type"], i["output"]) for i in second["input"][4:]] == [
        ("function_call_output", "sunny in Paris"),
        ("function_call_output", "sunny in Rome"),
    ]


async def test_parsed_tool_arguments() -> None:
    class GetWeather(pydantic.BaseModel):
        city: str

    async with bridged("openai-chat") as it:
        it.backend.streams(*BACKS["openai-chat"].call("Paris"))
        tool = openai.pydantic_function_tool(GetWeather, name="get_weather")["function"]
        answer = await it.client.responses.parse(model="m", input="?", tools=[{"type": "function", **tool}])  # type: ignore[typeddict-item,list-item]
    assert [c.parsed_arguments for c in answer.output if c.type == "function_call"] == [{"city": "Paris"}]


# ---------------------------------------------------------------------- the demo agent


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("scene", "status", "kinds"),
    [
        ("text", "completed", ["message"]),
        ("reasoning", "completed", ["reasoning", "message"]),
        ("tool", "completed", ["message", "function_call"]),
        ("refusal", "completed", ["message"]),
        ("image", "completed", ["message"]),
        ("data", "completed", ["message"]),
        ("length", "incomplete", ["message"]),
        ("filter", "incomplete", ["message"]),
        ("steps", "completed", ["message"]),
        ("server tool", "completed", ["message"]),
    ],
)
async def test_the_scenes_of_the_demo(scene: str, status: str, kinds: list[str], streamed: bool) -> None:
    async with demo() as client:
        if streamed:
            events = [e async for e in await client.responses.create(model="demo", input=scene, stream=True)]
            judge([e.to_dict() for e in events])
            answer = events[-1].response
        else:
            answer = await client.responses.create(model="demo", input=scene)
        Response.model_validate(answer.to_dict(), strict=True)
    assert answer.status == status
    assert list(dict.fromkeys(item.type for item in answer.output)) == kinds


# ---------------------------------------------------------------------- failures


async def test_a_failure_in_the_stream() -> None:
    """The package raises with the reason, and whoever reads on gets the failed response."""
    async with demo() as client:
        with pytest.raises(openai.APIError, match="failed in the middle") as caught:
            async for _ in await client.responses.create(model="demo", input="error late", stream=True):
                pass
        events = await wire_events(client, model="demo", input="error late")
    judge(events)
    assert (caught.value.code, caught.value.type) == ("upstream_error", "upstream_error")
    error, last = events[-2], events[-1]["response"]
    assert error["error"] == {**caught.value.body, "message": error["message"]}  # type: ignore[dict-item]
    assert (error["code"], error["param"]) == ("upstream_error", None)
    assert (last["error"]["code"], last["error"]["type"]) == ("server_error", "upstream_error")
    assert last["error"]["message"] == error["message"]
    assert last["output"][0]["content"][0]["text"] == "Half an ans"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("scene", "kind", "code"),
    [
        ("error", openai.InternalServerError, "upstream_error"),
        ("limited", openai.RateLimitError, "rate_limit_exceeded"),
    ],
)
async def test_a_failure_before_it(scene: str, kind: type[openai.APIStatusError], code: str, streamed: bool) -> None:
    async with demo() as client:
        with pytest.raises(kind) as caught:
            await client.responses.create(model="demo", input=scene, stream=streamed)
    assert caught.value.code == code
    if scene == "limited":
        assert caught.value.response.headers["retry-after"] == "7"


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("previous_response_id", "resp_1", "previous_response_id"),
        ("conversation", "conv_1", "conversation"),
        ("store", True, "store"),
        ("background", True, "background"),
        ("input", [{"type": "item_reference", "id": "msg_1"}], "input[0].type"),
        ("temperature", "hot", "temperature"),
    ],
)
async def test_what_is_not_supported_is_said(field: str, value: Any, param: str) -> None:
    asked: dict[str, Any] = {"model": "m", "input": "Hi", field: value}
    async with demo() as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(**asked)
    assert caught.value.param == param
    assert field in caught.value.message


async def test_responses_cannot_be_fetched() -> None:
    async with demo() as client:
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve("resp_1")
        with pytest.raises(openai.NotFoundError):
            await client.responses.cancel("resp_1")


async def test_tokens_are_counted_by_a_backend_that_can() -> None:
    counts = b'{"object":"response.input_tokens","input_tokens":42}'
    async with bridged("openai-responses", history="sqlite:///:memory:") as it:
        it.backend.streams(*BACKS["openai-responses"].say("It is sunny."))
        first = await it.client.responses.create(model="m", input="Weather?")
        it.backend.answers(200, counts)
        counted = await it.client.responses.input_tokens.count(
            model="m", input="And tomorrow?", previous_response_id=first.id, instructions="Be short.", tools=[WEATHER]
        )
        assert (counted.input_tokens, counted.object) == (42, "response.input_tokens")
        seen = it.backend.seen[-1]
        assert seen.path == "/v1/responses/input_tokens"
        # Nothing but what that endpoint takes, and the whole talk, which the backend does not have.
        assert seen.json.keys() == {"model", "input", "instructions", "tools"}
        assert [item["role"] for item in seen.json["input"]] == ["user", "assistant", "user"]
        it.backend.answers(429, b'{"error":{"message":"slow down","type":"rate_limit_error"}}')
        with pytest.raises(openai.RateLimitError, match="slow down"):
            await it.client.responses.input_tokens.count(model="m", input="Hi")
        with pytest.raises(openai.BadRequestError, match="resp_none"):
            await it.client.responses.input_tokens.count(model="m", input="Hi", previous_response_id="resp_none")
        # A response of that name is another thing.
        with pytest.raises(openai.NotFoundError):
            await it.client.responses.retrieve("input_tokens")


@both
async def test_tokens_are_estimated_where_the_backend_cannot_count(dialect: str) -> None:
    async with bridged(dialect) as it:
        it.backend.answers(404, b'{"detail":"Not Found"}')
        raw = await it.client.responses.input_tokens.with_raw_response.count(
            model="m", input="How is the weather?", tools=[WEATHER]
        )
        assert raw.headers["x-bridge-estimated"] == "tokens"
        assert 10 < raw.parse().input_tokens < 200


@pytest.mark.parametrize("options", [{}, {"hosted_tools": "drop"}])
async def test_hosted_tools_over_chat_are_refused_or_left_out(options: dict[str, Any]) -> None:
    tools: Any = [{"type": "web_search"}, WEATHER]
    async with bridged("openai-chat", options={"hosted_tools": "keep"}) as it:
        with pytest.raises(openai.BadRequestError) as caught:
            await it.client.responses.create(model="m", input="Hi", tools=tools)
        assert caught.value.param == "tools[0].type"
        assert it.backend.seen == []
    async with bridged("openai-chat", options=options) as it:
        it.backend.streams(*BACKS["openai-chat"].say("Sunny."))
        raw = await it.client.responses.with_raw_response.create(model="m", input="Hi", tools=tools)
        assert raw.headers["x-bridge-lost"] == "tools"
        assert [t["function"]["name"] for t in it.backend.seen[0].json["tools"]] == ["get_weather"]


async def test_a_usage_that_the_backend_did_not_tell_is_named_in_a_header() -> None:
    async with bridged("openai-chat") as it:
        it.backend.streams(*BACKS["openai-chat"].say("Sunny."))
        told = await it.client.responses.with_raw_response.create(model="m", input="Hi")
        it.backend.streams(*chat_stream({"content": "Sunny."}, usage=False))
        untold = await it.client.responses.with_raw_response.create(model="m", input="Hi")
    assert (untold.headers["x-bridge-lost"], untold.parse().usage.total_tokens) == ("usage", 0)
    assert "x-bridge-lost" not in told.headers
    assert told.parse().usage.total_tokens > 0


# ---------------------------------------------------------------------- the route


async def test_both_apis_of_openai_at_one_address() -> None:
    async with bridged("openai-chat") as it:
        it.backend.answers(
            200, b'{"object":"list","data":[{"id":"gpt-x","object":"model","created":5,"owned_by":"me"}]}'
        )
        assert [m.id async for m in await it.client.models.list()] == ["gpt-x"]
        assert len(it.backend.seen) == 1
        assert (await it.client.models.retrieve("gpt-x")).owned_by == "me"
        it.backend.streams(*BACKS["openai-chat"].say("Hello."))
        chat = await it.client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
        assert chat.choices[0].message.content == "Hello."
        assert (await it.client.responses.create(model="m", input="Hi")).output_text == "Hello."


@pytest.mark.parametrize("streamed", [False, True])
async def test_passthrough_keeps_every_byte(streamed: bool) -> None:
    """Also of what the route itself would refuse, where the backend is said to store responses."""
    body = orjson.dumps(
        {
            "model": "m",
            "input": "Hi",
            "stream": streamed,
            "store": True,
            "previous_response_id": "resp_0",
            "novel": {"a": 1},
        }
    )
    wire = b'event: response.created\ndata: {"type":"response.created", "odd": 1}\n\n' + b"".join(
        responses_stream(responses_text("Hi"))[1:]
    )
    whole = b'{"id":"resp_1",  "status":"completed", "output":[], "novel":true}'
    async with bridged("openai-responses", passthrough=True, options={"stored": "backend"}) as it:
        if streamed:
            it.backend.streams(wire)
        else:
            it.backend.answers(200, whole)
        reply = await ask("POST", f"{it.url}/v1/responses", body, {"content-type": "application/json"})
        assert it.backend.seen[0].body == body
    assert reply.body == (wire if streamed else whole)


async def test_without_passthrough_unknown_things_are_kept() -> None:
    item = {"type": "novel_call", "id": "nc_1", "status": "completed", "payload": [1]}
    head = {"id": "resp_7", "object": "response", "created_at": 1, "model": "m-1", "output": [], "novel": {"x": 1}}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**head, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.novel_call.progress", "output_index": 0, "item_id": "nc_1", "percent": 40},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.novel_summary", "detail": None},
        {"type": "response.completed", "response": {**head, "status": "completed", "output": [item]}},
    ]
    async with bridged("openai-responses") as it:
        it.backend.streams(*(b"data: " + orjson.dumps(e) + b"\n\n" for e in events))
        asked: dict[str, Any] = {
            "model": "m",
            "input": "Hi",
            "novel_option": [True],
            "tools": [{"type": "novel", "a": 1}],
        }
        body = orjson.dumps({**asked, "stream": True})
        reply = await ask("POST", f"{it.url}/v1/responses", body, {"content-type": "application/json"})
        sent = it.backend.seen[0].json
    assert (sent["novel_option"], sent["tools"]) == ([True], [{"type": "novel", "a": 1}])
    got = [orjson.loads(line[6:]) for line in reply.body.splitlines() if line.startswith(b"data: ")]
    assert [e["sequence_number"] for e in got] == list(range(len(got)))
    kept = [{k: v for k, v in e.items() if k != "sequence_number"} for e in got]
    assert kept[2:6] == events[1:5]
    assert (kept[-1]["response"]["output"], kept[-1]["response"]["novel"]) == ([item], {"x": 1})


async def test_routes_at_one_path_list_the_models_of_both() -> None:
    async with fake_backend() as one, fake_backend() as other:
        one.answers(200, b'{"data":[{"id":"a"},{"id":"both","owned_by":"one"}]}')
        other.answers(200, b'{"data":[{"id":"both","owned_by":"other"},{"id":"b"}]}')
        config: dict[str, Any] = {
            "backends": {
                "one": {"dialect": "openai-chat", "url": f"{one.url}/v1"},
                "other": {"dialect": "openai-responses", "url": f"{other.url}/v1"},
            },
            "routes": [
                {"dialect": "openai-chat", "path": "/v1", "backend": "one"},
                {"dialect": "openai-responses", "path": "/v1", "backend": "other"},
            ],
        }
        async with (
            serving(config) as base,
            openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="k", max_retries=0) as client,
        ):
            assert [(m.id, m.owned_by) async for m in await client.models.list()] == [
                ("a", "unknown"),
                ("both", "one"),
                ("b", "unknown"),
            ]
            # One that does not answer takes nothing from the other; nobody answering is an error.
            one.answers(500, b"{}")
            assert [m.id async for m in await client.models.list()] == ["both", "b"]
            other.answers(500, b"{}")
            with pytest.raises(openai.InternalServerError):
                await client.models.list()


async def test_one_path_takes_each_endpoint_once() -> None:
    twice = [{"dialect": "openai-responses", "path": "/v1", "backend": "demo"}] * 2
    with pytest.raises(ConfigError, match='POST "/v1/responses" is already served'):
        Bridge.from_config({"backends": {"demo": {"dialect": "demo"}}, "routes": twice})
