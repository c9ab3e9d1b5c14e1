"""AgentScope event streams for programs that are agents: builders of streams, and the documented constants and objects.

    response = ResponseBuilder(session_id="s")
    yield response.created().sse()
    yield response.in_progress().sse()
    message = response.create_message_builder()
    yield message.get_message_data().sse()
    text = message.create_content_builder("text")
    yield text.add_text_delta("Hello").sse()
    yield text.complete().sse()
    yield message.complete().sse()
    yield response.completed().sse()

What is returned is a snapshot, a dict in the Python form whose fields are attributes, too. `sse()` and `json()` write
it in the form of the response.
Like the original, events are not numbered; `number(event)` does it where that is wanted.
"""

from __future__ import annotations

from bridge.sdk.agentscope.content_builder import ContentBuilder, Snapshot
from bridge.sdk.agentscope.message_builder import MessageBuilder
from bridge.sdk.agentscope.response_builder import ResponseBuilder, StreamingResponseBuilder
from bridge.sdk.agentscope.schemas import (
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
    "Snapshot",
    "StreamingResponseBuilder",
    "TextContent",
    "Tool",
    "VideoContent",
]
