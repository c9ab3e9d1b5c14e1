"""Tools that clients run and that are no plain functions, as functions for backends of other dialects.

A tool with free text as input (`custom`) is a function with one argument, `input`, and the members of a namespace are
functions whose names begin with its name. Calls of both are sent to clients in the form that they declared, and calls
and results in the history are read back the same way. Backends of this dialect get all of it unchanged.

Notes on such a tool, in `extras`: `whole` (the tool as it came), `within` (another one of the list, or an item, holds
it), `free` (its input is free text), `named` (fields of its calls: `name`, `namespace`), `client` (its type, of a tool
of OpenAI's own that clients run).
"""

from __future__ import annotations

from typing import Any

from bridge.dialects.openai.free_text import free_text_tool
from bridge.dialects.openai_responses.client_tools import is_run_by_client
from bridge.dialects.openai_responses.wire import noted, own
from bridge.model import Request, Tool
from bridge.model.jsontext import dicts_of
from bridge.toolkit.check import Node
from bridge.toolkit.tools import FUNCTION

Wire = dict[str, Any]

ADDITIONAL_TOOLS = "additional_tools"
"""The type of an item that declares tools, and where a request's extras keep such items."""
CONFIGURES = "configuration_update"
"""The type of an item that changes settings from there on, and where a request's extras keep those of its body."""
_BETWEEN = "__"
_RUN_BY_CLIENTS = frozenset({FUNCTION, "custom", "namespace"})


def free(node: Node) -> Tool:
    """A tool with free text as input."""
    form = node.object("format")
    grammar = {name: form.string(name) for name in ("syntax", "definition")} if form else {}
    extras = noted(whole=node.value, free=True)
    return free_text_tool(node.need_string("name"), node.string("description"), grammar, extras)


def members(node: Node, tools: list[Tool]) -> list[Tool]:
    """The tools of a namespace, of which the first one represents the whole of it on this wire.

    One that the provider runs keeps its name and may stay out even where others of its kind may not.
    """
    space = node.need_string("name")
    for index, tool in enumerate(tools):
        notes: Wire = {"within": True} if index else {"whole": node.value}
        if tool.kind == FUNCTION:
            notes["named"] = {"name": tool.name, "namespace": space}
            notes["free"] = own(tool.extras).get("free")
            tool.name = flat(space, tool.name)
        tool.extras = noted(**notes)
    return tools


def held(tool: Tool) -> Tool:
    """The same tool, which an item of the input declares."""
    tool.extras = noted(**{**own(tool.extras), "whole": None, "within": True})
    return tool


def without_hosted(item: Wire) -> Wire:
    """An item that declares tools, without those that the provider runs; any other as it is."""
    if "tools" not in item:
        return item
    tools = dicts_of(item.get("tools"))
    return {**item, "tools": [t for t in tools if t.get("type") in _RUN_BY_CLIENTS or is_run_by_client(t)]}


def flat(namespace: str | None, name: str) -> str:
    """The name of a tool in a namespace, for dialects without any."""
    return f"{namespace}{_BETWEEN}{name}" if namespace else name


def declared(request: Request | None) -> dict[str, Wire]:
    """The notes on the tools of a request whose calls clients know in another form, by name."""
    tools = (request.tools if request else None) or ()
    noted_of = {tool.name: own(tool.extras) for tool in tools}
    return {name: notes for name, notes in noted_of.items() if any(map(notes.get, ("free", "named", "client")))}
