"""Calls that become tasks: on durable routes, for clients that declared the extension."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from . import agent
from .client import FORMS, TASKS, New, Old, config, route, served, until

CAPABLE: dict[str, Any] = {"extensions": {TASKS: {}}}
KEYS = {"keys": [{"name": "me", "key": "key-of-me"}, {"name": "you", "key": "key-of-you"}]}


@pytest.fixture
async def durable(tmp_path: Path) -> AsyncIterator[tuple[New, Old]]:
    async with served(config(tmp_path, route(durable=True))) as clients:
        yield clients


async def task(new: New, prompt: str, **capabilities: Any) -> dict[str, Any]:
    answer = await new.call(prompt, capabilities={**CAPABLE, **capabilities})
    assert answer.status == 200
    found: dict[str, Any] = answer.result
    return found


async def get(new: New, task_id: str, method: str = "tasks/get", **params: Any) -> Any:
    return await new.ask(method, {"taskId": task_id, **params}, capabilities=CAPABLE)


async def ended(new: New, task_id: str) -> dict[str, Any]:
    for _ in range(200):
        found: dict[str, Any] = (await get(new, task_id)).result
        if found["status"] != "working":
            return found
        await asyncio.sleep(0.02)
    raise AssertionError("the task did not end")


async def test_a_call_is_a_task_from_the_start(durable: tuple[New, Old]) -> None:
    new = durable[0]
    made = await task(new, "hi")
    assert made["resultType"] == "task"
    assert made["status"] in ("working", "completed")
    assert made["createdAt"].endswith("Z")
    assert {"taskId", "lastUpdatedAt", "pollIntervalMs"} <= made.keys()
    assert made["ttlMs"] == 24 * 3600 * 1000
    found = await ended(new, made["taskId"])
    assert (found["resultType"], found["status"]) == ("complete", "completed")
    assert found["result"]["content"][0]["text"] == "hi ['user']"
    assert found["result"]["isError"] is False
    assert found["createdAt"] == made["createdAt"]


async def test_the_extension_is_declared_by_both_sides_or_there_is_none(
    durable: tuple[New, Old], tmp_path: Path
) -> None:
    new, old = durable
    assert (await new.ask("server/discover")).result["capabilities"]["extensions"] == {TASKS: {}}
    assert "extensions" not in (await old.start()).result["capabilities"]
    assert (await new.call("hi")).texts[0] == "hi ['user']"
    assert (await old.call("hi")).texts[0] == "hi ['user']"
    answer = await new.ask("tasks/get", {"taskId": "x"})
    assert (answer.status, answer.error["code"]) == (400, -32021)
    assert answer.error["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    for method in ("tasks/list", "tasks/result"):
        assert (await new.ask(method, {"taskId": "x"}, capabilities=CAPABLE)).error["code"] == -32601
    async with served(config(tmp_path, route())) as (live, _):
        assert "extensions" not in (await live.ask("server/discover")).result["capabilities"]
        assert (await live.call("hi", capabilities=CAPABLE)).texts[0] == "hi ['user']"
        assert (await get(live, "x")).error["code"] == -32601


@pytest.mark.parametrize("task_id", ["nope", "", 7, None])
async def test_an_unknown_task(durable: tuple[New, Old], task_id: Any) -> None:
    for method in ("tasks/get", "tasks/cancel", "tasks/update"):
        params = {"inputResponses": {"q": {"action": "cancel"}}} if method == "tasks/update" else {}
        answer = await get(durable[0], task_id, method, **params)
        assert (answer.status, answer.error["code"]) == (400, -32602), method


async def test_a_tool_that_fails_has_completed(durable: tuple[New, Old]) -> None:
    new = durable[0]
    found = await ended(new, (await task(new, "boom"))["taskId"])
    assert found["status"] == "completed"
    assert found["result"]["isError"] is True
    assert found["result"]["content"][0]["text"].startswith("backend_error: ")
    assert "error" not in found


async def test_a_working_task_says_what_it_said_last_and_is_cancelled(durable: tuple[New, Old]) -> None:
    new = durable[0]
    agent.ended.clear()
    task_id = (await task(new, "slow task"))["taskId"]
    for _ in range(200):
        found = (await get(new, task_id)).result
        if "statusMessage" in found:
            break
        await asyncio.sleep(0.02)
    assert (found["status"], found["statusMessage"][:2]) == ("working", "w0")
    answer = await get(new, task_id, "tasks/cancel")
    assert (answer.status, answer.result.keys()) == (200, {"resultType", "_meta"})
    await until(lambda: agent.ended)
    found = (await get(new, task_id)).result
    assert found["status"] == "cancelled"
    assert not {"result", "error"} & found.keys()
    again = await get(new, task_id, "tasks/cancel")
    assert (again.status, again.error["code"]) == (400, -32602)


async def test_a_task_outlives_its_client_and_the_answer(durable: tuple[New, Old]) -> None:
    new = durable[0]
    task_id = (await task(new, "silent"))["taskId"]
    await new.session.close()
    async with aiohttp.ClientSession() as session:
        other = New(new.url, session)
        assert (await ended(other, task_id))["result"]["content"][0]["text"] == "at last"


async def test_a_task_outlives_the_process(tmp_path: Path) -> None:
    setup = config(tmp_path, route(durable=True))
    async with served({**setup, "server": dict(setup["server"])}) as (new, _):
        task_id = (await task(new, "hi"))["taskId"]
        first = await ended(new, task_id)
    async with served(setup) as (new, _):
        assert (await get(new, task_id)).result == first


async def test_a_task_is_its_owners(tmp_path: Path) -> None:
    setup = config(tmp_path, route(durable=True), auth=KEYS)
    async with served(setup, authorization="Bearer key-of-me") as (new, _):
        task_id = (await task(new, "hi"))["taskId"]
        assert (await ended(new, task_id))["status"] == "completed"
        new.headers["authorization"] = "Bearer key-of-you"
        for method in ("tasks/get", "tasks/cancel"):
            assert (await get(new, task_id, method)).error["code"] == -32602


async def test_a_task_waits_for_answers(durable: tuple[New, Old]) -> None:
    new = durable[0]
    task_id = (await task(new, "two", **FORMS))["taskId"]
    found = await ended(new, task_id)
    assert (found["status"], list(found["inputRequests"])) == ("input_required", ["q-1", "q-2"])
    assert found["inputRequests"]["q-1"]["method"] == "elicitation/create"
    assert "result" not in found
    for wrong in ({"other": {"action": "cancel"}}, {}, None):
        answer = await get(new, task_id, "tasks/update", inputResponses=wrong)
        assert (answer.status, answer.error["code"]) == (400, -32602)
    told = {
        "q-1": {"action": "accept", "content": {"approved": True}},
        "q-2": {"action": "accept", "content": {"answer": "Ann"}},
    }
    answer = await get(new, task_id, "tasks/update", inputResponses=told)
    assert (answer.status, answer.result.keys()) == (200, {"resultType", "_meta"})
    text = (await ended(new, task_id))["result"]["content"][0]["text"]
    assert text == "answers: [('q-1', 'resolved', {'approved': True}), ('q-2', 'resolved', 'Ann')]"
    answer = await get(new, task_id, "tasks/update", inputResponses=told)
    assert answer.error["code"] == -32602


async def test_a_question_of_a_task_without_elicitation_is_its_result(durable: tuple[New, Old]) -> None:
    new = durable[0]
    found = await ended(new, (await task(new, "ask"))["taskId"])
    assert found["status"] == "completed"
    assert found["result"]["content"][0]["text"] == "Which city?"


async def test_a_task_that_waits_can_be_cancelled(durable: tuple[New, Old]) -> None:
    new = durable[0]
    task_id = (await task(new, "approve", **FORMS))["taskId"]
    assert (await ended(new, task_id))["status"] == "input_required"
    assert (await get(new, task_id, "tasks/cancel")).status == 200
    assert (await get(new, task_id)).result["status"] == "cancelled"


async def test_a_task_continues_a_conversation(durable: tuple[New, Old]) -> None:
    new = durable[0]
    first = await ended(new, (await task(new, "one"))["taskId"])
    known = first["result"]["content"][1]["text"].removeprefix("conversation: ")
    answer = await new.call("again", conversation=known, capabilities=CAPABLE)
    found = await ended(new, answer.result["taskId"])
    assert found["result"]["content"][0]["text"] == "again ['user', 'assistant', 'user']"


async def test_a_forgotten_conversation_is_no_task(tmp_path: Path) -> None:
    setup = config(tmp_path, route(durable=True), secret="s" * 40)
    async with served({**setup, "server": dict(setup["server"])}) as (new, _):
        known = (await new.call("one")).conversation
    (tmp_path / "history.db").unlink()
    async with served(setup) as (new, _):
        answer = await new.call("again", conversation=known, capabilities=CAPABLE)
        assert (answer.result["resultType"], answer.result["isError"]) == ("complete", True)
        assert answer.texts[0].startswith("not_found: ")
