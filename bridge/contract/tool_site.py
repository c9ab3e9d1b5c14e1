"""What the server tells the codec of a dialect whose clients call tools."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from bridge.contract.sealing import Sealer


class ToolText(NamedTuple):
    """What people (`title`) and models read of a tool; empty if the configuration does not say."""

    title: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class ToolSite:
    """What the server knows of the route, the caller and itself, and a codec has to.

    `route` is its path. `tools` are those of its key `tools`, by name; none if its one tool is answered by `backend`.
    `durable`: runs may be tasks, which are kept for `kept` seconds. `remembers`: a conversation can be continued.
    `holds_questions`: a call may wait on its open response for an answer that comes in another message. `ended` has
    the sessions that clients have ended.
    """

    backend: str
    route: str = ""
    tools: Mapping[str, ToolText] = field(default_factory=dict)
    owner: str = ""
    sealer: Sealer = field(default_factory=lambda: Sealer(b""))
    version: str = ""
    durable: bool = False
    kept: float = 0.0
    remembers: bool = True
    holds_questions: bool = True
    ended: Container[str] = ()
