"""The scripts of conversations: transactions on their tables, for every engine (`bridge.stores.scripts`)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeAlias

from bridge.liveness import Grace, no_grace
from bridge.stores import rows
from bridge.stores.base import Bounds, Conversation, StoreConflict, plain_id
from bridge.stores.memory_budget import FREE, Charge
from bridge.stores.scripts import Script

Key: TypeAlias = tuple[str, str, str]
"""Owner, scope and thread id as they are stored."""

Stored: TypeAlias = tuple[Sequence[Any], list[str]]
"""A conversation's row and its messages' bodies, as `rows.to_conversation` takes them."""

_BATCH = 1000
"""Conversations that one transaction deletes at most."""
_MESSAGES = 10_000
"""About how many messages they may have."""
_SAMPLE = 100

KEY = "owner = :owner AND scope = :scope AND thread_id = :thread"
_SIZE = "size + {bytes beside} + coalesce({bytes tools}, 0)"
_LIVE = """EXISTS (SELECT 1 FROM history_turns t WHERE t.owner = c.owner AND t.scope = c.scope
    AND t.thread_id = c.thread_id AND t.expires > {now} - :grace)"""

# `beside` is null where both are too large to be read before they are charged.
_HEAD = f"""SELECT id, {_SIZE}, thread_id, version, dropped, digest, updated_at,
    CASE WHEN {_SIZE} <= :free THEN tools END, CASE WHEN {_SIZE} <= :free THEN beside END
    FROM history_conversations WHERE {KEY}"""
_BESIDE = "SELECT tools, beside FROM history_conversations WHERE id = :id"
_BODIES = "SELECT body FROM history_messages WHERE conversation = :id ORDER BY seq"
FIND = """SELECT thread_id FROM history_conversations WHERE owner = :owner AND scope = :scope AND digest = :digest
    ORDER BY updated_at DESC, id DESC LIMIT 1"""
LATEST = """SELECT thread_id FROM history_conversations WHERE owner = :owner AND scope = :scope
    ORDER BY updated_at DESC, id DESC LIMIT 1"""
OWNER = "SELECT owner FROM history_conversations WHERE scope = :scope AND thread_id = :thread ORDER BY id LIMIT 1"
DELETE = f"DELETE FROM history_conversations WHERE {KEY} RETURNING id"
_NAMES = "SELECT thread_id FROM history_conversations WHERE owner = :owner AND scope = :scope ORDER BY id"

_STATE = f"""SELECT version, id, dropped, next_seq, messages, size FROM history_conversations
    WHERE {KEY} {{lock}}"""
_CREATE = """INSERT INTO history_conversations (version, digest, dropped, next_seq, messages, size, tools, beside,
    owner, scope, thread_id, updated_at)
    VALUES (:version, :digest, :dropped, :next_seq, :messages, :size, :tools, :beside, :owner, :scope, :thread, {wall})
    ON CONFLICT DO NOTHING RETURNING id, updated_at"""
_UPDATE = """UPDATE history_conversations SET version = :version, digest = :digest, dropped = :dropped,
    next_seq = :next_seq, messages = :messages, size = :size, tools = :tools, beside = :beside, updated_at = {wall}
    WHERE id = :id RETURNING id, updated_at"""
_APPEND = """INSERT INTO history_messages (conversation, commit_version, seq, role, size, links, body) {values added
    (conversation bigint, commit_version bigint, seq bigint, role text, size bigint, links text, body text)}"""
_FIRST_CUT = "SELECT seq FROM history_messages WHERE conversation = :id ORDER BY seq LIMIT 1 OFFSET :keep"
_CUT = "DELETE FROM history_messages WHERE conversation = :id AND seq >= :seq RETURNING size"
_SIZES = """SELECT seq, role, size, commit_version, links FROM history_messages
    WHERE conversation = :id ORDER BY seq"""
_DROP = """DELETE FROM history_messages WHERE conversation = :id
    AND seq IN (SELECT seq FROM {rows gone (seq bigint)})"""
_SHRINK = "UPDATE history_conversations SET dropped = :dropped, messages = :messages, size = :size WHERE id = :id"
_EVICT = f"""DELETE FROM history_conversations WHERE id IN (SELECT id FROM history_conversations c
    WHERE id IN (SELECT id FROM history_conversations WHERE owner = :owner
    ORDER BY updated_at DESC, id DESC LIMIT {2**62} OFFSET :most) AND NOT {_LIVE} {{skip}})"""

_OLD = f"""SELECT id, messages FROM history_conversations c
    WHERE updated_at <= {{wall}} - CAST(:age AS double precision) AND NOT {_LIVE}
    ORDER BY updated_at LIMIT {_BATCH} {{skip}}"""
_FORGET = "DELETE FROM history_conversations WHERE id IN (SELECT id FROM {rows old (id bigint)})"


def named(where: Key) -> dict[str, str]:
    """Return the values of `KEY`."""
    owner, scope, thread = where
    return {"owner": owner, "scope": scope, "thread": thread}


def fetch(where: Key, charge: Charge, *, lock: bool = False) -> Script[Stored | None]:
    """Return the stored texts, which are parsed after the transaction, once they are charged.

    In a script that writes, `lock` the row: its messages are read by a second statement. Raises what `charge` raises.
    """
    found = yield f"{_HEAD} {'{lock}' if lock else ''}", {**named(where), "free": FREE}
    if not found:
        return None
    row_id, size, *head, tools, beside = found[0]
    charge(("conversation", where), size)
    if beside is None:
        ((tools, beside),) = yield _BESIDE, {"id": row_id}
    bodies = yield _BODIES, {"id": row_id}
    return (*head, tools, beside), [body for (body,) in bodies]


def head(where: Key) -> Script[Conversation | None]:
    """Return the conversation without its messages; None if there is none."""
    found = yield _HEAD, {**named(where), "free": 2**62}
    return rows.to_conversation(found[0][2:], ()) if found else None


def names(owner: str, scope: str) -> Script[list[str]]:
    """Return the ids of the conversations, oldest first."""
    found = yield _NAMES, {"owner": owner, "scope": scope}
    return [plain_id(name) for (name,) in found]


def commit(where: Key, change: rows.Change, bounds: Bounds, grace: Grace = no_grace) -> Script[rows.Outcome]:
    """See `ConversationStore.commit`; pass the outcome to `change.settle`. Raises `StoreConflict`."""
    found = yield _STATE, named(where)
    version, row_id, dropped, seq, count, size = found[0] if found else (0, None, 0, 0, 0, 0)
    if version != change.conversation.version:
        raise StoreConflict
    if row_id is not None and change.keep is not None:
        cut = yield from _cut(row_id, change.keep)
        count, size, dropped = count - len(cut), size - sum(cut), dropped if change.keep else 0
    added = change.rows
    count, size = count + len(added), size + change.size
    state = {"version": version + 1, "digest": change.name, "dropped": dropped, "next_seq": seq + len(added)}
    state |= {"messages": count, "size": size, "tools": change.tools, "beside": change.beside}
    written = yield (_CREATE, {**state, **named(where)}) if row_id is None else (_UPDATE, {**state, "id": row_id})
    if not written:
        raise StoreConflict  # another process has just created it
    row_id, now = written[0]
    if added:
        values = [(row_id, version + 1, seq + n, r.role, r.size, r.links, r.body) for n, r in enumerate(added)]
        yield _APPEND, {"added": values}
    gone: list[int] = []
    if rows.over(count, size, bounds):
        sizes = yield _SIZES, {"id": row_id}
        gone, seqs = rows.too_many(sizes, bounds)
        dropped += len(gone)
        yield _DROP, {"id": row_id, "gone": [(each,) for each in seqs]}
        size -= sum(sizes[n][2] for n in gone)
        yield _SHRINK, {"id": row_id, "dropped": dropped, "messages": count - len(gone), "size": size}
    if version == 0 and bounds.conversations is not None and _is_sampled(bounds.conversations):
        yield _EVICT, {"owner": where[0], "most": bounds.conversations, "grace": grace()}
    return rows.Outcome(version + 1, dropped, now, gone)


def _cut(row_id: int, keep: int) -> Script[list[int]]:
    """Delete all messages after the first `keep`. Return their sizes."""
    first = yield _FIRST_CUT, {"id": row_id, "keep": keep}
    if not first:
        return []
    sizes = yield _CUT, {"id": row_id, "seq": first[0][0]}
    return [size for (size,) in sizes]


def _is_sampled(most: int) -> bool:
    """Return whether an owner's conversations are counted at this new one: a count reads about `most` of them."""
    return random.random() * most < _SAMPLE


def prune(age: float, grace: Grace) -> Script[tuple[int, bool]]:
    """Delete some old conversations. Return how many, and whether there may be more."""
    found = yield _OLD, {"age": age, "grace": grace()}
    old: list[tuple[int]] = []
    left = _MESSAGES
    for row_id, messages in found:
        old.append((row_id,))
        left -= messages
        if left <= 0:
            break
    if old:
        yield _FORGET, {"old": old}
    return len(old), len(old) == _BATCH or left <= 0
