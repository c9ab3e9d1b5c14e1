"""Such an API behind the bridge: what people at other frontends see, and what they leave behind."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from bridge.contract import Operation, offers, registry
from bridge.engine.config import parse
from bridge.errors import ConfigError
from bridge.model import fold
from bridge.run.backends.demo_backend import PICTURE
from bridge.translation.library import decode
from tests.server.harness import Exchange, ask, fake_backend, free_port, post, serving

from .helpers import BASE, CHUNK, config, llm, response_in, served
from .upstream import Upstream, dead, upstream, waits

RECORDED = response_in("runs-events")[2]
FRONTS = [name for name in registry.over_http() if offers(registry.get(name).surface, Operation.RUN)]
BODY = {"messages": [{"role": "user", "content": "hello"}], "model": "m", "stream": True}


def routes(url: str, folder: Path, **options: Any) -> dict[str, Any]:
    """Every frontend over the API at `url`."""
    back = {"dialect": "agent-runs", "url": url, "api_key": "alice-token", "options": options}
    return {
        "backends": {"it": back},
        "routes": [{"dialect": name, "path": f"/{name}", "backend": "it"} for name in FRONTS],
        "stores": {"history": f"sqlite:///{folder}/front.db"},
    }


def endpoint(name: str) -> str:
    return f"/{name}{registry.get(name).example_request('hello').target}"


# ---------------------------------------------------------------------- two bridges in a row


_SCHEMA = {"type": "object"}
OFFERS: dict[str, Any] = {
    "openai-chat": {"type": "function", "function": {"name": "get_weather", "parameters": _SCHEMA}},
    "openai-responses": {"type": "function", "name": "get_weather", "parameters": _SCHEMA, "strict": False},
    "anthropic-messages": {"name": "get_weather", "input_schema": _SCHEMA},
    "ollama": {"type": "function", "function": {"name": "get_weather", "parameters": _SCHEMA}},
    "gemini": {"functionDeclarations": [{"name": "get_weather"}]},
}
"""The tool that the demo calls, for clients that must offer what they run."""


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("scene", ["hello", "reasoning", "tools", "server tool", "error late"])
async def test_two_bridges_say_what_one_says(front: str, scene: str, tmp_path: Path) -> None:
    dialect = registry.get(front)
    wire = dialect.example_request(scene)
    body = {**orjson.loads(wire.body), **({"tools": [OFFERS[front]]} if scene == "tools" and front in OFFERS else {})}
    async with served(tmp_path) as behind, serving(routes(behind + BASE, tmp_path)) as far:
        direct = {"backends": {"it": {"dialect": "demo"}}, "routes": routes("", tmp_path)["routes"]}
        async with serving(direct) as near:
            data, headers = orjson.dumps(body), dict(wire.headers)
            replies = [await ask("POST", base + endpoint(front), data, headers) for base in (near, far)]
    one, two = (fold(decode(reply.body, front)) for reply in replies)
    assert [reply.status for reply in replies] == [200, 200]
    assert (two.text, two.reason, two.usage) == (one.text, one.reason, one.usage)
    assert [(c.name, c.arguments) for c in two.calls] == [(c.name, c.arguments) for c in one.calls]
    assert [r.call_id for r in two.results] == [r.call_id for r in one.results]
    assert (two.failure is None) == (one.failure is None)
    if one.failure is not None and two.failure is not None:
        assert two.failure.message == one.failure.message


async def test_a_picture_travels_through_both(tmp_path: Path) -> None:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
    body = {**BODY, "messages": [{"role": "user", "content": [{"type": "text", "text": "?"}, picture]}]}
    async with fake_backend() as model, served(tmp_path, llm(model)) as behind:
        model.streams(CHUNK % b"A square" + b"data: [DONE]\n\n")
        async with serving(routes(behind + BASE, tmp_path)) as base:
            reply = await post(base + endpoint("openai-chat"), body)
        assert fold(decode(reply.body, "openai-chat")).text == "A square"
        assert model.seen[0].json["messages"][0]["content"][1] == picture


async def test_a_talk_without_a_name_is_one_thread_of_which_the_whole_is_sent(tmp_path: Path) -> None:
    async with upstream() as server, serving(routes(server.url, tmp_path)) as base:
        conversation = list(BODY["messages"])  # type: ignore[call-overload]
        for word in ("and then?", "and then??"):
            reply = await post(base + endpoint("openai-chat"), {**BODY, "messages": conversation})
            conversation += [
                {"role": "assistant", "content": fold(decode(reply.body, "openai-chat")).text},
                {"role": "user", "content": word},
            ]
        await post(base + endpoint("openai-chat"), {**BODY, "messages": conversation})
        await post(base + endpoint("openai-chat"), {**BODY, "messages": conversation[:3]})
        first, second, third, other = (seen.json for seen in server.asked("/runs"))
    assert first["threadId"] == second["threadId"] == third["threadId"] != other["threadId"]
    assert [len(body["messages"]) for body in (first, second, third)] == [1, 3, 5]
    assert third["messages"][:3] == second["messages"]
    assert len({body["runId"] for body in (first, second, third, other)}) == 4


# ---------------------------------------------------------------------- trouble


@pytest.mark.parametrize("front", FRONTS)
async def test_a_reading_that_is_refused_for_good_is_an_error_of_the_front(front: str, tmp_path: Path) -> None:
    wire = registry.get(front).example_request("hello")
    async with upstream() as server, serving(routes(server.url, tmp_path, reconnect=[0])) as base:
        server.reads = [server.sends(RECORDED, 700, "close"), dead]
        reply = await ask("POST", base + endpoint(front), wire.body, dict(wire.headers))
    answer = fold(decode(reply.body, front))
    assert answer.failure is not None
    assert answer.text.startswith("turn 1")
    assert "could not be read to their end" in answer.failure.message


async def test_a_backend_that_is_not_there_is_an_error_of_the_front(tmp_path: Path) -> None:
    async with serving(routes(f"http://127.0.0.1:{free_port()}", tmp_path)) as base:
        reply = await post(base + endpoint("openai-chat"), BODY)
    assert reply.status == 502
    assert "the connection was refused" in reply.json["error"]["message"]


@pytest.mark.parametrize("front", FRONTS)
async def test_who_hangs_up_cancels_the_run(front: str, tmp_path: Path) -> None:
    wire = registry.get(front).example_request("hello")
    reading = asyncio.Event()

    async def half(exchange: Exchange, server: Upstream) -> None:
        await exchange.head()
        await exchange.send(server.own(RECORDED)[:700])
        reading.set()
        await exchange.left()

    async with upstream() as server, serving(routes(server.url, tmp_path)) as base:
        server.reads = [lambda exchange: half(exchange, server)]
        async with aiohttp.ClientSession() as session:
            response = await session.post(base + endpoint(front), data=wire.body, headers=dict(wire.headers))
            await response.content.readany()
            await reading.wait()
            response.close()
        async with asyncio.timeout(1):
            await server.canceled.wait()


async def test_a_backend_that_falls_silent_is_cancelled_too(tmp_path: Path) -> None:
    async with upstream() as server:
        server.reads = [waits]
        settings = routes(server.url, tmp_path)
        settings["backends"]["it"]["timeouts"] = {"first_event": 0.2}
        async with serving(settings) as base:
            reply = await post(base + endpoint("openai-chat"), BODY)
            assert reply.status == 504
            async with asyncio.timeout(1):
                await server.canceled.wait()


async def test_a_server_that_stops_and_comes_back_tells_what_became_of_the_run(tmp_path: Path) -> None:
    """Its run is lost with its process; the reader who comes back learns that from the log, and nothing twice."""
    port, wire = free_port(), registry.get("ag-ui").example_request("hello")
    async with fake_backend() as model:

        async def hangs(exchange: Exchange) -> None:
            await exchange.head()
            await exchange.send(CHUNK % b"Half an answer")
            await exchange.left()

        model.plays(hangs)
        settings = config(tmp_path, llm(model), server={"port": port, "drain": 0})
        async with serving(routes(f"http://127.0.0.1:{port}{BASE}", tmp_path)) as base, aiohttp.ClientSession() as web:
            async with serving(dict(settings)):
                response = await web.post(base + endpoint("ag-ui"), data=wire.body, headers=dict(wire.headers))
                came = b""
                while b"Half an answer" not in came and (piece := await response.content.readany()):
                    came += piece
            async with serving(dict(settings)):
                came += await response.read()
    events = [json.loads(line[6:]) for line in came.split(b"\n") if line.startswith(b"data: ")]
    assert [e["type"] for e in events].count("RUN_STARTED") == 1
    assert "".join(e.get("delta", "") for e in events) == "Half an answer"
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "RUN_LOST")


# ---------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    "wrong", [{"idle_limit": 0}, {"idle_limit": 3601}, {"reconnect": [-1]}, {"part_style": "x"}, {"runtime_mode": "x"}]
)
def test_options_that_are_none(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(routes("http://127.0.0.1:1", tmp_path, **wrong))
    assert f"backends.it.options.{next(iter(wrong))}" in caught.value.message


@pytest.mark.parametrize("forwards", [True, False])
async def test_readers_may_be_themselves_at_the_api(forwards: bool, tmp_path: Path) -> None:
    """With one key all readers of a bridge are one user there, with one user's places; their own keys may go on."""
    begun, release = asyncio.Queue[None](), asyncio.Event()

    async def waits_for_all(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(CHUNK % b"A word")
        begun.put_nowait(None)
        await release.wait()
        await exchange.send(b"data: [DONE]\n\n")
        await exchange.end()

    async with fake_backend() as model, served(tmp_path, llm(model), connection_limit=1) as behind:
        model.plays(waits_for_all)
        config = {**routes(behind + BASE, tmp_path, reconnect=[]), "server": {"auth": {"keys": [
            {"name": name, "key": f"{name}-token"} for name in ("alice", "bob")
        ]}}}  # fmt: skip
        config["backends"]["it"] |= (
            {"api_key": "", "forward_headers": ["authorization"]} if forwards else {"api_key": "alice-token"}
        )
        async with serving(config) as base:
            ask_as = [
                asyncio.create_task(post(base + endpoint("openai-chat"), BODY, authorization=f"Bearer {name}-token"))
                for name in ("alice", "bob")
            ]
            if forwards:
                for _ in ask_as:
                    await begun.get()
            else:
                # The one that has no place is given up, while the other one still reads.
                done, _ = await asyncio.wait(ask_as, return_when=asyncio.FIRST_COMPLETED)
                assert [task.result().status for task in done] == [502]
            release.set()
            replies = await asyncio.gather(*ask_as)
    assert sorted(reply.status for reply in replies) == [200, 200 if forwards else 502]


@pytest.mark.parametrize("attempts", [2, 3])
async def test_where_retry_is_configured_nothing_else_repeats(attempts: int, tmp_path: Path) -> None:
    async with upstream() as server:
        asked = 0

        async def busy(exchange: Exchange) -> None:
            nonlocal asked
            asked += 1
            await exchange.answer(503, b"{}", retry_after="0")

        server.starts = [busy]
        config = routes(server.url, tmp_path)
        config["backends"]["it"]["retry"] = {"attempts": attempts, "backoff": "1ms"}
        async with serving(config) as base:
            assert (await post(base + endpoint("openai-chat"), BODY)).status == 503
    assert asked == attempts
