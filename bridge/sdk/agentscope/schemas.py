"""The constants and objects of the agent API under their documented names, for programs of one's own.

The constants are plain strings. The objects are pydantic models that accept and keep fields they do not know. Neither
builders nor dialects need them: a builder takes a mapping wherever it takes one of these.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal, Self
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from bridge.dialects.agentscope.merge import merge


class _Names:
    """A set of named strings."""

    @classmethod
    def all_values(cls) -> list[str]:
        """Return the values, in the order of their names in the class."""
        return [value for name, value in vars(cls).items() if not name.startswith("_") and isinstance(value, str)]


class Role(_Names):
    """The speaker of a message."""

    ASSISTANT = "assistant"
    USER = "user"
    SYSTEM = "system"
    TOOL = "tool"


class MessageType(_Names):
    """The kind of a message."""

    MESSAGE = "message"
    FUNCTION_CALL = "function_call"
    FUNCTION_CALL_OUTPUT = "function_call_output"
    PLUGIN_CALL = "plugin_call"
    PLUGIN_CALL_OUTPUT = "plugin_call_output"
    COMPONENT_CALL = "component_call"
    COMPONENT_CALL_OUTPUT = "component_call_output"
    MCP_LIST_TOOLS = "mcp_list_tools"
    MCP_APPROVAL_REQUEST = "mcp_approval_request"
    MCP_TOOL_CALL = "mcp_call"
    MCP_APPROVAL_RESPONSE = "mcp_approval_response"
    MCP_TOOL_CALL_OUTPUT = "mcp_call_output"
    REASONING = "reasoning"
    HEARTBEAT = "heartbeat"
    ERROR = "error"
    A2UI_RESPONSE = "a2ui_response"
    A2UI_ACTION = "a2ui_action"


class ContentType(_Names):
    """The type of a content."""

    TEXT = "text"
    DATA = "data"
    IMAGE = "image"
    AUDIO = "audio"
    FILE = "file"
    REFUSAL = "refusal"
    VIDEO = "video"


class RunStatus(_Names):
    """The status of a response, a message or a content."""

    Created = "created"
    InProgress = "in_progress"
    Completed = "completed"
    Canceled = "canceled"
    Failed = "failed"
    Rejected = "rejected"
    Unknown = "unknown"
    Queued = "queued"
    Incomplete = "incomplete"


# ---------------------------------------------------------------------- tools


class FunctionParameters(BaseModel):
    """The arguments of a function as JSON Schema; `type` is `object`."""

    type: str
    properties: dict[str, Any]
    required: list[str] | None = None


class FunctionTool(BaseModel):
    """A function that the model may call."""

    name: str
    description: str
    parameters: FunctionParameters | dict[str, Any]


class Tool(BaseModel):
    """A tool of a request; `function` is the only type."""

    type: str | None = "function"
    function: FunctionTool | None = None


class FunctionCall(BaseModel):
    """The data of a `function_call`. `arguments` is JSON as the model wrote it, which may be invalid."""

    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None


class FunctionCallOutput(BaseModel):
    """The data of a `function_call_output`."""

    call_id: str
    name: str | None = None
    output: str


class McpCall(FunctionCall):
    """The data of an `mcp_call`."""

    server_label: str | None = None


class McpCallOutput(FunctionCallOutput):
    """The data of an `mcp_call_output`."""


class McpApprovalRequest(BaseModel):
    """The data of an `mcp_approval_request`."""

    id: str
    arguments: str
    name: str
    server_label: str


class McpApprovalResponse(BaseModel):
    """The data of an `mcp_approval_response`."""

    approval_request_id: str
    approve: bool
    id: str | None = None
    reason: str | None = None


# ---------------------------------------------------------------------- events


class Error(BaseModel):
    """Why a response, message or content failed."""

    code: str
    message: str


class Event(BaseModel):
    """Base class of responses, messages and contents. The methods set the status and return the event."""

    model_config = ConfigDict(extra="allow")

    sequence_number: int | None = None
    object: str
    status: str | None = None
    error: Error | None = None

    def created(self) -> Self:
        return self._be(RunStatus.Created)

    def in_progress(self) -> Self:
        return self._be(RunStatus.InProgress)

    def completed(self) -> Self:
        return self._be(RunStatus.Completed)

    def canceled(self) -> Self:
        return self._be(RunStatus.Canceled)

    def rejected(self) -> Self:
        return self._be(RunStatus.Rejected)

    def failed(self, error: Error) -> Self:
        self.error = error
        return self._be(RunStatus.Failed)

    def _be(self, status: str) -> Self:
        self.status = status
        return self


class Content(Event):
    """A content of a message, at `index`. `delta`: it is only a piece."""

    object: str = "content"
    type: str
    index: int | None = None
    delta: bool | None = False
    msg_id: str | None = None


class TextContent(Content):
    """A text."""

    type: Literal["text"] = "text"
    text: str | None = None


class ImageContent(Content):
    """`image_url`: an address or a `data:` URL."""

    type: Literal["image"] = "image"
    image_url: str | None = None


class DataContent(Content):
    """An object, such as the call of a function."""

    type: Literal["data"] = "data"
    data: dict[str, Any] | None = None


class AudioContent(Content):
    """`data`: an address, a `data:` URL, or base64 with its `format`."""

    type: Literal["audio"] = "audio"
    data: str | None = None
    format: str | None = None


class VideoContent(Content):
    """`video_url`: an address or a `data:` URL."""

    type: Literal["video"] = "video"
    video_url: str | None = None


class FileContent(Content):
    """A file, by its address, its id at the agent, or base64."""

    type: Literal["file"] = "file"
    file_url: str | None = None
    file_id: str | None = None
    filename: str | None = None
    file_data: str | None = None


class RefusalContent(Content):
    """The text with which a model refuses to answer."""

    type: Literal["refusal"] = "refusal"
    refusal: str | None = None


_AnyContent = Annotated[
    TextContent | ImageContent | DataContent | AudioContent | VideoContent | FileContent | RefusalContent,
    Field(discriminator="type"),
]


class Message(Event):
    """A message. `code` and `message` are the reason of a failure."""

    object: str = "message"
    status: str | None = RunStatus.Created
    id: str = Field(default_factory=lambda: f"msg_{uuid4()}")
    type: str = MessageType.MESSAGE
    role: Literal["assistant", "user", "system", "tool"] | None = None
    content: list[_AnyContent] | None = None
    code: str | None = None
    message: str | None = None
    usage: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None

    def get_text_content(self) -> str | None:
        """Return the text of the first text content."""
        return next((c.text for c in self.content or () if isinstance(c, TextContent)), None)

    def get_image_content(self) -> list[str]:
        """Return the addresses of the images."""
        return [c.image_url for c in self.content or () if isinstance(c, ImageContent) and c.image_url is not None]

    def get_audio_content(self) -> list[str]:
        """Return the data of the audio contents."""
        return [c.data for c in self.content or () if isinstance(c, AudioContent) and c.data is not None]

    def add_delta_content(self, new_content: _AnyContent) -> Content | None:
        """Add a piece and return it with its position: a new content if it has no `index`, else, if it is a delta, a
        part of the content there. Return None for a content that has an index and is no delta.
        """
        contents = self.content = self.content or []
        if new_content.index is None:
            contents.append(new_content.model_copy(deep=True, update=self._place(len(contents)) | {"delta": None}))
            return self._told(new_content, len(contents) - 1).in_progress()
        if new_content.delta is not True:
            return None
        known = contents[new_content.index]
        if isinstance(known, TextContent) and isinstance(new_content, TextContent):
            known.text = (known.text or "") + (new_content.text or "")
        elif isinstance(known, ImageContent) and isinstance(new_content, ImageContent):
            known.image_url = (known.image_url or "") + (new_content.image_url or "")
        elif isinstance(known, DataContent) and isinstance(new_content, DataContent):
            known.data = merge(known.data or {}, new_content.data or {})
        return self._told(new_content, new_content.index).in_progress()

    def content_completed(self, content_index: int) -> Content | None:
        """Return the whole content at this index, completed; None if there is none."""
        if self.content is None or not 0 <= content_index < len(self.content):
            return None
        content: Content = self.content[content_index].model_copy(
            deep=True, update=self._place(content_index) | {"delta": False}
        )
        return content.completed()

    def add_content(self, new_content: _AnyContent) -> Content | None:
        """Add a whole content and return it with its position; None if it has an `index` already."""
        if new_content.index is not None:
            return None
        contents = self.content = self.content or []
        contents.append(new_content.model_copy(deep=True))
        return self._told(new_content, len(contents) - 1).completed()

    def _place(self, index: int) -> dict[str, Any]:
        return {"index": index, "msg_id": self.id}

    def _told(self, content: Content, index: int) -> Content:
        content.index, content.msg_id = index, self.id
        return content


# ---------------------------------------------------------------------- requests and responses


class BaseRequest(BaseModel):
    """The fields of every request."""

    input: list[Message]
    stream: bool = True
    id: str | None = None


class AgentRequest(BaseRequest):
    """A request to an agent."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    top_p: float | None = None
    temperature: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = None
    n: int | None = Field(default=1, ge=1, le=5)
    seed: int | None = None
    tools: list[Tool | dict[str, Any]] | None = None
    session_id: str | None = None
    user_id: str | None = None
    response_id: str | None = None


class BaseResponse(Event):
    """The fields of every response. Times are in Unix seconds."""

    object: str = "response"
    status: str | None = RunStatus.Created
    id: str = Field(default_factory=lambda: f"response_{uuid4()}")
    created_at: int = Field(default_factory=lambda: int(time.time()))
    completed_at: int | None = None
    output: list[Message] | None = None
    usage: dict[str, Any] | None = None

    def add_new_message(self, message: Message) -> None:
        """Add a message to the output."""
        self.output = [*(self.output or ()), message]

    def completed(self) -> Self:
        self.completed_at, self.output = int(time.time()), self.output or []
        return super().completed()


class AgentResponse(BaseResponse):
    """The response of an agent."""

    session_id: str | None = None
