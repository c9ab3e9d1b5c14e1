"""The history in one SQLite file, without an event loop: statements of `bridge.stores.sqlite_history`."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bridge.model.parts import Message
from bridge.stores import rows, schema
from bridge.stores.base import Bounds, Conversation, key, plain_id, stored_id
from bridge.stores.sqlite_file import Connection
from bridge.stores.sqlite_history import commit, head, load

_T = TypeVar("_T")
_ALL = Bounds(sys.maxsize, sys.maxsize, sys.maxsize)


class SQLiteConversations:
    """The conversations of one owner in one scope, with blocking methods; several processes may use the file.

    Each method is one transaction, and raises what a `ConversationStore` raises. Messages are never dropped. Instances
    may be used in any thread and after a fork; the file is closed with the last reference.
    """

    def __init__(self, path: str | Path, owner: str, scope: str, *, busy: float = 5.0) -> None:
        self._path = str(path)
        self._owner = owner
        self._scope = scope
        self._busy = busy
        self._lock = threading.Lock()
        self._connection: tuple[int, Connection] | None = None

    def load(self, thread_id: str) -> Conversation | None:
        """Return the conversation; None if there is none."""
        where = key(self._owner, self._scope, thread_id)
        return self._do(lambda db: load(db, where))

    def create(self, thread_id: str) -> bool:
        """Create an empty conversation. Return False if there is one."""
        return self._change(thread_id, lambda found: [] if found is None else None)

    def append(self, thread_id: str, new: list[Message]) -> bool:
        """Add messages to the conversation. Return False if there is none."""
        return self._change(thread_id, lambda found: new if found is not None else None)

    def clear(self, thread_id: str) -> bool:
        """Remove all messages from the conversation, which stays. Return False if there is none."""
        return self._change(thread_id, lambda found: [] if found is not None else None, keep=0)

    def threads(self) -> list[str]:
        """Return the conversations, oldest first."""
        where = (stored_id(self._owner, "owner"), stored_id(self._scope, "scope"))
        query = "SELECT thread_id FROM history_conversations WHERE owner = ? AND scope = ? ORDER BY id"
        return self._do(lambda db: [plain_id(name) for (name,) in db.execute(query, where)])

    def _change(
        self, thread_id: str, wanted: Callable[[Conversation | None], list[Message] | None], keep: int | None = None
    ) -> bool:
        """Append what `wanted` returns for the conversation, which comes without messages; None changes nothing."""
        where = key(self._owner, self._scope, thread_id)

        def work(db: sqlite3.Connection) -> bool:
            found = head(db, where)
            new = wanted(found)
            if new is not None:
                commit(db, where, rows.Change(found or Conversation(thread_id), new, keep), _ALL)
            return new is not None

        return self._do(work)

    def _do(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        with self._lock:
            if self._connection is None or self._connection[0] != os.getpid():
                # A connection of SQLite must not be used in a process that was forked off.
                connection = Connection(self._path, (schema.HISTORY,), self._busy, "BEGIN IMMEDIATE")
                self._connection = os.getpid(), connection
                weakref.finalize(self, connection.close)
            return self._connection[1].run(work)
