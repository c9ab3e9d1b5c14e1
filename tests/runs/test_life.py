"""The life of a run: whatever happens to it, its log is a whole stream with one end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.engine.bridge import Bridge
from bridge.engine.route import RunCaller
from bridge.errors import BridgeError, ErrorCode
from bridge.model import (
    FinishReason,
    HistoryMode,
    Message,
    MessageEnded,
    MessageStatus,
    PartEnded,
    Reasoning,
    Request,
    RunFailed,
    RunFinished,
    RunStarted,
    Text,
    UsageReported,
)
from bridge.model.grammar import verify
from bridge.run.backends.local_backend import Yielded
from bridge.run.durable import SUPERSEDED, RunKey, Runs, RunState
from bridge.run.durable.log import from_body
from bridge.run.durable.plan import FORMAT
from bridge.stores import StoreConflict, open_conversations, run_scripts
from bridge.stores.liveness import no_grace
from tests.runs.agents import WORDS
from tests.runs.conftest import MakeRuns
from tests.runs.helpers import begin, bridge_of, cursor_of, events_of, frames_of, process, subscribe, text_of
from tests.stores.run_engines import RunEngine

LEASE = 1.0


async def begun(runs: Runs, key: RunKey, text: str = "".join(WORDS[:5])) -> None:
    """Returns when the run has said this much."""
    reader, said = runs.follow(key), ""
    async with asyncio.timeout(30):
        while not said.startswith(text):
            for _, batch in await reader.read(30):
                said += text_of(batch.events)


async def ended(runs: Runs, key: RunKey) -> RunState:
    await events_of(runs, key)
    record = await runs.status(key)
    assert record is not None
    return record.state


async def failure_of(runs: Runs, key: RunKey) -> ErrorCode:
    last = (await events_of(runs, key))[-1]
    assert isinstance(last, RunFailed)
    return last.error.code


async def test_a_run_goes_on_without_a_reader(bridge: Bridge, runs: Runs) -> None:
    key = await begin(bridge, runs, "count")
    events = await events_of(runs, key)
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunFinished)
    assert events[-1].reason is FinishReason.STOP
    assert text_of(events) == "".join(WORDS)
    assert await ended(runs, key) is RunState.ENDED


@pytest.mark.parametrize("how", ["canceled", "superseded", "stopped"])
async def test_the_answer_of_a_run_that_was_ended_is_stored_with_its_end(
    run_engine: RunEngine, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """One transaction: as long as the end is not stored, the conversation has no answer, and no other may begin."""
    config = {
        "stores": {"history": run_engine.url, "runs": run_engine.url},
        "backends": {"mine": {"dialect": "python", "target": "tests.runs.agents:run"}},
        "routes": [{"dialect": "agentscope", "path": "/x", "backend": "mine", "durable": True}],
    }
    async with Bridge.from_config(config) as bridge:
        runs, history = bridge.runs, bridge.history
        finish, go_on, at_end = run_scripts.finish, asyncio.Event(), asyncio.Event()
        appended = runs._store.append

        async def held(*args: Any, **more: Any) -> int:
            if more.get("end"):
                at_end.set()
                await go_on.wait()
            return await appended(*args, **more)

        joint: list[bool] = []

        def noted(*args: Any) -> Any:
            joint.append(True)
            return finish(*args)

        monkeypatch.setattr(runs._store, "append", held)
        monkeypatch.setattr(run_scripts, "finish", noted)
        request = Request([Message("user", [Text("hang")])], thread_id="t", history=HistoryMode.DELTA)
        key, plan = bridge.plan(bridge.routes[0], request, RunCaller("o", run_id="r1", created_at=1.5))
        await runs.start(key, plan, "hang")
        await begun(runs, key)
        stopping = None
        if how == "stopped":
            stopping = asyncio.create_task(runs.retire())
        else:
            await runs.cancel(key, "" if how == "canceled" else SUPERSEDED)
        async with asyncio.timeout(30):
            await at_end.wait()
        assert await history.load(key.owner, key.scope, key.thread_id) is None, "its question neither"
        go_on.set()
        await ended(runs, key)
        stored = await history.load(key.owner, key.scope, key.thread_id)
        assert stored is not None
        assert [message.role for message in stored.messages] == ["user", "assistant"]
        assert joint == [True]
        async with asyncio.timeout(30), history.turn(key.owner, key.scope, key.thread_id):
            pass
        if stopping is not None:
            await stopping


async def test_the_same_run_twice_is_one(bridge: Bridge, runs: Runs) -> None:
    key = await begin(bridge, runs, "count", "r1")
    assert await begin(bridge, runs, "count", "r1") == key
    with pytest.raises(StoreConflict):
        await begin(bridge, runs, "hang", "r1")
    assert text_of(await events_of(runs, key)) == "".join(WORDS)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("fail", ErrorCode.BACKEND_ERROR),
        ("raise", ErrorCode.BACKEND_ERROR),
        ("refuse", ErrorCode.RATE_LIMITED),
    ],
)
async def test_a_backend_that_fails(bridge: Bridge, runs: Runs, text: str, code: ErrorCode) -> None:
    key = await begin(bridge, runs, text)
    assert await failure_of(runs, key) is code
    assert await ended(runs, key) is RunState.ENDED


async def test_a_run_that_takes_too_long(make_runs: MakeRuns) -> None:
    async with bridge_of(timeouts={"total": "300ms"}) as bridge:
        runs = make_runs(bridge)
        await runs.open()
        key = await begin(bridge, runs, "hang")
        assert await failure_of(runs, key) is ErrorCode.RUN_TIMEOUT
        await runs.close()


def say(bridge: Bridge, monkeypatch: pytest.MonkeyPatch, word: str, count: int) -> None:
    """The agent says the word so often."""

    async def agent(request: object) -> AsyncIterator[str]:
        for _ in range(count):
            yield word

    monkeypatch.setattr(bridge.routes[0].backends[0], "_agent", agent)


async def test_a_long_run_is_read_and_resumed(
    bridge: Bridge, make_runs: MakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More entries than any number of them that was kept of a thread once; bytes are what counts."""
    monkeypatch.setattr("bridge.run.durable.recorder.JOIN", -1.0)
    say(bridge, monkeypatch, "word ", 11_000)
    runs = make_runs(max_run=2**20)
    await runs.open()
    key = await begin(bridge, runs, "x")
    assert text_of(await events_of(runs, key)) == "word " * 11_000
    frames = await frames_of(subscribe(runs, key))
    cursor = cursor_of(frames[-500])
    assert cursor is not None
    assert await frames_of(subscribe(runs, key, cursor)) == frames[-499:]


async def test_an_endless_run_ends_at_its_bound(
    bridge: Bridge, make_runs: MakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether anybody reads or not; what was said before stays readable, and everything that was begun is closed."""
    say(bridge, monkeypatch, "x" * 1000, 10**9)
    runs = make_runs(max_run=100_000)
    await runs.open()
    key = await begin(bridge, runs, "x")
    assert await ended(runs, key) is RunState.ENDED
    events = await events_of(runs, key)
    verify(events)
    assert isinstance(events[-1], RunFailed)
    assert (events[-1].error.code, events[-1].error.backend_code) == (ErrorCode.BACKEND_PROTOCOL, "too_large")
    assert events[-1].error.message == "The run is longer than the limit of 100000 bytes (stores.max_run)."
    assert 90_000 < len(text_of(events)) < 110_000
    assert not runs.tasks


async def test_a_route_that_is_gone(bridge: Bridge, runs: Runs) -> None:
    request = Request([Message("user", [Text("count")])], thread_id="t")
    key, plan = bridge.plan(bridge.routes[0], request, RunCaller("o", run_id="r", created_at=1.5))
    await runs.start(key, replace(plan, route="/other"), "count")
    assert await failure_of(runs, key) is ErrorCode.RUN_LOST


async def test_a_plan_that_cannot_be_read(bridge: Bridge, runs: Runs, run_engine: RunEngine) -> None:
    """As one of a newer version would be: that run ends, and those after it are taken."""
    store = run_engine.store()
    keys = [RunKey("o", "/x", "t", f"r{n}") for n in range(4)]
    for key, plan in zip(keys, ["", "[]", "{", '{"request": ["Q", []]}'], strict=True):
        await store.create(key, "f", plan)
    for key in keys:
        (entry,) = await store.read(key, wait=30)
        head, end = from_body(entry.body).events
        assert isinstance(head, RunStarted)
        assert isinstance(end, RunFailed)
        assert end.error.code is ErrorCode.INTERNAL
        with pytest.raises(BridgeError):
            await subscribe(runs, key).read(0)
    assert text_of(await events_of(runs, await begin(bridge, runs, "count"))) == "".join(WORDS)


# ---------------------------------------------------------------------- cancel


async def canceled(runs: Runs, key: RunKey) -> str:
    events = await events_of(runs, key)
    assert isinstance(events[-1], RunFinished)
    assert events[-1].reason is FinishReason.CANCELED
    return text_of(events)


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_running_run_is_cancelled(bridge: Bridge, runs: Runs, make_runs: MakeRuns, elsewhere: bool) -> None:
    key = await begin(bridge, runs, "hang")
    await begun(runs, key)
    other = make_runs() if elsewhere else runs
    await other.cancel(key)
    await other.cancel(key)
    assert await canceled(other, key) == "".join(WORDS[:5]), "what was said stays"


async def test_what_was_known_by_then_is_told(bridge: Bridge, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    async def agent(request: object) -> AsyncIterator[Yielded]:
        yield UsageReported(input=3, output=4)
        yield Reasoning("thought")
        yield "half"
        await asyncio.Event().wait()

    monkeypatch.setattr(bridge.routes[0].backends[0], "_agent", agent)
    key = await begin(bridge, runs, "x")
    await begun(runs, key, "half")
    await runs.cancel(key)
    events = await events_of(runs, key)
    assert [type(event) for event in events[-4:]] == [PartEnded, MessageEnded, UsageReported, RunFinished]
    assert isinstance(events[-3], MessageEnded)
    assert events[-3].status is MessageStatus.CANCELED


async def test_what_was_said_stays_in_the_conversation(make_runs: MakeRuns, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    config = {
        "backends": {"mine": {"dialect": "python", "target": "tests.runs.agents:run"}},
        "routes": [{"dialect": "ag-kit", "path": "/x", "backend": "mine"}],
        "stores": {"history": url},
    }
    async with Bridge.from_config(config) as bridge:
        runs = make_runs(bridge)
        await runs.open()
        request = Request([Message("user", [Text("hang")])], thread_id="t", history=HistoryMode.DELTA)
        key, plan = bridge.plan(bridge.routes[0], request, RunCaller("o", run_id="r", created_at=1.5))
        await runs.start(key, plan, "f")
        await begun(runs, key)
        await runs.cancel(key)
        await canceled(runs, key)
        await runs.close()
    history = open_conversations(url)
    conversation = await history.load("o", "/x", "t")
    await history.close()
    assert conversation is not None
    said = [part.text for message in conversation.messages for part in message.parts if isinstance(part, Text)]
    assert said == ["hang", "".join(WORDS[:5])]


async def test_a_silent_run_is_cancelled(bridge: Bridge, runs: Runs) -> None:
    key = await begin(bridge, runs, "silent")
    await events_begun(runs, key)
    await runs.cancel(key)
    assert await canceled(runs, key) == ""


async def events_begun(runs: Runs, key: RunKey) -> None:
    async with asyncio.timeout(30):
        assert await runs.follow(key).read(30)


async def test_a_run_in_the_queue_is_cancelled(bridge: Bridge, make_runs: MakeRuns) -> None:
    """Nobody takes runs here; it ends all the same, and is not begun later."""
    runs = make_runs()
    key = await begin(bridge, runs, "count")
    await make_runs().cancel(key)
    events = await events_of(runs, key)
    assert [type(event) for event in events] == [RunStarted, RunFinished]
    assert await canceled(runs, key) == ""
    taker = make_runs()
    await taker.open()
    await events_of(taker, await begin(bridge, taker, "count"))
    assert len(await events_of(runs, key)) == 2


async def test_a_run_is_cancelled_before_it_is_known(bridge: Bridge, runs: Runs) -> None:
    key = RunKey("o", "/x", "t", "early")
    await runs.cancel(key)
    assert await begin(bridge, runs, "hang", "early") == key
    assert await canceled(runs, key) == ""


async def test_a_finished_run_is_cancelled(bridge: Bridge, runs: Runs) -> None:
    key = await begin(bridge, runs, "count")
    before = await events_of(runs, key)
    await runs.cancel(key)
    assert await events_of(runs, key) == before


async def test_waiting_runs_are_taken_when_there_is_room(bridge: Bridge, make_runs: MakeRuns) -> None:
    runs = make_runs(concurrent=1)
    await runs.open()
    first = await begin(bridge, runs, "hang")
    second = await begin(bridge, runs, "count")
    await begun(runs, first)
    async with asyncio.timeout(30):
        # A claim that waited when the first run took the slot takes the second one for a moment, and gives it back.
        while (record := await runs.status(second)) is None or record.state is not RunState.QUEUED:
            assert record is None or not record.entries
            await asyncio.sleep(0.01)
    await runs.cancel(first)
    assert text_of(await events_of(runs, second)) == "".join(WORDS)


# ---------------------------------------------------------------------- lost


async def test_a_process_that_is_killed(bridge: Bridge, run_engine: RunEngine, make_runs: MakeRuns) -> None:
    """Its readers elsewhere learn it within the time of the lease, and what it had opened is closed."""
    reader = make_runs(lease=LEASE)
    async with process(run_engine.url, LEASE) as other:
        key = await begin(bridge, reader, "hang")
        await begun(reader, key)
        await reader.open()
        subscription = subscribe(reader, key)
        other.send_signal(signal.SIGKILL)
        await asyncio.to_thread(other.wait)
        async with asyncio.timeout(30):
            async for _, _ in subscription:
                pass
        assert subscription.failure is not None
        assert subscription.failure.code is ErrorCode.RUN_LOST
    events = await events_of(reader, key)
    assert text_of(events) == "".join(WORDS[:5])


async def test_a_process_that_dies_with_many_runs(
    bridge: Bridge, run_engine: RunEngine, make_runs: MakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one ends them all when it looks, and not some of them with each look."""
    runs, store = make_runs(), run_engine.store()
    keys = [await begin(bridge, runs, "hang") for _ in range(250)]
    monkeypatch.setattr(runs._life, "grace", no_grace)
    for key in keys:
        await store.acquire(key, "dead", 0.0)
    assert len(await store.lost()) < len(keys), "more than a store tells at a time"
    await runs._find_lost()
    assert await store.lost() == []
    await asyncio.gather(*runs.tasks)
    for key in keys:
        record = await store.get(key)
        assert record is not None
        assert record.state is RunState.ENDED


async def test_a_process_that_stood_still(bridge: Bridge, run_engine: RunEngine, make_runs: MakeRuns) -> None:
    """It comes back when others have ended its run: what it still wants to say is not heard."""
    reader = make_runs(lease=LEASE)
    async with process(run_engine.url, LEASE) as other:
        key = await begin(bridge, reader, "hang")
        await begun(reader, key)
        await reader.open()
        other.send_signal(signal.SIGSTOP)
        assert await failure_of(reader, key) is ErrorCode.RUN_LOST
        before = await events_of(reader, key)
        other.send_signal(signal.SIGCONT)
        await reader.cancel(key)
        other.end_input()
        assert await asyncio.to_thread(other.wait, 30) == 0
        assert await events_of(reader, key) == before


async def test_a_long_run_keeps_its_lease(bridge: Bridge, make_runs: MakeRuns) -> None:
    runs, others = make_runs(lease=0.4), [make_runs(lease=0.4) for _ in range(2)]
    await runs.open()
    key = await begin(bridge, runs, "hang")
    await begun(runs, key)
    for other in others:
        await other.open()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.5):
            await events_of(others[0], key)
    await runs.cancel(key)
    await canceled(others[0], key)


async def test_a_server_that_stops(bridge: Bridge, make_runs: MakeRuns) -> None:
    runs, reader = make_runs(), make_runs()
    await runs.open()
    keys = [await begin(bridge, runs, "hang") for _ in range(3)]
    for key in keys:
        await begun(reader, key)
    await runs.close()
    for key in keys:
        assert await failure_of(reader, key) is ErrorCode.RUN_LOST
    waiting = await begin(bridge, reader, "count")
    await reader.open()
    assert text_of(await events_of(reader, waiting)) == "".join(WORDS), "what was not begun waits for the next one"


# ---------------------------------------------------------------------- a store that fails


@pytest.fixture
def go_on(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """The backend says half of its words, and the rest when this is set."""
    event = asyncio.Event()

    async def agent(request: object) -> AsyncIterator[str]:
        for word in WORDS[:10]:
            yield word
        await event.wait()
        for word in WORDS[10:]:
            yield word

    monkeypatch.setattr(bridge.routes[0].backends[0], "_agent", agent)
    return event


async def test_a_store_that_is_away_for_a_while(
    bridge: Bridge, run_engine: RunEngine, runs: Runs, go_on: asyncio.Event
) -> None:
    key = await begin(bridge, runs, "x")
    await begun(runs, key, "".join(WORDS[:10]))
    await run_engine.down()
    go_on.set()
    with pytest.raises(BridgeError) as caught:
        await runs.status(key)
    assert caught.value.code is ErrorCode.STORE_UNAVAILABLE
    await run_engine.up()
    assert text_of(await events_of(runs, key)) == "".join(WORDS)


async def test_a_store_that_is_away_for_too_long(
    bridge: Bridge, run_engine: RunEngine, make_runs: MakeRuns, go_on: asyncio.Event
) -> None:
    """The worker gives up, and with it the backend; when the store is back, the run is declared lost."""
    runs = make_runs(lease=LEASE, patience=0.2)
    await runs.open()
    key = await begin(bridge, runs, "x")
    await begun(runs, key, "".join(WORDS[:10]))
    await run_engine.down()
    go_on.set()
    await asyncio.wait(runs.tasks, timeout=30)
    await run_engine.up()
    assert await failure_of(runs, key) is ErrorCode.RUN_LOST
    assert text_of(await events_of(runs, key)) == "".join(WORDS[:10])


async def test_a_store_that_is_away_when_a_run_is_asked_for(bridge: Bridge, run_engine: RunEngine, runs: Runs) -> None:
    await run_engine.down()
    with pytest.raises(BridgeError) as caught:
        await begin(bridge, runs, "count")
    assert caught.value.code is ErrorCode.STORE_UNAVAILABLE
    await run_engine.up()
    assert text_of(await events_of(runs, await begin(bridge, runs, "count"))) == "".join(WORDS)


# ---------------------------------------------------------------------- the rest


async def test_a_run_is_deleted(bridge: Bridge, runs: Runs) -> None:
    key = await begin(bridge, runs, "hang")
    await begun(runs, key)
    assert await runs.delete(key) is False
    await runs.cancel(key)
    await canceled(runs, key)
    assert await runs.delete(key) is True
    assert await runs.status(key) is None


async def test_a_run_begins_where_it_was_created(bridge: Bridge, make_runs: MakeRuns) -> None:
    """Without the queue, as long as there is a slot."""
    runs, other = make_runs(concurrent=1), make_runs()
    await other.stop_taking()
    await runs.open()
    await runs.stop_taking()
    runs._taking = asyncio.current_task()  # it takes runs, but does not look into the queue
    first = await begin(bridge, runs, "hang")
    await begun(other, first)
    second = await begin(bridge, runs, "count")
    record = await runs.status(second)
    assert record is not None
    assert record.state is RunState.QUEUED
    runs._taking = None
    await runs.cancel(first)
    await canceled(other, first)


async def test_a_client_that_leaves_while_its_run_is_created(
    bridge: Bridge, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that is held by then is driven all the same."""
    created, go_on = asyncio.Event(), asyncio.Event()
    create = runs._store.create

    async def slow(*args: Any, **more: Any) -> Any:
        made = await create(*args, **more)
        created.set()
        await go_on.wait()
        return made

    monkeypatch.setattr(runs._store, "create", slow)
    starting = asyncio.create_task(begin(bridge, runs, "count", "r1"))
    await created.wait()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    go_on.set()
    assert text_of(await events_of(runs, RunKey("o", "/x", "t", "r1"))) == "".join(WORDS)


async def test_a_run_whose_creation_was_not_answered(
    bridge: Bridge, make_runs: MakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store says that it is away, and has created the run for this process nevertheless."""
    runs = make_runs(lease=0.4)
    await runs.open()
    create = runs._store.create

    async def broken(*args: Any, **more: Any) -> Any:
        await create(*args, **more)
        monkeypatch.undo()
        raise BridgeError("away", code=ErrorCode.STORE_UNAVAILABLE)

    monkeypatch.setattr(runs._store, "create", broken)
    with pytest.raises(BridgeError):
        await begin(bridge, runs, "count", "r1")
    assert text_of(await events_of(runs, await begin(bridge, runs, "count", "r1"))) == "".join(WORDS)


async def test_a_plan_of_a_newer_version_waits(bridge: Bridge, runs: Runs, run_engine: RunEngine) -> None:
    """A rolling upgrade: a process does not fail a run that it cannot read."""
    store, new = run_engine.store(), RunKey("o", "/x", "t", "new")
    await store.create(new, "f", "a form that is not known yet", format=FORMAT + 1)
    assert text_of(await events_of(runs, await begin(bridge, runs, "count"))) == "".join(WORDS)
    await runs.cancel(new)
    await runs._look_after()
    record = await runs.status(new)
    assert record is not None
    assert record.state is RunState.QUEUED
