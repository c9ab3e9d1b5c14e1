"""Servers as machines have them: processes that share nothing but their stores, and that are killed.

Every event once and in order, every run with one end, whichever server is asked and whichever dies.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bridge.run.durable import RunKey, RunState
from bridge.run.durable.log import from_body
from bridge.stores import open_runs
from tests.dialects.agent_runs.helpers import (
    BASE,
    CHUNK,
    END,
    THREAD,
    Client,
    config,
    events_in,
    llm,
    run_input,
    text_in,
    types_in,
)
from tests.dialects.agent_runs.test_errors import PNG, image, problem
from tests.runs.servers import HEADERS, Server, alice, connected, id_of, machines
from tests.server.harness import Exchange, FakeBackend, ask, fake_backend
from tests.stores.conftest import Postgres
from tests.stores.s3 import bucket

pytestmark = pytest.mark.slow

LEASE = 2.0
"""Where a test waits for it to run out; it is ten seconds elsewhere."""
SEED = int(os.environ.get("BRIDGE_TEST_SEED") or random.randrange(10**6))
"""Of the cuts; what the servers make of their time is theirs."""


@dataclass
class Stores:
    """What the servers share. `spread`: several machines may share it."""

    urls: dict[str, Any]
    folder: Path
    spread: bool


@asynccontextmanager
async def spread(postgres: str, s3: str, folder: Path) -> AsyncIterator[Stores]:
    """What many machines share, with data of this test's own."""
    database = Postgres(postgres)
    await database.make()
    files = await bucket(s3, "uploads")
    yield Stores({"runs": database.url, "history": database.url, "attachments": files}, folder, True)
    await database.close()


@pytest.fixture
async def shared(postgres: str, s3_url: str, tmp_path: Path) -> AsyncIterator[Stores]:
    async with spread(postgres, s3_url, tmp_path) as stores:
        yield stores


@pytest.fixture(params=["shared", "sqlite"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    if request.param == "sqlite":
        yield Stores({}, tmp_path, False)
    else:
        postgres, s3 = (request.getfixturevalue(name) for name in ("postgres", "s3_url"))
        async with spread(postgres, s3, tmp_path) as stores:
            yield stores


def served(stores: Stores, backend: FakeBackend, lease: float = 10.0, **more: Any) -> dict[str, Any]:
    it = config(stores.folder, llm(backend), stores=stores.urls, poll_interval=1, connection_limit=1000, **more)
    it["stores"]["lease"] = lease
    return it


async def read(server: Server, run: str = "run-1", last: str = "", enough: bytes = b"") -> list[bytes]:
    """The frames of a run behind `last`, to its end or until one of them holds `enough`."""
    got = []
    async with aiohttp.ClientSession() as session, aclosing(connected(session, server, THREAD, run, last)) as stream:
        async for frame in stream:
            got.append(frame)
            if enough and enough in frame:
                break
    return got


async def cut_off(server: Server, got: list[bytes], first: asyncio.Event) -> None:
    """Reads a run into `got` until the server is gone."""
    async with aiohttp.ClientSession() as session:
        with suppress(aiohttp.ClientError):
            async for frame in connected(session, server, THREAD, "run-1"):
                got.append(frame)
                if b"one " in frame:
                    first.set()


async def test_the_server_of_a_reader_is_killed(shared: Stores) -> None:
    """He goes on at the other one, and has what a reader has who was never cut."""
    go_on = asyncio.Event()

    async def two_steps(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(CHUNK % b"one ")
        await go_on.wait()
        await exchange.send(CHUNK % b"two")
        await exchange.send(END)
        await exchange.end()

    async with fake_backend() as backend, machines(shared.folder, served(shared, backend), "a", "b") as (a, b):
        backend.plays(two_steps)
        await a.start()
        assert (await alice(a).start(run_input())).status == 202
        await read(a, enough=b"one ")  # so that it is this one which drives it
        await b.start()
        got: list[bytes] = []
        first = asyncio.Event()
        reading = asyncio.create_task(cut_off(b, got, first))
        await first.wait()
        await b.kill()
        await reading
        assert types_in(b"".join(got))[-1] == "TEXT_MESSAGE_CONTENT"
        go_on.set()
        got += await read(a, last=id_of(got[-1]))
        assert got == await read(a)
        assert (text_in(b"".join(got)), types_in(b"".join(got))[-1]) == ("one two", "RUN_FINISHED")
        assert len(backend.seen) == 1


async def hangs(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.send(CHUNK % b"one ")
    await exchange.left()


async def says_yes(exchange: Exchange) -> None:
    await exchange.stream(CHUNK % b"yes", END)


def lost(got: list[bytes]) -> bool:
    """Whether these are the whole of a run that ended with its driver, all that it had opened closed."""
    events = events_in(b"".join(got))
    assert [event["type"] for event in events[-3:]] == ["TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_ERROR"]
    return bool(events[-1]["code"] == "RUN_LOST")


async def test_the_server_that_drives_a_run_is_killed(shared: Stores) -> None:
    """Who reads it elsewhere is told, and whoever comes later reads the same."""
    async with fake_backend() as backend, machines(shared.folder, served(shared, backend, LEASE), "a", "b") as (a, b):
        backend.plays(hangs)
        await a.start()
        await alice(a).start(run_input())
        await read(a, enough=b"one ")
        await b.start()
        got: list[bytes] = []
        first = asyncio.Event()
        reading = asyncio.create_task(cut_off(b, got, first))
        await first.wait()
        await a.kill()
        await reading
        assert lost(got)
        await a.start()
        assert await read(a) == await read(b) == got
        backend.plays(says_yes)
        again = await alice(a).start(run_input(run="run-2"))
        assert again.json["created"] is False
        assert text_in(b"".join(await read(b, "run-2"))) == "yes"
        shown = (await alice(b).get("/history")).json["messages"]
        assert [message["content"] for message in shown] == ["text", "text", "yes"], "half an answer is none"
        assert len(backend.seen) == 2


async def test_the_only_server_is_killed_and_started_again(tmp_path: Path) -> None:
    """What had ended is there byte for byte, what went on is lost, and what waited for its turn is run."""
    alone = Stores({}, tmp_path, False)
    async with fake_backend() as backend:
        it = served(alone, backend, LEASE, server={"limits": {"concurrent": 1}})
        async with machines(tmp_path, it, "a") as (a,):
            backend.plays(says_yes)
            await a.start()
            await alice(a).start(run_input(run="run-0"))
            before = await read(a, "run-0")
            backend.plays(hangs)
            await alice(a).start(run_input())
            got: list[bytes] = []
            first = asyncio.Event()
            reading = asyncio.create_task(cut_off(a, got, first))
            await first.wait()
            await alice(a).start(run_input(run="run-2"))
            await a.kill()
            await reading
            backend.plays(says_yes)
            await a.start()
            got += await read(a, last=id_of(got[-1]))
            assert lost(got)
            assert got == await read(a)
            assert before == await read(a, "run-0")
            assert text_in(b"".join(await read(a, "run-2"))) == "yes"
            assert len(backend.seen) == 3


async def test_each_server_knows_what_the_other_did(shared: Stores) -> None:
    """Threads, runs, history and images belong to their user at every server."""
    async with fake_backend() as backend, machines(shared.folder, served(shared, backend), "a", "b") as (a, b):
        await asyncio.gather(a.start(), b.start())
        here, there, bob = alice(a), alice(b), Client(b.url, "bob")
        stored = (await here.send("/attachments", image())).json["attachment"]
        where = f"/attachments/signed-url?bucket={stored['bucket']}&path={stored['path']}"
        signed = await there.get(where)
        assert signed.status == 200
        for url in (stored["url"], signed.json["url"]):
            assert (await ask("GET", url)).body == PNG
        problem(await bob.get(where), 403, "FORBIDDEN")
        problem(await bob.send("/attachments", image()), 403, "FORBIDDEN")

        backend.plays(says_yes)
        asked = {"type": "binary", "mimeType": "image/png", "url": stored["url"]}
        said = [{"id": "u1", "role": "user", "content": [{"type": "text", "text": "look"}, asked]}]
        made = await here.start(run_input(messages=said))
        assert made.json["created"] is True
        again = await there.start(run_input(messages=said))
        assert (again.status, again.json) == (202, {**made.json, "created": False})
        problem(await there.start(run_input("another")), 409, "AGENT_RUN_CONFLICT")
        await read(b)
        shown = (await there.get("/history")).json["messages"]
        assert [message["content"] for message in shown] == ["look", "yes"]
        assert (await ask("GET", shown[0]["attachments"][0]["url"])).body == PNG
        problem(await bob.get(f"/history?threadId={THREAD}"), 403, "FORBIDDEN")
        problem(await bob.events(), 403, "FORBIDDEN")

        backend.plays(hangs)
        await here.start(run_input(run="run-2"))
        await read(a, "run-2", enough=b"one ")
        problem(await bob.cancel("run-2"), 403, "FORBIDDEN")
        driven = backend.seen[1]
        assert (await (here if driven.headers["x-server"] == "b" else there).cancel("run-2")).status == 202
        await driven.gone.wait()
        over = await read(b, "run-2")
        assert over == await read(a, "run-2")
        assert events_in(b"".join(over))[-1]["code"] == "RUN_CANCELLED"
        assert len(backend.seen) == 2


# ---------------------------------------------------------------------- many at once

RUNS, THREADS, AT_ONCE, KILLS = 120, 24, 25, (40, 80)
"""`KILLS`: the runs, counted as they begin, in whose middle their driver is killed. They are further apart than
`AT_ONCE`, so that no driver dies of the one before, and enough come after the last: some are lost before they begin.
"""
SAID = 10
"""Words of each run."""


@dataclass
class Storm:
    """A backend at the pace of a model, and who is to die."""

    drivers: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    victims: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    begun: int = 0

    async def play(self, exchange: Exchange) -> None:
        run, driver = exchange.seen.json["messages"][-1]["content"], exchange.seen.headers["x-server"]
        self.drivers[run].append(driver)
        self.begun += 1
        last = self.begun in KILLS
        await exchange.head()
        for n in range(SAID):
            if last and n == SAID // 2:
                self.victims.put_nowait(driver)
                await exchange.left()
            await exchange.send(CHUNK % words(run)[n].encode())
            await asyncio.sleep(0.01)
        await exchange.send(END)
        await exchange.end()

    async def strike(self, servers: list[Server]) -> None:
        """Kills the servers whose turn it is, and puts new ones in their places."""
        for _ in KILLS:
            name = await self.victims.get()
            server = next(server for server in servers if server.name == name)
            await server.kill()
            await server.start()


def words(run: str) -> list[str]:
    return [f"{run}.{n} " for n in range(SAID)]


class Restless:
    """A client whose connections break all the time, by its own doing and by that of servers."""

    def __init__(self, session: aiohttp.ClientSession, servers: list[Server], dice: random.Random) -> None:
        self.session, self.servers, self.dice = session, servers, dice
        self.cuts = 0

    async def start(self, thread: str, run: str) -> None:
        message = {"id": f"ask-{run}", "role": "user", "content": run}
        body = run_input(run=run, threadId=thread, messages=[message])
        while True:
            with suppress(aiohttp.ClientError):
                url = f"{self.dice.choice(self.servers).url}{BASE}/runs"
                async with self.session.post(url, json=body, headers=HEADERS) as response:
                    assert response.status == 202, await response.text()
                    return
            await asyncio.sleep(0.05)

    async def read(self, thread: str, run: str) -> list[bytes]:
        """The run to its end, frame by frame as they were seen."""
        got: list[bytes] = []
        while not got or types_in(got[-1])[0] not in ("RUN_FINISHED", "RUN_ERROR"):
            server, patience = self.dice.choice(self.servers), self.dice.randint(1, 12)
            stream = connected(self.session, server, thread, run, id_of(got[-1]) if got else "")
            async with aclosing(stream):
                try:
                    async for frame in stream:
                        got.append(frame)
                        patience -= 1
                        if not patience:
                            break
                except aiohttp.ClientError:
                    await asyncio.sleep(0.05)
            self.cuts += 1
        return got


def check(run: str, got: list[bytes]) -> str:
    """One run as it was seen: its terminal event, before which everything is in order."""
    ids = [tuple(map(int, id_of(frame).split("-"))) for frame in got]
    assert ids == sorted(set(ids)), run
    events, text = events_in(b"".join(got)), text_in(b"".join(got))
    kinds = [event["type"] for event in events]
    assert {event["runId"] for event in events} == {run}
    assert kinds[0] == "RUN_STARTED", run
    assert [kind for kind in kinds if kind in ("RUN_FINISHED", "RUN_ERROR")] == kinds[-1:], run
    if kinds[-1] == "RUN_FINISHED":
        assert text == "".join(words(run))
        return kinds[-1]
    assert "".join(words(run)).startswith(text)
    code: str = events[-1]["code"]
    return code


async def told_once(client: Client, places: dict[str, str], ends: dict[str, str]) -> None:
    """The history of each thread has each question, and each answer that came to its end, once."""
    said: Counter[str] = Counter()
    for thread in set(places.values()):
        shown = (await client.get(f"/history?threadId={thread}")).json["messages"]
        said.update(message["content"] for message in shown)
    answers = {run: "".join(words(run)) for run in places}
    assert all(said[run] == 1 for run in places)
    assert all(said[answer] == 1 for run, answer in answers.items() if ends[run] == "RUN_FINISHED")
    # Who died between its last word and its end had kept the answer.
    assert all(said[answer] <= 1 for answer in answers.values())
    # A crowded machine may keep a living process from its lease: of such a run it keeps what was said so far.
    broken = [answers[run] for run in places if ends[run] != "RUN_FINISHED"]
    for text in set(said) - {*places, *answers.values()}:
        assert any(answer.startswith(text) for answer in broken), text


async def at_rest(stores: Stores, places: dict[str, str]) -> None:
    """Each run has ended, once, and nobody is left who would drive it."""
    store = open_runs(stores.urls.get("runs", f"sqlite:///{stores.folder}/bridge.db"))
    for run, thread in places.items():
        key = RunKey("alice", BASE, thread, run)
        record, entries = await store.get(key), await store.read(key)
        assert record is not None
        assert (record.state, record.entries, record.last) == (RunState.ENDED, len(entries), entries[-1].number)
        assert [from_body(entry.body).ends for entry in entries] == [False] * (len(entries) - 1) + [True]
    assert await store.lost() == []
    assert await store.claim("nobody", LEASE) is None
    await store.close()


async def test_many_runs_while_readers_leave_and_servers_die(stores: Stores) -> None:
    sys.stdout.write(f"BRIDGE_TEST_SEED={SEED}\n")  # shown when it fails
    dice, storm = random.Random(SEED), Storm()
    places = {f"run-{n}": f"thread-{n % THREADS}" for n in range(RUNS)}
    free = asyncio.Semaphore(AT_ONCE)
    async with (
        fake_backend() as backend,
        machines(stores.folder, served(stores, backend, LEASE), *("ab" if stores.spread else "a")) as servers,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session,
    ):
        backend.plays(storm.play)
        await asyncio.gather(*(server.start() for server in servers))
        clients = {run: Restless(session, servers, random.Random(dice.random())) for run in places}

        async def live(run: str) -> list[bytes]:
            async with free:
                await clients[run].start(places[run], run)
                return await clients[run].read(places[run], run)

        striking = asyncio.create_task(storm.strike(servers))
        seen = dict(zip(places, await asyncio.gather(*map(live, places)), strict=True))
        await striking

        ends = {run: check(run, got) for run, got in seen.items()}
        counted = Counter(ends.values())
        assert set(counted) == {"RUN_FINISHED", "RUN_LOST"}, counted
        assert len(KILLS) <= counted["RUN_LOST"] <= len(KILLS) * AT_ONCE
        assert max(map(len, storm.drivers.values())) == 1, "a run that was begun is never begun again"
        assert sum(client.cuts for client in clients.values()) > RUNS

        for run, got in seen.items():
            server = dice.choice(servers)
            whole = [frame async for frame in connected(session, server, places[run], run)]
            assert whole == got, run
        await told_once(alice(servers[-1]), places, ends)
        await at_rest(stores, places)
