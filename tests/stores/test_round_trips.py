"""How often a turn of a conversation asks its database: statements are round trips to PostgreSQL, and most of what an
SQLite file costs in Python. A count, not a time: a change that adds work shows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bridge.model import Message, Text
from bridge.stores import Conversation, ConversationStore, postgres, sqlite_file

SAID = [Message("user", [Text("hi")]), Message("assistant", [Text("hello")])]


@pytest.fixture
def asked(history: ConversationStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first words of all statements, and `write` or `read` before those of each transaction.

    Locks and settings that PostgreSQL gets with BEGIN are a part of that.
    """
    told: list[str] = []
    database: Any = history._database

    def counting(name: str) -> Callable[..., Awaitable[Any]]:
        original = getattr(database, name)

        async def transaction(work: Any, **options: Any) -> Any:
            told.append(name)
            return await original(work, **options)

        return transaction

    for name in ("read", "write"):
        monkeypatch.setattr(database, name, counting(name))

    in_file, on_server = sqlite_file.run_statement, postgres._rows

    def run_in_file(db: Any, statement: str, values: Any = None) -> Any:
        if text := sqlite_file.spelled(statement, sqlite_file.SYNTAX).text:
            told.append(_start(text))
        return in_file(db, statement, values)

    def run_on_server(db: Any, statement: str, values: Any) -> Any:
        if text := postgres.query(statement).text:
            told.append(_start(text))
        return on_server(db, statement, values)

    monkeypatch.setattr(sqlite_file, "run_statement", run_in_file)
    monkeypatch.setattr(postgres, "_rows", run_on_server)
    return told


def _start(statement: str) -> str:
    words = statement.split()
    table = next((word for word in words if word.startswith(("places", "history_", "pg_", "set_config"))), "")
    return f"{words[0].lower()} {table.partition('(')[0]}"


async def _turn(history: ConversationStore, thread: str) -> None:
    async with history.turn("o", "s", thread) as held:
        await held.commit(SAID)


async def test_a_turn_is_two_transactions(history: ConversationStore, asked: list[str]) -> None:
    await _turn(history, "first")  # renews the lease of the process
    asked.clear()
    await _turn(history, "t")
    began, asked[:] = list(asked), []
    await _turn(history, "t")
    enter = ["write", "insert places", "select history_conversations"]
    leave = ["write", "delete places", "insert history_conversations", "insert history_messages"]
    assert began == [*enter, *leave]
    leave[2] = "update history_conversations"
    assert asked == [*enter, "select history_messages", *leave]


async def test_a_commit_without_a_turn_is_one(history: ConversationStore, asked: list[str]) -> None:
    new = Conversation("t")
    await history.commit("o", "s", new, SAID)
    await history.commit("o", "s", new, SAID)
    assert asked == [
        *("write", "insert history_conversations", "insert history_messages"),
        *("write", "update history_conversations", "insert history_messages"),
    ]
