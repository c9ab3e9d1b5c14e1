"""A change of one store that another store of the same database carries out in a transaction of its own.

So the answer of a run and the end of the run are stored together, or neither is: a process that dies in between leaves
no conversation with the answer of a run that failed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from bridge.stores.scripts import Work


class Joint:
    """A transaction of the store at `place` (see `Database.place`) that has not begun yet."""

    def __init__(self, place: str | None) -> None:
        self._place = place
        self.work: Work[Any] | None = None
        """The script of the other store."""
        self.otherwise: Callable[[], Awaitable[None]] | None = None
        """Stores the change alone, where the script has raised `StoreConflict`."""
        self._done: Callable[[Any], None] | None = None

    def takes(self, place: str | None, work: Work[Any], done: Callable[[Any], None]) -> bool:
        """Take the script of a store at `place`; `done` gets its result. Return False if it is another database."""
        if place is None or place != self._place or self.work is not None:
            return False
        self.work, self._done = work, done
        return True

    def done(self, result: Any) -> None:
        """The transaction is committed; None is the result of a repeat."""
        self.work = None
        if self._done is not None and result is not None:
            self._done(result)

    async def give_up(self) -> None:
        """The script has raised `StoreConflict`: the transaction goes on without it."""
        self.work = None
        if self.otherwise is not None:
            await self.otherwise()
