"""Why a call over gRPC failed: the log names the call, the status and what to check, as for backends over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from bridge.cli.logs import TextFormatter
from bridge.testing import free_port
from tests.dialects.aip.peers import agent, reply
from tests.server.harness import ask, post, serving

KEY = "0b4ckendk3y7f3c9a"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
Play = Callable[[AsyncIterator[bytes], Any], Awaitable[None]]


@contextlib.asynccontextmanager
async def peer(play: Play) -> AsyncIterator[str]:
    """A gRPC server that does this with every call; gives its address."""

    class Handler(grpc.GenericRpcHandler):
        def service(self, call: grpc.HandlerCallDetails) -> Any:
            return grpc.stream_stream_rpc_method_handler(play)

    server = grpc.aio.server(handlers=[Handler()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


def aborts(code: grpc.StatusCode, details: str) -> Play:
    async def play(messages: AsyncIterator[bytes], call: Any) -> None:
        # grpc hides the status of a call that ends while its client still writes.
        await anext(aiter(messages))
        await asyncio.sleep(0.05)
        await call.abort(code, details)

    return play


async def silent(messages: AsyncIterator[bytes], call: Any) -> None:
    await asyncio.sleep(30)


def config(address: str) -> dict[str, Any]:
    timeouts = {"connect": "1s", "first_event": "300ms", "idle": "300ms"}
    agent = {"dialect": "aip", "url": address, "api_key": KEY, "options": {"agent": "a", "direct": True}}
    return {
        "backends": {"agent": {**agent, "timeouts": timeouts}},
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "agent"}],
    }


async def line_of(address: str, caplog: pytest.LogCaptureFixture) -> str:
    async with serving(config(address)) as base:
        reply = await post(f"{base}/v1/chat/completions", BODY)
    (line,) = [TextFormatter().format(r) for r in caplog.records if "run failed" in r.getMessage()]
    assert f"gRPC {address}/grpc_service.AgentService/CallAgent " in line
    assert KEY not in line
    for inner in (address.encode(), KEY.encode(), b"(check", b"remote host"):
        assert inner not in reply.body
    return line


@pytest.mark.parametrize(
    ("code", "details", "cause", "advice"),
    [
        ("UNAUTHENTICATED", f"bad key {KEY}", r"answered UNAUTHENTICATED: bad key \*\*\*", "the api_key"),
        ("PERMISSION_DENIED", "not yours", "answered PERMISSION_DENIED: not yours", "the api_key"),
        ("UNIMPLEMENTED", "no such method", "answered UNIMPLEMENTED: no such method", "the url and the dialect"),
        ("NOT_FOUND", "no agent a", "answered NOT_FOUND: no agent a", "the agent in its options, or the model"),
        ("INTERNAL", "", "answered INTERNAL: no details", ""),
    ],
)
async def test_a_status_is_explained(
    code: str, details: str, cause: str, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with peer(aborts(grpc.StatusCode[code], details)) as address:
        line = await line_of(address, caplog)
    assert re.search(cause, line), line
    assert (f"(check {advice} of backend 'agent')" in line) == bool(advice)


async def test_a_peer_that_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    line = await line_of(f"127.0.0.1:{free_port()}", caplog)
    assert "backend_unavailable: The backend is not available: the connection failed." in line
    assert "answered UNAVAILABLE: " in line
    assert "(check the url of backend 'agent')" in line


async def test_a_peer_that_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    async with peer(silent) as address:
        assert " has not answered" in await line_of(address, caplog)


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        (lambda asked: [reply(asked, "half of it")] if asked.session_status != 3 else [], "sent nothing for"),
        (lambda asked: [reply(asked, "no power", task="BREAK")], "answered with an error"),
    ],
)
async def test_an_agent_that_does_not_finish(script: Any, outcome: str, caplog: pytest.LogCaptureFixture) -> None:
    async with agent(script) as node:
        assert outcome in await line_of(node.address, caplog)


async def test_short_calls_are_explained(caplog: pytest.LogCaptureFixture) -> None:
    """Such as the question which agents there are, here for `GET /v1/models`."""
    setup = config(f"127.0.0.1:{free_port()}")
    setup["backends"]["agent"]["options"] = {}
    caplog.set_level(logging.INFO)
    async with serving(setup) as base:
        await ask("GET", f"{base}/v1/models")
    told = "\n".join(TextFormatter().format(record) for record in caplog.records)
    assert f"gRPC {setup['backends']['agent']['url']}/grpc_service.GatewayService/GetNodes answered UNAVAILABLE" in told
