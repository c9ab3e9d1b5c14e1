"""The front over a WebSocket at the route's path."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bridge.engine.bridge import Bridge
from bridge.jsonrpc.carrier import CarrierEnded
from bridge.jsonrpc.websocket import WebSocketCarrier
from bridge.server import running
from bridge.testing import free_port
from tests.dialects.acp import agents
from tests.dialects.acp.helpers import Editor, configuration, prompt_of
from tests.dialects.acp.test_front import begun
from tests.server.harness import ask, serving

KEYS = {
    "auth": {"keys": [{"name": "ann", "key": "key-of-ann-0123456789"}, {"name": "bob", "key": "key-of-bob-0123456789"}]}
}
ANN = {"authorization": "Bearer key-of-ann-0123456789"}
BOB = {"authorization": "Bearer key-of-bob-0123456789"}


@contextlib.asynccontextmanager
async def connected(base: str, **headers: str) -> AsyncIterator[Editor]:
    async with aiohttp.ClientSession() as session:
        carrier = await WebSocketCarrier.connect(session, f"{base}/acp", headers=headers)
        editor = Editor(carrier)
        async with editor.connection:
            await editor.greet()
            yield editor


async def status_of(base: str, **headers: str) -> int:
    """The status with which a WebSocket is refused."""
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(f"{base}/acp", headers=headers)
        return int(caught.value.status)


async def test_a_prompt_over_a_websocket(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bridge.access")
    async with serving(configuration(tmp_path)) as base, connected(base) as editor:
        carrier = editor.connection.carrier
        assert isinstance(carrier, WebSocketCarrier)
        assert carrier.socket._response.headers["acp-connection-id"]  # type: ignore[union-attr]
        session = await editor.new()
        assert (await editor.prompt(session, "ask approve"))["stopReason"] == "end_turn"
        assert editor.said() == "resolved {'approved': True}"
    runs = [record.facts for record in caplog.records if record.name == "bridge.access"]  # type: ignore[attr-defined]
    assert all(run["bytes"] > 100 for run in runs)
    assert [(run["status"], run["back"]) for run in runs] == [("interrupted", "it"), ("stop", "it")]


async def test_pages_are_refused(tmp_path: Path) -> None:
    async with serving(configuration(tmp_path)) as base:
        assert await status_of(base, origin="https://evil.test") == 403
        assert await status_of(base, origin="null") == 403
        async with connected(base, origin=base):
            pass
    named = {**configuration(tmp_path), "server": {"cors": {"origins": ["https://editor.test"]}}}
    async with serving(named) as base:
        assert await status_of(base, origin="https://evil.test") == 403
        async with connected(base, origin="https://editor.test") as editor:
            assert await editor.new()


async def test_a_request_that_is_no_websocket(tmp_path: Path) -> None:
    async with serving(configuration(tmp_path)) as base:
        reply = await ask("GET", f"{base}/acp")
        assert reply.status == 426
        assert reply.json["error"]["message"] == "Expected the upgrade of a WebSocket."
        reply = await ask("GET", f"{base}/acp", headers={"upgrade": "websocket", "connection": "upgrade"})
        assert reply.status == 400


async def test_a_key_is_needed_before_the_upgrade(tmp_path: Path) -> None:
    async with serving({**configuration(tmp_path), "server": KEYS}) as base:
        assert await status_of(base) == 401
        assert await status_of(base, authorization="Bearer wrong") == 401
        async with connected(base, **ANN) as editor:
            assert await editor.new()


async def test_sessions_belong_to_their_owner(tmp_path: Path) -> None:
    async with serving({**configuration(tmp_path), "server": KEYS}) as base:
        async with connected(base, **ANN) as editor:
            session = await editor.new()
            await editor.prompt(session, "secret")
        async with connected(base, **BOB) as editor:
            opened = {"sessionId": session, "cwd": "/", "mcpServers": []}
            assert (await editor.error("session/load", opened)).code == -32002
            assert (await editor.error("session/resume", opened)).code == -32002
            assert (await editor.error("session/prompt", prompt_of(session, "x"))).code == -32002
            assert await editor.call("session/delete", {"sessionId": session}) == {}
            assert (await editor.call("session/list"))["sessions"] == []
        async with connected(base, **ANN) as editor:
            await editor.call("session/load", opened)
            assert editor.said("user_message_chunk") == "secret"


async def test_keys_may_be_limited_to_runs(tmp_path: Path) -> None:
    key = {"name": "ann", "key": "key-of-ann-0123456789", "operations": ["run"]}
    async with (
        serving({**configuration(tmp_path), "server": {"auth": {"keys": [key]}}}) as base,
        connected(base, **ANN) as editor,
    ):
        session = await editor.new()
        assert (await editor.prompt(session, "hello"))["stopReason"] == "end_turn"
        assert (await editor.error("session/list")).code == -32000
        assert (await editor.error("session/load", {"sessionId": session, "cwd": "/"})).code == -32000
        assert (await editor.error("session/delete", {"sessionId": session})).code == -32000


async def test_keys_may_be_limited_to_reading(tmp_path: Path) -> None:
    key = {"name": "ann", "key": "key-of-ann-0123456789", "operations": ["read"]}
    async with (
        serving({**configuration(tmp_path), "server": {"auth": {"keys": [key]}}}) as base,
        connected(base, **ANN) as editor,
    ):
        session = await editor.new()
        assert [row["sessionId"] for row in (await editor.call("session/list"))["sessions"]] == [session]
        assert (await editor.error("session/prompt", prompt_of(session, "hello"))).code == -32000
        assert agents.SEEN == []


async def test_each_call_of_a_store_or_a_backend_counts(tmp_path: Path) -> None:
    server = {**KEYS, "limits": {"per_key": {"requests_per_minute": 4}}}
    async with serving({**configuration(tmp_path), "server": server}) as base, connected(base, **ANN) as editor:
        session = await editor.new()
        await editor.prompt(session, "one")
        await editor.call("session/list")
        await editor.prompt(session, "two")
        folder = {"cwd": "/w", "mcpServers": []}
        for method, params in (
            ("session/prompt", prompt_of(session, "three")),
            ("session/new", folder),
            ("session/load", {"sessionId": session, **folder}),
            ("session/list", {}),
            ("session/close", {"sessionId": session}),
        ):
            error = await editor.error(method, params)
            assert error.data["code"] == "rate_limited", method


async def test_a_person_who_is_asked_holds_no_slot(tmp_path: Path) -> None:
    server = {"limits": {"concurrent": 1, "queue": 0}}
    async with (
        serving({**configuration(tmp_path), "server": server}) as base,
        connected(base) as editor,
        connected(base) as other,
    ):
        asked, answered = asyncio.Event(), asyncio.Event()

        async def wait(method: str, params: Any) -> Any:
            asked.set()
            await answered.wait()
            return {"outcome": {"outcome": "selected", "optionId": "allow"}}

        editor.answers = wait
        prompt = asyncio.create_task(editor.prompt(await editor.new(), "ask approve"))
        await asyncio.wait_for(asked.wait(), 20)
        assert (await other.prompt(await other.new(), "hello"))["stopReason"] == "end_turn"
        answered.set()
        assert (await prompt)["stopReason"] == "end_turn"


async def test_one_session_has_one_prompt_over_all_connections(tmp_path: Path) -> None:
    async with serving(configuration(tmp_path)) as base, connected(base) as editor, connected(base) as other:
        session = await editor.new()
        first = asyncio.create_task(editor.prompt(session, "slow"))
        await begun()
        await other.call("session/resume", {"sessionId": session, "cwd": "/"})
        assert (await other.error("session/prompt", prompt_of(session, "more"))).code == -32600
        agents.GATE["go"].set()
        await first
        assert (await other.prompt(session, "more"))["stopReason"] == "end_turn"
        assert (await editor.prompt(session, "again"))["stopReason"] == "end_turn"


async def test_large_messages_end_the_connection(tmp_path: Path) -> None:
    async with serving({**configuration(tmp_path), "server": {"max_body": "100KB"}}) as base, connected(base) as editor:
        session = await editor.new()
        assert (await editor.prompt(session, "x" * 50_000))["stopReason"] == "end_turn"
        with pytest.raises(CarrierEnded):
            await editor.prompt(session, "x" * 200_000)


async def test_a_silent_connection_is_closed(tmp_path: Path) -> None:
    server = {"limits": {"socket_idle": "200ms"}}
    async with serving({**configuration(tmp_path), "server": server}) as base, connected(base) as editor:
        session = await editor.new()
        prompt = asyncio.create_task(editor.prompt(session, "slow"))
        await begun()
        await asyncio.sleep(0.3)  # a prompt is no silence
        agents.GATE["go"].set()
        assert (await prompt)["stopReason"] == "end_turn"
        ended = time.monotonic()
        await asyncio.wait_for(editor.connection.wait(), 20)
        assert time.monotonic() - ended > 0.19  # the silence began with the answer


async def test_a_server_that_stops_lets_prompts_end(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    section = {"port": free_port(), "drain": "20s"}
    async with contextlib.AsyncExitStack() as stack:
        server = running(Bridge.from_config({"server": section, **config}))
        port = await server.__aenter__()
        editor = await stack.enter_async_context(connected(f"http://127.0.0.1:{port}"))
        idle = await stack.enter_async_context(connected(f"http://127.0.0.1:{port}"))
        session = await editor.new()
        prompt = asyncio.create_task(editor.prompt(session, "slow"))
        await begun()
        stopping = asyncio.create_task(server.__aexit__(None, None, None))
        await asyncio.wait_for(idle.connection.wait(), 10)
        agents.GATE["go"].set()
        assert (await prompt)["stopReason"] == "end_turn"
        await asyncio.wait_for(editor.connection.wait(), 10)
        await stopping


async def test_the_list_of_sessions_has_a_bound(tmp_path: Path) -> None:
    """It is written again with each prompt, and clients name folders of any length."""
    async with serving(configuration(tmp_path)) as base, connected(base) as editor:
        sessions = [await editor.new("/" + "x" * 100_000) for _ in range(4)]
        rows = (await editor.call("session/list"))["sessions"]
        assert [row["sessionId"] for row in rows] == [sessions[3], sessions[2]]
        assert await editor.prompt(sessions[0], "hello")
        rows = (await editor.call("session/list"))["sessions"]
        assert [row["sessionId"] for row in rows] == [sessions[0], sessions[3]]


async def test_the_tokens_of_a_key_count(tmp_path: Path) -> None:
    server = {**KEYS, "limits": {"per_key": {"tokens_per_day": 5}}}
    demo = {**configuration(tmp_path), "backends": {"it": {"dialect": "demo"}}, "server": server}
    async with serving(demo) as base, connected(base, **ANN) as editor:
        session = await editor.new()
        await editor.prompt(session, "hello")
        error = await editor.error("session/prompt", prompt_of(session, "hello"))
        assert error.message == "This key has used its 5 tokens of today (UTC)."


async def test_the_models_of_a_key_count(tmp_path: Path) -> None:
    """Those that it may not name are not offered."""
    setup = configuration(tmp_path, backend=None, models={"small": "it", "large": "it"})
    setup["server"] = {"auth": {"keys": [{**KEYS["auth"]["keys"][0], "models": ["large"]}]}}
    async with serving(setup) as base, connected(base, **ANN) as editor:
        session = await editor.new()
        chosen = {"sessionId": session, "configId": "model", "type": "id", "value": "small"}
        error = await editor.error("session/set_config_option", chosen)
        assert "expected one of large" in error.message
        assert (await editor.prompt(session, "hello"))["stopReason"] == "end_turn"
        assert [seen.model for seen in agents.SEEN] == ["large"]


async def test_a_prompt_uses_no_model_that_its_key_may_not_name(tmp_path: Path) -> None:
    setup = configuration(tmp_path)
    setup["backends"]["it"]["model"] = "large"
    setup["server"] = {"auth": {"keys": [{**KEYS["auth"]["keys"][0], "models": ["small"]}]}}
    async with serving(setup) as base, connected(base, **ANN) as editor:
        error = await editor.error("session/prompt", prompt_of(await editor.new(), "hello"))
        assert error.message == "This API key does not allow the model 'large'."
        assert agents.SEEN == []


async def test_a_stored_session_uses_no_model_that_its_key_may_not_name_any_more(tmp_path: Path) -> None:
    session = ""
    for models in ["*"], ["small"]:
        setup = configuration(tmp_path, backend=None, models={"small": "it", "large": "it"})
        setup["server"] = {"auth": {"keys": [{**KEYS["auth"]["keys"][0], "models": models}]}}
        async with serving(setup) as base, connected(base, **ANN) as editor:
            if not session:
                session = await editor.new()
                choice = {"sessionId": session, "configId": "model", "type": "id", "value": "large"}
                await editor.call("session/set_config_option", choice)
            else:
                await editor.call("session/resume", {"sessionId": session, "cwd": "/"})
            await editor.prompt(session, "hello")
    assert [seen.model for seen in agents.SEEN][-2:] == ["large", "small"]
