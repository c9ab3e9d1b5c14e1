"""The scripts of threads with files: they tell when the files of a thread may go.

A thread is noted before its file is stored, and forgotten after its files are deleted, so that a crash leaves no file
that nobody knows. The files of equal thread ids of one owner, in several scopes, are in one place, and go together.
"""

from __future__ import annotations

from typing import TypeAlias

from bridge.stores.conversation_scripts import Key, named
from bridge.stores.conversation_store import plain_id
from bridge.stores.scripts import Script

Idle: TypeAlias = tuple[Key, float | None]
"""A thread whose files may go, as it is stored, and the age of those that go; None = of any age."""

_BATCH = 100
_KEY = "owner = :owner AND thread_id = :thread AND scope = :scope"
_DELETED = -1.0
"""The time of a thread whose conversation was deleted."""

_NOTE = """INSERT INTO history_files (owner, thread_id, scope, updated_at) VALUES (:owner, :thread, :scope, {wall})
    ON CONFLICT (owner, thread_id, scope) DO UPDATE SET updated_at = excluded.updated_at"""
_OLD = f"""SELECT owner, scope, thread_id, updated_at FROM history_files
    WHERE updated_at <= {{wall}} - CAST(:age AS double precision) ORDER BY updated_at LIMIT {_BATCH} {{skip}}"""
_USED = """SELECT h.owner, h.scope, h.thread_id, c.updated_at
    FROM {rows h (owner text, scope text, thread_id text)} JOIN history_conversations c
    ON c.owner = h.owner AND c.scope = h.scope AND c.thread_id = h.thread_id"""
_LATER = f"""UPDATE history_files SET updated_at = {{greatest}}(CAST(:at AS double precision),
    {{wall}} - CAST(:half AS double precision)) WHERE {_KEY}"""
_OTHERS = "SELECT 1 FROM history_files WHERE owner = :owner AND thread_id = :thread AND scope <> :scope LIMIT 1"
_DROP = f"DELETE FROM history_files WHERE {_KEY} AND NOT updated_at > {{wall}} - CAST(:age AS double precision)"
_MARK = f"UPDATE history_files SET updated_at = {_DELETED} WHERE {_KEY}"


def note(where: Key) -> Script[None]:
    """The thread gets a file now."""
    yield _NOTE, named(where)


def mark(where: Key) -> Script[None]:
    """The conversation of the thread was deleted: its files go with the next look."""
    yield _MARK, named(where)


def idle(age: float) -> Script[tuple[list[Idle], bool]]:
    """Return some threads without a conversation that got no file for `age` seconds, and whether there may be more.

    Threads with a conversation are looked at again when that is as old.
    """
    old = yield _OLD, {"age": age}
    if not old:
        return [], False
    used = yield _USED, {"h": [row[:3] for row in old]}
    for *where, at in used:
        yield _LATER, {**named((where[0], where[1], where[2])), "at": at, "half": age / 2}
    living = {tuple(row[:3]) for row in used}
    found: list[Idle] = []
    for owner, scope, thread, at in old:
        where_ = (owner, scope, thread)
        if where_ in living:
            continue
        if (yield _OTHERS, named(where_)):
            yield _DROP, {**named(where_), "age": age}
        else:
            found.append((where_, None if at < 0 else age))
    return found, len(old) == _BATCH


def drop(where: Key, age: float) -> Script[None]:
    """Forget a thread whose files are deleted, unless it has got another one meanwhile."""
    yield _DROP, {**named(where), "age": age}


def plain(where: Key) -> tuple[str, str]:
    """Return owner and thread id."""
    return plain_id(where[0]), plain_id(where[2])
