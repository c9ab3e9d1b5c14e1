"""One run in a session, coming back to it, and both over several processes, through real sockets."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.dialects.agentscope.services import (
    Script,
    check,
    config,
    events,
    forms,
    kinds,
    named,
    reading,
    said,
    without_comments,
)
from tests.server.harness import FakeBackend, Reply, ask, post, serving
from tests.stores.conftest import postgres  # noqa: F401
from tests.stores.run_engines import RunEngine, run_engine  # noqa: F401

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
        await asyncio.wait_for(script.left.acquire(), 40)
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
        await asyncio.wait_for(script.left.acquire(), 40)
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
        await asyncio.wait_for(script.left.acquire(), 40)


def shared(tmp_path: Path, backend: FakeBackend, engine: RunEngine, **options: Any) -> Any:
    """One of several processes, whose runs live in them."""
    made = config(tmp_path, backend, durable=False, **options)
    return {**made, "stores": {"runs": engine.url}, "server": {"workers": 2}}


async def test_a_session_of_another_process_is_busy_until_it_is_stopped(
    backend: FakeBackend,
    tmp_path: Path,
    run_engine: RunEngine,  # noqa: F811
) -> None:
    script = Script(backend)
    async with (
        serving(shared(tmp_path, backend, run_engine)) as one,
        serving(shared(tmp_path, backend, run_engine)) as two,
        reading(f"{one}/a/process", said()) as client,
    ):
        await client.until(b"one ")
        busy = await post(f"{two}/a/process", said("again"))
        assert (busy.status, busy.json["detail"][0]["type"]) == (409, "conflict")
        assert (await ask("POST", f"{two}/a/stop?chat_id=other&user_id=u")).json == {"stopped": False}
        assert (await ask("POST", f"{two}/a/stop?chat_id=s&user_id=u")).json == {"stopped": True}
        check(await client.whole(), "agentscope", "canceled", "one ")
        await asyncio.wait_for(script.left.acquire(), 40)
        script.go_on.set()
        check((await post(f"{two}/a/process", said("again"))).body, "agentscope", "completed", "one two")
        assert len(backend.seen) == 2, "what was refused did not reach the model"


async def test_supersede_a_run_that_lives_in_another_process(
    backend: FakeBackend,
    tmp_path: Path,
    run_engine: RunEngine,  # noqa: F811
) -> None:
    script = Script(backend)
    async with (
        serving(shared(tmp_path, backend, run_engine, supersede=True)) as one,
        serving(shared(tmp_path, backend, run_engine, supersede=True)) as two,
        reading(f"{one}/a/process", said()) as client,
    ):
        await client.until(b"one ")
        later = asyncio.create_task(post(f"{two}/a/process", said("again")))
        assert check(await client.whole(), "agentscope", "failed", "one ")["error"]["code"] == "CANCELED"
        script.go_on.set()
        check((await later).body, "agentscope", "completed", "one two")


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
