"""The scripts of conversations: transactions on their tables, for every engine (`bridge.stores.scripts`).

A conversation may begin with another one, its `base`: it then has the messages of the base, which are stored once,
before its own. Chains of conversations, each the base of the next, are read with one statement. A base that is deleted
while others begin with it loses its name and all that stands beside its messages, and is deleted with the last of them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeAlias

from bridge.stores import rows
from bridge.stores.conversation_store import BaseGone, Bounds, StoreConflict, plain_id
from bridge.stores.held_places import lives
from bridge.stores.liveness import Grace, no_grace
from bridge.stores.memory_budget import FREE, Charge
from bridge.stores.scripts import Rows, Script

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
_LIVE = f"""EXISTS (SELECT 1 FROM places t
    WHERE t.line = 'turn/' || c.owner || '%/' || c.scope || '%/' || c.thread_id AND {lives("t")})"""
"""A run has the turn of the conversation `c`, or waits for it."""

# `beside` is null where both are too large to be read before they are charged.
_HEAD = f"""SELECT id, base, size, {_SIZE}, thread_id, version, dropped, digest, updated_at,
    CASE WHEN {_SIZE} <= :free THEN tools END, CASE WHEN {_SIZE} <= :free THEN beside END
    FROM history_conversations WHERE {KEY}"""
_LOCKED_HEAD = f"{_HEAD} {{lock}}"
_BESIDE = "SELECT tools, beside FROM history_conversations WHERE id = :id"
_BODIES = "SELECT body FROM history_messages WHERE conversation = :id ORDER BY seq"
_CHAIN = """WITH RECURSIVE chain (id, base, depth, messages, size) AS (
    SELECT id, base, 0, messages, size FROM history_conversations WHERE id = :id
    UNION ALL SELECT c.id, c.base, chain.depth + 1, c.messages, c.size
    FROM chain JOIN history_conversations c ON c.id = chain.base)"""
_TOTALS = f"""{_CHAIN} SELECT CAST(coalesce(sum(messages), 0) AS bigint), CAST(coalesce(sum(size), 0) AS bigint),
    count(CASE WHEN base IS NULL THEN 1 END) FROM chain"""
_CHAIN_BODIES = f"""{_CHAIN} SELECT -chain.depth, m.seq, m.body FROM chain
    JOIN history_messages m ON m.conversation = chain.id"""
FIND = """SELECT thread_id FROM history_conversations WHERE owner = :owner AND scope = :scope AND digest = :digest
    ORDER BY updated_at DESC, id DESC LIMIT 1"""
LATEST = """SELECT thread_id FROM history_conversations WHERE owner = :owner AND scope = :scope
    ORDER BY updated_at DESC, id DESC LIMIT 1"""
OWNER = "SELECT owner FROM history_conversations WHERE scope = :scope AND thread_id = :thread ORDER BY id LIMIT 1"
_OF_KEY = f"SELECT id FROM history_conversations WHERE {KEY} {{lock}}"
_NAMES = "SELECT thread_id FROM history_conversations WHERE owner = :owner AND scope = :scope ORDER BY id"

_STATE = f"SELECT version, id, base, dropped FROM history_conversations WHERE {KEY} {{lock}}"
_WRITTEN = "RETURNING id, updated_at, next_seq, messages, size, dropped, base"
_CREATE = f"""INSERT INTO history_conversations (version, digest, dropped, next_seq, messages, size, tools, beside,
    owner, scope, thread_id, updated_at, base) VALUES (1, :digest, 0, :added, :added, :size, :tools, :beside,
    :owner, :scope, :thread, {{wall}}, CAST(:base AS bigint)) ON CONFLICT DO NOTHING {_WRITTEN}"""
_UPDATE = f"""UPDATE history_conversations SET version = version + 1, digest = :digest, next_seq = next_seq + :added,
    messages = messages + :more, size = size + :size, tools = :tools, beside = :beside, updated_at = {{wall}}
    WHERE {KEY} AND version = :version {_WRITTEN}"""
_BEGIN_AGAIN = "UPDATE history_conversations SET dropped = 0, base = NULL WHERE id = :id"
_APPEND = """INSERT INTO history_messages (conversation, commit_version, seq, role, size, links, body) {values added
    (conversation bigint, commit_version bigint, seq bigint, role text, size bigint, links text, body text)}"""
_FIRST_CUT = "SELECT seq FROM history_messages WHERE conversation = :id ORDER BY seq LIMIT 1 OFFSET :keep"
_CUT = "DELETE FROM history_messages WHERE conversation = :id AND seq >= :seq RETURNING size"
_SIZES = """SELECT seq, role, size, commit_version, links FROM history_messages
    WHERE conversation = :id ORDER BY seq"""
_DROP = """DELETE FROM history_messages WHERE conversation = :id
    AND seq IN (SELECT seq FROM {rows gone (seq bigint)})"""
_SHRINK = "UPDATE history_conversations SET dropped = :dropped, messages = :messages, size = :size WHERE id = :id"
_COUNT = "SELECT count(*) FROM history_conversations WHERE owner = :owner"
_OLDEST = f"""SELECT id FROM history_conversations c WHERE id IN (SELECT id FROM history_conversations
    WHERE owner = :owner ORDER BY updated_at, id LIMIT :many) AND NOT {_LIVE} {{skip}}"""

_OLD = f"""SELECT id, messages FROM history_conversations c
    WHERE updated_at <= {{wall}} - CAST(:age AS double precision) AND NOT {_LIVE}
    ORDER BY updated_at LIMIT {_BATCH} {{skip}}"""

_GONE = "%gone"
"""Owner and scope of bases without a name: no stored id is written like this."""
_IS_BASE = "EXISTS (SELECT 1 FROM history_conversations n WHERE n.base = history_conversations.id)"
_UNNAME = f"""UPDATE history_conversations SET owner = '{_GONE}', scope = '{_GONE}', thread_id = CAST(id AS text),
    digest = NULL, tools = NULL, beside = '[null,[],{{}}]', updated_at = 1e18
    WHERE id IN (SELECT id FROM {{rows old (id bigint)}}) AND {_IS_BASE}"""
_FORGET = f"""DELETE FROM history_conversations WHERE id IN (SELECT id FROM {{rows old (id bigint)}}) AND NOT {_IS_BASE}
    RETURNING base"""
# Up each chain from a nameless conversation that nothing begins with any more, as long as nothing else begins with one.
_UNUSED = f"""WITH RECURSIVE up (id, base) AS (
    SELECT id, base FROM history_conversations WHERE id IN (SELECT id FROM {{rows ends (id bigint)}})
    AND owner = '{_GONE}' AND NOT {_IS_BASE}
    UNION ALL SELECT c.id, c.base FROM up JOIN history_conversations c ON c.id = up.base WHERE c.owner = '{_GONE}'
    AND NOT EXISTS (SELECT 1 FROM history_conversations n WHERE n.base = c.id AND n.id <> up.id))
    SELECT id, base FROM up"""
_FORGET_UNUSED = "DELETE FROM history_conversations WHERE id IN (SELECT id FROM {rows old (id bigint)})"


def turn_line(where: Key) -> str:
    """Return the line in which runs wait for a conversation. No stored id contains `%/`."""
    return "turn/" + "%/".join(where)


def named(where: Key) -> dict[str, str]:
    """Return the values of `KEY`."""
    owner, scope, thread = where
    return {"owner": owner, "scope": scope, "thread": thread}


def fetch(where: Key, charge: Charge, *, lock: bool = False) -> Script[Stored | None]:
    """Return the stored texts, which are parsed after the transaction, once they are charged.

    In a script that writes, `lock` the row: its messages are read by a second statement. Raises what `charge` raises.
    """
    found = yield _LOCKED_HEAD if lock else _HEAD, {**named(where), "free": FREE}
    if not found:
        return None
    row_id, base, _, size, *head, tools, beside = found[0]
    if base is not None:
        ((_, more, roots),) = yield _TOTALS, {"id": base}
        if not roots:
            return None  # an older version of the bridge has deleted a part of it
        size += more
    charge(("conversation", where), size)
    if beside is None:
        ((tools, beside),) = yield _BESIDE, {"id": row_id}
    if base is None:
        bodies = yield _BODIES, {"id": row_id}
    else:
        bodies = sorted((yield _CHAIN_BODIES, {"id": row_id}))
    return (*head, tools, beside), [row[-1] for row in bodies]


def head(where: Key, charge: Charge) -> Script[Stored | None]:
    """Return what is stored of the conversation beside its messages; None if there is none."""
    found = yield _HEAD, {**named(where), "free": FREE}
    if not found:
        return None
    row_id, _, own, size, *head, tools, beside = found[0]
    charge(("conversation", where), size - own)
    if beside is None:
        ((tools, beside),) = yield _BESIDE, {"id": row_id}
    return (*head, tools, beside), []


def names(owner: str, scope: str) -> Script[list[str]]:
    """Return the ids of the conversations, oldest first."""
    found = yield _NAMES, {"owner": owner, "scope": scope}
    return [plain_id(name) for (name,) in found]


def commit(
    where: Key,
    change: rows.Change,
    bounds: Bounds,
    grace: Grace = no_grace,
    after: Key | None = None,
    headroom: bool = False,
) -> Script[rows.CommitOutcome]:
    """See `ConversationStore.commit`; pass the outcome to `change.settle`. Raises `StoreConflict`."""
    added, version = change.rows, change.conversation.version
    state = {"digest": change.name, "tools": change.tools, "beside": change.beside, "added": len(added)}
    left = None
    if version == 0:
        base = None if after is None else (yield from _base(after, change, bounds))
        written = yield _CREATE, {**state, **named(where), "size": change.size, "base": base}
    else:
        more, size = len(added), change.size
        if change.keep is not None:
            cut, left = yield from _cut(where, version, change.keep)
            more, size = more - len(cut), size - sum(cut)
        written = yield _UPDATE, {**state, **named(where), "more": more, "size": size, "version": version}
    if not written:
        raise StoreConflict
    row_id, now, seq, count, size, dropped, base = written[0]
    if added:
        first = seq - len(added)
        values = [(row_id, version + 1, first + n, r.role, r.size, r.links, r.body) for n, r in enumerate(added)]
        yield _APPEND, {"added": values}
    if left is not None:
        yield from _forget_unused([(left,)])
    gone: list[int] = []
    if base is None and rows.over(count, size, bounds):
        sizes = yield _SIZES, {"id": row_id}
        gone, seqs = rows.too_many(sizes, bounds.halved if headroom else bounds)
        dropped += len(gone)
        yield _DROP, {"id": row_id, "gone": [(each,) for each in seqs]}
        size -= sum(sizes[n][2] for n in gone)
        yield _SHRINK, {"id": row_id, "dropped": dropped, "messages": count - len(gone), "size": size}
    if version == 0 and bounds.conversations is not None and _is_sampled(bounds.conversations):
        yield from _forget_surplus(where[0], bounds.conversations, grace)
    return rows.CommitOutcome(version + 1, dropped, now, gone)


def _forget_surplus(owner: str, most: int, grace: Grace) -> Script[None]:
    """Delete the oldest conversations of an owner beyond a number.

    Where very many are beyond it, as after the limit was lowered, each call deletes a part of them: a commit does not
    wait for all.
    """
    ((count,),) = yield _COUNT, {"owner": owner}
    many = min(count - most, max(_BATCH, 2 * most // _SAMPLE))
    if many > 0:
        yield from _forget((yield _OLDEST, {"owner": owner, "many": many, "grace": grace()}))


def _base(where: Key, change: rows.Change, bounds: Bounds) -> Script[int]:
    """Return the row of a base, locked. Raises `BaseGone`, also if the whole would be beyond the bounds."""
    found = yield _OF_KEY, named(where)
    if not found:
        raise BaseGone
    base: int = found[0][0]
    ((count, size, roots),) = yield _TOTALS, {"id": base}
    if not roots or rows.over(count + len(change.rows), size + change.size, bounds):
        raise BaseGone
    return base


def delete(where: Key) -> Script[bool]:
    """Delete a conversation. Return whether there was one."""
    found = yield _OF_KEY, named(where)
    yield from _forget(found)
    return bool(found)


def _forget(old: Rows) -> Script[None]:
    """Delete these conversations; of those that others begin with, the messages stay."""
    if old:
        yield _UNNAME, {"old": old}
        bases = yield _FORGET, {"old": old}
        yield from _forget_unused(bases)


def _forget_unused(ends: Rows) -> Script[None]:
    """Delete those of these conversations, and of their bases, that are nameless and that nothing begins with."""
    while ends := [row for row in ends if row[0] is not None]:
        found = yield _UNUSED, {"ends": ends}
        if found:
            yield _FORGET_UNUSED, {"old": [(row_id,) for row_id, _ in found]}
        gone = {row_id for row_id, _ in found}
        ends = [(base,) for _, base in found if base not in gone]


def _cut(where: Key, version: int, keep: int) -> Script[tuple[list[int], int | None]]:
    """Delete all messages after the first `keep`, those of the base included. Return the sizes of those deleted, and
    the base that the conversation no longer begins with. Raises `StoreConflict` unless it has this version.
    """
    found = yield _STATE, named(where)
    if not found or found[0][0] != version:
        raise StoreConflict
    _, row_id, base, dropped = found[0]
    left = None
    if keep == 0:
        left = base
        if dropped or base is not None:
            yield _BEGIN_AGAIN, {"id": row_id}
    elif base is not None:
        ((count, _, _),) = yield _TOTALS, {"id": base}
        if keep < count:
            raise ValueError("expected to keep all messages of the conversation that this one begins with, or none")
        keep -= count
    first = yield _FIRST_CUT, {"id": row_id, "keep": keep}
    if not first:
        return [], left
    sizes = yield _CUT, {"id": row_id, "seq": first[0][0]}
    return [size for (size,) in sizes], left


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
    yield from _forget(old)
    return len(old), len(old) == _BATCH or left <= 0
