"""Answers that clients may ask for again, or go on from, by id: each a conversation of its own in the history store.

What is found under an id is the talk as it was at that answer, however often it was continued since: each answer brings
the whole talk with it, so that none depends on another that may be deleted or forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable

from bridge.codec import Shelf, StoredAnswer
from bridge.stores.base import Conversation, History

_BODY = "body"


class Answers:
    """The answers of one owner on one route. Every method may raise `BridgeError`, as the store does.

    They are kept under an owner of their own: answers are many, and beside the owner's conversations they would count
    against those and push them out.
    """

    def __init__(self, history: History, owner: str, scope: str) -> None:
        self._history = history
        self._owner = f"{owner}\0answers"
        self._scope = scope

    async def shelf(self, ids: Iterable[str]) -> Shelf:
        """What there is of the answers that a request names."""
        return Shelf({answer.id: answer for i in dict.fromkeys(ids) if (answer := await self.find(i)) is not None})

    async def find(self, answer_id: str) -> StoredAnswer | None:
        talk = await self._history.load(self._owner, self._scope, answer_id)
        return None if talk is None else StoredAnswer(answer_id, talk.extra[_BODY], talk.messages)

    async def keep(self, answer: StoredAnswer) -> None:
        """Its id must be a new one: raises `StoreConflict` otherwise."""
        talk = Conversation(answer.id, extra={_BODY: answer.body})
        await self._history.commit(self._owner, self._scope, talk, answer.messages)

    async def delete(self, answer_id: str) -> bool:
        """Whether there was one."""
        return await self._history.delete(self._owner, self._scope, answer_id)
