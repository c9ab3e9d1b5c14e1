"""A real agent service of AgentScope 2 as the backend, behind every frontend (`make interop` installs it)."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bridge.codec import Feature, Support, WireRequest, WireResponse, registry
from bridge.model import Answer, FinishReason, Message, Request, Resume, Text, Tool, ToolResult, fold, verify
from bridge.testing.wires import context
from bridge.translation import AnswerDecoder
from tests.dialects.agent_runs.helpers import run_input
from tests.dialects.aip.test_python_api import address
from tests.docs.helpers import ROOT, server
from tests.server.harness import ask, post, serving
from tests.stores.run_engines import redis_server  # noqa: F401

PYTHON = Path(sys.prefix) / "agentscope2" / "bin" / "python"
SCRIPT = ROOT / "tests" / "interop" / "agentscope2_service.py"
USER = "ann"
FRONTS = [name for name in registry.over_http() if name != "agent-runs"]
"""Dialects whose clients ask and are answered by one request."""
fronts = pytest.mark.parametrize("front", FRONTS)
with_tools = pytest.mark.parametrize(
    "front", [name for name in FRONTS if registry.get(name).capabilities.request(Feature.TOOLS) is not Support.DROP]
)


@dataclass
class Service:
    """The service, and the options of a backend that has its agent and model."""

    url: str
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
    folder = tmp_path_factory.mktemp("service")
    redis = [request.getfixturevalue("redis_server")] if request.param == "redis" else []
    with server(folder, str(PYTHON), str(SCRIPT), "{port}", str(folder), *redis, ready="/health") as running:
        made = Service(running.url)
        made.prepare()
        yield made


@asynccontextmanager
async def bridge(service: Service, folder: Path, *names: str, **options: Any) -> AsyncIterator[str]:
    backend = {"dialect": "agentscope-service", "url": service.url, "options": {**service.options, **options}}
    config = {
        "backends": {"agent": backend},
        "routes": [{"dialect": name, "path": f"/{name}{version(name)}", "backend": "agent"} for name in names],
        "stores": {"history": f"sqlite:///{folder}/history.db"},
    }
    async with serving(config) as base:
        yield base


class Client:
    """Any frontend's client, which keeps its conversation and sends what its protocol sends."""

    def __init__(self, base: str, front: str, folder: Path) -> None:
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
        url, query, headers = self._base + self._path(wire), dict(wire.query), dict(wire.headers)
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


def user(text: str) -> Message:
    """What a person says."""
    return Message("user", [Text(text)], id=f"u-{text}")


# ---------------------------------------------------------------------- every frontend


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
        card = client.dialect.capabilities
        if not card.client_runs_calls and card.answer(Feature.TOOL_RESULT) is Support.EXACT:
            assert len(fourth.results) == 2
        last = await client.ask(user("heard"))
        failed = await client.ask(user("error"))
        assert failed.failure is not None
        assert "The agent's model refused the request" in failed.failure.message
        assert (await client.ask(user("again"))).text.endswith("again 你好 🙂")
    heard = last.text.split(" | ")
    assert [h.removeprefix("user: ") for h in heard if h.startswith("user: ")][:4] == ["hello", "think", "tool", "two"]
    assert "assistant: You said: hello 你好 🙂" in heard


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


@fronts
@pytest.mark.parametrize("agrees", [True, False], ids=["yes", "no"])
async def test_a_permission(service: Service, front: str, agrees: bool, tmp_path: Path) -> None:
    async with bridge(service, tmp_path, front) as base:
        client = Client(base, front, tmp_path)
        first = await client.ask(user("ask"))
        assert first.failure is None
        if first.interrupts:
            (asked,) = first.interrupts
            second = await client.ask(resume=[Resume(asked.interrupt_id, "resolved", {"approved": agrees})])
        else:
            assert "send_mail" in first.text + "".join(call.name for call in first.calls)
            second = await client.ask(user("yes" if agrees else "no"))
        assert second.failure is None
        assert ("sent to bob" in second.text) == agrees
        assert ("denied" in second.text) == (not agrees)


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
