"""Conversion between conversations and what a database stores, the same for every engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from bridge.model.dump import dump, load, load_message, load_tool
from bridge.model.events import Interrupted
from bridge.model.parts import Message
from bridge.stores.bounds import MessageSize, links, surplus
from bridge.stores.conversation_store import Bounds, Conversation, plain_id, stored_id

_MANY = 50
"""From this number of messages on, JSON is read and written in a thread."""


@dataclass(slots=True)
class MessageRow:
    """One message. `links` is a JSON array [calls, results], None when the message has neither."""

    role: str
    size: int
    links: str | None
    body: str


def to_row(message: Message) -> MessageRow:
    body = write(dump(message))
    linked = links(message)
    size = len(body) if body.isascii() else len(body.encode())
    return MessageRow(message.role, size, write(linked) if any(linked) else None, body)


# The columns that `to_conversation` expects, in this order.
COLUMNS = "thread_id, version, dropped, digest, updated_at, tools, beside"


def to_conversation(row: Sequence[Any], bodies: Iterable[str]) -> Conversation:
    thread_id, version, dropped, digest, updated_at, tools, rest = row
    backend_thread, interrupts, extra = read(rest)
    return Conversation(
        plain_id(thread_id),
        [load_message(read(body)) for body in bodies],
        None if tools is None else [load_tool(tool) for tool in read(tools)],
        backend_thread,
        [event for event in map(load, interrupts) if isinstance(event, Interrupted)],
        extra,
        version,
        dropped,
        None if digest is None else plain_id(digest),
        updated_at,
    )


async def loaded(row: Sequence[Any], bodies: Sequence[str]) -> Conversation:
    """Do the work of `to_conversation`, in a thread if there are many messages."""
    if len(bodies) < _MANY:
        return to_conversation(row, bodies)
    return await asyncio.to_thread(to_conversation, row, bodies)


class Change:
    """A commit as the texts to store, prepared outside its transaction. Raises `RequestError` for a long digest."""

    def __init__(
        self, conversation: Conversation, new: list[Message], keep: int | None = None, digest: str | None = None
    ) -> None:
        self.conversation = conversation
        self.new = new
        self.keep = keep
        self.digest = digest
        self.name = None if digest is None else stored_id(digest, "digest")
        self.rows = [to_row(message) for message in new]
        self.size = sum(row.size for row in self.rows)
        # Columns of small JSON values, which are written with every commit.
        self.tools = None if conversation.tools is None else write([dump(tool) for tool in conversation.tools])
        interrupts = [dump(event) for event in conversation.open_interrupts]
        self.beside = write([conversation.backend_thread, interrupts, conversation.extra])

    def settle(self, outcome: CommitOutcome) -> None:
        """Update the caller's conversation to what is stored now."""
        conversation, gone = self.conversation, set(outcome.gone)
        messages = [*conversation.messages[: self.keep], *self.new]
        conversation.messages = [m for index, m in enumerate(messages) if index not in gone] if gone else messages
        conversation.version, conversation.dropped = outcome.version, outcome.dropped
        conversation.digest, conversation.updated_at = self.digest, outcome.updated_at


async def change(
    conversation: Conversation, new: list[Message], keep: int | None = None, digest: str | None = None
) -> Change:
    """Return a `Change`, prepared in a thread if there are many messages."""
    if len(new) < _MANY:
        return Change(conversation, new, keep, digest)
    return await asyncio.to_thread(Change, conversation, new, keep, digest)


@dataclass(slots=True)
class CommitOutcome:
    """The outcome of a commit. `gone`: positions, in old and new messages together, of those that were removed."""

    version: int
    dropped: int
    updated_at: float
    gone: list[int]


def over(count: int, size: int, bounds: Bounds) -> bool:
    return count > bounds.messages or size > bounds.size


def too_many(rows: Sequence[Sequence[Any]], bounds: Bounds) -> tuple[list[int], list[Any]]:
    """Return positions and seqs to remove of rows (seq, role, size, commit, links), which are in order."""
    sizes = []
    for _, role, size, commit, linked in rows:
        calls, results = read(linked) if linked else ((), ())
        sizes.append(MessageSize(role, size, commit, tuple(calls), tuple(results)))
    indexes = surplus(sizes, bounds)
    return indexes, [rows[index][0] for index in indexes]


def write(value: Any) -> str:
    """Return compact JSON.

    The standard library writes what orjson rejects (unpaired surrogates, integers beyond 64 bits), with a space in
    front, as orjson would read such integers as floats.
    """
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return " " + json.dumps(value, separators=(",", ":"))


def read(text: str) -> Any:
    """Return the value that `write` wrote."""
    return json.loads(text) if text.startswith(" ") else orjson.loads(text)
