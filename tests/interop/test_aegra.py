"""aegra, a LangGraph server on PostgreSQL, as the backend: as LangGraph's own server, and what is its own."""

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
from bridge.model import Request, TextDelta
from tests.docs.helpers import ROOT, server
from tests.interop.test_langgraph import (  # noqa: F401
    answer,
    asked,
    bridge,
    test_a_breakpoint_is_passed_with_a_yes,
    test_a_node_that_fails_is_a_failure_and_the_thread_goes_on,
    test_a_run_is_canceled_when_its_client_leaves,
    test_a_stream_that_breaks_goes_on_where_it_was,
    test_questions_are_answered_by_the_next_request,
    test_text_reasoning_tools_and_what_a_graph_writes,
)
from tests.server.harness import post, serving
from tests.stores.conftest import postgres  # noqa: F401

PYTHON = Path(sys.prefix) / "aegra" / "bin"
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


@pytest.fixture
def names_answered() -> bool:
    return True


async def test_a_request_without_a_thread_needs_the_option(url: str) -> None:
    async with bridge(url) as made:
        refused = await answer(made, Request("Hi"))
    async with bridge(url, threads="always") as made:
        said = await answer(made, Request("Hi"))
    assert refused.failure is not None
    assert refused.failure.details["backend_status"] == 404
    assert said.text == "You said: Hi"


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
