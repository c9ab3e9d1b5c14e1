"""What stands beside `/process`, through real sockets: stopping, one run in a session, coming back, tasks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.dialects.agentscope.frontends import WebFrontend, python_client
from tests.server.harness import Exchange, FakeBackend, Reply, ask, fake_backend, post, serving
from tests.stores.run_engines import RunEngine, redis_server, run_engine  # noqa: F401

CHUNK = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n'
END = b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
STOPPED = {"status": "success", "message": "Interrupt signal broadcasted."}
FORMS = ("agentscope", "agentscope-java")
forms = pytest.mark.parametrize("form", FORMS)
kinds = pytest.mark.parametrize("durable", [False, True], ids=["plain", "durable"])


def config(folder: Path, backend: FakeBackend, *, form: str = "agentscope", durable: bool = False, **more: Any) -> Any:
    server = more.pop("server", {})
    route = {"dialect": form, "path": "/a", "backend": "it", "durable": durable, "options": more}
    return {
        "backends": {"it": {"dialect": "openai-chat", "url": backend.url, "model": "m"}},
        "routes": [route],
        "stores": {"runs": f"sqlite:///{folder}/runs.db"},
        "server": server,
    }


def said(
    text: str = "Hi", session: str | None = "s", user: str | None = "u", form: str = "agentscope", **more: Any
) -> Any:
    java = form == "agentscope-java"
    kind, session_name, user_name = ("MESSAGE", "sessionId", "userId") if java else ("message", "session_id", "user_id")
    body = {"input": [{"role": "user", "type": kind, "content": [{"type": "text", "text": text}]}], **more}
    return {**body, **{k: v for k, v in ((session_name, session), (user_name, user)) if v is not None}}


def named(form: str, session: str = "s", user: str | None = "u") -> dict[str, Any]:
    return {**said("", session, user, form), "input": []}


class Script:
    """A model that says `one `, and the rest when it is told to; each request of it is counted."""

    def __init__(self, backend: FakeBackend, *, silent: bool = False) -> None:
        self.go_on, self.asked, self.left = asyncio.Event(), asyncio.Semaphore(0), asyncio.Semaphore(0)
        self._silent = silent
        backend.plays(self)

    async def __call__(self, exchange: Exchange) -> None:
        self.asked.release()
        await exchange.head()
        if not self._silent:
            await exchange.send(CHUNK % b"one ")
        leaving = asyncio.create_task(exchange.left())
        going = asyncio.create_task(self.go_on.wait())
        await asyncio.wait({leaving, going}, return_when=asyncio.FIRST_COMPLETED)
        going.cancel()
        if leaving.done():
            self.left.release()
            return
        leaving.cancel()
        await exchange.send(CHUNK % b"two")
        await exchange.send(END)
        await exchange.end()


@pytest.fixture
async def backend() -> AsyncIterator[FakeBackend]:
    async with fake_backend() as backend:
        yield backend


class Reading:
    """A client that reads an answer while the test goes on."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.body = b""
        self._response = response

    async def until(self, word: bytes) -> None:
        while word not in self.body:
            piece = await self._response.content.readany()
            assert piece, self.body
            self.body += piece

    async def whole(self) -> bytes:
        async with asyncio.timeout(10):
            self.body += await self._response.read()
        return self.body


@asynccontextmanager
async def reading(url: str, body: Any, **headers: str) -> AsyncIterator[Reading]:
    async with aiohttp.ClientSession() as http, http.post(url, json=body, headers=headers) as response:
        yield Reading(response)


def without_comments(body: bytes) -> bytes:
    return b"".join(block + b"\n\n" for block in body.split(b"\n\n") if block and not block.startswith(b":"))


def events(body: bytes) -> list[dict[str, Any]]:
    lines = body.decode().split("\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


def text_in(event: dict[str, Any]) -> str:
    return "".join(c["text"] for m in event["output"] or () for c in m["content"])


def check(body: bytes, form: str, status: str, text: str) -> dict[str, Any]:
    """The stream ends once, as `status`, with all that was said; both known clients see it so."""
    told = events(body)
    numbers = [e["sequenceNumber" if form == "agentscope-java" else "sequence_number"] for e in told]
    assert numbers == list(range(len(told)))
    last = told[-1]
    assert [e["status"] for e in told if e["object"] == "response"] == ["created", "in_progress", status]
    assert (last["object"], text_in(last)) == ("response", text)
    if form == "agentscope":
        frontend = WebFrontend().read(body)
        assert frontend.errors == []
        assert [value for _, value in frontend.shown()] == ([text] if text else [])
        assert frontend.generating is (status == "canceled")
        assert python_client(body)[-1].status == status
    return last


# ---------------------------------------------------------------------- stop


@forms
@kinds
async def test_stop_ends_the_run_and_its_reader_has_what_was_said(
    backend: FakeBackend, tmp_path: Path, form: str, durable: bool
) -> None:
    script = Script(backend)
    async with (
        serving(config(tmp_path, backend, form=form, durable=durable)) as url,
        reading(f"{url}/a/process", said(form=form)) as client,
    ):
        await client.until(b"one ")
        stopped = await post(f"{url}/a/stop", named(form))
        assert (stopped.status, stopped.json) == (200, STOPPED)
        last = check(await client.whole(), form, "canceled", "one ")
        assert last["output"][0]["status"] == "canceled"
        assert last["error"] is None
        await asyncio.wait_for(script.left.acquire(), 5)
        again = await post(f"{url}/a/stop", named(form))
        assert again.json == STOPPED, "as when nothing was running"
        script.go_on.set()
        check((await post(f"{url}/a/process", said(form=form))).body, form, "completed", "one two")


@kinds
async def test_stop_before_the_model_said_anything(backend: FakeBackend, tmp_path: Path, durable: bool) -> None:
    script = Script(backend, silent=True)
    async with (
        serving(config(tmp_path, backend, durable=durable)) as url,
        reading(f"{url}/a/process", said()) as client,
    ):
        await asyncio.wait_for(script.asked.acquire(), 5)
        await post(f"{url}/a/stop", named("agentscope"))
        check(await client.whole(), "agentscope", "canceled", "")


@kinds
async def test_stop_by_the_other_spelling_says_whether_something_ran(
    backend: FakeBackend, tmp_path: Path, durable: bool
) -> None:
    Script(backend)
    async with (
        serving(config(tmp_path, backend, durable=durable)) as url,
        reading(f"{url}/a/process", said(user=None)) as client,
    ):
        await client.until(b"one ")
        stop = f"{url}/a/process/stop?chat_id=s"
        assert (await ask("POST", f"{stop}x")).json == {"stopped": False}
        assert (await ask("POST", stop)).json == {"stopped": True}
        check(await client.whole(), "agentscope", "canceled", "one ")
        assert (await ask("POST", stop)).json == {"stopped": False}


@kinds
async def test_stop_of_somebody_elses_session_is_harmless(backend: FakeBackend, tmp_path: Path, durable: bool) -> None:
    """The pair is taken as it was sent, and below it who comes with which key."""
    script = Script(backend)
    keys = [{"name": name, "key": f"{name}-key"} for name in ("ann", "bob")]
    async with (
        serving(config(tmp_path, backend, durable=durable, server={"auth": {"keys": keys}})) as url,
        reading(f"{url}/a/process", said(), authorization="Bearer ann-key") as client,
    ):
        await client.until(b"one ")
        for key, body in (
            ("bob", said()),
            ("ann", said(user="v")),
            ("ann", said(user=None)),
            ("ann", said(session="t")),
        ):
            reply = await post(f"{url}/a/stop", body, authorization=f"Bearer {key}-key")
            assert reply.json == STOPPED
        assert (await post(f"{url}/a/stop", said())).status == 401
        script.go_on.set()
        check(await client.whole(), "agentscope", "completed", "one two")


async def test_stop_needs_a_session(backend: FakeBackend, tmp_path: Path) -> None:
    async with serving(config(tmp_path, backend)) as url:
        reply = await post(f"{url}/a/stop", {"user_id": "u"})
        assert (reply.status, reply.json["detail"][0]["loc"]) == (422, ["body", "session_id"])
        reply = await post(f"{url}/a/stop", b"{")
        assert reply.status == 422
        reply = await post(f"{url}/a/stop", {"session_id": 3})
        assert reply.json["detail"][0]["msg"] == "session_id: expected a string, got 3."


async def test_stop_of_a_run_that_waits_for_its_turn(backend: FakeBackend, tmp_path: Path) -> None:
    """It has not begun: the model is not asked, and the client is told all the same."""
    Script(backend)
    server = {"limits": {"concurrent": 1, "queue": 5}}
    async with (
        serving(config(tmp_path, backend, server=server)) as url,
        reading(f"{url}/a/process", said()) as first,
    ):
        await first.until(b"one ")
        waiting = asyncio.create_task(post(f"{url}/a/process", said(session="t")))
        while not (await ask("POST", f"{url}/a/process/stop?chat_id=t&user_id=u")).json["stopped"]:
            await asyncio.sleep(0)
        check((await waiting).body, "agentscope", "canceled", "")
        assert len(backend.seen) == 1


async def test_stop_of_an_answer_in_one_piece(backend: FakeBackend, tmp_path: Path) -> None:
    script = Script(backend)
    async with serving(config(tmp_path, backend, honour_stream=True)) as url:
        waiting = asyncio.create_task(post(f"{url}/a/process", said(stream=False)))
        await asyncio.wait_for(script.asked.acquire(), 5)
        await post(f"{url}/a/stop", named("agentscope"))
        reply = await waiting
        assert (reply.status, reply.json["object"], reply.json["status"]) == (200, "response", "canceled")


@kinds
async def test_a_stopped_answer_can_be_a_failed_one(backend: FakeBackend, tmp_path: Path, durable: bool) -> None:
    Script(backend)
    async with (
        serving(config(tmp_path, backend, durable=durable, canceled="failed")) as url,
        reading(f"{url}/a/process", said()) as client,
    ):
        await client.until(b"one ")
        await post(f"{url}/a/stop", named("agentscope"))
        assert check(await client.whole(), "agentscope", "failed", "one ")["error"]["code"] == "CANCELED"


# ---------------------------------------------------------------------- one run in a session


@forms
@kinds
async def test_a_session_that_runs_is_busy(backend: FakeBackend, tmp_path: Path, form: str, durable: bool) -> None:
    script = Script(backend)
    async with (
        serving(config(tmp_path, backend, form=form, durable=durable)) as url,
        reading(f"{url}/a/process", said(form=form)) as client,
    ):
        await client.until(b"one ")
        busy = await post(f"{url}/a/process", said("again", form=form))
        (detail,) = busy.json["detail"]
        assert (busy.status, detail["type"]) == (409, "conflict")
        assert detail["msg"] == "Task u:s is already in RUNNING state."
        script.go_on.set()
        others = [said(form=form, user="v"), said(form=form, user=None), said(form=form, session="t")]
        for other in others:
            check((await post(f"{url}/a/process", other)).body, form, "completed", "one two")
        check(await client.whole(), form, "completed", "one two")
        check((await post(f"{url}/a/process", said("again", form=form))).body, form, "completed", "one two")
        assert len(backend.seen) == 5, "what was refused did not reach the model"


@kinds
async def test_anonymous_requests_do_not_collide(backend: FakeBackend, tmp_path: Path, durable: bool) -> None:
    """The real server takes all of them for one session."""
    script = Script(backend)
    body = said(session=None, user=None)
    async with (
        serving(config(tmp_path, backend, durable=durable)) as url,
        reading(f"{url}/a/process", body) as one,
        reading(f"{url}/a/process", body) as two,
    ):
        await one.until(b"one ")
        await two.until(b"one ")
        session = events(one.body)[0]["session_id"]
        await post(f"{url}/a/stop", {"session_id": session})
        check(await one.whole(), "agentscope", "canceled", "one ")
        script.go_on.set()
        check(await two.whole(), "agentscope", "completed", "one two")


@forms
@kinds
async def test_supersede(backend: FakeBackend, tmp_path: Path, form: str, durable: bool) -> None:
    """The former reader asked for nothing: he is told that it failed, and shows no answer that never ends."""
    script = Script(backend)
    async with (
        serving(config(tmp_path, backend, form=form, durable=durable, supersede=True)) as url,
        reading(f"{url}/a/process", said(form=form)) as former,
    ):
        await former.until(b"one ")
        later = asyncio.create_task(post(f"{url}/a/process", said("again", form=form)))
        last = check(await former.whole(), form, "failed", "one ")
        assert last["error"]["code"] == "CANCELED"
        assert last["output"][0]["status"] == ("failed" if form == "agentscope-java" else "incomplete")
        await asyncio.wait_for(script.left.acquire(), 5)
        script.go_on.set()
        check((await later).body, form, "completed", "one two")


@kinds
async def test_many_supersede_each_other(backend: FakeBackend, tmp_path: Path, durable: bool) -> None:
    """However they fall, each is answered, one at the most to its end, and none is left running."""
    script = Script(backend)
    async with (
        serving(config(tmp_path, backend, durable=durable, supersede=True)) as url,
        reading(f"{url}/a/process", said()) as first,
    ):
        await first.until(b"one ")
        later = [asyncio.create_task(post(f"{url}/a/process", said(f"again {n}"))) for n in range(4)]
        await first.whole()
        done, waiting = set[asyncio.Task[Reply]](), set(later)
        while len(waiting) > 1:
            some, waiting = await asyncio.wait(waiting, timeout=30, return_when=asyncio.FIRST_COMPLETED)
            assert some
            done |= some
        script.go_on.set()
        done |= (await asyncio.wait(waiting, timeout=30))[0]
        ends = sorted(events(task.result().body)[-1]["status"] for task in done)
        assert ends == ["completed", "failed", "failed", "failed"]


async def test_a_client_that_leaves_makes_room(backend: FakeBackend, tmp_path: Path) -> None:
    script = Script(backend)
    async with serving(config(tmp_path, backend)) as url:
        async with reading(f"{url}/a/process", said()) as client:
            await client.until(b"one ")
        await asyncio.wait_for(script.left.acquire(), 5)
        script.go_on.set()
        while (reply := await post(f"{url}/a/process", said())).status == 409:
            await asyncio.sleep(0)
        check(reply.body, "agentscope", "completed", "one two")


# ---------------------------------------------------------------------- coming back


def back(form: str = "agentscope", **more: Any) -> dict[str, Any]:
    body = {**named(form), "reconnect": True, "channel": "console", **more}
    del body["input"]
    return body


@forms
async def test_coming_back_after_each_frame(backend: FakeBackend, tmp_path: Path, form: str) -> None:
    """From the beginning, or behind the last frame he has: the bytes of one who never left."""
    script = Script(backend)
    async with (
        serving(config(tmp_path, backend, form=form, durable=True)) as url,
        AsyncExitStack() as open_ones,
    ):
        first = await open_ones.enter_async_context(reading(f"{url}/a/process", said(form=form)))
        await first.until(b"one ")
        frames = first.body.removesuffix(b"\n\n").split(b"\n\n")
        ids = [
            line.removeprefix(b"id: ").decode() for f in frames for line in f.split(b"\n") if line.startswith(b"id: ")
        ]
        assert len(ids) == len(frames) >= 4
        others = []
        for last in ("", *ids):
            headers = {"Last-Event-ID": last} if last else {}
            others.append(await open_ones.enter_async_context(reading(f"{url}/a/process", back(form), **headers)))
        script.go_on.set()
        whole = without_comments(await first.whole())
        check(whole, form, "completed", "one two")
        for place, other in enumerate(others):
            rest = b"\n\n".join(whole.split(b"\n\n")[place:])
            assert without_comments(await other.whole()) == rest
        assert len(backend.seen) == 1


async def test_a_run_goes_on_and_is_come_back_to(backend: FakeBackend, tmp_path: Path) -> None:
    script = Script(backend)
    async with serving(config(tmp_path, backend, durable=True)) as url:
        async with reading(f"{url}/a/process", said()) as client:
            await client.until(b"one ")
        async with reading(f"{url}/a/process", back()) as again:
            await again.until(b"one ")
            script.go_on.set()
            check(await again.whole(), "agentscope", "completed", "one two")
        empty = await post(f"{url}/a/process", back())
        assert (empty.status, empty.body) == (200, b"")
        assert empty.headers["content-type"] == "text/event-stream; charset=utf-8"


@kinds
async def test_nothing_to_come_back_to(backend: FakeBackend, tmp_path: Path, durable: bool) -> None:
    script = Script(backend)
    async with (
        serving(config(tmp_path, backend, durable=durable)) as url,
        reading(f"{url}/a/process", said(user="v")) as client,
    ):
        await client.until(b"one ")
        reply = await post(f"{url}/a/process", back())
        assert (reply.status, reply.body) == (200, b""), "it is another user's"
        assert (await post(f"{url}/a/process", {"reconnect": True})).status == 422
        script.go_on.set()
        ordinary = await post(f"{url}/a/process", said('the word "reconnect"', reconnect=False))
        check(ordinary.body, "agentscope", "completed", "one two")


# ---------------------------------------------------------------------- two processes


async def test_all_of_it_across_processes(backend: FakeBackend, tmp_path: Path, run_engine: RunEngine) -> None:  # noqa: F811
    script = Script(backend)

    def it() -> Any:
        return {**config(tmp_path, backend, durable=True), "stores": {"runs": run_engine.url}}

    async with serving(it()) as one, serving(it()) as two, reading(f"{one}/a/process", said()) as client:
        await client.until(b"one ")
        assert (await post(f"{two}/a/process", said("again"))).status == 409
        async with reading(f"{two}/a/process", back()) as other:
            await other.until(b"one ")
            assert (await ask("POST", f"{two}/a/stop?chat_id=s&user_id=u")).json == {"stopped": True}
            check(await client.whole(), "agentscope", "canceled", "one ")
            assert await other.whole() == client.body
        await asyncio.wait_for(script.left.acquire(), 5)


async def test_supersede_across_processes(backend: FakeBackend, tmp_path: Path, run_engine: RunEngine) -> None:  # noqa: F811
    script = Script(backend)

    def it() -> Any:
        return {**config(tmp_path, backend, durable=True, supersede=True), "stores": {"runs": run_engine.url}}

    async with serving(it()) as one, serving(it()) as two, reading(f"{one}/a/process", said()) as client:
        await client.until(b"one ")
        later = asyncio.create_task(post(f"{two}/a/process", said("again")))
        assert check(await client.whole(), "agentscope", "failed", "one ")["error"]["code"] == "CANCELED"
        script.go_on.set()
        check((await later).body, "agentscope", "completed", "one two")


# ---------------------------------------------------------------------- tasks


async def finished(url: str, task_id: str) -> dict[str, Any]:
    async with asyncio.timeout(10):
        while (state := (await ask("GET", f"{url}/a/process/task/{task_id}")).json)["status"] in ("pending", "running"):
            assert state["result"] is None
            await asyncio.sleep(0.01)
    return dict(state)


@forms
async def test_a_task(backend: FakeBackend, tmp_path: Path, form: str) -> None:
    script = Script(backend)

    def it() -> Any:
        return config(tmp_path, backend, form=form, durable=True)

    async with serving(it()) as one, serving(it()) as two:
        submitted = await post(f"{one}/a/process/task", said(form=form))
        task_id = submitted.json["task_id"]
        assert (submitted.status, submitted.json) == (
            200,
            {
                "task_id": task_id,
                "status": "submitted",
                "queue": "stream_query",
                "message": "Stream query task submitted successfully",
            },
        )
        await asyncio.wait_for(script.asked.acquire(), 5)
        running = (await ask("GET", f"{two}/a/process/task/{task_id}")).json
        assert (running["status"], running["result"]) == ("running", None)
        assert isinstance(running["started_at"], float)
        script.go_on.set()
        state = await finished(two, task_id)
        assert set(state) == {"status", "result"}
        result = state["result"]
        assert (state["status"], result["status"], text_in(result)) == ("finished", "completed", "one two")
        assert result["sessionId" if form == "agentscope-java" else "session_id"] == "s"
        streamed = events((await post(f"{one}/a/process", said(form=form))).body)[-1]
        number = "sequenceNumber" if form == "agentscope-java" else "sequence_number"
        assert (list(result), result[number]) == (list(streamed), streamed[number]), "the last event of the stream"


async def test_a_task_that_fails(backend: FakeBackend, tmp_path: Path) -> None:
    """The agent's failure is its result, as on the real server; only what ended it from outside is an error."""
    backend.answers(500, b'{"error":{"message":"the model fell over"}}')
    async with serving(config(tmp_path, backend, durable=True)) as url:
        task_id = (await post(f"{url}/a/process/task", said())).json["task_id"]
        state = await finished(url, task_id)
        assert (state["status"], state["result"]["status"]) == ("finished", "failed")
        assert "the model fell over" in state["result"]["error"]["message"]


async def test_a_task_that_takes_too_long(backend: FakeBackend, tmp_path: Path) -> None:
    script = Script(backend)
    async with serving(config(tmp_path, backend, durable=True)) as url:
        task_id = (await post(f"{url}/a/process/task", said(timeout="0.2"))).json["task_id"]
        assert await finished(url, task_id) == {"status": "error", "result": "Task exceeded timeout of 0.2s"}
        await asyncio.wait_for(script.left.acquire(), 5)
        assert "timeout" not in backend.seen[0].json
        for wrong in (0, -1, "soon", True, "inf"):
            reply = await post(f"{url}/a/process/task", said(timeout=wrong))
            assert (reply.status, reply.json["detail"][0]["loc"]) == (422, ["body", "timeout"]), wrong


async def test_tasks_do_not_take_the_place_of_a_run(backend: FakeBackend, tmp_path: Path) -> None:
    script = Script(backend)
    async with (
        serving(config(tmp_path, backend, durable=True)) as url,
        reading(f"{url}/a/process", said()) as client,
    ):
        await client.until(b"one ")
        tasks = [(await post(f"{url}/a/process/task", said())).json["task_id"] for _ in range(2)]
        assert len(set(tasks)) == 2
        assert (await ask("POST", f"{url}/a/stop?chat_id={tasks[0]}")).json == {"stopped": False}
        script.go_on.set()
        for task_id in tasks:
            assert (await finished(url, task_id))["status"] == "finished"
        check(await client.whole(), "agentscope", "completed", "one two")


async def test_tasks_that_are_not_there(backend: FakeBackend, tmp_path: Path) -> None:
    Script(backend).go_on.set()
    keys = [{"name": name, "key": f"{name}-key"} for name in ("ann", "bob")]
    ann, bob = ({"authorization": f"Bearer {name}-key"} for name in ("ann", "bob"))
    async with serving(config(tmp_path, backend, durable=True, server={"auth": {"keys": keys}})) as url:
        unknown = await ask("GET", f"{url}/a/process/task/nope", headers=ann)
        assert (unknown.status, unknown.body) == (200, b'{"error":"Task nope not found"}')
        task_id = (await post(f"{url}/a/process/task", said(), **ann)).json["task_id"]
        hers = await ask("GET", f"{url}/a/process/task/{task_id}", headers=ann)
        his = await ask("GET", f"{url}/a/process/task/{task_id}", headers=bob)
        assert hers.json["status"] in ("pending", "running", "finished")
        assert his.json == {"error": f"Task {task_id} not found"}
        invalid = await post(f"{url}/a/process/task", {"session_id": "s"}, **ann)
        assert (invalid.status, invalid.json["detail"][0]["loc"]) == (422, ["body", "input"])


async def test_a_route_that_keeps_nothing_has_no_tasks(backend: FakeBackend, tmp_path: Path) -> None:
    """As the real server without stream tasks."""
    async with serving(config(tmp_path, backend)) as url:
        assert (await post(f"{url}/a/process/task", said())).status == 404
        assert (await ask("GET", f"{url}/a/process/task/x")).status == 404
        assert not (tmp_path / "runs.db").exists()


# ---------------------------------------------------------------------- as the back

OPENED = b"".join(
    b'data: {"sequence_number":%d,"object":"response","status":"%b","id":"r","output":null,"session_id":"s"}\n\n'
    % (n, s)
    for n, s in enumerate((b"created", b"in_progress"))
)
SAID = (
    b'data: {"sequence_number":2,"object":"message","status":"in_progress","id":"m","type":"message",'
    b'"role":"assistant","content":null}\n\n'
    b'data: {"sequence_number":3,"object":"content","status":"in_progress","type":"text","index":0,"delta":true,'
    b'"msg_id":"m","text":"half "}\n\n'
)


def stopping(form: str, backend: FakeBackend, stop_path: str | None, **more: Any) -> dict[str, Any]:
    options = {"stop_path": stop_path} if stop_path else {}
    return {
        "backends": {"it": {"dialect": form, "url": backend.url, "api_key": "k", "options": options}},
        "routes": [{"dialect": "agentscope", "path": "/a", "backend": "it", **more}],
    }


Ending = Callable[[Exchange], Awaitable[None]]


def agent(backend: FakeBackend) -> asyncio.Event:
    """An agent whose stream just ends when it is stopped, as the real one's; the event says that it was."""
    stopped = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        if exchange.seen.path == "/stop":
            stopped.set()
            await exchange.answer(200, b'{"status":"ok"}')
            return
        await exchange.head()
        await exchange.send(OPENED + SAID)
        await stopped.wait()
        await exchange.end()

    backend.plays(script)
    return stopped


@pytest.mark.parametrize(("form", "passthrough"), [(FORMS[0], False), (FORMS[1], False), (FORMS[0], True)])
async def test_a_backend_is_told_to_stop(backend: FakeBackend, form: str, passthrough: bool) -> None:
    stopped = agent(backend)
    it = stopping(form, backend, "/stop", passthrough=passthrough)
    async with serving(it) as url, reading(f"{url}/a/process", said()) as client:
        await client.until(b"half ")
        await post(f"{url}/a/stop", named("agentscope"))
        check(await client.whole(), "agentscope", "canceled", "half ")
        await asyncio.wait_for(stopped.wait(), 5)
        stop = backend.seen[-1]
        assert stop.json == named(form), "the pair as it was sent"
        assert {n: stop.headers[n] for n in ("authorization", "content-type")} == {
            "authorization": "Bearer k",
            "content-type": "application/json",
        }


async def test_a_client_that_leaves_stops_the_backend(backend: FakeBackend) -> None:
    stopped = agent(backend)
    async with serving(stopping("agentscope", backend, "/stop")) as url:
        async with reading(f"{url}/a/process", said(session=None, user=None)) as client:
            await client.until(b"half ")
        await asyncio.wait_for(stopped.wait(), 5)
        asked, stop = backend.seen
        assert stop.json == {"input": [], "session_id": asked.json["session_id"]}


async def test_a_backend_that_ended_is_not_stopped(backend: FakeBackend) -> None:
    """Also one that refused: whatever runs in that session is somebody else's."""
    refusals: list[Ending] = [
        lambda e: e.answer(409, b'{"detail":"busy"}'),
        lambda e: e.stream(b'data: {"error": "Task u:s is already in RUNNING state."}\n\n'),
        lambda e: e.stream(OPENED, SAID),
    ]
    async with serving(stopping("agentscope", backend, "/stop")) as url:
        for refusal in refusals:
            backend.plays(refusal)
            reply = await post(f"{url}/a/process", said())
            assert b"failed" in reply.body
        assert [seen.path for seen in backend.seen] == ["/process"] * len(refusals)


async def test_a_run_that_is_put_away_is_not_disturbed(backend: FakeBackend) -> None:
    """Who takes its place waits until the backend has been told: later, it would be the new run that is stopped."""
    order, told = list[str](), asyncio.Event()

    async def script(exchange: Exchange) -> None:
        order.append(exchange.seen.path)
        if exchange.seen.path == "/stop":
            await told.wait()
            order.append("told")
            await exchange.answer(200, b"{}")
        elif len(order) == 1:
            await exchange.head()
            await exchange.send(OPENED + SAID)
            await exchange.left()
        else:
            await exchange.stream(OPENED, b'data: {"object":"response","status":"completed","id":"r","output":[]}\n\n')

    backend.plays(script)
    async with serving(stopping("agentscope", backend, "/stop", options={"supersede": True})) as url:
        async with reading(f"{url}/a/process", said()) as client:
            await client.until(b"half ")
        while len(order) < 2:
            await asyncio.sleep(0)
        later = asyncio.create_task(post(f"{url}/a/process", said("again")))
        for _ in range(10):
            assert (await ask("POST", f"{url}/a/stop?chat_id=s&user_id=u")).json == {"stopped": True}
        told.set()
        check((await later).body, "agentscope", "completed", "")
        assert order == ["/process", "/stop", "told", "/process"]


async def test_without_a_stop_path_hanging_up_is_all(backend: FakeBackend) -> None:
    gone = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(OPENED + SAID)
        await exchange.left()
        gone.set()

    backend.plays(script)
    async with serving(stopping("agentscope", backend, None)) as url:
        async with reading(f"{url}/a/process", said()) as client:
            await client.until(b"half ")
        await asyncio.wait_for(gone.wait(), 5)
        assert len(backend.seen) == 1
