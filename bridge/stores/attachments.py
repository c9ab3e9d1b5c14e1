"""The contract of stores of files, which one test suite checks for every engine.

These are images that clients upload, and media of answers that a client can only be given as a link. A file lies at
`<user>/<thread>/<uuid>.<ext>`. The path is made here and names the owner, so that nothing else needs to be stored. The
media type of an upload is that of the first bytes, whatever the client declared.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote, urlsplit

from bridge.errors import ErrorCode, RequestError
from bridge.model.media_types import EXTENSIONS, type_of_bytes

LIMIT = 10 * 2**20
"""The default maximum size of an image in bytes."""

EMPTY = "empty"
UNSUPPORTED_TYPE = "unsupported_type"
"""`details["reason"]` of the two kinds of `invalid_request`, for dialects that have a word for each."""

_UPLOADS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
# What a browser would run or follow is served as bytes.
_ACTIVE = frozenset({"image/svg+xml", "text/html", "text/css", "text/xml"})
_EXTENSIONS = {
    "bin": "application/octet-stream",
    **{extension: mime for extension, mime in EXTENSIONS.items() if mime not in _ACTIVE},
}
_HEAD = 12  # bytes that decide on the kind

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
    """Files, each owned by a user (empty = the one user of an open server).

    Every method may raise `BridgeError` with `STORE_UNAVAILABLE`, whose message holds neither place nor credentials.
    Paths that `put` did not make are not found, whatever they point to.
    """

    async def open(self) -> None:
        """Makes what must be there. Raises `ConfigError` for what only a person can mend."""

    async def close(self) -> None:
        """May be called twice."""

    async def put(
        self, owner: str, thread: str, data: AsyncIterable[bytes], *, limit: int = LIMIT, mime: str | None = None
    ) -> Attachment:
        """Stores a stream whole or not at all, and reads no further than the piece that goes over `limit` bytes.

        `mime` is the type of media that the bridge stores itself; without it, only images are taken.

        Raises `RequestError`: too_large; invalid_request with `details["reason"]` `EMPTY` or `UNSUPPORTED_TYPE`. What
        `data` raises goes through.
        """

    async def stat(self, owner: str, bucket: str, path: str) -> Attachment:
        """Raises `RequestError`: forbidden for another's, not_found."""

    async def fetch(self, bucket: str, path: str) -> tuple[Attachment, AsyncIterator[bytes]]:
        """The image and its bytes, for anybody: call `stat` or `verify` first. Raises `RequestError` (not_found)."""

    async def sign(self, attachment: Attachment, base: str, life: float) -> str:
        """A URL that gives the image to anybody for `life` seconds.

        `base` is the public URL below which the server serves `content_path`; engines with URLs of their own do not
        need it.
        """

    def find(self, url: str) -> tuple[str, str] | None:
        """Bucket and path of the image that a URL made by `sign` gives; None for any other URL.

        Nothing is checked but the form: `stat` says whether its user may have it.
        """

    def verify(self, bucket: str, path: str, expires: str, signature: str) -> None:
        """Raises `RequestError` (forbidden) for a signature that is wrong, missing, expired or of another object."""


def content_path(bucket: str, path: str) -> str:
    """The path of an image at a server, relative to a dialect's mount path. Needs no quoting."""
    return f"/attachments/content/{bucket}/{path}"


def content_of(url: str) -> tuple[str, str] | None:
    """Bucket and path of an image that `content_path` serves, wherever the server is; None for any other URL.

    Nothing is checked but the form, not even the signature: `stat` says whether its user may have it.
    """
    try:
        match = _CONTENT.search(urlsplit(url).path)
    except ValueError:
        return None
    return (match[1], match[2]) if match else None


def path_in(url: str, bucket: str) -> str | None:
    """The path of an image in the URL of a service that names its buckets in the path, or in the host."""
    try:
        parts = urlsplit(url)
        host, path = parts.hostname or "", unquote(parts.path)
    except ValueError:
        return None
    for prefix in (f"/{bucket}/", *(("/",) if host.startswith(f"{bucket}.") else ())):
        if path.startswith(prefix) and _PATH.fullmatch(path, len(prefix)):
            return path[len(prefix) :]
    return None


def new_path(owner: str, thread: str, extension: str) -> str:
    return f"{_piece(owner)}/{_piece(thread)}/{uuid.uuid4()}.{extension}"


def check_owner(owner: str, path: str) -> None:
    """Raises `RequestError`: forbidden when the path is another's, not_found when it is none of ours."""
    match = _PATH.fullmatch(path)
    if match is None:
        raise not_found()
    if match[1] != _piece(owner):
        raise forbidden("This attachment belongs to another user.")


def mime_of(path: str) -> str:
    """The type of a path that `new_path` made. Raises `RequestError` (not_found) for any other."""
    match = _PATH.fullmatch(path)
    if match is None:
        raise not_found()
    return _EXTENSIONS[match[2]]


def _piece(text: str) -> str:
    """An id as one step of a path: different ids give different steps, and none of them is special to anybody.

    Letters, digits and `._:@-` stay, but for a dot in front; other bytes are `=XX`; nothing at all is a lone `=`.
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
    """A file on its way: `extension` is known from its first bytes on, and no more than `limit` is ever passed on.

    `mime` is its type; without it the file is an upload. `error` is what the stream raised, so that it is not taken for
    a fault of the store.
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
        """Reads until the kind is known. Raises `RequestError` (invalid_request, too_large)."""
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
