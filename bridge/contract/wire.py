"""Frames, requests and responses as plain values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlencode


@dataclass(slots=True)
class Frame:
    """One frame with more than a payload: an SSE event's name or id, or a comment line instead of data.

    Wires without event names use bare `bytes` payloads (measured: objects per frame cost 25-35% in bursts). Name, id
    and comment stand on lines of their own: raises `ValueError` for one with a line break, NUL or half a character.
    """

    data: bytes = b""
    event: str | None = None
    id: str | None = None
    comment: bytes | None = None

    def __post_init__(self) -> None:
        # Most names are printable, which is one look in C.
        if self.event is not None and not self.event.isprintable() and not fits_line(self.event):
            raise ValueError(f"event: expected a name without CR, LF and NUL, got {self.event!r}")
        if self.id is not None and not self.id.isprintable() and not fits_line(self.id):
            raise ValueError(f"id: expected an id without CR, LF and NUL, got {self.id!r}")
        if self.comment is not None and (b"\n" in self.comment or b"\r" in self.comment):
            raise ValueError(f"comment: expected one line, got {self.comment!r}")


def fits_line(text: str) -> bool:
    """Return whether a text can be the name or id of a frame: it has no CR, LF and NUL, and can be encoded in UTF-8."""
    return _NO_LINE.search(text) is None


_NO_LINE = re.compile(r"[\r\n\0\ud800-\udfff]")

FrameLike = bytes | Frame
"""A frame; where it is a payload and nothing else, the bare bytes of it."""

KEEPALIVE = Frame(comment=b"keep-alive")
"""An SSE comment: legal everywhere, carries nothing."""


@dataclass(slots=True)
class WireRequest:
    """A request on a wire. `path` is relative to the mount path (as front) or the base URL (as back).

    `headers` are looked up by lower-case names (the server's mapping does not mind the case); `params` are the named
    pieces of the surface's path pattern. `rooted`: the path begins at the backend's host, not at its base URL.
    """

    method: str = "POST"
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    rooted: bool = False

    @property
    def target(self) -> str:
        """The path with the query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


@dataclass(slots=True)
class WireResponse:
    """A whole response on a wire; header names are lower-case."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def content_type(self) -> str:
        """Return the media type without parameters in lower case; empty if there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


def wire_request(headers: Mapping[str, str], body: bytes, path: str = "") -> WireRequest:
    """Return a request from HTTP: `path` may be percent-encoded and have a query."""
    path, _, query = path.partition("?")
    return WireRequest("POST", unquote(path), headers, dict(parse_qsl(query)), body=body)


def json_request(path: str, body: bytes, headers: dict[str, str] | None = None) -> WireRequest:
    """A POST of a JSON body."""
    return WireRequest("POST", path, {"content-type": "application/json", **(headers or {})}, body=body)


def event_stream(frames: Iterable[FrameLike], headers: Mapping[str, str] | None = None) -> WireResponse:
    """A response with a whole event stream, of a protocol that has no answer in one piece and no names of events."""
    payloads = (frame.data if isinstance(frame, Frame) else frame for frame in frames)
    body = b"".join(b"data: " + payload + b"\n\n" for payload in payloads if payload)
    return WireResponse(200, {"content-type": "text/event-stream", **(headers or {})}, body)


def json_response(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> WireResponse:
    """A response with a JSON body."""
    return WireResponse(status, {"content-type": "application/json", **(headers or {})}, body)
