"""Answers that clients read again, or continue, by id: each is a conversation of its own in the conversation store.

Each answer is stored with the whole conversation up to it, so that none depends on another that may be deleted or
expire.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from bridge.codec import StoredAnswer, StoredResponses
from bridge.stores.base import Conversation, ConversationStore, StoreConflict, derived_id

_BODY, _RUN, _ENDED = "body", "run", "ended"

Look = Callable[[StoredAnswer], Awaitable[StoredAnswer]]
"""Returns the current state of an answer whose run has not ended."""


class Answers:
    """The answers of one owner on one route. Every method may raise `BridgeError`, as the store does.

    They are kept under an owner of their own: answers are many, and beside the owner's conversations they would count
    against those and push them out.
    """

    def __init__(self, history: ConversationStore, owner: str, scope: str, look: Look | None = None) -> None:
        self._history = history
        self._poll = look
        self._owner = derived_id(owner, after="\0answers")
        self._scope = scope

    async def stored_responses(self, ids: Iterable[str]) -> StoredResponses:
        """Return those of the requested answers that exist."""
        return StoredResponses(
            {answer.id: answer for i in dict.fromkeys(ids) if (answer := await self.find(i)) is not None}
        )

    async def find(self, answer_id: str) -> StoredAnswer | None:
        """The answer as it is now."""
        stored = await self.load(answer_id)
        return None if stored is None else await self.now(stored)

    async def load(self, answer_id: str) -> StoredAnswer | None:
        """Return what the store has of the answer; of one that had not ended, the request."""
        conversation = await self._history.load(self._owner, self._scope, answer_id)
        return None if conversation is None else _answer(conversation)

    async def now(self, stored: StoredAnswer) -> StoredAnswer:
        """Return the current state of a stored answer."""
        if stored.ended or self._poll is None:
            return stored
        found = await self._poll(stored)
        if found.ended:
            await self.settle(found)
        return found

    async def keep(self, answer: StoredAnswer) -> None:
        """Its id must be a new one: raises `StoreConflict` otherwise."""
        conversation = Conversation(answer.id, extra=_fields(answer))
        await self._history.commit(self._owner, self._scope, conversation, answer.messages)

    async def settle(self, answer: StoredAnswer) -> bool:
        """Store the final state of an answer that was stored before its end. Return False if it was deleted."""
        conversation = await self._history.load(self._owner, self._scope, answer.id)
        if conversation is None:
            return False
        if not _answer(conversation).ended:
            conversation.extra = _fields(answer)
            try:
                await self._history.commit(self._owner, self._scope, conversation, answer.messages, keep=0)
            except StoreConflict:
                # Another process has just stored the same state, or deleted it.
                return await self.load(answer.id) is not None
        return True

    async def delete(self, answer_id: str) -> bool:
        """Delete the answer. Return whether there was one."""
        return await self._history.delete(self._owner, self._scope, answer_id)


def _fields(answer: StoredAnswer) -> dict[str, Any]:
    run = {} if answer.run_id is None else {_RUN: answer.run_id, _ENDED: answer.ended}
    return {_BODY: answer.body, **run}


def _answer(conversation: Conversation) -> StoredAnswer:
    extra = conversation.extra
    return StoredAnswer(
        conversation.thread_id, extra[_BODY], conversation.messages, extra.get(_RUN), extra.get(_ENDED, True)
    )
