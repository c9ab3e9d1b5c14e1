"""No query of a store walks over a whole table, however the engine does it: their plans are asked for."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from bridge.model import Message, Text
from bridge.stores import Bounds, Conversation, open_conversations, open_runs, postgres, run_scripts
from bridge.stores.conversations import ConversationStore
from bridge.stores.run_records import Blocked, QueueLimits
from bridge.stores.scripts import execute, spelled
from tests.stores.conftest import Postgres
from tests.stores.test_run_store import DAY, begun, key

# As many rows as requests are under way.
SMALL = {"places"}


async def plans(file: Any, work: Callable[[], Awaitable[None]]) -> dict[str, list[str]]:
    """Each statement that `work` makes the file execute, with the steps of its plan."""
    told: list[str] = []
    lanes = (file.write, file.read)
    for lane in lanes:
        await lane(lambda db: db.set_trace_callback(told.append))
    await work()
    for lane in lanes:
        await lane(lambda db: db.set_trace_callback(None))
    kinds = ("SELECT", "UPDATE", "DELETE", "INSERT", "WITH")
    statements = dict.fromkeys(s for s in told if s.lstrip().upper().startswith(kinds))

    def explain(db: Any) -> dict[str, list[str]]:
        return {s: [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {s}")] for s in statements}

    found: dict[str, list[str]] = await file.read(explain)
    return found


def walks(found: dict[str, list[str]]) -> list[tuple[str, str]]:
    """What visits every row of a table or of an index, or sorts what it found.

    The values of a call (`json_each`) are visited and sorted.
    """
    out = []
    for statement, steps in found.items():
        values = "json_each" in statement
        tables = {"run", "runs"} if values else {"CONSTANT", "sqlite_sequence", "counted", "chain", "up"}
        for step in steps:
            scan = re.match(r"SCAN (\w+)(?! .*VIRTUAL)", step)
            is_bounded = "USING INDEX" in step and "LIMIT" in statement
            whole = scan and not is_bounded and (scan[1] in tables) is values
            if (whole and not any(name in statement for name in SMALL)) or ("TEMP B-TREE" in step and not values):
                out.append((statement, step))
    return out


async def test_runs_in_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = open_runs(f"sqlite:///{tmp_path}/runs.db")

    async def work() -> None:
        for n in range(4):
            run = key(f"r{n}", f"t{n % 2}")
            await begun(store, run)
            await store.append(run, "me", 0, ["a", "b"])
            await store.renew("me", 30)
            await store.read(run, 0, wait=0.001)
            await store.plan(run)
            await store.append(run, "me", 2, ["c"], end=True)
        await store.create(key("new"), "f", "p", alone=True, limits=QueueLimits(9, 9, 9))
        await store.create(key("held", "t3"), "f", "p", token="me", lease=30)
        monkeypatch.setattr(run_scripts, "_BATCH", 1)
        assert await store.claim("me", 30, blocked=Blocked({"o"}, {"z"})) is None
        monkeypatch.undo()
        assert await store.claim("me", 30)
        await store.latest("o", "s", "t0")
        await store.release(key("new"), "me")
        await store.lost()
        await store.take_lost("me", 30)
        await store.cancel(key("new"), "why")
        await store.canceled([key("new")])
        await store.pulse()
        await store.thread("o", "s", "t0")
        await store.thread("x", "s", "t0")
        await store._read(lambda: run_scripts.look([(1, 0)], [("o", "s", "t", "r")], True))
        await store.sweep(-DAY, -DAY)
        await begun(store, key("gone"))
        await store.append(key("gone"), "me", 0, ["z"], end=True)
        assert await store.delete(key("gone"))

    found = await plans(store._database.file, work)
    await store.close()
    assert len(found) > 45
    assert walks(found) == []


async def _none_left(owner: str, thread: str, older_than: float) -> int:
    return 0


async def use(store: ConversationStore) -> None:
    """Whatever a store of conversations does."""
    for n in range(4):
        conversation = Conversation(f"t{n}")
        async with store.turn("o", "s", f"t{n}") as held:
            for _ in range(3):
                await store.commit("o", "s", conversation, [Message("user", [Text("x")])] * 2, digest="d", keep=1)
            held.conversation.version = conversation.version
            await held.commit([])
            await store._places._renew()
    await store.load("o", "s", "t3")
    await store.find("o", "s", "d")
    await store.latest("o", "s")
    await store.owner("s", "t3")
    await store.delete("o", "s", "t3")
    for n in range(3):
        base = f"a{n - 1}" if n else None
        await store.commit("o", "s", Conversation(f"a{n}"), [Message("user", [Text("x")])], after=base)
    for thread in ("t1", "t9", "t8"):
        for scope in ("s", "r"):
            await store.note_file("o", scope, thread)
    await store.delete("o", "s", "t1")
    await store.prune_files(-DAY, _none_left)
    await store.load("o", "s", "a2")
    await store.load("o", "s", "a2", messages=False)
    for name in ("a1", "a0", "a2"):
        await store.delete("o", "s", name)
    await store.prune(-DAY)


BOUNDS = Bounds(messages=3, conversations=2)


async def test_conversations_in_sqlite(tmp_path: Path) -> None:
    store: Any = open_conversations(f"sqlite:///{tmp_path}/history.db", bounds=BOUNDS)
    found = await plans(store._database.file, lambda: use(store))
    await store.close()
    (by_digest,) = [steps for statement, steps in found.items() if "digest = '" in statement and "LIMIT 1" in statement]
    assert [step[step.index("(") :] for step in by_digest] == ["(owner=? AND scope=? AND digest=?)"]
    assert len(found) > 15
    assert walks(found) == []


async def test_conversations_in_postgresql(postgres_schema: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """With sequential scans and sorts forbidden the plan has one only where there is no other way."""
    store: Any = open_conversations(postgres_schema.url, bounds=BOUNDS)
    await store.open()
    asked: set[str] = set()
    query = postgres.query

    def noted(statement: str) -> postgres.Query:
        found = query(statement)
        asked.add(found.text)
        return found

    monkeypatch.setattr(postgres, "query", noted)
    await use(store)
    await store.close()
    kinds = ("SELECT", "UPDATE", "DELETE", "INSERT", "WITH")
    statements = {text for text in asked if text.startswith(kinds) and ("history_" in text or "places" in text)}
    assert len(statements) > 25
    db = await asyncpg.connect(postgres_schema.server, server_settings={"search_path": postgres_schema.schema})
    for setting in (
        "enable_seqscan = off",
        "enable_sort = off",
        "enable_hashjoin = off",
        "plan_cache_mode = force_generic_plan",
    ):
        await db.execute(f"SET {setting}")
    wrong = []
    for number, statement in enumerate(sorted(statements)):
        await db.execute(f"PREPARE asked{number} AS {statement}")
        count = max([0, *map(int, re.findall(r"\$(\d+)", statement))])
        nothing = f"({', '.join(['NULL'] * count)})" if count else ""
        plan = "\n".join(row[0] for row in await db.fetch(f"EXPLAIN EXECUTE asked{number}{nothing}"))
        if not set(re.findall(r"Seq Scan on (\w+)", plan)) <= SMALL:
            wrong.append(plan)
        if "updated_at <=" in statement:
            assert re.search(r"Index Cond: \(.*updated_at <=", plan), plan
    await db.close()
    assert wrong == []


async def test_an_append_in_postgresql_that_was_planned_on_empty_tables(postgres_schema: Postgres) -> None:
    """A process keeps the plan of its first append, which may be the first of all."""
    store: Any = open_runs(postgres_schema.url)
    await store.open()
    for statement, values in (
        (run_scripts.ADD_HELD, {"a": [(1, 1, "body", 1, "me")]}),
        (run_scripts.ADD_AND_END, run_scripts.held_and_ended([run_scripts.Append(1, 1, ["body"], True)], "me")),
    ):
        asked = f"EXPLAIN {spelled(statement, postgres.SYNTAX).text}"
        rows = await store._read(lambda asked=asked, values=values: execute(asked, **values))
        plan = "\n".join(row[0] for row in rows)
        assert "hashed" not in plan, plan
        assert "Seq Scan" not in plan, plan
        assert "runs_pkey" in plan, plan
        assert re.search(r"Index Cond: \(\(run = \w+\.run\) AND \(\"?position", plan), plan
    await store.close()
