"""What connections hold that wait for their next request: nothing of the last one, however large it was."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bridge.model import Text
from tests.dialects.acp.helpers import configuration
from tests.dialects.acp.test_socket import connected
from tests.server.harness import Exchange, fake_backend, serving

PROMPT = "x" * 100_003
A2A = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": PROMPT}]}
VERSION = {"a2a-version": "1.0"}
CALL = {"name": "ask_it", "arguments": {"prompt": PROMPT}}
FRONTS: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "openai-chat": ("/chat/completions", {"model": "m", "messages": [{"role": "user", "content": PROMPT}]}, {}),
    "openai-responses": ("/responses", {"model": "m", "input": PROMPT, "store": False}, {}),
    "a2a": (
        "",
        {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": A2A}},
        {"a2a-version": "1.0"},
    ),
    "mcp": (
        "",
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL},
        {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"},
    ),
}


def held(known: tuple[int, ...] = (), *, collected: bool = True) -> list[Any]:
    """Return what is in memory of the prompt, but for what was there before, by id."""
    if collected:
        gc.collect()
    found: list[Any] = []
    for each in gc.get_objects():
        if type(each) is Text and each.text == PROMPT:
            found.append(each)
        found += [r for r in gc.get_referents(each) if type(r) is bytes and len(r) > len(PROMPT) and b"xxxx" in r]
    return [each for each in found if id(each) not in known]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("front", FRONTS)
async def test_a_kept_connection(front: str, stream: bool) -> None:
    path, body, headers = FRONTS[front]
    config = {"backends": {"it": {"dialect": "demo"}}, "routes": [{"dialect": front, "path": "/it", "backend": "it"}]}
    async with serving(config) as base, aiohttp.ClientSession() as session:
        known = tuple(map(id, held()))
        if front == "mcp":
            params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t"}}
            begun = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
            answered = await asked(session, f"{base}/it", begun, headers)
            headers = {**headers, "mcp-session-id": answered["mcp-session-id"]}
        await asked(session, f"{base}/it{path}", {**body, "stream": stream} if "model" in body else body, headers)
        await asyncio.sleep(0.1)
        assert held(known) == []


async def asked(session: aiohttp.ClientSession, url: str, body: Any, headers: dict[str, str]) -> dict[str, str]:
    """Return the headers of an answer that was read to its end."""
    async with session.post(url, json=body, headers=headers) as response:
        assert response.status == 200
        await response.read()
        return {name.lower(): value for name, value in response.headers.items()}


async def test_an_open_session(tmp_path: Path) -> None:
    demo = {**configuration(tmp_path), "backends": {"it": {"dialect": "demo"}}}
    async with serving(demo) as base, connected(base) as editor:
        known = tuple(map(id, held()))
        session = await editor.new()
        await editor.prompt(session, PROMPT)
        await asyncio.sleep(0.1)
        assert held(known) == []
        editor.updates.clear()
        await editor.call("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []})
        assert editor.said("user_message_chunk") == PROMPT
        assert held(known) == []
        assert (await editor.prompt(session, "more"))["stopReason"] == "end_turn"


@pytest.mark.parametrize("front", ["agent-runs", "ag-ui"])
async def test_a_stored_run_needs_no_collector(front: str, tmp_path: Path) -> None:
    """What refers to itself stays until the collector has come to its generation, which takes thousands of requests."""
    body = {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": PROMPT}], "tools": []}
    body |= {"context": [], "state": {}, "forwardedProps": {"runtime_mode": "chat"}}
    route = {"dialect": front, "path": "/it", "backend": "it", **({"durable": True} if front == "ag-ui" else {})}
    stores = {"runs": f"sqlite:///{tmp_path}/runs.db", "history": f"sqlite:///{tmp_path}/history.db"}
    config = {"backends": {"it": {"dialect": "demo"}}, "routes": [route], "stores": stores}
    async with serving(config) as base, aiohttp.ClientSession() as session:
        known = tuple(map(id, held()))
        gc.disable()
        try:
            url = f"{base}/it/runs" if front == "agent-runs" else f"{base}/it"
            async with session.post(url, json=body) as response:
                assert response.status in (200, 202)
                await response.read()
            if front == "agent-runs":
                async with session.get(f"{base}/it/runs/t/events?runId=r") as response:
                    await response.read()
            del response
            await _until_gone(known)
        finally:
            gc.enable()


async def test_a_stream_that_its_client_leaves_needs_no_collector() -> None:
    path, body, _ = FRONTS["openai-chat"]

    async def half(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(b'data: {"choices": [{"index": 0, "delta": {"content": "Hel"}}]}\n\n')
        await exchange.left()

    async with fake_backend("openai-chat") as backend:
        backend.plays(half)
        route = {"dialect": "openai-chat", "path": "/it", "backend": "it"}
        config = {"backends": {"it": {"dialect": "openai-chat", "url": backend.url}}, "routes": [route]}
        async with serving(config) as base:
            known = tuple(map(id, held()))
            gc.disable()
            try:
                async with (
                    aiohttp.ClientSession() as session,
                    session.post(f"{base}/it{path}", json={**body, "stream": True}) as response,
                ):
                    assert await response.content.readline()
                del response
                await backend.seen[-1].gone.wait()
                await _until_gone(known)
            finally:
                gc.enable()


async def _until_gone(known: tuple[int, ...]) -> None:
    """Wait for what goes on behind a response, but not for the collector."""
    for _ in range(100):
        if not [each for each in held(known, collected=False) if type(each) is Text]:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the prompt is still in memory")
