"""The tools of a route, as clients and their models see them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bridge.codec import ToolSite
from bridge.dialects.mcp.options import FrontOptions, ToolText
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
    texts = dict(options.tools)
    if site.modes:
        if options.tool or options.title or options.description:
            raise ConfigError("a route with several tools has their titles and descriptions in options.tools")
        for name in site.modes:
            if not _NAME.fullmatch(name):
                raise ConfigError(f"backend.{name}: the name of a tool has 1 to {_LONGEST} of A-Z, a-z, 0-9, _ and -")
        if unknown := [name for name in texts if name not in site.modes]:
            raise ConfigError(f"options.tools.{unknown[0]}: the route's backend names no such tool")
        names = list(site.modes)
    else:
        if texts:
            raise ConfigError("options.tools is for a route whose backend names a backend for each tool")
        names = [options.tool or _OTHER.sub("_", f"ask_{site.backend}")[:_LONGEST]]
        texts[names[0]] = ToolText(title=options.title, description=options.description)
    return {name: _tool(name, texts.get(name, ToolText()), options, site) for name in names}


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
    asked = site.backend if not site.modes else name
    tool: Wire = {
        "name": name,
        **({"title": text.title} if text.title else {}),
        "description": text.description or f"Asks the agent {asked} and returns its answer.",
        "inputSchema": schema,
        "annotations": {**({"title": text.title} if text.title else {}), **_HINTS},
    }
    return {**tool, "outputSchema": _OUTPUT} if options.structured else tool
