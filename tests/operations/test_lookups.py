"""A name server that does not answer for one backend's name: nobody else waits for it, with either HTTP client."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from bridge.engine.bridge import Bridge
from bridge.run.backends import lookups
from bridge.run.backends.lookups import Lookups, Resolver
from bridge.server import running
from tests.server.harness import fake_backend, free_port, post

BOTH = pytest.mark.parametrize("client", ["aiohttp", "httptools"])
WHOLE = b'{"say":"whole","end":"stop"}'


class NameServer:
    """Knows names; leaves those that begin with `lost` without an answer until `answers` is set."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.open: Counter[str] = Counter()
        self.most = 0
        self.answers = threading.Event()
        self._lock = threading.Lock()

    def look_up(self, host: str, port: int, family: int, flags: int) -> list[lookups.Info]:
        with self._lock:
            self.asked[host] += 1
            self.open[host] += 1
            self.most = max(self.most, *self.open.values())
        try:
            if host.startswith("lost"):
                self.answers.wait(60)
                raise socket.gaierror(socket.EAI_AGAIN, "no answer")
            if host.startswith("gone"):
                raise socket.gaierror(socket.EAI_NONAME, "no such name")
        finally:
            with self._lock:
                self.open[host] -= 1
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    made = NameServer()
    monkeypatch.setattr(lookups, "_look_up", made.look_up)
    yield made
    made.answers.set()


def config(client: str, **urls: str) -> dict[str, Any]:
    return {
        "server": {"http_client": client, "port": free_port(), "drain": "1s"},
        "backends": {
            name: {"dialect": "toy", "url": url, "timeouts": {"connect": "500ms"}, "breaker": {"failures": 3}}
            for name, url in urls.items()
        },
        "routes": [{"dialect": "toy", "path": f"/{name}", "backend": name} for name in urls],
        "stores": {"history": "off"},
    }


@BOTH
async def test_other_backends_answer_meanwhile(names: NameServer, toy: str, client: str) -> None:
    async with fake_backend() as backend:
        backend.answers(200, WHOLE)
        port = backend.url.rpartition(":")[2]
        # More than the threads that the process shares, of which there are at most 32.
        lost = {f"lost{n}": f"http://lost{n}.example/v1" for n in range(40)}
        bridge = Bridge.from_config(config(client, healthy=f"http://healthy.example:{port}", **lost))
        async with running(bridge) as at:
            base = f"http://127.0.0.1:{at}"
            waiting = [asyncio.create_task(post(f"{base}/lost{n % 40}/ask", {"ask": "x"})) for n in range(80)]
            async with asyncio.timeout(30):  # half the time for which the name server is silent
                while sum(names.open.values()) < 40:
                    await asyncio.sleep(0.01)
                # A large body is decoded in the threads that lookups must not fill.
                for text in ("x", "x" * 400_000):
                    assert (await post(f"{base}/healthy/ask", {"ask": text})).status == 200
            replies = await asyncio.gather(*waiting)
            assert {reply.status for reply in replies} <= {503, 504}
            assert any(reply.status == 504 for reply in replies), "the limit of the connection counts the lookup"
            (healthy,) = bridge.route("/healthy").backends
            assert healthy.breaker is not None
            assert not healthy.breaker.refuses
    assert names.most == 1, "one lookup of a name at a time"


@BOTH
async def test_a_name_that_does_not_exist(names: NameServer, toy: str, client: str) -> None:
    async with running(Bridge.from_config(config(client, gone="http://gone.example"))) as at:
        reply = await post(f"http://127.0.0.1:{at}/gone/ask", {"ask": "x"})
    assert reply.status == 502
    assert b"cannot be resolved" in reply.body


async def test_who_stops_waiting_leaves_the_lookup_to_the_others(names: NameServer) -> None:
    made = Lookups(8)
    first, second = (asyncio.create_task(made.find("lost.example", 80)) for _ in range(2))
    while not names.asked["lost.example"]:
        await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.wait({first})
    names.answers.set()
    with pytest.raises(socket.gaierror):
        await second
    assert names.asked["lost.example"] == 1
    with pytest.raises(socket.gaierror):
        await made.find("lost.example", 80)
    assert names.asked["lost.example"] == 2, "a failed lookup is not remembered"


async def test_lookups_have_a_number(names: NameServer) -> None:
    made = Lookups(2)
    waiting = [asyncio.create_task(made.find(f"lost{n}.example", 80)) for n in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(socket.gaierror, match="too many names"):
        await made.find("healthy.example", 80)
    names.answers.set()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert (await made.find("healthy.example", 81))[0][4] == ("127.0.0.1", 81)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1%lo"])
async def test_an_address_needs_no_thread(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Thread", None)
    found = await Lookups(0).find(host, 80)
    assert found[0][4][1] == 80


async def test_invalid_names_are_not_found() -> None:
    for host in ("x" * 70 + ".example", "a..example"):
        async with asyncio.timeout(20):  # whoever waits for a thread that raised waits for ever
            with pytest.raises(OSError, match=r"."):
                await Lookups(2).find(host, 80)


async def test_what_aiohttp_is_told(names: NameServer) -> None:
    (found,) = await Resolver().resolve("healthy.example", 8080, socket.AF_UNSPEC)
    assert (found["hostname"], found["host"], found["port"]) == ("healthy.example", "127.0.0.1", 8080)
    assert found["family"] is socket.AF_INET
