"""Answers that clients read again, or continue, by id: each is a conversation of its own in the conversation store.

An answer that continues another one begins with its conversation, so that the messages of a chain of answers are stored
once, and those of branches as far as they differ. The messages stay when the earlier answer is deleted or expires.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from operator import eq
from typing import Any

from bridge.contract import StoredAnswer, StoredResponses
from bridge.model import Message
from bridge.stores.conversation_store import BaseGone, Conversation, StoreConflict, derived_id
from bridge.stores.conversations import ConversationStore

_BODY, _RUN, _ENDED = "body", "run", "ended"

Look = Callable[[StoredAnswer], Awaitable[StoredAnswer]]
"""Returns the current state of an answer whose run has not ended."""


class ResponseStore:
    """The answers of one owner on one route. Every method may raise `BridgeError`, as the store does.

    They are kept under an owner of their own: answers are many, and beside the owner's conversations they would count
    against those and push them out.
    """

    def __init__(self, store: ConversationStore, owner: str, scope: str, look: Look | None = None) -> None:
        self._store = store
        self._poll = look
        self._owner = derived_id(owner, after="\0responses")
        # Older versions keep each with all messages, and would read ours without those of earlier answers.
        self._before = derived_id(owner, after="\0answers")
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

    async def load(self, answer_id: str, *, messages: bool = True) -> StoredAnswer | None:
        """Return what the store has of the answer; of one that had not ended, the request. Without `messages`, it has
        none: they are as long as the conversation.
        """
        found = await self._load(answer_id, messages)
        return None if found is None else _answer(found[1])

    async def _load(self, answer_id: str, messages: bool = True) -> tuple[str, Conversation] | None:
        """Return the answer with the owner that it is stored under."""
        for owner in (self._owner, self._before):
            found = await self._store.load(owner, self._scope, answer_id, messages=messages)
            if found is not None:
                return owner, found
        return None

    async def now(self, stored: StoredAnswer) -> StoredAnswer:
        """Return the current state of a stored answer."""
        if stored.ended or self._poll is None:
            return stored
        found = await self._poll(stored)
        if found.ended:
            await self.settle(found)
        return found

    async def keep(self, answer: StoredAnswer, previous: StoredAnswer | None = None) -> None:
        """Its id must be a new one: raises `StoreConflict` otherwise. `previous` is the answer that it continues."""
        if previous is not None and _continues(answer.messages, previous.messages):
            new = answer.messages[len(previous.messages) :]
            try:
                await self._commit(answer, new, after=previous.id)
                return
            except BaseGone:
                pass  # deleted meanwhile, remembered by a connection only, of an older version, or too long
        await self._commit(answer, answer.messages)

    async def _commit(self, answer: StoredAnswer, new: list[Message], *, after: str | None = None) -> None:
        conversation = Conversation(answer.id, extra=_fields(answer))
        headroom = after is None  # for the answers that continue this one
        await self._store.commit(self._owner, self._scope, conversation, new, after=after, headroom=headroom)

    async def settle(self, answer: StoredAnswer) -> bool:
        """Store the final state of an answer that was stored before its end. Return False if it was deleted."""
        found = await self._load(answer.id)
        if found is None:
            return False
        owner, conversation = found
        if not _answer(conversation).ended:
            conversation.extra = _fields(answer)
            begun = conversation.messages
            keep = len(begun) if _continues(answer.messages, begun) else 0
            try:
                await self._store.commit(owner, self._scope, conversation, answer.messages[keep:], keep=keep)
            except StoreConflict:
                # Another process has just stored the same state, or deleted it.
                return await self.load(answer.id, messages=False) is not None
        return True

    async def delete(self, answer_id: str) -> bool:
        """Delete the answer. Return whether there was one."""
        for owner in (self._owner, self._before):
            if await self._store.delete(owner, self._scope, answer_id):
                return True
        return False


def _continues(messages: list[Message], before: list[Message]) -> bool:
    """Return whether these messages begin with those before."""
    return len(messages) >= len(before) and all(map(eq, before, messages))


def _fields(answer: StoredAnswer) -> dict[str, Any]:
    run = {} if answer.run_id is None else {_RUN: answer.run_id, _ENDED: answer.ended}
    return {_BODY: answer.body, **run}


def _answer(conversation: Conversation) -> StoredAnswer:
    extra = conversation.extra
    return StoredAnswer(
        conversation.thread_id, extra[_BODY], conversation.messages, extra.get(_RUN), extra.get(_ENDED, True)
    )
