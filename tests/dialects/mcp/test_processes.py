"""Sessions of clients whose requests reach several processes, which share the store of runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.server.harness import serving
from tests.stores.conftest import postgres  # noqa: F401
from tests.stores.run_engines import RunEngine, run_engine  # noqa: F401

from . import agent
from .client import FORMS, Old, config, until


@asynccontextmanager
async def two(folder: Path, url: str) -> AsyncIterator[tuple[Old, Old]]:
    """Two bridges with one store, and a client of each; the second one has the session of the first."""

    def setup() -> dict[str, Any]:
        made = config(folder, workers=2)
        made["stores"]["runs"] = url
        return made

    async with serving(setup()) as one, serving(setup()) as other, aiohttp.ClientSession() as session:
        first, second = Old(f"{one}/mcp", session), Old(f"{other}/mcp", session)
        await first.start(capabilities=FORMS)
        second.headers = dict(first.headers)
        yield first, second


def reply(asked: Any, **content: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": content}}


def notice(call: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call["id"]}}


async def test_a_question_is_answered_at_another_process(tmp_path: Path, run_engine: RunEngine) -> None:  # noqa: F811
    async with two(tmp_path, run_engine.url) as (first, second), asyncio.timeout(30):
        async with first.open(first.framed("two", token=0)) as messages:
            for content in ({"approved": True}, {"answer": "Ann"}):
                told = await second.send(reply(await anext(messages), **content))
                assert (told.status, told.body) == (202, b"")
            found = [m async for m in messages]
        text = found[-1]["result"]["content"][0]["text"]
        assert text == "answers: [('q-1', 'resolved', {'approved': True}), ('q-2', 'resolved', 'Ann')]"
        async with first.open(first.framed("approve")) as messages:
            asked = await anext(messages)
            declined = {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "no"}}
            assert (await second.send(declined)).status == 202
            (last,) = [m async for m in messages]
    assert "('q-1', 'cancelled', None)" in last["result"]["content"][0]["text"]


async def test_a_call_is_cancelled_at_another_process(tmp_path: Path, run_engine: RunEngine) -> None:  # noqa: F811
    agent.ended.clear()
    async with two(tmp_path, run_engine.url) as (first, second), asyncio.timeout(30):
        body, other = first.framed("slow one", token=1), first.framed("slow two", token=2)
        async with first.open(body) as messages, first.open(other) as others:
            await anext(messages)
            await anext(others)
            assert (await second.send(notice(body))).status == 202
            rest = [m async for m in messages]
            assert not any("id" in m for m in rest), "a cancelled call has no answer"
            await until(lambda: agent.ended)
            assert len(agent.ended) == 1
            assert agent.ended[0].startswith("slow one")
            assert (await second.send(notice(other))).status == 202
            assert not any("id" in m for m in [m async for m in others])


async def test_the_end_of_a_session_ends_its_calls_at_all_processes(tmp_path: Path, run_engine: RunEngine) -> None:  # noqa: F811
    agent.ended.clear()
    async with two(tmp_path, run_engine.url) as (first, second), asyncio.timeout(30):
        async with first.open(first.framed("slow end", token=1)) as messages:
            await anext(messages)
            assert (await second.send(b"", method="DELETE")).status in (200, 202, 204)
            assert not any("id" in m for m in [m async for m in messages])
        await until(lambda: agent.ended)


async def test_what_concerns_another_session_or_nothing_is_told_so(tmp_path: Path, run_engine: RunEngine) -> None:  # noqa: F811
    async with (
        two(tmp_path, run_engine.url) as (first, second),
        asyncio.timeout(30),
        first.open(first.framed("approve")) as messages,
    ):
        asked = await anext(messages)
        foreign = Old(second.url, second.session)
        await foreign.start(capabilities=FORMS)
        refused = await foreign.send(reply(asked, approved=True))
        assert refused.status == 400
        assert "no question with this id waits" in refused.error["message"]
        assert (await second.send(reply({"id": "q-9"}, approved=True))).status == 400
        assert (await second.send(reply(asked, approved=True))).status == 202
        assert [m async for m in messages]
        while (await second.send(reply(asked, approved=True))).status != 400:  # it was answered
            await asyncio.sleep(0.05)


async def test_an_id_is_that_of_one_call_over_all_processes(tmp_path: Path, run_engine: RunEngine) -> None:  # noqa: F811
    async with two(tmp_path, run_engine.url) as (first, second), asyncio.timeout(30):
        body = first.framed("approve")
        async with first.open(body) as messages:
            asked = await anext(messages)
            again = await second.send(body)
            assert again.status == 400
            assert "a call with this id is open" in again.error["message"]
            await first.send(reply(asked, approved=True))
            assert [m async for m in messages]
