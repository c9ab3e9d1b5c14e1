"""The rules of the protocol's technology compatibility kit, over both bindings; each test names those that it checks.

Three rules of the kit are not kept, because the specification, its proto file or the SDKs say otherwise
(docs/dialects/a2a.md): the media type of HTTP+JSON, its statuses 409 and 502, and streams that stay open while a task
waits. Those of gRPC, of signed cards and of TLS do not apply.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pytest

from bridge.run.durable import push
from tests.server.harness import Reply, ask, serving

from .front import DEMO, NEW, call, events_in, message, route, stores

BINDINGS = ["jsonrpc", "http"]
KEYS = {"auth": {"keys": [{"name": name, "key": f"key-of-{name}"} for name in ("me", "you")]}}
ADDRESSES = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("POST", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "ListTaskPushNotificationConfigs": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
}
STATUSES = {
    "TASK_NOT_FOUND": (-32001, 404, "NOT_FOUND"),
    "TASK_NOT_CANCELABLE": (-32002, 400, "FAILED_PRECONDITION"),
    "PUSH_NOTIFICATION_NOT_SUPPORTED": (-32003, 400, "FAILED_PRECONDITION"),
    "UNSUPPORTED_OPERATION": (-32004, 400, "FAILED_PRECONDITION"),
    "CONTENT_TYPE_NOT_SUPPORTED": (-32005, 415, "INVALID_ARGUMENT"),
    "VERSION_NOT_SUPPORTED": (-32009, 400, "FAILED_PRECONDITION"),
    "INVALID_PARAMS": (-32602, 400, "INVALID_ARGUMENT"),
}
PUSH = [name for name in ADDRESSES if "Push" in name]


class Agent(NamedTuple):
    """An agent, and the binding over which it is called."""

    url: str
    binding: str
    headers: dict[str, str] = NEW

    async def send(self, method: str, params: dict[str, Any]) -> Reply:
        if self.binding == "jsonrpc":
            return await ask("POST", self.url, call(method, params), self.headers)
        verb, path = ADDRESSES[method]
        params = dict(params)
        for name in re.findall(r"{(\w+)}", path):
            path = path.replace(f"{{{name}}}", quote(str(params.pop(name)), safe=""))
        if verb == "POST":
            return await ask(verb, self.url + path, json.dumps(params).encode(), self.headers)
        query = {name: str(value).lower() if isinstance(value, bool) else value for name, value in params.items()}
        return await ask(verb, self.url + path + ("?" + urlencode(query) if query else ""), b"", self.headers)

    async def call(self, method: str, **params: Any) -> Any:
        """The result of a call that succeeds."""
        reply = await self.send(method, params)
        assert reply.status == 200, reply.body
        if self.binding == "http":
            return reply.json
        assert reply.headers["content-type"].startswith("application/json")
        assert (reply.json["jsonrpc"], reply.json["id"], "error" in reply.json) == ("2.0", 7, False), reply.json
        return reply.json["result"]

    async def say(self, *parts: Any, configuration: Any = None, **fields: Any) -> Any:
        """The task that a message makes or continues."""
        params = {"message": message(*parts, **fields)}
        result = await self.call("SendMessage", **params, **({"configuration": configuration} if configuration else {}))
        assert list(result) == ["task"]
        return result["task"]

    async def stream(self, method: str, **params: Any) -> list[Any]:
        """The events of a stream."""
        reply = await self.send(method, params)
        assert reply.headers["content-type"].startswith("text/event-stream"), reply.body
        events = events_in(reply)
        if self.binding == "jsonrpc":
            assert all((event["jsonrpc"], event["id"]) == ("2.0", 7) for event in events)
            events = [event["result"] for event in events]
        assert all(len(event) == 1 for event in events)
        return events

    async def refusal(self, method: str, **params: Any) -> str:
        """The reason for which a call is refused, told as its binding tells it."""
        return refused(await self.send(method, params), self.binding)


def refused(reply: Reply, binding: str) -> str:
    error = reply.json["error"]
    details = error["data" if binding == "jsonrpc" else "details"]
    info = details[0]
    assert (info["@type"], info["domain"]) == ("type.googleapis.com/google.rpc.ErrorInfo", "a2a-protocol.org")
    assert error["message"]
    reason: str = info["reason"]
    number, status, word = STATUSES[reason]
    if binding == "jsonrpc":
        assert (reply.status, error["code"]) == (200, number)
    else:
        assert (reply.status, error["code"], error["status"]) == (status, status, word)
        assert reply.headers["content-type"].startswith("application/json")
    return reason


@pytest.fixture(params=BINDINGS)
async def agent(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Agent]:
    options = {"push": ["hooks.example"]}
    async with serving({**DEMO, "routes": [route(durable=True, options=options)], **stores(tmp_path)}) as base:
        yield Agent(f"{base}/a2a", request.param)


def state(task: Any) -> str:
    found: str = task["status"]["state"]
    return found


async def test_messages_and_tasks(agent: Agent) -> None:
    """CORE-SEND-001, CORE-GET-001, CORE-MULTI-001a, -002a, -003, DM-TASK-001, DM-ART-001, DM-STATUS-001, -SERIAL-*."""
    task = await agent.say("hello", unknownField={"of": "a later version"})
    assert state(task) == "TASK_STATE_COMPLETED"
    assert task["id"]
    assert task["contextId"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", task["status"]["timestamp"])
    assert all(each["artifactId"] and each["parts"] for each in task["artifacts"])
    assert all(each["messageId"] and each["role"] in ("ROLE_USER", "ROLE_AGENT") for each in task["history"])
    names = re.findall(r'"(\w+)":', json.dumps(task))
    assert not [name for name in names if "_" in name and not name.startswith("adk_")], "names are in camelCase"
    assert await agent.call("GetTask", id=task["id"]) == task
    other = await agent.say("hello", contextId=task["contextId"])
    assert (other["contextId"], other["id"] != task["id"]) == (task["contextId"], True)


async def test_messages_that_are_refused(agent: Agent) -> None:
    """CORE-SEND-002, CORE-ERR-002, CORE-MULTI-004, -006, DM-MSG-*, DM-PART-001, DM-SERIAL-004."""
    task, waits = await agent.say("hello"), await agent.say("interrupt")
    said = message("more")
    assert await agent.refusal("SendMessage", message={**said, "taskId": task["id"]}) == "UNSUPPORTED_OPERATION"
    assert await agent.refusal("SendMessage", message={**said, "taskId": "nobody"}) == "TASK_NOT_FOUND"
    wrong = {**said, "taskId": waits["id"], "contextId": "another"}
    assert await agent.refusal("SendMessage", message=wrong) == "INVALID_PARAMS"
    for broken in (
        {"parts": []},
        {"parts": [{}]},
        {"parts": [{"text": "a", "url": "https://a/b"}]},
        {"parts": [{"text": 3}]},
        {"role": "ROLE_NOBODY"},
        {"messageId": ""},
    ):
        assert await agent.refusal("SendMessage", message={**said, **broken}) == "INVALID_PARAMS", broken
    assert await agent.refusal("SendMessage") == "INVALID_PARAMS"


async def test_waiting_for_the_answer(agent: Agent) -> None:
    """CORE-EXECUTION-MODE-001, -002, CORE-MULTI-005."""
    at_once = await agent.say("slow", configuration={"returnImmediately": True})
    assert state(at_once) in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    await agent.call("CancelTask", id=at_once["id"])
    waits = await agent.say("interrupt")
    assert state(waits) == "TASK_STATE_INPUT_REQUIRED"
    done = await agent.say("yes", taskId=waits["id"])
    assert (done["id"], done["contextId"], state(done)) == (waits["id"], waits["contextId"], "TASK_STATE_COMPLETED")


async def test_the_history_of_a_task(agent: Agent) -> None:
    """CORE-HIST-001 to -006."""
    assert "history" not in await agent.say("hello", configuration={"historyLength": 0})
    waits = await agent.say("interrupt", messageId="one")
    await agent.say("yes", messageId="two", taskId=waits["id"])
    whole = (await agent.call("GetTask", id=waits["id"]))["history"]
    assert [each["messageId"] for each in whole] == ["one", waits["status"]["message"]["messageId"], "two"]
    assert [whole[0]["parts"], whole[-1]["parts"]] == [[{"text": "interrupt"}], [{"text": "yes"}]]
    for length in range(1, 5):
        assert (await agent.call("GetTask", id=waits["id"], historyLength=length))["history"] == whole[-length:]
    assert "history" not in await agent.call("GetTask", id=waits["id"], historyLength=0)
    assert await agent.refusal("GetTask", id=waits["id"], historyLength=-1) == "INVALID_PARAMS"


async def test_streams(agent: Agent) -> None:
    """CORE-STREAM-001, -003, STREAM-ORDER-001, JSONRPC-SSE-001, HTTP_JSON-SSE-001."""
    events = await agent.stream("SendStreamingMessage", message=message("hello"))
    task = events[0]["task"]
    assert state(events[-1]["statusUpdate"]) == "TASK_STATE_COMPLETED"
    assert all(each["taskId"] == task["id"] for event in events[1:] for each in event.values())
    pieces = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]
    assert [piece.get("append", False) for piece in pieces] == [False, *[True] * (len(pieces) - 1)]
    assert [piece.get("lastChunk", False) for piece in pieces] == [*[False] * (len(pieces) - 1), True]
    text = "".join(part["text"] for piece in pieces for part in piece["artifact"]["parts"])
    kept = await agent.call("GetTask", id=task["id"])
    assert [part["text"] for each in kept["artifacts"] for part in each["parts"]] == [text]


async def test_several_streams_of_one_task(agent: Agent) -> None:
    """STREAM-ORDER-002 to -004, STREAM-SUB-001 to -004."""
    task = await agent.say("slow", configuration={"returnImmediately": True})
    watching = [asyncio.create_task(agent.stream("SubscribeToTask", id=task["id"])) for _ in range(3)]
    await asyncio.sleep(0)
    watching[0].cancel()
    while state(await agent.call("GetTask", id=task["id"])) == "TASK_STATE_SUBMITTED":
        await asyncio.sleep(0.01)
    await agent.call("CancelTask", id=task["id"])
    first, second = await asyncio.gather(*watching[1:])
    for events in (first, second):
        assert events[0]["task"]["id"] == task["id"]
        assert [name for event in events[1:] for name in event if name == "task"] == []
        assert state(events[-1]["statusUpdate"]) == "TASK_STATE_CANCELED"
    assert await agent.refusal("SubscribeToTask", id=task["id"]) == "UNSUPPORTED_OPERATION"
    assert await agent.refusal("SubscribeToTask", id="nobody") == "TASK_NOT_FOUND"


async def test_canceling(agent: Agent) -> None:
    """CORE-CANCEL-001 to -003, CORE-GET-002."""
    waits = await agent.say("interrupt")
    canceled = await agent.call("CancelTask", id=waits["id"])
    assert (canceled["id"], state(canceled)) == (waits["id"], "TASK_STATE_CANCELED")
    assert await agent.call("GetTask", id=waits["id"]) == canceled
    assert await agent.refusal("CancelTask", id=waits["id"]) == "TASK_NOT_CANCELABLE"
    for method in ("GetTask", "CancelTask"):
        assert await agent.refusal(method, id="nobody") == "TASK_NOT_FOUND"


async def test_lists(agent: Agent) -> None:
    """CORE-LIST-002 to -005."""
    tasks = [await agent.say("hello") for _ in range(3)]
    waits = await agent.say("interrupt", contextId="apart")
    whole = await agent.call("ListTasks")
    assert set(whole) == {"tasks", "nextPageToken", "pageSize", "totalSize"}
    assert (whole["nextPageToken"], whole["pageSize"], whole["totalSize"]) == ("", 50, 4)
    assert [each["id"] for each in whole["tasks"]] == [waits["id"], *(each["id"] for each in reversed(tasks))]
    assert not any("artifacts" in each for each in whole["tasks"])
    seen, token = [], ""
    while True:
        page = await agent.call("ListTasks", pageSize=3, **({"pageToken": token} if token else {}))
        seen += [each["id"] for each in page["tasks"]]
        if not (token := page["nextPageToken"]):
            break
    assert seen == [each["id"] for each in whole["tasks"]]
    shown = await agent.call("ListTasks", includeArtifacts=True, status="TASK_STATE_COMPLETED", historyLength=0)
    assert shown["tasks"] == [{k: v for k, v in each.items() if k != "history"} for each in reversed(tasks)]
    assert [each["id"] for each in (await agent.call("ListTasks", contextId="apart"))["tasks"]] == [waits["id"]]
    later = await agent.call("ListTasks", statusTimestampAfter=tasks[-1]["status"]["timestamp"])
    assert waits["id"] in [each["id"] for each in later["tasks"]]
    for wrong in (
        {"pageSize": 101},
        {"pageSize": 0},
        {"pageToken": "never"},
        {"status": "SLEEPING"},
        {"statusTimestampAfter": "noon"},
        {"historyLength": -1},
    ):
        assert await agent.refusal("ListTasks", **wrong) == "INVALID_PARAMS", wrong


async def test_push_notification_configs(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """PUSH-CREATE-001, -002, PUSH-GET-001, -002, PUSH-LIST-001, PUSH-DEL-001, -002."""
    monkeypatch.setattr(push, "PAUSE", 0.01)  # nobody is there
    waits = await agent.say("interrupt")
    config = {"id": "c", "url": "https://hooks.example/in", "token": "t"}
    made = await agent.call("CreateTaskPushNotificationConfig", taskId=waits["id"], **config)
    assert made == {"taskId": waits["id"], **config}
    await agent.say("yes", taskId=waits["id"])
    named = {"taskId": waits["id"], "id": "c"}
    assert await agent.call("GetTaskPushNotificationConfig", **named) == made
    listed = await agent.call("ListTaskPushNotificationConfigs", taskId=waits["id"])
    assert listed == {"configs": [made], "nextPageToken": ""}
    for _ in range(2):
        await agent.call("DeleteTaskPushNotificationConfig", **named)
    assert await agent.refusal("GetTaskPushNotificationConfig", **named) == "TASK_NOT_FOUND"
    assert (await agent.call("ListTaskPushNotificationConfigs", taskId=waits["id"]))["configs"] == []


@pytest.mark.parametrize("binding", BINDINGS)
async def test_what_the_card_denies(binding: str, tmp_path: Path) -> None:
    """CORE-CAP-001, CORE-CAP-003, CARD-STRUCT-001, CARD-PROTO-*, CARD-CACHE-001, -002."""
    async with serving({**DEMO, "routes": [route(durable=True)], **stores(tmp_path)}) as base:
        agent = Agent(f"{base}/a2a", binding)
        reply = await ask("GET", f"{base}/a2a/.well-known/agent-card.json", b"", {})
        card = reply.json
        assert all(card[name] for name in ("name", "description", "version", "supportedInterfaces", "skills"))
        assert all(card[name] for name in ("capabilities", "defaultInputModes", "defaultOutputModes"))
        assert {each["protocolBinding"] for each in card["supportedInterfaces"]} == {"JSONRPC", "HTTP+JSON"}
        assert all(each["url"] == f"{base}/a2a" for each in card["supportedInterfaces"])
        assert "max-age=" in reply.headers["cache-control"]
        assert reply.headers["etag"]
        assert card["capabilities"] == {"streaming": True, "pushNotifications": False, "extendedAgentCard": False}
        task = await agent.say("hello")
        for method in PUSH:
            wanted = {"taskId": task["id"], "id": "c", "url": "https://hooks.example/in"}
            assert await agent.refusal(method, **wanted) == "PUSH_NOTIFICATION_NOT_SUPPORTED"
        wish = {"taskPushNotificationConfig": {"url": "https://hooks.example/in"}}
        said = {"message": message("hello"), "configuration": wish}
        assert await agent.refusal("SendMessage", **said) == "PUSH_NOTIFICATION_NOT_SUPPORTED"
        assert await agent.refusal("GetExtendedAgentCard") == "UNSUPPORTED_OPERATION"


async def test_versions_and_media_types(agent: Agent) -> None:
    """VER-SERVER-001 to -003, VER-CLIENT-002, CORE-SEND-003, JSONRPC-FMT-002, HTTP_JSON-STATUS-001."""
    said = {"message": message("hello")}
    for version, reason in (
        ("1.0", ""),
        ("1.0.7", ""),
        ("", "VERSION_NOT_SUPPORTED"),
        ("0.3", "VERSION_NOT_SUPPORTED"),
        ("99.0", "VERSION_NOT_SUPPORTED"),
    ):
        reply = await agent._replace(headers={**NEW, "a2a-version": version}).send("SendMessage", said)
        assert (refused(reply, agent.binding) if "error" in reply.json else "") == reason, version
    reply = await agent._replace(headers={**NEW, "content-type": "text/plain"}).send("SendMessage", said)
    assert refused(reply, agent.binding) == "CONTENT_TYPE_NOT_SUPPORTED"
    reply = await agent._replace(headers={**NEW, "content-type": "application/a2a+json"}).send("SendMessage", said)
    assert reply.status == 200
    assert "error" not in reply.json


@pytest.mark.parametrize("binding", BINDINGS)
async def test_callers_see_what_is_theirs(binding: str, tmp_path: Path) -> None:
    """AUTH-SERVER-002, AUTH-SCOPE-001 to -003, CORE-LIST-001, CARD-EXT-001, BIND-EQUIV-004."""
    options = {"push": ["hooks.example"], "extended_card": True}
    config = {**DEMO, "routes": [route(durable=True, options=options)], **stores(tmp_path), "server": KEYS}
    async with serving(config) as base:
        nobody, me, you = (
            Agent(f"{base}/a2a", binding, {**NEW, **({"authorization": f"Bearer key-of-{name}"} if name else {})})
            for name in ("", "me", "you")
        )
        mine = await me.say("interrupt", contextId="talk")
        config = {"taskId": mine["id"], "id": "c", "url": "https://hooks.example/in"}
        await me.call("CreateTaskPushNotificationConfig", **config)
        for method in ADDRESSES:
            params = {**config, "taskId": "nobody"} if method in PUSH else {"id": "nobody"}
            assert (await nobody.send(method, params)).status == 401, method
        for method in ("GetTask", "CancelTask", "SubscribeToTask"):
            foreign, unknown = [await you.send(method, {"id": each}) for each in (mine["id"], "nobody")]
            assert refused(foreign, binding) == "TASK_NOT_FOUND"
            assert foreign.body.replace(mine["id"].encode(), b"nobody") == unknown.body
        for method in PUSH:
            assert await you.refusal(method, **config) == "TASK_NOT_FOUND", method
        assert await you.refusal("SendMessage", message=message("yes", taskId=mine["id"])) == "TASK_NOT_FOUND"
        assert (await you.call("ListTasks"))["tasks"] == []
        theirs = await you.say("hello", contextId="talk")
        assert [each["id"] for each in (await you.call("ListTasks", contextId="talk"))["tasks"]] == [theirs["id"]]
        assert [each["id"] for each in (await me.call("ListTasks", contextId="talk"))["tasks"]] == [mine["id"]]
        assert state(await me.call("GetTask", id=mine["id"])) == "TASK_STATE_INPUT_REQUIRED"
        assert (await me.call("GetExtendedAgentCard"))["capabilities"]["extendedAgentCard"]
