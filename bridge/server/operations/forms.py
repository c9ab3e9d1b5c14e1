"""Forms with one file in them (multipart/form-data, RFC 7578), read as they come: the file is never whole in memory."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import IO

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from bridge.errors import ErrorCode, RequestError

_PIECE = 2**16
_LONGEST_FIELD = 4096  # bytes of a field that is no file
_MOST_FIELDS = 32
_ROOM = 2**17  # bytes of a form beside its file: fields, borders, headers of parts
_IN_MEMORY = 2**20


@dataclass(slots=True)
class Form:
    """The text fields, and the file as a stream; None if there is none. `content_type` is as declared by its part.

    A file in another field is an empty field.
    """

    fields: dict[str, str] = field(default_factory=dict)
    file: AsyncIterator[bytes] | None = None
    content_type: str = ""


@asynccontextmanager
async def read_form(
    http: web.Request, file: str, *, limit: int, seconds: float, needs: tuple[str, ...] = ()
) -> AsyncIterator[Form]:
    """The form of a request; its file, in the field called `file`, is read inside the block, within `seconds`.

    The file may precede the fields `needs`, which are required to accept it: then it is stored on disk, up to `limit`
    bytes. A body that declares a greater length is refused unread. Raises `RequestError`: invalid_request, too_large,
    408.
    """
    if http.content_type != "multipart/form-data":
        raise RequestError(f"Expected a form (multipart/form-data) with a file in its field {file!r}.", param=file)
    if http.content_length is not None and http.content_length > limit + _ROOM:
        raise _too_large(limit)
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:
        try:
            async with asyncio.timeout(seconds) as clock:
                yield await _read(http, file, limit, needs, spool)
        except TimeoutError:
            if not clock.expired():
                raise
            raise RequestError(f"The request body did not arrive within {seconds:g} s.", status=408) from None


async def _read(http: web.Request, file: str, limit: int, needs: tuple[str, ...], spool: IO[bytes]) -> Form:
    form = Form()
    try:
        reader = await http.multipart()
        while (part := await reader.next()) is not None:
            if not isinstance(part, BodyPartReader) or part.name is None:
                raise ValueError("a part without a name")
            if part.name != file:
                if part.filename is not None:  # a file where none is expected: an empty field
                    await _keep(part, limit)
                form.fields[part.name] = await _text(part) if part.filename is None else ""
                if len(form.fields) > _MOST_FIELDS:
                    raise RequestError(f"Expected a form of at most {_MOST_FIELDS} fields.")
            elif form.file is None:
                form.content_type = part.headers.get("content-type", "").partition(";")[0].strip().lower()
                if all(name in form.fields for name in needs):
                    form.file = _pieces(part)
                    break
                await _keep(part, limit, spool)
                form.file = _spooled(spool)
    except (ValueError, HttpProcessingError, web.RequestPayloadError):
        # The head of a part is read as that of a request, with the errors of one.
        raise _malformed() from None
    return form


async def _text(part: BodyPartReader) -> str:
    raw = bytearray()
    while piece := await part.read_chunk(_PIECE):
        raw += piece
        if len(raw) > _LONGEST_FIELD:
            raise RequestError(f"Expected a field of at most {_LONGEST_FIELD} bytes.", param=(part.name or "")[:80])
    return raw.decode()


async def _pieces(part: BodyPartReader) -> AsyncIterator[bytes]:
    try:
        while piece := await part.read_chunk(_PIECE):
            yield piece
    except (ValueError, HttpProcessingError, web.RequestPayloadError):
        raise _malformed() from None


async def _keep(part: BodyPartReader, limit: int, spool: IO[bytes] | None = None) -> None:
    """Read a file into `spool`; nowhere without one."""
    size = 0
    async for piece in _pieces(part):
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        if spool is not None:
            await asyncio.to_thread(spool.write, piece)
    if spool is not None:
        spool.seek(0)


async def _spooled(spool: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(spool.read, _PIECE):
        yield piece


def _too_large(limit: int) -> RequestError:
    return RequestError(f"The file is larger than the limit of {limit} bytes.", code=ErrorCode.TOO_LARGE, param="file")


def _malformed() -> RequestError:
    return RequestError("The request body is not a well-formed form (multipart/form-data).")
