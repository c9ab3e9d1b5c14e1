"""Transactions, written once for every SQL engine.

A script is one transaction: a generator that yields statements, is sent their rows and returns a result. It does no
I/O, so that the same script runs in the thread of an SQLite file and on a connection of PostgreSQL, and scripts are
combined with `yield from`:

    def rename(owner: str, name: str) -> Script[bool]:
        found = yield "UPDATE things SET name = :name, at = {wall} WHERE owner = :owner RETURNING id", {...}
        return bool(found)

    await database.write(lambda: rename("o", "n"))

A database may run a script again from its beginning when the engine undid its first attempt: it must have no effects
outside of the transaction, and `write` is called with a function that makes the generator. A script that raises changes
nothing. It is to refuse (raise a `BridgeError`) before it has changed anything where it can: that costs the others in
the same transaction of an SQLite file nothing.

Values are `:name`. Rows are tuples; SQLite returns 0 and 1 for booleans. PostgreSQL infers the type of a value from its
place; where it cannot, write `CAST(:name AS bigint)`, which all engines take. Differences between the engines are
fragments:

| fragment | SQLite | PostgreSQL |
|---|---|---|
| `{serial}` | `INTEGER PRIMARY KEY AUTOINCREMENT` | `bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY` |
| `{now}` | the machine's monotonic clock (`bridge.stores.lease_clock`): leases | the server's clock |
| `{wall}` | seconds since 1970: ages | the server's clock |
| `{lock}` | | `FOR UPDATE` |
| `{skip}` | | `FOR UPDATE SKIP LOCKED` |
| `{greatest}` | `max` | `greatest` |
| `{json}` | `text` | `jsonb` |
| `{bytes COLUMN}` | the length of a text in bytes of UTF-8 | |
| `{in NAME (bigint)}` | `IN` the value NAME, a list of values | `= ANY`, which an index always serves |
| `{rows NAME (a bigint, b text)}` | the value NAME, a list of tuples, as a table NAME | |
| `{values NAME (a bigint, b text)}` | the list as the end of an INSERT; no other value in the statement | |
| `{each NAME (a bigint, b text)}` | ends FROM: runs for each tuple, `NAME.a` is its value | one more table |
| `{changed}` | ends a statement that writes: its rows are a `(1,)` for each row that it changed | `RETURNING 1` |
| `{then NAME}` | the statements before and after it, one by one | one statement of all |
| `{concurrently}` | | `CONCURRENTLY`; see `bridge.stores.schema` |
| `{clustered}` | `WITHOUT ROWID`: a table in the order of its primary key | |
| `{volatile}` | | `UNLOGGED`: a table that a crash of the server empties |

`A {then NAME} B` is one round trip for several statements. B may have `{rows NAME (a bigint, ...)}`, which are the rows
that A returned; the rows of the last one are those of all. B must not depend on what else A has changed, and on no
lock that A has waited for: in PostgreSQL all of them see the state of before the first one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Rows: TypeAlias = list[tuple[Any, ...]]
Values: TypeAlias = Mapping[str, Any]
Statement: TypeAlias = tuple[str, Values]
Script: TypeAlias = Generator[Statement, Rows, T]
Work: TypeAlias = Callable[[], Script[T]]

ALONE = "{alone}"
"""No other script that yields this with the same `name` runs until this one ends. SQLite has one writer anyway."""
UNSYNCED = "{unsynced}"
"""A crash of a PostgreSQL server may undo this script, which does not wait for the disk."""
VERSION = "{version}"
"""One row with a number that changes whenever another connection has changed the SQLite file; PostgreSQL: no row."""


class Database(Protocol):
    """A database that carries out scripts. It connects at the first use, and again after a failure.

    Every method raises `BridgeError` (store_unavailable) if the engine fails, with a message that contains neither
    address nor credentials. A database belongs to the event loop in which it is first used.
    """

    engine: str
    """Its name in messages: `sqlite` or `postgresql`."""
    place: str | None
    """The same for databases whose scripts may share a transaction; None if no other one has the same tables."""

    async def open(self) -> None:
        """Connect, and create or migrate the tables, however long that takes. Without it, the first call does so.

        Raises `ConfigError` if a newer version created the tables.
        """

    async def close(self) -> None:
        """Disconnect. May be called twice; `open` opens again."""

    def check_open(self) -> None:
        """Raise `BridgeError` (store_unavailable) after `close`."""

    async def read(self, work: Work[T], *, snapshot: bool = True) -> T:
        """Return the result of a script that changes nothing. All its statements see the same state.

        Without `snapshot`, each may see another one, which saves PostgreSQL a transaction.
        """

    async def write(self, work: Work[T], *, first: bool = False) -> T:
        """Return the result of a script, once it is committed. If it is to be `first`, it is done before all that wait.

        After an error other than the script's own, it may have been committed nevertheless. A canceled call has
        happened completely or not at all.
        """

    async def change(self, statement: str, values: Values) -> int | None:
        """Return how many rows a statement that is a transaction of its own has changed, or has returned; None, and
        nothing is done, where only scripts are possible. It is carried out once, but may have been committed after an
        error.
        """

    async def shrink(self) -> None:
        """Give the space of deleted rows back to the file system, where the engine does not do that by itself."""


def execute(statement: str, **values: Any) -> Script[Rows]:
    """Return the rows of one statement: a script of its own."""
    return (yield statement, values)


class Syntax(Protocol):
    """How an engine spells fragments."""

    fragments: Mapping[str, str]

    def size(self, column: str) -> str:
        """Return the length of a column in bytes."""

    def among(self, name: str, kind: str) -> str:
        """Return `{in}`: what tells whether the column before it is in the value `name`, a list of this type."""

    def table(self, name: str, columns: Sequence[tuple[str, str]]) -> str:
        """Return `{rows}`: a table from the value `name`, with columns and their types."""

    def values(self, name: str, columns: Sequence[tuple[str, str]]) -> str:
        """Return `{values}`."""

    def each(self, name: str, columns: Sequence[tuple[str, str]]) -> tuple[str, Mapping[str, str]]:
        """Return `{each}`, and what stands for a column; by default the column of the table `name`."""

    def joined(self, steps: Sequence[tuple[str, str]], last: str) -> str | None:
        """Return the statement of `{then}`, from the names and texts of all steps but the last; None if there is none,
        and each step is a statement.
        """


@dataclass(frozen=True, slots=True)
class Spelled:
    """A statement in an engine's words. `sets` are the values that `{in}` and `{rows}` name.

    `many` is that of `{values}` or `{each}`. `clocks` are those of `{now}` and `{wall}` that it reads. `counts`: it has
    `{changed}`. `steps` are statements to execute before it, by the names that their rows have as values.
    """

    text: str
    sets: tuple[str, ...] = ()
    many: str | None = None
    clocks: tuple[str, ...] = ()
    counts: bool = False
    steps: tuple[tuple[str, Spelled], ...] = ()


_FRAGMENT = re.compile(r"\{(\w+)(?:\s+(\w+)(?:\s+\(([^)]*)\))?)?\}")

_CLOCKS = frozenset({"now", "wall"})
_THEN = re.compile(r"\{then (\w+)\}")
_COLUMN = re.compile(r"\b[a-z_]+\.[a-z_]+\b")


@lru_cache(1024)
def spelled(statement: str, syntax: Syntax) -> Spelled:
    """Return the statement with its fragments replaced. Raises `KeyError` for an unknown one."""
    *before, last = _THEN.split(statement)
    names, texts = before[1::2], before[::2]
    text = syntax.joined(list(zip(names, texts, strict=True)), last) if names else None
    if text is not None:
        return _spelled(text, syntax, names)
    steps = tuple((name, _spelled(text, syntax)) for name, text in zip(names, texts, strict=True))
    return replace(_spelled(last, syntax), steps=steps)


def _spelled(statement: str, syntax: Syntax, tables: Sequence[str] = ()) -> Spelled:
    """Return a statement without `{then}`. `tables` are `{rows}` that are tables of the engine's already."""
    sets: list[str] = []
    many: list[str] = []
    plain: dict[str, None] = {}
    renamed: dict[str, str] = {}

    def replaced(found: re.Match[str]) -> str:
        kind, name, columns = found.groups()
        if name is None:
            plain[kind] = None
            return syntax.fragments[kind]
        if kind == "bytes":
            return syntax.size(name)
        if kind == "rows" and name in tables:
            return name
        if kind == "in":
            sets.append(name)
            return syntax.among(name, columns)
        typed = [(column, type_) for column, _, type_ in (each.strip().partition(" ") for each in columns.split(","))]
        {"rows": sets, "values": many, "each": many}[kind].append(name)
        if kind == "each":
            table, names = syntax.each(name, typed)
            renamed.update({f"{name}.{column}": spelling for column, spelling in names.items()})
            return table
        return syntax.table(name, typed) if kind == "rows" else syntax.values(name, typed)

    text = _FRAGMENT.sub(replaced, statement)
    if renamed:
        text = _COLUMN.sub(lambda found: renamed.get(found[0], found[0]), text)
    clocks = tuple(kind for kind in plain if kind in _CLOCKS)
    return Spelled(text.strip(), tuple(sets), many[0] if many else None, clocks, "changed" in plain)
