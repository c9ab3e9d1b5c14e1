"""The specification's data as programs see it: what `messages` has, and what it leaves as bytes.

Inside the bridge a registration and a tool call stay bytes, whatever their generation; here they are read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from bridge.dialects.aip import wire
from bridge.dialects.aip.generation import Generation, arguments_of, of_registration, write_arguments
from bridge.dialects.aip.proto import Kind, Wire, alias, at
from bridge.dialects.aip.wire import (
    AgentInfo,
    AgentMessage,
    AgentSkill,
    BoxedTool,
    ContentItem,
    GetNodesRequest,
    Mode,
    SessionStatus,
    TaskInfo,
    TaskStatus,
    ToolBoxInfo,
    ToolInfo,
    ToolResponse,
)

__all__ = [
    "AgentInfo", "AgentMessage", "AgentSkill", "BoxedTool", "ContentItem", "DeregisterNodeRequest",
    "DeregisterNodeResponse", "GetNodesRequest", "GetNodesResponse", "HeartbeatRequest", "HeartbeatResponse", "Mode",
    "NodeInfo", "Peer", "RegisterAgentResponse", "RegisterToolResponse", "SessionStatus", "TaskInfo", "TaskStatus",
    "ToolBoxInfo", "ToolInfo", "ToolRequest", "ToolResponse", "UpdateNodeInfoRequest", "UpdateNodeInfoResponse",
    "generation_of", "infos_of", "node_id",
]  # fmt: skip

NodeInfo = AgentInfo | ToolInfo | ToolBoxInfo
"""The description of a node."""


@dataclass(slots=True)
class Peer(Wire):
    """An entry of a node list: one of the three. Boxes are of the toolbox generation and share the tool's number.

    `_agent_info` and `_tool_info` are the specification's names of the first two.
    """

    agent_info: AgentInfo | None = None
    tool_info: ToolInfo | None = None
    toolbox_info: ToolBoxInfo | None = None

    _agent_info = alias("agent_info")
    _tool_info = alias("tool_info")

    def to_bytes(self) -> bytes:
        return _raw(self).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        raw = wire.Peer.from_bytes(data)
        info = info_of(raw)
        return cls(
            info if isinstance(info, AgentInfo) else None,
            info if isinstance(info, ToolInfo) else None,
            info if isinstance(info, ToolBoxInfo) else None,
        )

    @property
    def info(self) -> NodeInfo | None:
        """Whichever is set."""
        return self.agent_info or self.tool_info or self.toolbox_info


def _raw(peer: Peer) -> wire.Peer:
    box = peer.tool_info or peer.toolbox_info
    return wire.Peer(peer.agent_info.to_bytes() if peer.agent_info else b"", box.to_bytes() if box else b"")


def info_of(peer: wire.Peer) -> NodeInfo | None:
    """Return the description in a registration of the wire; None for an invalid one, so that others in the list stay
    usable.
    """
    try:
        if peer.agent:
            return AgentInfo.from_bytes(peer.agent)
        box = of_registration(peer.tool) == "toolbox"
        return (ToolBoxInfo if box else ToolInfo).from_bytes(peer.tool) if peer.tool else None
    except ValueError:
        return None


def infos_of(peers: list[Peer]) -> dict[str, NodeInfo]:
    """The nodes of a list, by their ids."""
    return {node_id(peer.info): peer.info for peer in peers if peer.info is not None}


def node_id(info: NodeInfo) -> str:
    match info:
        case AgentInfo():
            return info.agent_id
        case ToolInfo():
            return info.tool_id
        case ToolBoxInfo():
            return info.toolbox_id


def generation_of(info: NodeInfo | None) -> Generation:
    """Return the generation of the node's calls; an unknown one counts as the first."""
    return "toolbox" if isinstance(info, ToolBoxInfo) else "tool"


@dataclass(slots=True)
class ToolRequest:
    """A tool call. `arguments` are values by name; a map of the wire (generation `tool`) makes them texts."""

    sender_id: str = ""
    receiver_id: str = ""
    session_id: str = ""
    tool_name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)

    def to_bytes(self, generation: Generation = "tool") -> bytes:
        """The request as a node of this generation takes it."""
        written = write_arguments(self.arguments, generation)
        return wire.ToolRequest(self.sender_id, self.receiver_id, self.session_id, self.tool_name, written).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Of either generation. Raises `ValueError` for bytes that are no message."""
        raw = wire.ToolRequest.from_bytes(data)
        return cls(raw.sender_id, raw.receiver_id, raw.session_id, raw.tool_name, arguments_of(raw.arguments))


@dataclass(slots=True)
class _Success(Wire):
    success: bool = at(1, Kind.BOOL)


class RegisterToolResponse(_Success):
    """The answer to a registration of a tool: `success` if it is registered now."""

    __slots__ = ()


class DeregisterNodeResponse(_Success):
    """The answer to a deregistration of a node: `success` if the node was registered."""

    __slots__ = ()


@dataclass(slots=True)
class RegisterAgentResponse(Wire):
    """The answer to a registration of an agent: `success` if it is registered now, and the other registered agents."""

    success: bool = at(1, Kind.BOOL)
    peers: list[Peer] = at(2, Kind.MESSAGES, Peer)


@dataclass(slots=True)
class GetNodesResponse(Wire):
    """The registered nodes of a domain."""

    peers: list[Peer] = at(1, Kind.MESSAGES, Peer)


@dataclass(slots=True)
class DeregisterNodeRequest(Wire):
    """The request to remove a node."""

    node_id: str = at(1, Kind.STRING)


@dataclass(slots=True)
class HeartbeatRequest(Wire):
    """A sign of life of a node."""

    sender_id: str = at(1, Kind.STRING)


class HeartbeatResponse(wire.Done):
    """`success`, and a text."""

    __slots__ = ()


class UpdateNodeInfoResponse(wire.Done):
    """`success`, and a text."""

    __slots__ = ()


@dataclass(slots=True)
class UpdateNodeInfoRequest(Wire):
    """The request to replace the description of a node."""

    sender_id: str = at(1, Kind.STRING)
    peer: Peer | None = at(2, Kind.MESSAGE, Peer)
