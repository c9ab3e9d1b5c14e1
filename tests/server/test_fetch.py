"""Media that are fetched for a backend: from where, and from where never."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import socket
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from bridge.contract import registry
from bridge.engine.bridge import Bridge
from bridge.errors import BackendError, ErrorCode, RequestError
from bridge.model import Inline, Media, MediaKind, Message, Request, Text, ToolResult, Url
from bridge.run.backends.fetch import Fetcher, is_public
from bridge.stores import memory_budget
from tests.pairs.agents import Chat
from tests.server.harness import bound_socket, fake_backend, post, serving

CAPABILITIES = registry.get("openai-chat").capabilities
BYTES = b"ID3\x00audio"


class Names(AbstractResolver):
    """Answers with the addresses of `book`, and counts."""

    def __init__(self, **book: list[str]) -> None:
        self.book = {name.replace("_", "."): addresses for name, addresses in book.items()}
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        if host not in self.book:
            raise OSError(f"no such host: {host}")
        flags = {"proto": 0, "flags": int(socket.AI_NUMERICHOST)}
        return [
            ResolveResult(
                hostname=host, host=a, port=port, family=socket.AF_INET6 if ":" in a else socket.AF_INET, **flags
            )
            for a in self.book[host]
        ]

    async def close(self) -> None:
        pass


@pytest.fixture
async def site() -> AsyncIterator[tuple[int, list[web.Request]]]:
    """A server with a sound at `/sound` and traps beside it; its port and what it was asked."""
    seen: list[web.Request] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        match request.path:
            case "/sound":
                return web.Response(body=BYTES, content_type="audio/mpeg", headers={"set-cookie": "a=b"})
            case "/moved":
                raise web.HTTPFound("/sound")
            case "/big":
                return web.Response(body=bytes(2000))
            case "/endless":
                response = web.StreamResponse()
                await response.prepare(request)
                while True:
                    await response.write(bytes(500))
                    await asyncio.sleep(0)
            case "/slow":
                await asyncio.Event().wait()
        raise web.HTTPNotFound

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    with bound_socket() as listening:
        await web.SockSite(runner, listening).start()
        yield listening.getsockname()[1], seen
        await runner.cleanup()


def loopback_too(address: Any) -> bool:
    return address.is_loopback or is_public(address)


async def fetched(request: Request, *hosts: str, names: Names, permit: Any = loopback_too, **limits: Any) -> Request:
    fetcher = Fetcher(hosts, permit=permit, resolver=names, **limits)
    await fetcher.start()
    try:
        return await fetcher.request(request, CAPABILITIES)
    finally:
        await fetcher.close()


def asking(*urls: str, kind: MediaKind = MediaKind.AUDIO) -> Request:
    return Request([Message("user", [Text("listen"), *(Media(kind, Url(u)) for u in urls)])])


def sources(request: Request) -> list[Any]:
    return [p.source for m in request.messages for p in m.parts if isinstance(p, Media)]


async def test_bytes_take_the_place_of_a_url(site: tuple[int, list[web.Request]]) -> None:
    port, seen = site
    names = Names(files_example=["127.0.0.1"])
    url = f"http://files.example:{port}/sound"
    request = await fetched(asking(url, url), f"files.example:{port}", names=names)
    assert sources(request) == [Inline(base64.b64encode(BYTES).decode())] * 2
    assert [p.mime for p in request.messages[0].parts if isinstance(p, Media)] == ["audio/mpeg"] * 2
    (asked,) = seen
    assert (asked.host, names.asked) == (f"files.example:{port}", ["files.example"])
    assert not {"authorization", "cookie", "referer", "x-api-key"} & {h.lower() for h in asked.headers}


async def test_a_result_of_a_tool_may_hold_it_too(site: tuple[int, list[web.Request]]) -> None:
    port, _ = site
    url = f"http://files.example:{port}/sound"
    result = ToolResult("call_1", [Media(MediaKind.AUDIO, Url(url), "audio/x-mine")])
    names = Names(files_example=["127.0.0.1"])
    request = await fetched(Request([Message("tool", [result])]), f"*.example:{port}", names=names)
    (part,) = request.messages[0].parts
    assert isinstance(part, ToolResult)
    assert part.parts == [Media(MediaKind.AUDIO, Inline(base64.b64encode(BYTES).decode()), "audio/x-mine")]


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://other.example/a", MediaKind.AUDIO),
        ("http://files.example:81/a", MediaKind.AUDIO),
        ("http://files.example.evil.org/a", MediaKind.AUDIO),
        ("http://files.example@other.example/a", MediaKind.AUDIO),
        ("http://me:key@files.example/a", MediaKind.AUDIO),
        ("ftp://files.example/a", MediaKind.AUDIO),
        ("file:///etc/passwd", MediaKind.AUDIO),
        ("http://files.example:port/a", MediaKind.AUDIO),
        # Its wire takes pictures by URL: the backend looks for itself.
        ("http://files.example/a", MediaKind.IMAGE),
        # Not as bytes either: there is no use in having them.
        ("http://files.example/a", MediaKind.VIDEO),
    ],
)
async def test_what_stays_as_it_is(url: str, kind: MediaKind) -> None:
    names = Names(files_example=["127.0.0.1"])
    request = asking(url, kind=kind)
    assert await fetched(request, "files.example", names=names) == request
    assert names.asked == []


@pytest.mark.parametrize(
    ("path", "limits", "code", "words"),
    [
        ("/moved", {}, ErrorCode.INVALID_REQUEST, "its server answered 302"),
        ("/none", {}, ErrorCode.INVALID_REQUEST, "its server answered 404"),
        ("/big", {"most": 1000}, ErrorCode.TOO_LARGE, "more than 1000 bytes"),
        ("/endless", {"most": 1000}, ErrorCode.TOO_LARGE, "more than 1000 bytes"),
        ("/slow", {"time": 0.2}, ErrorCode.INVALID_REQUEST, "within 0.2 seconds"),
    ],
)
async def test_what_cannot_be_had(
    site: tuple[int, list[web.Request]], path: str, limits: dict[str, Any], code: ErrorCode, words: str
) -> None:
    port, seen = site
    names = Names(files_example=["127.0.0.1"])
    with pytest.raises(RequestError, match=words) as caught:
        await fetched(asking(f"http://files.example:{port}{path}"), f"files.example:{port}", names=names, **limits)
    assert caught.value.code == code
    assert (caught.value.failure.param or "").startswith("messages")
    assert len(seen) == 1


async def test_the_limit_is_one_for_all_media_of_a_request(site: tuple[int, list[web.Request]]) -> None:
    port, _ = site
    urls = [f"http://files.example:{port}/sound?{n}" for n in range(3)]
    names = Names(files_example=["127.0.0.1"])
    with pytest.raises(RequestError, match="more than 20 bytes"):
        await fetched(asking(*urls), f"files.example:{port}", names=names, most=20)


PRIVATE = [
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
    "255.255.255.255", "::1", "::", "fc00::1", "fe80::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "::127.0.0.1", "2002:7f00:1::", "2002:a00:1::1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::a00:1",
    "2001:0:4136:e378:8000:63bf:f5ff:fffe", "2001:db8::1", "192.0.0.192", "192.88.99.1", "168.63.129.16",
    "::ffff:168.63.129.16", "fec0::1", "::ffff:0:127.0.0.1", "3fff::1", "5f00::1", "4000::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
async def test_no_private_address_is_called(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))
    names = Names(files_example=[address])
    with pytest.raises(RequestError, match="its address is not public"):
        await fetched(asking("http://files.example/a"), "files.example", names=names, permit=is_public)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:4700::1111", "::ffff:93.184.216.34", "64:ff9b::808:808"])
def test_public_addresses(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "169.254.169.254"])
async def test_an_address_in_the_url_is_no_way_round(host: str) -> None:
    """An address never goes through the resolver. It is refused even where the configuration allows every host."""
    with pytest.raises(RequestError, match="its address is not public"):
        await fetched(asking(f"http://{host}/a"), "*", names=Names(), permit=is_public)


async def test_one_private_address_among_public_ones_is_refused() -> None:
    names = Names(files_example=["93.184.216.34", "10.0.0.1"])
    with pytest.raises(RequestError, match="its address is not public"):
        await fetched(asking("http://files.example/a"), "files.example", names=names, permit=is_public)


async def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(RequestError, match="its server could not be reached") as caught:
        await fetched(asking("http://files.example/a"), "files.example", names=Names())
    assert "no such host" not in caught.value.message


async def test_a_backend_is_sent_the_bytes_and_a_private_address_is_not_called(
    site: tuple[int, list[web.Request]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, seen = site
    audio = {"type": "input_file", "file_url": f"http://localhost:{port}/sound"}
    body = {"model": "m", "input": [{"role": "user", "content": [{"type": "input_text", "text": "hear"}, audio]}]}
    async with fake_backend() as backend:
        Chat(backend)
        config = {
            "backends": {
                "llm": {"dialect": "openai-chat", "url": f"{backend.url}/v1", "fetch_urls": [f"localhost:{port}"]}
            },
            "routes": [{"dialect": "openai-responses", "path": "/v1", "backend": "llm"}],
            "stores": {"history": "off"},
        }
        async with serving(config) as base:
            refused = await post(f"{base}/v1/responses", body)
        assert refused.status == 400
        assert "its address is not public" in refused.body.decode()
        assert (seen, backend.seen) == ([], [])
        monkeypatch.setattr("bridge.run.backends.fetch.Fetcher", partial(Fetcher, permit=loopback_too))
        async with serving(config) as base:
            assert (await post(f"{base}/v1/responses", body)).status == 200
        (asked,) = backend.seen
        assert base64.b64encode(BYTES).decode() in asked.body.decode()


async def test_media_count_as_they_come(site: tuple[int, list[web.Request]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Against `limits.bodies`, whether the server says how long they are or not, until the request ends."""
    port, _ = site
    monkeypatch.setattr("bridge.run.backends.fetch.Fetcher", partial(Fetcher, permit=loopback_too))
    monkeypatch.setattr(memory_budget, "FREE", 0)
    async with fake_backend() as backend:
        config = {
            "backends": {
                "llm": {"dialect": "openai-chat", "url": f"{backend.url}/v1", "fetch_urls": [f"localhost:{port}"]}
            },
            "routes": [{"dialect": "openai-responses", "path": "/v1", "backend": "llm"}],
            "stores": {"history": "off"},
        }
        async with Bridge.from_config(config) as bridge:
            budget = bridge.memory_budget
            for path, size in (("sound", len(BYTES)), ("big", 2000)):
                part = Media(MediaKind.AUDIO, Url(f"http://localhost:{port}/{path}"), mime="audio/mpeg")
                with bridge.counting():
                    run = await bridge.run(bridge.route(), Request([Message("user", [part])]))
                    assert budget.taken == memory_budget.COPIES * len(base64.b64encode(bytes(size)))
                    await run.close()
                assert budget.taken == 0
            assert budget.take(64)  # of another request
            budget.give_back(-(256 * 2**20 - 5000))
            for path in ("big", "endless"):
                part = Media(MediaKind.AUDIO, Url(f"http://localhost:{port}/{path}"), mime="audio/mpeg")
                with bridge.counting(), pytest.raises(BackendError) as caught:
                    await bridge.run(bridge.route(), Request([Message("user", [part])]))
                assert caught.value.code is ErrorCode.OVERLOADED
