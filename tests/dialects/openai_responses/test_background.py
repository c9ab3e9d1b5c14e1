"""Responses in the background, judged by the real SDK: polled, streamed again, cancelled, deleted, on both engines."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from bridge.contract import StoredAnswer
from bridge.model import Message, Text
from bridge.run.conversation.response_store import ResponseStore
from bridge.run.durable import RunKey
from bridge.stores import open_conversations
from bridge.translation.framing import sse
from tests.pairs.agents import AGENTS, Agent, Fall, Hang, Say, Think, Use
from tests.responses_judge import judge, wire_events
from tests.server.harness import Exchange, Reply, ask, fake_backend, free_port, serving
from tests.stores.conftest import postgres  # noqa: F401
from tests.stores.run_engines import RunEngine, run_engine  # noqa: F401

pytestmark = pytest.mark.interop

BACKS = ["openai-chat", "agentscope"]
WEATHER: Any = {"type": "function", "name": "get_weather", "strict": False, "parameters": {"type": "object"}}
CALL = ("call_1", "get_weather", '{"city":"Paris"}')
RUNNING = ("queued", "in_progress")

Serve = Callable[..., Any]


class Desk:
    """One running bridge, as the owner `a` sees it."""

    def __init__(self, base: str, client: openai.AsyncOpenAI) -> None:
        self.base = base
        self.client = client
        self.responses = client.responses

    async def raw(self, answer_id: str, query: str = "", method: str = "GET", key: str = "key-a") -> Reply:
        headers = {"authorization": f"Bearer {key}"}
        return await ask(method, f"{self.base}/v1/responses/{answer_id}{query}", headers=headers)

    async def begun(self, text: str = "Hi", **asked: Any) -> Response:
        answer: Response = await self.responses.create(model="m", input=text, background=True, **asked)
        strict(answer)
        assert (answer.status, answer.background, answer.store) == ("queued", True, True)
        return answer

    async def until(self, answer_id: str, ready: Callable[[Response], bool]) -> Response:
        """The first state of the response that is ready, polled as the API's guide does."""
        async with asyncio.timeout(30):
            while True:
                answer = await self.responses.retrieve(answer_id)
                strict(answer)
                if ready(answer):
                    return answer
                await asyncio.sleep(0.01)

    async def end(self, answer_id: str) -> Response:
        return await self.until(answer_id, lambda answer: answer.status not in RUNNING)


class Kept(ResponseStore):
    """What the history has of the owner's answers, with no bridge in between."""

    def __init__(self, folder: Path) -> None:
        self.history = open_conversations(f"sqlite:///{folder}/history.db")
        super().__init__(self.history, "a", "/v1")

    async def __aenter__(self) -> Kept:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.history.close()

    async def ended(self, answer_id: str) -> StoredAnswer:
        async with asyncio.timeout(30):
            while (kept := await self.load(answer_id)) is None or not kept.ended:
                await asyncio.sleep(0.01)
        return kept


def strict(answer: Response) -> None:
    Response.model_validate(answer.to_dict(), strict=True)


def config(folder: Path, runs: str, agent: Agent | None, **more: Any) -> dict[str, Any]:
    it = {"dialect": "demo"} if agent is None else {"dialect": agent.dialect, "url": agent.url}
    keys = [{"name": n, "key": f"key-{n}", "routes": ["*"]} for n in ("a", "b")]
    return {
        "server": {"auth": {"keys": keys}, **more},
        "backends": {"it": it},
        "routes": [{"dialect": "openai-responses", "path": "/v1", "backend": "it"}],
        "stores": {"history": f"sqlite:///{folder}/history.db", "runs": runs},
    }


@asynccontextmanager
async def client_of(base: str) -> AsyncIterator[Desk]:
    async with openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="key-a", max_retries=0) as client:
        yield Desk(base, client)


@pytest.fixture
async def serve(tmp_path: Path, run_engine: RunEngine) -> AsyncIterator[Serve]:  # noqa: F811
    """Starts a bridge on this test's stores; each is what another process would be."""
    async with AsyncExitStack() as stack:

        async def start(agent: Agent | None = None, **more: Any) -> Desk:
            base = await stack.enter_async_context(serving(config(tmp_path, run_engine.url, agent, **more)))
            return await stack.enter_async_context(client_of(base))

        yield start


@asynccontextmanager
async def agent_of(back: str) -> AsyncIterator[Agent]:
    async with fake_backend() as backend:
        yield AGENTS[back](backend)


def parts(body: bytes) -> list[bytes]:
    """The frames of a stream, comments left out, each with its empty line."""
    return [frame + b"\n\n" for frame in body.split(b"\n\n") if frame and not frame.startswith(b":")]


def events(body: bytes) -> list[dict[str, Any]]:
    splitter = sse.Splitter()
    frames = [*splitter.feed(body), *splitter.close()]
    return [json.loads(frame if isinstance(frame, bytes) else frame.data) for frame in frames]


# ---------------------------------------------------------------------- polling


@pytest.mark.parametrize("back", BACKS)
async def test_polled_to_the_end_and_gone_on_from(serve: Serve, back: str) -> None:
    async with agent_of(back) as agent:
        agent.brain = lambda heard: [Think("Hm."), Say(f"To {heard.last[1]}.")]
        desk = await serve(agent)
        first = await desk.begun("One", metadata={"k": "v"}, instructions="Be brief.")
        ended = await desk.end(first.id)
        assert (ended.status, ended.output_text, ended.error) == ("completed", "To One.", None)
        assert (ended.created_at, ended.metadata) == (first.created_at, {"k": "v"})
        assert [item.type for item in ended.output] == ["reasoning", "message"]
        second = await desk.end((await desk.begun("Two", previous_response_id=first.id)).id)
        assert (second.output_text, second.previous_response_id) == ("To Two.", first.id)
        # Who waits, and who does not, go on from each other.
        third = await desk.responses.create(model="m", input="Three", previous_response_id=second.id)
        assert third.background is False
        fourth = await desk.end((await desk.begun("Four", previous_response_id=third.id)).id)
        assert fourth.output_text == "To Four."
    said = [entry[1] for entry in agent.heard[-1].spoken if entry[0] == "user"]
    assert said == ["One", "Two", "Three", "Four"]


async def test_every_scene_of_the_demo(serve: Serve) -> None:
    """As in the foreground, but for what is made anew each time."""
    desk = await serve()
    for scene in ("text", "reasoning", "tools", "image", "error late", "length", "filter", "refusal", "interrupt"):
        told = Response.model_validate((await wire_events(desk.client, model="m", input=scene))[-1]["response"])
        ended = await desk.end((await desk.begun(scene)).id)
        assert (ended.status, ended.error, ended.usage) == (told.status, told.error, told.usage), scene
        assert [i.type for i in ended.output] == [i.type for i in told.output], scene
        assert ended.output_text == told.output_text, scene


async def test_a_run_that_fails_at_once(serve: Serve) -> None:
    desk = await serve()
    for scene, status, kind in (("error", 502, "upstream_error"), ("limited", 429, "rate_limit_exceeded")):
        with pytest.raises(openai.APIStatusError) as refused:
            await desk.client.responses.create(model="m", input=scene)
        assert refused.value.status_code == status
        ended = await desk.end((await desk.begun(scene)).id)
        assert (ended.status, ended.output) == ("failed", [])
        assert ended.error is not None
        assert (ended.error.message, ended.error.to_dict()["type"]) == (refused.value.body["message"], kind)  # type: ignore[index]


async def test_read_while_it_grows(serve: Serve) -> None:
    """What is there of each kind of item is shown, and stands in the end where it stood."""
    async with agent_of("openai-chat") as agent:
        scenes = {
            "text": [Say("one two"), Hang()],
            "thought": [Think("Hm hm"), Hang()],
            "call": [Say("I look."), Use(*CALL), Hang()],
        }
        agent.brain = lambda heard: list(scenes[heard.last[1]])
        desk = await serve(agent)
        shown: dict[str, Response] = {}
        for scene, whole in (("text", "one two"), ("thought", "Hm hm"), ("call", CALL[2])):
            known = await desk.begun(scene, tools=[WEATHER])
            shown[scene] = await desk.until(known.id, lambda answer, whole=whole: whole in told(answer))  # type: ignore[misc]
            assert shown[scene].status == "in_progress"
            assert agent.backend.seen[-1].json["stream"] is True
            with pytest.raises(openai.BadRequestError) as early:
                await desk.responses.create(model="m", input="More", previous_response_id=known.id)
            assert early.value.param == "previous_response_id"
            assert "in_progress" in early.value.message
            ended = await desk.responses.cancel(known.id)
            assert [i.id for i in ended.output] == [i.id for i in shown[scene].output]
            assert whole in told(ended)
        assert [i.type for i in shown["call"].output] == ["message", "function_call"]


def told(answer: Response) -> str:
    return json.dumps(answer.to_dict()["output"]).replace('\\"', '"')


async def test_a_backend_that_fails(serve: Serve) -> None:
    async with agent_of("openai-chat") as agent:
        agent.brain = lambda heard: [Say("Half"), Fall()]
        desk = await serve(agent)
        ended = await desk.end((await desk.begun()).id)
        assert (ended.status, ended.output_text) == ("failed", "Half")
        assert ended.error is not None
        assert (ended.error.code, ended.error.message) == ("server_error", "the model fell over")
        assert (await desk.responses.cancel(ended.id)).to_dict() == ended.to_dict()
        with pytest.raises(openai.BadRequestError) as refused:
            await desk.responses.create(model="m", input="More", previous_response_id=ended.id)
        assert "failed" in refused.value.message


# ---------------------------------------------------------------------- streams


@pytest.mark.parametrize("back", [None, *BACKS])
async def test_cut_at_each_event_and_resumed(serve: Serve, back: str | None) -> None:
    async with AsyncExitStack() as stack:
        agent = None if back is None else await stack.enter_async_context(agent_of(back))
        if agent is not None:
            agent.brain = lambda heard: [Think("Hm."), Say("one two"), Use(*CALL)]
        desk = await serve(agent)
        body = json.dumps({"model": "m", "input": "tools", "background": True, "stream": True, "tools": [WEATHER]})
        headers = {"content-type": "application/json", "authorization": "Bearer key-a"}
        whole = await ask("POST", f"{desk.base}/v1/responses", body.encode(), headers)
        assert whole.headers["content-type"].startswith("text/event-stream")
        told = events(whole.body)
        judge(told)
        answer, frames = told[-1]["response"], parts(whole.body)
        assert (await desk.raw(answer["id"])).json == answer
        assert [told[n]["response"]["status"] for n in range(3)] == ["queued", "queued", "in_progress"]
        assert (await desk.raw(answer["id"], "?stream=true")).body == whole.body
        for number in range(len(frames)):
            rest = await desk.raw(answer["id"], f"?stream=true&starting_after={number}")
            assert rest.status == 200
            assert rest.body == b"".join(frames[number + 1 :]), number
        # The SDK gets the same events.
        again = await desk.responses.retrieve(answer["id"], stream=True, starting_after=4)
        assert [event.to_dict() async for event in again] == told[5:]


@pytest.mark.parametrize("back", BACKS)
async def test_it_goes_on_when_its_reader_leaves(serve: Serve, back: str) -> None:
    go_on = asyncio.Event()
    async with agent_of(back) as agent:
        slowly(agent, [Say("one two")], one=go_on)
        desk, other = await serve(agent), await serve(agent)
        stream = await desk.responses.create(model="m", input="Hi", background=True, stream=True)
        seen = []
        async for event in stream:
            seen.append(event.to_dict())
            if event.type == "response.output_text.delta":
                break
        await stream.close()
        answer_id = seen[0]["response"]["id"]
        assert (await other.responses.retrieve(answer_id)).status == "in_progress"
        resumed = await other.responses.retrieve(answer_id, stream=True, starting_after=len(seen) - 1)
        reading = asyncio.create_task(collected(resumed))
        go_on.set()
        judge([*seen, *await reading])
        assert (await desk.end(answer_id)).output_text == "one two"
        assert len(agent.heard) == 1


async def collected(stream: Any) -> list[dict[str, Any]]:
    return [event.to_dict() async for event in stream]


def slowly(agent: Agent, steps: list[Any], **pauses: asyncio.Event) -> None:
    """After the first event with one of these words it waits for what stands beside it."""

    async def play(exchange: Exchange) -> None:
        agent.heard.append(agent.hear(exchange.seen.json))
        wire = [e if isinstance(e, bytes) else json.dumps(e).encode() for e in agent.wire(steps)]
        left = dict(pauses)
        await exchange.head()
        for event in wire:
            await exchange.send(b"data: " + event + b"\n\n")
            for word in [word for word in left if word.encode() in event]:
                await left.pop(word).wait()
        await exchange.end()

    agent.backend.plays(play)


# ---------------------------------------------------------------------- cancelling


@pytest.mark.parametrize("back", BACKS)
async def test_cancelled_while_it_runs(serve: Serve, back: str) -> None:
    """Also by another process than drives it, and again when it is over."""
    async with agent_of(back) as agent:
        agent.brain = lambda heard: [Say("one two"), Hang()]
        desk = await serve(agent)
        stream = await desk.responses.create(model="m", input="Hi", background=True, stream=True)
        seen: list[dict[str, Any]] = []
        async for event in stream:
            seen.append(event.to_dict())
            if "".join(e["delta"] for e in seen if "delta" in e) == "one two":
                break
        other = await serve(agent)
        canceled = await other.responses.cancel(seen[0]["response"]["id"])
        strict(canceled)
        assert (canceled.status, canceled.output_text, canceled.error) == ("cancelled", "one two", None)
        seen += await collected(stream)
        judge(seen)
        assert seen[-1]["response"] == canceled.to_dict()
        for known in (desk, other):
            assert (await known.responses.cancel(canceled.id)).to_dict() == canceled.to_dict()
            assert (await known.responses.retrieve(canceled.id)).to_dict() == canceled.to_dict()
        async with asyncio.timeout(30):
            await agent.hanging.wait()


async def test_cancelled_in_the_queue(serve: Serve) -> None:
    async with agent_of("openai-chat") as agent:
        agent.brain = lambda heard: [Say("one"), Hang()]
        desk = await serve(agent, limits={"concurrent": 1})
        first = await desk.begun("First")
        await desk.until(first.id, lambda answer: answer.status == "in_progress")
        second = await desk.begun("Second")
        assert (await desk.responses.retrieve(second.id)).to_dict() == second.to_dict(), "it waits"
        canceled = await desk.responses.cancel(second.id)
        assert (canceled.status, canceled.output) == ("cancelled", [])
        stream = await desk.responses.retrieve(second.id, stream=True)
        judge(await collected(stream))
        assert (await desk.responses.cancel(first.id)).status == "cancelled"
    assert [heard.last[1] for heard in agent.heard] == ["First"], "what was cancelled in the queue never ran"


async def test_cancelled_when_it_is_over(serve: Serve) -> None:
    desk = await serve()
    ended = await desk.end((await desk.begun()).id)
    for _ in range(2):
        assert (await desk.responses.cancel(ended.id)).to_dict() == ended.to_dict()


async def test_only_what_is_in_the_background_can_be_cancelled_or_streamed_again(serve: Serve) -> None:
    desk = await serve()
    known = await desk.responses.create(model="m", input="Hi")
    with pytest.raises(openai.BadRequestError) as refused:
        await desk.responses.cancel(known.id)
    assert refused.value.param == "id"
    assert "background" in refused.value.message
    with pytest.raises(openai.BadRequestError) as whole:
        await desk.responses.retrieve(known.id, stream=True)
    assert whole.value.param == "stream"
    assert "background" in whole.value.message


# ---------------------------------------------------------------------- whose it is, and what is none


async def test_others_find_nothing(serve: Serve) -> None:
    async with agent_of("openai-chat") as agent:
        agent.brain = lambda heard: [Say("one"), Hang()]
        desk = await serve(agent)
        known = await desk.begun()
        await desk.until(known.id, lambda answer: answer.status == "in_progress")
        asked = [("", "GET"), ("?stream=true", "GET"), ("/input_items", "GET"), ("/cancel", "POST"), ("", "DELETE")]
        for answer_id, key in ((known.id, "key-b"), ("resp_unknown", "key-a"), ("%00", "key-a")):
            for query, method in asked:
                reply = await desk.raw(answer_id, query, method, key)
                error = reply.json["error"]
                assert (reply.status, error["type"], error["param"], error["code"]) == (
                    404, "invalid_request_error", "id", "not_found",
                )  # fmt: skip
        assert (await desk.responses.retrieve(known.id)).status == "in_progress"
        await desk.responses.cancel(known.id)


async def test_mistakes_name_their_place(serve: Serve) -> None:
    desk = await serve()
    known = await desk.begun()
    for query, param in (
        ("?stream=yes", "stream"), ("?stream=true&starting_after=x", "starting_after"),
        ("?stream=true&starting_after=-1", "starting_after"), ("?stream=true&starting_after=1.5", "starting_after"),
        ("/input_items?limit=0", "limit"), ("/input_items?limit=101", "limit"), ("/input_items?limit=x", "limit"),
        ("/input_items?order=up", "order"), ("/input_items?after=item_x", "after"),
    ):  # fmt: skip
        reply = await desk.raw(known.id, query)
        assert (reply.status, reply.json["error"]["param"]) == (400, param), query
        assert "expected" in reply.json["error"]["message"], query
    await desk.end(known.id)


async def test_requests_that_cannot_be_in_the_background(serve: Serve) -> None:
    desk = await serve()
    with pytest.raises(openai.BadRequestError) as refused:
        await desk.responses.create(model="m", input="Hi", background=True, store=False)
    assert refused.value.param == "store"
    with pytest.raises(openai.BadRequestError) as wrong:
        await desk.responses.create(model="m", input="Hi", background="yes")  # type: ignore[call-overload]
    assert wrong.value.param == "background"


# ---------------------------------------------------------------------- deleting


async def test_deleted_while_it_runs(serve: Serve, run_engine: RunEngine) -> None:  # noqa: F811
    async with agent_of("openai-chat") as agent:
        agent.brain = lambda heard: [Say("one"), Hang()]
        desk = await serve(agent)
        known = await desk.begun()
        await desk.until(known.id, lambda answer: answer.status == "in_progress")
        assert (await desk.raw(known.id, method="DELETE")).json["deleted"] is True
        for query, method in (("", "GET"), ("?stream=true", "GET"), ("/cancel", "POST"), ("", "DELETE")):
            assert (await desk.raw(known.id, query, method)).status == 404
        store, run = run_engine.store(), known.id.removeprefix("resp_")
        async with asyncio.timeout(30):
            await agent.hanging.wait()
            while await store.get(RunKey("a", "/v1", run, run)) is not None:
                await asyncio.sleep(0.01)


async def test_deleted_when_it_is_over(serve: Serve, run_engine: RunEngine) -> None:  # noqa: F811
    desk = await serve()
    known = await desk.begun()
    await desk.end(known.id)
    run = known.id.removeprefix("resp_")
    assert await run_engine.store().get(RunKey("a", "/v1", run, run)) is not None
    await desk.responses.delete(known.id)
    assert (await desk.raw(known.id)).status == 404
    assert await run_engine.store().get(RunKey("a", "/v1", run, run)) is None


# ---------------------------------------------------------------------- retention, and processes that die


async def test_the_answer_outlives_its_events(serve: Serve, run_engine: RunEngine) -> None:  # noqa: F811
    desk = await serve()
    known = await desk.begun()
    ended = await desk.end(known.id)
    await run_engine.backdate("ended", 1000)
    assert await run_engine.store().sweep(500, 5000) == 1
    assert (await desk.responses.retrieve(known.id)).to_dict() == ended.to_dict()
    stream = await desk.raw(known.id, "?stream=true")
    assert (stream.status, stream.json["error"]["code"]) == (410, "not_found")


async def test_the_end_is_kept_though_nobody_reads_it(tmp_path: Path, serve: Serve, run_engine: RunEngine) -> None:  # noqa: F811
    desk = await serve()
    known = await desk.begun("text")
    async with Kept(tmp_path) as answers:
        kept = await answers.ended(known.id)
    run = known.id.removeprefix("resp_")
    assert await run_engine.store().delete(RunKey("a", "/v1", run, run))
    ended = await desk.responses.retrieve(known.id)
    assert (ended.status, ended.to_dict()) == ("completed", kept.body)


async def test_a_run_that_is_gone_before_its_end_was_kept(
    serve: Serve,
    tmp_path: Path,
    run_engine: RunEngine,  # noqa: F811
) -> None:
    """As after a history that was down for longer than events are kept."""
    desk = await serve()
    orphan = StoredAnswer("resp_1", {"id": "resp_1", "output": []}, [Message("user", [Text("Hi")])], "1", ended=False)
    async with Kept(tmp_path) as answers:
        await answers.keep(orphan)
    for query, method in (("", "GET"), ("?stream=true", "GET"), ("/cancel", "POST")):
        reply = await desk.raw("resp_1", query, method)
        assert (reply.status, reply.json["error"]["type"]) == (410, "invalid_request_error")
    assert (await desk.raw("resp_1", method="DELETE")).status == 200
    assert (await desk.raw("resp_1")).status == 404


async def test_a_run_store_that_is_down(serve: Serve, tmp_path: Path, run_engine: RunEngine) -> None:  # noqa: F811
    """Nothing is left of what could not be queued, and what came later is found again."""
    desk = await serve()
    known = await desk.begun()
    ended = await desk.end(known.id)
    await run_engine.down()
    with pytest.raises(openai.InternalServerError) as down:
        await desk.begun()
    assert (down.value.status_code, down.value.code) == (503, "store_unavailable")
    async with Kept(tmp_path) as answers:
        assert await answers.history.latest("a\0responses", "/v1") == known.id
    assert (await desk.responses.retrieve(known.id)).to_dict() == ended.to_dict()
    await run_engine.up()
    assert (await desk.end((await desk.begun()).id)).status == "completed"


async def test_a_server_that_stops(tmp_path: Path, serve: Serve, run_engine: RunEngine) -> None:  # noqa: F811
    async with agent_of("openai-chat") as agent:
        agent.brain = lambda heard: [Say("one"), Hang()]
        async with serving(config(tmp_path, run_engine.url, agent)) as base, client_of(base) as desk:
            known = await desk.begun()
            await desk.until(known.id, lambda answer: bool(answer.output))
        failed = await (await serve(agent)).end(known.id)
        assert (failed.status, failed.output_text) == ("failed", "one")
        assert failed.error is not None
        assert failed.error.to_dict()["type"] == "run_lost"


CHILD = """
import asyncio, json, sys
from bridge.engine.bridge import Bridge
from bridge.server import running

async def main():
    async with running(Bridge.from_config(json.loads(sys.argv[1]))):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


async def test_the_process_that_drives_it_is_killed(tmp_path: Path, serve: Serve, run_engine: RunEngine) -> None:  # noqa: F811
    async with agent_of("openai-chat") as agent:
        agent.brain = lambda heard: [Say("one two"), Hang()]
        port = free_port()
        it = json.dumps(config(tmp_path, run_engine.url, agent, port=port))
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, it, stdin=PIPE, stdout=PIPE)
        try:
            assert child.stdout is not None
            assert await child.stdout.readline() == b"ready\n"
            async with client_of(f"http://127.0.0.1:{port}") as first:
                known = await first.begun()
                begun = await first.until(known.id, lambda answer: answer.output_text == "one two")
            desk = await serve(agent)
            reading = asyncio.create_task(wire_events(desk.client, known.id))
            child.send_signal(signal.SIGKILL)
            await child.wait()
            await run_engine.backdate("leases", 60)
            told = await asyncio.wait_for(reading, 30)
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()
            child._transport.close()  # type: ignore[attr-defined]
        judge(told)
        failed = await desk.responses.retrieve(known.id)
        strict(failed)
        assert (failed.status, failed.output_text) == ("failed", "one two")
        assert failed.to_dict() == told[-1]["response"]
        assert failed.error is not None
        assert failed.error.to_dict()["type"] == "run_lost"
        assert [i.id for i in failed.output] == [i.id for i in begun.output]


# ---------------------------------------------------------------------- what it was made from


@pytest.mark.parametrize("background", [True, False])
async def test_input_items(serve: Serve, background: bool) -> None:
    async with agent_of("openai-chat") as agent:
        agent.brain = lambda heard: [Say("Sunny.")] if heard.last[0] == "result" else [Say("I look."), Use(*CALL)]
        desk = await serve(agent)
        picture = {"type": "input_image", "detail": "auto", "image_url": "https://example.org/a.png"}
        asked: Any = [{"role": "user", "content": [{"type": "input_text", "text": "Paris?"}, picture]}]
        first = await desk.responses.create(model="m", input=asked, instructions="Be brief.", tools=[WEATHER])
        result: Any = [{"type": "function_call_output", "call_id": "call_1", "output": "sun"}]
        answer = await desk.responses.create(
            model="m", input=result, previous_response_id=first.id, tools=[WEATHER], background=background
        )
        if background:
            await desk.end(answer.id)
        items = [item async for item in desk.responses.input_items.list(answer.id, order="asc")]
        assert [i.type for i in items] == ["message", "message", "function_call", "function_call_output"]
        assert [i.id for i in items[1:3]] == [i.id for i in first.output]
        assert items[0].to_dict()["content"] == [{"type": "input_text", "text": "Paris?"}, picture]
        assert items[3].to_dict()["output"] == "sun"
        ids = [i.id for i in items]
        assert len(set(ids)) == 4
        assert [i.id async for i in desk.responses.input_items.list(answer.id)] == ids[::-1], "newest first"
        assert [i.id async for i in desk.responses.input_items.list(answer.id, limit=1)] == ids[::-1], "four pages"
        page = (await desk.raw(answer.id, f"/input_items?order=asc&limit=2&after={ids[0]}")).json
        assert (page["first_id"], page["last_id"], page["has_more"]) == (ids[1], ids[2], True)
        last = (await desk.raw(answer.id, f"/input_items?order=asc&after={ids[3]}")).json
        assert (last["data"], last["first_id"], last["has_more"]) == ([], None, False)


async def test_a_page_has_twenty_input_items_unless_the_query_says_otherwise(serve: Serve) -> None:
    desk = await serve()
    known = await desk.responses.create(model="m", input=[{"role": "user", "content": str(n)} for n in range(101)])
    for query, count in (("", 20), ("?limit=1", 1), ("?limit=100", 100)):
        page = (await desk.raw(known.id, f"/input_items{query}")).json
        assert (len(page["data"]), page["has_more"]) == (count, True)


async def test_input_items_while_it_runs(serve: Serve) -> None:
    async with agent_of("openai-chat") as agent:
        agent.brain = lambda heard: [Say("one"), Hang()]
        desk = await serve(agent)
        known = await desk.begun("Hi")
        await desk.until(known.id, lambda answer: bool(answer.output))
        (item,) = [item async for item in desk.responses.input_items.list(known.id)]
        await desk.responses.cancel(known.id)
        (same,) = [item async for item in desk.responses.input_items.list(known.id)]
        assert item.to_dict() == same.to_dict()
        assert item.to_dict()["content"] == [{"type": "input_text", "text": "Hi"}]
