"""The tools of a request: which of them a dialect can express, and whether the choice among them can be met."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.contract.capabilities import Feature
from bridge.contract.context import Losses
from bridge.errors import RequestError, Unsupported, shortened
from bridge.model.request import Request, Tool, ToolChoice, ToolMode
from bridge.toolkit.check import wrong

FUNCTION = "function"


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


def supported(request: Request, dialect: str, lost: Losses, *, strict: bool = True) -> list[Tool]:
    """Return the tools of a request that `dialect` supports; an empty list for None.

    `strict`: whether the wire carries `Tool.strict`, which else is recorded as lost.

    A tool of another kind than a function (such as a provider's search), named by a client of another dialect, is not
    offered as a function, since nothing could run its calls. An optional one is omitted and reported as lost. Raises
    `Unsupported` for any other, and if the tool choice requires one that is left out.
    """
    tools: list[Tool] = []
    wanted = _wanted(request)
    for index, tool in enumerate(request.tools or ()):
        if tool.kind == FUNCTION or dialect in (tool.extras or {}):
            tools.append(tool)
            if tool.strict and not strict:
                lost.add(Feature.TOOLS, "strict")
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
