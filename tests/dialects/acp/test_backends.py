"""The front over backends of every other dialect: text, a call, a question, a failure, a conversation."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bridge.contract import Feature, QueuedRunsDialect, Support, registry
from bridge.contract.demands import NO_RESULT
from bridge.contract.optional.agents import AgentDialect
from bridge.errors import ErrorCode, Failure
from bridge.model import Interrupted, Text, ToolCall, ToolResult, UsageReported, result_text
from bridge.testing import FakeBackend, fake_backend
from tests.dialects.acp.helpers import Editor, allow, configuration, editing, prompt_of, reject
from tests.server.harness import serving


def _is_played(name: str) -> bool:
    dialect = registry.get(name)
    return (
        dialect.served
        and dialect.called
        and not dialect.over_grpc
        and not isinstance(dialect, QueuedRunsDialect | AgentDialect)
    )


BACKS = [name for name in registry.names() if _is_played(name)]
ASKING = [
    name
    for name in BACKS
    if registry.get(name).capabilities.answer(Feature.INTERRUPT) is Support.EXACT
    and registry.get(name).capabilities.request(Feature.RESUME) in (Support.EXACT, Support.TEXT)
]


@contextlib.asynccontextmanager
async def before(back: str, folder: Path, **caps: Any) -> AsyncIterator[tuple[Editor, FakeBackend]]:
    async with fake_backend(back) as backend:
        config = configuration(folder)
        mount = registry.get(back).mount if back in ("openai-chat", "openai-responses", "gemini") else ""
        config["backends"] = {
            "it": {"dialect": back, "url": backend.url + mount, "model": "m", "retry": {"attempts": 1}}
        }
        async with editing(config=config, **caps) as editor:
            yield editor, backend


@pytest.mark.parametrize("back", BACKS)
async def test_a_conversation(back: str, tmp_path: Path) -> None:
    async with before(back, tmp_path) as (editor, backend):
        session = await editor.new()
        backend.says("Hello", UsageReported(3, 4, 7))
        result = await editor.prompt(session, "Hi")
        assert (editor.said(), result["stopReason"]) == ("Hello", "end_turn")
        if registry.get(back).capabilities.answer(Feature.USAGE) is Support.EXACT:
            assert result["usage"]["totalTokens"] == 7
        backend.says("Again")
        await editor.prompt(session, "And now?")
        assert editor.said() == "Again"
        told = [result_text([p for p in m.parts if isinstance(p, Text)]) for m in backend.requests[-1].messages]
        assert "And now?" in "".join(told)
        if not registry.get(back).capabilities.keeps_history:
            assert all(said in "".join(told) for said in ("Hi", "Hello"))


@pytest.mark.parametrize("back", BACKS)
async def test_a_failure(back: str, tmp_path: Path) -> None:
    async with before(back, tmp_path) as (editor, backend):
        session = await editor.new()
        backend.fails(Failure(ErrorCode.RATE_LIMITED, "Slow down."))
        error = await editor.error("session/prompt", prompt_of(session, "Hi"))
        assert error.code == -32603
        assert "Slow down" in error.message
        backend.says("Hello")
        assert (await editor.prompt(session, "Hi"))["stopReason"] == "end_turn"


@pytest.mark.parametrize("back", ASKING)
async def test_an_approval_within_the_prompt(back: str, tmp_path: Path) -> None:
    async with before(back, tmp_path) as (editor, backend):
        call = ToolCall("c1", "transfer", '{"to":"Bo"}')
        backend.turns([call, Interrupted("c1", "approval", {"message": "Transfer?"}, "c1")], [Text("Done.")])
        result = await editor.prompt(await editor.new(), "Pay")
        assert [method for method, _ in editor.asked] == ["session/request_permission"]
        assert (editor.said(), result["stopReason"]) == ("Done.", "end_turn")
        (answer,) = backend.requests[-1].resume
        assert answer.agrees


@pytest.mark.parametrize("back", ASKING)
async def test_an_approval_that_is_refused(back: str, tmp_path: Path) -> None:
    async with before(back, tmp_path) as (editor, backend):
        editor.answers = reject
        call = ToolCall("c1", "transfer", '{"to":"Bo"}')
        backend.turns([call, Interrupted("c1", "approval", {"message": "Transfer?"}, "c1")], [Text("Left.")])
        await editor.prompt(await editor.new(), "Pay")
        assert editor.said() == "Left."
        (answer,) = backend.requests[-1].resume
        assert not answer.agrees


@pytest.mark.parametrize("answers", [allow, reject])
@pytest.mark.parametrize("back", [name for name in ASKING if registry.get(name).capabilities.keeps_history])
async def test_a_call_that_was_decided_is_the_backends(back: str, answers: Any, tmp_path: Path) -> None:
    """One that remembers is not told later that the call has no result, though it has shown none."""
    async with before(back, tmp_path) as (editor, backend):
        editor.answers = answers
        call = ToolCall("c1", "transfer", '{"to":"Bo"}')
        backend.turns([call, Interrupted("c1", "approval", {"message": "Transfer?"}, "c1")], ["Done."], ["Again."])
        session = await editor.new()
        await editor.prompt(session, "Pay")
        await editor.prompt(session, "more")
        assert editor.said() == "Again."
        assert NO_RESULT not in str(backend.requests[-1].messages)


@pytest.mark.parametrize("back", ASKING)
async def test_a_question_in_words(back: str, tmp_path: Path) -> None:
    async with before(back, tmp_path) as (editor, backend):
        asked = Interrupted("q1", "input_required", {"message": "Which colour?"})
        backend.turns([asked], [Text("Painted.")], [Text("Again.")])
        session = await editor.new()
        assert (await editor.prompt(session, "Paint"))["stopReason"] == "end_turn"
        assert (editor.said(), editor.asked) == ("Which colour?", [])
        await editor.prompt(session, "red")
        assert editor.said() == "Painted."
        request = backend.requests[-1]
        said = [result_text([p for p in m.parts if isinstance(p, Text)]) for m in request.messages[-1:]]
        assert "red" in str([*(answer.payload for answer in request.resume), *said])  # or as the reason of a no
        await editor.prompt(session, "more")
        assert editor.said() == "Again."


@pytest.mark.parametrize("back", ["ag-ui", "agentscope"])
async def test_a_tool_that_the_backend_runs(back: str, tmp_path: Path) -> None:
    async with before(back, tmp_path) as (editor, backend):
        backend.says(
            ToolCall("c1", "search_web", '{"q":"x"}'), ToolResult("c1", [Text("found")], "search_web"), "Here."
        )
        await editor.prompt(await editor.new(), "Search")
        assert [(u["toolCallId"], u["status"]) for u in editor.calls()] == [("c1", "in_progress"), ("c1", "completed")]
        assert editor.calls()[0]["kind"] == "search"
        assert editor.said() == "Here."


async def test_an_approval_over_three_hops(tmp_path: Path) -> None:
    """An editor, the bridge, A2A, another bridge, an agent of AgentScope: its question is the editor's dialog."""
    call = ToolCall("c1", "transfer", '{"to":"Bo"}')
    async with fake_backend("agentscope") as agent:
        agent.turns(["One moment."], [call, Interrupted("c1", "approval", {"message": "Transfer?"}, "c1")], ["Done."])
        outer = {
            "backends": {"it": {"dialect": "agentscope", "url": agent.url}},
            "routes": [{"dialect": "a2a", "path": "/a2a", "backend": "it"}],
            "stores": {"history": f"sqlite:///{tmp_path}/outer.db"},
        }
        async with serving(outer) as base:
            config = configuration(tmp_path)
            config["backends"] = {"it": {"dialect": "a2a", "url": f"{base}/a2a"}}
            async with editing(config=config) as editor:
                session = await editor.new()
                await editor.prompt(session, "Hello")
                assert editor.said() == "One moment."
                result = await editor.prompt(session, "Pay")
                ((method, params),) = editor.asked
                assert method == "session/request_permission"
                assert "Transfer?" in params["toolCall"]["content"][0]["content"]["text"]
                assert (editor.said(), result["stopReason"]) == ("Done.", "end_turn")
        (answer,) = agent.requests[-1].resume
        assert answer.agrees
        assert len({request.thread_id for request in agent.requests}) == 1
