"""Tools that backends run, and the optional contract of dialects with such tools.

`supported` tells codecs which tools their dialect can express in a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridge.errors import RequestError, Unsupported, shortened
from bridge.model.parts import Part
from bridge.model.request import Request, Tool, ToolChoice, ToolMode

from .capabilities import Feature
from .check import wrong
from .context import Context, Losses
from .dialect import Dialect, Options
from .wire import WireRequest, WireResponse

FUNCTION = "function"


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that the provider runs. `place` is how its dialect finds it again."""

    tool: Tool
    place: Any


def check_choice(choice: ToolChoice | None, tools: Sequence[Tool], path: str) -> None:
    """Raises `RequestError` if a request insists on a tool that it does not offer, as the services do."""
    if choice is None or choice.mode is ToolMode.NONE:
        return
    if not tools and choice.mode is ToolMode.REQUIRED:
        raise RequestError(f"{path}: requires a tool call, but the request has no tools.", param=path)
    offered = {tool.name for tool in tools}
    for name in choice.names:
        if name not in offered:
            wrong(path, "the name of a tool of the request", name)


def supported(request: Request, dialect: str, lost: Losses) -> list[Tool]:
    """Return the tools of a request that `dialect` supports; an empty list for None.

    A tool of another kind than a function (such as a provider's search), named by a client of another dialect, is not
    offered as a function, since nothing could run its calls. An optional one is omitted and reported as lost. Raises
    `Unsupported` for any other, and if the tool choice requires one that is left out.
    """
    tools: list[Tool] = []
    wanted = _wanted(request)
    for index, tool in enumerate(request.tools or ()):
        if tool.kind == FUNCTION or dialect in (tool.extras or {}):
            tools.append(tool)
        elif tool.optional and tool.name not in wanted:
            lost.add(Feature.TOOLS, f"{shortened(tool.kind)}, a type that this backend does not have")
        else:
            raise Unsupported(
                f"tools[{index}].type: expected function, got {shortened(tool.kind)!r}, a type that this backend does "
                "not have.",
                param=f"tools[{index}].type",
            )
    return tools


def _wanted(request: Request) -> set[str]:
    """Return the names of the tools that the model must use."""
    choice, tools = request.tool_choice, request.tools or ()
    if choice is None or choice.mode is ToolMode.NONE:
        return set()
    if choice.mode is ToolMode.REQUIRED and all(tool.kind != FUNCTION for tool in tools):
        return {tool.name for tool in tools}
    return set(choice.names)


class ToolHostDialect(Dialect):
    """A dialect whose backends list and run tools, in addition to models or instead of them."""

    def own_tools(self, options: Options) -> int | None:
        """Return how many rounds of calls the model behind a route may make to tools at the route's own address.

        None, as by default, means never.
        """
        return None

    def tools_request(self) -> WireRequest:
        """Return the request for the tools at an address."""
        raise NotImplementedError

    def decode_tools(self, wire: WireResponse, options: Options) -> list[OfferedTool]:
        """Return the tools in the answer; `options` are those of a backend or a route.

        Raises `BackendError` when the answer is no list of tools.
        """
        raise NotImplementedError

    def call_request(self, tool: OfferedTool, arguments: Mapping[str, Any], context: Context) -> WireRequest:
        """Return the request that calls a tool."""
        raise NotImplementedError

    def decode_call(self, wire: WireResponse) -> tuple[list[Part], bool]:
        """Return the result of a tool, and whether it is an error.

        Raises `BackendError` when the answer is not one of a tool.
        """
        raise NotImplementedError
