"""What a store of conversations (`bridge.stores.conversations`) takes and returns: values, errors, ids.

Stored conversations connect clients that send only new messages with backends that need the whole conversation, and the
other way round. A store saves and finds conversations; `bridge.run` compares, expands and trims them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

from bridge.errors import BridgeError, ErrorCode, RequestError
from bridge.model.events import Interrupted
from bridge.model.parts import Message
from bridge.model.request import Tool

_REFUSED = re.compile("[%\x00\ud800-\udfff]")

MAX_KEY = 512
"""Maximum length of owner, scope, thread id and digest in bytes of UTF-8: they are indexed."""

LEASE = 10.0
"""Seconds after which the lock of a conversation expires if the process that holds it has died."""


@dataclass(slots=True)
class Conversation:
    """One stored conversation. A new one has version 0.

    `messages` is read only: pass new messages to `commit`, and remove edited ones with its `keep`. The caller may set
    all other fields except `version`, `dropped`, `digest` and `updated_at`; `commit` stores them.
    """

    thread_id: str
    messages: list[Message] = field(default_factory=list)
    """The messages, oldest first; all of them if `dropped` is 0."""
    tools: list[Tool] | None = None
    """The last list of tools that a client offered."""
    backend_thread: str | None = None
    """The id of this conversation at a backend with its own history."""
    open_interrupts: list[Interrupted] = field(default_factory=list)
    """Interrupts that have not been answered."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Small JSON values of the pipeline, such as renamed tools."""
    version: int = 0
    """Incremented by every commit; 0 = not stored yet."""
    dropped: int = 0
    """Number of messages removed by the bounds since the conversation was last complete."""
    digest: str | None = None
    """The digest of the last commit."""
    updated_at: float = 0.0
    """Time of the last commit, in seconds since 1970 by the clock of the store."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of what is stored. `messages` and `size` (bytes of stored JSON) apply to each conversation.

    Each turn reads all messages of a conversation, so that their number bounds the time it takes.
    """

    messages: int = 10_000
    size: int = 64 * 2**20
    conversations: int | None = None
    """Maximum per owner; beyond it, those unused for longest are deleted. They are counted at random, on average at
    every hundredth part of the maximum, as a count reads all of them. None is no limit.
    """

    @property
    def halved(self) -> Bounds:
        """The bounds with half as much in a conversation."""
        return Bounds(self.messages // 2, self.size // 2, self.conversations)


class StoreConflict(BridgeError):
    """Another writer has changed the conversation since it was loaded: load it again."""

    default = ErrorCode.CONFLICT
    text = "the conversation was changed by another request"

    def __init__(self) -> None:
        super().__init__(self.text)


class BaseGone(StoreConflict):
    """A conversation cannot begin with another one: that was deleted, or both together are beyond the bounds."""

    text = "the conversation to begin with was deleted, or is too long"


RemoveFiles: TypeAlias = Callable[[str, str, float], Awaitable[int]]
"""Deletes the files of an owner's thread that are so many seconds old, and returns how many younger ones are left."""


class StoreUnavailable(BridgeError):
    """A failure of an engine. `reason` is a code or a class name."""

    reason: str


class StoreFull(StoreUnavailable):
    """The engine can read, but has no space to write."""


_FULL = frozenset({"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "53100", "DiskFullError"})
"""What SQLite and PostgreSQL call it."""


def unavailable(engine: str, reason: str, store: str = "history") -> BridgeError:
    """Return the error for any failure of an engine. `reason` is a code or a class name, never the engine's text."""
    message = f"the {store} store is not available ({engine}: {reason})"
    kind = StoreFull if reason in _FULL else StoreUnavailable
    error = kind(message, code=ErrorCode.STORE_UNAVAILABLE, headers={"retry-after": "1"})
    error.reason = reason
    return error


def key(owner: str, scope: str, thread_id: str) -> tuple[str, str, str]:
    """Return the three ids as engines store them."""
    return stored_id(owner, "owner"), stored_id(scope, "scope"), stored_id(thread_id, "conversation id")


@lru_cache(1024)  # most requests share owner and scope with others
def stored_id(text: str, what: str) -> str:
    """Return an id as engines store it: characters that databases reject (NUL, unpaired surrogates) become `%XXXX`."""
    text = _escaped(text)
    if len(text.encode()) > MAX_KEY:
        raise RequestError(f"expected a {what} of at most {MAX_KEY} bytes")
    return text


def fits(text: str) -> bool:
    """Return whether `stored_id` accepts the text."""
    return len(_escaped(text).encode()) <= MAX_KEY


def derived_id(name: str, *, before: str = "", after: str = "") -> str:
    """Return an id that is made of another one. A name that would be too long with it is replaced by its digest.

    So every name that a store takes has derived ids. NUL separates them from names: no name of a user contains it.
    """
    whole = f"{before}{name}{after}"
    if fits(whole):
        return whole
    return f"{before}{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}\0long{after}"


def _escaped(text: str) -> str:
    return _REFUSED.sub(lambda found: f"%{ord(found[0]):04X}", text)


def plain_id(text: str) -> str:
    """Return the id that `stored_id` was called with."""
    if "%" not in text:
        return text
    first, *rest = text.split("%")
    return first + "".join(chr(int(piece[:4], 16)) + piece[4:] for piece in rest)
