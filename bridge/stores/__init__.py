"""What is kept between requests: the conversation history, on SQLite or PostgreSQL.

`open_history(url)` is the way in; `bridge.stores.base` is the contract.
"""

from __future__ import annotations

from bridge.errors import ConfigError
from bridge.stores.base import LEASE, Bounds, Conversation, History, StoreConflict

__all__ = ["LEASE", "Bounds", "Conversation", "History", "StoreConflict", "open_history"]


def open_history(url: str, *, bounds: Bounds | None = None, lease: float = LEASE) -> History:
    """The history at `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite:///:memory:` or `postgresql://...`.

    Nothing is connected yet: `await history.open()` does that, and `close` ends it. `lease` is after how many seconds
    the turns of a dead process are given to others. Raises `ConfigError`, which never repeats the URL.
    """
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from bridge.stores.sqlite import SQLiteHistory
        from bridge.stores.sqlite_file import path_of

        return SQLiteHistory(path_of(url), bounds=bounds, lease=lease)
    if scheme in ("postgresql", "postgres"):
        from bridge.stores.postgres import PostgresHistory

        return PostgresHistory(url, bounds=bounds, lease=lease)
    raise ConfigError("expected sqlite:///... or postgresql://... for the history store")
