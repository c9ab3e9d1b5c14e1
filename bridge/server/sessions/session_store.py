"""Sessions in the store of conversations: what their clients saw, and a list of them.

What a backend needs of a conversation depends on the backend, and is kept by `bridge.run.conversation`. A client that
comes back gets what it saw, whichever backend answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from bridge.contract.optional.rpc import RpcSession
from bridge.model import Interrupted, Message
from bridge.model.jsontext import dict_of, dumps, text_of
from bridge.stores.conversation_store import Conversation, StoreConflict, derived_id
from bridge.stores.conversations import ConversationStore

MOST = 500
"""Sessions in a list; older ones can still be opened by their ids."""
_MOST_TEXT = 256 * 1024
"""Characters of a list, which is written again with each prompt: folders of clients have any length."""
PAGE = 50
_LIST = "sessions"


@dataclass(slots=True)
class Stored:
    """A session as it is stored."""

    session: RpcSession
    conversation: Conversation

    def take_messages(self) -> list[Message]:
        """Return what the client saw, oldest first. It is not held any more: a session may be open for days."""
        messages, self.conversation.messages = self.conversation.messages, []
        return messages


@dataclass(slots=True)
class Waiting:
    """The questions that wait in a session. `told`: the next prompt answers them, as their client cannot be asked."""

    asked: list[Interrupted] = field(default_factory=list)
    told: bool = False


class SessionStore:
    """The sessions of one owner on one route. Every method may raise `BridgeError`, as the store does."""

    def __init__(self, history: ConversationStore, owner: str, scope: str) -> None:
        self._history = history
        self._owner = owner
        # They are no conversations of the owner's, though they are its data.
        self._seen = derived_id(owner, after="\0sessions")
        self._lists = derived_id(owner, after="\0session list")
        self._scope = scope

    async def add(self, session: RpcSession) -> Stored:
        """Store a new session."""
        stored = Stored(session, Conversation(session.id, extra=_dumped(session)))
        await self._commit(stored, [])
        return stored

    async def load(self, session_id: str) -> Stored | None:
        """Return a session; None if there is none."""
        conversation = await self._history.load(self._seen, self._scope, session_id)
        if conversation is None:
            return None
        return Stored(_loaded(session_id, conversation.extra, conversation.updated_at), conversation)

    async def append(self, stored: Stored, messages: Sequence[Message], waiting: Waiting) -> None:
        """Store what a prompt added to a session, and the questions that wait now."""
        stored.conversation.open_interrupts = waiting.asked
        stored.conversation.extra = {**_dumped(stored.session), "told": waiting.told}
        try:
            await self._commit(stored, [*messages])
            stored.take_messages()
        except StoreConflict:
            # The same session is open in another connection, too.
            found = await self._history.load(self._seen, self._scope, stored.session.id)
            found = found or Conversation(stored.session.id)
            found.open_interrupts, found.extra = stored.conversation.open_interrupts, stored.conversation.extra
            stored.conversation = found
            await self._commit(stored, [*messages])
            stored.take_messages()

    async def page(self, about: dict[str, Any], start: int) -> tuple[list[RpcSession], int | None]:
        """Return sessions whose clients said `about`, newest first, from a position.

        The second value is the position of those that follow; None if there are none.
        """
        found = await self._history.load(self._lists, self._scope, _LIST)
        rows = [dict_of(row) for row in (found.extra.get(_LIST) if found is not None else None) or ()]
        sessions = [_loaded(text_of(row.get("id")), row, row.get("updated_at", 0.0)) for row in rows]
        fitting = [s for s in sessions if all(s.about.get(name) == value for name, value in about.items())]
        end = start + PAGE
        return fitting[start:end], end if end < len(fitting) else None

    async def delete(self, session_id: str) -> None:
        """Delete a session and its conversation, if there is one."""
        async with self._history.turn(self._lists, self._scope, _LIST) as held:
            rows = [row for row in held.conversation.extra.get(_LIST, ()) if dict_of(row).get("id") != session_id]
            held.conversation.extra = {_LIST: rows}
            await held.commit([])
        if await self._history.delete(self._seen, self._scope, session_id):
            await self._history.delete(self._owner, self._scope, session_id)

    async def _commit(self, stored: Stored, new: list[Message]) -> None:
        session = stored.session
        await self._history.commit(self._seen, self._scope, stored.conversation, new)
        session.updated_at = stored.conversation.updated_at
        async with self._history.turn(self._lists, self._scope, _LIST) as held:
            rows = [row for row in held.conversation.extra.get(_LIST, ()) if dict_of(row).get("id") != session.id]
            row = {"id": session.id, "updated_at": session.updated_at, **_dumped(session)}
            held.conversation.extra = {_LIST: _listed([row, *rows])}
            await held.commit([])


def _listed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first rows that a list has room for: the newest one always."""
    sizes = accumulate(len(dumps(row)) for row in rows[:MOST])
    return [
        row for number, (row, size) in enumerate(zip(rows, sizes, strict=False)) if not number or size <= _MOST_TEXT
    ]


def waiting_in(stored: Stored) -> Waiting:
    """Return the questions that wait in a stored session."""
    return Waiting(list(stored.conversation.open_interrupts), bool(stored.conversation.extra.get("told")))


def _dumped(session: RpcSession) -> dict[str, Any]:
    return {"about": session.about, "model": session.model, "title": session.title}


def _loaded(session_id: str, values: dict[str, Any], updated_at: float) -> RpcSession:
    model = values.get("model")
    return RpcSession(
        session_id,
        dict_of(values.get("about")),
        model=model if isinstance(model, str) else None,
        title=text_of(values.get("title")),
        updated_at=updated_at,
    )
