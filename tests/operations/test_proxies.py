"""Outbound proxies: which one leads to a URL, and that everything the bridge calls goes through it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import trustme
from yarl import URL

from bridge.engine.assembly import speech_for
from bridge.engine.bridge import Bridge
from bridge.engine.config import parse
from bridge.errors import BackendError, BridgeError, ConfigError
from bridge.model import Inline, Media, MediaKind, Message, Request, Text
from bridge.model import Url as MediaUrl
from bridge.run.backends import proxies
from bridge.run.backends.fetch import CallFailed, Fetcher
from bridge.run.backends.proxies import proxy_for
from bridge.server.auth.jwks import KeySet
from tests.server.harness import post, serving
from tests.server.issuer import SigningKey
from tests.server.test_fetch import Names
from tests.server.test_speech import WAV

PASSWORD = "pr0xy-pa55word"
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
WHOLE = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [CHOICE]}
BOTH = pytest.mark.parametrize("client", ["aiohttp", "httptools"])


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


class Proxy:
    """An HTTP proxy that answers by itself, or, for CONNECT, leads to `tunnel`. `heads`: what it was asked."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.status = b"200 OK"
        self.body = orjson.dumps(WHOLE)
        self.kind = b"application/json"
        self.tunnel: tuple[str, int] | None = None
        self.port = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def with_password(self, user: str = "me") -> str:
        return f"http://{user}:{PASSWORD}@127.0.0.1:{self.port}"

    @property
    def lines(self) -> list[str]:
        return [head.split(b"\r\n")[0].decode() for head in self.heads]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                if head.startswith(b"CONNECT ") and self.tunnel is not None:
                    await self._join(reader, writer)
                    break
                found = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
                await reader.readexactly(int(found or 0))
                size = str(len(self.body)).encode()
                writer.write(b"HTTP/1.1 %b\r\ncontent-type: %b\r\ncontent-length: %b\r\n\r\n%b" % (
                    self.status, self.kind, size, self.body))  # fmt: skip
        writer.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self.tunnel is not None
        to_reader, to_writer = await asyncio.open_connection(*self.tunnel)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while piece := await source.read(65536):
                    target.write(piece)
            target.close()

        await asyncio.gather(copy(reader, to_writer), copy(to_reader, writer))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    made = Proxy()
    listening = await asyncio.start_server(made.handle, "127.0.0.1", 0)
    made.port = listening.sockets[0].getsockname()[1]
    yield made
    listening.close()
    await made.close()


# ---------------------------------------------------------------------- which one


@pytest.mark.parametrize(
    ("url", "variables", "expected"),
    [
        ("http://a.example", {}, None),
        ("http://a.example", {"HTTP_PROXY": "http://p:1"}, "http://p:1"),
        ("http://a.example", {"http_proxy": "http://p:1"}, "http://p:1"),
        ("http://a.example", {"HTTPS_PROXY": "http://p:1"}, None),
        ("https://a.example", {"HTTPS_PROXY": "http://p:1", "HTTP_PROXY": "http://q:1"}, "http://p:1"),
        ("https://a.example", {"https_proxy": "http://p:1", "HTTPS_PROXY": "http://q:1"}, "http://p:1"),
        ("https://a.example", {"ALL_PROXY": "http://p:1"}, "http://p:1"),
        ("http://a.example", {"all_proxy": "http://p:1", "HTTP_PROXY": "http://q:1"}, "http://q:1"),
        ("https://a.example", {"HTTPS_PROXY": "p.example:3128"}, "http://p.example:3128"),
        ("https://a.example", {"HTTPS_PROXY": ""}, None),
        ("https://a.example", {"ALL_PROXY": "socks5://p:1"}, None),
        ("https://a.example", {"HTTPS_PROXY": "http://[nonsense"}, None),
    ],
)
def test_the_variables(
    url: str, variables: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(url) == (None if expected is None else URL(expected))


@pytest.mark.parametrize(
    ("host", "exceptions", "is_direct"),
    [
        ("a.example", "", False),
        ("a.example", "*", True),
        ("a.example", "b.example, *", True),
        ("a.example", "a.example", True),
        ("A.Example", "a.EXAMPLE", True),
        ("a.example.", "a.example", True),
        ("x.a.example", "a.example", True),
        ("x.a.example", ".a.example", True),
        ("x.a.example", "*.a.example", True),
        ("xa.example", "a.example", False),
        ("a.example", "b.example,c.example , a.example", True),
        ("a.example:8080", "a.example:8080", True),
        ("a.example:8081", "a.example:8080", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3:8080", "10.1.2.3:8080", True),
        ("10.1.2.3:8081", "10.1.2.3:8080", False),
        ("[fd00::1]", "fd00::/8", True),
        ("[fd00::1]:8080", "[fd00::1]:8080", True),
        ("[2001:db8::1]", "fd00::/8", False),
        ("10.1.2.3", "0.0.0.0/nonsense", False),
        ("localhost", "", True),
        ("x.localhost", "", True),
        ("127.0.0.1", "", True),
        ("127.8.0.1:9000", "", True),
        ("[::1]:9000", "", True),
        ("127.example", "", False),
    ],
)
def test_what_is_called_directly(host: str, exceptions: str, is_direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://p:1")
    monkeypatch.setenv("NO_PROXY", exceptions)
    for scheme in ("http", "https"):
        assert (proxy_for(f"{scheme}://{host}/v1") is None) is is_direct


def test_the_configuration_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://p:1")
    monkeypatch.setenv("NO_PROXY", "a.example")
    assert proxy_for("http://a.example", "http://q:2") == URL("http://q:2")
    assert proxy_for("http://127.0.0.1", "http://q:2") == URL("http://q:2")
    assert proxy_for("http://b.example", "none") is None


def test_a_variable_that_cannot_be_used_is_reported_without_its_value(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ALL_PROXY", f"socks5://me:{PASSWORD}@p:1")
    proxies._parsed.cache_clear()
    assert proxy_for("http://a.example") is None
    assert "ALL_PROXY is ignored" in caplog.text
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize("value", ["socks5://p:1", "p:1", "http://", f"ftp://me:{PASSWORD}@p", "http://p/path", "off"])
def test_a_wrong_proxy_of_the_configuration(value: str) -> None:
    with pytest.raises(ConfigError, match=r"backends\.it\.proxy: expected the URL of an HTTP proxy") as caught:
        parse(config("http://llm.example/v1", proxy=value))
    assert PASSWORD not in str(caught.value)


def test_a_backend_that_is_not_called_over_http_takes_none() -> None:
    with pytest.raises(ConfigError, match="takes no proxy"):
        parse({"backends": {"it": {"dialect": "demo", "proxy": "http://p:1"}}, "routes": []})


# ---------------------------------------------------------------------- backends


def config(url: str, client: str = "aiohttp", **section: Any) -> dict[str, Any]:
    return {
        "server": {"http_client": client},
        "backends": {"it": {"dialect": "openai-chat", "url": url, "model": "m", **section}},
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
    }


CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


@BOTH
@pytest.mark.parametrize("way", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "proxy"])
async def test_a_backend(proxy: Proxy, client: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    section = {"proxy": proxy.with_password()} if way == "proxy" else {}
    if not section:
        monkeypatch.setenv(way, proxy.with_password())
    async with serving(config("http://llm.example/v1", client, **section)) as base:
        for _ in range(2):
            assert (await post(f"{base}/v1/chat/completions", CHAT)).status == 200
    assert proxy.lines == ["POST http://llm.example/v1/chat/completions HTTP/1.1"] * 2
    credentials = base64.b64encode(f"me:{PASSWORD}".encode())
    assert all(b"Proxy-Authorization: Basic " + credentials in head for head in proxy.heads)
    assert all(b"\r\nauthorization: " not in head.lower() for head in proxy.heads)


@BOTH
async def test_a_backend_by_https_is_reached_through_a_tunnel(
    proxy: Proxy, client: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The handshake arrives at the backend, whose certificate nobody here trusts."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("llm.example").configure_cert(context)
    hellos: list[bytes] = []

    async def backend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hellos.append(await reader.read(3))
        writer.close()

    listening = await asyncio.start_server(backend, "127.0.0.1", 0)
    proxy.tunnel = ("127.0.0.1", listening.sockets[0].getsockname()[1])
    async with serving(config("https://llm.example/v1", client, proxy=proxy.with_password())) as base:
        assert (await post(f"{base}/v1/chat/completions", CHAT)).status == 502
    listening.close()
    assert proxy.lines == ["CONNECT llm.example:443 HTTP/1.1"]
    assert b"Proxy-Authorization: Basic " in proxy.heads[0]
    assert [hello[:2] for hello in hellos] == [b"\x16\x03"]
    assert PASSWORD not in caplog.text


@BOTH
@pytest.mark.parametrize(
    ("url", "said"), [("https://llm.example/v1", "the proxy answered with status 407"), ("http://llm.example/v1", "")]
)
async def test_a_proxy_that_refuses(
    proxy: Proxy, client: str, url: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.status = b"407 Proxy Authentication Required"
    proxy.body = orjson.dumps({"error": {"message": f"{PASSWORD} is not the password of me"}})
    caplog.set_level(logging.DEBUG)
    async with serving(config(url, client, proxy=proxy.with_password())) as base:
        reply = await post(f"{base}/v1/chat/completions", CHAT)
    assert reply.status == 502
    assert said in reply.body.decode()
    assert "check the proxy of backend 'it'" in caplog.text
    assert PASSWORD not in caplog.text + reply.body.decode()


@BOTH
async def test_a_proxy_that_is_not_there(client: str, caplog: pytest.LogCaptureFixture) -> None:
    gone = f"http://me:{PASSWORD}@127.0.0.1:1"
    async with serving(config("http://llm.example/v1", client, proxy=gone)) as base:
        reply = await post(f"{base}/v1/chat/completions", CHAT)
    assert reply.status == 502
    assert b"the proxy could not be reached" in reply.body
    assert "check the proxy of backend 'it'" in caplog.text
    assert PASSWORD not in caplog.text + reply.body.decode()


@BOTH
async def test_a_loopback_backend_is_called_directly(
    proxy: Proxy, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    async with serving(config(f"{proxy.url}/v1", client)) as base:
        assert (await post(f"{base}/v1/chat/completions", CHAT)).status == 200
    assert proxy.lines == ["POST /v1/chat/completions HTTP/1.1"]


@BOTH
async def test_what_is_forwarded_and_asked_beside_runs(
    proxy: Proxy, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    setup = config("http://llm.example/v1", client)
    setup["routes"][0]["extras"] = {"backend": "it"}
    async with serving(setup) as base:
        assert (await post(f"{base}/v1/embeddings", {"input": "x"})).status == 200
    async with Bridge.from_config(config("http://llm.example/v1", client)) as bridge:
        with contextlib.suppress(BridgeError):
            await bridge.route().list_models()
    assert proxy.lines == [
        "POST http://llm.example/v1/embeddings HTTP/1.1",
        "GET http://llm.example/v1/models HTTP/1.1",
    ]


# ---------------------------------------------------------------------- what else is called


async def test_the_keys_of_an_issuer(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    key = SigningKey()
    proxy.body = orjson.dumps({"keys": [key.public]})
    keys = KeySet("http://issuer.example/jwks.json")
    assert await keys.find("k1", "ES256") is not None
    await keys.close()
    assert proxy.lines == ["GET http://issuer.example/jwks.json HTTP/1.1"]


async def test_speech(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    proxy.body = b'{"text":"Hello."}'
    setup = {**config("http://127.0.0.1:1"), "speech": {"url": "http://speech.example/v1"}}
    speech = speech_for(parse(setup))
    assert speech is not None
    assert await speech.transcribe(WAV) == "Hello."
    assert proxy.lines == ["POST http://speech.example/v1/audio/transcriptions HTTP/1.1"]


async def test_speech_on_this_machine(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    proxy.body = b'{"text":"Hello."}'
    speech = speech_for(parse({**config("http://127.0.0.1:1"), "speech": {"url": f"{proxy.url}/v1"}}))
    assert speech is not None
    assert await speech.transcribe(WAV) == "Hello."
    assert proxy.lines == ["POST /v1/audio/transcriptions HTTP/1.1"]


async def test_media_from_urls(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that only the proxy knows are allowed; addresses and names that are private here are not."""
    from bridge.contract import registry

    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    proxy.body, proxy.kind = b"ID3 sound", b"audio/mpeg"
    fetcher = Fetcher(["*"])
    await fetcher.start()
    try:
        part = Media(MediaKind.AUDIO, MediaUrl("http://media.invalid/sound"))
        asked = Request([Message("user", [Text("hear"), part])])
        found = await fetcher.request(asked, registry.get("openai-chat").capabilities)
        (_, medium) = found.messages[0].parts
        assert isinstance(medium, Media)
        assert medium.source == Inline(base64.b64encode(proxy.body).decode())
        for host in ("10.0.0.1", "169.254.169.254"):
            with pytest.raises(CallFailed, match="not public"):
                async with fetcher.call("GET", f"http://{host}/"):
                    raise AssertionError
    finally:
        await fetcher.close()
    assert proxy.lines == ["GET http://media.invalid/sound HTTP/1.1"]


async def test_a_private_name_is_refused_before_the_proxy_is_asked(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    names = Names(inside_example=["10.0.0.1"], mixed_example=["93.184.215.14", "192.168.0.1"])
    fetcher = Fetcher(["*"], resolver=names)
    await fetcher.start()
    try:
        for host in ("inside.example", "mixed.example"):
            with pytest.raises(CallFailed, match="not public"):
                async with fetcher.call("GET", f"http://{host}/"):
                    raise AssertionError
    finally:
        await fetcher.close()
    assert (proxy.heads, names.asked) == ([], ["inside.example", "mixed.example"])


async def test_a_check_reaches_the_proxy(proxy: Proxy) -> None:
    """Of a backend whose dialect lists no models the port is tried: through a proxy, that of the proxy."""
    setup = config("http://agent.invalid", proxy=proxy.url)
    setup["backends"]["it"]["dialect"] = "ag-ui"
    async with Bridge.from_config(setup) as bridge:
        await bridge.route().backends[0].check()
    setup["backends"]["it"]["proxy"] = "http://127.0.0.1:1"
    async with Bridge.from_config(setup) as bridge:
        with pytest.raises(BackendError):
            await bridge.route().backends[0].check()
