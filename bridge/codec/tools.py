"""Which tools a dialect can say at all, asked by every codec that writes a request; tools that others run for us."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bridge.errors import Unsupported
from bridge.model.request import Tool

FUNCTION = "function"


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that somebody runs for us, as a model is told of it. `place` is how its dialect finds it again."""

    tool: Tool
    place: Any


def sayable(tools: list[Tool] | None, dialect: str) -> list[Tool]:
    """The tools of a request, all of which `dialect` can say; an empty list for None.

    Raises `Unsupported` for a tool of another kind than a function (a search that its provider runs) that a client of
    another dialect named: told as a function it would be called, and nobody would be there to run it.
    """
    for place, tool in enumerate(tools or ()):
        if tool.kind != FUNCTION and dialect not in (tool.extras or {}):
            raise Unsupported(
                f"tools[{place}].type: expected function, got {tool.kind!r}, a kind that this backend does not have.",
                param=f"tools[{place}].type",
            )
    return tools or []
