"""AIP (Agent Interaction Protocol) over gRPC, as front and as back; and the specification's classes for programs.

Everything is imported at first use: the classes bring `grpc` and `aiohttp`, which reading and writing messages does not
need. Names that are not listed in `PROGRAMS` are the codec's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.dialects.aip.codec import AIP, dialect
    from bridge.dialects.aip.sdk import *  # noqa: F403

PROGRAMS = [
    "Agent",
    "AgentInfo",
    "AgentMessage",
    "AgentServiceStub",
    "AgentSkill",
    "BoxedTool",
    "ContentItem",
    "ContextMemory",
    "DeregisterNodeRequest",
    "DeregisterNodeResponse",
    "Gateway",
    "GatewayServiceStub",
    "GetNodesRequest",
    "GetNodesResponse",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "Mode",
    "Peer",
    "RegisterAgentResponse",
    "RegisterToolResponse",
    "SessionStatus",
    "TaskInfo",
    "TaskStatus",
    "Tool",
    "ToolBoxInfo",
    "ToolInfo",
    "ToolRequest",
    "ToolResponse",
    "ToolServiceStub",
    "UpdateNodeInfoRequest",
    "UpdateNodeInfoResponse",
]
"""The names of `bridge.dialects.aip.sdk`."""

__all__ = ["AIP", "dialect", *PROGRAMS]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home: Any
    if name in PROGRAMS:
        from bridge.dialects.aip import sdk as home
    else:
        from bridge.dialects.aip import codec as home
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
