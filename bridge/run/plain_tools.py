"""Tools of the Responses API that a server does not know, as functions: `'type' of tool must be 'function'`.

Coding agents declare tools with free text as input (`custom`), tools in namespaces, and tools that OpenAI runs. Servers
of other models know functions alone. A tool with free text is a function with one argument, members of a namespace have
its name before theirs, and the names are those that other dialects get, so that calls lead back to what was declared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from bridge.model.jsontext import dict_of, dicts_of, dumps, text_of

Body = dict[str, Any]

NO_FUNCTION = re.compile(
    r"type'? of tools? must be|tool type[^\n]{0,60} (?:is |are )?not supported"
    r"|(?:unsupported|unknown|invalid) tool type"
    r"|unknown variant [`'\"](?:custom|namespace|web_search|image_generation|local_shell)"
)
"""Words by which a server refuses tools that are no functions."""

_FUNCTION = "function"
_BETWEEN = "__"
_HOLDER = "additional_tools"


def plain_tools(body: Body) -> bool:
    """Write all tools as functions, and their calls and results in the input; leave out those that a provider runs."""
    items = body.get("input")
    tools = [*dicts_of(body.get("tools"))]
    if isinstance(items, list):
        tools += [
            tool for item in dicts_of(items) if item.get("type") == _HOLDER for tool in dicts_of(item.get("tools"))
        ]
    if all(tool.get("type") == _FUNCTION for tool in tools):
        return False
    body["tools"] = [function for tool in tools for function in _functions(tool)]
    if isinstance(items, list):
        body["input"] = [_plain(item) for item in items if dict_of(item).get("type") != _HOLDER]
    choice = dict_of(body.get("tool_choice"))
    if choice.get("type") == "custom":
        body["tool_choice"] = {**choice, "type": _FUNCTION}
    elif choice and choice.get("type") != _FUNCTION:
        body["tool_choice"] = "auto"
    if not body["tools"]:
        del body["tools"]
        body.pop("tool_choice", None)
    return True


def _functions(tool: Body, space: str = "") -> Iterator[Body]:
    match tool.get("type"):
        case "namespace":
            for inside in dicts_of(tool.get("tools")):
                yield from _functions(inside, text_of(tool.get("name")))
        case "custom":
            schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
            grammar = text_of(dict_of(tool.get("format")).get("definition"))
            lines = [text_of(tool.get("description")), grammar and f"The input has this grammar:\n{grammar}"]
            made = {"type": _FUNCTION, "name": _flat(space, tool), "parameters": schema, "strict": False}
            yield {**made, "description": "\n\n".join(filter(None, lines))}
        case "function":
            yield {**tool, "name": _flat(space, tool)}


def _flat(space: str, named: Body) -> str:
    return f"{space}{_BETWEEN if space else ''}{text_of(named.get('name'))}"


def _plain(item: Any) -> Any:
    kind = dict_of(item).get("type")
    if kind == "custom_tool_call":
        more = {k: v for k, v in item.items() if k not in ("id", "input", "namespace")}
        arguments = dumps({"input": text_of(item.get("input"))}).decode()
        name = _flat(text_of(item.get("namespace")), item)
        return {**more, "type": "function_call", "name": name, "arguments": arguments}
    if kind == "custom_tool_call_output":
        return {**{k: v for k, v in item.items() if k != "id"}, "type": "function_call_output"}
    if kind == "function_call" and item.get("namespace"):
        more = {k: v for k, v in item.items() if k != "namespace"}
        return {**more, "name": _flat(text_of(item["namespace"]), item)}
    return item
