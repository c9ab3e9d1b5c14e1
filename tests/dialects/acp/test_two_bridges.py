"""An agent over a WebSocket: a bridge that serves the protocol, as the backend of another one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from bridge import Bridge
from bridge.errors import ErrorCode
from bridge.model import FinishReason
from tests.dialects.acp.helpers import TARGET, editing, reject
from tests.dialects.acp.test_agents import Talk, backend, start, until
from tests.server.harness import serving

KEY = "sk-of-the-far-bridge-1"


def before(base: str, folder: Path | None = None, **more: Any) -> dict[str, Any]:
    """A route of another protocol in front of the bridge at this address."""
    url = f"{base.replace('http', 'ws')}/acp"
    history = "off" if folder is None else f"sqlite:///{folder}/near.db"
    return {
        "backends": {"far": {"dialect": "acp", "url": url, "cwd": "/srv", "api_key": KEY, **more}},
        "routes": [{"dialect": "ag-ui", "path": "/it", "backend": "far"}],
        "stores": {"history": history},
    }


@contextlib.asynccontextmanager
async def far(folder: Path) -> AsyncIterator[str]:
    """The address of a bridge that serves the agent of these tests to those with the key."""
    config = {
        "backends": {"it": {"dialect": "python", "target": TARGET}},
        "routes": [{"dialect": "acp", "path": "/acp", "backend": "it"}],
        "stores": {"history": f"sqlite:///{folder}/far.db"},
        "server": {"auth": {"keys": [{"name": "near", "key": KEY}]}},
    }
    async with serving(config) as base:
        yield base


async def test_a_talk(tmp_path: Path) -> None:
    async with far(tmp_path) as base, Bridge.from_config(before(base)) as bridge:
        it = Talk(bridge)
        assert await it.says("hello") == "1: hello"
        assert await it.says("and") == "3: and"
        answer = await it.run("tool")
        assert [call.name for call in answer.calls] == ["read_file"]
        assert answer.text == "It has three lines."


async def test_a_question_crosses_both(tmp_path: Path) -> None:
    async with far(tmp_path) as base, Bridge.from_config(before(base)) as bridge:
        it = Talk(bridge)
        asked = await it.run("ask own")
        assert asked.reason is FinishReason.INTERRUPTED
        assert asked.interrupts[0].payload["message"] == "Run it?"
        allowed = await it.answers({"optionId": "once"}, asked)
        assert "once" in allowed.text


async def test_an_editor_is_asked_by_an_agent_behind_two_bridges(tmp_path: Path) -> None:
    async with far(tmp_path) as base:
        config = before(base, tmp_path)
        config["routes"][0] = {"dialect": "acp", "path": "/acp", "backend": "far"}
        async with editing(config=config) as editor:
            session = await editor.new()
            await editor.prompt(session, "ask approve")
            assert [method for method, _ in editor.asked] == ["session/request_permission"]
            yes = editor.said()
            editor.answers = reject
            await editor.prompt(session, "ask approve")
            assert editor.said() != yes
            assert len(editor.asked) == 2


async def test_a_cancel_crosses_both(tmp_path: Path) -> None:
    async with far(tmp_path) as base, Bridge.from_config(before(base)) as bridge:
        it = Talk(bridge)
        run = await start(it, "slow")
        await run.close()
        assert await it.says("hello")
        assert len(backend(bridge).pool.processes) == 1


async def test_a_conversation_goes_on_over_a_new_connection(tmp_path: Path) -> None:
    async with far(tmp_path) as base:
        for number, text in enumerate(("one", "two")):
            async with Bridge.from_config(before(base, tmp_path)) as bridge:
                assert await Talk(bridge).says(text) == f"{2 * number + 1}: {text}"


async def test_a_server_that_ends_the_connection(tmp_path: Path) -> None:
    async with far(tmp_path) as base:
        bridge = Bridge.from_config(before(base))
        await bridge.start()
        it = Talk(bridge)
        assert await it.says("hello")
    await until(lambda: not backend(bridge).pool.processes)
    failure = (await it.run("hello")).failure
    assert failure is not None
    assert failure.code is ErrorCode.BACKEND_UNAVAILABLE
    assert "cannot be reached" in failure.cause
    await bridge.close()


async def test_a_server_that_refuses_the_key(tmp_path: Path) -> None:
    async with far(tmp_path) as base, Bridge.from_config(before(base, api_key="sk-another-key-123")) as bridge:
        failure = (await Talk(bridge).run("hello")).failure
        assert failure is not None
        assert "status 401" in failure.cause
        assert failure.code is ErrorCode.BACKEND_AUTH
        assert "sk-another" not in failure.cause + failure.message
