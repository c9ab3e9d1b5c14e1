"""LangGraph's own server in memory as the backend, behind every frontend (`make interop` installs it)."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from bridge.contract import registry
from bridge.engine.bridge import Bridge
from bridge.errors import ErrorCode
from bridge.model import (
    Answer,
    Custom,
    FinishReason,
    Inline,
    Media,
    MediaKind,
    Message,
    Request,
    Resume,
    StateChanged,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    fold,
    result_text,
    verify,
)
from bridge.testing.wires import context
from bridge.translation import AnswerDecoder
from tests.docs.helpers import ROOT, server
from tests.interop.test_agentscope_service import FRONTS, version
from tests.server.harness import post, serving

PYTHON = Path(sys.prefix) / "langgraph" / "bin"
pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    assert PYTHON.exists(), f"LangGraph's server is not installed in {PYTHON}: run `make interop`"
    folder = tmp_path_factory.mktemp("langgraph")
    script = ROOT / "tests" / "interop" / "langgraph_agent.py"
    (folder / "agent.py").write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
    graphs = {"agent": f"{folder}/agent.py:graph", "paused": f"{folder}/agent.py:paused"}
    config = folder / "langgraph.json"
    config.write_text(json.dumps({"dependencies": [str(folder)], "graphs": graphs}))
    command = (str(PYTHON / "langgraph"), "dev", "--no-browser", "--no-reload", "--config", str(config))
    told = {"LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1"}
    with server(folder, *command, "--port", "{port}", ready="/ok", **told) as running:
        yield running.url


@pytest.fixture
def names_answered() -> bool:
    """Whether the server refuses an answer to a question that is answered, and names it; this one takes it as new."""
    return False


@asynccontextmanager
async def bridge(url: str, **options: Any) -> AsyncIterator[Bridge]:
    config = {
        "backends": {"agent": {"dialect": "langgraph", "url": url, "options": options}},
        "routes": [{"dialect": "ag-ui", "path": "/agui", "backend": "agent"}],
        "stores": {"history": "off", "runs": "sqlite:///:memory:"},
    }
    async with Bridge.from_config(config) as made:
        yield made


async def answer(made: Bridge, request: Request) -> Answer:
    return fold(verify([event async for event in made.stream(request)]))


async def asked(url: str, path: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(url + path) as response:
        return await response.json()


async def test_text_reasoning_tools_and_what_a_graph_writes(url: str) -> None:
    async with bridge(url) as made:
        thread = str(uuid4())
        tool = await answer(made, Request("the weather", thread_id=thread))
        thought = await answer(made, Request("think", thread_id=thread))
        custom = await answer(made, Request("custom", thread_id=thread))
    assert tool.text == "I will look. It is Paris: 21 degrees"
    assert [(c.name, json.loads(c.arguments)) for c in tool.calls] == [("get_weather", {"city": "Paris"})]
    assert [(r.call_id, result_text(r.parts)) for r in tool.results] == [(tool.calls[0].call_id, "Paris: 21 degrees")]
    assert tool.usage is not None
    assert (tool.usage.input, tool.usage.output, tool.usage.total) == (22, 14, 36)
    assert (tool.reason, thought.reasoning, thought.text) == (FinishReason.STOP, "Let me see.", "Thought.")
    assert custom.text == "You said: the weather / think / custom", "the thread remembers"
    assert [e.value for e in custom.events if isinstance(e, Custom)] == [{"progress": 1}]
    assert [e.value for e in custom.events if isinstance(e, StateChanged)][-1] == {"count": 4}


async def test_questions_are_answered_by_the_next_request(url: str, names_answered: bool) -> None:
    async with bridge(url) as made:
        thread = str(uuid4())
        question = await answer(made, Request("ask", thread_id=thread))
        (interrupt,) = question.interrupts
        named = Resume(interrupt.interrupt_id, "resolved", "Bob")
        said = await answer(made, Request("And be quick.", thread_id=thread, resume=[named]))
        again = await answer(
            made, Request([], thread_id=thread, resume=[named if names_answered else Resume("", "resolved")])
        )
        other = str(uuid4())
        both = await answer(made, Request("two", thread_id=other))
        answered = await answer(made, Request([], thread_id=other, resume=[Resume("", "resolved", "x")]))
        approval = await answer(made, Request("approve", thread_id=(third := str(uuid4()))))
        refused = await answer(made, Request([], thread_id=third, resume=[Resume("", "cancelled")]))
    assert question.reason is FinishReason.INTERRUPTED
    assert interrupt.payload == {"question": "What is your name?"}
    assert said.text == "Hello, Bob!You said: ask / And be quick."
    assert again.failure is not None
    assert again.failure.code is ErrorCode.CONFLICT
    assert sorted(i.payload for i in both.interrupts) == ["A?", "B?"]
    assert sorted(answered.text.split()) == ["A=x", "B=x"]
    assert approval.interrupts[0].reason == "tool_call"
    assert refused.text == "Decided: reject"


async def test_a_breakpoint_is_passed_with_a_yes(url: str) -> None:
    async with bridge(url, assistant_id="paused") as made:
        thread = str(uuid4())
        stopped = await answer(made, Request("the weather", thread_id=thread))
        (interrupt,) = stopped.interrupts
        went_on = await answer(made, Request([], thread_id=thread, resume=[Resume(interrupt.interrupt_id, "resolved")]))
    assert stopped.reason is FinishReason.INTERRUPTED
    assert went_on.text == "It is Paris: 21 degrees"


async def test_a_node_that_fails_is_a_failure_and_the_thread_goes_on(url: str) -> None:
    async with bridge(url) as made:
        thread = str(uuid4())
        failed = await answer(made, Request("fail", thread_id=thread))
        after = await answer(made, Request("Hi", thread_id=thread))
    assert failed.failure is not None
    assert (failed.failure.code, failed.failure.message) == (ErrorCode.BACKEND_ERROR, "the node broke")
    assert after.text == "You said: fail / Hi"


async def test_a_whole_conversation_with_calls_and_media_is_taken(url: str) -> None:
    image = Media(MediaKind.IMAGE, Inline("iVBORw0KGgo="), "image/png")
    talk = [
        Message("system", "Be kind."),
        Message("user", [Text("see"), image]),
        Message("assistant", [Text("Look"), ToolCall("c1", "get_weather", '{"city": "Rome"}')]),
        Message("tool", [ToolResult("c1", [Text("20")])]),
        Message("user", "next"),
    ]
    async with bridge(url) as made:
        thread = str(uuid4())
        assert (await answer(made, Request(talk, thread_id=thread))).text == "You said: see / next"
        assert (await answer(made, Request(talk))).text == "You said: see / next", "without a thread"
    stored = (await asked(url, f"/threads/{thread}/state"))["values"]["messages"]
    assert [message["type"] for message in stored] == ["system", "human", "ai", "tool", "human", "ai"]
    assert stored[2]["tool_calls"][0]["args"] == {"city": "Rome"}
    assert stored[1]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")


async def test_a_run_is_canceled_when_its_client_leaves(url: str) -> None:
    async with bridge(url) as made:
        thread = str(uuid4())
        stream = made.stream(Request("slow", thread_id=thread))
        async for event in stream:
            if isinstance(event, TextDelta):
                break
        await stream.aclose()
        (left,) = await asked(url, f"/threads/{thread}/runs")
        after = await answer(made, Request("Hi", thread_id=thread))
    assert left["status"] == "interrupted"
    assert after.text == "You said: slow / Hi"


@asynccontextmanager
async def cutting(url: str, *, within: bytes) -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that breaks each connection once, behind these bytes; gives its URL and the requests that it passed."""
    port = int(url.rpartition(":")[2])
    seen: list[str] = []
    cut: set[str] = set()
    open_ones: set[asyncio.Task[None] | None] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.add(mine := asyncio.current_task())
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)

        async def up() -> None:
            while data := await reader.read(65536):
                if data[:4] in (b"GET ", b"POST"):
                    seen.append(data.split(b" HTTP", 1)[0].decode())
                up_writer.write(data)
                await up_writer.drain()

        task = asyncio.create_task(up())
        with suppress(ConnectionError, asyncio.CancelledError):
            while data := await up_reader.read(65536):
                writer.write(data)
                await writer.drain()
                if within in data and not cut:
                    cut.add("once")
                    break
        task.cancel()
        writer.transport.abort()
        open_ones.discard(mine)
        for each in (up_writer, writer):
            each.close()
            with suppress(ConnectionError):
                await each.wait_closed()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", seen
        left = [each for each in open_ones if each is not None]
        for each in left:
            each.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def test_a_stream_that_breaks_goes_on_where_it_was(url: str) -> None:
    async with cutting(url, within=b'"content":"7 "') as (proxy, seen), bridge(proxy) as made:
        said = await answer(made, Request("slow", thread_id=str(uuid4())))
    assert said.text == "".join(f"{n} " for n in range(40))
    assert (said.failure, said.reason) == (None, FinishReason.STOP)
    assert [line for line in seen if line.startswith("GET") and line.endswith("/stream")]
    assert [e.value for e in said.events if isinstance(e, StateChanged)] == [{"count": 1}]


async def test_a_thread_that_the_server_lost_is_told_anew(url: str, tmp_path: Path) -> None:
    thread, texts = str(uuid4()), ["Hi", "You said: Hi", "And then?"]
    config = {
        "backends": {"agent": {"dialect": "langgraph", "url": url}},
        "routes": [{"dialect": "ag-ui", "path": "/agui", "backend": "agent"}],
        "stores": {"history": f"sqlite:///{tmp_path}/history.db"},
    }
    said = [{"id": f"m{n}", "role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    body = {"threadId": thread, "state": {}, "tools": [], "context": [], "forwardedProps": {}}
    async with serving(config) as base, aiohttp.ClientSession() as session:
        await post(f"{base}/agui", {**body, "runId": "one", "messages": said[:1]})
        async with session.delete(f"{url}/threads/{thread}") as deleted:
            assert deleted.status == 204
        reply = await post(f"{base}/agui", {**body, "runId": "two", "messages": said})
    assert b"RUN_FINISHED" in reply.body
    state = await asked(url, f"/threads/{thread}/state")
    assert [message["content"] for message in state["values"]["messages"]] == [*texts, "You said: Hi / And then?"]


@pytest.mark.parametrize("front", [name for name in FRONTS if name not in ("acp", "mcp")])
async def test_every_frontend_gets_the_answer_of_a_graph(url: str, front: str, tmp_path: Path) -> None:
    each = registry.get(front)
    key = f"{front}-0123456789abcdef"
    config = {
        # Users have threads of their own: the requests of all frontends name the same one.
        "server": {"auth": {"keys": [{"name": front, "key": key}]}},
        "backends": {"agent": {"dialect": "langgraph", "url": url}},
        "routes": [{"dialect": front, "path": f"/f{version(front)}", "backend": "agent"}],
        "stores": {"history": f"sqlite:///{tmp_path}/history.db"},
    }
    async with serving(config) as base:
        wire = each.example_request("the weather")
        reply = await post(f"{base}/f{version(front)}{wire.path}", wire.body, **{**wire.headers, "x-api-key": key})
    decoder = AnswerDecoder(each, context(each.back_options()), reply.headers, status=reply.status)
    got = fold([*decoder.receive(reply.body), *decoder.close()])
    assert got.failure is None
    assert got.text.endswith("It is Paris: 21 degrees")
