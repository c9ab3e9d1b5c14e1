"""The server of langgraph.js in memory as the backend: it differs from Python's in its events, statuses and errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import aiohttp
import pytest

from bridge.errors import ErrorCode
from bridge.model import FinishReason, Request, Resume, TextDelta
from tests.docs.helpers import server
from tests.interop.conftest import node_client
from tests.interop.test_langgraph import answer, asked, bridge, cutting
from tests.server.harness import post, serving

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    here = Path(__file__).parent / "langgraph-js"
    node_client(here, "the server of langgraph.js")
    folder = tmp_path_factory.mktemp("langgraph-js")
    command = ("node", str(here / "server.mjs"), "{port}", str(folder))
    with server(folder, *command, ready="/ok", LANGSMITH_TRACING="false") as running:
        yield running.url


async def test_text_questions_and_failures(url: str) -> None:
    async with bridge(url) as made:
        thread = str(uuid4())
        first = await answer(made, Request("Hi", thread_id=thread))
        question = await answer(made, Request("ask", thread_id=thread))
        [asks] = question.interrupts
        answered = await answer(
            made, Request([], thread_id=thread, resume=[Resume(asks.interrupt_id, "resolved", "Bob")])
        )
        failed = await answer(made, Request("fail", thread_id=thread))
        stateless = [event async for event in made.stream(Request("Hi"))]
    assert (first.text, first.reason) == ("You said: Hi", FinishReason.STOP)
    assert (question.reason, asks.payload) == (FinishReason.INTERRUPTED, {"question": "Your name?"})
    assert answered.text == "Hello, Bob!"
    assert failed.failure is not None
    assert (failed.failure.code, failed.failure.message) == (ErrorCode.BACKEND_ERROR, "the node broke")
    pieces = [event.text for event in stateless if isinstance(event, TextDelta)]
    assert "".join(pieces) == "You said: Hi"
    assert len(pieces) > 1


async def test_an_assistant_that_is_not_there(url: str) -> None:
    async with bridge(url, assistant_id="nope") as made:
        failure = (await answer(made, Request("Hi", thread_id=str(uuid4())))).failure
    assert failure is not None
    assert failure.code is ErrorCode.BACKEND_ERROR
    assert failure.message.startswith('No assistant found for "nope"')


async def test_a_stream_that_breaks_goes_on_where_it_was(url: str) -> None:
    async with cutting(url, within=b'"content":"s"') as (proxy, seen), bridge(proxy) as made:
        said = await answer(made, Request("Hi", thread_id=str(uuid4())))
    assert (said.text, said.failure) == ("You said: Hi", None)
    assert [line for line in seen if line.startswith("GET") and line.endswith("/stream")]


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
