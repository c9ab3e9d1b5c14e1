"""The tools of a route, as clients and their models see them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bridge.contract import ToolSite, ToolText
from bridge.dialects.mcp.options import FrontOptions
from bridge.dialects.mcp.wire import Wire
from bridge.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")
_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST = 48
_URLS = "URLs; data: URLs hold the bytes."

ARGUMENTS: Mapping[str, Wire] = {
    "prompt": {"type": "string", "description": "What to ask. Nothing else of this conversation is seen."},
    "conversation": {
        "type": "string",
        "description": "To continue an earlier conversation: the id after 'conversation:' in its last answer. Leave it "
        "out to begin a new one.",
    },
    "images": {"type": "array", "items": {"type": "string"}, "description": f"Images to send with the prompt: {_URLS}"},
    "files": {"type": "array", "items": {"type": "string"}, "description": f"Files to send with the prompt: {_URLS}"},
    "system": {"type": "string", "description": "Instructions that precede the conversation."},
}
"""The schema of each argument that a tool may have."""

_OUTPUT: Wire = {
    "type": "object",
    "properties": {
        "answer": {"type": "string"},
        "conversation": {"type": "string"},
        "finish_reason": {"type": "string"},
        "usage": {"type": "object"},
    },
    "required": ["answer", "finish_reason"],
}
_HINTS: Wire = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": True}
"""Nothing is known of what an agent does."""


def tools_of(options: FrontOptions, site: ToolSite) -> dict[str, Wire]:
    """Return the tools of a route by name, always in the same order. Raises `ConfigError` for options that fit none."""
    if not site.tools:
        only = options.tool or _OTHER.sub("_", f"ask_{site.backend}")[:_LONGEST]
        return {only: _tool(only, ToolText(options.title, options.description), options, site)}
    for key in ("tool", "title", "description"):
        if getattr(options, key):
            raise ConfigError(f"options.{key}: a route with tools sets it for each of them, in tools")
    for name in site.tools:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"tools.{name}: the name of a tool has 1 to {_LONGEST} of A-Z, a-z, 0-9, _ and -")
    return {name: _tool(name, text, options, site) for name, text in site.tools.items()}


def arguments_of(options: FrontOptions, site: ToolSite) -> list[str]:
    """Return the names of the arguments of every tool of a route."""
    known = [name for name in ("images", "files", "system") if name in options.arguments]
    return ["prompt", *(["conversation"] if site.remembers else []), *known]


def _tool(name: str, text: ToolText, options: FrontOptions, site: ToolSite) -> Wire:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {each: ARGUMENTS[each] for each in arguments_of(options, site)},
        "required": ["prompt"],
        "additionalProperties": False,
    }
    asked = name if site.tools else site.backend
    tool: Wire = {
        "name": name,
        **({"title": text.title} if text.title else {}),
        "description": text.description or f"Asks the agent {asked} and returns its answer.",
        "inputSchema": schema,
        "annotations": {**({"title": text.title} if text.title else {}), **_HINTS},
    }
    return {**tool, "outputSchema": _OUTPUT} if options.structured else tool
