"""Attachments in an object store, by `obstore`, with presigned URLs. Needs the extra `objects`.

| URL | service | settings |
|---|---|---|
| `s3://bucket?...` | Amazon S3, and what speaks its protocol | `endpoint`, `region`, `access_key_id`, ... |
| `gs://bucket?...` | Google Cloud Storage | `service_account` (a file), `base_url`, ... |
| `az://container?...` | Azure Blob Storage | `account_name`, `account_key`, `endpoint`, ... |

Missing settings come from the usual environment variables (`AWS_*`, `GOOGLE_*`, `AZURE_*`), or from the machine.
"""

from __future__ import annotations

import re
import uuid
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
from bridge.stores.conversation_store import unavailable

_T = TypeVar("_T")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_SETTINGS = {
    "s3": (
        "endpoint",
        "region",
        "access_key_id",
        "secret_access_key",
        "session_token",
        "virtual_hosted_style_request",
    ),
    "gs": ("base_url", "service_account", "service_account_key", "application_credentials"),
    "az": (
        "endpoint",
        "account_name",
        "account_key",
        "sas_key",
        "client_id",
        "client_secret",
        "tenant_id",
        "federated_token_file",
    ),
}
SCHEMES = tuple(_SETTINGS)
_STORES = {"s3": "S3Store", "gs": "GCSStore", "az": "AzureStore"}
_PIECE = 5 * 2**20  # bytes of one part of an upload, the minimum of S3
_WIDE = 2  # concurrent parts, which bounds the memory of an upload
_STATUS = re.compile(r"status code: (\d{3})")
_REFUSALS = {"401": "UnauthenticatedError", "403": "PermissionDeniedError", "404": "NotFoundError"}
_UNREACHABLE = re.compile(r"error sending request|dns error|connection refused|timed? ?out", re.IGNORECASE)


class ObjectAttachments:
    """`Attachments` in one bucket; `scheme` names its service. Raises `ConfigError` for settings that do not fit."""

    def __init__(self, scheme: str, bucket: str, settings: dict[str, str]) -> None:
        try:
            import obstore
            from obstore import store as stores
        except ImportError:
            raise ConfigError(
                f"{scheme} needs the extra objects: pip install 'dialect-bridge[objects]'", key="stores.attachments"
            ) from None
        self._api = obstore
        self._scheme = scheme
        self._bucket = bucket
        self._probed = False
        plain = settings.get("endpoint", settings.get("base_url", "")).startswith("http://")
        kind: Any = getattr(stores, _STORES[scheme])
        try:
            self._store: Any = kind(
                bucket,
                config=dict(settings),
                client_options={"allow_http": plain, "connect_timeout": "5s", "timeout": "60s"},
                retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=20)},
            )
        except Exception as error:
            reason = type(error).__name__
        else:
            return
        # Outside of the handler: the library's own text may name keys.
        raise ConfigError(f"the settings of the {scheme} store do not fit ({reason})", key="stores.attachments")

    async def open(self) -> None:
        """Do nothing: the client connects when it is used."""

    async def close(self) -> None:
        """Do nothing: no connection is kept."""

    async def probe(self) -> None:
        name = "bridge-probe"
        try:
            if not self._probed:
                name = f"bridge-probe-{uuid.uuid4().hex}"
                await self._api.put_async(self._store, name, b"probe")
                await self._api.delete_async(self._store, name)
                self._probed = True
            # One listing costs less than writing, and tells as well whether keys, bucket and network are right.
            async for _ in self._api.list(self._store, name, chunk_size=1):
                break
        except Exception as error:
            raise self._failed(error) from None

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
            raise self._failed(error) from None
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
            raise self._failed(error) from None
        return left

    async def stat(self, owner: str, bucket: str, path: str) -> Attachment:
        check_owner(owner, path)
        if bucket != self._bucket:
            raise not_found()
        found = await self._shielded(self._api.head_async(self._store, path))
        return Attachment(bucket, path, mime_of(path), found["size"])

    async def fetch(self, bucket: str, path: str) -> tuple[Attachment, AsyncIterator[bytes]]:
        mime = mime_of(path)
        if bucket != self._bucket:
            raise not_found()
        found = await self._shielded(self._api.get_async(self._store, path))
        return Attachment(bucket, path, mime, found.meta["size"]), self._pieces(found)

    async def sign(self, attachment: Attachment, base: str, life: float) -> str:
        try:
            return await self._api.sign_async(self._store, "GET", attachment.path, timedelta(seconds=life))
        except Exception as error:
            raise self._failed(error) from None

    def find(self, url: str) -> tuple[str, str] | None:
        path = path_in(url, self._bucket)
        return None if path is None else (self._bucket, path)

    def verify(self, bucket: str, path: str, expires: str, signature: str) -> None:
        """Not supported: this store's URLs are its own, and no other exists."""
        raise forbidden("This link is invalid or has expired.")

    async def _shielded(self, asking: Awaitable[_T]) -> _T:
        """Return the result. Raises `BridgeError` for errors of the store."""
        try:
            return await asking
        except FileNotFoundError:
            raise not_found() from None
        except Exception as error:
            raise self._failed(error) from None

    async def _pieces(self, found: Any) -> AsyncIterator[bytes]:
        try:
            async for piece in found.stream(min_chunk_size=2**18):
                yield bytes(piece)
        except Exception as error:
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> BridgeError:
        """Return the error without the store's text, which may contain addresses and credentials."""
        text = str(error)
        if isinstance(error, FileNotFoundError):
            name = "NotFoundError"
        elif status := _STATUS.search(text):
            name = _REFUSALS.get(status[1], type(error).__name__)
        else:
            name = "UnreachableError" if _UNREACHABLE.search(text) else type(error).__name__
        return unavailable(self._scheme, name, "attachment")


def parse(url: str) -> tuple[str, str, dict[str, str]]:
    """Return scheme, bucket and settings of `s3://bucket?setting=value&...`. Raises `ConfigError` without the URL."""
    scheme, _, after = url.partition("://")
    bucket, _, query = after.partition("?")
    if scheme not in _SETTINGS or not _BUCKET.fullmatch(bucket):
        raise ConfigError(
            f"expected {', '.join(f'{each}://' for each in SCHEMES)} and the name of a bucket or container for the"
            " attachment store, and no path"
        )
    settings = {}
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        if name not in _SETTINGS[scheme]:
            raise ConfigError(f"expected settings of the {scheme} store among {', '.join(_SETTINGS[scheme])}")
        # Unlike in a form, "+" is no space here: keys often contain it.
        settings[name] = unquote(value)
    return scheme, bucket, settings
