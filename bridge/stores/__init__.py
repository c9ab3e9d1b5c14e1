"""What is kept between requests: conversations on SQLite or PostgreSQL, uploaded images in a folder or on S3.

`open_history(url)` and `open_attachments(url)` are the ways in; `bridge.stores.base` and `bridge.stores.attachments`
are the contracts.
"""

from __future__ import annotations

from bridge.errors import ConfigError
from bridge.stores.attachments import Attachment, Attachments
from bridge.stores.base import LEASE, Bounds, Conversation, History, StoreConflict

__all__ = [
    "LEASE",
    "Attachment",
    "Attachments",
    "Bounds",
    "Conversation",
    "History",
    "StoreConflict",
    "open_attachments",
    "open_history",
]


def open_history(url: str, *, bounds: Bounds | None = None, lease: float = LEASE) -> History:
    """The history at `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite:///:memory:` or `postgresql://...`.

    Nothing is connected yet: `await history.open()` does that, and `close` ends it. `lease` is after how many seconds
    the turns of a dead process are given to others. Raises `ConfigError`, which never repeats the URL.
    """
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from bridge.stores.sqlite import SQLiteHistory, path_of

        return SQLiteHistory(path_of(url), bounds=bounds, lease=lease)
    if scheme in ("postgresql", "postgres"):
        from bridge.stores.postgres import PostgresHistory

        return PostgresHistory(url, bounds=bounds, lease=lease)
    raise ConfigError("expected sqlite:///... or postgresql://... for the history store")


def open_attachments(url: str, *, secret: str | None = None) -> Attachments:
    """The images at `file:///relative/folder`, `file:////absolute/folder` or `s3://bucket?endpoint=...`.

    `secret` signs the URLs of a folder; without one it is made and kept there. Raises `ConfigError`, never repeating
    the URL.
    """
    scheme, _, rest = url.partition("://")
    if scheme == "file" and rest.startswith("/") and rest.strip("/"):
        from bridge.stores.folder import FolderAttachments

        return FolderAttachments(rest[1:], secret=secret)
    if scheme == "s3":
        from bridge.stores.s3 import S3Attachments, parse

        return S3Attachments(*parse(url))
    raise ConfigError("expected file:///... or s3://... for the attachment store")
