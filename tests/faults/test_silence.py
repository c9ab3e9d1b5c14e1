"""Models that are silent for a long time, and healthy: they are not given up, and connections to clients stay open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anthropic
import openai
import orjson
import pytest

from bridge.contract import WireRequest, registry
from bridge.testing.pairs import frames_of
from tests.dialects.a2a.back import OLD_CARD, rpc
from tests.faults import silent
from tests.faults.callers import agent_over, call
from tests.faults.faults import Said
from tests.faults.measure import back_of, queued, setup
from tests.faults.wire import LIMIT, SPEAKING, Read, asking, connect, parsed, raw, read
from tests.server.harness import Exchange, FakeBackend, ask, fake_backend, free_port, serving

WORDS = "Hello w☀"
SIGNS = {"anthropic-messages": b"event: ping", "gemini": b'"parts":[{"text":""}]'}
"""What clients read on a silent stream and take for nothing that was said, where it is not a comment."""
SOON = {"server": {"keepalive": "60ms"}}


@pytest.fixture
async def thought() -> asyncio.Event:
    """Set when the model may answer."""
    return asyncio.Event()


@asynccontextmanager
async def thinking(front: str, thought: asyncio.Event, how: str = "before the head") -> AsyncIterator[FakeBackend]:
    """The backend beside this front, whose model is silent until it may answer."""
    back = back_of(front)

    async def script(exchange: Exchange) -> None:
        if back == "agent-runs" and exchange.seen.method == "POST":
            await queued(exchange)
            return
        if how == "after the head":
            await exchange.head()
        await thought.wait()
        if how == "refuses":
            await exchange.answer(500, b"{}")
            return
        if how != "after the head":
            await exchange.head()
        said = Said.of(back, dict(parse_qsl(urlsplit(exchange.seen.path).query)).get("runId"))
        await exchange.send(said.first + said.sunny + said.rest)
        await exchange.end()

    async with fake_backend() as backend:
        backend.plays(script)
        yield backend


class Client:
    """A client of one dialect that reads its stream piece by piece."""

    def __init__(self, base: str, front: str) -> None:
        self._base, self._front = base, registry.get(front)
        self._data = b""

    async def __aenter__(self) -> Client:
        wire = asking(self._front)
        await self._send(wire)
        if self._front.name == "agent-runs":
            await self.rest()
            self._writer.close()
            self._data = b""
            await self._send(WireRequest("GET", "/runs/t1/events?runId=r1"))
        return self

    async def _send(self, wire: WireRequest) -> None:
        self._reader, self._writer = await connect(self._base)
        self._writer.write(raw(wire, "/it"))

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def until(self, sign: bytes) -> None:
        """Read until this has come. Raises `TimeoutError`."""
        async with asyncio.timeout(LIMIT):
            while sign not in self._data:
                piece = await self._reader.read(2**16)
                assert piece, self._data
                self._data += piece

    @property
    def body(self) -> bytes:
        """What has come of the body."""
        return parsed(self._data).body

    async def rest(self) -> Read:
        """What the whole answer amounts to."""
        async with asyncio.timeout(LIMIT):
            while piece := await self._reader.read(2**16):
                self._data += piece
        saw = parsed(self._data)
        return read(self._front, saw) if saw.status != 202 else Read("queued", "", None)


@pytest.mark.parametrize("how", ["before the head", "after the head"])
@pytest.mark.parametrize("front", SPEAKING)
async def test_a_stream_begins_while_its_model_thinks(front: str, how: str, thought: asyncio.Event) -> None:
    async with (
        thinking(front, thought, how) as backend,
        serving({**setup(front, back_of(front), backend.url), **SOON}) as base,
        Client(base, front) as client,
    ):
        await client.until(SIGNS.get(front, b": keep-alive"))
        thought.set()
        answer = await client.rest()
    assert (answer.verdict, answer.text) == ("whole", WORDS)


@pytest.mark.parametrize("front", SPEAKING)
async def test_a_failure_after_that_is_an_error_of_the_stream(front: str, thought: asyncio.Event) -> None:
    async with (
        thinking(front, thought, "refuses") as backend,
        serving({**setup(front, back_of(front), backend.url), **SOON}) as base,
        Client(base, front) as client,
    ):
        await client.until(SIGNS.get(front, b": keep-alive"))
        thought.set()
        answer = await client.rest()
    assert (answer.verdict, answer.text) == ("error event", "")


@pytest.mark.parametrize("front", SPEAKING)
async def test_another_backend_answers_after_that(front: str, thought: asyncio.Event) -> None:
    """Nothing of an answer was passed on: the next backend, and the next try, are asked as before."""
    async with thinking(front, thought, "refuses") as first, thinking(front, thought) as second:
        config = {**setup(front, back_of(front), first.url), **SOON}
        config["backends"]["other"] = {**config["backends"]["it"], "url": second.url}
        config["routes"] = [{"dialect": front, "path": "/it", "backend": ["it", "other"]}]
        async with serving(config) as base, Client(base, front) as client:
            await client.until(SIGNS.get(front, b": keep-alive"))
            thought.set()
            answer = await client.rest()
        assert first.seen
    assert (answer.verdict, answer.text) == ("whole", WORDS)


@pytest.mark.parametrize("front", [name for name in SPEAKING if name != "agent-runs"])
async def test_readers_of_durable_runs_are_kept_open_alike(front: str, thought: asyncio.Event) -> None:
    async with thinking(front, thought, "after the head") as backend:
        config = {**setup(front, back_of(front), backend.url), **SOON}
        config["routes"][0]["durable"] = True
        async with serving(config) as base, Client(base, front) as client:
            sign = SIGNS[front] if front == "gemini" else b": keep-alive"
            await client.until(sign)
            thought.set()
            answer = await client.rest()
    assert (answer.verdict, answer.text) == ("whole", WORDS)


@pytest.mark.parametrize("front", [name for name in SPEAKING if not registry.get(name).capabilities.eager_start])
@pytest.mark.parametrize("keepalive", ["off", "1h"])
async def test_until_then_a_failure_is_a_status(front: str, keepalive: str, thought: asyncio.Event) -> None:
    async with (
        thinking(front, thought, "refuses") as backend,
        serving({**setup(front, back_of(front), backend.url), "server": {"keepalive": keepalive}}) as base,
        Client(base, front) as client,
    ):
        thought.set()
        assert (await client.rest()).verdict == "HTTP 502"


OFF = [name for name in SPEAKING if "keepalive" in registry.get(name).front_options.model_fields]


@pytest.mark.parametrize("front", [name for name in OFF if not registry.get(name).capabilities.eager_start])
async def test_a_route_whose_clients_get_no_signs_begins_with_its_content(front: str, thought: asyncio.Event) -> None:
    async with thinking(front, thought, "refuses") as backend:
        config = {**setup(front, back_of(front), backend.url), **SOON}
        config["routes"][0]["options"] = {"keepalive": "off"}
        async with serving(config) as base, Client(base, front) as client:
            await asyncio.sleep(0.3)
            thought.set()
            assert (await client.rest()).verdict == "HTTP 502"


async def test_a_passthrough_route_sends_signs_and_the_backends_own_frames(thought: asyncio.Event) -> None:
    frames = b"".join(frames_of(registry.get("anthropic-messages"), "Hello"))

    async def script(exchange: Exchange) -> None:
        await thought.wait()
        await exchange.stream(frames)

    async with fake_backend() as backend:
        backend.plays(script)
        config = {**setup("anthropic-messages", "anthropic-messages", backend.url), **SOON}
        config["routes"][0]["passthrough"] = True
        async with serving(config) as base, Client(base, "anthropic-messages") as client:
            await client.until(b"event: ping")
            thought.set()
            await client.rest()
            pings = b'event: ping\ndata: {"type":"ping"}\n\n'
            assert client.body.replace(pings, b"") == frames


async def test_sessions_over_grpc_are_sent_pings(thought: asyncio.Event) -> None:
    """AIP has no message that says nothing: HTTP/2 has a frame for it."""
    pings = asyncio.Semaphore(0)

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, counts: bool) -> None:
        while data := await source.read(2**16):
            if counts and data[3:4] == b"\x06" and data[4:5] == b"\0":  # a frame of type PING, no acknowledgment
                pings.release()
            target.write(data)

    front = "anthropic-messages"
    async with (
        thinking(front, thought) as backend,
        agent_over(back_of(front), backend.url, keepalive="100ms") as address,
    ):

        async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection(*address.split(":"))
            await asyncio.gather(pump(reader, back, False), pump(there, writer, True), return_exceptions=True)
            back.close()
            writer.close()

        server = await asyncio.start_server(between, "127.0.0.1", free_port())
        asked = asyncio.ensure_future(call(f"127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        async with asyncio.timeout(LIMIT):
            for _ in range(5):
                await pings.acquire()
        thought.set()
        answer = await asked
        server.close()
    assert (answer.verdict, answer.text) == ("whole", WORDS)


async def test_events_that_a_client_is_not_shown_are_silence_for_it() -> None:
    """A model that reasons for a long time, over a route that shows no reasoning."""
    heard = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        said = Said.of("openai-chat")
        thought = b'{"id":"c","model":"m","choices":[{"index":0,"delta":{"reasoning_content":"hm "}}]}'
        while not heard.is_set():
            await exchange.send(b"data: %b\n\n: and a comment\n\n" % thought)
            await asyncio.sleep(0.02)
        await exchange.send(said.first + said.sunny + said.rest)
        await exchange.end()

    async with fake_backend() as backend:
        backend.plays(script)
        config = {**setup("anthropic-messages", "openai-chat", backend.url), **SOON}
        config["routes"][0]["options"] = {"reasoning": "drop"}
        async with serving(config) as base, Client(base, "anthropic-messages") as client:
            await client.until(b"event: ping")
            heard.set()
            answer = await client.rest()
    assert (answer.verdict, answer.text) == ("whole", WORDS)


@pytest.mark.parametrize("how", ["before the head", "refuses"])
async def test_so_begins_a_stream_that_is_one_json_array(how: str, thought: asyncio.Event) -> None:
    """Gemini's for clients that do not ask for events: it stays one valid array."""
    gemini = registry.get("gemini")
    async with (
        thinking("gemini", thought, how) as backend,
        serving({**setup("gemini", back_of("gemini"), backend.url), **SOON}) as base,
    ):
        wire = asking(gemini)
        wire.path = wire.path.partition("?")[0]
        reader, writer = await connect(base)
        writer.write(raw(wire, "/it"))
        async with asyncio.timeout(LIMIT):
            data = await reader.readuntil(SIGNS["gemini"])
            thought.set()
            data += await reader.read()
        writer.close()
    chunks = orjson.loads(parsed(data).body)
    texts = [part["text"] for c in chunks for each in c.get("candidates", ()) for part in each["content"]["parts"]]
    assert "".join(texts) == ("" if how == "refuses" else WORDS)
    assert ("error" in chunks[-1]) is (how == "refuses")


async def test_a_proxy_that_cuts_silent_connections_does_not_cut_these() -> None:
    """What `make soak` measures with nginx and ten minutes; an answer that is not streamed needs a patient proxy."""
    results = await silent.measured(8.0, nginx=False)
    assert {(seen.front, seen.case.name): seen.verdict for seen in results} == {
        (front, case.name): case.expected for front in silent.FRONTS for case in silent.CASES
    }


# ---------------------------------------------------------------------- official clients


@asynccontextmanager
async def bridged(front: str, thought: asyncio.Event, how: str = "before the head") -> AsyncIterator[str]:
    route = {"dialect": front, "path": "/v1", "backend": "it"}
    async with (
        thinking(front, thought, how) as backend,
        serving({**setup(front, back_of(front), backend.url), **SOON, "routes": [route]}) as base,
    ):
        yield f"{base}/v1"


async def later(event: asyncio.Event) -> None:
    """Let several signs of life pass first."""
    await asyncio.sleep(0.4)
    event.set()


async def of_chat(base: str) -> str:
    async with openai.AsyncOpenAI(base_url=base, api_key="k", max_retries=0) as client:
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])


async def of_responses(base: str) -> str:
    async with (
        openai.AsyncOpenAI(base_url=base, api_key="k", max_retries=0) as client,
        client.responses.stream(model="m", input="hi") as stream,
    ):
        async for _ in stream:
            pass
        return (await stream.get_final_response()).output_text


async def of_messages(base: str) -> str:
    asked: Any = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "hi"}]}
    async with (
        anthropic.AsyncAnthropic(base_url=base.removesuffix("/v1"), api_key="k", max_retries=0) as client,
        client.messages.stream(**asked) as stream,
    ):
        return "".join([text async for text in stream.text_stream])


SDKS = {"openai-chat": of_chat, "openai-responses": of_responses, "anthropic-messages": of_messages}


@pytest.mark.parametrize("front", SDKS)
async def test_official_clients_read_a_stream_that_is_silent_first(front: str, thought: asyncio.Event) -> None:
    async with bridged(front, thought) as base:
        words, _ = await asyncio.gather(SDKS[front](base), later(thought))
    assert words == WORDS


@pytest.mark.parametrize("front", SDKS)
async def test_official_clients_read_a_failure_behind_signs_of_life(front: str, thought: asyncio.Event) -> None:
    async with bridged(front, thought, "refuses") as base:
        with pytest.raises((openai.APIError, anthropic.APIError), match="status 500"):
            await asyncio.gather(SDKS[front](base), later(thought))


# ---------------------------------------------------------------------- the limits

SHORT = {"timeouts": {"first_event": "800ms", "idle": "800ms"}}


def limited(front: str, back: str, url: str, **timeouts: str) -> dict[str, Any]:
    return setup(front, back, url, **(SHORT if not timeouts else {"timeouts": timeouts}))


@pytest.mark.parametrize("http_client", ["aiohttp", "httptools"])
@pytest.mark.parametrize("begun", [False, True])
async def test_a_backend_that_sends_comments_is_no_silent_one(begun: bool, http_client: str) -> None:
    """They arrive for three times as long as each of the two limits."""

    async def script(exchange: Exchange) -> None:
        said = Said.of("openai-chat")
        await exchange.head()
        if begun:
            await exchange.send(said.first)
        for _ in range(24):
            await exchange.send(b": still thinking\n\n")
            await asyncio.sleep(0.1)
        await exchange.send(b"" if begun else said.first)
        await exchange.send(said.sunny + said.rest)
        await exchange.end()

    async with fake_backend() as backend:
        backend.plays(script)
        config = {**limited("ag-ui", "openai-chat", backend.url), "server": {"http_client": http_client}}
        async with serving(config) as base, Client(base, "ag-ui") as client:
            answer = await client.rest()
    assert (answer.verdict, answer.text) == ("whole", WORDS)


WHOLE = ["anthropic-messages", "gemini", "openai-chat", "openai-responses"]
"""Backends that are asked for an answer in one piece if the client wants one."""


@pytest.mark.parametrize("slow", ["head", "body"])
@pytest.mark.parametrize("back", WHOLE)
async def test_an_answer_in_one_piece_has_the_time_of_the_whole_run(back: str, slow: str) -> None:
    async with fake_backend(back) as speaking:
        speaking.says("Hello ", "w☀")
        answers = speaking.script
        assert answers is not None

        async def script(exchange: Exchange) -> None:
            passed = _Slow(exchange, slow)
            await answers(passed)  # type: ignore[arg-type]

        speaking.plays(script)
        async with serving(limited("openai-chat", back, speaking.url)) as base:
            connection = await connect(base)
            connection[1].write(raw(asking(registry.get("openai-chat"), stream=False), "/it"))
            saw = parsed(await connection[0].read())
            connection[1].close()
    assert saw.status == 200
    assert "Hello w☀".encode() in saw.body


async def test_so_has_the_message_of_an_agent_without_streams() -> None:
    """A card without `streaming`: the request waits until the agent has worked."""
    card = {**OLD_CARD, "capabilities": {"streaming": False}}

    async def script(exchange: Exchange) -> None:
        if exchange.seen.method == "GET":
            await exchange.answer(200, orjson.dumps(card))
            return
        await asyncio.sleep(2)
        said = {"kind": "message", "messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "Hello"}]}
        await exchange.answer(200, rpc(said))

    async with fake_backend() as backend:
        backend.plays(script)
        config = limited("openai-chat", "a2a", backend.url)
        del config["backends"]["it"]["options"]
        async with serving(config) as base:
            reader, writer = await connect(base)
            writer.write(raw(asking(registry.get("openai-chat"), stream=False), "/it"))
            saw = parsed(await reader.read())
            writer.close()
    assert saw.status == 200
    assert b"Hello" in saw.body


class _Slow(Exchange):
    """The same exchange, whose answers come late, or with a pause in them."""

    def __init__(self, exchange: Exchange, slow: str) -> None:
        super().__init__(exchange.seen, exchange._writer)
        self._slow = slow

    async def raw(self, data: bytes) -> None:
        if self._slow == "head":
            await asyncio.sleep(2)
            self._slow = ""
        head, found, rest = data.partition(b"\r\n\r\n")
        if self._slow and found:
            await super().raw(head + found + rest[:1])
            await asyncio.sleep(2)
            data, self._slow = rest[1:], ""
        await super().raw(data)


async def test_a_question_that_is_not_answered_names_its_limit() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.left()

    async with fake_backend() as backend:
        backend.plays(script)
        config = setup("openai-chat", "openai-chat", backend.url, timeouts={"first_event": "200ms"})
        async with serving(config) as base:
            reply = await ask("GET", f"{base}/it/models")
    assert reply.status == 504
    assert "did not answer within 0.2 s (timeouts.first_event)" in reply.json["error"]["message"]


@pytest.mark.parametrize(
    ("timeouts", "stream", "named"),
    [
        ({"first_event": "300ms"}, True, "for 0.3 s before its first content (timeouts.first_event)"),
        ({"total": "300ms"}, True, "longer than 0.3 s (timeouts.total)"),
        ({"total": "300ms", "first_event": "100ms"}, False, "longer than 0.3 s (timeouts.total)"),
    ],
)
async def test_a_refusal_names_the_limit_and_its_value(
    timeouts: dict[str, str], stream: bool, named: str, caplog: pytest.LogCaptureFixture, thought: asyncio.Event
) -> None:
    async with (
        thinking("anthropic-messages", thought) as backend,
        serving(setup("openai-chat", "openai-chat", backend.url, timeouts=timeouts)) as base,
    ):
        reader, writer = await connect(base)
        writer.write(raw(asking(registry.get("openai-chat"), stream=stream), "/it"))
        saw = parsed(await reader.read())
        writer.close()
        thought.set()
    assert saw.status == 504
    assert named in saw.body.decode()
    line = next(r.getMessage() for r in caplog.records if r.name == "bridge.access" and "run failed" in r.getMessage())
    assert named in line
    assert "check the timeouts of backend 'it'" in line
