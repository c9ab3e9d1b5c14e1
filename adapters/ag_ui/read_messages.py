"""Messages and their parts, as clients of every version send them."""

from __future__ import annotations

from typing import Any

from bridge.dialects.ag_ui.parts import read_part, reasoning_part
from bridge.dialects.ag_ui.wire import camel, noted
from bridge.model import (
    Message,
    Part,
    Text,
    ToolCall,
    ToolResult,
    json_text,
)
from bridge.toolkit.check import Node, wrong

ROLES = ("developer", "system", "user", "assistant", "tool", "reasoning", "activity")
_SPEAKERS = frozenset({"developer", "system", "user", "assistant"})
_COMMON = frozenset({"id", "role", "name", "metadata", "content"})
_KNOWN = {
    "assistant": _COMMON | {"toolCalls"},
    "tool": _COMMON | {"toolCallId", "error"},
    "reasoning": _COMMON | {"encryptedValue"},
}


class MessageReader:
    """Reads the messages of one request in order; it remembers calls, since results name them only by id.

    `aside` holds what models have no use for (activities), with its place counted from the end.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.aside: list[dict[str, Any]] = []
        self._names: dict[str, str] = {}

    def read(self, body: Node) -> None:
        path = body.at("messages")
        for index, value in enumerate(body.need_array("messages")):
            if (message := _plain(value, index)) is not None:
                self.messages.append(message)
                continue
            found = Node.of(value, f"{path}[{index}]")
            node = Node(camel(found.value), found.path)
            role = node.need_one_of("role", ROLES)
            if role == "activity":
                self.aside.append({"after": len(self.messages), "message": node.value})
            else:
                self.messages.append(self._message(node, role))
        for entry in self.aside:
            # Counted from the end: a stored history is put in front of what came.
            entry["followed_by"] = len(self.messages) - entry.pop("after")

    def _message(self, node: Node, role: str) -> Message:
        notes: dict[str, Any] = {}
        parts: list[Part]
        if role == "assistant":
            parts = [*_content(node), *(self._call(Node(camel(c.value), c.path)) for c in node.objects("toolCalls"))]
        elif role == "tool":
            parts = [self._result(node, notes)]
        elif role == "reasoning":
            parts = [reasoning_part(node.string("content") or "", node.string("encryptedValue") or "")]
        else:
            if node.get("content") is None:
                wrong(node.at("content"), "a string or a list of parts", None, missing="content" not in node.value)
            parts = _content(node)
        metadata = node.object("metadata")
        notes.update(node.rest(_KNOWN.get(role, _COMMON)))
        return Message(
            "assistant" if role == "reasoning" else role,
            parts,
            node.string("id") or None,
            node.string("name") or None,
            dict(metadata.value) if metadata else {},
            noted(notes),
            (node.path,),
        )

    def _call(self, node: Node) -> ToolCall:
        call_id = node.need_string("id")
        inner = node.need_object("function")
        name = self._names[call_id] = inner.need_string("name")
        arguments = inner.get("arguments")
        if isinstance(arguments, dict):
            arguments = json_text(arguments)  # some agents keep the object; the wire wants its text
        else:
            arguments = inner.string("arguments") or ""
        extras = noted(node.rest({"id", "type", "function"}))
        return ToolCall(call_id, name, arguments, extras=extras)

    def _result(self, node: Node, notes: dict[str, Any]) -> ToolResult:
        call_id = node.need_string("toolCallId")
        error = node.string("error")
        parts = _content(node)
        if error:
            notes["error"] = error
            if not parts:
                parts = [error_part(error)]
        return ToolResult(call_id, parts, self._names.get(call_id), bool(error))


def _plain(value: Any, index: int) -> Message | None:
    """Return a message that is an id, a role and a text, as most are; None for any other."""
    if type(value) is dict and len(value) == 3:
        name, role, text = value.get("id"), value.get("role"), value.get("content")
        if type(name) is str and name and type(text) is str and text and type(role) is str and role in _SPEAKERS:
            return Message(role, [Text(text)], name, places=(index,))
    return None


def error_part(error: str) -> Text:
    """Return the content of a tool result that failed without any."""
    return Text(json_text({"error": error}))


# ------------------------------------------------------------------ parts


def _content(node: Node) -> list[Part]:
    value = node.get("content")
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [Text(value)]
    if not isinstance(value, list):
        wrong(node.at("content"), "a string or a list of parts", value)
    return [read_part(part) for part in node.objects("content")]
