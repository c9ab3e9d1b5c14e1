"""Uploaded images: accepting them, signing their URLs, and serving signed URLs."""

from __future__ import annotations

from collections.abc import AsyncIterable
from dataclasses import replace

from aiohttp import web

from bridge.server.requests.writing import StreamedResponse
from bridge.stores import Attachment, Attachments
from bridge.stores.attachments import LIMIT, NoteFile

LIFE = 3600.0
"""Seconds for which a signed URL is good."""
CONTENT = "/attachments/content/{bucket}/{path:.+}"
"""The path of `AttachmentService.content` in surfaces: GET, public, since the signature grants access."""


class AttachmentService:
    """The images of one route. `limit` in bytes; `life` and `slow_reader` (None = no limit) in seconds. `note` is
    called before a thread gets a file.

    `public_url` is how clients reach the server, without the mount path; empty = as each request reached it.
    """

    def __init__(
        self,
        store: Attachments,
        mount: str,
        *,
        public_url: str | None = None,
        limit: int = LIMIT,
        life: float = LIFE,
        slow_reader: float | None = 60.0,
        note: NoteFile | None = None,
    ) -> None:
        self._store = store
        self._mount = mount.rstrip("/")
        self._public_url = public_url
        self.limit = limit
        self._life = life
        self._slow_reader = slow_reader
        self._note = note

    def base(self, http: web.Request) -> str:
        """The public URL of the mount path."""
        return (self._public_url or f"{http.scheme}://{http.host}").rstrip("/") + self._mount

    async def upload(self, owner: str, thread: str, data: AsyncIterable[bytes], base: str) -> Attachment:
        """Stores an image, and signs its URL.

        Raises `RequestError`: too_large, invalid_request (`details["reason"]`: `bridge.stores.attachments.EMPTY`,
        `UNSUPPORTED_TYPE`); `BridgeError`: store_unavailable.
        """
        if self._note is not None:
            await self._note(owner, thread)
        return await self._signed(await self._store.put(owner, thread, data, limit=self.limit), base)

    async def sign(self, owner: str, bucket: str, path: str, base: str) -> Attachment:
        """An image of this owner with a fresh URL. Raises `BridgeError`: forbidden, not_found, store_unavailable."""
        return await self._signed(await self._store.stat(owner, bucket, path), base)

    async def _signed(self, attachment: Attachment, base: str) -> Attachment:
        return replace(attachment, url=await self._store.sign(attachment, base, self._life))

    async def content(self, http: web.Request) -> web.StreamResponse:
        """Answer a signed URL. Raises `BridgeError`: forbidden, not_found, store_unavailable."""
        bucket, path = http.match_info["bucket"], http.match_info["path"]
        self._store.verify(bucket, path, http.query.get("expires", ""), http.query.get("sig", ""))
        attachment, pieces = await self._store.fetch(bucket, path)
        response = StreamedResponse(
            headers={
                "content-type": attachment.mime,
                "content-length": str(attachment.size),
                "content-disposition": "inline",
                "x-content-type-options": "nosniff",
                # Opened as a page, it is an image without scripts.
                "content-security-policy": "default-src 'none'; sandbox",
                "cache-control": "private, max-age=300",
            },
            slow_reader=self._slow_reader,
        )
        await response.prepare(http)
        async for piece in pieces:
            await response.write(piece)
        await response.write_eof()
        return response
