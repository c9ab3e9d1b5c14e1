"""aegra, a LangGraph server on PostgreSQL, as the backend: its runs end and resume otherwise than LangGraph's own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit
from uuid import uuid4

import aiohttp
import asyncpg
import pytest

from bridge.errors import ErrorCode
from bridge.model import Custom, FinishReason, Request, Resume, StateChanged, TextDelta, result_text
from tests.docs.helpers import ROOT, server
from tests.interop.test_langgraph import answer, asked, bridge, cutting
from tests.server.harness import post, serving
from tests.stores.conftest import postgres  # noqa: F401

PYTHON = Path(sys.prefix) / "aegra" / "bin"
SLOW = "".join(f"{n} " for n in range(40))
pytestmark = pytest.mark.interop_all


async def database(url: str) -> str:
    """Return the URL of a new database with the extension that aegra's first migration creates."""
    name = f"aegra_{uuid4().hex}"
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    parts = urlsplit(url)
    # aegra takes no escapes in it.
    own = urlunsplit(parts._replace(path=f"/{name}", query=unquote(parts.query)))
    connection = await asyncpg.connect(own)
    if not await connection.fetchval("SELECT count(*) FROM pg_available_extensions WHERE name = 'uuid-ossp'"):
        # The wheel's PostgreSQL has no contributed modules; of this one, aegra uses a function that is built in today.
        await connection.execute(
            "CREATE FUNCTION uuid_generate_v4() RETURNS uuid LANGUAGE sql AS 'SELECT gen_random_uuid()'"
        )
        await connection.execute(
            "INSERT INTO pg_extension SELECT 16000, 'uuid-ossp', extowner, extnamespace, true, '1.1' "
            "FROM pg_extension WHERE extname = 'plpgsql'"
        )
    await connection.close()
    return own


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, postgres: str) -> Iterator[str]:  # noqa: F811
    assert PYTHON.exists(), f"aegra is not installed in {PYTHON}: run `make interop-all`"
    folder = tmp_path_factory.mktemp("aegra")
    script = ROOT / "tests" / "interop" / "langgraph_agent.py"
    # aegra does not register the module of a graph, so that its annotations cannot be evaluated.
    (folder / "scripted.py").write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "agent.py").write_text("from scripted import graph, paused\n", encoding="utf-8")
    config = folder / "aegra.json"
    config.write_text(json.dumps({"graphs": {"agent": "./agent.py:graph", "paused": "./agent.py:paused"}}))
    told = {
        "AEGRA_CONFIG": str(config),
        "DATABASE_URL": asyncio.run(database(postgres)),
        "LANGSMITH_TRACING": "false",
        "PYTHONPATH": str(folder),
    }
    command = (str(PYTHON / "uvicorn"), "aegra_api.main:app", "--host", "127.0.0.1", "--port", "{port}")
    with server(folder, *command, ready="/health", **told) as running:
        yield running.url


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


async def test_a_request_without_a_thread_needs_the_option(url: str) -> None:
    async with bridge(url) as made:
        refused = await answer(made, Request("Hi"))
    async with bridge(url, threads="always") as made:
        said = await answer(made, Request("Hi"))
    assert refused.failure is not None
    assert refused.failure.details["backend_status"] == 404
    assert said.text == "You said: Hi"


async def test_questions_are_answered_by_the_next_request(url: str) -> None:
    async with bridge(url) as made:
        thread = str(uuid4())
        question = await answer(made, Request("ask", thread_id=thread))
        (interrupt,) = question.interrupts
        named = Resume(interrupt.interrupt_id, "resolved", "Bob")
        said = await answer(made, Request("And be quick.", thread_id=thread, resume=[named]))
        again = await answer(made, Request([], thread_id=thread, resume=[named]))
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


async def test_a_chat_client_answers_the_question_of_a_graph(url: str, tmp_path: Path) -> None:
    config = {
        "backends": {"agent": {"dialect": "langgraph", "url": url}},
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "agent"}],
        "stores": {"history": f"sqlite:///{tmp_path}/history.db"},
    }
    talk = [{"role": "user", "content": "ask"}]
    async with serving(config) as base:
        for text in ("Bob", "Bye"):
            reply = await post(f"{base}/v1/chat/completions", {"model": "m", "messages": talk})
            talk += [reply.json["choices"][0]["message"], {"role": "user", "content": text}]
        last = await post(f"{base}/v1/chat/completions", {"model": "m", "messages": talk})
    assert [each["content"] for each in talk] == ["ask", "What is your name?", "Bob", "Hello, Bob!", "Bye"]
    assert last.json["choices"][0]["message"]["content"] == "You said: ask / Bye"


async def test_a_node_that_fails_is_a_failure_and_the_thread_goes_on(url: str) -> None:
    async with bridge(url) as made:
        thread = str(uuid4())
        failed = await answer(made, Request("fail", thread_id=thread))
        after = await answer(made, Request("Hi", thread_id=thread))
    assert failed.failure is not None
    assert (failed.failure.code, failed.failure.message) == (ErrorCode.BACKEND_ERROR, "the node broke")
    assert after.text == "You said: fail / Hi"


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


@pytest.mark.parametrize("action", ["cancel", "interrupt"])
async def test_a_run_that_another_caller_cancels_is_no_whole_answer(url: str, action: str) -> None:
    """Its stream ends with `end` and `{"status": "success"}`, or with an error."""
    thread, events = str(uuid4()), []
    async with bridge(url) as made, aiohttp.ClientSession() as session:
        async for event in made.stream(Request("slow", thread_id=thread)):
            events.append(event)
            if isinstance(event, TextDelta) and event.text == "3 ":
                (run,) = await asked(url, f"/threads/{thread}/runs")
                cancel = f"{url}/threads/{thread}/runs/{run['run_id']}/cancel?wait=1&action={action}"
                async with session.post(cancel) as reply:
                    assert reply.status == 200
    assert events[-1].error.code is ErrorCode.CANCELED


async def test_a_stream_that_breaks_goes_on_where_it_was(url: str) -> None:
    async with cutting(url, within=b'"content":"7 "') as (proxy, seen), bridge(proxy) as made:
        said = await answer(made, Request("slow", thread_id=str(uuid4())))
    assert said.text == SLOW
    assert (said.failure, said.reason) == (None, FinishReason.STOP)
    assert [line for line in seen if line.startswith("GET") and line.endswith("/stream")]
    assert [e.value for e in said.events if isinstance(e, StateChanged)] == [{"count": 1}]
