"""The dialect over real sockets, in front of a small service: what is sent in which order, and what clients get."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.dialects.agentscope_service.service import WORDS, Service, reply_of
from tests.pairs.people import leave
from tests.server.harness import post, serving

pytestmark = pytest.mark.usefixtures("each_http_client")
QUESTION = {"type": "tool_call", "id": "call_1", "name": "send_mail", "input": "{}", "state": "asking"}
ASKS = [
    {"type": "REPLY_START"},
    {"type": "TOOL_CALL_START", "tool_call_id": "call_1", "tool_call_name": "send_mail"},
    {"type": "TOOL_CALL_END", "tool_call_id": "call_1"},
    {"type": "REQUIRE_USER_CONFIRM", "tool_calls": [QUESTION]},
]


@asynccontextmanager
async def bridge(service: Service, folder: Path, **backend: Any) -> AsyncIterator[str]:
    made = {"dialect": "agentscope-service", "url": service.url, **backend}
    config = {
        "backends": {"agent": made},
        "routes": [
            {"dialect": "openai-chat", "path": "/v1", "backend": "agent"},
            {"dialect": "ag-ui", "path": "/agui", "backend": "agent"},
            {"dialect": "agentscope", "path": "/a", "backend": "agent"},
        ],
        "stores": {"history": f"sqlite:///{folder}/history.db"},
    }
    async with serving(config) as base:
        yield base


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "stream": False, **more}


def agui(*texts: str, run: str = "r", **more: Any) -> dict[str, Any]:
    said = [{"id": f"u{n}", "role": "user", "content": text} for n, text in enumerate(texts)]
    whole = {"threadId": "t", "runId": run, "state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return {**whole, "messages": said, "protocolVersion": "1.0", **more}


def process(text: str) -> dict[str, Any]:
    return {"session_id": "s", "input": [{"role": "user", "content": [{"type": "text", "text": text}]}]}


async def test_the_stream_is_opened_before_the_run_is_started(tmp_path: Path) -> None:
    async with Service().listening() as service, bridge(service, tmp_path) as base:
        reply = await post(f"{base}/v1/chat/completions", chat("Hi"))
        assert reply.json["choices"][0]["message"]["content"] == "".join(WORDS)
        again = await post(f"{base}/v1/chat/completions", chat("Hi again"))
        assert again.status == 200
    one = ["POST /sessions/", "GET /sessions/s0/stream", "POST /chat/", "DELETE /sessions/s0"]
    assert service.log == ["GET /agent/", *one, *(step.replace("s0", "s1") for step in one)]


async def test_a_thread_keeps_its_session(tmp_path: Path) -> None:
    async with Service().listening() as service, bridge(service, tmp_path) as base:
        for texts in (("one",), ("one", "two")):
            assert b"RUN_FINISHED" in (await post(f"{base}/agui", agui(*texts, run=texts[-1]))).body
    assert len(service.made) == 1
    assert service.log[-3:] == ["GET /sessions/s0/messages", "GET /sessions/s0/stream", "POST /chat/"]
    assert not [step for step in service.log if step.startswith("DELETE")]


async def test_a_reply_that_waits_is_known_by_the_state_of_its_session(tmp_path: Path) -> None:
    async with Service(ASKS, status="awaiting_permission").listening() as service, bridge(service, tmp_path) as base:
        reply = await post(f"{base}/agui", agui("mail"))
    assert b'"type":"interrupt"' in reply.body
    assert b"send_mail" in reply.body
    assert service.log[-1] == "GET /sessions/s0/status"


async def test_a_question_that_the_service_no_longer_asks_does_not_stay_open(tmp_path: Path) -> None:
    """Its session may be gone. The answer is refused, and the conversation continues."""
    service = Service(ASKS, reply_of(*WORDS), status="awaiting_permission")
    async with service.listening(), bridge(service, tmp_path) as base:
        asked = await post(f"{base}/a/process", process("mail"))
        assert b"reply001_call_1" in asked.body
        answer = {"approve": True, "approval_request_id": "reply001_call_1"}
        message = {"type": "mcp_approval_response", "role": "user", "content": [{"type": "data", "data": answer}]}
        refused = await post(f"{base}/a/process", {"session_id": "s", "input": [message]})
        assert b"no longer waiting" in refused.body
        again = await post(f"{base}/a/process", process("Hello?"))
        assert WORDS[1].encode() in again.body


async def test_a_busy_session_is_asked_again(tmp_path: Path) -> None:
    async with Service(busy=2).listening() as service, bridge(service, tmp_path) as base:
        reply = await post(f"{base}/v1/chat/completions", chat("Hi"))
    assert reply.status == 200
    assert service.log.count("POST /chat/") == 3


@pytest.mark.parametrize("cleanly", [True, False])
async def test_a_stream_that_breaks_is_opened_again(tmp_path: Path, cleanly: bool) -> None:
    async with Service(breaks=2, cleanly=cleanly).listening() as service, bridge(service, tmp_path) as base:
        reply = await post(f"{base}/v1/chat/completions", chat("Hi"))
    assert reply.json["choices"][0]["message"]["content"] == "".join(WORDS)
    assert service.log.count("GET /sessions/s0/stream") == 3
    assert service.log.count("POST /chat/") == 1


async def test_a_stream_that_breaks_for_good_is_a_failure(tmp_path: Path) -> None:
    async with Service(breaks=9).listening() as service, bridge(service, tmp_path) as base:
        reply = await post(f"{base}/v1/chat/completions", chat("Hi"))
    assert reply.status == 502
    assert "DELETE /sessions/s0" in service.log


@pytest.mark.parametrize(
    ("path", "end"), [("/v1/chat/completions", "DELETE /sessions/s0"), ("/agui", "POST /sessions/s0/interrupt")]
)
async def test_a_client_that_leaves_ends_the_run(path: str, end: str, tmp_path: Path) -> None:
    async with Service(reply_of(*WORDS, end=False)).listening() as service, bridge(service, tmp_path) as base:
        body = agui("Hi") if path == "/agui" else chat("Hi", stream=True)
        async with aiohttp.ClientSession() as http, http.post(base + path, json=body):
            async with asyncio.timeout(20):
                await service.said.wait()
        async with asyncio.timeout(20):
            while end not in service.log:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("holds", "path", "end"),
    [
        ("POST /sessions/", "/v1/chat/completions", "DELETE /sessions/s0"),
        ("POST /chat/", "/v1/chat/completions", "DELETE /sessions/s0"),
        ("POST /chat/", "/agui", "POST /sessions/s0/interrupt"),
    ],
)
async def test_what_is_begun_while_the_client_leaves_is_ended(holds: str, path: str, end: str, tmp_path: Path) -> None:
    service = Service(reply_of(*WORDS, end=False))
    service.holds = holds
    service.go_on.clear()
    async with service.listening(), bridge(service, tmp_path) as base, asyncio.timeout(20):
        body = agui("Hi") if path == "/agui" else chat("Hi", stream=True)
        asking = asyncio.create_task(post(base + path, body))
        await service.held.wait()
        await leave(asking)
        service.go_on.set()
        while end not in service.log:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("missed", [0, 1, 2])
async def test_an_interrupt_that_the_service_misses_is_sent_again(missed: int, tmp_path: Path) -> None:
    service = Service(reply_of(*WORDS, end=False), missed=missed)
    async with service.listening(), bridge(service, tmp_path) as base:
        async with aiohttp.ClientSession() as http, http.post(f"{base}/agui", json=agui("Hi")):
            await asyncio.wait_for(service.said.wait(), 20)
        await asyncio.wait_for(service.interrupted.wait(), 20)
        # The next run of the session begins when the one before has told its end.
        service.missed = None
        async with aiohttp.ClientSession() as http, http.post(f"{base}/agui", json=agui("Again")):
            async with asyncio.timeout(20):
                while service.log.count("POST /chat/") < 2:
                    await asyncio.sleep(0.01)
            assert service.log.count("POST /sessions/s0/interrupt") == missed + 1


async def test_a_run_that_is_stopped_is_interrupted_once(tmp_path: Path) -> None:
    """Another interrupt would end the next run of the session, which may begin at once."""
    service = Service(reply_of(*WORDS, end=False), missed=0)
    async with (
        service.listening(),
        bridge(service, tmp_path) as base,
        aiohttp.ClientSession() as http,
        http.post(f"{base}/a/process", json=process("Hi")) as stream,
        asyncio.timeout(20),
    ):
        await service.said.wait()
        assert (await post(f"{base}/a/stop", {"session_id": "s"})).status == 200
        assert b'"canceled"' in await stream.read()
    assert service.log.count("POST /sessions/s0/interrupt") == 1


async def test_a_service_that_is_not_there_is_named_as_such(tmp_path: Path) -> None:
    async with Service().listening() as service:
        pass
    async with bridge(service, tmp_path) as base:
        reply = await post(f"{base}/v1/chat/completions", chat("Hi"))
    assert reply.status == 502
    assert b"not available" in reply.body


async def test_a_proxy_may_name_the_user(tmp_path: Path) -> None:
    """The headers that are sent on come after the dialect's own."""
    users: list[str] = []
    async with Service().listening() as service:
        play = service._play

        async def noted(exchange: Any) -> None:
            users.append(exchange.seen.headers["x-user-id"])
            await play(exchange)

        service._play = noted  # type: ignore[method-assign]
        async with Service.listening(service), bridge(service, tmp_path, forward_headers=["x-user-id"]) as base:
            await post(f"{base}/v1/chat/completions", chat("Hi"), **{"x-user-id": "eve"})
    assert set(users) == {"eve"}
