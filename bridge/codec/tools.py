"""Which tools a dialect can say at all, asked by every codec that writes a request; tools that others run for us."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bridge.errors import Unsupported, shortened
from bridge.model.request import Request, Tool, ToolMode

from .card import Feature
from .context import Losses

FUNCTION = "function"


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that somebody runs for us, as a model is told of it. `place` is how its dialect finds it again."""

    tool: Tool
    place: Any


def sayable(request: Request, dialect: str, lost: Losses) -> list[Tool]:
    """The tools of a request that `dialect` can say; an empty list for None.

    A tool of another kind than a function (a search that its provider runs) that a client of another dialect named is
    not told as a function: it would be called, and nobody would be there to run it. One that is optional is left out
    and named as lost. Raises `Unsupported` for any other, and where the tool choice insists on what is left out.
    """
    said: list[Tool] = []
    for place, tool in enumerate(request.tools or ()):
        if tool.kind == FUNCTION or dialect in (tool.extras or {}):
            said.append(tool)
        elif tool.optional and not _wanted(tool, request):
            lost.add(Feature.TOOLS, f"{shortened(tool.kind)}, a kind that this backend does not have")
        else:
            raise Unsupported(
                f"tools[{place}].type: expected function, got {shortened(tool.kind)!r}, a kind that this backend does "
                "not have.",
                param=f"tools[{place}].type",
            )
    return said


def _wanted(tool: Tool, request: Request) -> bool:
    """Whether the model is told to use this tool, and not merely free to."""
    choice = request.tool_choice
    if choice is None or choice.mode is ToolMode.NONE:
        return False
    alone = choice.mode is ToolMode.REQUIRED and all(t.kind != FUNCTION for t in request.tools or ())
    return alone or tool.name in choice.names
