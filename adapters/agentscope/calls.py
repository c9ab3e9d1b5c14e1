"""Calls and their outputs: one `data` content each, the same in requests and answers."""

from __future__ import annotations

from typing import Any

from bridge.contract import Losses
from bridge.dialects.agentscope.extras import NAME, own
from bridge.model import Origin, Part, Text, ToolCall, ToolResult, ToolResulted, json_text
from bridge.model.jsontext import loads, text_of
from bridge.toolkit.media import result_as_text

ORIGINS: dict[str, Origin] = {
    "plugin_call": Origin.PLUGIN,
    "function_call": Origin.FUNCTION,
    "component_call": Origin.COMPONENT,
    "mcp_call": Origin.MCP,
}
CALLS = frozenset(ORIGINS)
OUTPUTS = frozenset(f"{name}_output" for name in ORIGINS)
_TYPES = {origin: name for name, origin in ORIGINS.items()}


def call_type(
    origin: Origin, extras: dict[str, dict[str, Any]] | None, default_type: str, *, has_metadata: bool = True
) -> str:
    """Return the message type of a call: that of an AgentScope backend, else by origin; for functions, `default_type`.

    `has_metadata`: an origin other than the type's can be sent in metadata.
    """
    sent_type = own(extras).get("type")
    if isinstance(sent_type, str) and sent_type in CALLS and (has_metadata or ORIGINS[sent_type] is origin):
        return sent_type
    return default_type if origin is Origin.FUNCTION else _TYPES[origin]


def origin_metadata(origin: Origin, kind: str) -> dict[str, Any]:
    """Return metadata with the origin, if the message type implies another (a function sent as plugin_call)."""
    return {} if ORIGINS[kind] is origin else {"origin": str(origin)}


def origin_of(kind: str, metadata: object) -> Origin:
    stored = metadata.get("origin") if isinstance(metadata, dict) else None
    return next((o for o in Origin if o == stored), ORIGINS[kind])


def call_data(kind: str, call_id: str, name: str, arguments: str, server_label: str | None) -> dict[str, Any]:
    """Return `data` of a call, with keys in the order of the real server."""
    if kind == "mcp_call":
        return {"call_id": call_id, "arguments": arguments, "name": name, "server_label": server_label}
    return {"call_id": call_id, "name": name, "arguments": arguments}


def arguments_of(value: object) -> str:
    """Return the arguments as a string; some senders send an object."""
    if isinstance(value, str):
        return value
    return "" if value is None else json_text(value)


def output_data(call_id: str, name: str | None, output: str) -> dict[str, Any]:
    """Return `data` of an output."""
    return {"call_id": call_id, "name": name or None, "output": output}


def output_of(result: ToolResult | ToolResulted, lost: Losses) -> str:
    """Return the output string: that of an AgentScope peer unchanged, else the parts as text."""
    raw = own(result.extras).get("output")
    return raw if isinstance(raw, str) else result_as_text(result, lost)


def output_parts(raw: str) -> list[Part]:
    """Return the parts of an output string; the texts of a JSON list of text blocks are concatenated."""
    joined = _joined(raw) if raw.lstrip()[:1] == "[" else None
    return [Text(raw if joined is None else joined)]


def _joined(raw: str) -> str | None:
    try:
        blocks = loads(raw.encode("utf-8", "surrogatepass"))
    except ValueError:
        return None
    texts = [b.get("text") for b in blocks if isinstance(b, dict) and b.get("type") == "text"]
    known = [t for t in texts if isinstance(t, str)]
    return "".join(known) if known and len(known) == len(blocks) else None


def call_of(kind: str, data: dict[str, Any], metadata: object, call_id: str) -> ToolCall:
    """Return the call in a finished `data` content."""
    return ToolCall(
        call_id,
        text_of(data.get("name")),
        arguments_of(data.get("arguments")),
        origin_of(kind, metadata),
        text_of(data.get("server_label")) or None,
        {NAME: {"type": kind}},
    )


def result_of(kind: str, data: dict[str, Any], metadata: object, call_id: str) -> ToolResult:
    """Return the result in a finished `data` content; extras keep the string itself."""
    raw = arguments_of(data.get("output"))
    failed = data.get("is_error") is True or (isinstance(metadata, dict) and metadata.get("is_error") is True)
    extras = {NAME: {"type": kind, "output": raw}}
    return ToolResult(call_id, output_parts(raw), text_of(data.get("name")) or None, failed, extras)
