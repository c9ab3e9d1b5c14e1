"""AIP programs in Python: `Gateway`, `Agent`, `Tool`, `ContextMemory` and their data, as the specification names them.

Nothing else of the bridge has to run. Sessions, registry and messages are the very code that the bridge serves with.
"""

from __future__ import annotations

from bridge.dialects.aip.sdk.agent import Agent
from bridge.dialects.aip.sdk.data import (
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
from bridge.dialects.aip.sdk.gateway import Gateway
from bridge.dialects.aip.sdk.memory import ContextMemory
from bridge.dialects.aip.sdk.stubs import AgentServiceStub, GatewayServiceStub, ToolServiceStub
from bridge.dialects.aip.sdk.tool import Tool

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
