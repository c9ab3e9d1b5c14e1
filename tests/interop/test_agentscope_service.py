"""A real agent service of AgentScope 2 as the backend, behind every frontend (`make interop` installs it)."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bridge.contract import Capabilities, Feature, Support, WireRequest, WireResponse, registry
from bridge.errors import ErrorCode
from bridge.model import (
    Answer,
    FinishReason,
    Inline,
    Media,
    MediaKind,
    Message,
    Request,
    Resume,
    Text,
    Tool,
    ToolResult,
    fold,
    verify,
)
from bridge.testing.wires import context
from bridge.translation import AnswerDecoder
from tests.dialects.agent_runs.helpers import run_input
from tests.docs.helpers import ROOT, server
from tests.interop.redis_server import redis_server  # noqa: F401
from tests.sdk.aip.test_python_api import address
from tests.server.harness import ask, free_port, post, serving

PYTHON = Path(sys.prefix) / "agentscope2" / "bin" / "python"
SCRIPT = ROOT / "tests" / "interop" / "agentscope2_service.py"
USER = "ann"
FRONTS = [name for name in registry.over_http() if name not in ("agent-runs", "acp", "mcp")]
"""Dialects whose clients ask and are answered by one request."""
fronts = pytest.mark.parametrize("front", FRONTS)
turns = pytest.mark.turns(3)
with_tools = pytest.mark.parametrize(
    "front", [name for name in FRONTS if registry.get(name).capabilities.request(Feature.TOOLS) is not Support.DROP]
)


IMAGE = Media(MediaKind.IMAGE, Inline("iVBORw0KGgo="), "image/png")
KEYS = {name: f"{name}-0123456789abcdef" for name in ("alice", "bob")}


@dataclass
class Service:
    """The service, and the options of a backend that has its agent and model."""

    url: str
    port: int
    options: dict[str, Any] = field(default_factory=dict)

    def call(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"x-user-id": USER, "content-type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=20) as reply:
            return json.load(reply)

    def prepare(self) -> None:
        agent = self.call("/agent/", {"name": "Friday"})["agent_id"]
        key = {"type": "openai_credential", "api_key": "k", "base_url": f"{self.url}/v1"}
        credential = self.call("/credential/", {"data": key})["credential_id"]
        model = {"type": "openai_credential", "credential_id": credential, "model": "scripted"}
        config = {**model, "model_class": "openai_chat", "parameters": {}}
        self.options = {"agent_id": agent, "user_id": USER, "chat_model_config": config}

    @property
    def sessions(self) -> dict[str, str]:
        """The names of all sessions, with what they do."""
        views = self.call(f"/sessions/?agent_id={self.options['agent_id']}")["sessions"]
        return {view["session"]["config"]["name"]: view["status"] for view in views}


STORES = [pytest.param("sqlite", marks=pytest.mark.interop), pytest.param("redis", marks=pytest.mark.interop_all)]


@pytest.fixture(scope="module", params=STORES)
def service(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Service]:
    assert PYTHON.exists(), f"the agent service is not installed in {PYTHON.parents[1]}: run `make interop`"
    redis = [request.getfixturevalue("redis_server")] if request.param == "redis" else []
    with starting(tmp_path_factory.mktemp("service"), *redis) as made:
        yield made


@contextmanager
def starting(folder: Path, *redis: str, port: int | None = None) -> Iterator[Service]:
    """The service with its data in this folder."""
    command = (str(PYTHON), str(SCRIPT), "{port}", str(folder), *redis)
    with server(folder, *command, port=port, ready="/health", forked=True) as running:
        made = Service(running.url, running.port)
        made.prepare()
        yield made


@asynccontextmanager
async def bridge(
    service: Service, folder: Path, *names: str, url: str = "", keys: dict[str, str] | None = None
) -> AsyncIterator[str]:
    backend = {"dialect": "agentscope-service", "url": url or service.url, "options": service.options}
    auth = {"auth": {"keys": [{"name": name, "key": key} for name, key in keys.items()]}} if keys else {}
    config: dict[str, Any] = {
        "server": auth,
        "backends": {"agent": backend},
        "routes": [{"dialect": name, "path": f"/{name}{version(name)}", "backend": "agent"} for name in names],
        "stores": {"history": f"sqlite:///{folder}/history.db"},
    }
    async with serving(config) as base:
        yield base


class Client:
    """Any frontend's client, which keeps its conversation and sends what its protocol sends."""

    def __init__(self, base: str, front: str, folder: Path, key: str = "") -> None:
        self._key = {"authorization": f"Bearer {key}"} if key else {}
        self.dialect = registry.get(front)
        self._base = f"{base}/{front}"
        self._version = version(front)
        self._thread = f"{front}-{folder.name}"
        self.messages: list[Message] = []
        self._turn = 0
        self._known = 0

    def _path(self, wire: WireRequest) -> str:
        return wire.path if wire.path.startswith("/v1") else self._version + wire.path

    async def ask(self, *new: Message, resume: list[Resume] | None = None) -> Answer:
        self._turn += 1
        self.messages += new
        delta = self.dialect.capabilities.history != "full"
        said = self.messages[self._known :] if delta else self.messages
        tools = [Tool("client_clock", "The time", {"type": "object", "properties": {}})]
        request = Request(
            list(said),
            tools,
            model="m",
            thread_id=self._thread,
            run_id=f"{self._thread}-{self._turn}",
            resume=resume or [],
        )
        made = context(self.dialect.back_options(), request)
        made.thread_id, made.run_id = self._thread, request.run_id or ""
        wire = self.dialect.encode_request(request, made)
        reading = AnswerDecoder(self.dialect, made)
        url, query, headers = self._base + self._path(wire), dict(wire.query), {**wire.headers, **self._key}
        async with (
            aiohttp.ClientSession() as http,
            http.request(wire.method, url, params=query, data=wire.body, headers=headers) as reply,
        ):
            body = await reply.read()
        if reply.status >= 400:
            refusal = WireResponse(reply.status, {"content-type": "application/json"}, body)
            answer = Answer(failure=self.dialect.decode_error(refusal))
        else:
            answer = fold(verify(reading.receive(body) + reading.close()))
            assert reply.status == 200
        self.messages += [m for m in answer.messages if m.parts]
        self._known = len(self.messages)
        return answer


def version(front: str) -> str:
    """The version at the end of the path at which clients of this dialect look for it."""
    mount = registry.get(front).mount
    return mount if mount.startswith("/v1") else ""


def card_of(front: str) -> Capabilities:
    """What this dialect declares."""
    return registry.get(front).capabilities


def user(text: str) -> Message:
    """What a person says."""
    return Message("user", [Text(text)], id=f"u-{text}")


# ---------------------------------------------------------------------- every frontend, each in some of these tests


@turns
@fronts
async def test_text_thinking_tools_and_a_failure(service: Service, front: str, tmp_path: Path) -> None:
    async with bridge(service, tmp_path, front) as base:
        client = Client(base, front, tmp_path)
        first = await client.ask(user("hello"))
        assert (first.text, first.failure, first.reason) == ("You said: hello 你好 🙂", None, FinishReason.STOP)
        second = await client.ask(user("think"))
        assert (second.text, second.failure) == ("Six times seven is 42.", None)
        if client.dialect.capabilities.answer(Feature.REASONING) is Support.EXACT and front != "gemini":  # if asked for
            assert second.reasoning == "Hm, hm."
        third = await client.ask(user("tool"))
        assert (third.text, third.reason) == ("Tools said: Paris: sunny", FinishReason.STOP)
        fourth = await client.ask(user("two"))
        assert fourth.text == "Tools said: Paris: sunny / Oslo: sunny"
        card = card_of(front)
        if not card.client_runs_calls and card.answer(Feature.TOOL_RESULT) is Support.EXACT:
            assert len(fourth.results) == 2
        last = await client.ask(user("heard"))
        if card_of(front).request(Feature.IMAGE_INLINE) is Support.EXACT:
            seen = await client.ask(Message("user", [Text("look"), IMAGE], id="u-look"))
            assert (seen.text, seen.failure) == ("I see: text, image_url", None)
        failed = await client.ask(user("error"))
        assert failed.failure is not None
        assert "The agent's model refused the request" in failed.failure.message
        assert (await client.ask(user("again"))).text.endswith("again 你好 🙂")
    heard = last.text.split(" | ")
    assert [h.removeprefix("user: ") for h in heard if h.startswith("user: ")][:4] == ["hello", "think", "tool", "two"]
    assert "assistant: You said: hello 你好 🙂" in heard


@turns
@fronts
@pytest.mark.parametrize("agrees", [True, False], ids=["yes", "no"])
async def test_a_permission(service: Service, front: str, agrees: bool, tmp_path: Path) -> None:
    async with bridge(service, tmp_path, front) as base:
        client = Client(base, front, tmp_path)
        first = await client.ask(user("ask"))
        assert first.failure is None
        if first.interrupts:
            answer = [Resume(asked.interrupt_id, "resolved", {"approved": agrees}) for asked in first.interrupts]
            second = await client.ask(resume=answer)
            again = await client.ask(resume=answer)
            assert again.failure is not None
            # An A2A client answers a task, which is over now.
            assert again.failure.code is (ErrorCode.NOT_FOUND if front == "a2a" else ErrorCode.CONFLICT)
        else:
            assert "send_mail" in first.text + "".join(call.name for call in first.calls)
            second = await client.ask(user("yes" if agrees else "no"))
        assert second.failure is None
        assert ("sent to bob" in second.text) == agrees
        assert ("denied" in second.text) == (not agrees)
        assert (await client.ask(user("on"))).text == "You said: on 你好 🙂"


@turns
@with_tools
async def test_a_tool_that_the_client_runs(service: Service, front: str, tmp_path: Path) -> None:
    async with bridge(service, tmp_path, front) as base:
        client = Client(base, front, tmp_path)
        first = await client.ask(user("external"))
        (call,) = first.calls
        assert (call.name, json.loads(call.arguments)) == ("client_clock", {"zone": "UTC"})
        assert (first.failure, first.results) == (None, [])
        second = await client.ask(Message("tool", [ToolResult(call.call_id, [Text("12:00")])], id="r1"))
        assert (second.text, second.failure) == ("Tools said: 12:00", None)
        third = await client.ask(user("again"))
        assert third.text == "You said: again 你好 🙂"


@pytest.mark.parametrize(
    "front",
    ["a2a", "openai-chat", *(pytest.param(n, marks=pytest.mark.interop_all) for n in FRONTS[1:] if n != "openai-chat")],
)
async def test_a_client_that_leaves_stops_the_run(service: Service, front: str, tmp_path: Path) -> None:
    scene = f"wait-{front}-{tmp_path.name}"
    async with bridge(service, tmp_path, front) as base:
        client = Client(base, front, tmp_path)
        asking = asyncio.create_task(client.ask(user(scene)))
        async with aiohttp.ClientSession() as http:
            left = asyncio.create_task(http.get(f"{service.url}/left/{scene}"))
            async with http.get(f"{service.url}/began/{scene}"):
                asking.cancel()
            async with asyncio.timeout(20), await left as reply:
                assert reply.status == 200


@pytest.mark.parametrize("front", ["ag-ui", "agentscope", "openai-chat"])
async def test_users_whose_threads_have_one_name(service: Service, front: str, tmp_path: Path) -> None:
    async with bridge(service, tmp_path, front, keys=KEYS) as base:
        alice, bob = (Client(base, front, tmp_path, key) for key in KEYS.values())
        await asyncio.gather(alice.ask(user("by alice")), bob.ask(user("by bob")))
        first, second = await asyncio.gather(alice.ask(user("heard")), bob.ask(user("heard")))
        assert ("user: by alice" in first.text, "bob" in first.text) == (True, False)
        assert ("user: by bob" in second.text, "alice" in second.text) == (True, False)
        stranger = await Client(base, front, tmp_path, "another-0123456789abcdef").ask(user("hello"))
        assert stranger.failure is not None


class Proxy:
    """Passes bytes on to a port, and waits for who is to listen there; its connections can be cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self.asked = self.answered = b""
        self.url = ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Proxy]:
        port = free_port()
        async with await asyncio.start_server(self._join, "127.0.0.1", port):
            self.url = f"http://127.0.0.1:{port}"
            yield self
            self.cut()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        while True:
            try:
                back, forth = await asyncio.open_connection("127.0.0.1", self._port)
                break
            except OSError:
                await asyncio.sleep(0.05)
        self._writers.append(forth)
        with suppress(OSError):
            await asyncio.gather(self._pass(reader, forth, "asked"), self._pass(back, writer, "answered"))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        while data := await reader.read(65536):
            setattr(self, way, getattr(self, way) + data)
            writer.write(data)
        writer.close()

    def cut(self) -> None:
        """Breaks all connections, and forgets what was asked and answered."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers, self.asked, self.answered = [], b"", b""

    async def sees(self, words: bytes) -> None:
        """Returns when it was asked for this, or answered with it."""
        async with asyncio.timeout(20):
            while words not in self.asked + self.answered:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("front", ["openai-chat", "ag-ui", "a2a"])
async def test_a_stream_that_breaks_is_resumed(service: Service, front: str, tmp_path: Path) -> None:
    scene = f"pause-{front}-{tmp_path.name}"
    async with Proxy(service.port).listening() as proxy, bridge(service, tmp_path, front, url=proxy.url) as base:
        asking = asyncio.create_task(Client(base, front, tmp_path).ask(user(scene)))
        await proxy.sees(b"One, ")
        proxy.cut()
        await proxy.sees(b"/stream?")
        await asyncio.to_thread(service.call, f"/go/{scene}")
        answer = await asking
    assert (answer.text, answer.failure, answer.reason) == ("One, two.", None, FinishReason.STOP)


@pytest.mark.interop
async def test_a_service_that_is_killed_during_a_run(tmp_path: Path) -> None:
    """The answer is a failure, however soon the service is back, and the next message goes on from what was said."""
    port = free_port()
    async with Proxy(port).listening() as proxy, AsyncExitStack() as stack:
        with starting(tmp_path, port=port) as service:
            base = await stack.enter_async_context(bridge(service, tmp_path, "openai-chat", url=proxy.url))
            client = Client(base, "openai-chat", tmp_path)
            await client.ask(user("hello"))
            asking = asyncio.create_task(client.ask(user("wait")))
            await proxy.sees(b"I am waiting")
        with starting(tmp_path, port=port):
            answer = await asking
            assert answer.failure is not None
            assert (answer.text, answer.failure.code) == ("I am waiting", ErrorCode.TRUNCATED_STREAM)
            assert "user: hello" in (await client.ask(user("heard"))).text


async def test_a_client_of_aip(service: Service, tmp_path: Path) -> None:
    """A program that runs agents over AIP: here a bridge of its own, whose client speaks chat completions."""
    listen = address()
    config = {
        "backends": {
            "agent": {"dialect": "agentscope-service", "url": service.url, "options": service.options},
            "gateway": {"dialect": "aip", "url": listen, "options": {"agent": "friday"}},
        },
        "routes": [
            {"dialect": "aip", "listen": listen, "agent_id": "friday", "backend": "agent"},
            {"dialect": "openai-chat", "path": "/openai-chat/v1", "backend": "gateway"},
        ],
        "stores": {"history": f"sqlite:///{tmp_path}/history.db"},
    }
    async with serving(config) as base:
        for said, wanted in (("hello", "You said: hello 你好 🙂"), ("tool", "Tools said: Paris: sunny")):
            answer = await Client(base, "openai-chat", tmp_path).ask(user(said))
            assert (answer.text, answer.failure) == (wanted, None)
        failed = await Client(base, "openai-chat", tmp_path).ask(user("error"))
        assert failed.failure is not None
        assert "The agent's model refused the request" in failed.failure.message


async def test_queued_runs(service: Service, tmp_path: Path) -> None:
    """The frontend `agent-runs`, whose clients start a run and read its events."""
    url = "/api/v1/agent"
    config = {
        "backends": {"agent": {"dialect": "agentscope-service", "url": service.url, "options": service.options}},
        "routes": [{"dialect": "agent-runs", "path": url, "backend": "agent"}],
        "stores": dict.fromkeys(("history", "runs"), f"sqlite:///{tmp_path}/bridge.db"),
    }
    async with serving(config) as base:

        async def say(text: str) -> str:
            body = run_input(text, f"run-{text}")
            named = (await post(f"{base}{url}/runs", body)).json
            where = f"{base}{url}/runs/{named['threadId']}/events?runId={named['runId']}"
            events = [
                json.loads(line[6:]) for line in (await ask("GET", where)).body.split(b"\n") if line[:6] == b"data: "
            ]
            assert events[-1]["type"] == "RUN_FINISHED", events[-1]
            return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")

        assert await say("hello") == "You said: hello 你好 🙂"
        assert await say("tool") == "Tools said: Paris: sunny"
        assert "user: hello" in await say("heard")
        scene = f"wait-{tmp_path.name}"
        thread = (await post(f"{base}{url}/runs", run_input(scene, "run-wait"))).json["threadId"]
        await asyncio.to_thread(service.call, f"/began/{scene}")
        assert (await ask("POST", f"{base}{url}/runs/{thread}/cancel?runId=run-wait")).status == 202
        assert await say("again") == "You said: again 你好 🙂"
