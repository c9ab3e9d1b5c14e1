"""Reading of request bodies, within one budget of memory for all requests of the process."""

from __future__ import annotations

import asyncio
import mmap
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from aiohttp import hdrs, web

from bridge.errors import BackendError, ErrorCode, RequestError
from bridge.stores.memory_budget import FREE, MemoryBudget

_BLOCK = 1024 * 1024
_ENCODINGS = frozenset({"", "identity", "gzip", "deflate"})


class Bodies:
    """The bodies that are being read: of at most `limit` bytes, each within so many `seconds`.

    `budget`: bytes of all of them, and of what requests load; `each`: bodies of one user; None = no limit.
    """

    def __init__(self, limit: int, seconds: float, budget: MemoryBudget, each: int | None = None) -> None:
        self._limit = limit
        self._seconds = seconds
        self._budget = budget
        self._each = each
        self._users: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """Bytes of the budget in use."""
        return self._budget.taken

    async def read(self, http: web.Request, user: str) -> bytes:
        """The whole body of a request of this user.

        Raises `RequestError`: 415 for an unknown content encoding, 400 for a body that is not of its encoding,
        too_large beyond the limit, 408 after too long. Raises `BackendError`: rate_limited where the user sends
        too many bodies at once, overloaded where the budget is spent.
        """
        if http.content.is_eof():
            return _arrived(http, self._limit)
        body, charged = _Pages(), 0
        try:
            async for piece in self.pieces(http, user):
                more = body.size + len(piece) - FREE - charged
                if more > 0:
                    self.charge(more)
                    charged += more
                body.append(piece)
                del piece  # not held while the next one is awaited
            return body.joined()
        finally:
            self.give_back(charged)

    @property
    def seconds(self) -> float:
        """Time for a body to arrive."""
        return self._seconds

    def check_length(self, http: web.Request) -> None:
        """Check the length that a body declares, before any of it is read. Raises `RequestError` (too_large)."""
        if (http.content_length or 0) > self._limit:
            raise _too_large(self._limit)

    def held(self, size: int) -> HeldBody:
        """Charge the budget with a body that others hold, such as a message of a WebSocket, until it is released.

        Raises `BackendError`: overloaded where the budget is spent.
        """
        body = HeldBody(self)
        body.resize(size)
        return body

    def charge(self, more: int) -> None:
        """Take so many bytes of the budget. Raises `BackendError` (overloaded) where it is spent."""
        if not self._budget.take(more):
            raise BackendError(
                "The server is reading too many request bodies; try again shortly.",
                code=ErrorCode.OVERLOADED,
                headers={"retry-after": "1"},
            )

    def give_back(self, less: int) -> None:
        """Give back bytes of the budget."""
        self._budget.give_back(less)

    async def pieces(self, http: web.Request, user: str) -> AsyncIterator[bytes]:
        """Yield the body as it comes, without storing it. Raises what `read` raises, except for the budget."""
        _check_encoding(http)
        self.check_length(http)
        size = 0
        try:
            with self._counted(user):
                async with asyncio.timeout(self._seconds):
                    async for piece in http.content.iter_any():
                        size += len(piece)
                        if size > self._limit:
                            raise _too_large(self._limit)
                        yield piece
                        del piece  # not held while the next one is awaited
        except TimeoutError:
            raise RequestError(f"The request body did not arrive within {self._seconds:g} s.", status=408) from None
        except web.RequestPayloadError:
            raise _undecodable() from None

    @contextmanager
    def _counted(self, user: str) -> Iterator[None]:
        if self._each is not None and self._users[user] >= self._each:
            raise BackendError(
                f"This key has reached its limit of {self._each} concurrent requests.",
                code=ErrorCode.RATE_LIMITED,
                headers={"retry-after": "1"},
            )
        self._users[user] += 1
        try:
            yield
        finally:
            self._users[user] -= 1
            if not self._users[user]:
                del self._users[user]


class _Pages:
    """The bytes of one body so far, in memory that the system gets back at once.

    Buffers on the heap that grow side by side fragment it: the process then holds three times the budget, for good.
    """

    def __init__(self) -> None:
        self.size = 0
        self._blocks: list[mmap.mmap] = []

    def append(self, piece: bytes) -> None:
        """Copy this piece to the end."""
        start = 0
        while start < len(piece):
            used = self.size % _BLOCK
            if not used:
                self._blocks.append(mmap.mmap(-1, _BLOCK, access=mmap.ACCESS_COPY))
            start += self._blocks[-1].write(piece[start : start + _BLOCK - used])
            self.size = self.size - used + self._blocks[-1].tell()

    def joined(self) -> bytes:
        """Return the whole body."""
        return b"".join(memoryview(block)[: block.tell()] for block in self._blocks)


class HeldBody:
    """A body in memory that its budget is charged with. It may be released more than once."""

    __slots__ = ("_bodies", "_charged")

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._charged = 0

    def resize(self, size: int) -> None:
        """Charge for so many bytes. Raises `BackendError` (overloaded) where the budget is spent: nothing changes."""
        charged = max(0, size - FREE)
        if charged > self._charged:
            self._bodies.charge(charged - self._charged)
        else:
            self._bodies.give_back(self._charged - charged)
        self._charged = charged

    def release(self) -> None:
        """Give back what was charged."""
        self.resize(0)


def _arrived(http: web.Request, limit: int) -> bytes:
    """Return a body that has arrived with the head of its request, as small ones do."""
    _check_encoding(http)
    try:
        body = http.content.read_nowait()
    except web.RequestPayloadError:
        raise _undecodable() from None
    if len(body) > limit:
        raise _too_large(limit)
    return body


def _check_encoding(http: web.Request) -> None:
    if http.headers.get(hdrs.CONTENT_ENCODING, "").strip().lower() not in _ENCODINGS:
        raise RequestError(
            "Expected a body of content-encoding gzip, deflate or identity.", status=415, param="content-encoding"
        )


def _undecodable() -> RequestError:
    return RequestError("The request body cannot be decoded as its headers say.")


def _too_large(limit: int) -> RequestError:
    message = f"The request body is longer than the limit of {limit} bytes (server.max_body)."
    return RequestError(message, code=ErrorCode.TOO_LARGE)
