"""The targets of the notifications of one task, kept beside the conversations of its owner."""

from __future__ import annotations

from dataclasses import asdict, replace

from bridge.contract import PushTarget
from bridge.errors import RequestError
from bridge.stores.conversation_store import Conversation, derived_id
from bridge.stores.conversations import ConversationStore

MOST = 10
"""Targets of one task."""
_TARGETS = "targets"


class PushTargets:
    """The push targets of one task. Every method may raise `BridgeError`, as the store does.

    They are kept under an owner of its own, as they are no conversation of the owner's.
    """

    def __init__(self, store: ConversationStore, owner: str, scope: str, task_id: str) -> None:
        self._store = store
        self._place = derived_id(owner, after="\0push"), scope, task_id

    async def load(self) -> list[PushTarget]:
        """Return all targets, the oldest first."""
        return _read(await self._store.load(*self._place))

    async def set(self, target: PushTarget) -> None:
        """Add a target, in place of one with its id. Raises `RequestError` if there are `MOST` others."""
        async with self._store.turn(*self._place) as held:
            others = [each for each in _read(held.conversation) if each.id != target.id]
            if len(others) >= MOST:
                text = f"This task has {MOST} push notification configs, which is the limit; delete one first."
                raise RequestError(text, param=target.place)
            held.conversation.extra = _written([*others, target])
            await held.commit([])

    async def delete(self, target_id: str) -> None:
        """Remove a target, if there is one with this id."""
        async with self._store.turn(*self._place) as held:
            known = _read(held.conversation)
            others = [each for each in known if each.id != target_id]
            if len(others) != len(known):
                held.conversation.extra = _written(others)
                await held.commit([])


def _read(conversation: Conversation | None) -> list[PushTarget]:
    found = conversation.extra.get(_TARGETS, []) if conversation is not None else []
    return [PushTarget(**values) for values in found]


def _written(targets: list[PushTarget]) -> dict[str, object]:
    return {_TARGETS: [asdict(replace(target, place="")) for target in targets]}
