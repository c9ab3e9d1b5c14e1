"""Stored files: backends get the bytes of those in a request, or URLs that are valid long enough; media of an answer
that a client can get only by URL are stored.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

from bridge.contract import Capabilities, Feature, Support
from bridge.errors import BridgeError, ErrorCode, RequestError
from bridge.model import (
    ContentAdded,
    Event,
    Inline,
    Media,
    Message,
    Part,
    Request,
    ToolResulted,
    Url,
    mime_of,
)
from bridge.stores import Attachments
from bridge.stores.attachments import NoteFile
from bridge.stores.memory_budget import base64_size, charging

log = logging.getLogger("bridge.run")

LIFE = 3600.0
"""Seconds for which a signed URL is good."""


def has_media(request: Request) -> bool:
    """Return whether a message of a request has media that could be files of ours."""
    return any(Media in map(type, message.parts) for message in request.messages)


class Attached:
    """Reads or signs the images of one owner. `base`: the public URL of the route; None = bytes instead of URLs."""

    def __init__(self, store: Attachments, owner: str, base: str | None) -> None:
        self._store = store
        self._owner = owner
        self._base = base

    async def request(self, request: Request) -> Request:
        """The request as a backend can use it. Raises `BridgeError` (store_unavailable, overloaded)."""
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
            charging()(("file", *location), base64_size(found.size))
            found, pieces = await self._store.fetch(*location)
            data = b"".join([piece async for piece in pieces])
        except RequestError as error:
            if error.code not in (ErrorCode.NOT_FOUND, ErrorCode.FORBIDDEN):
                raise
            return part  # not the bridge's, or not this user's: the server reports that
        return replace(part, source=Inline(base64.b64encode(data).decode()), mime=found.mime)


class LinkedMedia:
    """Stores the media of one answer that `front` carries only as text, and puts URLs in their place.

    `base`: the public URL that serves them. `note` is called before the first one is stored.
    """

    def __init__(
        self,
        store: Attachments,
        owner: str,
        thread: str,
        base: str,
        front: Capabilities,
        note: NoteFile | None = None,
    ) -> None:
        self._store = store
        self._owner = owner
        self._thread = thread
        self._base = base
        self._front = front
        self._note = note

    async def events(self, events: list[Event]) -> list[Event]:
        """The events with URLs. What cannot be stored stays as it came."""
        return [await self._event(e) if isinstance(e, (ContentAdded, ToolResulted)) else e for e in events]

    async def _event(self, event: ContentAdded | ToolResulted) -> Event:
        if isinstance(event, ContentAdded):
            return replace(event, part=await self._part(event.part))
        return replace(event, parts=[await self._part(part) for part in event.parts])

    async def _part(self, part: Part) -> Part:
        if not isinstance(part, Media) or not isinstance(part.source, Inline):
            return part
        if self._front.answer(Feature(str(part.kind))) is not Support.TEXT:
            return part
        try:
            data, mime = part.source.bytes, mime_of(part) or "application/octet-stream"
            if self._note is not None:
                await self._note(self._owner, self._thread)
                self._note = None
            kept = await self._store.put(self._owner, self._thread, _whole(data), limit=len(data), mime=mime)
            return replace(part, source=Url(await self._store.sign(kept, self._base, LIFE)), mime=mime)
        except ValueError:
            return part
        except BridgeError as error:
            log.warning("media of an answer could not be stored: %s", error.message)
            return part


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    yield data
