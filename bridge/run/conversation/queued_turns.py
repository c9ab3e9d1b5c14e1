"""Conversations that clients read back from the server: each message is stored with its run, its time and its
visibility.

The messages of a request are stored before its run begins, and runs of one thread may go side by side. So that the
conversation still reads as one, a backend gets it run by run, in the order of the requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from bridge.contract import Capabilities, QueuedRunsOptions
from bridge.model import (
    Answer,
    ContentAdded,
    Custom,
    Event,
    HistoryMode,
    Message,
    MessageEnded,
    MessageStarted,
    PartStarted,
    Request,
    Resume,
    ToolResult,
    ToolResulted,
)
from bridge.model.parts import LINKED
from bridge.run.conversation.comparison import (
    behind,
    messages_of,
    no_results,
    only_results,
    open_calls,
    refused,
    unknown,
)
from bridge.run.conversation.interrupts import Settled, settle
from bridge.run.conversation.turns import Expand
from bridge.stores.conversation_store import Conversation, StoreConflict
from bridge.stores.conversations import ConversationStore

SHOWN = "ui.history"
"""The view in which people read a conversation back; a message lists the views that show it."""
MODEL = "model.context"
METADATA = "message.metadata"
"""The custom event with a backend's metadata of one of its messages: `{"messageId": ..., ...}`.

`visibility` lists the views that may show the message: `["model.context"]` hides it from people, `["ui.history"]` from
the model.
"""

_Named = MessageStarted | PartStarted | ContentAdded | MessageEnded | ToolResulted
_NAMING: frozenset[type] = frozenset(_Named.__args__)
VISIBILITY = "visibility"
_OURS = "bridge"
_HIDDEN_ROLES = ("system", "developer")


@dataclass(frozen=True, slots=True)
class MessageInfo:
    """Facts stored with one message. `at` is in seconds since 1970."""

    run: str
    at: float
    views: tuple[str, ...]

    @classmethod
    def of(cls, message: Message) -> MessageInfo:
        """Messages that were kept otherwise belong to no run and may be seen nowhere."""
        found: Any = message.metadata.get(_OURS)
        if not isinstance(found, dict):
            return cls("", 0.0, ())
        return cls(str(found["run"]), float(found["at"]), tuple(found["places"]))


def own_metadata(message: Message) -> dict[str, Any]:
    """Return the metadata of a message that is not the bridge's own."""
    return {name: value for name, value in message.metadata.items() if name != _OURS}


def _stamped(message: Message, run: str, name: str, *, visible: bool = True) -> Message:
    views = [SHOWN, MODEL] if visible and message.role not in _HIDDEN_ROLES else [MODEL]
    metadata = dict(message.metadata)
    wanted = metadata.pop(VISIBILITY, None)
    if isinstance(wanted, list):
        # Metadata of a client or agent cannot make a message visible in a view where it would not be.
        views = [view for view in views if view in wanted]
    metadata[_OURS] = {"run": run, "at": time.time(), "places": views}
    return replace(message, id=message.id or name, metadata=metadata)


def _for_model(message: Message) -> bool:
    """Return whether backends are sent this message. A call and its result stay together."""
    kept = _OURS not in message.metadata or MODEL in MessageInfo.of(message).views
    return kept or not LINKED.isdisjoint(map(type, message.parts))


async def store_request(
    store: ConversationStore,
    owner: str,
    scope: str,
    request: Request,
    run: str,
    conversation: Conversation | None = None,
) -> Conversation:
    """Store the new messages of a request and return the conversation with them.

    `conversation` is the stored one, where it is loaded already. Raises `RequestError` for a result without a call.
    """
    if conversation is None:
        thread = request.thread_id or run
        conversation = await store.load(owner, scope, thread) or Conversation(thread)

    def new(conversation: Conversation) -> list[Message]:
        fresh = _new_messages(conversation.messages, request.messages)
        waiting = open_calls(conversation.messages, fresh)
        missing: list[Message] = []
        if fresh and not only_results(fresh):
            resumed = {r.interrupt_id for r in request.resume}
            answered = {i.call_id for i in conversation.open_interrupts if i.interrupt_id in resumed}
            missing = no_results([call for call in waiting if call.call_id not in answered])
        return [
            *(_stamped(m, run, f"{run}-none-{n}", visible=False) for n, m in enumerate(missing)),
            *(_stamped(m, run, f"{run}-{n}") for n, m in enumerate(fresh)),
        ]

    return await _append(store, owner, scope, conversation, new)


def is_first(conversation: Conversation, run: str) -> bool:
    """Return whether the conversation has no messages of other runs."""
    return all(MessageInfo.of(message).run == run for message in conversation.messages)


async def forget_request(store: ConversationStore, owner: str, scope: str, thread: str, run: str) -> None:
    """Remove what `store_request` has stored for a run that was not queued."""
    while (conversation := await store.load(owner, scope, thread)) is not None:
        left = _without(conversation.messages, run)
        if left is None:
            return
        first, others = left
        if not first and not others:
            # Uploads of the thread stay: the client will ask again.
            await store.delete(owner, scope, thread, files=False)
            return
        with suppress(StoreConflict):
            await store.commit(owner, scope, conversation, others, keep=first)
            return


def _without(stored: list[Message], run: str) -> tuple[int, list[Message]] | None:
    """Return how many messages come before those of a run, and those of others behind, as other runs may have spoken
    since; None if there are none of this run.
    """
    first = next((n for n, m in enumerate(stored) if MessageInfo.of(m).run == run), None)
    if first is None:
        return None
    return first, [message for message in stored[first:] if MessageInfo.of(message).run != run]


async def _append(
    store: ConversationStore,
    owner: str,
    scope: str,
    conversation: Conversation,
    new: Callable[[Conversation], list[Message]],
) -> Conversation:
    """Append what `new` returns for the stored conversation; called again if another writer was faster."""
    while True:
        try:
            await store.commit(owner, scope, conversation, new(conversation))
        except StoreConflict:
            thread = conversation.thread_id
            conversation = await store.load(owner, scope, thread) or Conversation(thread)
            continue
        return conversation


def _new_messages(stored: list[Message], messages: list[Message]) -> list[Message]:
    """Return the messages whose ids are not stored yet; the same question under two ids is two questions."""
    if not all(message.id for message in messages):
        return unknown(stored, messages)
    return behind(stored, messages, {message.id for message in stored})


class QueuedRunTurn(Expand):
    """One run of a stored conversation."""

    def __init__(
        self,
        store: ConversationStore,
        owner: str,
        scope: str,
        request: Request,
        front: Capabilities,
        back: Capabilities,
        options: QueuedRunsOptions,
    ) -> None:
        super().__init__(store, owner, scope, request, front, back)
        self._options = options
        self._run = ""
        self._taken: frozenset[str | None] = frozenset()

    async def begin(self, run_id: str) -> None:
        await super().begin(run_id)
        if self._back.takes_news and not self._back.names_threads:
            self.request = replace(self.request, messages=self._new, history=HistoryMode.DELTA)

    async def _find(self, run_id: str) -> tuple[list[Message], list[Message]]:
        self._run = self.request.run_id or run_id
        thread = self.request.thread_id or self._run
        await (self._enter(thread) if self._options.one_run_per_thread else self._load(thread))
        self._conversation = await store_request(
            self._store, self._owner, self._scope, self.request, self._run, self._conversation
        )
        self._taken = frozenset(message.id for message in self._conversation.messages)
        return _by_run(self._conversation.messages, self._run, self.request)

    def _settle(self, new: list[Message]) -> Settled:
        waiting, mode = self._conversation.open_interrupts, self._options.interrupt_message
        if self.request.resume or not waiting or mode == "repeat":
            return super()._settle(new)
        if mode == "answer":
            return settle(waiting, self.request, new, native=False)
        return Settled([Resume(i.interrupt_id, "cancelled") for i in waiting], new)

    def for_client(self, events: list[Event], answer: Answer) -> list[Event]:
        """Some agents give the same ids in every run; in a thread that is read back each names one message."""
        events = super().for_client(events, answer)
        if _NAMING.isdisjoint(map(type, events)):
            return events
        return [
            replace(e, message_id=f"{e.message_id}-{self._run}")
            if isinstance(e, _Named) and e.message_id in self._taken and e.message_id is not None
            else e
            for e in events
        ]

    async def forget(self) -> None:
        """Remove the messages of this run, which `begin` or the server has stored."""
        while (left := _without(self._conversation.messages, self._run)) is not None:
            first, others = left
            try:
                await self._commit(others, keep=first)
                return
            except StoreConflict:
                await self._load(self._conversation.thread_id)

    async def keep(self, answer: Answer, shown: Answer) -> None:
        if refused(answer):
            await self.forget()
            return
        notes = _notes(answer)
        spoken = [
            _stamped(
                replace(m, metadata={**m.metadata, **notes.get(m.id or "", {})}), self._run, _name(m, self._run, n)
            )
            for n, m in enumerate(messages_of(answer))
        ]

        def new(conversation: Conversation) -> list[Message]:
            conversation.tools = self.request.tools
            conversation.open_interrupts = list(answer.interrupts)
            return spoken

        try:
            await self._commit(new(self._conversation))
        except StoreConflict:  # another run of this thread spoke meanwhile
            await _append(self._store, self._owner, self._scope, self._conversation, new)


def _by_run(stored: Sequence[Message], run: str, request: Request) -> tuple[list[Message], list[Message]]:
    """Return the conversation before this run, and the messages of this run. An answer that is regenerated is left
    out, and so are runs that were requested after this one.
    """
    runs: dict[str, list[Message]] = {}
    for message in stored:
        of_run = runs.setdefault(MessageInfo.of(message).run, [])
        if _for_model(message):
            of_run.append(replace(message, metadata=own_metadata(message)))
    earlier = list(runs)
    if run in runs:
        del earlier[earlier.index(run) :]
    own = runs.pop(run, [])
    before = [message for name in earlier for message in runs[name]]
    if not own and not request.resume:
        last = request.messages[-1].id if request.messages else None
        position = next((n for n, m in enumerate(before) if m.id == last and last), None)
        before = before if position is None else before[: position + 1]
    return before, own


def _name(message: Message, run: str, index: int) -> str:
    """The id of a message of an answer that brought none; that of a result is made of its call's."""
    result = next((part for part in message.parts if isinstance(part, ToolResult)), None)
    return f"result-{result.call_id}" if result is not None else f"{run}-answer-{index}"


def _notes(answer: Answer) -> dict[str, dict[str, Any]]:
    """Message id -> what the backend sent about it by `METADATA` events."""
    notes: dict[str, dict[str, Any]] = {}
    for event in answer.events:
        if isinstance(event, Custom) and event.name == METADATA and isinstance(event.value, dict):
            name = event.value.get("messageId")
            if isinstance(name, str):
                notes.setdefault(name, {}).update({k: v for k, v in event.value.items() if k != "messageId"})
    return notes
