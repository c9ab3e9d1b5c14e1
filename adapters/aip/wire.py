"""The messages of AIP as values, numbered as in its schema. Both generations, where they differ.

Names, defaults and numbers are those of the specification; `to_bytes` and `from_bytes` are the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec

from bridge.dialects.aip.proto import Kind, Wire, alias, at, bytes_field, text_field


class Mode(IntEnum):
    """The kinds of content that a node accepts or returns."""

    TEXT = 0
    IMAGE = 1
    AUDIO = 2
    EMBEDDED = 3


class SessionStatus(IntEnum):
    """The role of a message in its session. A message without one is a START_QUEST."""

    START_QUEST = 0
    HOLD_QUEST = 1
    HOLD_RESPONSE = 2
    STOP_QUEST = 3
    STOP_RESPONSE = 4


class TaskStatus(IntEnum):
    """The state of a task."""

    CREATE = 0
    EXECUTING = 1
    WAITING = 2
    BREAK = 3
    FINISH = 4


P = ParamSpec("P")


class _AlsoOnClass(Generic[P]):
    """A method that, called on the class, is called on a new item."""

    def __init__(self, method: Callable[Concatenate[Any, P], ContentItem]) -> None:
        self._method = method

    def __get__(self, item: ContentItem | None, owner: type[ContentItem]) -> Callable[P, ContentItem]:
        return partial(self._method, owner() if item is None else item)


@dataclass(slots=True)
class ContentItem(Wire):
    """One piece of content; exactly one of the four is set. An item that sets none is one with empty text.

    `write_text` and its siblings return a new item when they are called on the class. Called on an item, they replace
    its content and return it. `_text`, `_image`, `_audio` and `_embedded` are the specification's names of the fields.
    """

    text: str | None = at(1, Kind.STRING, default=None)
    image: bytes | None = at(2, Kind.BYTES, default=None)
    audio: bytes | None = at(3, Kind.BYTES, default=None)
    embedded: bytes | None = at(4, Kind.BYTES, default=None)

    @_AlsoOnClass
    def write_text(self, text: str) -> ContentItem:
        self.text, self.image, self.audio, self.embedded = text, None, None, None
        return self

    @_AlsoOnClass
    def write_image(self, data: bytes) -> ContentItem:
        self.text, self.image, self.audio, self.embedded = None, data, None, None
        return self

    @_AlsoOnClass
    def write_audio(self, data: bytes) -> ContentItem:
        self.text, self.image, self.audio, self.embedded = None, None, data, None
        return self

    @_AlsoOnClass
    def write_embedded(self, data: bytes) -> ContentItem:
        self.text, self.image, self.audio, self.embedded = None, None, None, data
        return self

    _text = alias("text")
    _image = alias("image")
    _audio = alias("audio")
    _embedded = alias("embedded")

    def to_bytes(self) -> bytes:
        """A member of a `oneof` is written even if it is empty, as its presence has a meaning."""
        if self.text is not None:
            return text_field(1, self.text)
        numbered = ((2, self.image), (3, self.audio), (4, self.embedded))
        return next((bytes_field(n, data) for n, data in numbered if data is not None), b"")


@dataclass(slots=True)
class TaskInfo(Wire):
    """Number 3 is unused on purpose."""

    task_id: str = at(1, Kind.STRING)
    parent_task_ids: list[str] = at(2, Kind.STRINGS)
    task_status: int = at(4, Kind.ENUM, default=TaskStatus.CREATE)


@dataclass(slots=True)
class AgentMessage(Wire):
    """One message of a session, in either direction."""

    sender_id: str = at(1, Kind.STRING)
    receiver_id: str = at(2, Kind.STRING)
    session_id: str = at(3, Kind.STRING)
    session_status: int = at(4, Kind.ENUM, default=SessionStatus.START_QUEST)
    task_info: TaskInfo | None = at(5, Kind.MESSAGE, TaskInfo)
    message_id: str = at(6, Kind.STRING)
    reply_to_message_id: str = at(7, Kind.STRING)
    content: list[ContentItem] = at(8, Kind.MESSAGES, ContentItem)

    def add_content(self, item: ContentItem) -> None:
        self.content.append(item)

    @property
    def text(self) -> str:
        """All text items, concatenated in order."""
        return "".join(item.text for item in self.content if item.text)


@dataclass(slots=True)
class AgentSkill(Wire):
    """Something that an agent can do, in its registration."""

    skill_id: str = at(1, Kind.STRING)
    capability: str = at(2, Kind.STRING)


@dataclass(slots=True)
class AgentInfo(Wire):
    """The registration of an agent. `address` is host:port."""

    agent_id: str = at(1, Kind.STRING)
    address: str = at(2, Kind.STRING)
    name: str = at(3, Kind.STRING)
    domain: str = at(4, Kind.STRING)
    input_mode: list[int] = at(5, Kind.ENUMS)
    output_mode: list[int] = at(6, Kind.ENUMS)
    description: str = at(7, Kind.STRING)
    skills: list[AgentSkill] = at(8, Kind.MESSAGES, AgentSkill)
    version: str = at(9, Kind.STRING)


@dataclass(slots=True)
class ToolInfo(Wire):
    """A tool node of the tool generation; `arguments` maps a parameter to the text that describes it."""

    tool_id: str = at(1, Kind.STRING)
    address: str = at(2, Kind.STRING)
    name: str = at(3, Kind.STRING)
    domain: str = at(4, Kind.STRING)
    input_mode: list[int] = at(5, Kind.ENUMS)
    output_mode: list[int] = at(6, Kind.ENUMS)
    description: str = at(7, Kind.STRING)
    arguments: dict[str, str] = at(8, Kind.MAP)
    version: str = at(9, Kind.STRING)


@dataclass(slots=True)
class BoxedTool(Wire):
    """One tool of a toolbox; `arguments` is the text of a Python dict literal, not JSON."""

    name: str = at(1, Kind.STRING)
    description: str = at(2, Kind.STRING)
    arguments: str = at(3, Kind.STRING)
    version: str = at(4, Kind.STRING)


@dataclass(slots=True)
class ToolBoxInfo(Wire):
    """A tool node of the toolbox generation."""

    toolbox_id: str = at(1, Kind.STRING)
    address: str = at(2, Kind.STRING)
    name: str = at(3, Kind.STRING)
    domain: str = at(4, Kind.STRING)
    description: str = at(5, Kind.STRING)
    tools: list[BoxedTool] = at(6, Kind.MESSAGES, BoxedTool)


@dataclass(slots=True)
class NodeHead(Wire):
    """The fields that every registration has at the same numbers, whatever its kind and generation."""

    node_id: str = at(1, Kind.STRING)
    address: str = at(2, Kind.STRING)
    name: str = at(3, Kind.STRING)
    domain: str = at(4, Kind.STRING)


@dataclass(slots=True)
class Peer(Wire):
    """An entry of a node list, which contains the bytes of the registration."""

    agent: bytes = at(1, Kind.BYTES)
    tool: bytes = at(2, Kind.BYTES)


@dataclass(slots=True)
class Peers(Wire):
    """GetNodesResponse."""

    peers: list[Peer] = at(1, Kind.MESSAGES, Peer)


@dataclass(slots=True)
class RegisterAgentResponse(Wire):
    success: bool = at(1, Kind.BOOL)
    peers: list[Peer] = at(2, Kind.MESSAGES, Peer)


@dataclass(slots=True)
class Done(Wire):
    """RegisterToolResponse, DeregisterNodeResponse (no message), and the responses that have one."""

    success: bool = at(1, Kind.BOOL)
    message: str = at(2, Kind.STRING)


@dataclass(slots=True)
class Named(Wire):
    """DeregisterNodeRequest and HeartbeatRequest: one id."""

    id: str = at(1, Kind.STRING)


@dataclass(slots=True)
class GetNodesRequest(Wire):
    """The question of a node for the nodes of a domain; `default` stands for all."""

    agent_id: str = at(1, Kind.STRING)
    domain: str = at(2, Kind.STRING)


@dataclass(slots=True)
class UpdateNodeInfoRequest(Wire):
    """The tool generation's; the toolbox generation's is a peer at number 1."""

    sender_id: str = at(1, Kind.STRING)
    peer: Peer | None = at(2, Kind.MESSAGE, Peer)


@dataclass(slots=True)
class Subscription(Wire):
    """UpdateSubscriptionRequest and UnsubscribeRequest; no node ids = all nodes."""

    subscriber_id: str = at(1, Kind.STRING)
    node_ids: list[str] = at(2, Kind.STRINGS)


class UpdateType(IntEnum):
    """A change of a node."""

    ADDED = 0
    UPDATED = 1
    REMOVED = 2


@dataclass(slots=True)
class NodeUpdate(Wire):
    update_type: int = at(1, Kind.ENUM, default=UpdateType.ADDED)
    node_id: str = at(2, Kind.STRING)
    peer: Peer | None = at(3, Kind.MESSAGE, Peer)


@dataclass(slots=True)
class ToolRequest(Wire):
    """A tool call. `arguments` is the field number 5 of either generation (`generation.arguments_of`)."""

    sender_id: str = at(1, Kind.STRING)
    receiver_id: str = at(2, Kind.STRING)
    session_id: str = at(3, Kind.STRING)
    tool_name: str = at(4, Kind.STRING)
    arguments: list[bytes] = at(5, Kind.BLOBS)


@dataclass(slots=True)
class ToolResponse(Wire):
    """The answer of a tool. `is_error` decides; `error_message` is "No Error" on success (docs/dialects/aip.md)."""

    sender_id: str = at(1, Kind.STRING)
    receiver_id: str = at(2, Kind.STRING)
    session_id: str = at(3, Kind.STRING)
    is_error: bool = at(4, Kind.BOOL)
    error_message: str = at(5, Kind.STRING)
    content: list[ContentItem] = at(6, Kind.MESSAGES, ContentItem)

    def add_content(self, item: ContentItem) -> None:
        self.content.append(item)
