"""Backends that cannot be reached at all, and events that are large."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from bridge.contract import registry
from tests.faults.command import serving_process
from tests.faults.measure import back_of, setup
from tests.faults.wire import SPEAKING, Read, Saw, ask, read
from tests.server.harness import bound_socket, fake_backend, free_port, serving

every = pytest.mark.parametrize("front", SPEAKING)


async def told(front: str, url: str, **section: Any) -> Read:
    async with serving(setup(front, back_of(front), url, **section)) as base:
        return read(registry.get(front), await ask(base, registry.get(front), "/it"))


def check(seen: Read, words: str) -> None:
    """It failed in the dialect's shape, and says the kind of fault but no address."""
    assert seen.verdict in ("HTTP 502", "HTTP 503", "HTTP 504", "error event")
    assert seen.failure is not None
    assert words in seen.failure.message
    assert "127.0.0.1" not in seen.failure.message
    assert ".invalid" not in seen.failure.message


@every
async def test_nobody_listens(front: str) -> None:
    check(await told(front, f"http://127.0.0.1:{free_port()}"), "the connection was refused")


@every
async def test_a_name_that_nobody_knows(front: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(*asked: Any, **more: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    async with serving(setup(front, back_of(front), "http://nowhere.invalid/v1")) as base:
        seen = read(registry.get(front), await _over_ipv4(base, front))
    check(seen, "its host name cannot be resolved")


async def _over_ipv4(base: str, front: str) -> Saw:
    """The test's own client needs no names."""
    return await ask(base, registry.get(front), "/it")


@every
async def test_a_certificate_of_nobody_we_know(front: str) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listening = bound_socket()
    server = await asyncio.start_server(serve, sock=listening, ssl=context)
    try:
        check(await told(front, f"https://127.0.0.1:{listening.getsockname()[1]}"), "the TLS handshake failed")
    finally:
        server.close()


async def test_no_tls_where_some_was_expected() -> None:
    async with fake_backend() as backend:
        url = backend.url.replace("http:", "https:")
        check(await told("openai-chat", url, timeouts={"connect": "200ms"}), "within 0.2 s (timeouts.connect)")


@pytest.mark.parametrize("front", ["ag-ui", "anthropic-messages"])
async def test_an_event_of_twenty_mebibytes_arrives(front: str) -> None:
    async with fake_backend("openai-chat") as backend:
        size = 20 * 2**20
        backend.says("x" * size)
        async with serving(setup(front, "openai-chat", backend.url)) as base:
            seen = read(registry.get(front), await ask(base, registry.get(front), "/it"))
    assert (seen.verdict, len(seen.text)) == ("whole", size)


def _of_64_files(folder: Path, config: dict[str, Any]) -> AbstractAsyncContextManager[str]:
    """A server in a process that may open 64 files; its base URL."""
    port = free_port()
    served = {**config, "server": {"port": port}, "stores": {"history": "off"}}
    return serving_process(folder, port, served, shell="ulimit -n 64")


async def test_idle_connections_do_not_take_all_descriptors(tmp_path: Path) -> None:
    """Anyone can open connections, send a request that needs no key, and leave them open."""
    async with _of_64_files(tmp_path, setup("agentscope", "openai-chat", "http://127.0.0.1:1")) as base:
        port, live = int(base.rpartition(":")[2]), b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
        async with asyncio.timeout(30), contextlib.AsyncExitStack() as stack:
            for _ in range(100):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                stack.callback(writer.close)
                writer.write(live)
                with suppress(ConnectionError, asyncio.IncompleteReadError):
                    await reader.readuntil(b"}")
                    writer.write(b"GET /healthz HTT")  # the head of the next one never ends
            while True:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                stack.callback(writer.close)
                writer.write(live)
                with suppress(ConnectionError, asyncio.IncompleteReadError):
                    assert b" 200 OK" in await reader.readuntil(b"}")
                    break
        log = (tmp_path / "log").read_text()
        assert log.count("of 64 descriptors: those that wait longest for a request are closed") == 1


async def test_descriptors_that_run_out_are_no_end(tmp_path: Path) -> None:
    """80 clients of a server that may open 64 files: each is answered, told, or cut; then it serves as before."""
    async with fake_backend("openai-chat") as backend:
        backend.says("Hello ")
        async with _of_64_files(tmp_path, setup("agentscope", "openai-chat", backend.url)) as base:
            front = registry.get("agentscope")

            async def one(number: int) -> str:
                return read(front, await ask(base, front, "/it", thread=f"t{number}")).verdict

            # Where the clients' own connections take all the files there are, none is left to ask the backend with.
            seen = await asyncio.gather(*(one(n) for n in range(80)))
            assert set(seen) <= {"whole", "error event", "cut", "HTTP 500", "HTTP 502", "HTTP 503"}
            assert [await one(n) for n in range(3)] == ["whole"] * 3
