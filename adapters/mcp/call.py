"""A request as it was sent, with what its kind of revision says of the client."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from bridge.contract import ToolSite
from bridge.dialects.mcp.wire import Head, Wire
from bridge.model.jsontext import dict_of, dumps


@dataclass(frozen=True, slots=True)
class Call:
    """A request as it was sent. `elicits`: its client answers questions; `takes_tasks`: it follows tasks."""

    method: str
    params: Wire
    head: Head
    version: str
    site: ToolSite
    elicits: bool = False
    takes_tasks: bool = False
    session: str = ""
    streams: bool = True

    @property
    def meta(self) -> Wire:
        """The metadata of the request."""
        return dict_of(self.params.get("_meta"))


def digest(name: str, arguments: Any) -> str:
    """Return what the state of a call is bound to: its tool and its arguments."""
    return hashlib.sha256(dumps([name, arguments])).hexdigest()[:32]
