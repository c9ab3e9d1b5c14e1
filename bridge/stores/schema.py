"""The tables, the same on every SQL engine, and their migrations.

The table `schema_version` holds the version of each store's schema, and the oldest version whose code works with it.
Migrations are added, never changed. Each is one transaction, and each leaves tables that the version before it works
with, so that old and new processes run side by side: a migration adds tables, columns that may be null, and indexes
(expand). What nobody uses any more is removed by a later version (contract), which then raises `Schema.needs`.

An index of a table that may be large is a migration of its own, `CREATE INDEX{concurrently} ...`: PostgreSQL builds it
beside the work of others. A SQLite file also records in `machine_boot` the boot of the machine that its leases belong
to (see `bridge.stores.lease_clock`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.errors import ConfigError
from bridge.stores.run_records import CANCEL_QUEUED

VERSIONS = "CREATE TABLE IF NOT EXISTS schema_version (room text PRIMARY KEY, version bigint NOT NULL, needs bigint)"
NEEDS = "ALTER TABLE schema_version ADD COLUMN needs bigint"
"""For a table of versions that was made without this column."""
READ = "SELECT version, needs FROM schema_version WHERE room = :room"
RECORD = """INSERT INTO schema_version (room, version, needs) VALUES (:room, :version, :needs)
    ON CONFLICT (room) DO UPDATE SET version = excluded.version, needs = excluded.needs"""

BOOTS = "CREATE TABLE IF NOT EXISTS machine_boot (room text PRIMARY KEY, boot text NOT NULL)"


@dataclass(slots=True)
class Schema:
    """The tables of one store; `migrations` are statements with the fragments of `bridge.stores.scripts`.

    `rebooted` are statements that end the leases of an earlier boot in a SQLite file. `needs` is the oldest version
    (number of migrations) whose code works with the newest tables. If `synced`, a transaction of an SQLite file with
    these tables is on the disk before it is acknowledged, so that a loss of power undoes none. Without, it may undo the
    last ones.
    """

    name: str
    migrations: tuple[tuple[str, ...], ...]
    rebooted: tuple[str, ...]
    needs: int
    synced: bool = False

    @property
    def newest(self) -> int:
        return len(self.migrations)

    def missing(self, version: int, needs: int | None) -> list[tuple[str, ...]]:
        """Return the migrations from `version` (0 = no tables) to the newest one.

        Raises `ConfigError` for tables of a newer version that this one does not work with.
        """
        if version > self.newest and (version if needs is None else needs) > self.newest:
            raise ConfigError(
                f"the {self.name} store was created by a newer version of dialect-bridge (its schema is {version}, "
                f"this version knows {self.newest})"
            )
        return list(self.migrations[version:])

    def record(self, version: int) -> dict[str, object]:
        """Return the values of `RECORD`."""
        return {"room": self.name, "version": version, "needs": min(version, self.needs)}


# `links` is null or JSON [calls, results]. `commit_version` is the version of the conversation that added the message.
# `history_turns` is for processes of the version before this one: turns are places now (`PLACES`).
# The large column comes last, so that reading the others does not load it.
_HISTORY: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE history_conversations (
            id {serial},
            owner text NOT NULL,
            scope text NOT NULL,
            thread_id text NOT NULL,
            version bigint NOT NULL,
            updated_at double precision NOT NULL,
            digest text,
            dropped bigint NOT NULL,
            next_seq bigint NOT NULL,
            messages bigint NOT NULL,
            size bigint NOT NULL,
            tools text,
            beside text NOT NULL,
            UNIQUE (owner, scope, thread_id)
        )""",
        "CREATE INDEX history_by_digest ON history_conversations (owner, scope, digest)",
        "CREATE INDEX history_by_owner ON history_conversations (owner, updated_at)",
        "CREATE INDEX history_by_age ON history_conversations (updated_at)",
        """CREATE TABLE history_messages (
            conversation bigint NOT NULL REFERENCES history_conversations (id) ON DELETE CASCADE,
            seq bigint NOT NULL,
            role text NOT NULL,
            size bigint NOT NULL,
            commit_version bigint NOT NULL,
            links text,
            body text NOT NULL,
            PRIMARY KEY (conversation, seq)
        )""",
        """CREATE TABLE history_turns (
            ticket {serial},
            owner text NOT NULL,
            scope text NOT NULL,
            thread_id text NOT NULL,
            expires double precision NOT NULL
        )""",
        "CREATE INDEX history_by_line ON history_turns (owner, scope, thread_id, ticket)",
    ),
    ("CREATE INDEX history_by_thread ON history_conversations (scope, thread_id)",),
    # `base` is the conversation whose messages come before those of this one.
    ("ALTER TABLE history_conversations ADD COLUMN base bigint",),
    ("CREATE INDEX{concurrently} history_by_base ON history_conversations (base) WHERE base IS NOT NULL",),
    # Threads with files (`bridge.stores.attachments`), which need not have a conversation yet.
    (
        """CREATE TABLE history_files (
            owner text NOT NULL,
            thread_id text NOT NULL,
            scope text NOT NULL,
            updated_at double precision NOT NULL,
            PRIMARY KEY (owner, thread_id, scope)
        )""",
        "CREATE INDEX history_files_by_age ON history_files (updated_at)",
    ),
    # SQLite took the index by owner for the order, and read all conversations of the owner.
    (
        "CREATE INDEX{concurrently} history_by_digest_and_time"
        " ON history_conversations (owner, scope, digest, updated_at, id)",
    ),
    ("DROP INDEX history_by_digest",),
)

# `plan` is JSON, deleted with the entries of the run. `whole`: all entries exist.
_RUNS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE run_threads (
            id {serial},
            owner text NOT NULL,
            scope text NOT NULL,
            thread_id text NOT NULL,
            updated_at double precision NOT NULL,
            entries bigint NOT NULL,
            UNIQUE (owner, scope, thread_id)
        )""",
        "CREATE INDEX run_threads_by_name ON run_threads (scope, thread_id)",
        "CREATE INDEX run_threads_by_age ON run_threads (updated_at)",
        """CREATE TABLE runs (
            id {serial},
            thread bigint NOT NULL REFERENCES run_threads (id) ON DELETE CASCADE,
            run_id text NOT NULL,
            task_id text NOT NULL,
            fingerprint text NOT NULL,
            created_at double precision NOT NULL,
            token text,
            expires double precision,
            ended_at double precision,
            entries bigint NOT NULL,
            last bigint,
            whole boolean NOT NULL,
            plan text,
            UNIQUE (thread, run_id)
        )""",
        "CREATE INDEX runs_waiting ON runs (id) WHERE token IS NULL AND ended_at IS NULL",
        "CREATE INDEX runs_leased ON runs (expires) WHERE token IS NOT NULL AND ended_at IS NULL",
        "CREATE INDEX runs_ended ON runs (ended_at) WHERE plan IS NOT NULL",
        """CREATE TABLE run_entries (
            number {serial},
            run bigint NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
            thread bigint NOT NULL,
            body text NOT NULL
        )""",
        "CREATE INDEX run_entries_by_run ON run_entries (run, number)",
        "CREATE INDEX run_entries_by_thread ON run_entries (thread, number)",
        """CREATE TABLE run_cancels (
            owner text NOT NULL,
            scope text NOT NULL,
            thread_id text NOT NULL,
            run_id text NOT NULL,
            expires double precision NOT NULL,
            PRIMARY KEY (owner, scope, thread_id, run_id)
        )""",
        """CREATE TABLE run_places (
            owner text NOT NULL,
            token text NOT NULL,
            expires double precision NOT NULL,
            PRIMARY KEY (owner, token)
        )""",
    ),
    ("ALTER TABLE run_cancels ADD COLUMN reason text NOT NULL DEFAULT ''",),
    (
        "CREATE INDEX runs_by_thread ON runs (thread, id)",
        "CREATE INDEX run_cancels_by_age ON run_cancels (expires)",
    ),
    # `run_threads.entries` is no longer used.
    (
        "DROP INDEX run_entries_by_thread",
        "CREATE INDEX runs_open ON runs (thread) WHERE ended_at IS NULL",
    ),
    # Processes that know the tables before only have to be stopped (`needs`): they lease each run, and now a process
    # has one lease. Neither could fence the other without triggers that translate leases and numbers (docs/backup.md).
    # `route` is the scope without what follows `#`. `kept`: 2 = plan and all entries exist, 1 = some are
    # deleted, 0 = all are. An append changes no index.
    (
        "DROP INDEX runs_waiting",
        "DROP INDEX runs_leased",
        "DROP INDEX runs_ended",
        "DROP INDEX runs_open",
        """CREATE TABLE run_processes (
            token text PRIMARY KEY,
            expires double precision NOT NULL
        )""",
        """INSERT INTO run_processes (token, expires) SELECT token, max(expires) FROM runs
            WHERE token IS NOT NULL AND ended_at IS NULL GROUP BY token""",
        "ALTER TABLE runs RENAME COLUMN token TO holder",
        "ALTER TABLE runs ADD COLUMN owner text NOT NULL DEFAULT ''",
        "ALTER TABLE runs ADD COLUMN route text NOT NULL DEFAULT ''",
        "ALTER TABLE runs ADD COLUMN turn bigint NOT NULL DEFAULT 0",
        "ALTER TABLE runs ADD COLUMN format bigint NOT NULL DEFAULT 0",
        "ALTER TABLE runs ADD COLUMN kept bigint NOT NULL DEFAULT 2",
        "ALTER TABLE runs ADD COLUMN previous text",
        """UPDATE runs SET kept = CASE WHEN plan IS NULL THEN 0 WHEN whole THEN 2 ELSE 1 END,
            owner = (SELECT t.owner FROM run_threads t WHERE t.id = runs.thread),
            route = (SELECT CASE WHEN t.scope LIKE '%#%'
                THEN rtrim(rtrim(t.scope, 'abcdefghijklmnopqrstuvwxyz'), '#') ELSE t.scope END
                FROM run_threads t WHERE t.id = runs.thread)""",
        """CREATE TABLE run_plans (
            run bigint PRIMARY KEY,
            body text NOT NULL
        )""",
        "INSERT INTO run_plans (run, body) SELECT id, plan FROM runs WHERE plan IS NOT NULL",
        "ALTER TABLE runs DROP COLUMN plan",
        "ALTER TABLE runs DROP COLUMN whole",
        "ALTER TABLE runs DROP COLUMN last",
        "ALTER TABLE runs DROP COLUMN expires",
        "ALTER TABLE run_threads DROP COLUMN entries",
        """CREATE TABLE run_log (
            run bigint NOT NULL,
            position bigint NOT NULL,
            body text NOT NULL,
            PRIMARY KEY (run, position)
        ) {clustered}""",
        """INSERT INTO run_log (run, position, body)
            SELECT run, row_number() OVER (PARTITION BY run ORDER BY number) - 1, body FROM run_entries""",
        "DROP TABLE run_entries",
        "ALTER TABLE run_log RENAME TO run_entries",
        "DROP TABLE run_places",
        """CREATE TABLE run_slots (
            owner text NOT NULL,
            name text NOT NULL,
            holder text NOT NULL,
            PRIMARY KEY (owner, name)
        )""",
        "CREATE INDEX run_slots_by_holder ON run_slots (holder)",
        "CREATE INDEX run_processes_by_age ON run_processes (expires)",
        "CREATE INDEX runs_waiting ON runs (turn, id) WHERE holder IS NULL AND ended_at IS NULL",
        "CREATE INDEX runs_of_owner ON runs (owner, turn, id) WHERE holder IS NULL AND ended_at IS NULL",
        "CREATE INDEX runs_held ON runs (holder) WHERE holder IS NOT NULL AND ended_at IS NULL",
        "CREATE INDEX runs_open_of_owner ON runs (owner) WHERE ended_at IS NULL",
        "CREATE INDEX runs_open_of_route ON runs (route) WHERE ended_at IS NULL",
        "CREATE INDEX runs_kept ON runs (ended_at) WHERE kept > 0",
    ),
    # Slots are places now (`PLACES`).
    ("DROP TABLE run_slots",),
)

# Requests to cancel stay valid: their time begins again.
_RUNS_REBOOTED = (
    "UPDATE run_processes SET expires = -1e9",
    f"UPDATE run_cancels SET expires = {{now}} + {CANCEL_QUEUED}",
)

_RATES: tuple[tuple[str, ...], ...] = (
    (
        """CREATE {volatile} TABLE request_rates (
            name text PRIMARY KEY,
            due double precision NOT NULL
        )""",
        "CREATE INDEX request_rates_by_due ON request_rates (due)",
    ),
)


# Turns, slots, single-run sessions, nodes of a gateway, open breakers: what is gone when its process is. `holder` is
# the process that put a place there; `stamp` changes with `value`, or is the number of a place in its line.
#
# Three things are no places. A cancellation (`run_cancels`) is held by nobody: it has to reach the run also when the
# process that was asked for it has died. The push targets of a task live as long as the task, and are deleted by the
# same retention: they are kept beside its conversation. The leases over runs (`run_processes`) are a part of the run
# store, which is migrated by itself and may be in another database than the places.
_PLACES: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE places (
            line text NOT NULL,
            name text NOT NULL,
            holder text NOT NULL,
            stamp text NOT NULL,
            expires double precision NOT NULL,
            value text NOT NULL,
            PRIMARY KEY (line, name)
        )""",
        "CREATE INDEX places_by_age ON places (expires)",
    ),
)


def names(schemas: Sequence[Schema]) -> str:
    """Return the names of these stores for a message. Places are a part of each."""
    return " and ".join(each.name for each in schemas if each is not PLACES) or PLACES.name


HISTORY = Schema("history", _HISTORY, ("DELETE FROM history_turns",), needs=2)
# Clients know what is appended: entries that vanish would be missing for a reader that resumes.
RUNS = Schema("run", _RUNS, _RUNS_REBOOTED, needs=6, synced=True)
RATES = Schema("rate", _RATES, (), needs=1)
PLACES = Schema("place", _PLACES, ("DELETE FROM places",), needs=1)
