"""Stores: conversations, runs and uploads.

Conversations: `open_conversations(url)`, see `bridge.stores.conversations`. Runs and their events: `open_runs(url)`,
see `bridge.stores.run_store`. Both are on SQLite or PostgreSQL. Uploads, in a folder or an object store:
`open_attachments(url)`, with the contract in `bridge.stores.attachments`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bridge.errors import ConfigError
from bridge.stores.attachments import Attachment, Attachments
from bridge.stores.conversation_store import LEASE, Bounds, Conversation, StoreConflict, StoreUnavailable
from bridge.stores.conversations import ConversationStore
from bridge.stores.rates import LocalRates, Rates
from bridge.stores.run_records import LeaseLost, Ownership, RunKey, RunRecord, RunState, ThreadBusy
from bridge.stores.run_store import RunStore
from bridge.stores.schema import Schema
from bridge.stores.scripts import Database
from bridge.stores.urls import check_postgres, describe

if TYPE_CHECKING:
    from bridge.stores.held_places import HeldPlaces
    from bridge.stores.places import Places

__all__ = [
    "LEASE",
    "Attachment",
    "Attachments",
    "Bounds",
    "Conversation",
    "ConversationStore",
    "Database",
    "LeaseLost",
    "LocalRates",
    "Ownership",
    "Rates",
    "RunKey",
    "RunRecord",
    "RunState",
    "RunStore",
    "StoreConflict",
    "StoreUnavailable",
    "ThreadBusy",
    "describe",
    "open_attachments",
    "open_conversations",
    "open_database",
    "open_held_places",
    "open_places",
    "open_rates",
    "open_runs",
]

_FOLDER = re.compile(r"file:(/|///+)?([^/].*)")


def open_database(url: str, setting: str, *schemas: Schema) -> Database:
    """Return the database for these stores at `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite:///:memory:`
    or `postgresql://...`. `setting` is the place in the configuration, as in "stores.history".

    It does not connect before `open`. Raises `ConfigError`, which never repeats the URL.
    """
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from bridge.stores.sqlite import SQLite
        from bridge.stores.sqlite_file import path_of

        return SQLite(path_of(url), schemas)
    if scheme in ("postgresql", "postgres"):
        try:
            from bridge.stores.postgres import Postgres
        except ImportError:
            needed = "postgresql needs the extra postgres: pip install 'dialect-bridge[postgres]'"
            raise ConfigError(needed, key=setting) from None
        return Postgres(*check_postgres(url, setting), schemas)
    raise ConfigError(f"expected sqlite:///... or postgresql://... for {setting}")


def open_conversations(url: str, *, bounds: Bounds | None = None, lease: float = LEASE) -> ConversationStore:
    """Return the conversations in the database at `url`: see `open_database`.

    The locks of a process that dies expire after `lease` seconds.
    """
    from bridge.stores.schema import HISTORY, PLACES

    return ConversationStore(open_database(url, "stores.history", HISTORY, PLACES), bounds=bounds, lease=lease)


def open_runs(url: str) -> RunStore:
    """Return the run store at `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite:///:memory:` or
    `postgresql://...`.

    It does not connect before `open`. Raises `ConfigError`, which never repeats the URL.
    """
    from bridge.stores.schema import RUNS

    return RunStore(open_database(url, "stores.runs", RUNS))


def open_rates(url: str) -> Rates:
    """Return the request counter for the run store at this URL: in PostgreSQL for all processes that share it, else in
    this process.

    It does not connect before it is used. Raises `ConfigError` like `open_runs`.
    """
    if url.partition(":")[0] in ("postgresql", "postgres"):
        from bridge.stores import schema
        from bridge.stores.rates import SharedRates

        return SharedRates(open_database(url, "stores.runs", schema.RATES))
    return LocalRates()


def open_places(url: str, line: str) -> Places | None:
    """Return the places of a line for the run store at this URL, which all processes that share it see; None if it is
    not in PostgreSQL.
    """
    if url.partition(":")[0] not in ("postgresql", "postgres"):
        return None
    from bridge.stores import schema
    from bridge.stores.places import Places

    return Places(open_database(url, "stores.runs", schema.PLACES), line)


def open_held_places(url: str, lease: float = LEASE) -> HeldPlaces:
    """Return the places that this process holds, which all processes that share the run store at this URL count."""
    from bridge.stores import schema
    from bridge.stores.held_places import HeldPlaces

    return HeldPlaces(open_database(url, "stores.runs", schema.PLACES), lease)


def open_attachments(url: str, *, secret: str | None = None) -> Attachments:
    """Return the attachment store at `file:///absolute/folder`, `file:relative/folder`, or `s3://bucket?...`,
    `gs://bucket?...` or `az://container?...` (see `bridge.stores.object_storage`).

    `secret` signs the URLs of a folder; without one, a secret is generated and stored there. Raises `ConfigError`,
    which never repeats the URL.
    """
    if found := _FOLDER.fullmatch(url):
        from bridge.stores.folder import FolderAttachments

        return FolderAttachments(("/" if found[1] else "") + found[2], secret=secret)
    if "://" in url and not url.startswith("file:"):
        from bridge.stores.object_storage import ObjectAttachments, parse

        return ObjectAttachments(*parse(url))
    raise ConfigError("expected file:///..., file:..., s3://..., gs://... or az://... for the attachment store")
