"""The history in one SQLite file, without an event loop: the scripts of `bridge.stores.conversations`."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bridge.model.parts import Message
from bridge.stores import rows, schema
from bridge.stores.conversation_scripts import commit, fetch, head, names
from bridge.stores.conversation_store import Bounds, Conversation, key, stored_id
from bridge.stores.memory_budget import charging
from bridge.stores.scripts import Script, T, Work
from bridge.stores.sqlite_file import SQLiteConnection, run_script

_ALL = Bounds(sys.maxsize, sys.maxsize)


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
        self._connection: tuple[int, SQLiteConnection] | None = None

    def load(self, thread_id: str) -> Conversation | None:
        """Return the conversation; None if there is none."""
        where = key(self._owner, self._scope, thread_id)
        found = self._do(lambda: fetch(where, charging()))
        return rows.to_conversation(*found) if found is not None else None

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
        owner, scope = stored_id(self._owner, "owner"), stored_id(self._scope, "scope")
        return self._do(lambda: names(owner, scope))

    def _change(
        self, thread_id: str, wanted: Callable[[Conversation | None], list[Message] | None], keep: int | None = None
    ) -> bool:
        """Append what `wanted` returns for the conversation, which comes without messages; None changes nothing."""
        where = key(self._owner, self._scope, thread_id)

        def work() -> Script[bool]:
            stored = yield from head(where, charging())
            found = rows.to_conversation(*stored) if stored is not None else None
            new = wanted(found)
            if new is not None:
                yield from commit(where, rows.Change(found or Conversation(thread_id), new, keep), _ALL)
            return new is not None

        return self._do(work)

    def _do(self, work: Work[T]) -> T:
        with self._lock:
            if self._connection is None or self._connection[0] != os.getpid():
                # A connection of SQLite must not be used in a process that was forked off.
                connection = SQLiteConnection(self._path, (schema.HISTORY,), self._busy, "BEGIN IMMEDIATE")
                self._connection = os.getpid(), connection
                weakref.finalize(self, connection.close)
            return self._connection[1].run(partial(run_script, work))
