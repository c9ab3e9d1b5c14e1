"""The transactions of durable runs, as scripts (`bridge.stores.scripts`).

A run is held by a process, and a process is alive while its row in `run_processes` has not expired: one row is renewed
for all runs of a process. Entries are numbered within their run from 0 (`position`); the number that readers
know is made of the run and the position, so that numbers grow over the runs of a thread.

A run that waits has a turn: one more than the last waiting run of its owner, and at least that of the first run that
waits. Who has many runs waiting is served once for each run of others, whichever process takes them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from bridge.stores.conversation_store import plain_id
from bridge.stores.liveness import LONGEST_OUTAGE, Grace, no_grace
from bridge.stores.memory_budget import Charge
from bridge.stores.run_records import (
    CANCEL_QUEUED,
    Blocked,
    Created,
    LeaseLost,
    LogEntry,
    Ownership,
    QueueLimits,
    RunConflict,
    RunKey,
    RunRecord,
    RunState,
    ThreadBusy,
    base_scope,
    fitting,
    queue_full,
    stored_key,
)
from bridge.stores.scripts import ALONE, UNSYNCED, VERSION, Rows, Script, T, Work

Stored: TypeAlias = tuple[str, str, str, str]
"""Owner, scope, thread id and run id as they are stored."""

_BITS = 24
"""Bits of a number that are the entry's position in its run, plus one. See `FIRST_NUMBER`."""
_BATCH = 100
_CANDIDATES = 10
"""Runs of which a claim takes the first that no other process is taking."""
_ENTRIES = 5_000
"""Entries that one transaction of a sweep deletes at most."""
_AHEAD = 500
"""Entries of one run that a look returns at most."""
_SMALL_PLAN = 16 * 1024
"""Bytes of a plan that is loaded before they are charged."""
_KEPT = 3600.0
"""Seconds for which an expired process is remembered."""
NOBODY = ""
"""The holder of a run that nobody drives any more: it is never alive."""

_WAITS = "holder IS NULL AND ended_at IS NULL"
_THREAD = "owner = :owner AND scope = :scope AND thread_id = :thread"
_KEY = f"{_THREAD} AND run_id = :run"
_FROM = "FROM runs r JOIN run_threads t ON t.id = r.thread"
_OF_KEY = "t.owner = :owner AND t.scope = :scope AND t.thread_id = :thread AND r.run_id = :run"

_FACTS = f"""SELECT {{wall}}, (SELECT 1 {_FROM} WHERE {_OF_KEY}),
    (SELECT CASE WHEN r.ended_at IS NULL THEN 1 ELSE 0 END {_FROM} WHERE t.owner = :owner AND t.scope = :scope
    AND t.thread_id = :thread ORDER BY r.id DESC LIMIT 1),
    (SELECT turn FROM runs WHERE {_WAITS} ORDER BY turn, id LIMIT 1),
    (SELECT turn FROM runs WHERE owner = :owner AND {_WAITS} ORDER BY turn DESC LIMIT 1),
    (SELECT 1 FROM run_processes WHERE token = :token AND expires > {{now}} + :half),
    (SELECT reason FROM run_cancels WHERE {_KEY} AND expires > {{now}})"""
"""The facts for `create`: the time, whether the run exists, whether the last run of its thread is open, the turns of
the first run that waits and of the last one of this owner, whether the process lives, the reason of a cancellation.
"""


@dataclass(frozen=True, slots=True)
class _Limited:
    """A limit in `QueueLimits`: its holder, its name, and the fact that counts the runs under it."""

    holder: str
    limit: str
    count: str


_LIMITED = tuple(
    _Limited(
        holder,
        limit,
        f", (SELECT count(*) FROM (SELECT 1 FROM runs WHERE {narrowed}ended_at IS NULL LIMIT :most_{limit}) counted)",
    )
    for holder, limit, narrowed in (
        ("of this user", "owner", "owner = :owner AND "),
        ("of this route", "scope", "route = :route AND "),
        ("of this server", "all", ""),
    )
)

_RECORD = f"""SELECT r.id, t.owner, t.scope, t.thread_id, r.run_id, r.task_id, r.fingerprint, r.created_at, r.ended_at,
    r.holder, r.kept, r.previous, CASE WHEN r.ended_at IS NOT NULL THEN r.entries
    ELSE coalesce((SELECT max(e.position) + 1 FROM run_entries e WHERE e.run = r.id), 0) END {_FROM}"""

# Written with a lock that was had by a statement before it: see `create`.
_ADD_RUN = """INSERT INTO run_threads (owner, scope, thread_id, updated_at) VALUES (:owner, :scope, :thread, :created)
    ON CONFLICT (owner, scope, thread_id) DO UPDATE SET updated_at = excluded.updated_at RETURNING id
    {then t} INSERT INTO runs (thread, run_id, task_id, fingerprint, created_at, entries, kept, owner, route, turn,
    format, holder, previous) SELECT t.id, :run, :task, :fingerprint, :created, 0, 2, :owner, :route, :turn, :format,
    :holder, :previous FROM {rows t (id bigint)} RETURNING id
    {then r} INSERT INTO run_plans (run, body) SELECT r.id, :body FROM {rows r (id bigint)} RETURNING run"""

# Appends find each run by its id, and the entry before theirs by its position, whatever the engine knows of the tables
# when it plans them: with plain conditions it may look for each run among all that are held or open, and PostgreSQL
# puts all entries into a hash table for an EXISTS that it planned while there were few.
_HELD_BY = "coalesce(r.holder, '') = {token} AND coalesce(r.ended_at, 0) = 0"

ADD_HELD = f"""INSERT INTO run_entries (run, position, body) SELECT a.run, a.position, a.body FROM runs r
    {{each a (run bigint, position bigint, body text, head bigint, token text)}}
    WHERE r.id = a.run AND {_HELD_BY.format(token="a.token")} AND (a.head = 0 OR a.head =
    (SELECT e.position + 1 FROM run_entries e WHERE e.run = a.run AND e.position = a.head - 1)) {{lock}}
    ON CONFLICT DO NOTHING"""
"""Fence and entries in one statement. See `held_rows`."""

# In PostgreSQL, one statement: it waits for the rows of runs that others have locked, and looks at their new versions
# then. It does not see entries that are committed meanwhile, but needs none: the one before its own is acknowledged,
# and those of an attempt of unknown outcome are conflicts.
ADD_AND_END = f"""SELECT r.id AS run, r.thread AS thread FROM {{rows h (run bigint, position bigint)}}
    JOIN runs r ON r.id = h.run WHERE {_HELD_BY.format(token=":token")} AND (h.position = 0 OR h.position =
    (SELECT e.position + 1 FROM run_entries e WHERE e.run = h.run AND e.position = h.position - 1)) {{lock}}
    {{then held}} INSERT INTO run_entries (run, position, body) SELECT a.run, a.position, a.body
    FROM {{rows a (run bigint, position bigint, body text)}} JOIN {{rows held (run bigint, thread bigint)}}
    ON held.run = a.run WHERE true ON CONFLICT DO NOTHING
    {{then added}} UPDATE runs SET ended_at = {{wall}}, entries = e.entries FROM {{rows e (run bigint, entries bigint)}}
    JOIN {{rows held (run bigint, thread bigint)}} ON held.run = e.run WHERE runs.id = e.run
    {{then ended}} UPDATE run_threads SET updated_at = {{wall}} WHERE id IN (SELECT held.thread
    FROM {{rows e (run bigint, entries bigint)}} JOIN {{rows held (run bigint, thread bigint)}} ON held.run = e.run)
    {{then used}} SELECT held.run FROM {{rows held (run bigint, thread bigint)}}"""
"""Fence and entries, and the ends of some runs: returns the runs that `token` holds. See `held_and_ended`."""


def number_of(run: int, position: int) -> int:
    """Return the public number of an entry. The number of position -1 is before all entries of the run."""
    return (run << _BITS) + position + 1


def next_position(run: int, after: int) -> int | None:
    """Return the position of this run's first entry after number `after`; None if there can be none."""
    base = after >> _BITS
    if base < run:
        return 0
    return after - (run << _BITS) if base == run else None


def run_of(after: int) -> int | None:
    """Return the run whose entry has this number; None for 0, which is before all."""
    return after >> _BITS or None


class Append(NamedTuple):
    """Entries of one run. With `end`, the last one ends it."""

    run: int
    position: int
    bodies: Sequence[str]
    end: bool

    @property
    def after(self) -> int:
        return self.position + len(self.bodies)


@dataclass(slots=True)
class LookResult:
    """What `look` found: new entries by run, ids of runs that were not known, and whether a run waits.

    `version` changes with every transaction in an SQLite file; elsewhere it is None.
    """

    version: int | None
    entries: dict[int, list[LogEntry]] = field(default_factory=dict)
    known: dict[Stored, int] = field(default_factory=dict)
    waits: bool = False


def _by_key(where: Stored) -> dict[str, Any]:
    return dict(zip(("owner", "scope", "thread", "run"), where, strict=True))


def _key(row: Sequence[Any]) -> RunKey:
    return RunKey(*map(plain_id, row))


def _record(row: Sequence[Any]) -> RunRecord:
    number, *key, task_id, fingerprint, created_at, ended_at, holder, kept, previous, entries = row
    state = RunState.ENDED if ended_at is not None else RunState.QUEUED if holder is None else RunState.RUNNING
    last = number_of(number, entries - 1) if entries else None
    facts = (number, task_id, fingerprint, state, created_at, ended_at, entries, last, kept == 2, previous)
    return RunRecord(_key(key), *facts)


# ---------------------------------------------------------------------- processes


def _lives(token: str, lease: float) -> Script[None]:
    """This process is alive for at least half of this time."""
    alive = "SELECT 1 FROM run_processes WHERE token = :token AND expires > {now} + :half"
    if not (yield alive, {"token": token, "half": lease / 2}):
        yield from _extend(token, lease)


def _extend(token: str, lease: float) -> Script[None]:
    yield (
        "INSERT INTO run_processes (token, expires) VALUES (:token, {now} + :lease)"
        " ON CONFLICT (token) DO UPDATE SET expires = excluded.expires",
        {"token": token, "lease": lease},
    )


def _grace(token: str, grace: Grace) -> Script[float]:
    """Return what `grace` returns for the time that the lease of this process has left."""
    own = yield "SELECT expires - {now} FROM run_processes WHERE token = :token", {"token": token}
    return grace(own[0][0] if own else None)


def renew(token: str, lease: float, grace: Grace) -> Script[set[RunKey]]:
    """Return the runs that this process holds."""
    yield UNSYNCED, {}
    if (yield from _grace(token, grace)):
        # A clock that was set back has left leases that are valid for much longer than any is.
        most = lease + LONGEST_OUTAGE
        yield "UPDATE run_processes SET expires = {now} + :most WHERE expires > {now} + :most", {"most": most}
    yield from _extend(token, lease)
    held = f"SELECT t.owner, t.scope, t.thread_id, r.run_id {_FROM} WHERE r.holder = :token AND r.ended_at IS NULL"
    return {_key(row) for row in (yield held, {"token": token})}


_IS_LOST = """r.ended_at IS NULL AND r.holder IN
    (SELECT token FROM run_processes WHERE expires <= {now} - :grace UNION ALL SELECT '')"""


def lost(token: str, grace: Grace) -> Script[list[RunKey]]:
    seconds = yield from _grace(token, grace)
    rows = yield (
        f"SELECT t.owner, t.scope, t.thread_id, r.run_id {_FROM} WHERE {_IS_LOST} LIMIT {_BATCH}",
        {"grace": seconds},
    )
    return [_key(row) for row in rows]


def take_lost(token: str, lease: float, grace: Grace) -> Script[list[RunRecord]]:
    """Return some of the runs that are lost, which `token` holds now. Another process may be taking others."""
    seconds = yield from _grace(token, grace)
    rows = yield (
        f"SELECT r.id FROM runs r WHERE {_IS_LOST} AND r.holder <> :token LIMIT {_BATCH} {{skip}}",
        {"grace": seconds, "token": token},
    )
    if not rows:
        return []
    taken = _ids(rows)
    yield "UPDATE runs SET holder = :token WHERE id {in taken (bigint)}", {"token": token, "taken": taken}
    yield from _lives(token, lease)
    return [_record(row) for row in (yield f"{_RECORD} WHERE r.id {{in taken (bigint)}}", {"taken": taken})]


# ---------------------------------------------------------------------- runs


def find(where: Stored) -> Script[RunRecord | None]:
    rows = yield f"{_RECORD} WHERE {_OF_KEY}", _by_key(where)
    return _record(rows[0]) if rows else None


def _of_number(number: int) -> Script[RunRecord]:
    rows = yield f"{_RECORD} WHERE r.id = :id", {"id": number}
    return _record(rows[0])


def number(where: Stored) -> Script[int | None]:
    """Return the id of the run's row."""
    rows = yield f"SELECT r.id {_FROM} WHERE {_OF_KEY}", _by_key(where)
    return rows[0][0] if rows else None


def latest(where: Stored) -> Script[RunRecord | None]:
    """Return the newest run of the thread of this run."""
    rows = yield (
        f"{_RECORD} WHERE t.owner = :owner AND t.scope = :scope AND t.thread_id = :thread ORDER BY r.id DESC LIMIT 1",
        _by_key(where),
    )
    return _record(rows[0]) if rows else None


def plan(where: Stored, charge: Charge) -> Script[str | None]:
    """Return the plan, once its size is charged. Raises what `charge` raises."""
    of_key = f"{_FROM} JOIN run_plans l ON l.run = r.id WHERE {_OF_KEY}"
    small = f"CASE WHEN {{bytes body}} <= {_SMALL_PLAN} THEN l.body END"
    rows = yield f"SELECT {{bytes body}}, {small} {of_key}", _by_key(where)
    if not rows:
        return None
    charge(("plan", where), rows[0][0])
    if rows[0][1] is None:
        rows = yield f"SELECT 0, l.body {of_key}", _by_key(where)
    return rows[0][1] if rows else None


def create(
    where: Stored,
    fingerprint: str,
    body: str,
    task_id: str,
    *,
    format: int,
    alone: bool,
    limits: QueueLimits | None,
    token: str | None,
    lease: float,
    previous: str | None,
) -> Script[Created]:
    """See `RunStore.create`. Counts no further than the limits.

    The limit of an owner is exact. Others may be exceeded by runs that are created in the same moment.
    """
    # Locks come before the statement that looks: that would not see what is committed while it waits for one. So nobody
    # else creates a run of this thread meanwhile, nor one of this owner if these are counted.
    if limits is not None and limits.owner is not None:
        yield ALONE, {"name": f"bridge runs {where[0]}"}
    yield ALONE, {"name": f"bridge thread {'%/'.join(where[:3])}"}
    limited = [] if limits is None else [each for each in _LIMITED if getattr(limits, each.limit) is not None]
    values = {**_by_key(where), "route": base_scope(where[1]), "token": token, "half": lease / 2}
    most = {each.limit: getattr(limits, each.limit) for each in limited}
    ((created, is_there, is_open, first_turn, own_turn, lives, canceled, *counts),) = yield (
        _FACTS + "".join(each.count for each in limited),
        {**values, **{f"most_{limit}": number for limit, number in most.items()}},
    )
    if is_there and (found := (yield from _same(where, fingerprint))) is not None:
        return Created(found, new=False, first=False)
    if alone and is_open:
        raise ThreadBusy
    for each, count in zip(limited, counts, strict=True):
        if count >= most[each.limit]:
            raise queue_full(each.holder)
    # A run waits if others do.
    waits = first_turn is not None
    turn = max(first_turn, 0 if own_turn is None else own_turn + 1) if waits else 0
    holder = None if waits else token
    new = {"task": task_id, "fingerprint": fingerprint, "turn": turn, "format": format, "previous": previous}
    rows = yield _ADD_RUN, {**values, **new, "created": created, "holder": holder, "body": body}
    if holder is not None and not lives:
        yield from _extend(holder, lease)
    state = RunState.QUEUED if holder is None else RunState.RUNNING
    facts = (rows[0][0], task_id, fingerprint, state, created, None, 0, None, True, previous)
    return Created(RunRecord(_key(where), *facts), True, is_open is None, holder is not None, canceled)


def _same(where: Stored, fingerprint: str) -> Script[RunRecord | None]:
    """Return the run if it exists. Raises `RunConflict` if it has another fingerprint."""
    found = yield from find(where)
    if found is not None and found.fingerprint != fingerprint:
        raise RunConflict
    return found


def _thread(where: Stored) -> Script[int]:
    """Return the row of the thread, which is created if it does not exist, and is locked."""
    rows = yield (
        "INSERT INTO run_threads (owner, scope, thread_id, updated_at) VALUES (:owner, :scope, :thread, {wall})"
        " ON CONFLICT (owner, scope, thread_id) DO UPDATE SET updated_at = excluded.updated_at RETURNING id",
        _by_key(where),
    )
    number: int = rows[0][0]
    return number


def delete(where: Stored) -> Script[bool]:
    rows = yield f"SELECT r.id {_FROM} WHERE {_OF_KEY} AND r.ended_at IS NOT NULL", _by_key(where)
    if not rows:
        return False
    yield from _delete_runs(_ids(rows))
    return True


def _ids(rows: Rows) -> list[int]:
    return [row[0] for row in rows]


def _delete_runs(runs: Sequence[int]) -> Script[None]:
    yield from _delete_contents(runs)
    yield "DELETE FROM runs WHERE id {in gone (bigint)}", {"gone": runs}


def _delete_contents(runs: Sequence[int]) -> Script[None]:
    """Delete the entries and plans of these runs."""
    for table in ("run_entries", "run_plans"):
        yield f"DELETE FROM {table} WHERE run {{in gone (bigint)}}", {"gone": runs}


def thread(where: Stored, make: bool) -> Script[Ownership]:
    own = yield f"SELECT 1 FROM run_threads WHERE {_THREAD}", _by_key(where)
    if own:
        return Ownership.OWN
    others = yield "SELECT 1 FROM run_threads WHERE scope = :scope AND thread_id = :thread LIMIT 1", _by_key(where)
    if others:
        return Ownership.FOREIGN
    if make:
        yield from _thread(where)
    return Ownership.NONE


# ---------------------------------------------------------------------- the log


def held_rows(appends: Sequence[Append], token: str) -> list[tuple[int, int, str, int, str]]:
    """Return the value `a` of `ADD_HELD`."""
    return [(run, head + n, body, head, token) for run, head, bodies, _ in appends for n, body in enumerate(bodies)]


def held_and_ended(appends: Sequence[Append], token: str) -> dict[str, Any]:
    """Return the values of `ADD_AND_END`."""
    return {
        "h": [(each.run, each.position) for each in appends],
        "a": [(each.run, each.position + n, body) for each in appends for n, body in enumerate(each.bodies)],
        "e": [(each.run, each.after) for each in appends if each.end],
        "token": token,
    }


def append(appends: Sequence[Append], token: str) -> Script[set[int]]:
    """Append to some runs, each named once. Return those that `token` does not hold, to which nothing was added."""
    held = _ids((yield ADD_AND_END, held_and_ended(appends, token)))
    return (yield from _lost([each for each in appends if each.run not in held], token))


def finish(append_: Append, token: str, work: Work[T]) -> Script[T | None]:
    """Append the end of a run, and do `work`, all or nothing. Return None for a repeat: it was done then, too.

    Raises `LeaseLost`.
    """
    if (yield ADD_AND_END, held_and_ended([append_], token)):
        return (yield from work())
    if (yield from _lost([append_], token)):
        raise LeaseLost
    return None


def _lost(appends: Sequence[Append], token: str) -> Script[set[int]]:
    """Return those of these runs that were not ended by the same append, which this one repeats."""
    lost = {each.run for each in appends}
    ended = {each.run: each.after for each in appends if each.end}
    if ended:
        rows = yield (
            "SELECT r.id, r.entries FROM {rows asked (id bigint)} JOIN runs r ON r.id = asked.id"
            " WHERE r.holder = :token AND r.ended_at IS NOT NULL",
            {"asked": [(run,) for run in ended], "token": token},
        )
        lost.difference_update(run for run, entries in rows if ended[run] == entries)
    return lost


def read(where: Stored, after: int, limit: int) -> Script[tuple[int | None, list[LogEntry]]]:
    """Return the id of the run's row, None if there is no run, and entries after number `after`."""
    run = yield from number(where)
    position = next_position(run, after) if run is not None else None
    if run is None or position is None:
        return run, []
    rows = yield (
        "SELECT position, body FROM run_entries WHERE run = :run AND position >= :position ORDER BY position"
        " LIMIT :most",
        {"run": run, "position": position, "most": limit},
    )
    return run, fitting(LogEntry(number_of(run, position), body) for position, body in rows)


def look(
    watched: Sequence[tuple[int, int]], unknown: Sequence[Stored], queue: bool, since: int | None = None
) -> Script[LookResult]:
    """Look for entries from positions of runs on, for runs that were not there, and for runs that wait.

    `since`: the version after which there may be something.
    """
    versions = yield VERSION, {}
    seen = LookResult(versions[0][0] if versions else None)
    if since is not None and since == seen.version:
        return seen
    if watched:
        rows = yield (
            "SELECT e.run, e.position, e.body FROM {rows w (run bigint, position bigint)} JOIN run_entries e"
            f" ON e.run = w.run AND e.position >= w.position AND e.position < w.position + {_AHEAD}",
            {"w": watched},
        )
        for run, position, body in sorted(rows):
            seen.entries.setdefault(run, []).append(LogEntry(number_of(run, position), body))
    if unknown:
        rows = yield (
            "SELECT t.owner, t.scope, t.thread_id, r.run_id, r.id FROM {rows u (owner text, scope text, thread text,"
            " run text)} JOIN run_threads t ON t.owner = u.owner AND t.scope = u.scope AND t.thread_id = u.thread"
            " JOIN runs r ON r.thread = t.id AND r.run_id = u.run",
            {"u": unknown},
        )
        seen.known = {(owner, scope, thread, run): number for owner, scope, thread, run, number in rows}
    if queue:
        seen.waits = bool((yield f"SELECT 1 FROM runs WHERE {_WAITS} ORDER BY turn, id LIMIT 1", {}))
    return seen


# ---------------------------------------------------------------------- leases


def claim(
    token: str, lease: float, blocked: Blocked, stored_owners: Collection[str], format: int
) -> Script[RunRecord | None]:
    """Return a run that waits, which `token` holds now. See `RunStore.claim`."""
    rows = yield (
        f"SELECT id, owner, route FROM runs WHERE {_WAITS} AND format <= :format ORDER BY turn, id LIMIT {_BATCH}",
        {"format": format},
    )
    free = [id for id, owner, route in rows if owner not in stored_owners and route not in blocked.scopes]
    if not free and len(rows) == _BATCH:
        free = yield from _behind(blocked.scopes, stored_owners, format)
    if not free:
        return None
    taken = yield (
        f"SELECT id FROM runs WHERE id {{in free (bigint)}} AND {_WAITS} ORDER BY turn, id LIMIT 1 {{skip}}",
        {"free": free[:_CANDIDATES]},
    )
    if not taken:
        return None
    yield "UPDATE runs SET holder = :token WHERE id = :id", {"token": token, "id": taken[0][0]}
    yield from _lives(token, lease)
    return (yield from _of_number(taken[0][0]))


def _behind(routes: Collection[str], owners: Collection[str], format: int) -> Script[list[int]]:
    """Return runs of other owners, where all of the first that wait have no slot. It looks at each owner once."""
    free: list[int] = []
    owner = ""
    first = True
    while len(free) < _BATCH:
        rows = yield (
            f"SELECT owner FROM runs WHERE owner {'>=' if first else '>'} :owner AND {_WAITS} ORDER BY owner LIMIT 1",
            {"owner": owner},
        )
        if not rows:
            break
        owner, first = rows[0][0], False
        if owner in owners:
            continue
        narrowed = "AND NOT route {in busy (text)} " if routes else ""
        found = yield (
            f"SELECT id FROM runs WHERE owner = :owner AND {_WAITS} AND format <= :format {narrowed}"
            "ORDER BY turn, id LIMIT 1",
            {"owner": owner, "format": format, **({"busy": list(routes)} if routes else {})},
        )
        free += _ids(found)
    return free


def acquire(
    where: Stored,
    token: str,
    lease: float,
    grace: Grace = no_grace,
    queued: bool = False,
    format: int | None = None,
) -> Script[RunRecord | None]:
    run = yield from number(where)
    rows = yield "SELECT holder, ended_at, format FROM runs WHERE id = :id {lock}", {"id": run}
    if run is None or not rows or rows[0][1] is not None:
        return None
    holder = rows[0][0]
    if format is not None and rows[0][2] > format:
        return None
    if queued and holder is not None:
        return None
    if holder not in (None, token):
        alive = "SELECT 1 FROM run_processes WHERE token = :holder AND expires > {now} - :grace"
        seconds = yield from _grace(token, grace)
        if (yield alive, {"holder": holder, "grace": seconds}):
            return None
    yield "UPDATE runs SET holder = :token WHERE id = :id", {"token": token, "id": run}
    yield from _lives(token, lease)
    return (yield from _of_number(run))


def release(where: Stored, token: str) -> Script[None]:
    yield (
        "UPDATE runs SET holder = CASE WHEN EXISTS (SELECT 1 FROM run_entries e WHERE e.run = runs.id)"
        f" THEN '{NOBODY}' END WHERE id = (SELECT r.id {_FROM} WHERE {_OF_KEY}) AND holder = :token"
        " AND ended_at IS NULL",
        {**_by_key(where), "token": token},
    )


# ---------------------------------------------------------------------- cancels


def cancel(where: Stored, reason: str) -> Script[None]:
    yield "DELETE FROM run_cancels WHERE expires <= {now}", {}
    yield (
        "INSERT INTO run_cancels (owner, scope, thread_id, run_id, expires, reason)"
        f" VALUES (:owner, :scope, :thread, :run, {{now}} + {CANCEL_QUEUED}, :reason)"
        " ON CONFLICT (owner, scope, thread_id, run_id) DO UPDATE"
        " SET expires = excluded.expires, reason = excluded.reason",
        {**_by_key(where), "reason": reason},
    )


def canceled(runs: Sequence[Stored]) -> Script[dict[RunKey, str]]:
    rows = yield (
        "SELECT c.owner, c.scope, c.thread_id, c.run_id, c.reason FROM {rows asked (owner text, scope text,"
        " thread text, run text)} JOIN run_cancels c ON c.owner = asked.owner AND c.scope = asked.scope"
        " AND c.thread_id = asked.thread AND c.run_id = asked.run WHERE c.expires > {now}",
        {"asked": runs},
    )
    return {_key(row[:4]): row[4] for row in rows}


def canceled_since(seconds: float) -> Script[dict[RunKey, str]]:
    """Return the cancellations that were requested in the last `seconds`."""
    rows = yield (
        "SELECT owner, scope, thread_id, run_id, reason FROM run_cancels WHERE expires > {now} + :least",
        {"least": max(0.0, CANCEL_QUEUED - seconds)},
    )
    return {_key(row[:4]): row[4] for row in rows}


def waiting(runs: Collection[RunKey]) -> Script[list[RunKey]]:
    """Return those of these runs that wait."""
    rows = yield (
        "SELECT t.owner, t.scope, t.thread_id, r.run_id FROM {rows asked (owner text, scope text, thread_id text,"
        " run_id text)} JOIN run_threads t ON t.owner = asked.owner AND t.scope = asked.scope"
        " AND t.thread_id = asked.thread_id JOIN runs r ON r.thread = t.id AND r.run_id = asked.run_id"
        " WHERE r.holder IS NULL AND r.ended_at IS NULL",
        {"asked": [stored_key(key) for key in runs]},
    )
    return [_key(row) for row in rows]


# ---------------------------------------------------------------------- retention


def forget(seconds: float) -> Script[tuple[int, int]]:
    """Delete the entries and plans of runs that ended so long ago: at most `_ENTRIES`, so of a long run some entries.

    Return the number of runs that are forgotten, and of those that were changed.
    """
    rows = yield (
        f"SELECT id, entries FROM runs WHERE kept > 0 AND ended_at <= {{wall}} - :seconds ORDER BY ended_at"
        f" LIMIT {_BATCH} {{skip}}",
        {"seconds": seconds},
    )
    size = 0
    gone: list[int] = []
    for run, entries in rows:
        size += entries
        if size > _ENTRIES:
            break
        gone.append(run)
    if rows and not gone:  # the first one is too long for one transaction
        run = rows[0][0]
        deleted = yield (
            "DELETE FROM run_entries WHERE run = :run AND position IN (SELECT position FROM run_entries"
            f" WHERE run = :run ORDER BY position LIMIT {_ENTRIES}) RETURNING position",
            {"run": run},
        )
        if len(deleted) == _ENTRIES:
            yield "UPDATE runs SET kept = 1 WHERE id = :run", {"run": run}
            return 0, 1
        gone = [run]
    if gone:
        yield from _delete_contents(gone)
        yield "UPDATE runs SET kept = 0 WHERE id {in gone (bigint)}", {"gone": gone}
    return len(gone), len(gone)


def forget_threads(seconds: float) -> Script[tuple[int, int]]:
    """Delete threads that were unused for so long, at most `_BATCH`. Return 0 and their number."""
    rows = yield (
        "SELECT id FROM run_threads t WHERE updated_at <= {wall} - :seconds AND NOT EXISTS"
        " (SELECT 1 FROM runs WHERE thread = t.id AND ended_at IS NULL)"
        f" ORDER BY updated_at LIMIT {_BATCH} {{skip}}",
        {"seconds": seconds},
    )
    if not rows:
        return 0, 0
    old = _ids(rows)
    runs = yield "SELECT id FROM runs WHERE thread {in old (bigint)}", {"old": old}
    yield from _delete_runs(_ids(runs))
    yield "DELETE FROM run_threads WHERE id {in old (bigint)}", {"old": old}
    return 0, len(old)


def forget_processes(grace: Grace) -> Script[None]:
    """Forget processes that have died, once nothing is left of them."""
    yield (
        "DELETE FROM run_processes WHERE expires <= {now} - :seconds AND NOT EXISTS"
        " (SELECT 1 FROM runs WHERE holder = run_processes.token AND ended_at IS NULL)",
        {"seconds": _KEPT + grace()},
    )
