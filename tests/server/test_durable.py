"""Durable routes through real sockets: the request starts a run that is kept, its answer is one reader of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from bridge.contract import Frame, Operation, offers, registry
from bridge.engine.bridge import Bridge
from bridge.engine.config import parse
from bridge.errors import ConfigError
from bridge.server import running
from bridge.translation.framing import sse
from tests.server.harness import Exchange, FakeBackend, Reply, ask, fake_backend, free_port, post, serving
from tests.stores.conftest import postgres  # noqa: F401
from tests.stores.run_engines import RunEngine, run_engine  # noqa: F401

CHUNK = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n'
END = b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def config(folder: Path, backend: dict[str, Any], *fronts: str, **server: Any) -> dict[str, Any]:
    return {
        "backends": {"it": backend},
        "routes": [{"dialect": f, "path": f"/{f}", "backend": "it", "durable": True} for f in fronts or ("ag-ui",)],
        "stores": {"runs": f"sqlite:///{folder}/runs.db"},
        "server": server,
    }


def llm(backend: FakeBackend) -> dict[str, Any]:
    return {"dialect": "openai-chat", "url": backend.url, "model": "m"}


def run_input(text: str = "Hi", run: str = "r1") -> dict[str, Any]:
    messages = [{"id": "1", "role": "user", "content": text}]
    return {"threadId": "t1", "runId": run, "state": {}, "messages": messages, "tools": [], "context": [],
            "forwardedProps": {}}  # fmt: skip


def chat(text: str = "Hi", stream: bool = True) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "stream": stream}


def frames(body: bytes) -> list[Frame]:
    splitter = sse.Splitter()
    out = [*splitter.feed(body), *splitter.close()]
    assert all(isinstance(frame, Frame) and frame.id for frame in out), "each has an id"
    return [frame for frame in out if isinstance(frame, Frame)]


def cursor(frame: Frame) -> tuple[int, ...]:
    assert frame.id is not None
    return tuple(map(int, frame.id.split("-")))


async def read_some(url: str, body: Any, enough: bytes) -> bytes:
    """Posts, reads until the answer holds `enough`, and leaves."""
    got = b""
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
        assert response.status == 200
        while enough not in got:
            piece = await response.content.readany()
            assert piece
            got += piece
    return got


def _in_two_steps(go_on: asyncio.Event) -> Callable[[Exchange], Awaitable[None]]:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(CHUNK % b"one ")
        await go_on.wait()
        await exchange.send(CHUNK % b"two")
        await exchange.send(END)
        await exchange.end()

    return script


@pytest.fixture
async def backend() -> AsyncIterator[FakeBackend]:
    async with fake_backend() as backend:
        yield backend


async def test_every_dialect(tmp_path: Path) -> None:
    streamed = [d for d in map(registry.get, registry.names()) if d.framing == "sse"]
    fronts = [dialect.name for dialect in streamed if offers(dialect.surface, Operation.RUN)]
    async with serving(config(tmp_path, {"dialect": "demo"}, *fronts)) as url:
        for front in fronts:
            dialect = registry.get(front)
            wire = dialect.example_request("reasoning")
            reply = await ask("POST", f"{url}/{front}{wire.target}", wire.body, dict(wire.headers))
            assert reply.status == 200, front
            assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert reply.headers["cache-control"] == "no-cache, no-transform"
            assert b"42" in reply.body, front
            if not dialect.event_ids:
                assert b"id: " not in reply.body
                continue
            cursors = [cursor(frame) for frame in frames(reply.body)]
            assert cursors == sorted(set(cursors))


async def test_a_run_goes_on_without_its_reader_and_is_read_again(backend: FakeBackend, tmp_path: Path) -> None:
    go_on = asyncio.Event()

    backend.plays(_in_two_steps(go_on))
    async with serving(config(tmp_path, llm(backend))) as url:
        first = await read_some(f"{url}/ag-ui", run_input(), b"one ")
        go_on.set()
        seen = frames(first)
        rest = await post(f"{url}/ag-ui", run_input(), last_event_id=seen[-1].id or "")
        assert rest.status == 200
        whole = await post(f"{url}/ag-ui", run_input())
        assert frames(whole.body) == [*seen, *frames(rest.body)]
        assert [orjson.loads(f.data)["type"] for f in frames(whole.body)][-1] == "RUN_FINISHED"
        assert len(backend.seen) == 1, "nothing ran twice"
        last = frames(whole.body)[-1].id or ""
        assert (await post(f"{url}/ag-ui", run_input(), last_event_id=last)).status == 204


async def test_two_processes_on_one_store(backend: FakeBackend, tmp_path: Path, run_engine: RunEngine) -> None:  # noqa: F811
    go_on = asyncio.Event()
    backend.plays(_in_two_steps(go_on))
    it = {**config(tmp_path, llm(backend)), "stores": {"runs": run_engine.url}}
    async with serving(dict(it)) as one, serving(dict(it)) as two:
        seen = frames(await read_some(f"{one}/ag-ui", run_input(), b"one "))
        ahead = await post(f"{two}/ag-ui", run_input(), last_event_id="99000000000-0")
        assert (ahead.status, b"99000000000-0, which is beyond its last event" in ahead.body) == (422, True)
        reading = asyncio.create_task(post(f"{two}/ag-ui", run_input(), last_event_id=seen[-1].id or ""))
        go_on.set()
        there = frames((await reading).body)
        assert [*seen, *there] == frames((await post(f"{one}/ag-ui", run_input())).body)
        assert len(backend.seen) == 1


async def test_the_same_run_with_another_body(tmp_path: Path) -> None:
    async with serving(config(tmp_path, {"dialect": "demo"})) as url:
        assert (await post(f"{url}/ag-ui", run_input("text"))).status == 200
        reply = await post(f"{url}/ag-ui", run_input("image"))
        assert reply.status == 409


@pytest.mark.parametrize("sent", ["$", "12", "1-2-3", "a-b"])
async def test_an_ill_formed_cursor(tmp_path: Path, sent: str) -> None:
    async with serving(config(tmp_path, {"dialect": "demo"}, "openai-chat")) as url:
        reply = await post(f"{url}/openai-chat/chat/completions", chat(), last_event_id=sent)
        assert reply.status == 400
        assert reply.json["error"]["param"] == "Last-Event-ID"


async def test_an_answer_in_one_piece(tmp_path: Path) -> None:
    async with serving(config(tmp_path, {"dialect": "demo"}, "openai-chat")) as url:
        reply = await post(f"{url}/openai-chat/chat/completions", chat("server tool", stream=False))
        assert reply.status == 200
        assert reply.json["choices"][0]["message"]["content"] == "It is sunny in Paris, 21 C."
        assert "tool_result" in reply.headers["x-bridge-lost"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_run_that_fails_at_once_is_a_status(backend: FakeBackend, tmp_path: Path, stream: bool) -> None:
    backend.answers(429, b'{"error":{"message":"slow down"}}', retry_after="7")
    async with serving(config(tmp_path, llm(backend), "openai-chat")) as url:
        reply = await post(f"{url}/openai-chat/chat/completions", chat(stream=stream))
        assert reply.status == 429
        assert reply.headers["retry-after"] == "7"
        assert reply.json["error"]["message"]


async def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    it = config(tmp_path, {"dialect": "demo"}, "openai-chat")
    it["routes"][0] = {**it["routes"][0], "models": {"known": "it"}}
    del it["routes"][0]["backend"]
    async with serving(it) as url:
        assert (await post(f"{url}/openai-chat/chat/completions", chat())).status == 404


async def test_silence_is_kept_warm(backend: FakeBackend, tmp_path: Path) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.left()

    backend.plays(script)
    async with serving(config(tmp_path, llm(backend), keepalive="50ms")) as url:
        got = await read_some(f"{url}/ag-ui", run_input(), b": keep-alive\n\n: keep-alive\n\n")
        assert got.startswith(b"id: ")


async def test_a_server_that_stops(backend: FakeBackend, tmp_path: Path) -> None:
    """The run is ended in its log, and its readers are told by it."""

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(CHUNK % b"one ")
        await exchange.left()

    backend.plays(script)
    section = {"server": {"port": free_port(), "drain": "50ms"}}
    it = {**config(tmp_path, llm(backend), "ag-ui", "openai-chat"), **section}
    async with aiohttp.ClientSession() as session:
        async with running(Bridge.from_config(it)) as port:
            base = f"http://127.0.0.1:{port}"
            responses = [
                await session.post(f"{base}/ag-ui", json=run_input()),
                await session.post(f"{base}/openai-chat/chat/completions", json=chat()),
            ]
            for response in responses:
                got = b""
                while b"one " not in got:
                    got += await response.content.readany()
        agui, openai = [await response.content.read() for response in responses]
    end = orjson.loads(frames(agui)[-1].data)
    assert end["type"] == "RUN_ERROR"
    assert "stopped" in end["message"]
    assert b"stopped" in openai


async def test_a_store_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "runs.db").mkdir()
    async with serving(config(tmp_path, {"dialect": "demo"}, "openai-chat")) as url:
        reply = await post(f"{url}/openai-chat/chat/completions", chat())
        assert reply.status == 503
        assert str(tmp_path) not in reply.body.decode()


async def test_runs_belong_to_their_owner(tmp_path: Path) -> None:
    keys = [{"name": name, "key": f"key-of-{name}"} for name in ("ann", "bob")]
    async with serving(config(tmp_path, {"dialect": "demo"}, auth={"keys": keys})) as url:
        ann: Reply = await post(f"{url}/ag-ui", run_input("text"), authorization="Bearer key-of-ann")
        bob = await post(f"{url}/ag-ui", run_input("image"), authorization="Bearer key-of-bob")
        assert (ann.status, bob.status) == (200, 200), "ids that clients invent are kept per owner"
        assert b"Here is a picture" in bob.body
        assert b"Here is a picture" not in ann.body


# ---------------------------------------------------------------------- configuration


def test_durable_does_not_go_with_passthrough() -> None:
    with pytest.raises(ConfigError, match=r"routes\[0\]\.durable: cannot be combined with passthrough"):
        parse(
            {
                "backends": {"it": {"dialect": "openai-chat", "url": "http://h"}},
                "routes": [
                    {"dialect": "openai-chat", "path": "/v1", "backend": "it", "durable": True, "passthrough": True}
                ],
            }
        )


def test_without_the_extra_its_name_is_told() -> None:
    code = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from bridge.engine.bridge import Bridge\n"
        "it = {'backends': {'d': {'dialect': 'demo'}}, 'stores': {'runs': 'postgresql://h/d'},\n"
        "      'routes': [{'dialect': 'ag-ui', 'path': '/x', 'backend': 'd', 'durable': False}]}\n"
        "Bridge.from_config(it)\n"
        "it['routes'][0]['durable'] = True\n"
        "try: Bridge.from_config(it)\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    needed = "postgresql needs the extra postgres: pip install 'dialect-bridge[postgres]'"
    assert done.stdout == f"ConfigError stores.runs: {needed}\n"


def test_what_is_not_durable_brings_in_no_store() -> None:
    code = (
        "import sys\n"
        "from bridge.engine.bridge import Bridge\n"
        "import bridge.server\n"
        "Bridge.from_config({'backends': {'d': {'dialect': 'demo'}},\n"
        "    'routes': [{'dialect': 'ag-ui', 'path': '/x', 'backend': 'd'}]})\n"
        "print(sorted({'sqlite3', 'asyncpg'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("stream", [True, False])
async def test_an_endless_answer_ends_at_the_bound_of_its_log(tmp_path: Path, stream: bool) -> None:
    async def endless(exchange: Exchange) -> None:
        await exchange.head()
        while True:
            await exchange.send(CHUNK % (b"x" * 1000))

    async with fake_backend() as backend:
        backend.plays(endless)
        setup = config(tmp_path, llm(backend), "openai-chat")
        setup["stores"]["max_run"] = "100KiB"
        async with serving(setup) as base, asyncio.timeout(40):
            reply = await post(f"{base}/openai-chat/chat/completions", chat(stream=stream))
            await backend.seen[0].gone.wait()
    assert "The run is longer than the limit of 102400 bytes (stores.max_run)." in reply.body.decode()
    assert reply.status == (200 if stream else 502)
    assert b"[DONE]" not in reply.body, "it does not read as a whole answer"
