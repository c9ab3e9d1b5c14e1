"""Stopping the run of a session, through real sockets: what its reader has then."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.dialects.agentscope.services import STOPPED, Script, check, config, forms, kinds, named, reading, said
from tests.server.harness import FakeBackend, ask, post, serving


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
        await asyncio.wait_for(script.left.acquire(), 40)
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
        await asyncio.wait_for(script.asked.acquire(), 40)
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
