"""The list of an owner's tasks: only its newest member is kept here, as each task names the one before it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bridge.stores.conversation_store import derived_id
from bridge.stores.conversations import ConversationStore

_HEAD, _LATEST = "tasks", "latest"


class TaskIndex:
    """The tasks of one owner on one route. Every method may raise `BridgeError`, as the store does.

    It is kept under an owner of its own, as it is no conversation of the owner's.
    """

    def __init__(self, store: ConversationStore, owner: str, scope: str) -> None:
        self._store = store
        self._owner = derived_id(owner, after="\0tasks")
        self._scope = scope

    async def latest(self) -> str | None:
        """Return the id of the task that was added last; None if there is none."""
        conversation = await self._store.load(self._owner, self._scope, _HEAD)
        return None if conversation is None else conversation.extra.get(_LATEST)

    @asynccontextmanager
    async def adding(self, task_id: str) -> AsyncIterator[str | None]:
        """Give the id of the task before this one, which becomes the latest when the block is left without an error.

        One task is added at a time, in all processes that share the store.
        """
        async with self._store.turn(self._owner, self._scope, _HEAD) as held:
            yield held.conversation.extra.get(_LATEST)
            held.conversation.extra = {_LATEST: task_id}
            await held.commit([])

    @asynccontextmanager
    async def continuing(self, task_id: str) -> AsyncIterator[None]:
        """Hold the task while a message or a cancellation changes it, so that no other one acts on the same state."""
        async with self._store.turn(self._owner, self._scope, derived_id(task_id, before=f"{_HEAD}/")):
            yield
