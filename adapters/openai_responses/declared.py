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

from bridge.dialects.openai_responses.client_tools import is_run_by_client
from bridge.dialects.openai_responses.wire import noted, own
from bridge.model import Request, Tool
from bridge.model.jsontext import dicts_of, dumps, read_json
from bridge.toolkit.check import Node
from bridge.toolkit.tools import FUNCTION

Wire = dict[str, Any]

ADDITIONAL_TOOLS = "additional_tools"
"""The type of an item that declares tools, and where a request's extras keep such items."""
CONFIGURES = "configuration_update"
"""The type of an item that changes settings from there on, and where a request's extras keep those of its body."""
INPUT = "input"
_BETWEEN = "__"
_RUN_BY_CLIENTS = frozenset({FUNCTION, "custom", "namespace"})


def free(node: Node) -> Tool:
    """A tool with free text as input. Other models get its grammar as a description, which they may violate."""
    lines = [node.string("description") or ""]
    form = node.object("format")
    if form is not None and (grammar := form.string("definition")):
        lines.append(f"The input has this grammar ({form.string('syntax') or 'lark'}):\n{grammar}")
    schema = {
        "type": "object",
        "properties": {INPUT: {"type": "string", "description": "The whole input, as plain text."}},
        "required": [INPUT],
        "additionalProperties": False,
    }
    description = "\n\n".join(filter(None, lines)) or None
    return Tool(node.need_string("name"), description, schema, extras=noted(whole=node.value, free=True))


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


def arguments_of(text: str) -> str:
    """The arguments of a call whose input is this free text."""
    return dumps({INPUT: text}).decode()


def input_of(arguments: str) -> str:
    """The free text in a call's arguments: of a model that names it otherwise, the only member; of one that keeps to no
    schema, all it wrote (antirez/ds4#745: `{"patch": "*** Begin Patch ..."}`).
    """
    value = read_json(arguments.encode())
    if not isinstance(value, dict):
        return arguments
    text = value.get(INPUT, next(iter(value.values())) if len(value) == 1 else None)
    return text if isinstance(text, str) else arguments
