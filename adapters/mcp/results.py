"""The parts of results."""

from __future__ import annotations

from bridge.dialects.mcp.wire import OWN, SERVER_KEY, WITH_AUDIO, WITH_LINKS, Head, Wire, info
from bridge.errors import Failure
from bridge.model import FileRef, Inline, Media, MediaKind, mime_of
from bridge.model.text import as_text
from bridge.toolkit.media import DEFAULT_TYPES
from bridge.toolkit.redact import masked

CUT = "The answer was cut off at its limit."


def text(said: str) -> Wire:
    """Return a text of a result."""
    return {"type": "text", "text": said}


def medium(media: Media, run_id: str, number: int, version: str) -> Wire:
    """Return a medium of a result, as the revision has it: its bytes, or a link."""
    name = media.filename or f"{media.kind}-{number}"
    match media.source:
        case Inline(base64=data):
            mime = mime_of(media) or DEFAULT_TYPES[media.kind]
            if media.kind is MediaKind.IMAGE or (media.kind is MediaKind.AUDIO and version >= WITH_AUDIO):
                return {"type": str(media.kind), "data": data, "mimeType": mime}
            resource = {"uri": f"bridge://{run_id}/{number}", "mimeType": mime, "blob": data}
            return {"type": "resource", "resource": resource}
        case FileRef(file_id=uri):
            uri = f"bridge://file/{uri}"
        case url:
            uri = url.url
    if version < WITH_LINKS:
        return text(as_text(media))
    mime_type = mime_of(media)
    return {"type": "resource_link", "uri": uri, "name": name, **({"mimeType": mime_type} if mime_type else {})}


def failed(failure: Failure) -> Wire:
    """Return the result of a call that failed, for its model to read."""
    said = masked(failure.message) or "Unknown error."
    return {"content": [text(f"{failure.code}: {said}")], "isError": True}


def shaped(head: Head, version: str, members: Wire) -> Wire:
    """Return a result with what the revision without sessions adds to each."""
    if not head.stateless:
        return members
    meta = {**members.get("_meta", {}), SERVER_KEY: info(version)}
    return {"resultType": "complete", **members, "_meta": meta}


def own(name: str) -> str:
    """Return a key of this bridge in the metadata of a result."""
    return f"{OWN}{name}"
