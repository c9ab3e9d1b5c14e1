"""Stream tasks beside `/process`, through real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.dialects.agentscope.services import Script, check, config, events, forms, reading, said, text_in
from tests.server.harness import FakeBackend, ask, post, serving


async def finished(url: str, task_id: str) -> dict[str, Any]:
    async with asyncio.timeout(40):
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
        await asyncio.wait_for(script.asked.acquire(), 40)
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
        await asyncio.wait_for(script.left.acquire(), 40)
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
