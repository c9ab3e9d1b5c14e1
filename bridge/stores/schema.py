"""The tables, the same on every engine, and how older ones become the newest.

A database keeps in `schema_version` how far each room of the bridge has come. Migrations are added, never changed.
"""

from __future__ import annotations

from bridge.errors import ConfigError

ROOM = "history"

VERSIONS = "CREATE TABLE IF NOT EXISTS schema_version (room text PRIMARY KEY, version bigint NOT NULL)"

# `{serial}` is an ever growing primary key, in the words of the engine. `links` is null, or JSON [calls, results];
# `commit_version` is the version of the conversation that brought the message. The large column comes last, so that
# reading the others passes over no text.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
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
)


def missing(version: int, serial: str) -> list[str]:
    """The statements that lead from `version` (0 = nothing there) to the newest."""
    if version > len(MIGRATIONS):
        raise ConfigError(
            f"the history store was made by a newer version of dialect-bridge (its schema is {version}, "
            f"this version knows {len(MIGRATIONS)})"
        )
    return [statement.format(serial=serial) for step in MIGRATIONS[version:] for statement in step]
