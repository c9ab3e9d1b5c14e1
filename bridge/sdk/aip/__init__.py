"""AIP programs in Python: `Gateway`, `Agent`, `Tool`, `ContextMemory` and their data, as the specification names them.

Nothing else of the bridge has to run. Sessions, registry and messages are the very code that the bridge serves with.
"""

from __future__ import annotations

from bridge.sdk.aip.agent import Agent
from bridge.sdk.aip.data import (
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
from bridge.sdk.aip.gateway import Gateway
from bridge.sdk.aip.memory import ContextMemory
from bridge.sdk.aip.stubs import AgentServiceStub, GatewayServiceStub, ToolServiceStub
from bridge.sdk.aip.tool import Tool

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
