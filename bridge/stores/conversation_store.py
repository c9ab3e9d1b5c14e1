"""The contract of conversation stores. One test suite checks every engine.

Stored conversations connect clients that send only new messages with backends that need the whole conversation, and the
other way round. A store saves and finds conversations; `bridge.run` compares, expands and trims them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

from bridge.errors import BridgeError, ErrorCode, RequestError
from bridge.model.events import Interrupted
from bridge.model.parts import Message
from bridge.model.request import Tool
from bridge.stores.joint import Joint

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


class HeldConversation(Protocol):
    """A locked conversation."""

    @property
    def conversation(self) -> Conversation:
        """The conversation as it was when it was locked; a new one if there was none."""

    async def commit(
        self,
        new: list[Message],
        *,
        keep: int | None = None,
        digest: str | None = None,
        joint: Joint | None = None,
    ) -> None:
        """Commit `conversation` like `ConversationStore.commit` and release the lock, in one transaction.

        If the `joint` transaction takes the commit, or if it raises, the lock is held until the context manager exits.
        A further commit is made without a lock.
        """


class ConversationStore(Protocol):
    """Conversations, identified by owner, scope and thread id.

    An `owner` never finds another owner's conversations. `scope` separates equal thread ids of one owner, such as those
    of two routes. Both may be empty.

    Every method may raise `BridgeError` with `STORE_UNAVAILABLE` if the engine fails, with a message that contains
    neither address nor credentials; later calls try again. Ids longer than `MAX_KEY` bytes raise `RequestError`. A
    store belongs to the event loop in which it is first used; several stores, in one or many processes, may share one
    database.
    """

    async def open(self) -> None:
        """Connect, and create or migrate the schema. Without it, the first call does so.

        Raises `ConfigError` if a newer version created the database.
        """

    async def close(self) -> None:
        """Release all locks and disconnect. May be called twice; `open` opens again."""

    async def load(self, owner: str, scope: str, thread_id: str, *, messages: bool = True) -> Conversation | None:
        """Return the conversation as of the last commit; None if there is none. Without `messages`, it has none."""

    async def commit(
        self,
        owner: str,
        scope: str,
        conversation: Conversation,
        new: list[Message],
        *,
        keep: int | None = None,
        digest: str | None = None,
        after: str | None = None,
        headroom: bool = False,
        joint: Joint | None = None,
    ) -> None:
        """Append `new` and store the conversation's other fields, in one transaction.

        With `keep`, only that many of `conversation.messages` stay: an edited or regenerated conversation replaces the
        old one. `find` finds the conversation by `digest`.

        With `after`, a new conversation begins with the messages of that one of this owner and scope, which must not
        change any more, and which are not stored again: `new` follows them. They stay when that conversation is
        deleted, and do not become those of `conversation`. Raises `BaseGone`, and stores nothing, if that one does not
        exist, or if both together exceed the bounds.

        Raises `StoreConflict`, and stores nothing, unless the stored version is `conversation.version`. Afterwards
        `conversation` is what `load` would return, so that it may be committed again.

        If the conversation exceeds the bounds, its oldest turns are dropped as a whole (`bridge.stores.bounds`); with
        `headroom`, until it has half of what they allow, so that others may begin with it. If
        this is its first commit and the owner has too many, those unused for longest are deleted.

        A canceled commit has happened completely or not at all. With a `joint` transaction of a store in the same
        database, the commit is a part of that.
        """

    async def find(self, owner: str, scope: str, digest: str) -> str | None:
        """Return the thread id of the conversation whose last commit has this digest; of several, the newest.

        It may change before it is locked: compare `Conversation.digest` while holding the lock.
        """

    async def latest(self, owner: str, scope: str) -> str | None:
        """Return the thread id of the conversation with the newest commit; None if there is none."""

    async def owner(self, scope: str, thread_id: str) -> str | None:
        """Return the owner of the conversation with this id; of several, the oldest. None if there is none."""

    async def delete(self, owner: str, scope: str, thread_id: str, *, files: bool = True) -> bool:
        """Delete a conversation. Return False if there is none. With `files`, the next `prune_files` deletes these."""

    def turn(self, owner: str, scope: str, thread_id: str) -> AbstractAsyncContextManager[HeldConversation]:
        """Lock a conversation, which need not exist, for one run: `async with history.turn(...) as held`.

        There is one holder at a time in all processes that share the store, in order of arrival; different
        conversations do not wait for each other. Waiting may be canceled without side effects. The lock is not
        reentrant.

        The lock is a lease: renewed while it is held, expired some seconds after its process died. A process that was
        suspended for longer may have lost it to another one; then its commit raises `StoreConflict`. The lock
        determines the order; the version alone guarantees consistency.
        """

    async def probe(self) -> None:
        """Write something, which is undone at once. Raises if the engine cannot be written to."""

    async def prune(self, older_than: float) -> int:
        """Delete conversations without a commit for `older_than` seconds. Return how many.

        Locked ones stay. It uses small transactions, so that other calls do not wait for it.
        """

    async def note_file(self, owner: str, scope: str, thread_id: str) -> None:
        """A thread, which need not have a conversation, is about to get a file in the store of attachments."""

    async def prune_files(self, older_than: float, remove: RemoveFiles) -> None:
        """Call `remove` for each thread that got no file for `older_than` seconds and has no conversation any more."""


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
