"""Scripts: a transaction written once does the same on every engine, or nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from bridge.errors import BridgeError, ErrorCode
from bridge.stores import StoreConflict, postgres
from bridge.stores.postgres import Postgres
from bridge.stores.schema import Schema
from bridge.stores.scripts import ALONE, UNSYNCED, Database, Rows, Script, execute, spelled
from bridge.stores.sqlite import SQLite
from bridge.stores.sqlite_file import SYNTAX, path_of
from tests.stores.conftest import Engine

THINGS = Schema(
    "test",
    (("CREATE TABLE things (id {serial}, name text UNIQUE, at double precision, note text)",),),
    (),
    needs=1,
)


def database(engine: Engine, *schemas: Schema) -> Database:
    if engine.name == "sqlite":
        return SQLite(path_of(engine.url), schemas or (THINGS,))
    return Postgres(engine.url, None, schemas or (THINGS,))


@pytest.fixture
async def things(engine: Engine) -> AsyncIterator[Database]:
    made = database(engine)
    await made.open()
    yield made
    await made.close()


def add(name: str, note: str | None = None) -> Script[int]:
    rows = yield (
        "INSERT INTO things (name, at, note) VALUES (:name, {wall}, :note) RETURNING id",
        {"name": name, "note": note},
    )
    return int(rows[0][0])


def names() -> Script[list[str]]:
    rows = yield "SELECT name FROM things ORDER BY id", {}
    return [name for (name,) in rows]


async def test_a_script_is_sent_rows_and_returns(things: Database) -> None:
    def two() -> Script[tuple[int, int]]:
        first = yield from add("a")
        second = yield from add("b")
        return first, second

    first, second = await things.write(two)
    assert second > first
    assert await things.read(names) == ["a", "b"]
    rows = await things.read(lambda: execute("SELECT name, note FROM things WHERE id = :id", id=second))
    assert rows == [("b", None)]


async def test_statements_without_rows(things: Database) -> None:
    def work() -> Script[list[Rows]]:
        sent = []
        for statement in ("DELETE FROM things", UNSYNCED):
            sent.append((yield statement, {}))
        return sent

    for rows in await things.write(work):
        assert rows == [] or rows == [("off",)]


async def test_a_statement_says_how_many_rows_it_changed(things: Database) -> None:
    def work() -> Script[list[int]]:
        counts = []
        for change in (
            "INSERT INTO things (name) SELECT :name WHERE NOT EXISTS (SELECT 1 FROM things WHERE name = :name)",
            "INSERT INTO things (name) SELECT :name WHERE NOT EXISTS (SELECT 1 FROM things WHERE name = :name)",
            "INSERT INTO things (name) VALUES (:other)",
            "UPDATE things SET note = 'x', at = {wall} WHERE name {in names (text)}",
            "DELETE FROM things WHERE name = :other",
            "DELETE FROM things WHERE name = :other",
        ):
            named = {"name": "a", "other": "b", "names": ["a", "b"]}
            found = yield f"{change} {{changed}}", named
            assert set(found) <= {(1,)}
            counts.append(len(found))
        return counts

    assert await things.write(work) == [1, 0, 1, 2, 1, 0]


async def test_what_raises_changes_nothing(things: Database) -> None:
    def refused() -> Script[None]:
        yield from add("a")
        raise StoreConflict

    with pytest.raises(StoreConflict):
        await things.write(refused)
    assert await things.read(names) == []


async def test_what_the_engine_refuses_is_the_stores_error(things: Database) -> None:
    await things.write(lambda: add("a"))
    with pytest.raises(BridgeError) as caught:
        await things.write(lambda: add("a"))
    assert caught.value.code is ErrorCode.STORE_UNAVAILABLE
    assert caught.value.message.startswith(f"the test store is not available ({things.engine}: ")
    assert caught.value.__context__ is None
    assert await things.read(names) == ["a"]


async def test_refusals_and_changes_at_the_same_time(things: Database, engine: Engine) -> None:
    def refuses(before: bool) -> Script[None]:
        if before:
            yield "SELECT 1", {}
            raise StoreConflict
        yield from add("undone")
        raise StoreConflict

    works: list[Callable[[], Script[Any]]] = [lambda n=n: add(f"n{n}") for n in range(10)]  # type: ignore[misc]
    works.insert(3, lambda: refuses(True))
    works.insert(6, lambda: refuses(False))
    works.insert(9, lambda: add("n0"))
    found = await asyncio.gather(*(things.write(work) for work in works), return_exceptions=True)
    conflicts = [each for each in found if isinstance(each, StoreConflict)]
    assert len(conflicts) == 2
    assert sum(isinstance(each, BridgeError) for each in found) == 3
    assert sorted(await things.read(names)) == sorted(f"n{n}" for n in range(10))


AWKWARD = [
    (1, "plain", 0.5, True),
    (2**62, 'quo"te \\ \n é \U0001f600', -1e300, False),
    (-1, None, None, None),
    (0, "", 0.0, True),
]
TABLE = "(n bigint, words text, size double precision, is_new boolean)"


async def test_lists_as_tables(things: Database) -> None:
    statement = f"SELECT n, words, size, is_new FROM {{rows given {TABLE}}} ORDER BY n"
    found = await things.read(lambda: execute(statement, given=AWKWARD))
    assert found == sorted(AWKWARD, key=lambda row: row[0])
    assert await things.read(lambda: execute(statement, given=[])) == []
    await things.write(lambda: add("a"))
    joined = "SELECT t.name, wanted.k FROM {rows wanted (name text, k bigint)} JOIN things t ON t.name = wanted.name"
    assert await things.read(lambda: execute(joined, wanted=[("a", 7), ("b", 8)])) == [("a", 7)]


async def test_many_rows_are_inserted(things: Database) -> None:
    rows = [(f"n{n}", float(n), words) for n, (_, words, *_) in enumerate(AWKWARD * 300)]
    statement = "INSERT INTO things (name, at, note) {values added (name text, at double precision, note text)}"
    await things.write(lambda: execute(statement, added=rows))
    assert await things.read(lambda: execute("SELECT name, at, note FROM things ORDER BY id")) == rows
    await things.write(lambda: execute(statement, added=[]))
    assert len(await things.read(names)) == len(rows)


async def test_a_statement_for_each_row_tells_how_many_it_changed(things: Database) -> None:
    await things.write(lambda: add("a"))
    await things.write(lambda: add("b"))
    statement = """INSERT INTO things (name, at, note) SELECT copy.name, t.at, copy.note FROM things t
        {each copy (name text, note text, source text)} WHERE t.name = copy.source"""
    rows = [("a1", 'quo"te', "a"), ("b1", None, "b"), ("none", "x", "absent"), ("a2", "é", "a")]
    assert await things.change(statement, {"copy": rows}) == 3
    copied = await things.read(lambda: execute("SELECT name, note FROM things WHERE name LIKE '_1' OR name = 'a2'"))
    assert sorted(copied) == [("a1", 'quo"te'), ("a2", "é"), ("b1", None)]
    assert await things.change(statement, {"copy": []}) == 0


async def test_the_same_value_twice_and_a_cast(things: Database) -> None:
    statement = "SELECT CAST(:a AS bigint) + CAST(:a AS bigint), CAST(:b AS text), {greatest}(CAST(:a AS bigint), 5)"
    assert await things.read(lambda: execute(statement, a=3, b="x:y::z")) == [(6, "x:y::z", 5)]


async def test_sizes_are_in_bytes(things: Database) -> None:
    await things.write(lambda: add("é\U0001f600x"))
    assert await things.read(lambda: execute("SELECT {bytes name} FROM things")) == [(7,)]


async def test_the_clock_of_ages_is_wall_time(things: Database) -> None:
    ((found,),) = await things.read(lambda: execute("SELECT {wall}"))
    assert abs(found - time.time()) < 60
    ((found,),) = await things.read(lambda: execute("SELECT {now}"))
    ((later,),) = await things.read(lambda: execute("SELECT {now}"))
    assert found <= later


async def test_one_at_a_time_under_a_name(things: Database, engine: Engine) -> None:
    """What two scripts read under the same name is what the other one has committed."""
    await things.write(lambda: add("count", "0"))

    def counts() -> Script[None]:
        yield ALONE, {"name": "counter"}
        ((note,),) = yield "SELECT note FROM things WHERE name = 'count'", {}
        yield "UPDATE things SET note = :note WHERE name = 'count'", {"note": str(int(note) + 1)}

    other = database(engine)
    await asyncio.gather(*((things, other)[n % 2].write(counts) for n in range(40)))
    assert await things.read(lambda: execute("SELECT note FROM things")) == [("40",)]
    await other.close()


async def test_a_name_is_the_same_whether_it_comes_first_or_later(things: Database, engine: Engine) -> None:
    """A lock that comes first is sent with the beginning of the transaction."""
    name = "\u00e9'; --$1:name\\"
    await things.write(lambda: add("count", "0"))

    def counts(first: bool) -> Script[None]:
        if not first:
            yield "SELECT 1", {}
        yield ALONE, {"name": name}
        ((note,),) = yield "SELECT note FROM things WHERE name = 'count'", {}
        yield "UPDATE things SET note = :note WHERE name = 'count'", {"note": str(int(note) + 1)}

    other = database(engine)
    works = [(things, other)[n % 2].write(lambda n=n: counts(n % 3 == 0)) for n in range(30)]  # type: ignore[misc]
    await asyncio.gather(*works)
    assert await things.read(lambda: execute("SELECT note FROM things")) == [("30",)]
    await other.close()


async def test_many_more_scripts_than_connections(things: Database) -> None:
    await asyncio.gather(*(things.write(lambda n=n: add(f"n{n}")) for n in range(100)))  # type: ignore[misc]
    found = await asyncio.gather(*(things.read(names) for _ in range(100)))
    assert {len(each) for each in found} == {100}


async def test_cancelled_at_any_moment_it_is_whole_or_nothing(things: Database) -> None:
    def pair(n: int) -> Script[None]:
        yield from add(f"{n}a")
        yield from add(f"{n}b")

    for n in range(30):
        task = asyncio.create_task(things.write(lambda n=n: pair(n)))  # type: ignore[misc]
        for _ in range(n):
            await asyncio.sleep(0.0002 if n % 2 else 0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await things.write(lambda: add("last"))
    found = await things.read(names)
    assert {f"{name[:-1]}{end}" for name in found[:-1] for end in "ab"} == set(found[:-1])


async def test_what_went_away_and_came_back(things: Database, engine: Engine) -> None:
    await things.write(lambda: add("a"))
    await engine.down()
    for work in (lambda: things.read(names), lambda: things.write(lambda: add("b")), database(engine).open):
        with pytest.raises(BridgeError) as caught:
            await work()
        assert caught.value.code is ErrorCode.STORE_UNAVAILABLE
        assert caught.value.__context__ is None
    await engine.up()
    assert await things.read(names) == ["a"]
    await things.write(lambda: add("b"))


async def test_after_close_it_is_closed_until_it_is_opened(things: Database) -> None:
    await things.close()
    await things.close()
    with pytest.raises(BridgeError, match="closed"):
        things.check_open()
    with pytest.raises(BridgeError, match="closed"):
        await things.read(names)
    await things.open()
    assert await things.read(names) == []


async def test_several_stores_in_one_database(engine: Engine) -> None:
    others = Schema("more", (("CREATE TABLE more (id {serial})",),), (), needs=1)
    both = database(engine, THINGS, others)

    def work() -> Script[None]:
        yield from add("a")
        yield "INSERT INTO more DEFAULT VALUES", {}

    await both.write(work)
    await both.close()
    assert await engine.execute("SELECT count(*) FROM more") == 1
    assert await engine.execute("SELECT count(*) FROM schema_version") == 2


def test_an_unknown_fragment_is_an_error() -> None:
    with pytest.raises(KeyError):
        spelled("SELECT {nothing}", SYNTAX)


def test_statements_of_which_each_has_the_rows_of_those_before() -> None:
    """One statement where an engine can do that."""
    text = "DELETE FROM a RETURNING id {then gone} INSERT INTO b SELECT id FROM {rows gone (id bigint)}"
    assert (
        spelled(text, postgres.SYNTAX).text
        == "WITH gone AS (DELETE FROM a RETURNING id) INSERT INTO b SELECT id FROM gone"
    )
    found = spelled(text, SYNTAX)
    ((name, first),) = found.steps
    assert (name, first.text) == ("gone", "DELETE FROM a RETURNING id")
    assert found.sets == ("gone",)


async def test_the_rows_of_one_statement_are_a_table_of_the_next(things: Database) -> None:
    for name in "abc":
        await things.write(lambda name=name: add(name, "old"))  # type: ignore[misc]
    rows = await things.write(
        lambda: execute(
            "DELETE FROM things WHERE name {in names (text)} RETURNING name"
            " {then gone} INSERT INTO things (name, note) SELECT 'no ' || gone.name, :note FROM {rows gone (name text)}"
            " RETURNING name {then new} SELECT new.name, x.n FROM {rows new (name text)}"
            " JOIN {rows x (name text, n bigint)} ON x.name = new.name ORDER BY new.name",
            names=["a", "c", "z"],
            note="new",
            x=[("no a", 1), ("no b", 2), ("no c", 3)],
        )
    )
    assert rows == [("no a", 1), ("no c", 3)]
    found = await things.read(lambda: execute("SELECT name, note FROM things ORDER BY name"))
    assert found == [("b", "old"), ("no a", "new"), ("no c", "new")]
