"""Tasks over HTTP: read, listed, watched, continued and canceled on durable routes; what other routes do instead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bridge.contract import Context, TaskState
from bridge.errors import ErrorCode, Failure
from bridge.model import Event, FinishReason, RunFinished, RunStarted, Text, as_text
from bridge.run.durable.waiting import WaitingTasks
from bridge.translation.framing.sse import Splitter
from tests.pairs.agents import Agent, Ask, Kit, Say, Scope
from tests.server.harness import Exchange, ask, fake_backend, serving

from .front import DEMO, NEW, artifacts, call, message, route, rpc, say, send, states, stores, stream

CHUNK = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n'
END = b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
KEYS = {"auth": {"keys": [{"name": "me", "key": "key-of-me"}, {"name": "you", "key": "key-of-you"}]}}
ME, YOU = ({**NEW, "authorization": f"Bearer key-of-{name}"} for name in ("me", "you"))


@pytest.fixture
async def durable(tmp_path: Path) -> AsyncIterator[str]:
    async with serving({**DEMO, "routes": [route(durable=True)], **stores(tmp_path)}) as base:
        yield f"{base}/a2a"


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[str]:
    async with serving({**DEMO, "routes": [route()], **stores(tmp_path)}) as base:
        yield f"{base}/a2a"


def code(answer: Any) -> int:
    found: int = answer["error"]["code"]
    return found


# ---------------------------------------------------------------------- durable routes


async def test_a_task_is_read_again(durable: str) -> None:
    task = await say(durable, "hello")
    assert (await rpc(durable, "GetTask", {"id": task["id"]}))["result"] == task
    reply = await ask("GET", f"{durable}/tasks/{task['id']}", b"", NEW)
    assert (reply.headers["content-type"], reply.json) == ("application/a2a+json", task)
    brief = (await rpc(durable, "GetTask", {"id": task["id"], "historyLength": 0}))["result"]
    assert brief == {name: value for name, value in task.items() if name != "history"}
    reply = await ask("GET", f"{durable}/tasks/{task['id']}?historyLength=0", b"", NEW)
    assert reply.json == brief


async def test_a_large_number_is_the_id_of_every_answer(durable: str, live: str) -> None:
    for agent in (durable, live):
        body = call("SendStreamingMessage", {"message": message("hello")}, id=2**70)
        reply = await ask("POST", agent, body, NEW)
        assert {json.loads(line[6:])["id"] for line in reply.body.split(b"\n") if line[:5] == b"data:"} == {2**70}
        assert f'"id":{2**70},'.encode() in reply.body


async def test_the_stream_and_the_stored_task_agree(durable: str) -> None:
    said = await stream(durable, send("hello", method="SendStreamingMessage"))
    task = (await rpc(durable, "GetTask", {"id": said[0]["task"]["id"]}))["result"]
    assert task["status"] == said[-1]["statusUpdate"]["status"]
    text = "".join(part["text"] for update in artifacts(said) for part in update["artifact"]["parts"])
    assert [part["text"] for each in task["artifacts"] for part in each["parts"]] == [text]


@pytest.mark.parametrize("kind", [Scope, Kit])
@pytest.mark.parametrize("durable", [True, False])
async def test_an_answer_reaches_an_agent_that_keeps_its_conversations(
    kind: type[Agent], durable: bool, tmp_path: Path
) -> None:
    """The agent gets the id of its question, which the client's message does not name."""
    async with fake_backend() as backend:
        agent = kind(backend)
        asked = Ask("q-1", {"name": "transfer", "arguments": "{}"})
        agent.brain = lambda heard: [Say("Sent.")] if heard.resumed else [asked]
        it = {"dialect": agent.dialect, "url": agent.url, "options": agent.options}
        config = {"backends": {"it": it}, "routes": [{**route(durable=durable), "backend": "it"}], **stores(tmp_path)}
        async with serving(config) as base:
            task = await say(f"{base}/a2a", "Send it")
            assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
            done = await say(f"{base}/a2a", "yes", taskId=task["id"], contextId=task["contextId"])
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    assert (agent.heard[1].resumed, agent.heard[1].refused) == ("q-1", False)


async def test_a_question_and_its_answer_are_one_task(durable: str) -> None:
    asked = await say(durable, "interrupt", messageId="one")
    assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    answered = await say(durable, "yes", messageId="two", taskId=asked["id"], contextId=asked["contextId"])
    assert (answered["id"], answered["contextId"]) == (asked["id"], asked["contextId"])
    assert answered["status"]["state"] == "TASK_STATE_COMPLETED"
    texts = [part["text"] for each in answered["artifacts"] for part in each["parts"]]
    assert texts == ["May I delete a.txt?", "You decided: resolved."]
    ids = [each["messageId"] for each in answered["history"]]
    assert ids == ["one", asked["status"]["message"]["messageId"], "two"]
    assert len({each["artifactId"] for each in answered["artifacts"]}) == 2
    assert (await rpc(durable, "GetTask", {"id": asked["id"]}))["result"] == answered
    last = (await rpc(durable, "GetTask", {"id": asked["id"], "historyLength": 1}))["result"]
    assert [each["messageId"] for each in last["history"]] == ["two"]


@pytest.mark.parametrize("scene", ["tool", "tools"])
async def test_a_task_that_needs_the_result_of_a_call_waits_for_it(durable: str, scene: str) -> None:
    asked = await say(durable, scene)
    assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    waits = asked["status"]["message"]["metadata"]["interrupts"]
    assert {each["reason"] for each in waits} == {"tool_result"}
    assert waits[0]["call"] == {"name": "get_weather", "args": {"city": "Paris"}}
    assert 'get_weather({"city":"Paris"})' in asked["status"]["message"]["parts"][0]["text"]
    results = [
        {"data": {"id": each["callId"], "response": {"temp": 21}}, "metadata": {"adk_type": "function_response"}}
        for each in waits
    ]
    if len(results) > 1:
        for some in ("21", results[0]):
            early = await rpc(durable, "SendMessage", {"message": message(some, taskId=asked["id"])})
            assert code(early) == -32602
            assert all(each["callId"] in early["error"]["message"] for each in waits)
    answered = await say(durable, *results, taskId=asked["id"])
    assert (answered["id"], answered["status"]["state"]) == (asked["id"], "TASK_STATE_COMPLETED")
    assert "21" in json.dumps(answered["artifacts"][-1])


async def test_a_text_is_the_result_of_the_only_call_that_waits(durable: str) -> None:
    asked = await say(durable, "tool")
    answered = await say(durable, "21 degrees", taskId=asked["id"])
    assert answered["status"]["state"] == "TASK_STATE_COMPLETED"
    assert "21 degrees" in json.dumps(answered["artifacts"])


async def test_the_stream_of_an_answer_to_a_question(durable: str) -> None:
    asked = await say(durable, "interrupt")
    said = await stream(durable, send("yes", method="SendStreamingMessage", taskId=asked["id"]))
    assert said[0]["task"]["id"] == asked["id"]
    assert said[0]["task"]["contextId"] == asked["contextId"], "the task alone names its context"
    assert states(said) == ["SUBMITTED", "WORKING", "COMPLETED"]


async def test_what_a_task_refuses(durable: str) -> None:
    done = await say(durable, "hello")
    asked = await say(durable, "interrupt")
    wrong = {"message": message("yes", taskId=asked["id"], contextId="another")}
    answers = [
        await rpc(durable, "SendMessage", {"message": message(taskId=done["id"])}),
        await rpc(durable, "SendMessage", {"message": message(taskId="nobody")}),
        await rpc(durable, "SendMessage", wrong),
        await rpc(durable, "SendMessage", {"message": message(taskId=asked["id"], metadata={"interruptId": "x"})}),
        await rpc(durable, "CancelTask", {"id": done["id"]}),
        await rpc(durable, "CancelTask", {"id": "nobody"}),
        await rpc(durable, "SubscribeToTask", {"id": done["id"]}),
        await rpc(durable, "SubscribeToTask", {"id": "nobody"}),
        await rpc(durable, "GetTask", {"id": "nobody"}),
        await rpc(durable, "GetTask", {}),
        await rpc(durable, "GetTask", {"id": done["id"], "historyLength": -1}),
    ]
    assert [code(each) for each in answers] == [
        -32004, -32001, -32602, -32602, -32002, -32001, -32004, -32001, -32001, -32602, -32602,
    ]  # fmt: skip
    assert (await rpc(durable, "GetTask", {"id": asked["id"]}))["result"] == asked, "the question still waits"


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "/tasks/nobody", 404, "TASK_NOT_FOUND"),
        ("POST", "/tasks/nobody:cancel", 404, "TASK_NOT_FOUND"),
        ("POST", "/tasks/nobody:subscribe", 404, "TASK_NOT_FOUND"),
        ("GET", "/tasks/nobody:subscribe", 404, "TASK_NOT_FOUND"),
        ("GET", "/tasks?pageSize=0", 400, "INVALID_PARAMS"),
        ("GET", "/tasks?pageSize=101", 400, "INVALID_PARAMS"),
        ("GET", "/tasks?status=DANCING", 400, "INVALID_PARAMS"),
        ("GET", "/tasks?pageToken=x", 400, "INVALID_PARAMS"),
        ("GET", "/tasks?statusTimestampAfter=yesterday", 400, "INVALID_PARAMS"),
        ("GET", "/tasks?statusTimestampAfter=2026-01-01T00:00:00", 400, "INVALID_PARAMS"),
        ("GET", "/extendedAgentCard", 400, "UNSUPPORTED_OPERATION"),
        ("GET", "/tasks/nobody/pushNotificationConfigs", 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        ("POST", "/tasks/nobody/pushNotificationConfigs", 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        ("DELETE", "/tasks/nobody/pushNotificationConfigs/1", 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    ],
)
async def test_errors_over_plain_http(durable: str, method: str, path: str, status: int, reason: str) -> None:
    body = b"{}" if method == "POST" else b""
    reply = await ask(method, durable + path, body, NEW)
    error = reply.json["error"]
    assert (reply.status, error["code"], error["details"][0]["reason"]) == (status, status, reason)


# ---------------------------------------------------------------------- lists


async def test_lists(durable: str) -> None:
    one = await say(durable, "hello", contextId="c-1")
    two = await say(durable, "interrupt", contextId="c-2")
    three = await say(durable, "hello", contextId="c-1")
    everything = (await rpc(durable, "ListTasks"))["result"]
    assert [task["id"] for task in everything["tasks"]] == [three["id"], two["id"], one["id"]]
    assert (everything["totalSize"], everything["pageSize"], everything["nextPageToken"]) == (3, 50, "")
    assert all("artifacts" not in task for task in everything["tasks"])

    async def listed(**params: Any) -> list[str]:
        page = (await rpc(durable, "ListTasks", params))["result"]
        return [task["id"] for task in page["tasks"]]

    assert await listed(contextId="c-1") == [three["id"], one["id"]]
    assert await listed(contextId="nobody's") == []
    assert await listed(status="TASK_STATE_INPUT_REQUIRED") == [two["id"]]
    assert await listed(status="TASK_STATE_AUTH_REQUIRED") == []
    assert await listed(status="TASK_STATE_COMPLETED") == [three["id"], one["id"]]
    assert await listed(statusTimestampAfter="2001-01-01T00:00:00Z") == [three["id"], two["id"], one["id"]]
    assert await listed(statusTimestampAfter="2901-01-01T00:00:00Z") == []
    first = (await rpc(durable, "ListTasks", {"pageSize": 2, "includeArtifacts": True, "historyLength": 0}))["result"]
    assert [task["id"] for task in first["tasks"]] == [three["id"], two["id"]]
    assert all(task["artifacts"] and "history" not in task for task in first["tasks"])
    rest = (await rpc(durable, "ListTasks", {"pageSize": 2, "pageToken": first["nextPageToken"]}))["result"]
    assert ([task["id"] for task in rest["tasks"]], rest["nextPageToken"]) == ([one["id"]], "")
    reply = await ask("GET", f"{durable}/tasks?contextId=c-1&pageSize=1", b"", NEW)
    assert [task["id"] for task in reply.json["tasks"]] == [three["id"]]
    assert reply.json["totalSize"] == 2


async def test_an_answer_moves_its_task_to_the_front(durable: str) -> None:
    asked = await say(durable, "interrupt")
    other = await say(durable, "hello")
    await say(durable, "yes", taskId=asked["id"])
    page = (await rpc(durable, "ListTasks"))["result"]
    assert [task["id"] for task in page["tasks"]] == [asked["id"], other["id"]]


async def test_tasks_of_requests_that_come_together_are_all_listed(durable: str) -> None:
    made = await asyncio.gather(*(say(durable, "hello") for _ in range(8)))
    page = (await rpc(durable, "ListTasks"))["result"]
    assert {task["id"] for task in page["tasks"]} == {task["id"] for task in made}


async def test_others_find_nothing(tmp_path: Path) -> None:
    config = {**DEMO, "routes": [route(durable=True)], **stores(tmp_path), "server": KEYS}
    async with serving(config) as base:
        url = f"{base}/a2a"
        task = await say(url, "interrupt", headers=ME, contextId="c-1")
        for method in ("GetTask", "CancelTask", "SubscribeToTask"):
            assert code(await rpc(url, method, {"id": task["id"]}, YOU)) == -32001
        assert code(await rpc(url, "SendMessage", {"message": message(taskId=task["id"])}, YOU)) == -32001
        assert (await rpc(url, "ListTasks", {}, YOU))["result"]["totalSize"] == 0
        assert (await rpc(url, "ListTasks", {"contextId": "c-1"}, YOU))["result"]["totalSize"] == 0
        assert (await rpc(url, "ListTasks", {}, ME))["result"]["totalSize"] == 1
        theirs = await say(url, "hello", headers=YOU, contextId="c-1")
        assert theirs["status"]["state"] == "TASK_STATE_COMPLETED", "a talk of their own, by the same name"


async def test_a_key_may_do_what_its_operations_say(tmp_path: Path) -> None:
    """Over JSON-RPC a key has to be one for messages, and for what its call does; over plain HTTP for that alone."""
    keys = [
        {"name": name, "key": f"key-of-{name}", "operations": name.split("+")}
        for name in ("run", "read", "cancel", "run+read", "run+cancel")
    ]
    config = {**DEMO, "routes": [route(durable=True)], **stores(tmp_path), "server": {"auth": {"keys": keys}}}
    calls = [("run", send("hello")), ("read", call("ListTasks")), ("cancel", call("CancelTask", {"id": "nobody"}))]
    paths = [("read", "GET", "/tasks"), ("cancel", "POST", "/tasks/nobody:cancel")]
    async with serving(config) as base:
        for key in keys:
            headers = {**NEW, "authorization": f"Bearer {key['key']}"}
            for needed, body in calls:
                reply = await ask("POST", f"{base}/a2a", body, headers)
                allowed = {"run", needed} <= set(key["operations"])
                assert reply.status == (200 if allowed else 403), (key["name"], needed)
            for needed, method, path in paths:
                reply = await ask(method, f"{base}/a2a{path}", b"{}" if method == "POST" else b"", headers)
                assert (reply.status == 403) is (needed not in key["operations"]), (key["name"], needed)


# ---------------------------------------------------------------------- watching, leaving, canceling


def slowly(gate: asyncio.Event) -> Any:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(CHUNK % b"one ")
        await gate.wait()
        await exchange.send(CHUNK % b"two")
        await exchange.send(END)
        await exchange.end()

    return script


class Reading:
    """A stream that is read event by event."""

    def __init__(self, url: str, body: bytes) -> None:
        self._session = aiohttp.ClientSession()
        self._asked = self._session.post(url, data=body, headers=NEW)
        self._splitter = Splitter()
        self.events: list[Any] = []

    async def until(self, enough: Any) -> list[Any]:
        if not hasattr(self, "_response"):
            self._response = await self._asked
        while not any(enough(event) for event in self.events):
            piece = await self._response.content.readany()
            assert piece, "the stream ended"
            for frame in self._splitter.feed(piece):
                data = frame if isinstance(frame, bytes) else frame.data
                self.events += [json.loads(data)["result"]] if data else []
        return self.events

    async def close(self) -> None:
        self._response.close()  # closing the session does not: the collector finds the connection, and complains
        await self._session.close()


def is_text(event: Any) -> bool:
    return "artifactUpdate" in event


def is_over(event: Any) -> bool:
    return event.get("statusUpdate", {}).get("status", {}).get("state") in (
        "TASK_STATE_COMPLETED", "TASK_STATE_CANCELED",
    )  # fmt: skip


def texts(parts: list[Any]) -> str:
    return "".join(part["text"] for each in parts for part in each["parts"])


async def test_a_snapshot_and_what_follows_are_the_whole_answer_once(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with fake_backend() as backend:
        backend.plays(slowly(gate))
        config = {
            "backends": {"it": {"dialect": "openai-chat", "url": backend.url, "model": "m"}},
            "routes": [route(durable=True)],
            **stores(tmp_path),
        }
        async with serving(config) as base:
            first = Reading(f"{base}/a2a", send("Hi", method="SendStreamingMessage"))
            task = (await first.until(is_text))[0]["task"]
            assert code(await rpc(f"{base}/a2a", "SendMessage", {"message": message(taskId=task["id"])})) == -32004
            await first.close()  # leaving ends nothing
            second = Reading(f"{base}/a2a", call("SubscribeToTask", {"id": task["id"]}))
            snapshot = (await second.until(lambda event: "task" in event))[0]["task"]
            assert snapshot["status"]["state"] == "TASK_STATE_WORKING"
            assert texts(snapshot["artifacts"]) == "one "
            gate.set()
            said = await second.until(is_over)
            await second.close()
            assert [each for each in said if "task" in each] == said[:1], "one snapshot"
            assert texts([update["artifact"] for update in artifacts(said)]) == "two"
            assert all(update.get("append") for update in artifacts(said))
            kept = (await rpc(f"{base}/a2a", "GetTask", {"id": task["id"]}))["result"]
            assert texts(kept["artifacts"]) == "one two"


async def test_a_task_that_works_is_canceled_for_all_who_read_it(tmp_path: Path) -> None:
    async with fake_backend() as backend:
        backend.plays(slowly(asyncio.Event()))
        config = {
            "backends": {"it": {"dialect": "openai-chat", "url": backend.url, "model": "m"}},
            "routes": [route(durable=True)],
            **stores(tmp_path),
        }
        async with serving(config) as base:
            reading = Reading(f"{base}/a2a", send("Hi", method="SendStreamingMessage"))
            task = (await reading.until(is_text))[0]["task"]
            canceled = (await rpc(f"{base}/a2a", "CancelTask", {"id": task["id"]}))["result"]
            assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
            assert states(await reading.until(is_over))[-1] == "CANCELED"
            await reading.close()
            assert code(await rpc(f"{base}/a2a", "CancelTask", {"id": task["id"]})) == -32002


async def test_a_task_that_waits_is_canceled_without_a_run(durable: str) -> None:
    asked = await say(durable, "interrupt")
    reply = await ask("POST", f"{durable}/tasks/{asked['id']}:cancel", b"{}", NEW)
    assert (reply.json["id"], reply.json["status"]["state"]) == (asked["id"], "TASK_STATE_CANCELED")
    assert reply.json["status"]["timestamp"] >= asked["status"]["timestamp"]
    assert reply.json["artifacts"] == asked["artifacts"]
    assert (await rpc(durable, "GetTask", {"id": asked["id"]}))["result"] == reply.json
    (listed,) = (await rpc(durable, "ListTasks", {"includeArtifacts": True}))["result"]["tasks"]
    assert listed == reply.json
    assert code(await rpc(durable, "SendMessage", {"message": message("yes", taskId=asked["id"])})) == -32004


async def test_a_task_that_waits_for_the_result_of_a_call_is_canceled(durable: str) -> None:
    asked = await say(durable, "tool")
    canceled = (await rpc(durable, "CancelTask", {"id": asked["id"]}))["result"]
    assert (canceled["id"], canceled["status"]["state"]) == (asked["id"], "TASK_STATE_CANCELED")
    again = await rpc(durable, "SendMessage", {"message": message("21", taskId=asked["id"])})
    assert code(again) == code(await rpc(durable, "CancelTask", {"id": asked["id"]})) - 2 == -32004


async def test_one_of_several_answers_to_a_question_counts(durable: str) -> None:
    asked = await say(durable, "interrupt")
    sent = [{"message": message("yes", taskId=asked["id"], messageId=f"m-{n}")} for n in range(5)]
    calls = [*(rpc(durable, "SendMessage", params) for params in sent), rpc(durable, "CancelTask", {"id": asked["id"]})]
    answers = await asyncio.gather(*calls)
    kept = (await rpc(durable, "GetTask", {"id": asked["id"]}))["result"]
    done = [each["result"] for each in answers if "result" in each]
    assert [each.get("task", each)["status"]["state"] for each in done] == [kept["status"]["state"]]
    assert {code(each) for each in answers if "error" in each} <= {-32004, -32002}
    assert all("thread" not in each["error"]["message"] for each in answers if "error" in each)


@pytest.mark.parametrize("is_durable", [False, True])
async def test_another_message_under_the_id_of_an_answered_one_is_new(is_durable: bool, tmp_path: Path) -> None:
    async with fake_backend("openai-chat") as backend:
        backend.turns(Failure(ErrorCode.BACKEND_ERROR, "no"), [Text("Hi.")])
        backends = {"it": {"dialect": "openai-chat", "url": backend.url}}
        async with serving({"backends": backends, "routes": [route(durable=is_durable)], **stores(tmp_path)}) as base:
            for text in ("one", "one", "two"):
                await ask("POST", f"{base}/a2a", send(text, messageId="same", contextId="c"), NEW)
        asked = [[as_text(part) for m in each.messages for part in m.parts] for each in backend.requests]
    assert asked == [["one"], ["one"], ["one", "Hi.", "two"]], "what was not answered is tried again"


async def test_a_task_that_waits_is_watched_as_it_is(durable: str) -> None:
    asked = await say(durable, "interrupt")
    assert await stream(durable, call("SubscribeToTask", {"id": asked["id"]})) == [{"task": asked}]


async def test_a_task_is_taken_at_once(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with fake_backend() as backend:
        backend.plays(slowly(gate))
        config = {
            "backends": {"it": {"dialect": "openai-chat", "url": backend.url, "model": "m"}},
            "routes": [route(durable=True)],
            **stores(tmp_path),
        }
        async with serving(config) as base:
            task = await say(f"{base}/a2a", "Hi", configuration={"returnImmediately": True})
            assert task["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
            reading = Reading(f"{base}/a2a", call("SubscribeToTask", {"id": task["id"]}))
            await reading.until(lambda event: "task" in event)
            gate.set()
            said = await reading.until(is_over)
            await reading.close()
            assert states(said)[-1] == "COMPLETED"
            assert [each for each in said if "task" in each] == said[:1]


# ---------------------------------------------------------------------- other routes


async def test_a_route_that_keeps_nothing(live: str) -> None:
    done = await say(live, "hello")
    answers = [
        await rpc(live, "GetTask", {"id": done["id"]}),
        await rpc(live, "SubscribeToTask", {"id": done["id"]}),
        await rpc(live, "CancelTask", {"id": done["id"]}),
        await rpc(live, "SendMessage", {"message": message(taskId=done["id"], contextId=done["contextId"])}),
        await rpc(live, "ListTasks"),
    ]
    assert [code(each) for each in answers] == [-32001, -32001, -32001, -32001, -32004]


async def test_a_question_on_a_route_that_keeps_nothing(live: str) -> None:
    asked = await say(live, "interrupt")
    answered = await say(live, "yes", taskId=asked["id"], contextId=asked["contextId"])
    assert (answered["id"], answered["status"]["state"]) == (asked["id"], "TASK_STATE_COMPLETED")
    assert texts(answered["artifacts"]) == "You decided: resolved."


# ---------------------------------------------------------------------- routes that are not durable


async def test_a_task_that_waits_is_read_and_watched(live: str) -> None:
    for scene in ("interrupt", "tool"):
        asked = await say(live, scene)
        assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert (await rpc(live, "GetTask", {"id": asked["id"]}))["result"] == asked
        (seen,) = await stream(live, call("SubscribeToTask", {"id": asked["id"]}))
        assert seen["task"] == asked


async def test_a_streamed_task_that_waits_is_the_one_that_is_read(live: str) -> None:
    said = await stream(live, send("interrupt", method="SendStreamingMessage"))
    task = (await rpc(live, "GetTask", {"id": said[0]["task"]["id"]}))["result"]
    assert task["status"] == said[-1]["statusUpdate"]["status"]
    done = await stream(live, send("yes", method="SendStreamingMessage", taskId=task["id"]))
    assert (done[0]["task"]["id"], states(done)[-1]) == (task["id"], "COMPLETED")
    assert code(await rpc(live, "GetTask", {"id": task["id"]})) == -32001


async def test_the_result_of_a_call_goes_to_its_task(live: str) -> None:
    """A message that names the task only; one that is no result of the call leaves the task waiting."""
    asked = await say(live, "tools")
    waits = asked["status"]["message"]["metadata"]["interrupts"]
    assert len(waits) > 1
    early = await rpc(live, "SendMessage", {"message": message("21", taskId=asked["id"])})
    assert code(early) == -32602
    results = [
        {"data": {"id": each["callId"], "response": {"temp": 21}}, "metadata": {"adk_type": "function_response"}}
        for each in waits
    ]
    answered = await say(live, *results, taskId=asked["id"])
    assert (answered["id"], answered["status"]["state"]) == (asked["id"], "TASK_STATE_COMPLETED")
    assert "21" in json.dumps(answered["artifacts"])


async def test_a_task_that_waits_is_canceled(live: str) -> None:
    asked = await say(live, "tool")
    canceled = (await rpc(live, "CancelTask", {"id": asked["id"]}))["result"]
    assert (canceled["id"], canceled["status"]["state"]) == (asked["id"], "TASK_STATE_CANCELED")
    assert code(await rpc(live, "CancelTask", {"id": asked["id"]})) == -32001
    assert code(await rpc(live, "SendMessage", {"message": message(taskId=asked["id"])})) == -32001


async def test_a_task_that_waits_belongs_to_its_owner(tmp_path: Path) -> None:
    async with serving({**DEMO, "routes": [route()], "server": KEYS, **stores(tmp_path)}) as base:
        asked = await say(f"{base}/a2a", "interrupt", headers=ME)
        for method, params in (
            ("GetTask", {"id": asked["id"]}),
            ("CancelTask", {"id": asked["id"]}),
            ("SendMessage", {"message": message("yes", taskId=asked["id"], contextId=asked["contextId"])}),
        ):
            assert code(await rpc(f"{base}/a2a", method, params, YOU)) == -32001
        done = await say(f"{base}/a2a", "yes", headers=ME, taskId=asked["id"])
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"


KEY = ("me", "/a2a", "t1")


def waiting_run(reason: FinishReason = FinishReason.INTERRUPTED) -> list[Event]:
    return [RunStarted("t1"), RunFinished(reason)]


def test_a_task_waits_on_if_its_answer_came_to_nothing() -> None:
    tasks = WaitingTasks()
    tasks.ended(KEY, Context("t1"), waiting_run(), 10)
    tasks.begin(KEY)
    assert [run.state for run in tasks.runs(KEY)] == [TaskState.ENDED, TaskState.RUNNING]
    tasks.abandon(KEY)
    assert [run.state for run in tasks.runs(KEY)] == [TaskState.ENDED]
    tasks.ended(KEY, Context("t2"), waiting_run(FinishReason.TOOL_CALLS), 10)
    assert [run.context.run_id for run in tasks.runs(KEY)] == ["t1", "t2"]
    tasks.ended(KEY, Context("t3"), waiting_run(FinishReason.STOP), 10)
    assert tasks.runs(KEY) == []


def test_what_waits_has_bounds() -> None:
    tasks = WaitingTasks()
    for number in range(1001):
        tasks.ended(("me", "/a2a", f"t{number}"), Context("r"), waiting_run(), 10)
    kept = [number for number in range(1001) if tasks.runs(("me", "/a2a", f"t{number}"))]
    assert kept == list(range(1, 1001))
    tasks.ended(("me", "/a2a", "large"), Context("r"), waiting_run(), 64 * 1024 * 1024 - 10)
    assert [n for n in range(1001) if tasks.runs(("me", "/a2a", f"t{n}"))] == [1000]


def test_who_makes_most_tasks_wait_loses_the_first() -> None:
    tasks = WaitingTasks()
    tasks.ended(KEY, Context("r"), waiting_run(), 10)
    for number in range(1001):
        tasks.ended(("you", "/a2a", f"t{number}"), Context("r"), waiting_run(), 10)
    assert [n for n in range(1001) if not tasks.runs(("you", "/a2a", f"t{n}"))] == [0, 1]
    for number in range(3):
        tasks.ended(("they", "/a2a", f"t{number}"), Context("r"), waiting_run(), 30 * 1024 * 1024)
    assert [n for n in range(3) if tasks.runs(("they", "/a2a", f"t{n}"))] == [1, 2]
    assert tasks.runs(KEY)
