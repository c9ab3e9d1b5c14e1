"""The messages of AIP as values, numbered as in its schema (page, section 3). Both generations, where they differ.

Names, defaults and numbers are those of the specification; `to_bytes` and `from_bytes` are the wire.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar

from .proto import Field, Kind, Wire, bytes_field, text_field


class Mode(IntEnum):
    """What kind of content a node takes or gives."""

    TEXT = 0
    IMAGE = 1
    AUDIO = 2
    EMBEDDED = 3


class SessionStatus(IntEnum):
    """What a message is to its session. A message that does not say it is a START_QUEST."""

    START_QUEST = 0
    HOLD_QUEST = 1
    HOLD_RESPONSE = 2
    STOP_QUEST = 3
    STOP_RESPONSE = 4


class TaskStatus(IntEnum):
    """How far a task is."""

    CREATE = 0
    EXECUTING = 1
    WAITING = 2
    BREAK = 3
    FINISH = 4


@dataclass(slots=True)
class ContentItem(Wire):
    """One piece of content; exactly one of the four is set. An item that sets none is one with empty text."""

    text: str | None = None
    image: bytes | None = None
    audio: bytes | None = None
    embedded: bytes | None = None
    FIELDS: ClassVar[tuple[Field, ...]] = (
        (1, "text", Kind.STRING, None),
        (2, "image", Kind.BYTES, None),
        (3, "audio", Kind.BYTES, None),
        (4, "embedded", Kind.BYTES, None),
    )

    def write_text(self, text: str) -> None:
        self.text, self.image, self.audio, self.embedded = text, None, None, None

    def write_image(self, data: bytes) -> None:
        self.text, self.image, self.audio, self.embedded = None, data, None, None

    def write_audio(self, data: bytes) -> None:
        self.text, self.image, self.audio, self.embedded = None, None, data, None

    def write_embedded(self, data: bytes) -> None:
        self.text, self.image, self.audio, self.embedded = None, None, None, data

    def to_bytes(self) -> bytes:
        """A member of a `oneof` is written even when it is empty: that it is set is what it says."""
        if self.text is not None:
            return text_field(1, self.text)
        numbered = ((2, self.image), (3, self.audio), (4, self.embedded))
        return next((bytes_field(n, data) for n, data in numbered if data is not None), b"")


@dataclass(slots=True)
class TaskInfo(Wire):
    """Number 3 is unused on purpose."""

    task_id: str = ""
    parent_task_ids: list[str] = field(default_factory=list)
    task_status: int = TaskStatus.CREATE
    FIELDS: ClassVar[tuple[Field, ...]] = (
        (1, "task_id", Kind.STRING, None),
        (2, "parent_task_ids", Kind.STRINGS, None),
        (4, "task_status", Kind.ENUM, None),
    )


@dataclass(slots=True)
class AgentMessage(Wire):
    """One message of a session, in either direction."""

    sender_id: str = ""
    receiver_id: str = ""
    session_id: str = ""
    session_status: int = SessionStatus.START_QUEST
    task_info: TaskInfo | None = None
    message_id: str = ""
    reply_to_message_id: str = ""
    content: list[ContentItem] = field(default_factory=list)
    FIELDS: ClassVar[tuple[Field, ...]] = (
        (1, "sender_id", Kind.STRING, None),
        (2, "receiver_id", Kind.STRING, None),
        (3, "session_id", Kind.STRING, None),
        (4, "session_status", Kind.ENUM, None),
        (5, "task_info", Kind.MESSAGE, TaskInfo),
        (6, "message_id", Kind.STRING, None),
        (7, "reply_to_message_id", Kind.STRING, None),
        (8, "content", Kind.MESSAGES, ContentItem),
    )

    def add_content(self, item: ContentItem) -> None:
        self.content.append(item)

    @property
    def text(self) -> str:
        """All text items, joined in order."""
        return "".join(item.text for item in self.content if item.text)


@dataclass(slots=True)
class AgentSkill(Wire):
    skill_id: str = ""
    capability: str = ""
    FIELDS: ClassVar[tuple[Field, ...]] = (
        (1, "skill_id", Kind.STRING, None),
        (2, "capability", Kind.STRING, None),
    )


@dataclass(slots=True)
class AgentInfo(Wire):
    """What an agent says of itself when it registers. `address` is host:port."""

    agent_id: str = ""
    address: str = ""
    name: str = ""
    domain: str = ""
    input_mode: list[int] = field(default_factory=list)
    output_mode: list[int] = field(default_factory=list)
    description: str = ""
    skills: list[AgentSkill] = field(default_factory=list)
    version: str = ""
    FIELDS: ClassVar[tuple[Field, ...]] = (
        (1, "agent_id", Kind.STRING, None),
        (2, "address", Kind.STRING, None),
        (3, "name", Kind.STRING, None),
        (4, "domain", Kind.STRING, None),
        (5, "input_mode", Kind.ENUMS, None),
        (6, "output_mode", Kind.ENUMS, None),
        (7, "description", Kind.STRING, None),
        (8, "skills", Kind.MESSAGES, AgentSkill),
        (9, "version", Kind.STRING, None),
    )


@dataclass(slots=True)
class ToolInfo(Wire):
    """A tool node of the tool generation; `arguments` maps a parameter to the text that describes it."""

    tool_id: str = ""
    address: str = ""
    name: str = ""
    domain: str = ""
    input_mode: list[int] = field(default_factory=list)
    output_mode: list[int] = field(default_factory=list)
    description: str = ""
    arguments: dict[str, str] = field(default_factory=dict)
    version: str = ""
    FIELDS: ClassVar[tuple[Field, ...]] = (
        (1, "tool_id", Kind.STRING, None),
        (2, "address", Kind.STRING, None),
        (3, "name", Kind.STRING, None),
        (4, "domain", Kind.STRING, None),
        (5, "input_mode", Kind.ENUMS, None),
        (6, "output_mode", Kind.ENUMS, None),
        (7, "description", Kind.STRING, None),
        (8, "arguments", Kind.MAP, None),
        (9, "version", Kind.STRING, None),
    )


@dataclass(slots=True)
class BoxedTool(Wire):
    """One tool of a toolbox; `arguments` is the text of a Python dict literal, not JSON (page, section 4)."""

    name: str = ""
    description: str = ""
    arguments: str = ""
    version: str = ""
    FIELDS: ClassVar[tuple[Field, ...]] = (
        (1, "name", Kind.STRING, None),
        (2, "description", Kind.STRING, None),
        (3, "arguments", Kind.STRING, None),
        (4, "version", Kind.STRING, None),
    )


@dataclass(slots=True)
class ToolBoxInfo(Wire):
    """A tool node of the toolbox generation."""

    toolbox_id: str = ""
    address: str = ""
    name: str = ""
    domain: str = ""
    description: str = ""
    tools: list[BoxedTool] = field(default_factory=list)
    FIELDS: ClassVar[tuple[Field, ...]] = (
        (1, "toolbox_id", Kind.STRING, None),
        (2, "address", Kind.STRING, None),
        (3, "name", Kind.STRING, None),
        (4, "domain", Kind.STRING, None),
        (5, "description", Kind.STRING, None),
        (6, "tools", Kind.MESSAGES, BoxedTool),
    )


@dataclass(slots=True)
class NodeHead(Wire):
    """What every registration has at the same numbers, whatever its kind and generation."""

    node_id: str = ""
    address: str = ""
    name: str = ""
    domain: str = ""
    FIELDS: ClassVar[tuple[Field, ...]] = (
        (1, "node_id", Kind.STRING, None),
        (2, "address", Kind.STRING, None),
        (3, "name", Kind.STRING, None),
        (4, "domain", Kind.STRING, None),
    )


@dataclass(slots=True)
class Peer(Wire):
    """An entry of a node list. What stands in it stays the bytes of the registration."""

    agent: bytes = b""
    tool: bytes = b""
    FIELDS: ClassVar[tuple[Field, ...]] = ((1, "agent", Kind.BYTES, None), (2, "tool", Kind.BYTES, None))


@dataclass(slots=True)
class Peers(Wire):
    """GetNodesResponse."""

    peers: list[Peer] = field(default_factory=list)
    FIELDS: ClassVar[tuple[Field, ...]] = ((1, "peers", Kind.MESSAGES, Peer),)


@dataclass(slots=True)
class RegisterAgentResponse(Wire):
    success: bool = False
    peers: list[Peer] = field(default_factory=list)
    FIELDS: ClassVar[tuple[Field, ...]] = ((1, "success", Kind.BOOL, None), (2, "peers", Kind.MESSAGES, Peer))


@dataclass(slots=True)
class Done(Wire):
    """RegisterToolResponse, DeregisterNodeResponse (no message), and the responses that have one."""

    success: bool = False
    message: str = ""
    FIELDS: ClassVar[tuple[Field, ...]] = ((1, "success", Kind.BOOL, None), (2, "message", Kind.STRING, None))


@dataclass(slots=True)
class Named(Wire):
    """DeregisterNodeRequest and HeartbeatRequest: one id."""

    id: str = ""
    FIELDS: ClassVar[tuple[Field, ...]] = ((1, "id", Kind.STRING, None),)


@dataclass(slots=True)
class GetNodesRequest(Wire):
    agent_id: str = ""
    domain: str = ""
    FIELDS: ClassVar[tuple[Field, ...]] = ((1, "agent_id", Kind.STRING, None), (2, "domain", Kind.STRING, None))


@dataclass(slots=True)
class UpdateNodeInfoRequest(Wire):
    """The tool generation's; the toolbox generation's is a peer at number 1."""

    sender_id: str = ""
    peer: Peer | None = None
    FIELDS: ClassVar[tuple[Field, ...]] = ((1, "sender_id", Kind.STRING, None), (2, "peer", Kind.MESSAGE, Peer))


@dataclass(slots=True)
class Subscription(Wire):
    """UpdateSubscriptionRequest and UnsubscribeRequest; no node ids = all nodes."""

    subscriber_id: str = ""
    node_ids: list[str] = field(default_factory=list)
    FIELDS: ClassVar[tuple[Field, ...]] = (
        (1, "subscriber_id", Kind.STRING, None),
        (2, "node_ids", Kind.STRINGS, None),
    )


class UpdateType(IntEnum):
    """What happened to a node."""

    ADDED = 0
    UPDATED = 1
    REMOVED = 2


@dataclass(slots=True)
class NodeUpdate(Wire):
    update_type: int = UpdateType.ADDED
    node_id: str = ""
    peer: Peer | None = None
    FIELDS: ClassVar[tuple[Field, ...]] = (
        (1, "update_type", Kind.ENUM, None),
        (2, "node_id", Kind.STRING, None),
        (3, "peer", Kind.MESSAGE, Peer),
    )


@dataclass(slots=True)
class ToolRequest(Wire):
    """A tool call. `arguments` is what stands at number 5, in whichever generation (`generation.arguments_of`)."""

    sender_id: str = ""
    receiver_id: str = ""
    session_id: str = ""
    tool_name: str = ""
    arguments: list[bytes] = field(default_factory=list)
    FIELDS: ClassVar[tuple[Field, ...]] = (
        (1, "sender_id", Kind.STRING, None),
        (2, "receiver_id", Kind.STRING, None),
        (3, "session_id", Kind.STRING, None),
        (4, "tool_name", Kind.STRING, None),
        (5, "arguments", Kind.BLOBS, None),
    )


@dataclass(slots=True)
class ToolResponse(Wire):
    """What a tool answered. `is_error` decides; `error_message` says "No Error" on success (page, section 7)."""

    sender_id: str = ""
    receiver_id: str = ""
    session_id: str = ""
    is_error: bool = False
    error_message: str = ""
    content: list[ContentItem] = field(default_factory=list)
    FIELDS: ClassVar[tuple[Field, ...]] = (
        (1, "sender_id", Kind.STRING, None),
        (2, "receiver_id", Kind.STRING, None),
        (3, "session_id", Kind.STRING, None),
        (4, "is_error", Kind.BOOL, None),
        (5, "error_message", Kind.STRING, None),
        (6, "content", Kind.MESSAGES, ContentItem),
    )

    def add_content(self, item: ContentItem) -> None:
        self.content.append(item)
