"""The tables, the same on every SQL engine, and their migrations.

The table `schema_version` holds the version of each store's schema. Migrations are added, never changed. A SQLite file
also records in `machine_boot` the boot of the machine that its leases belong to (see `bridge.stores.machine`).
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.errors import ConfigError
from bridge.stores.runs import CANCEL_QUEUED

VERSIONS = "CREATE TABLE IF NOT EXISTS schema_version (room text PRIMARY KEY, version bigint NOT NULL)"


BOOTS = "CREATE TABLE IF NOT EXISTS machine_boot (room text PRIMARY KEY, boot text NOT NULL)"


@dataclass(slots=True)
class Schema:
    """The tables of one store. `{serial}` in a statement stands for the engine's autoincrement primary key.

    `rebooted` are statements that end the leases of an earlier boot in a SQLite file; `:now` is the current time.
    """

    name: str
    migrations: tuple[tuple[str, ...], ...]
    rebooted: tuple[str, ...]

    @property
    def newest(self) -> int:
        return len(self.migrations)

    def missing(self, version: int, serial: str) -> list[str]:
        """Return the statements that migrate from `version` (0 = no tables) to the newest one."""
        if version > self.newest:
            raise ConfigError(
                f"the {self.name} store was created by a newer version of dialect-bridge (its schema is {version}, "
                f"this version knows {self.newest})"
            )
        return [statement.format(serial=serial) for step in self.migrations[version:] for statement in step]


# `links` is null or JSON [calls, results]. `commit_version` is the version of the conversation that added the message.
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
)

# Requests to cancel stay valid: their time begins again.
_RUNS_REBOOTED = (
    "UPDATE runs SET expires = 0 WHERE token IS NOT NULL AND ended_at IS NULL",
    f"UPDATE run_cancels SET expires = :now + {CANCEL_QUEUED}",
    "DELETE FROM run_places",
)

HISTORY = Schema("history", _HISTORY, ("DELETE FROM history_turns",))
RUNS = Schema("run", _RUNS, _RUNS_REBOOTED)
