"""Processes that serve: workers that die and are replaced, and a configuration that changes while streams are open."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson
import pytest
import yaml

from bridge.sdk.aip import Agent
from tests import forkserver
from tests.docs.helpers import COMMAND, Server, listeners, run, serve, server
from tests.server.harness import Exchange, FakeBackend, Reply, fake_backend, free_port, post

pytestmark = pytest.mark.slow

HELLO = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


def written(path: Path, url: str, mark: str, **section: Any) -> Path:
    """A configuration whose backend is told `mark` with each request."""
    llm = {"dialect": "openai-chat", "url": url, "headers": {"X-Mark": mark}}
    route = {"dialect": "openai-chat", "path": "/v1", "backend": "llm"}
    text = {"server": {"drain": "5s", **section}, "backends": {"llm": llm}, "routes": [route]}
    path.write_text(yaml.safe_dump({**text, "stores": {"history": "off"}}))
    return path


async def ask(served: Server, **more: Any) -> Reply:
    return await post(f"{served.url}/v1/chat/completions", {**HELLO, **more})


async def until(what: Callable[[], Any | Awaitable[Any]], why: Callable[[], str]) -> None:
    """Returns when it is true."""
    try:
        async with asyncio.timeout(30):
            while True:
                found = what()
                if await found if isinstance(found, Awaitable) else found:
                    return
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(why()) from None


def children(served: Server) -> list[int]:
    return sorted(forkserver.children(served.process.pid))


def listening(served: Server) -> int:
    """How many sockets of its port are open for connections: workers have one each."""
    place, state = f":{urlsplit(served.url).port:04X}", "0A"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return sum(1 for row in rows if row[1].endswith(place) and row[3] == state)


async def stopped(served: Server) -> int:
    """SIGTERM; gives the exit code."""
    served.process.send_signal(signal.SIGTERM)
    return await asyncio.to_thread(served.process.wait, 20)


# ---------------------------------------------------------------------- workers


async def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    async with fake_backend("openai-chat") as backend:
        backend.says("fine")
        config = written(tmp_path / "it.yaml", backend.url, "one")
        with serve(tmp_path, config, "--workers", "2", ready=None) as served:
            await until(lambda: len(children(served)) == 2, lambda: served.err)
            before = children(served)
            os.kill(before[0], signal.SIGKILL)
            await until(lambda: before[0] not in children(served) and len(children(served)) == 2, lambda: served.err)
            # Whoever is sent to its socket waits for the next one.
            replies = await asyncio.gather(*(ask(served) for _ in range(16)))
            assert [reply.status for reply in replies] == [200] * 16
            assert "worker" in served.err
            assert "ended with signal 9" in served.err
            assert served.out.count("curl -N") == 1
            assert await stopped(served) == 0


async def test_the_next_worker_has_the_configuration_in_use(tmp_path: Path) -> None:
    async with fake_backend("openai-chat") as backend:
        backend.says("fine")
        config = written(tmp_path / "it.yaml", backend.url, "one")
        with serve(tmp_path, config, "--workers", "2", ready=None) as served:
            await until(lambda: len(children(served)) == 2, lambda: served.err)
            config.write_text("backends: {}")
            before = children(served)
            for child in before:
                os.kill(child, signal.SIGKILL)
            await until(
                lambda: not set(before) & set(children(served)) and len(children(served)) == 2, lambda: served.err
            )
            assert (await ask(served)).status == 200
            assert backend.seen[-1].headers["x-mark"] == "one"
            assert await stopped(served) == 0


async def test_workers_that_die_as_they_start_end_the_server(tmp_path: Path) -> None:
    (tmp_path / "dying.py").write_text(
        "import os, pathlib\n"
        "seen = pathlib.Path(__file__).with_suffix('.seen')\n"
        "if seen.exists():\n"
        "    os._exit(3)\n"
        "seen.touch()  # the parent, which only checks\n"
        "async def run(request):\n"
        "    yield 'never'\n"
    )
    config = tmp_path / "it.yaml"
    config.write_text(
        "backends: {it: {dialect: python, target: 'dying:run'}}\n"
        "routes: [{dialect: openai-chat, path: /v1, backend: it}]\n"
    )
    command = (COMMAND, "serve", str(config), "--workers", "2", "--port", str(free_port()))
    done = await asyncio.to_thread(run, *command, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert b"ended with exit code 3" in done.stderr
    assert done.stderr.endswith(b"workers exit as soon as they start; the server stops\n")


def _told(served: Server) -> None:
    served.process.send_signal(signal.SIGTERM)


def _control_c(served: Server) -> None:
    """As a terminal says it: to every process of its group."""
    os.killpg(served.process.pid, signal.SIGINT)


@pytest.mark.parametrize("tell", [_told, _control_c])
@pytest.mark.parametrize("signals", [1, 2])
async def test_a_stop_drains_all_workers(tmp_path: Path, signals: int, tell: Callable[[Server], None]) -> None:
    async with fake_backend("openai-chat") as backend:
        held = Held(backend)
        config = written(tmp_path / "it.yaml", backend.url, "one", drain="60s")
        with serve(tmp_path, config, "--workers", "2", ready=None) as served:
            await until(lambda: listening(served) == 2, lambda: served.err)
            streams = [asyncio.create_task(ask(served, stream=True)) for _ in range(4)]
            for _ in streams:
                await held.begun.get()
            for _ in range(signals):
                tell(served)
                # Both workers: two signals that wait for one process are one.
                await until(lambda: served.err.count("INFO stopping; ") == 2, lambda: served.err)
            if signals == 1:
                held.release.set()
            bodies = [(await stream).body for stream in streams]
            assert await asyncio.to_thread(served.process.wait, 20) == 0
            end = b"data: [DONE]\n\n" if signals == 1 else b"The server is shutting down"
            assert [body for body in bodies if end not in body] == []


async def test_workers_share_the_limits_of_the_server(tmp_path: Path) -> None:
    async with fake_backend("openai-chat") as backend:
        held = Held(backend)
        config = written(tmp_path / "it.yaml", backend.url, "one", limits={"concurrent": 3, "queue": 0})
        with serve(tmp_path, config, "--workers", "2", ready=None) as served:
            await until(lambda: listeners(served.port) == 2, lambda: served.err)
            asking = [asyncio.create_task(ask(served, stream=True)) for _ in range(40)]
            refused = asyncio.as_completed(asking, timeout=30)
            assert [(await next(refused)).status for _ in range(37)] == [503] * 37
            held.release.set()
            replies = await asyncio.gather(*asking)
        assert sorted(reply.status for reply in replies) == [200] * 3 + [503] * 37


# ---------------------------------------------------------------------- another configuration


class Held:
    """A backend whose streams end when they are told to, and which answers at once what is not streamed."""

    def __init__(self, backend: FakeBackend) -> None:
        self.backend = backend
        self.release = asyncio.Event()
        self.begun = asyncio.Queue[str]()
        backend.says("fine")
        self._speak = backend.script
        backend.plays(self._play)

    async def _play(self, exchange: Exchange) -> None:
        if not exchange.seen.json.get("stream"):
            assert self._speak is not None
            await self._speak(exchange)
            return
        chunk = (
            b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,%b}]}\n\n'
        )
        await exchange.head()
        await exchange.send(chunk % b'"delta":{"role":"assistant","content":"half"},"finish_reason":null')
        self.begun.put_nowait(exchange.seen.headers["x-mark"])
        await self.release.wait()
        await exchange.send(chunk % b'"delta":{"content":" and half"},"finish_reason":"stop"')
        await exchange.send(b"data: [DONE]\n\n")
        await exchange.end()


async def mark_of(served: Server, backend: FakeBackend) -> str:
    """Which configuration answers a new connection."""
    reply = await ask(served)
    assert reply.status == 200, served.err
    return backend.seen[-1].headers["x-mark"]


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_new_configuration(tmp_path: Path, workers: int) -> None:
    async with fake_backend("openai-chat") as backend:
        held = Held(backend)
        config = written(tmp_path / "it.yaml", backend.url, "one")
        with serve(tmp_path, config, "--workers", str(workers), ready=None) as served:
            stream = asyncio.create_task(ask(served, stream=True))
            assert await held.begun.get() == "one"
            # A file that is wrong changes nothing, and the log says where it is wrong.
            config.write_text(config.read_text().replace("dialect: openai-chat", "dialect: opnai-chat"))
            served.process.send_signal(signal.SIGHUP)
            await until(lambda: "not changed" in served.err, lambda: served.err)
            assert 'did you mean "openai-chat"' in served.err
            assert f"{config}:" in served.err
            assert await mark_of(served, backend) == "one"
            # No request fails while it changes; from some moment on all are served by the new one.
            written(config, backend.url, "two")
            served.process.send_signal(signal.SIGHUP)
            await until(lambda: "new configuration is active" in served.err, lambda: served.err)
            await until(lambda: _is(mark_of(served, backend), "two"), lambda: served.err)
            assert [await mark_of(served, backend) for _ in range(8)] == ["two"] * 8
            # What was open is unharmed.
            held.release.set()
            reply = await stream
            assert b"and half" in reply.body
            assert reply.body.endswith(b"data: [DONE]\n\n")
            if workers > 1:
                await until(lambda: len(children(served)) == workers, lambda: served.err)
            assert served.out.count("curl -N") == 1
            assert await stopped(served) == 0
            assert "Traceback" not in served.err


async def _is(found: Awaitable[str], wanted: str) -> bool:
    return await found == wanted


@pytest.mark.parametrize("workers", [1, 2])
async def test_no_request_is_lost_while_it_changes(tmp_path: Path, workers: int) -> None:
    async with fake_backend("openai-chat") as backend:
        backend.says("fine")
        config = written(tmp_path / "it.yaml", backend.url, "0")
        with serve(tmp_path, config, "--workers", str(workers), ready=None) as served:
            over = asyncio.Event()
            seen: list[int] = []

            async def client() -> None:
                connector = aiohttp.TCPConnector(force_close=True)
                async with aiohttp.ClientSession(connector=connector) as session:
                    while not over.is_set():
                        async with session.post(f"{served.url}/v1/chat/completions", json=HELLO) as reply:
                            await reply.read()
                            seen.append(reply.status)

            clients = [asyncio.create_task(client()) for _ in range(3)]
            for number in (1, 2):
                # Some before each change, however slow the machine is: those of the clients go on beside it.
                before = len(seen)
                await until(lambda n=before: len(seen) >= n + 5, lambda: served.err)
                written(config, backend.url, str(number))
                served.process.send_signal(signal.SIGHUP)
                await until(lambda n=number: served.err.count("new configuration is") == n, lambda: served.err)
            over.set()
            await asyncio.gather(*clients)
            assert set(seen) == {200}
            assert await mark_of(served, backend) == "2"
            assert await stopped(served) == 0


async def test_an_idle_connection_finds_the_new_configuration(tmp_path: Path) -> None:
    async with fake_backend("openai-chat") as backend:
        backend.says("fine")
        config = written(tmp_path / "it.yaml", backend.url, "one")
        with serve(tmp_path, config, ready=None) as served:
            body = orjson.dumps(HELLO)
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
            assert b" 200 OK" in await reader.readline()
            written(config, backend.url, "two")
            served.process.send_signal(signal.SIGHUP)
            # It is closed, without anybody waiting for the next request on it.
            assert b"fine" in await asyncio.wait_for(reader.read(), 40)
            writer.close()
            assert await mark_of(served, backend) == "two"
            assert await stopped(served) == 0


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_new_address_that_cannot_be_had_changes_nothing(tmp_path: Path, workers: int) -> None:
    async with fake_backend("openai-chat") as backend:
        backend.says("fine")
        port = free_port()
        config = written(tmp_path / "it.yaml", backend.url, "one", port=port)
        command = (COMMAND, "serve", str(config), "--workers", str(workers))
        with server(tmp_path, *command, port=port, ready=None) as served:
            written(config, backend.url, "two", port=backend.port)
            served.process.send_signal(signal.SIGHUP)
            await until(lambda: "not changed" in served.err, lambda: served.err)
            assert "in use" in served.err
            assert await mark_of(served, backend) == "one"
            other = free_port()
            written(config, backend.url, "three", port=other)
            served.process.send_signal(signal.SIGHUP)
            await until(lambda: "new configuration is" in served.err, lambda: served.err)
            served.port = other
            assert await mark_of(served, backend) == "three"
            assert await stopped(served) == 0


async def test_a_stop_ends_what_is_left_of_an_old_configuration(tmp_path: Path) -> None:
    async with fake_backend("openai-chat") as backend:
        held = Held(backend)
        config = written(tmp_path / "it.yaml", backend.url, "one", drain="200ms")
        for workers in ("1", "2"):
            with serve(tmp_path, config, "--workers", workers, ready=None) as served:
                stream = asyncio.create_task(ask(served, stream=True))
                await held.begun.get()
                served.process.send_signal(signal.SIGHUP)
                await until(lambda: "new configuration is" in served.err, lambda: served.err)
                assert await stopped(served) == 0
                assert b"The server is shutting down" in (await stream).body


async def test_agents_over_grpc_are_taken_over(tmp_path: Path) -> None:
    config, listen = tmp_path / "it.yaml", f"127.0.0.1:{free_port()}"

    def write(agent: str, **options: object) -> None:
        told = json.dumps(options)
        config.write_text(
            "backends: {it: {dialect: demo}}\n"
            f"routes: [{{dialect: aip, listen: '{listen}', agent_id: {agent}, backend: it, options: {told}}}]\n"
            "stores: {history: off}\n"
        )

    async def agents() -> list[str]:
        async with Agent(f"127.0.0.1:{free_port()}", "asker") as asker:
            await asker.register_to_gateway(listen)
            return sorted(asker.get_nodes().keys() - {"asker"})

    write("a")
    with serve(tmp_path, config) as served:
        assert await agents() == ["a"]
        write("b")
        served.process.send_signal(signal.SIGHUP)
        await until(lambda: "new configuration is" in served.err, lambda: served.err)
        assert await agents() == ["b"]
        write("c", max_message=1000)
        served.process.send_signal(signal.SIGHUP)
        await until(lambda: "not changed" in served.err, lambda: served.err)
        assert f"tls and max_message of {listen} belong to its listener: a change needs a restart" in served.err
        assert await agents() == ["b"]
        assert await stopped(served) == 0
