"""AgentScope Runtime's agent API, front and back, in its Python and its Java form; builders for streams, and the
documented constants and objects.

Everything is imported at first use, so that the builders do not load the codec, nor the codec the builders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.dialects.agentscope.codec import AgentScope, AgentScopeJava, dialect, java
    from bridge.dialects.agentscope.content_builder import ContentBuilder
    from bridge.dialects.agentscope.message_builder import MessageBuilder
    from bridge.dialects.agentscope.sdk import ResponseBuilder, StreamingResponseBuilder
    from bridge.dialects.agentscope.sdk.schemas import (
        AgentRequest,
        AgentResponse,
        AudioContent,
        BaseRequest,
        BaseResponse,
        Content,
        ContentType,
        DataContent,
        Error,
        Event,
        FileContent,
        FunctionCall,
        FunctionCallOutput,
        FunctionParameters,
        FunctionTool,
        ImageContent,
        McpApprovalRequest,
        McpApprovalResponse,
        McpCall,
        McpCallOutput,
        Message,
        MessageType,
        RefusalContent,
        Role,
        RunStatus,
        TextContent,
        Tool,
        VideoContent,
    )

__all__ = [
    "AgentRequest",
    "AgentResponse",
    "AgentScope",
    "AgentScopeJava",
    "AudioContent",
    "BaseRequest",
    "BaseResponse",
    "Content",
    "ContentBuilder",
    "ContentType",
    "DataContent",
    "Error",
    "Event",
    "FileContent",
    "FunctionCall",
    "FunctionCallOutput",
    "FunctionParameters",
    "FunctionTool",
    "ImageContent",
    "McpApprovalRequest",
    "McpApprovalResponse",
    "McpCall",
    "McpCallOutput",
    "Message",
    "MessageBuilder",
    "MessageType",
    "RefusalContent",
    "ResponseBuilder",
    "Role",
    "RunStatus",
    "StreamingResponseBuilder",
    "TextContent",
    "Tool",
    "VideoContent",
    "dialect",
    "java",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module: Any
    if name.endswith("Builder"):
        from bridge.dialects.agentscope import sdk as module
    elif name in ("AgentScope", "AgentScopeJava", "dialect", "java"):
        from bridge.dialects.agentscope import codec as module
    else:
        from bridge.dialects.agentscope.sdk import schemas as module
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
