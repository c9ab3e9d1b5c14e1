"""AIP programs in Python: `Gateway`, `Agent`, `Tool`, `ContextMemory` and their data, as the specification names them.

Nothing else of the bridge has to run. Sessions, registry and messages are the very code that the bridge serves with.
"""

from __future__ import annotations

from .agent import Agent
from .data import (
    AgentInfo,
    AgentMessage,
    AgentSkill,
    BoxedTool,
    ContentItem,
    DeregisterNodeRequest,
    DeregisterNodeResponse,
    GetNodesRequest,
    GetNodesResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    Mode,
    Peer,
    RegisterAgentResponse,
    RegisterToolResponse,
    SessionStatus,
    TaskInfo,
    TaskStatus,
    ToolBoxInfo,
    ToolInfo,
    ToolRequest,
    ToolResponse,
    UpdateNodeInfoRequest,
    UpdateNodeInfoResponse,
)
from .gateway import Gateway
from .memory import ContextMemory
from .stubs import AgentServiceStub, GatewayServiceStub, ToolServiceStub
from .tool import Tool

__all__ = [
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
