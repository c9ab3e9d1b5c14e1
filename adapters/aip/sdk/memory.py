"""`ContextMemory`: what an agent keeps of its tasks (specification; page, section 9), in one SQLite file.

It is on the program's side and never on the wire. A memory with the same agent and folder finds after a restart what
was written before; `read` gives it back, and so does `dbs[task_id].all()`, as plain data.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from adapters.aip.messages import AgentMessage, ToolResponse
from bridge.codec.jsontext import dumps, loads

from .data import ToolRequest

Kept = AgentMessage | ToolRequest | ToolResponse

_KINDS: dict[str, type[AgentMessage] | type[ToolRequest] | type[ToolResponse]] = {
    "AgentMessage": AgentMessage,
    "ToolRequest": ToolRequest,
    "ToolResponse": ToolResponse,
}
_TABLES = """
CREATE TABLE IF NOT EXISTS tasks (id INTEGER PRIMARY KEY, task_id TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS messages (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, task INTEGER NOT NULL REFERENCES tasks (id), kind TEXT NOT NULL,
    arguments BLOB, body BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS messages_of_task ON messages (task, seq);
"""
_BUSY = 5.0
"""Seconds to wait for another process that writes."""
_T = TypeVar("_T")


class ContextMemory:
    """The memory of one agent below `save_root`. Its methods do small, blocking reads and writes of a local file."""

    def __init__(self, agent_id: str, save_root: str | Path = "./.cache") -> None:
        self.agent_id = agent_id
        # As in a URL, so that no two ids share a name; no name begins with a dot, which could lead elsewhere.
        name = quote(agent_id, safe="")
        name = f"%2E{name[1:]}" if name.startswith(".") else name
        self.save_dir = Path(save_root).absolute() / (name or "%")
        self.dbs: Mapping[str, Task] = _Tasks(self)

    def create(self, task_id: str) -> bool:
        """False when the task exists, or cannot be made."""
        insert = "INSERT OR IGNORE INTO tasks (task_id) VALUES (?)"
        try:
            return self._do(lambda db: db.execute(insert, (task_id,)).rowcount == 1)
        except (sqlite3.Error, OSError):
            return False

    def write(self, task_id: str, message: Kept) -> bool:
        """False when the task is unknown, or writing fails. Raises `TypeError` for what is none of the three."""
        kind = next((name for name, known in _KINDS.items() if isinstance(message, known)), None)
        if kind is None:
            what = type(message).__name__
            raise TypeError(f"message: expected an AgentMessage, ToolRequest or ToolResponse, got {what}")
        # A map of the wire makes every value a text; the values themselves are kept beside it.
        arguments = dumps(message.arguments) if isinstance(message, ToolRequest) else None
        insert = "INSERT INTO messages (task, kind, arguments, body) SELECT id, ?, ?, ? FROM tasks WHERE task_id = ?"
        row = (kind, arguments, message.to_bytes(), task_id)
        try:
            return self._do(lambda db: db.execute(insert, row).rowcount == 1)
        except (sqlite3.Error, OSError):
            return False

    def clear(self, task_id: str) -> bool:
        """Empties the task, which stays known; False when it is unknown."""

        def work(db: sqlite3.Connection) -> bool:
            found = db.execute("SELECT id FROM tasks WHERE task_id = ?", (task_id,)).fetchone()
            if found is not None:
                db.execute("DELETE FROM messages WHERE task = ?", found)
            return found is not None

        try:
            return self._do(work)
        except (sqlite3.Error, OSError):
            return False

    def read(self, task_id: str) -> list[Kept]:
        """What was written, in order; nothing of an unknown task."""
        query = (
            "SELECT kind, arguments, body FROM messages WHERE task = (SELECT id FROM tasks WHERE task_id = ?)"
            " ORDER BY seq"
        )
        rows = self._do(lambda db: db.execute(query, (task_id,)).fetchall())
        return [_kept(*row) for row in rows]

    def tasks(self) -> list[str]:
        """The tasks there are, oldest first."""
        return [name for (name,) in self._do(lambda db: db.execute("SELECT task_id FROM tasks ORDER BY id").fetchall())]

    def _do(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """One transaction. A connection for each is cheap beside what a program does between two of them, and no
        thread, process or forgotten `close` is ever in the way.
        """
        self.save_dir.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.save_dir / "memory.db", timeout=_BUSY)) as db:
            db.executescript(_TABLES)
            with db:
                return work(db)


def _kept(kind: str, arguments: bytes | None, body: bytes) -> Kept:
    message = _KINDS[kind].from_bytes(body)
    if isinstance(message, ToolRequest) and arguments is not None:
        message.arguments = loads(arguments)
    return message


class Task:
    """One task's store, as far as programs read one."""

    def __init__(self, memory: ContextMemory, task_id: str) -> None:
        self._memory = memory
        self.task_id = task_id

    def all(self) -> list[dict[str, Any]]:
        """Every message as plain data; binary content stays bytes."""
        return [plain(message) for message in self._memory.read(self.task_id)]

    def __len__(self) -> int:
        return len(self._memory.read(self.task_id))


class _Tasks(Mapping[str, Task]):
    """Task id -> its store."""

    def __init__(self, memory: ContextMemory) -> None:
        self._memory = memory

    def __getitem__(self, task_id: str) -> Task:
        if task_id not in self._memory.tasks():
            raise KeyError(task_id)
        return Task(self._memory, task_id)

    def __iter__(self) -> Iterator[str]:
        return iter(self._memory.tasks())

    def __len__(self) -> int:
        return len(self._memory.tasks())


def plain(message: Any) -> Any:
    """A message as dicts, lists and plain values; what is not set stands as None."""
    if hasattr(message, "__dataclass_fields__"):
        return {name: plain(getattr(message, name)) for name in message.__dataclass_fields__ if name != "FIELDS"}
    return [plain(each) for each in message] if isinstance(message, list) else message
