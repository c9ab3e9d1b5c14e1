"""Tools at a gateway as functions of a model, and its calls as requests."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bridge.contract import Context, WireRequest, WireResponse
from bridge.contract.optional.sessions import RegisteredNode
from bridge.contract.optional.tool_host import OfferedTool
from bridge.dialects.aip.content import part_of
from bridge.dialects.aip.described import schema_of, schema_of_literal
from bridge.dialects.aip.generation import Generation, of_registration, write_arguments
from bridge.dialects.aip.options import BackOptions
from bridge.dialects.aip.read_request import CONTENT_TYPE
from bridge.dialects.aip.wire import (
    AgentInfo,
    GetNodesRequest,
    NodeHead,
    Peer,
    Peers,
    ToolBoxInfo,
    ToolInfo,
    ToolRequest,
    ToolResponse,
)
from bridge.errors import BackendError, ErrorCode
from bridge.model import Part, Text, Tool

GET_NODES = "/grpc_service.GatewayService/GetNodes"
ROUTE_TOOL = "/grpc_service.GatewayService/RouteToolCalling"
_HEADERS = {"content-type": CONTENT_TYPE}
_ODD = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST = 64
"""Characters of a function's name that models take."""


@dataclass(frozen=True, slots=True)
class Place:
    """The address of a tool: its node, its name there, and the generation of its calls."""

    node: str
    name: str
    generation: Generation


def nodes_request(sender_id: str, domain: str) -> WireRequest:
    """Return the request to a gateway for the nodes of a domain."""
    return WireRequest("POST", GET_NODES, dict(_HEADERS), body=GetNodesRequest(sender_id, domain).to_bytes())


def _peers_of(wire: WireResponse) -> list[Peer]:
    try:
        return Peers.from_bytes(wire.body).peers
    except ValueError:
        text = "The gateway's list of nodes cannot be read."
        raise BackendError(text, code=ErrorCode.BACKEND_PROTOCOL) from None


def nodes_of(wire: WireResponse) -> list[RegisteredNode]:
    """Return the nodes in a list of nodes. Raises `BackendError` for bytes that are not a list.

    Invalid registrations are skipped.
    """
    nodes = []
    for peer in _peers_of(wire):
        raw = peer.agent or peer.tool
        try:
            head, box = NodeHead.from_bytes(raw), not peer.agent and of_registration(raw) == "toolbox"
            info = (AgentInfo if peer.agent else ToolBoxInfo if box else ToolInfo).from_bytes(raw)
        except ValueError:
            continue
        kind: Literal["agent", "tool"] = "agent" if peer.agent else "tool"
        nodes.append(RegisteredNode(kind, head.node_id, head.name, head.domain, head.address, info.description))
    return nodes


def offered(wire: WireResponse, fallback: Generation) -> list[OfferedTool]:
    """Return the tools in a list of nodes, with unique names. Raises `BackendError` for bytes that are not a list.

    Invalid registrations are skipped.
    """
    found: dict[str, OfferedTool] = {}
    for peer in _peers_of(wire):
        try:
            tools = list(_tools_of(peer.tool, fallback)) if peer.tool else []
        except ValueError:
            continue
        for tool, place in tools:
            tool.name = _legal(tool.name, place, found)
            found[tool.name] = OfferedTool(tool, place)
    return list(found.values())


def _tools_of(raw: bytes, fallback: Generation) -> Iterator[tuple[Tool, Place]]:
    if of_registration(raw, fallback) == "tool":
        info = ToolInfo.from_bytes(raw)
        name = info.name or info.tool_id
        yield Tool(name, info.description or None, schema_of(info.arguments)), Place(info.tool_id, name, "tool")
        return
    box = ToolBoxInfo.from_bytes(raw)
    for one in box.tools:
        tool = Tool(f"{box.toolbox_id}__{one.name}", one.description or None, schema_of_literal(one.arguments))
        yield tool, Place(box.toolbox_id, one.name, "toolbox")


def _legal(name: str, place: Place, taken: Mapping[str, OfferedTool]) -> str:
    """The name as models take it; of two that become alike, the second one ends with a digest of its place."""
    plain = _ODD.sub("_", name)
    if plain and len(plain) <= _LONGEST and plain not in taken:
        return plain
    tail = hashlib.sha256(f"{place.node}\0{place.name}".encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{plain[: _LONGEST - len(tail) - 1]}_{tail}"


def call_request(tool: OfferedTool, arguments: Mapping[str, Any], context: Context) -> WireRequest:
    """A call, in the generation of the node."""
    place: Place = tool.place
    written = write_arguments(arguments, place.generation)
    request = ToolRequest(BackOptions.of(context).sender_id, place.node, context.make_id("tool"), place.name, written)
    return WireRequest("POST", ROUTE_TOOL, dict(_HEADERS), body=request.to_bytes())


def answer_of(wire: WireResponse) -> tuple[list[Part], bool]:
    """Return the answer of a tool: its texts as one, and its media. `is_error` decides, not the message."""
    try:
        response = ToolResponse.from_bytes(wire.body)
    except ValueError:
        raise BackendError("The tool's answer cannot be read.", code=ErrorCode.BACKEND_PROTOCOL) from None
    if response.is_error:
        return [Text(response.error_message or "Error executing tool.")], True
    text = "".join(item.text for item in response.content if item.text)
    media = [part for item in response.content if item.text is None and (part := part_of(item)) is not None]
    return ([Text(text), *media] if text or not media else list(media)), False
