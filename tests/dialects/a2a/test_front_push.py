"""Push notifications: the configs of a task, what its receivers get, and which URLs are never called."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bridge.engine.config import parse
from bridge.errors import ConfigError
from bridge.model import MessageStarted, PartKind, PartStarted, RunStarted, TextDelta
from bridge.model.dump import dump
from bridge.run.backends import fetch
from bridge.run.durable import RunPlan, push
from bridge.run.durable.log import to_body
from bridge.stores import open_runs
from bridge.stores.rows import write
from tests.server.harness import Exchange, ask, bound_socket, fake_backend, serving

from .front import DEMO, NEW, OLD, artifacts, call, route, rpc, say, send, states, stores, stream

CHUNK = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n'
END = b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
KEYS = {"auth": {"keys": [{"name": "me", "key": "key-of-me"}, {"name": "you", "key": "key-of-you"}]}}
ME, YOU = ({**NEW, "authorization": f"Bearer key-of-{name}"} for name in ("me", "you"))
IS_PUBLIC = fetch.is_public
CREATE, GET, LIST, DELETE = (f"{verb}TaskPushNotificationConfig" for verb in ("Create", "Get", "List", "Delete"))
LIST += "s"


class Receiver:
    """A client's server: `/` takes what it gets, the other paths answer as they are called."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.got: list[tuple[str, dict[str, str], Any]] = []
        self.answers: list[int] = []
        self.news = asyncio.Condition()

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}/hook"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, _, body in self.got]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        async with self.news:
            self.got.append((request.path, {k.lower(): v for k, v in request.headers.items()}, body))
            self.news.notify_all()
        if request.path == "/moved":
            raise web.HTTPTemporaryRedirect("/hook")
        if request.path == "/silent":
            await asyncio.Event().wait()
        return web.Response(status=self.answers.pop(0) if self.answers else 204)

    async def until(self, *last: str) -> list[dict[str, Any]]:
        """What came, when its states end with these."""
        async with asyncio.timeout(20), self.news:
            await self.news.wait_for(lambda: states(self.bodies)[-len(last) :] == list(last))
        return self.bodies


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    with bound_socket() as listening:
        found = Receiver(listening.getsockname()[1])
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", found.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        yield found
        await runner.cleanup()


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Receivers of these tests are on this machine, whose addresses are not public."""
    monkeypatch.setattr(fetch, "is_public", lambda address: address.is_loopback or IS_PUBLIC(address))
    monkeypatch.setattr(push, "PAUSE", 0.01)


def config(folder: Path, *hosts: str, **more: Any) -> dict[str, Any]:
    options = {"push": list(hosts), "versions": ["1.0", "0.3"]}
    return {**DEMO, "routes": [route(durable=True, options=options)], **stores(folder), **more}


@pytest.fixture
async def agent(tmp_path: Path, receiver: Receiver, loopback: None) -> AsyncIterator[str]:
    async with serving(config(tmp_path, f"localhost:{receiver.port}")) as base:
        yield f"{base}/a2a"


def with_push(url: str, **more: Any) -> dict[str, Any]:
    return {"taskPushNotificationConfig": {"url": url, **more}}


def violation(answer: Any) -> tuple[int, str]:
    error = answer["error"]
    return error["code"], error["data"][1]["fieldViolations"][0]["field"]


# ---------------------------------------------------------------------- what is sent


async def test_each_event_of_the_stream_is_posted_in_order(agent: str, receiver: Receiver) -> None:
    secret = {"scheme": "Bearer", "credentials": "s3cret"}
    wanted = with_push(receiver.url, token="mine", authentication=secret)
    said = await stream(agent, send("hello", method="SendStreamingMessage", configuration=wanted))
    assert await receiver.until("COMPLETED") == said
    assert len(artifacts(said)) > 2
    for path, headers, _ in receiver.got:
        assert path == "/hook"
        assert headers["x-a2a-notification-token"] == "mine"
        assert headers["authorization"] == "Bearer s3cret"
        assert headers["content-type"] == "application/json"


async def test_without_secrets_no_header_has_any(agent: str, receiver: Receiver) -> None:
    reply = await ask("POST", agent, send("hello", configuration=with_push(receiver.url)), NEW)
    assert "task" in reply.json["result"]
    await receiver.until("COMPLETED")
    assert not {"authorization", "x-a2a-notification-token", "cookie"} & receiver.got[0][1].keys()


async def test_a_question_and_its_answer_are_both_sent(agent: str, receiver: Receiver) -> None:
    reply = await ask("POST", agent, send("interrupt", configuration=with_push(receiver.url)), NEW)
    task = reply.json["result"]["task"]
    await receiver.until("INPUT_REQUIRED")
    await say(agent, "yes", taskId=task["id"], contextId=task["contextId"], messageId="m-2")
    said = await receiver.until("SUBMITTED", "WORKING", "COMPLETED")
    found = {(each.get("task") or next(iter(each.values()))).get("taskId", task["id"]) for each in said}
    assert found == {task["id"]}


async def test_a_config_gets_what_comes_after_it(tmp_path: Path, receiver: Receiver, loopback: None) -> None:
    go = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(CHUNK % b"early")
        await go.wait()
        await exchange.send(CHUNK % b"late")
        await exchange.send(END)
        await exchange.end()

    async with fake_backend() as backend:
        backend.plays(answer)
        backends = {"it": {"dialect": "openai-chat", "url": backend.url, "model": "m"}}
        async with serving(config(tmp_path, f"localhost:{receiver.port}", backends=backends)) as base:
            url = f"{base}/a2a"
            reply = await ask("POST", url, send("hi", configuration={"returnImmediately": True}), NEW)
            task = reply.json["result"]["task"]["id"]
            async with asyncio.timeout(20):
                while "artifacts" not in (await rpc(url, "GetTask", {"id": task}))["result"]:
                    await asyncio.sleep(0.02)
            assert "result" in await rpc(url, CREATE, {"taskId": task, "url": receiver.url})
            go.set()
            said = await receiver.until("COMPLETED")
    texts = [part["text"] for each in artifacts(said) for part in each["artifact"]["parts"]]
    assert texts == ["late", ""]


async def test_a_deleted_config_gets_nothing(agent: str, receiver: Receiver) -> None:
    reply = await ask("POST", agent, send("interrupt", configuration=with_push(receiver.url, id="a")), NEW)
    task = reply.json["result"]["task"]
    await receiver.until("INPUT_REQUIRED")
    number = len(receiver.got)
    both = {"taskId": task["id"], "url": f"http://localhost:{receiver.port}/other", "id": "b"}
    assert "result" in await rpc(agent, CREATE, both)
    assert (await rpc(agent, DELETE, {"taskId": task["id"], "id": "a"}))["result"] is None
    await say(agent, "yes", taskId=task["id"], messageId="m-2")
    await receiver.until("COMPLETED")
    assert {path for path, _, _ in receiver.got[number:]} == {"/other"}


async def test_a_client_of_0_3_gets_its_own_objects(agent: str, receiver: Receiver) -> None:
    message = {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "interrupt"}]}
    wanted = {"pushNotificationConfig": {"url": receiver.url, "token": "t"}, "blocking": True}
    body = call("message/send", {"message": message, "configuration": wanted})
    task = (await ask("POST", agent, body, OLD)).json["result"]["id"]
    async with asyncio.timeout(20), receiver.news:
        await receiver.news.wait_for(lambda: any(body.get("final") for body in receiver.bodies))
    assert [each["kind"] for each in receiver.bodies][:2] == ["task", "status-update"]
    assert receiver.bodies[-1]["status"]["state"] == "input-required"
    set_ = {"taskId": task, "pushNotificationConfig": {"id": "b", "url": receiver.url}}
    names = "tasks/pushNotificationConfig/"
    assert (await rpc(agent, f"{names}set", set_, OLD))["result"] == set_
    assert (await rpc(agent, f"{names}get", {"id": task, "pushNotificationConfigId": "b"}, OLD))["result"] == set_
    first = {"taskId": task, "pushNotificationConfig": {"id": task, "url": receiver.url, "token": "t"}}
    assert (await rpc(agent, f"{names}get", {"id": task}, OLD))["result"] == first
    assert (await rpc(agent, f"{names}list", {"id": task}, OLD))["result"] == [first, set_]
    gone = await rpc(agent, f"{names}delete", {"id": task, "pushNotificationConfigId": "b"}, OLD)
    assert gone["result"] is None
    assert (await rpc(agent, f"{names}list", {"id": task}, OLD))["result"] == [first]


@pytest.mark.parametrize("authentication", [{"schemes": []}, {}], ids=["no scheme", "an empty object"])
async def test_a_client_of_0_3_may_name_no_scheme(agent: str, receiver: Receiver, authentication: Any) -> None:
    """HTTP+JSON of 0.3 is ProtoJSON, in which an empty list is no field."""
    message = {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "interrupt"}]}
    task = (await ask("POST", agent, call("message/send", {"message": message}), OLD)).json["result"]["id"]
    config = {"id": "b", "url": receiver.url}
    set_ = {"taskId": task, "pushNotificationConfig": {**config, "authentication": authentication}}
    answer = await rpc(agent, "tasks/pushNotificationConfig/set", set_, OLD)
    assert answer["result"] == {"taskId": task, "pushNotificationConfig": config}


async def test_the_answer_to_a_question_comes_behind_the_question(
    agent: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver that is behind gets the events of the next run when it has those before."""
    monkeypatch.setattr(push, "PAUSE", 0.5)
    receiver.answers = [503]
    reply = await ask("POST", agent, send("interrupt", configuration=with_push(receiver.url)), NEW)
    await say(agent, "yes", taskId=reply.json["result"]["task"]["id"], messageId="m-2")
    said = await receiver.until("COMPLETED")
    both = ["SUBMITTED", "WORKING", "INPUT_REQUIRED", "SUBMITTED", "WORKING", "COMPLETED"]
    assert states(said) == ["SUBMITTED", *both]


async def test_the_end_of_a_run_whose_process_died(tmp_path: Path, receiver: Receiver, loopback: None) -> None:
    """Whoever ends it sends the end; what was there before was sent, or not, by the process that died."""
    settings = config(tmp_path, f"localhost:{receiver.port}")
    async with serving(settings) as base:
        agent = f"{base}/a2a"
        reply = await ask("POST", agent, send("interrupt", configuration=with_push(receiver.url)), NEW)
        task = reply.json["result"]["task"]
        await receiver.until("INPUT_REQUIRED")
    receiver.got.clear()
    store = open_runs(settings["stores"]["runs"])
    first = await store.latest("", "/a2a#tasks", task["id"])
    assert first is not None
    key = first.key._replace(run_id="second")
    plan = replace(RunPlan.load(await store.plan(first.key) or ""), run_id="second", previous=task["id"])
    plan.request.extras["a2a"]["notes"]["task"] = task["id"]
    await store.create(key, "second", plan.dump(), previous=plan.previous)
    claimed = await store.claim("dead", 0.01, wait=1)
    assert claimed is not None
    head = [RunStarted("second", plan.request.thread_id), MessageStarted("m"), PartStarted("p", "m", PartKind.TEXT)]
    events = [*head, TextDelta("p", "never told")]
    await store.append(key, "dead", 0, [to_body(0, [write(dump(event)) for event in events], [])])
    await store.close()
    async with serving(settings):
        said = await receiver.until("FAILED")
    assert states(said) == ["FAILED"]
    assert "never told" not in json.dumps(said)


# ---------------------------------------------------------------------- receivers that fail


async def test_a_failing_receiver_is_tried_again(agent: str, receiver: Receiver) -> None:
    receiver.answers = [503, 429, 500]
    said = await stream(agent, send("hello", method="SendStreamingMessage", configuration=with_push(receiver.url)))
    await receiver.until("COMPLETED")
    assert receiver.bodies == [said[0]] * 3 + said


@pytest.mark.parametrize(
    ("path", "answers", "count"), [("/hook", [400], 1), ("/hook", [500] * 9, 4), ("/moved", [], 1)]
)
async def test_a_receiver_that_cannot_be_reached_gets_no_more(
    path: str, answers: list[int], count: int, agent: str, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """Redirects are not followed: nothing comes to `/hook` from `/moved`."""
    receiver.answers = answers
    bad = f"http://localhost:{receiver.port}{path}?key=hidden"
    wanted = with_push(bad, id="bad", token="hidden", authentication={"scheme": "Bearer", "credentials": "hidden"})
    reply = await ask("POST", agent, send("hello", configuration=wanted), NEW)
    assert reply.json["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    async with asyncio.timeout(20):
        while "push notifications to localhost stopped" not in caplog.text:
            await asyncio.sleep(0.02)
    assert [path for path, _, _ in receiver.got] == [path] * count
    assert "hidden" not in caplog.text


async def test_a_silent_receiver_holds_nobody_up(agent: str, receiver: Receiver) -> None:
    silent = {"url": f"http://localhost:{receiver.port}/silent", "id": "silent"}
    reply = await ask("POST", agent, send("interrupt", configuration={"taskPushNotificationConfig": silent}), NEW)
    task = reply.json["result"]["task"]["id"]
    assert "result" in await rpc(agent, CREATE, {"taskId": task, "url": receiver.url, "id": "good"})
    answered = await say(agent, "yes", taskId=task, messageId="m-2")
    assert answered["status"]["state"] == "TASK_STATE_COMPLETED"
    async with asyncio.timeout(20), receiver.news:
        await receiver.news.wait_for(lambda: "COMPLETED" in states(receiver.bodies))


# ---------------------------------------------------------------------- which URLs


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/",
        "http://localhost:1/",
        "http://elsewhere.example/",
        "http://name@hooks.example/",
        "ftp://hooks.example/",
        "hooks.example",
        "http://hooks.example:81/",
        "http://10.0.0.1/",
        "",
        "http://hooks.example/" + "x" * 2048,
        "http://xn--a.hooks.example/",
        "http://hooks.example/\r\nx: y",
        " http://hooks.example/",
    ],
)
async def test_other_urls_are_refused(url: str, tmp_path: Path) -> None:
    async with serving(config(tmp_path, "hooks.example", "*.hooks.example", "10.0.0.1")) as base:
        agent = f"{base}/a2a"
        reply = await ask("POST", agent, send("hello", configuration=with_push(url)), NEW)
        assert violation(reply.json) == (-32602, "params.configuration.taskPushNotificationConfig.url")
        assert (await rpc(agent, "ListTasks"))["result"]["totalSize"] == 0
        task = await say(agent, "hello")
        assert violation(await rpc(agent, CREATE, {"taskId": task["id"], "url": url})) == (-32602, "params.url")


async def test_a_name_of_a_private_address_is_never_called(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """The host is allowed, but what its name leads to is not public."""
    async with serving(config(tmp_path, f"localhost:{receiver.port}")) as base:
        reply = await ask("POST", f"{base}/a2a", send("hello", configuration=with_push(receiver.url)), NEW)
        assert reply.json["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        async with asyncio.timeout(20):
            while "push notifications to localhost stopped: its address is not public" not in caplog.text:
                await asyncio.sleep(0.02)
    assert receiver.got == []


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"token": "a\r\nx: y"}, "token"),
        ({"token": "x" * 4097}, "token"),
        ({"id": "x" * 257}, "id"),
        ({"authentication": {"scheme": "Bea rer"}}, "authentication.scheme"),
        ({"authentication": {"scheme": "Bearer", "credentials": "k\n"}}, "authentication.credentials"),
        ({"authentication": {"credentials": "secret"}}, "authentication.scheme"),
        ({"authentication": []}, "authentication"),
    ],
)
async def test_what_no_header_can_say_is_refused(fields: dict[str, Any], place: str, agent: str) -> None:
    answer = await rpc(agent, CREATE, {"taskId": "t", "url": "http://localhost/", **fields})
    assert violation(answer) == (-32602, f"params.{place}")
    assert "secret" not in json.dumps(answer)


# ---------------------------------------------------------------------- configs


async def test_configs_over_json_rpc(agent: str, receiver: Receiver) -> None:
    task = (await say(agent, "hello"))["id"]
    secret = {"scheme": "Basic", "credentials": "s3cret"}
    first = {"taskId": task, "id": task, "url": receiver.url, "token": "t"}
    made = await rpc(agent, CREATE, {"taskId": task, "url": receiver.url, "token": "t", "authentication": secret})
    assert made["result"] == {**first, "authentication": {"scheme": "Basic"}}
    assert (await rpc(agent, CREATE, first))["result"] == first
    second = {"taskId": task, "id": "b", "url": receiver.url}
    assert (await rpc(agent, CREATE, second))["result"] == second
    assert (await rpc(agent, GET, {"taskId": task, "id": "b"}))["result"] == second
    assert (await rpc(agent, LIST, {"taskId": task}))["result"] == {"configs": [first, second], "nextPageToken": ""}
    for _ in range(2):
        assert (await rpc(agent, DELETE, {"taskId": task, "id": "b"}))["result"] is None
    assert (await rpc(agent, GET, {"taskId": task, "id": "b"}))["error"]["code"] == -32001
    for method in (CREATE, GET, LIST, DELETE):
        unknown = {"taskId": "nobody", "id": "b", "url": receiver.url}
        assert (await rpc(agent, method, unknown))["error"]["code"] == -32001


async def test_configs_over_http(agent: str, receiver: Receiver) -> None:
    task = (await say(agent, "hello"))["id"]
    base = f"{agent}/tasks/{task}/pushNotificationConfigs"
    wire = {"taskId": task, "id": "a", "url": receiver.url}
    reply = await ask("POST", base, json.dumps({"id": "a", "url": receiver.url}).encode(), NEW)
    assert (reply.status, reply.json) == (200, wire)
    assert (await ask("GET", f"{base}/a", b"", NEW)).json == wire
    assert (await ask("GET", base, b"", NEW)).json == {"configs": [wire], "nextPageToken": ""}
    for _ in range(2):
        reply = await ask("DELETE", f"{base}/a", b"", NEW)
        assert (reply.status, reply.json) == (200, {})
    reply = await ask("GET", f"{base}/a", b"", NEW)
    assert (reply.status, reply.json["error"]["details"][0]["reason"]) == (404, "TASK_NOT_FOUND")
    reply = await ask("POST", base, b'{"url": "http://elsewhere.example/"}', NEW)
    assert (reply.status, reply.json["error"]["details"][1]["fieldViolations"][0]["field"]) == (400, "url")


async def test_configs_of_another_owner_are_not_found(tmp_path: Path, receiver: Receiver) -> None:
    settings = config(tmp_path, f"localhost:{receiver.port}", server=KEYS)
    async with serving(settings) as base:
        agent = f"{base}/a2a"
        task = (await say(agent, "hello", headers=ME))["id"]
        wanted = {"taskId": task, "id": "a", "url": receiver.url}
        assert "result" in await rpc(agent, CREATE, wanted, ME)
        for method in (CREATE, GET, LIST, DELETE):
            assert (await rpc(agent, method, wanted, YOU))["error"]["code"] == -32001
        assert (await rpc(agent, GET, wanted, ME))["result"] == wanted


async def test_the_number_of_configs_is_bounded(agent: str, receiver: Receiver) -> None:
    task = (await say(agent, "hello"))["id"]
    for number in range(10):
        assert "result" in await rpc(agent, CREATE, {"taskId": task, "id": str(number), "url": receiver.url})
    answer = await rpc(agent, CREATE, {"taskId": task, "id": "more", "url": receiver.url})
    assert violation(answer) == (-32602, "params.url")
    assert "limit" in answer["error"]["message"]


# ---------------------------------------------------------------------- the option


async def test_the_card_says_so(agent: str) -> None:
    card = (await ask("GET", f"{agent}/.well-known/agent-card.json", b"", {})).json
    assert card["capabilities"]["pushNotifications"] is True


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"routes": [route(options={"push": ["a.example"]})]}, "push notifications need a route with durable: true"),
        ({"stores": {"history": "off"}}, "push notifications need stores.history"),
        ({"routes": [route(durable=True, options={"push": []})]}, "push"),
        ({"routes": [route(durable=True, options={"push": True})]}, "push"),
    ],
)
def test_configurations_that_cannot_push(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        parse({**config(tmp_path, "a.example"), **change})
