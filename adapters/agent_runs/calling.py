"""Calling such an API: a run's requests in their order, and what of its events came already."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

from bridge.contract import Frame, FrameLike, WireRequest, WireResponse
from bridge.dialects.agent_runs.options import BackOptions
from bridge.errors import BackendError, ErrorCode, RequestError
from bridge.model import Inline, Media, Message, Text
from bridge.model.error_paths import place_of
from bridge.model.jsontext import dumps, loads, read_json

_CURSOR = re.compile(r"(\d{1,20})-(\d{1,20})", re.ASCII)
_IMAGES = {"image/png": "png", "image/jpeg": "jpg", "image/jpg": "jpg", "image/gif": "gif", "image/webp": "webp"}
"""The media types that the API accepts as attachments, and their file extensions."""
_KINDS = {"image": "image", "audio": "audio", "video": "video"}

_Wire = dict[str, Any]


class Calling:
    """One run. `wire` is the request as one of its own, with all images as data.

    Raises `RequestError` for an image whose data are no base64.
    """

    def __init__(self, wire: WireRequest, options: BackOptions, messages: list[Message]) -> None:
        """`wire` says `messages`. Raises `RequestError` for an image that is not base64."""
        self.waits = options.reconnect
        self._wire = wire
        self._options = options
        self._body: _Wire = loads(wire.body)
        self._thread: str = self._body["threadId"]
        self._images: dict[tuple[str, str], list[_Wire]] = {}
        self.uploads: list[WireRequest] = []
        for part in _media_in(self._body):
            self._note(part, messages)
        self._run = ""
        self._run_field = b""
        self._last: str | None = None
        self._place: tuple[int, int] | None = None
        self._lost_way = False

    def _note(self, part: _Wire, messages: list[Message]) -> None:
        """An image as data has to be uploaded, once even if it occurs several times."""
        kind = _IMAGES.get(part["mimeType"].lower())
        if kind is None or "data" not in part:
            return
        parts = self._images.setdefault((part["mimeType"], part["data"]), [])
        if not parts:
            self.uploads.append(_upload(self._thread, part, kind, messages))
        parts.append(part)

    # ------------------------------------------------------------------ asking

    def start(self, run_id: str, uploaded: Sequence[WireResponse]) -> WireRequest:
        for parts, answer in zip(self._images.values(), uploaded, strict=True):
            url = _url_in(answer)
            for part in parts:
                del part["data"]
                part["url"] = url
        if self._options.part_style == "media":
            for part in _media_in(self._body):
                _restyle(part)
        self._run = self._body["runId"] = run_id
        self._run_field = b'"runId":' + dumps(run_id)
        return WireRequest("POST", self._wire.path, self._wire.headers, body=dumps(self._body))

    def subscribe(self) -> WireRequest | None:
        if self._lost_way:
            return None
        headers = {"accept": "text/event-stream"}
        if self._last is not None:
            headers["last-event-id"] = self._last
        query = {"runId": self._run}
        if self._options.idle_limit is not None:
            query["idle_limit"] = str(self._options.idle_limit)
        return WireRequest("GET", f"/runs/{self._thread}/events", headers, query)

    def cancel(self) -> WireRequest:
        return WireRequest("POST", f"/runs/{self._thread}/cancel", query={"runId": self._run})

    # ------------------------------------------------------------------ reading

    def fresh(self, frames: Sequence[FrameLike]) -> list[FrameLike]:
        """Ids increase over the thread; without the id of a frame, reading cannot continue after it."""
        out: list[FrameLike] = []
        for frame in frames:
            name, data = (frame.id, frame.data) if isinstance(frame, Frame) else (None, frame)
            if name and not self._passed(name):
                continue
            if self._run_field in data or self._is_mine(data):
                self._lost_way = not name
                out.append(data)
        return out

    def _passed(self, name: str) -> bool:
        """Notes this id as the last one; False when it came before."""
        found = _CURSOR.fullmatch(name)
        if found is not None:
            position = int(found[1]), int(found[2])
            if self._place is not None and position <= self._place:
                return False
            self._place = position
        self._last = name
        return True

    def _is_mine(self, data: bytes) -> bool:
        """Return whether an event is of this run, or names none."""
        event = read_json(data)
        return not isinstance(event, dict) or event.get("runId", self._run) == self._run


def _media_in(body: _Wire) -> Iterator[_Wire]:
    """The media of its messages."""
    for message in body["messages"]:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if part["type"] == "binary":
                yield part


def _not_base64(messages: list[Message], data: str) -> RequestError:
    parts = (part for message in messages for part in message.parts)
    found = next((p for p in parts if isinstance(p, Media) and p.source == Inline(data)), Text(""))
    path, name = place_of(messages, found)
    return RequestError(f"{name}: expected an image in base64.", param=path)


def _upload(thread: str, part: _Wire, kind: str, messages: list[Message]) -> WireRequest:
    """A form with the thread and the image."""
    try:
        content = b64decode(part["data"], validate=True)
    except ValueError:
        raise _not_base64(messages, part["data"]) from None
    # The separator must not occur in the pieces: a digest of the image does not.
    border = sha256(content).hexdigest()
    head = (
        f'--{border}\r\nContent-Disposition: form-data; name="threadId"\r\n\r\n{thread}\r\n'
        f'--{border}\r\nContent-Disposition: form-data; name="file"; filename="image.{kind}"\r\n'
        f"Content-Type: {part['mimeType']}\r\n\r\n"
    )
    form = head.encode() + content + f"\r\n--{border}--\r\n".encode()
    return WireRequest("POST", "/attachments", {"content-type": f"multipart/form-data; boundary={border}"}, body=form)


def _restyle(part: _Wire) -> None:
    """A `binary` part of AG-UI 0.x as a medium of 1.0."""
    mime = part["mimeType"]
    source: _Wire = {"mimeType": mime}
    for name, kind in (("data", "data"), ("url", "url"), ("id", "file")):
        if name in part:
            source |= {"type": kind, "value": part[name]}
    metadata = {"metadata": {"filename": part["filename"]}} if "filename" in part else {}
    kind = _KINDS.get(mime.partition("/")[0], "document")
    part.clear()
    part.update({"type": kind, "source": source, **metadata})


def _url_in(answer: WireResponse) -> str:
    value = read_json(answer.body)
    attachment = value.get("attachment") if isinstance(value, dict) else None
    url = attachment.get("url") if isinstance(attachment, dict) else None
    if not isinstance(url, str) or not url:
        raise BackendError("The backend's answer to an upload names no URL.", code=ErrorCode.BACKEND_PROTOCOL)
    return url
