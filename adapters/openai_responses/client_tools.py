"""Tools of OpenAI's own that the client runs: shells, patches, the search for deferred tools, a computer.

Backends of other dialects get them as functions. A call comes back as the item that clients of this dialect know, and
such items of a history are calls and results. A call whose arguments fit no item stays a function call, so that the
client can tell the model. Shapes: OpenAI's guides of these tools, and the types of its SDK.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bridge.dialects.openai_responses.wire import noted
from bridge.model import FileRef, Media, MediaKind, Part, Text, Tool, json_text, source_of
from bridge.model.jsontext import dict_of, dicts_of, dumps, read_json, text_of
from bridge.toolkit.check import Node

Wire = dict[str, Any]
_STRINGS = {"type": "array", "items": {"type": "string"}}
_NUMBER = {"type": "integer"}


@dataclass(frozen=True, slots=True)
class ClientTool:
    """One kind. `call` and `output` are the types of its items, `prefix` begins the ids of its calls. `fill` returns
    the fields of a call's item for arguments, or None if they do not fit; `arguments` reads them from an item.
    """

    call: str
    output: str
    prefix: str
    description: str
    parameters: Wire
    fill: Callable[[Wire], Wire | None]
    arguments: Callable[[Wire], Wire]


def _schema(required: list[str], **properties: Any) -> Wire:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _strings(value: Any) -> list[str] | None:
    return value if isinstance(value, list) and value and all(isinstance(each, str) for each in value) else None


def _local_shell(arguments: Wire) -> Wire | None:
    """A command in one string is for a shell."""
    said = arguments.get("command")
    command = ["bash", "-lc", said] if isinstance(said, str) and said else _strings(said)
    rest = {name: arguments[name] for name in ("timeout_ms", "user", "working_directory") if name in arguments}
    env = {name: value for name, value in dict_of(arguments.get("env")).items() if isinstance(value, str)}
    return None if command is None else {"action": {"type": "exec", "command": command, "env": env, **rest}}


def _shell(arguments: Wire) -> Wire | None:
    said = arguments.get("commands")
    commands = [said] if isinstance(said, str) and said else _strings(said)
    rest = {name: arguments.get(name) for name in ("timeout_ms", "max_output_length")}
    return None if commands is None else {"action": {"commands": commands, **rest}, "environment": {"type": "local"}}


def _patch(arguments: Wire) -> Wire | None:
    kind, path, diff = (arguments.get(name) for name in ("type", "path", "diff"))
    if kind == "delete_file" and isinstance(path, str):
        return {"operation": {"type": kind, "path": path}}
    fits = kind in ("create_file", "update_file") and isinstance(path, str) and isinstance(diff, str)
    return {"operation": {"type": kind, "path": path, "diff": diff}} if fits else None


def _action(arguments: Wire) -> Wire | None:
    return {"action": arguments, "pending_safety_checks": []} if text_of(arguments.get("type")) else None


def _actions(arguments: Wire) -> Wire | None:
    found = dicts_of(arguments.get("actions"))
    fits = found and all(text_of(each.get("type")) for each in found)
    return {"actions": found, "pending_safety_checks": []} if fits else None


def _object(value: Any) -> Wire:
    """An object, or the JSON text of one, which some clients send."""
    return dict_of(read_json(value.encode("utf-8", "replace")) if isinstance(value, str) else value)


_ACTION = _schema(
    ["type"],
    type={
        "type": "string",
        "enum": ["click", "double_click", "drag", "keypress", "move", "screenshot", "scroll", "type", "wait"],
    },
    x=_NUMBER, y=_NUMBER, scroll_x=_NUMBER, scroll_y=_NUMBER, keys=_STRINGS,
    button={"type": "string", "enum": ["left", "right", "wheel", "back", "forward"]},
    text={"type": "string", "description": "What to type."},
    path={"type": "array", "items": _schema(["x", "y"], x=_NUMBER, y=_NUMBER), "description": "Where to drag."},
)  # fmt: skip
_COMPUTER = ("computer_call", "computer_call_output", "cu", "Acts on a computer and returns a screenshot.")

KINDS: dict[str, ClientTool] = {
    "local_shell": ClientTool(
        "local_shell_call",
        "local_shell_call_output",
        "lsh",
        "Runs a command on the user's machine and returns its output.",
        _schema(
            ["command"],
            command={**_STRINGS, "description": "The program and its arguments."},
            working_directory={"type": "string"},
            timeout_ms=_NUMBER,
        ),
        _local_shell,
        lambda item: {k: v for k, v in dict_of(item.get("action")).items() if k != "type" and v not in (None, {})},
    ),
    "shell": ClientTool(
        "shell_call",
        "shell_call_output",
        "sh",
        "Runs shell commands on the user's machine and returns their output.",
        _schema(["commands"], commands=_STRINGS, timeout_ms=_NUMBER, max_output_length=_NUMBER),
        _shell,
        lambda item: {k: v for k, v in dict_of(item.get("action")).items() if v is not None},
    ),
    "apply_patch": ClientTool(
        "apply_patch_call",
        "apply_patch_call_output",
        "apc",
        "Creates, updates or deletes a file. A diff has a line for each line of the file, which begins with a space if "
        "it stays, with - if it goes and with + if it is new; @@ begins a section.",
        _schema(
            ["type", "path"],
            type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            path={"type": "string"},
            diff={"type": "string", "description": "Required except to delete a file."},
        ),
        _patch,
        lambda item: dict_of(item.get("operation")),
    ),
    "tool_search": ClientTool(
        "tool_search_call",
        "tool_search_output",
        "tsc",
        "Finds tools, which can be called from then on.",
        _schema(["query"], query={"type": "string", "description": "What the tools are to do."}),
        lambda arguments: {"arguments": arguments, "execution": "client"},
        lambda item: _object(item.get("arguments")),
    ),
    "computer": ClientTool(
        *_COMPUTER,
        _schema(["actions"], actions={"type": "array", "items": _ACTION}),
        _actions,
        lambda item: {"actions": dicts_of(item.get("actions"))},
    ),
    "computer_use_preview": ClientTool(*_COMPUTER, _ACTION, _action, lambda item: dict_of(item.get("action"))),
}
_OF_CALL = {tool.call: name for name, tool in KINDS.items()}
_OF_OUTPUT = {tool.output: name for name, tool in KINDS.items()}


# ------------------------------------------------------------------ declared


def is_run_by_client(tool: Wire) -> bool:
    """Return whether the client runs the calls of a tool of this list. Shells and searches may be the provider's."""
    match tool.get("type"):
        case "shell":
            return text_of(dict_of(tool.get("environment")).get("type", "local")) == "local"
        case "tool_search":
            return tool.get("execution") == "client"
        case kind:
            return kind in KINDS


def client_tool(node: Node) -> Tool:
    """The function for a tool that the client runs."""
    kind = node.need_string("type")
    tool, parameters = KINDS[kind], node.get("parameters")
    lines = [node.string("description") or tool.description]
    if kind == "computer_use_preview" and (width := node.get("display_width")):
        lines.append(f"The screen has {width} x {node.get('display_height')} pixels.")
    schema = parameters if kind == "tool_search" and isinstance(parameters, dict) else tool.parameters
    return Tool(kind, " ".join(lines), schema, extras=noted(whole=node.value, client=kind))


# ------------------------------------------------------------------ calls


def call_item(kind: str, wire_id: str, call_id: str, arguments: str) -> Wire | None:
    """The item of a call; None if the arguments do not fit."""
    value = read_json(arguments.encode("utf-8", "replace"))
    tool = KINDS[kind]
    fields = tool.fill(value) if isinstance(value, dict) else None
    if fields is None:
        return None
    return {"id": wire_id, "type": tool.call, "status": "in_progress", "call_id": call_id, **fields}


def read_call(item: Wire) -> tuple[str, str, str] | None:
    """The id, the function's name and the arguments of a call in a history; None for items that are no such calls."""
    name, call_id = _OF_CALL.get(text_of(item.get("type"))), text_of(item.get("call_id"))
    if name is None or not call_id:
        return None
    if "actions" in item:
        name = "computer"
    return call_id, name, dumps(KINDS[name].arguments(item)).decode()


def read_output(item: Wire) -> tuple[str, list[Part], bool] | None:
    """The id of the call, the parts and whether it failed, of a result in a history; None for other items.

    The API names the call of a local shell by `id`.
    """
    kind = text_of(item.get("type"))
    call_id = text_of(item.get("call_id")) or (text_of(item.get("id")) if kind == "local_shell_call_output" else "")
    if kind not in _OF_OUTPUT or not call_id:
        return None
    said = item.get("tools" if kind == "tool_search_output" else "output")
    if isinstance(said, dict) and (picture := _screenshot(said)) is not None:
        return call_id, [picture], False
    status = text_of(item.get("status"))
    if said is None:
        said = status or "completed"
    return call_id, [Text(said if isinstance(said, str) else json_text(said))], status == "failed"


def _screenshot(output: Wire) -> Media | None:
    if url := text_of(output.get("image_url")):
        source, mime = source_of(url)
        return Media(MediaKind.IMAGE, source, mime)
    file_id = text_of(output.get("file_id"))
    return Media(MediaKind.IMAGE, FileRef(file_id)) if file_id else None
