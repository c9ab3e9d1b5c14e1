"""The optional contract of dialects whose requests choose between the backends of a route."""

from __future__ import annotations

from typing import ClassVar

from bridge.codec.dialect import Dialect
from bridge.model.request import Request


class ModesDialect(Dialect):
    """A dialect with a field for the mode of a request. A route may name a backend for each mode."""

    modes: ClassVar[tuple[str, ...]]
    """The modes; the first one is the default."""

    def mode_of(self, request: Request) -> str | None:
        """Return the mode that the request names, None for the default."""
        raise NotImplementedError
