"""The contract of conversation stores, which one test suite checks for every engine.

Stored conversations join clients that send only what is new with backends that need all of it, and the other way round.
A store keeps and finds conversations; comparing, expanding and trimming them is a stage of the pipeline.
"""

from __future__ import annotations

import re
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from bridge.errors import BridgeError, ErrorCode, RequestError
from bridge.model.events import Interrupted
from bridge.model.parts import Message
from bridge.model.request import Tool

_REFUSED = re.compile("[%\x00\ud800-\udfff]")

MAX_KEY = 512
"""Longest owner, scope, thread id and digest, in bytes of UTF-8: they stand in indexes."""

LEASE = 10.0
"""Seconds after which a turn is lost when the process that holds it has died."""


@dataclass(slots=True)
class Conversation:
    """One stored conversation. The caller makes a new one, with version 0.

    `messages` is read only: new messages are passed to `commit`, and edited ones are removed by its `keep`. The caller
    may set all other fields but `version`, `dropped`, `digest` and `updated_at`; `commit` stores them.
    """

    thread_id: str
    messages: list[Message] = field(default_factory=list)
    """The messages, oldest first; all of them if `dropped` is 0."""
    tools: list[Tool] | None = None
    """The last list of tools that a client offered."""
    backend_thread: str | None = None
    """The id of this conversation at a backend that keeps its own history."""
    open_interrupts: list[Interrupted] = field(default_factory=list)
    """Interrupts that wait for a person's answer."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Small JSON values of the pipeline, such as renamed tools."""
    version: int = 0
    """Grows by one with every commit; 0 = not stored yet."""
    dropped: int = 0
    """How many messages the bounds have removed since the conversation was last complete."""
    digest: str | None = None
    """The name that the last commit gave to this state."""
    updated_at: float = 0.0
    """When it was last committed, in seconds since 1970 by the clock of the store."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is stored. `messages` and `size` (bytes of stored JSON) are for each conversation.

    All messages of a conversation are read at each turn: their number bounds how long that takes.
    """

    messages: int = 10_000
    size: int = 16 * 2**20
    conversations: int = 10_000
    """Of one owner; beyond it the ones that were silent for longest go, up to a hundredth late."""

    def evicts_at(self, index: int) -> bool:
        """Return whether the owner's conversations are counted at this new one, as a count reads all of them."""
        return index % max(1, self.conversations // 100) == 0


class StoreConflict(BridgeError):
    """Another writer has changed the conversation since it was loaded: load it again."""

    default = ErrorCode.CONFLICT
    text = "the conversation was changed by another request"

    def __init__(self) -> None:
        super().__init__(self.text)


class HeldConversation(Protocol):
    """A conversation in its turn."""

    @property
    def conversation(self) -> Conversation:
        """As it was when the turn began; a new one when there was none."""

    async def commit(self, new: list[Message], *, keep: int | None = None, digest: str | None = None) -> None:
        """Commits `conversation` as `ConversationStore.commit` does and gives the turn back, both in one transaction.

        When it raises, the turn is still held, until it is left. A commit that comes after it is without a turn.
        """


class ConversationStore(Protocol):
    """Conversations, each under (owner, scope, thread id).

    Another `owner` finds nothing. `scope` separates equal thread ids of one owner, such as those of two routes. Both
    may be empty.

    Every method may raise `BridgeError` with `STORE_UNAVAILABLE` if the engine fails, with a message that holds neither
    address nor credentials; later calls try again. Ids longer than `MAX_KEY` bytes are a `RequestError`. A store
    belongs to the event loop in which it is first used; several stores, in one or many processes, may share one
    database.
    """

    async def open(self) -> None:
        """Connects, and makes or migrates the schema. Without it, the first call does so.

        Raises `ConfigError` when the database was made by a newer version.
        """

    async def close(self) -> None:
        """Gives up turns that are held, and disconnects. May be called twice; `open` opens again."""

    async def load(self, owner: str, scope: str, thread_id: str) -> Conversation | None:
        """The conversation as the last commit left it; None when there is none."""

    async def commit(
        self,
        owner: str,
        scope: str,
        conversation: Conversation,
        new: list[Message],
        *,
        keep: int | None = None,
        digest: str | None = None,
    ) -> None:
        """Append `new` and store the conversation's other fields, in one transaction.

        With `keep`, only that many of `conversation.messages` stay: an edited or regenerated conversation replaces the
        old one. `digest` names the state after the commit for `find`; None is no name.

        Raises `StoreConflict`, and stores nothing, unless the stored version is `conversation.version`. Afterwards
        `conversation` is what `load` would return, so that it may be committed again.

        If the conversation exceeds the bounds, its oldest turns are dropped as a whole (`bridge.stores.bounds`). If
        this is its first commit and the owner has too many, those unused for longest are deleted.

        A canceled commit has happened whole or not at all.
        """

    async def find(self, owner: str, scope: str, digest: str) -> str | None:
        """The thread id of the conversation whose latest state has this digest; of several, the last committed.

        It may move on before a turn of it is entered: compare `Conversation.digest` inside the turn.
        """

    async def latest(self, owner: str, scope: str) -> str | None:
        """The thread id of the conversation that was committed last; None when there is none."""

    async def owner(self, scope: str, thread_id: str) -> str | None:
        """The owner of the conversation with this id; of several, the first. None when there is none."""

    async def delete(self, owner: str, scope: str, thread_id: str) -> bool:
        """Forgets a conversation; False when there was none."""

    def turn(self, owner: str, scope: str, thread_id: str) -> AbstractAsyncContextManager[HeldConversation]:
        """Holds the conversation, which need not exist, for one run: `async with history.turn(...) as held`.

        One holder at a time in all processes that share the store, in order of arrival; different conversations do
        not wait for each other. Waiting may be cancelled and leaves nothing behind. Entering twice from one
        task waits for ever.

        A turn is a lease: renewed while it is held, gone some seconds after its process died. A process that
        stood still for longer than that may find that another has gone on; then its commit is a `StoreConflict`,
        so that a turn gives order, and the version alone gives safety.
        """

    async def prune(self, older_than: float) -> int:
        """Delete conversations without a commit for `older_than` seconds. Return how many.

        Locked ones stay. Works in small transactions, so that nothing waits for it.
        """


def unavailable(engine: str, reason: str, store: str = "history") -> BridgeError:
    """The one error for whatever goes wrong in an engine. `reason` is a code or a class name, never its text."""
    message = f"the {store} store is not available ({engine}: {reason})"
    return BridgeError(message, code=ErrorCode.STORE_UNAVAILABLE, headers={"retry-after": "1"})


def key(owner: str, scope: str, thread_id: str) -> tuple[str, str, str]:
    """The three as engines store them."""
    return stored_id(owner, "owner"), stored_id(scope, "scope"), stored_id(thread_id, "conversation id")


@lru_cache(1024)  # most requests have the owner and the scope of others
def stored_id(text: str, what: str) -> str:
    """Clients invent ids: what databases refuse in a text (NUL, lone surrogates) is written as `%` and hex digits."""
    text = _escaped(text)
    if len(text.encode()) > MAX_KEY:
        raise RequestError(f"expected a {what} of at most {MAX_KEY} bytes")
    return text


def fits(text: str) -> bool:
    """Return whether `stored_id` accepts the text."""
    return len(_escaped(text).encode()) <= MAX_KEY


def _escaped(text: str) -> str:
    return _REFUSED.sub(lambda found: f"%{ord(found[0]):04X}", text)


def plain_id(text: str) -> str:
    """The id that `stored_id` was given."""
    first, *rest = text.split("%")
    return first + "".join(chr(int(piece[:4], 16)) + piece[4:] for piece in rest)
