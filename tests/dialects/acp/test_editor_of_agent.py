"""An editor in front of an agent: what only this protocol has goes through the bridge."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.dialects.acp.helpers import ALL, editing, processes, reject
from tests.dialects.acp.test_agents import configuration, until
from tests.dialects.acp.test_socket import connected, status_of
from tests.server.harness import serving

pytestmark = pytest.mark.usefixtures("known_others")

DIFF = {"type": "diff", "path": "/a.txt", "oldText": None, "newText": "x"}


async def test_a_permission_is_shown_as_the_agent_shows_it() -> None:
    async with editing(config=configuration(dialect="acp")) as editor:
        assert (await editor.prompt(await editor.new(), "write"))["stopReason"] == "end_turn"
        ((_, params),) = editor.asked
        call = params["toolCall"]
        assert (call["title"], call["kind"], call["locations"]) == ("Writing a.txt", "edit", [{"path": "/a.txt"}])
        assert call["content"] == [DIFF]
        assert [o["optionId"] for o in params["options"]] == ["id-allow_once", "id-allow_always", "id-reject_once"]
        begins, *_, ends = editor.calls()
        assert (begins["sessionUpdate"], begins["title"], begins["locations"]) == (
            "tool_call", "Writing a.txt", [{"path": "/a.txt"}],
        )  # fmt: skip
        assert (ends["status"], ends["content"]) == ("completed", [DIFF])


async def test_what_follows_a_canceled_question_is_all_that_the_agent_gets() -> None:
    async with editing(config=configuration(dialect="acp"), **ALL) as editor:
        session = await editor.new()
        editor.answers = lambda method, params: {"outcome": {"outcome": "cancelled"}}
        assert await editor.prompt(session, "ask") == {"stopReason": "cancelled"}
        await editor.prompt(session, "remember")
        assert editor.said() == "2: ask / remember"


async def test_plans_and_the_fill_of_the_context() -> None:
    async with editing(config=configuration(dialect="acp")) as editor:
        session = await editor.new()
        await editor.prompt(session, "plan")
        assert [u["sessionUpdate"] for u in editor.told()] == ["plan"]
        await editor.prompt(session, "usage answer")
        assert {"sessionUpdate": "usage_update", "used": 500, "size": 1000} in editor.told()


async def test_a_permission_that_is_refused() -> None:
    async with editing(config=configuration(dialect="acp")) as editor:
        editor.answers = reject
        await editor.prompt(await editor.new(), "ask")
        assert editor.said() == "Chosen: id-reject_once"
        assert [u["status"] for u in editor.calls()][-1] == "failed"
    assert processes() == []


async def test_an_editor_that_leaves_with_a_question_open_leaves_no_process(tmp_path: Path) -> None:
    config = configuration(folder=tmp_path, dialect="acp", park_for=0.2, idle=0.2)
    config["routes"][0]["path"] = "/acp"
    async with serving(config) as base:
        async with connected(base) as editor:
            asked = asyncio.Event()

            async def wait(method: str, params: object) -> None:
                asked.set()
                await asyncio.Event().wait()

            editor.answers = wait
            session = await editor.new()
            left = asyncio.create_task(editor.prompt(session, "ask"))
            await asyncio.wait_for(asked.wait(), 20)
            assert len(processes()) == 1
        assert isinstance((await asyncio.gather(left, return_exceptions=True))[0], ConnectionError)
        await until(lambda: processes() == [])  # while the server goes on
        async with connected(base) as editor:
            await editor.call("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []})
            assert (await editor.prompt(session, "say on"))["stopReason"] == "end_turn"
            assert editor.said() == "on "


async def test_a_page_starts_no_agent(tmp_path: Path) -> None:
    config = configuration(folder=tmp_path, dialect="acp")
    config["routes"][0]["path"] = "/acp"
    async with serving(config) as base:
        assert await status_of(base, origin="https://evil.test") == 403
        assert processes() == []
        async with connected(base, origin=base) as editor:
            await editor.prompt(await editor.new(), "say on")
            assert len(processes()) == 1
