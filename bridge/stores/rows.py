"""Between our values and what a database keeps: the same texts on every engine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from bridge.model.dump import dump, dump_message, dump_tool, load, load_message, load_tool
from bridge.model.events import Interrupted
from bridge.model.parts import Message
from bridge.stores.base import Bounds, Conversation, plain_id
from bridge.stores.bounds import Entry, links, surplus


@dataclass(slots=True)
class Row:
    """One message. `links` is a JSON array [calls, results], None when the message has neither."""

    role: str
    size: int
    links: str | None
    body: str


def to_row(message: Message) -> Row:
    body = write(dump_message(message))
    linked = links(message)
    return Row(message.role, len(body.encode()), write(linked) if any(linked) else None, body)


def to_rows(messages: Iterable[Message]) -> list[Row]:
    return [to_row(message) for message in messages]


def from_bodies(bodies: Iterable[str]) -> list[Message]:
    return [load_message(read(body)) for body in bodies]


def entry(role: str, size: int, commit: int, linked: str | None) -> Entry:
    calls, results = read(linked) if linked else ((), ())
    return Entry(role, size, commit, tuple(calls), tuple(results))


def beside(conversation: Conversation) -> tuple[str | None, str]:
    """The columns tools and beside: small JSON that is written with every commit."""
    tools = None if conversation.tools is None else write([dump_tool(tool) for tool in conversation.tools])
    interrupts = [dump(event) for event in conversation.open_interrupts]
    return tools, write([conversation.backend_thread, interrupts, conversation.extra])


# What `to_conversation` wants, in this order.
COLUMNS = "thread_id, version, dropped, digest, updated_at, tools, beside"


def to_conversation(row: Sequence[Any], bodies: Iterable[str]) -> Conversation:
    thread_id, version, dropped, digest, updated_at, tools, rest = row
    backend_thread, interrupts, extra = read(rest)
    return Conversation(
        plain_id(thread_id),
        from_bodies(bodies),
        None if tools is None else [load_tool(tool) for tool in read(tools)],
        backend_thread,
        [event for event in map(load, interrupts) if isinstance(event, Interrupted)],
        extra,
        version,
        dropped,
        None if digest is None else plain_id(digest),
        updated_at,
    )


@dataclass(slots=True)
class Outcome:
    """What a commit did. `gone` are the places of the messages that the bounds took, in old and new together."""

    version: int
    dropped: int
    updated_at: float
    gone: list[int]


def settle(
    conversation: Conversation, keep: int | None, new: list[Message], digest: str | None, outcome: Outcome
) -> None:
    """Makes the caller's conversation what is stored now."""
    gone = set(outcome.gone)
    messages = [*conversation.messages[:keep], *new]
    conversation.messages = [m for place, m in enumerate(messages) if place not in gone] if gone else messages
    conversation.version, conversation.dropped = outcome.version, outcome.dropped
    conversation.digest, conversation.updated_at = digest, outcome.updated_at


def over(count: int, size: int, bounds: Bounds) -> bool:
    return count > bounds.messages or size > bounds.size


def too_many(rows: Sequence[Sequence[Any]], bounds: Bounds) -> tuple[list[int], list[Any]]:
    """Of rows (seq, role, size, commit, links) in order: the places and the seqs that must go."""
    places = surplus([entry(*row[1:]) for row in rows], bounds)
    return places, [rows[place][0] for place in places]


def write(value: Any) -> str:
    """Compact JSON. What orjson refuses (lone surrogates, integers beyond 64 bits) the standard library writes, with
    a space before it, since orjson would read such integers as floats."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return " " + json.dumps(value, separators=(",", ":"))


def read(text: str) -> Any:
    """The value that `write` wrote."""
    return json.loads(text) if text.startswith(" ") else orjson.loads(text)
