"""A server that is told to stop: no new connection waits for it, what is open finishes, its port is free at once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest
import yaml

from bridge.testing import free_port
from tests.dialects.aip import peers, schema
from tests.docs.helpers import Server, listeners, serve, server
from tests.server.harness import fake_backend
from tests.server.test_workers import HELLO, Held, ask, children, stopped, until, written

pytestmark = pytest.mark.slow


async def refused(port: int) -> bool:
    """Whether a new connection is refused now. One that is accepted is closed again."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return True
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return False


async def is_ready(served: Server) -> bool:
    """Return whether all workers serve; connections are accepted before, and wait."""
    async with aiohttp.ClientSession() as session, session.get(f"{served.url}/readyz") as answer:
        return answer.status == 200


@contextlib.asynccontextmanager
async def draining(
    tmp_path: Path, workers: int, *, reloaded: bool = False
) -> AsyncIterator[tuple[Server, Held, asyncio.Task[Any]]]:
    """A server that was told to stop while a stream was open."""
    async with fake_backend("openai-chat") as backend:
        held = Held(backend)
        config = written(tmp_path / "it.yaml", backend.url, "one", drain="60s")
        with serve(tmp_path, config, "--workers", str(workers), ready=None) as served:
            await until(lambda: is_ready(served), lambda: served.err)
            stream = asyncio.create_task(ask(served, stream=True))
            await held.begun.get()
            if reloaded:
                served.process.send_signal(signal.SIGHUP)
                await until(lambda: "new configuration is" in served.err, lambda: served.err)
                # What is handed over is not refused meanwhile.
                assert (await ask(served)).status == 200
            served.process.send_signal(signal.SIGTERM)
            await until(lambda: served.err.count("INFO stopping; ") >= workers, lambda: served.err)
            yield served, held, stream
            assert not stream.done()
            held.release.set()
            assert (await stream).body.endswith(b"data: [DONE]\n\n")
            assert await asyncio.to_thread(served.process.wait, 20) == 0, served.err


@pytest.mark.parametrize("reloaded", [False, True], ids=["", "reloaded"])
@pytest.mark.parametrize("workers", [1, 2])
async def test_new_connections_are_refused_and_the_port_is_free(tmp_path: Path, workers: int, reloaded: bool) -> None:
    async with draining(tmp_path, workers, reloaded=reloaded) as (served, _, _):
        await until(lambda: refused(served.port), lambda: f"the port is still listened on\n{served.err}")
        assert [await refused(served.port) for _ in range(8)] == [True] * 8
        assert listeners(served.port) == 0
        command = served.process.args
        assert isinstance(command, list)
        (tmp_path / "next").mkdir()
        with server(tmp_path / "next", *command, port=served.port) as following:
            assert (await ask(following)).status == 200
            assert await stopped(following) == 0


async def test_connections_that_are_open_are_answered_that_the_server_stops(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        backend = await stack.enter_async_context(fake_backend("openai-chat"))
        held = Held(backend)
        config = written(tmp_path / "it.yaml", backend.url, "one", drain="60s")
        served = stack.enter_context(serve(tmp_path, config))
        sessions = [await stack.enter_async_context(aiohttp.ClientSession(served.url)) for _ in range(3)]
        for each in sessions:
            async with each.get("/healthz") as reply:
                assert reply.status == 200
        stream = asyncio.create_task(ask(served, stream=True))
        await held.begun.get()
        served.process.send_signal(signal.SIGTERM)
        await until(lambda: refused(served.port), lambda: served.err)
        # Their connections were opened before: a new one would be refused.
        async with sessions[0].get("/readyz") as reply:
            assert (reply.status, reply.headers["connection"]) == (503, "close")
            assert await reply.json() == {"status": "draining"}
        async with sessions[1].post("/v1/chat/completions", json=HELLO) as reply:
            assert (reply.status, reply.headers["connection"]) == (503, "close")
            assert reply.headers["retry-after"] == "1"
            told = (await reply.json())["error"]
            assert (told["code"], "stopping" in told["message"]) == ("overloaded", True)
        async with sessions[2].get("/healthz") as reply:
            assert (reply.status, reply.headers["connection"]) == (200, "close")
        held.release.set()
        assert (await stream).body.endswith(b"data: [DONE]\n\n")
        assert await asyncio.to_thread(served.process.wait, 20) == 0


async def test_a_worker_that_was_replaced_keeps_no_socket(tmp_path: Path) -> None:
    """It may have streams for hours, and others must be able to have the address that it served."""
    async with fake_backend("openai-chat") as backend:
        held = Held(backend)
        config = written(tmp_path / "it.yaml", backend.url, "one", drain="60s")
        with serve(tmp_path, config, "--workers", "2", ready=None) as served:
            await until(lambda: listeners(served.port) == 2, lambda: served.err)
            stream = asyncio.create_task(ask(served, stream=True))
            await held.begun.get()
            before, elsewhere = children(served), free_port()
            written(config, backend.url, "two", drain="60s", port=elsewhere)
            text = yaml.safe_load(config.read_text())
            config.write_text(yaml.safe_dump({**text, "server": {**text["server"], "host": "127.0.0.2"}}))
            served.process.send_signal(signal.SIGHUP)
            await until(lambda: "new configuration is" in served.err, lambda: served.err)
            await until(lambda: refused(served.port), lambda: served.err)
            assert set(before) & set(children(served)), "one of them has the stream"
            held.release.set()
            assert (await stream).body.endswith(b"data: [DONE]\n\n")
            assert await stopped(served) == 0


class SlowGateway(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Registers every node, and does not answer one that leaves before it may."""

    def __init__(self) -> None:
        self.left, self.may_leave = asyncio.Event(), asyncio.Event()

    def service(self, details: Any) -> Any:
        async def register(body: bytes, rpc: Any) -> bytes:
            return bytes(schema.message("RegisterAgentResponse", success=True).SerializeToString())

        async def leave(body: bytes, rpc: Any) -> bytes:
            self.left.set()
            await self.may_leave.wait()
            return b""

        return grpc.unary_unary_rpc_method_handler(leave if "Deregister" in details.method else register)


async def test_an_address_of_agents_is_free_while_sessions_finish(tmp_path: Path) -> None:
    port, gateway, slow = free_port(), free_port(), SlowGateway()
    foreign = grpc.aio.server()
    foreign.add_generic_rpc_handlers((slow,))
    foreign.add_insecure_port(f"127.0.0.1:{gateway}")
    await foreign.start()
    async with fake_backend("openai-chat") as backend:
        held = Held(backend)
        config = tmp_path / "it.yaml"
        options = {"mode": "agent", "gateway": f"127.0.0.1:{gateway}"}
        agent = {"dialect": "aip", "listen": f"127.0.0.1:{port}", "agent_id": "bridge", "backend": "llm"}
        config.write_text(
            yaml.safe_dump(
                {
                    "server": {"drain": "60s"},
                    "backends": {"llm": {"dialect": "openai-chat", "url": backend.url, "headers": {"X-Mark": "one"}}},
                    "routes": [{**agent, "options": options}],
                    "stores": {"history": f"sqlite:///{tmp_path}/h.db"},
                }
            )
        )
        with serve(tmp_path, config) as served:
            await until(lambda: "registered" in served.err, lambda: served.err)
            async with peers.client(f"127.0.0.1:{port}") as caller:
                call = caller.agents.CallAgent()
                await call.write(peers.quest("START_QUEST", "hi"))
                await held.begun.get()
                served.process.send_signal(signal.SIGTERM)
                await slow.left.wait()
                # Before the gateway has answered the goodbye.
                async with asyncio.timeout(5):
                    await until(lambda: refused(port), lambda: served.err)
                slow.may_leave.set()
                held.release.set()
                assert (await peers.rest(call))[0] == ("HOLD_RESPONSE", "half and half")
            assert await asyncio.to_thread(served.process.wait, 20) == 0
    await foreign.stop(None)
