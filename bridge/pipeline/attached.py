"""Own uploads in a request: a backend gets their bytes, or URLs that are still good when it looks."""

from __future__ import annotations

import base64
from dataclasses import replace

from bridge.errors import ErrorCode, RequestError
from bridge.model import Inline, Media, Message, Part, Request, Url
from bridge.stores import Attachments

LIFE = 3600.0
"""Seconds for which a signed URL is good."""


class Attached:
    """Reads or signs the images of one owner. `base`: the public URL of the route; None = bytes instead of URLs."""

    def __init__(self, store: Attachments, owner: str, base: str | None) -> None:
        self._store = store
        self._owner = owner
        self._base = base

    async def request(self, request: Request) -> Request:
        """The request as a backend can use it. Raises `BridgeError` (store_unavailable)."""
        return replace(request, messages=[await self.message(message) for message in request.messages])

    async def message(self, message: Message) -> Message:
        if not any(isinstance(part, Media) for part in message.parts):
            return message
        return replace(message, parts=[await self._part(part) for part in message.parts])

    async def _part(self, part: Part) -> Part:
        location = (
            self._store.find(part.source.url) if isinstance(part, Media) and isinstance(part.source, Url) else None
        )
        if location is None or not isinstance(part, Media):
            return part
        try:
            found = await self._store.stat(self._owner, *location)
            if self._base is not None:
                return replace(part, source=Url(await self._store.sign(found, self._base, LIFE)))
            found, pieces = await self._store.fetch(*location)
            data = b"".join([piece async for piece in pieces])
        except RequestError as error:
            if error.code not in (ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN):
                raise
            return part  # not ours, or not this user's: whoever looks there is told so
        return replace(part, source=Inline(base64.b64encode(data).decode()), mime=found.mime)
