"""Attachments in an S3-compatible store, by `obstore`, with presigned URLs.

`s3://bucket?endpoint=https://...&region=...&access_key_id=...&secret_access_key=...`; missing settings come from the
usual `AWS_*` environment variables.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, AsyncIterator, Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import unquote

from bridge.errors import BridgeError, ConfigError
from bridge.stores.attachments import (
    LIMIT,
    Attachment,
    Incoming,
    check_owner,
    folder_of,
    forbidden,
    mime_of,
    new_path,
    not_found,
    path_in,
)
from bridge.stores.base import unavailable

_T = TypeVar("_T")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SETTINGS = (
    "endpoint",
    "region",
    "access_key_id",
    "secret_access_key",
    "session_token",
    "virtual_hosted_style_request",
)
_PIECE = 5 * 2**20  # bytes of one part of an upload, the minimum of S3
_WIDE = 2  # concurrent parts, which bounds the memory of an upload


class S3Attachments:
    """`Attachments` in one bucket."""

    def __init__(self, bucket: str, settings: dict[str, str]) -> None:
        try:
            import obstore
            from obstore.store import S3Store
        except ImportError:
            raise ConfigError(
                "s3 needs the extra s3: pip install 'dialect-bridge[s3]'", key="stores.attachments"
            ) from None
        self._api = obstore
        self._bucket = bucket
        plain = settings.get("endpoint", "").startswith("http://")
        config: Any = dict(settings)
        self._store = S3Store(
            bucket,
            config=config,
            client_options={"allow_http": plain, "connect_timeout": "5s", "timeout": "60s"},
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=20)},
        )

    async def open(self) -> None:
        """Do nothing: the client connects when it is used."""

    async def close(self) -> None:
        """Do nothing: no connection is kept."""

    async def put(
        self, owner: str, thread: str, data: AsyncIterable[bytes], *, limit: int = LIMIT, mime: str | None = None
    ) -> Attachment:
        incoming = Incoming(data, limit, mime)
        await incoming.begin()
        path = new_path(owner, thread, incoming.extension)
        kind = mime_of(path)
        try:
            await self._api.put_async(
                self._store,
                path,
                aiter(incoming),
                attributes={"Content-Type": kind, "Content-Disposition": "inline"},
                chunk_size=_PIECE,
                max_concurrency=_WIDE,
            )
        except Exception as error:
            if incoming.error is not None:
                raise incoming.error from None
            raise _failed(error) from None
        return Attachment(self._bucket, path, kind, incoming.size)

    async def delete(self, owner: str, thread: str, older_than: float = 0.0) -> int:
        before = datetime.now(UTC) - timedelta(seconds=older_than)
        left = 0
        try:
            async for found in self._api.list(self._store, folder_of(owner, thread)):
                old = [each["path"] for each in found if each["last_modified"] <= before]
                left += len(found) - len(old)
                if old:
                    await self._api.delete_async(self._store, old)
        except Exception as error:
            raise _failed(error) from None
        return left

    async def stat(self, owner: str, bucket: str, path: str) -> Attachment:
        check_owner(owner, path)
        if bucket != self._bucket:
            raise not_found()
        found = await _shielded(self._api.head_async(self._store, path))
        return Attachment(bucket, path, mime_of(path), found["size"])

    async def fetch(self, bucket: str, path: str) -> tuple[Attachment, AsyncIterator[bytes]]:
        mime = mime_of(path)
        if bucket != self._bucket:
            raise not_found()
        found = await _shielded(self._api.get_async(self._store, path))
        return Attachment(bucket, path, mime, found.meta["size"]), _pieces(found)

    async def sign(self, attachment: Attachment, base: str, life: float) -> str:
        try:
            return await self._api.sign_async(self._store, "GET", attachment.path, timedelta(seconds=life))
        except Exception as error:
            raise _failed(error) from None

    def find(self, url: str) -> tuple[str, str] | None:
        path = path_in(url, self._bucket)
        return None if path is None else (self._bucket, path)

    def verify(self, bucket: str, path: str, expires: str, signature: str) -> None:
        """Not supported: this store's URLs are its own, and no other exists."""
        raise forbidden("This link is invalid or has expired.")


async def _shielded(asking: Awaitable[_T]) -> _T:
    """Return the result. Raises `BridgeError` for errors of the store."""
    try:
        return await asking
    except FileNotFoundError:
        raise not_found() from None
    except Exception as error:
        raise _failed(error) from None


async def _pieces(found: Any) -> AsyncIterator[bytes]:
    try:
        async for piece in found.stream(min_chunk_size=2**18):
            yield bytes(piece)
    except Exception as error:
        raise _failed(error) from None


def _failed(error: Exception) -> BridgeError:
    """Return the error without the store's text, which may contain addresses and credentials."""
    return unavailable("s3", type(error).__name__, "attachment")


def parse(url: str) -> tuple[str, dict[str, str]]:
    """Return bucket and settings of `s3://bucket?setting=value&...`. Raises `ConfigError` without the URL."""
    rest, _, query = url.removeprefix("s3://").partition("?")
    if not url.startswith("s3://") or not _BUCKET.fullmatch(rest):
        raise ConfigError("expected s3:// and the name of a bucket for the attachment store, and no path")
    settings = {}
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        if name not in _SETTINGS:
            raise ConfigError(f"expected settings of the attachment store among {', '.join(_SETTINGS)}")
        # Unlike in a form, "+" is no space here: keys often contain it.
        settings[name] = unquote(value)
    return rest, settings
