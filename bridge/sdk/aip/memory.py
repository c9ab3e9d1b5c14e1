"""`ContextMemory`: what an agent keeps of its tasks, in the bridge's history store.

It is local to the program and never on the wire. After a restart, a memory with the same agent and folder finds what
was written before; `read` returns it, and so does `dbs[task_id].all()`, as plain data. A task is a conversation of the
store, with texts, calls and results as in those of the bridge, and the rest of a message as metadata.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bridge.dialects.aip.content import item_of, part_of
from bridge.dialects.aip.wire import AgentMessage, ContentItem, SessionStatus, ToolResponse
from bridge.errors import BridgeError
from bridge.model import Media, Message, Part, Text, ToolCall, ToolResult
from bridge.model.jsontext import dumps, loads
from bridge.sdk.aip.data import ToolRequest
from bridge.stores.sqlite_conversations import SQLiteConversations

Kept = AgentMessage | ToolRequest | ToolResponse

_ASKS = (SessionStatus.START_QUEST, SessionStatus.HOLD_QUEST, SessionStatus.STOP_QUEST)
_ENVELOPE = "aip"
"""The key in a stored message's metadata for all of it except its content, as on the wire."""


class ContextMemory:
    """The memory of one agent below `save_root`. Its methods do small, blocking reads and writes of a local file."""

    def __init__(self, agent_id: str, save_root: str | Path = "./.cache") -> None:
        self.agent_id = agent_id
        # As in a URL, so that no two ids share a name; no name begins with a dot, which could lead elsewhere.
        name = quote(agent_id, safe="")
        name = f"%2E{name[1:]}" if name.startswith(".") else name
        folder = Path(save_root).absolute() / (name or "%")
        self.save_dir = str(folder)
        self.dbs: Mapping[str, Task] = _Tasks(self)
        self._conversations = SQLiteConversations(folder / "memory.db", agent_id, "tasks")

    def create(self, task_id: str) -> bool:
        """Return False if the task exists or cannot be created."""
        return _done(lambda: self._conversations.create(task_id))

    def write(self, task_id: str, message: Kept) -> bool:
        """Return False if the task is unknown, or writing fails. Raises `TypeError` for any other type."""
        stored = _stored(message)
        return _done(lambda: self._conversations.append(task_id, [stored]))

    def clear(self, task_id: str) -> bool:
        """Delete the entries of a task, but not the task. Return False if it is unknown."""
        return _done(lambda: self._conversations.clear(task_id))

    def read(self, task_id: str) -> list[Kept]:
        """Return the entries of a task, in order; none for an unknown one. Raises `BridgeError` if they cannot be
        read.
        """
        conversation = self._conversations.load(task_id)
        return [_kept(message) for message in conversation.messages] if conversation is not None else []

    def tasks(self) -> list[str]:
        """Return the tasks, oldest first. Raises `BridgeError` if they cannot be read."""
        return self._conversations.threads()


def _done(work: Callable[[], bool]) -> bool:
    try:
        return work()
    except BridgeError:
        return False


# ---------------------------------------------------------------------- messages <-> what is stored


def _stored(message: Any) -> Message:
    """Raises `TypeError` for any other type."""
    match message:
        case AgentMessage():
            role = "user" if message.session_status in _ASKS else "assistant"
            parts = [_part(item) for item in message.content]
            return Message(role, parts, metadata=_envelope(replace(message, content=[])))
        case ToolRequest():
            # A map of the wire makes every value a text; here they stay what they are.
            call = ToolCall(message.session_id, message.tool_name, dumps(message.arguments).decode())
            return Message("assistant", [call], metadata=_envelope(replace(message, arguments={})))
        case ToolResponse():
            parts = [_part(item) for item in message.content]
            result = ToolResult(message.session_id, parts, is_error=message.is_error)
            return Message("tool", [result], metadata=_envelope(replace(message, content=[])))
    what = type(message).__name__
    raise TypeError(f"message: expected an AgentMessage, ToolRequest or ToolResponse, got {what}")


def _envelope(rest: Kept) -> dict[str, Any]:
    return {_ENVELOPE: base64.b64encode(rest.to_bytes()).decode()}


def _kept(stored: Message) -> Kept:
    rest = base64.b64decode(stored.metadata[_ENVELOPE])
    match stored.parts:
        case [ToolCall() as call]:
            return replace(ToolRequest.from_bytes(rest), arguments=loads(call.arguments))
        case [ToolResult() as result]:
            return replace(ToolResponse.from_bytes(rest), content=[_item(part) for part in result.parts])
    return replace(AgentMessage.from_bytes(rest), content=[_item(part) for part in stored.parts])


def _part(item: ContentItem) -> Part:
    """An item as it is, empty ones, too."""
    return part_of(item) or Text("")


def _item(part: Part) -> ContentItem:
    item = item_of(part) if isinstance(part, Media) else ContentItem(part.text if isinstance(part, Text) else "")
    return item or ContentItem("")


# ---------------------------------------------------------------------- for programs that look into a store


class Task:
    """One task's store, as far as programs read one."""

    def __init__(self, memory: ContextMemory, task_id: str) -> None:
        self._memory = memory
        self.task_id = task_id

    def all(self) -> list[dict[str, Any]]:
        """Every message as plain data; binary content stays bytes."""
        return [plain(message) for message in self._memory.read(self.task_id)]

    def __len__(self) -> int:
        return len(self._memory.read(self.task_id))


class _Tasks(Mapping[str, Task]):
    """Task id -> its store."""

    def __init__(self, memory: ContextMemory) -> None:
        self._memory = memory

    def __getitem__(self, task_id: str) -> Task:
        if task_id not in self._memory.tasks():
            raise KeyError(task_id)
        return Task(self._memory, task_id)

    def __iter__(self) -> Iterator[str]:
        return iter(self._memory.tasks())

    def __len__(self) -> int:
        return len(self._memory.tasks())


def plain(message: Any) -> Any:
    """Return a message as dicts, lists and plain values; unset fields are None."""
    if hasattr(message, "__dataclass_fields__"):
        return {name: plain(getattr(message, name)) for name in message.__dataclass_fields__}
    return [plain(each) for each in message] if isinstance(message, list) else message
