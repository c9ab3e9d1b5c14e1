"""An editor in front of an agent: what only this protocol has goes through the bridge."""

from __future__ import annotations

from tests.dialects.acp.helpers import ALL, editing, reject
from tests.dialects.acp.test_agents import configuration, processes

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
