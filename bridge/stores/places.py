"""Places in named lines, which the processes that share a database know of: the nodes of a gateway.

A place is a name in a line with a value. It expires unless a process keeps it, and any process may drop it or put
another value there. Each process asks from time to time what there is (`exchange`), and reads the values that changed.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bridge.stores.conversation_store import plain_id, stored_id
from bridge.stores.scripts import UNSYNCED, Database, Script

_KEPT = 3600.0
"""Seconds for which an expired place can still be kept."""
_TIDY = 600
"""Exchanges between two that forget what has expired long ago."""

_PUT = """INSERT INTO places (line, name, holder, stamp, expires, value)
    VALUES (:line, :name, :holder, :stamp, {now} + CAST(:seconds AS double precision), :value)
    ON CONFLICT (line, name) DO UPDATE SET holder = excluded.holder, stamp = excluded.stamp,
    expires = excluded.expires, value = excluded.value"""
_KEEP = """UPDATE places SET expires = {now} + CAST(:seconds AS double precision)
    WHERE line = :line AND name {in kept (text)}"""
_DROP = "DELETE FROM places WHERE line = :line AND name {in gone (text)}"
_FORGET = f"DELETE FROM places WHERE expires <= {{now}} - {_KEPT} AND line = :line"
_LOOK = "SELECT name, holder, stamp, expires - {now} FROM places WHERE line = :line AND expires > {now}"
_VALUES = """SELECT p.name, p.stamp, p.value FROM {rows w (name text)} JOIN places p
    ON p.line = :line AND p.name = w.name"""


@dataclass(frozen=True, slots=True)
class Place:
    """A place that has not expired. `is_own`: this process put it there. `left`: the seconds until it expires."""

    name: str
    value: str
    is_own: bool
    left: float


class Places:
    """The places of one line, as one process sees them. Every method may raise `BridgeError` (store_unavailable)."""

    def __init__(self, database: Database, line: str) -> None:
        self._database = database
        self._line = stored_id(line, "line")
        self._holder = uuid.uuid4().hex
        self._exchanges = 0
        self._values: dict[str, tuple[str, str]] = {}
        """Stamp and value of each place, by its stored name."""

    async def exchange(
        self, put: Mapping[str, str], kept: Collection[str], dropped: Collection[str], seconds: float
    ) -> list[Place]:
        """Drop places, put some for `seconds`, keep others for as long, and return all there are then."""
        names = {name: stored_id(name, "name") for name in (*put, *kept, *dropped)}
        line = {"line": self._line}
        rows = [
            {**line, "name": names[name], "holder": self._holder, "stamp": uuid.uuid4().hex, "value": value}
            for name, value in put.items()
        ]
        known, tidies = self._values, self._exchanges % _TIDY == 0

        def work() -> Script[tuple[list[tuple[str, str, str, float]], list[tuple[str, str, str]]]]:
            if not put and not dropped:
                yield UNSYNCED, {}
            if tidies:
                yield _FORGET, line
            if dropped:
                yield _DROP, {**line, "gone": [names[name] for name in dropped]}
            for row in rows:
                yield _PUT, {**row, "seconds": seconds}
            if kept:
                yield _KEEP, {**line, "kept": sorted(names[name] for name in kept), "seconds": seconds}
            found = yield _LOOK, line
            new = [(name,) for name, _, stamp, _ in found if known.get(name, ("",))[0] != stamp]
            values = (yield _VALUES, {**line, "w": new}) if new else []
            return found, values

        run = self._database.write if put or kept or dropped or tidies else self._database.read
        found, values = await run(work)
        self._exchanges += 1
        fresh = {name: (stamp, value) for name, stamp, value in values}
        self._values = {name: fresh.get(name) or known[name] for name, *_ in found if name in fresh or name in known}
        return [
            Place(plain_id(name), self._values[name][1], holder == self._holder, left)
            for name, holder, _, left in found
            if name in self._values
        ]

    async def close(self) -> None:
        await self._database.close()
