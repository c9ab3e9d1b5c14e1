"""The contract of attachment stores. One test suite checks every engine.

They hold images that clients upload, and media of answers that reach a client only as a link. The path of a file is
`<user>/<thread>/<uuid>.<ext>`: it names the owner, so that nothing else needs to be stored. The media type of an upload
is detected from its first bytes, regardless of what the client declared.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

from bridge.errors import ErrorCode, RequestError
from bridge.model.media_types import EXTENSIONS, type_of_bytes

LIMIT = 10 * 2**20
"""The default maximum size of an image in bytes."""

NoteFile: TypeAlias = Callable[[str, str], Awaitable[None]]
"""Notes that an owner's thread is about to get a file, so that it is deleted with the thread."""

EMPTY = "empty"
UNSUPPORTED_TYPE = "unsupported_type"
"""`details["reason"]` of the two kinds of `invalid_request`, for dialects that distinguish them."""

_UPLOADS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
# Types that a browser would execute or render are served as plain bytes.
_ACTIVE = frozenset({"image/svg+xml", "text/html", "text/css", "text/xml"})
_EXTENSIONS = {
    "bin": "application/octet-stream",
    **{extension: mime for extension, mime in EXTENSIONS.items() if mime not in _ACTIVE},
}
_HEAD = 12  # bytes that are enough to detect the type

_PLAIN = re.compile(r"[A-Za-z0-9_:@-][A-Za-z0-9._:@-]*")
_PIECE = r"(?!\.)[A-Za-z0-9._:@=-]{1,200}"
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PATH = re.compile(rf"({_PIECE})/{_PIECE}/{_UUID}\.({'|'.join(_EXTENSIONS)})")
_CONTENT = re.compile(rf"/attachments/content/([a-z0-9.-]+)/({_PATH.pattern})\Z")
_LONGEST = 200  # a file name has 255 bytes


@dataclass(frozen=True, slots=True)
class Attachment:
    """One stored file. `size` is in bytes; `url` is signed, and empty until it is requested."""

    bucket: str
    path: str
    mime: str
    size: int
    url: str = ""


class Attachments(Protocol):
    """Files, each owned by a user (empty = the only user of a server without authentication).

    Every method may raise `BridgeError` with `STORE_UNAVAILABLE`, whose message contains neither the location nor
    credentials. Only paths made by `put` are found.
    """

    async def open(self) -> None:
        """Create what is missing. Raises `ConfigError` for an invalid configuration."""

    async def close(self) -> None:
        """May be called twice."""

    async def probe(self) -> None:
        """Raise `BridgeError` if nothing can be stored, listed or deleted."""

    async def put(
        self, owner: str, thread: str, data: AsyncIterable[bytes], *, limit: int = LIMIT, mime: str | None = None
    ) -> Attachment:
        """Store a stream completely or not at all. Stops reading at the chunk that exceeds `limit` bytes.

        `mime` is the type of media that the bridge itself stores; without it, only images are accepted.

        Raises `RequestError`: too_large; invalid_request with `details["reason"]` `EMPTY` or `UNSUPPORTED_TYPE`.
        Exceptions of `data` are propagated.
        """

    async def delete(self, owner: str, thread: str, older_than: float = 0.0) -> int:
        """Delete the files of a thread that were stored at least `older_than` seconds ago. Return how many are left."""

    async def stat(self, owner: str, bucket: str, path: str) -> Attachment:
        """Return a file of this owner. Raises `RequestError`: forbidden for another owner's file, not_found."""

    async def fetch(self, bucket: str, path: str) -> tuple[Attachment, AsyncIterator[bytes]]:
        """Return a file and its bytes, without access control: call `stat` or `verify` first.

        Raises `RequestError` (not_found).
        """

    async def sign(self, attachment: Attachment, base: str, life: float) -> str:
        """Return a URL that gives access to the file for `life` seconds.

        `base` is the public URL below which the server serves `content_path`; engines with URLs of their own ignore it.
        """

    def find(self, url: str) -> tuple[str, str] | None:
        """Return bucket and path of the file behind a URL made by `sign`; None for any other URL.

        Only the form is checked: use `stat` to check access.
        """

    def verify(self, bucket: str, path: str, expires: str, signature: str) -> None:
        """Check a signature. Raises `RequestError` (forbidden) if it is wrong, missing, expired or of another file."""


def content_path(bucket: str, path: str) -> str:
    """Return the path at which the server serves a file, relative to the mount path. Needs no quoting."""
    return f"/attachments/content/{bucket}/{path}"


def content_of(url: str) -> tuple[str, str] | None:
    """Return bucket and path of the file behind a URL of `content_path`, on any server; None for any other URL.

    Only the form is checked, not the signature: use `stat` to check access.
    """
    try:
        match = _CONTENT.search(urlsplit(url).path)
    except ValueError:
        return None
    return (match[1], match[2]) if match else None


def path_in(url: str, bucket: str) -> str | None:
    """Return the path of a file in the URL of a service that names its buckets in the path or in the host."""
    try:
        parts = urlsplit(url)
        host, path = parts.hostname or "", unquote(parts.path)
    except ValueError:
        return None
    for prefix in (f"/{bucket}/", *(("/",) if host.startswith(f"{bucket}.") else ())):
        if path.startswith(prefix) and _PATH.fullmatch(path, len(prefix)):
            return path[len(prefix) :]
    return None


def folder_of(owner: str, thread: str) -> str:
    """Return the beginning of the paths of a thread's files."""
    return f"{_piece(owner)}/{_piece(thread)}"


def new_path(owner: str, thread: str, extension: str) -> str:
    return f"{folder_of(owner, thread)}/{uuid.uuid4()}.{extension}"


def check_owner(owner: str, path: str) -> None:
    """Raise `RequestError`: forbidden for the path of another owner, not_found for one that `new_path` did not make."""
    match = _PATH.fullmatch(path)
    if match is None:
        raise not_found()
    if match[1] != _piece(owner):
        raise forbidden("This attachment belongs to another user.")


def mime_of(path: str) -> str:
    """Return the media type of a path that `new_path` made. Raises `RequestError` (not_found) for any other."""
    match = _PATH.fullmatch(path)
    if match is None:
        raise not_found()
    return _EXTENSIONS[match[2]]


def _piece(text: str) -> str:
    """Return an id as one segment of a path: unique for each id, and without special meaning to any file system.

    Letters, digits and `._:@-` stay as they are, except a leading dot; other bytes become `=XX`, an empty id `=`.
    """
    if _PLAIN.fullmatch(text) and len(text) <= _LONGEST:
        return text
    raw = text.encode("utf-8", "surrogatepass")
    allowed = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_:@-"
    piece = "".join(chr(b) if b in allowed or (b == 46 and n) else f"={b:02X}" for n, b in enumerate(raw)) or "="
    return piece if len(piece) <= _LONGEST else f"=h{hashlib.sha256(raw).hexdigest()}"


def not_found() -> RequestError:
    return RequestError("There is no such attachment.", code=ErrorCode.NOT_FOUND)


def forbidden(message: str) -> RequestError:
    return RequestError(message, code=ErrorCode.FORBIDDEN)


class Incoming:
    """A file that is being received; at most `limit` bytes are passed on. `extension` is known after `begin`.

    Without `mime`, the file is an upload. `error` is what the stream raised, to tell it from a failure of the store.
    """

    def __init__(self, data: AsyncIterable[bytes], limit: int, mime: str | None = None) -> None:
        self._data = aiter(data)
        self._limit = limit
        self._head = b""
        known = next((extension for extension, each in _EXTENSIONS.items() if each == mime), "bin")
        self.extension = "" if mime is None else known
        self.size = 0
        self.error: BaseException | None = None

    async def begin(self) -> None:
        """Read until the type is known. Raises `RequestError` (invalid_request, too_large)."""
        while len(self._head) < _HEAD:
            piece = await anext(self._data, None)
            if piece is None:
                break
            self._head += piece
            self._count(piece)
        if not self._head:
            raise RequestError("The file is empty.", details={"reason": EMPTY})
        self.extension = self.extension or _UPLOADS.get(type_of_bytes(self._head) or "", "")
        if not self.extension:
            raise RequestError(
                "Expected an image: PNG, JPEG, GIF or WebP by its first bytes.", details={"reason": UNSUPPORTED_TYPE}
            )

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            yield self._head
            async for piece in self._data:
                self._count(piece)
                yield piece
        except BaseException as error:
            self.error = error
            raise

    def _count(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > self._limit:
            raise RequestError(
                f"The file is larger than the limit of {self._limit} bytes.", code=ErrorCode.TOO_LARGE, param="file"
            )
