"""Attachments in a local folder, which several processes of one machine may share; the bridge signs the URLs."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from bridge.stores.attachments import (
    LIMIT,
    Attachment,
    Incoming,
    check_owner,
    content_of,
    content_path,
    folder_of,
    mime_of,
    new_path,
    not_found,
)
from bridge.stores.conversation_store import unavailable
from bridge.stores.signing import Signer, kept_secret

_T = TypeVar("_T")
BUCKET = "attachments"
_PIECE = 2**18  # bytes per write and read
_STALE = 86400.0  # seconds after which an unfinished upload is deleted


class FolderAttachments:
    """`Attachments` below `path`. `secret` signs URLs; without one, a secret is generated and stored in the folder.

    `clock` returns seconds since 1970.
    """

    def __init__(self, path: str, *, secret: str | None = None, clock: Callable[[], float] = time.time) -> None:
        # Absolute, since the working directory may change later.
        self._root = Path(path).absolute()
        self._parts = self._root / ".parts"  # no path of an image begins with a dot
        self._secret = secret.encode() if secret else None
        self._clock = clock
        self._signer: Signer | None = Signer(self._secret, clock) if self._secret else None

    async def open(self) -> None:
        await _thread(self._prepare)

    async def close(self) -> None:
        """Do nothing: no file is kept open."""

    async def probe(self) -> None:
        await _thread(self._prepare)
        await _thread(_write_and_delete, self._parts / uuid.uuid4().hex)

    async def put(
        self, owner: str, thread: str, data: AsyncIterable[bytes], *, limit: int = LIMIT, mime: str | None = None
    ) -> Attachment:
        incoming = Incoming(data, limit, mime)
        await incoming.begin()
        path = new_path(owner, thread, incoming.extension)
        part = self._parts / uuid.uuid4().hex
        try:
            await _thread(self._prepare)
            waiting = bytearray()
            async for piece in incoming:
                waiting += piece
                if len(waiting) >= _PIECE:
                    await _thread(_append, part, bytes(waiting))
                    waiting.clear()
            await _thread(_append, part, bytes(waiting), self._root / path)
        except BaseException:
            await _thread(part.unlink, True)
            raise
        return Attachment(BUCKET, path, mime_of(path), incoming.size)

    async def delete(self, owner: str, thread: str, older_than: float = 0.0) -> int:
        return await _thread(_delete, self._root / folder_of(owner, thread), self._clock() - older_than)

    async def stat(self, owner: str, bucket: str, path: str) -> Attachment:
        check_owner(owner, path)
        return await self._found(bucket, path)

    async def fetch(self, bucket: str, path: str) -> tuple[Attachment, AsyncIterator[bytes]]:
        attachment = await self._found(bucket, path)
        return attachment, self._pieces(self._root / path, attachment.size)

    async def sign(self, attachment: Attachment, base: str, life: float) -> str:
        signer = await self._opened()
        where = content_path(attachment.bucket, attachment.path)
        return f"{base.rstrip('/')}{where}?{signer.query(attachment.bucket, attachment.path, life)}"

    def find(self, url: str) -> tuple[str, str] | None:
        return content_of(url)

    def verify(self, bucket: str, path: str, expires: str, signature: str) -> None:
        if self._signer is None:
            raise unavailable("folder", "not open", "attachment")
        self._signer.verify(bucket, path, expires, signature)

    # ------------------------------------------------------------------ in threads

    async def _opened(self) -> Signer:
        if self._signer is None:
            await self.open()
        assert self._signer is not None
        return self._signer

    def _prepare(self) -> None:
        """Create the folder and the secret, and delete unfinished uploads of crashed processes."""
        self._parts.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._signer is not None:
            return
        for part in self._parts.iterdir():
            if part.stat().st_mtime < self._clock() - _STALE:
                part.unlink(missing_ok=True)
        self._signer = Signer(kept_secret(self._root / ".secret"), self._clock)

    async def _found(self, bucket: str, path: str) -> Attachment:
        mime = mime_of(path)
        if bucket != BUCKET:
            raise not_found()
        size = await _thread(_size, self._root / path)
        if size is None:
            raise not_found()
        return Attachment(bucket, path, mime, size)

    async def _pieces(self, path: Path, size: int) -> AsyncIterator[bytes]:
        for start in range(0, size, _PIECE):
            yield await _thread(_read, path, start)


async def _thread(work: Callable[..., _T], *args: object) -> _T:
    """Run `work` in a thread. If the task is canceled, wait for the thread first.

    Raises `BridgeError` (store_unavailable) for an `OSError`.
    """
    running = asyncio.get_running_loop().run_in_executor(None, work, *args)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
    except OSError as error:
        raise unavailable("folder", type(error).__name__, "attachment") from None


def _write_and_delete(path: Path) -> None:
    path.write_bytes(b"probe")
    path.unlink()


def _append(part: Path, data: bytes, path: Path | None = None) -> None:
    """Append to a file. With `path`, the file is complete: sync it to disk and rename it to `path`."""
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as file:
        file.write(data)
        if path is not None:
            file.flush()
            os.fsync(file.fileno())
    if path is not None:
        try:
            _rename(part, path)
        except FileNotFoundError:  # its folder was empty, and has just been deleted
            _rename(part, path)


def _rename(part: Path, path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part.rename(path)


def _delete(folder: Path, before: float) -> int:
    """Delete the files that are as old, and the folder and its parent if they are empty then."""
    left = 0
    with suppress(FileNotFoundError):
        for file in folder.iterdir():
            with suppress(FileNotFoundError):
                if file.stat().st_mtime <= before:
                    file.unlink()
                else:
                    left += 1
        with suppress(OSError):
            folder.rmdir()
            folder.parent.rmdir()
    return left


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _read(path: Path, start: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(_PIECE)
