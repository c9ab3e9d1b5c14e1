"""Messages and their content blocks, as clients send them.

Blocks that only Anthropic's own servers understand - their tools' calls and results - are set aside on the message
with their places: a backend of this dialect gets them where they were, others get none of them. Half of such a pair
would be refused.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from bridge.dialects.anthropic_messages.wire import CITATIONS, DIRECT, call_id_of, given, noted
from bridge.model import (
    Data,
    FileRef,
    Inline,
    Media,
    MediaKind,
    Message,
    Part,
    Reasoning,
    Source,
    Text,
    ToolCall,
    ToolResult,
    source_of,
)
from bridge.model.jsontext import arguments_of
from bridge.toolkit.check import Node, wrong
from bridge.toolkit.plain import plain_message

ROLES = ("user", "assistant", "system")
_SPEAKERS = frozenset({"user", "assistant"})
ASIDES = "asides"
"""The key of such blocks in a message's extras, as pairs of an index among its parts and the block."""
ADDITION, REMOVAL = "tool_addition", "tool_removal"
"""Blocks that change the tools from there on, and say nothing."""
DECLARED = "declared"
"""The key, in a request's notes, of the tools of its body, where such blocks change them."""
_SILENT = frozenset({ADDITION, REMOVAL, "container_upload", "mcp_tool_listing"})
BLOCK = "block"
"""Marks a `Data` whose value is a content block of this dialect."""
INSIDE = "inside"
"""Marks a system message that a client of this dialect put among the others."""

BILLING_BLOCKS, BILLING_LINE = "billing_blocks", "billing_line"
"""The keys, in a request's notes, of what Claude Code says to Anthropic's servers in the system text: blocks with their
indexes, or the first line of a string. It differs in each request, so that no backend could cache the prompt after it.
"""
_BILLING = "x-anthropic-billing-header:"

_PDF, _PLAIN = "application/pdf", "text/plain"


class MessageReader:
    """Reads the messages of one request in order; it remembers calls, since results name them only by id.

    `changes` are the blocks that add and remove tools, in their order.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self.asides = 0
        self.changes: list[Node] = []

    def read_all(self, body: Node) -> list[Message]:
        """The list `messages`. Raises `RequestError`."""
        messages: list[Message] = []
        path = body.at("messages")
        for index, value in enumerate(body.need_array("messages")):
            message = plain_message(value, _SPEAKERS, (index,))
            if message is not None:
                messages.append(message)
            else:
                messages += self.read(Node.of(value, f"{path}[{index}]"))
        return messages

    def read(self, node: Node) -> list[Message]:
        """One message of the wire: a message for each tool result in it, then one for all else."""
        role = node.need_one_of("role", ROLES)
        parts: list[Part] = []
        asides: list[list[Any]] = []
        results: list[Message] = []
        places = [node.path]
        for block in _content(node):
            if isinstance(block, str):
                parts.append(Text(block))
            elif block.need_string("type") == "tool_result":
                results.append(Message("tool", [self._result(block)], places=(node.path, block.at("content"))))
            elif _is_aside(block, role):
                asides.append([len(parts), block.value])
                if block.get("type") in (ADDITION, REMOVAL):
                    self.changes.append(block)
            else:
                parts.append(self._part(block))
                places.append(block.path)
        if results and not parts and not asides:
            return results
        extras = given(node.rest({"role", "content"}))
        if asides:
            self.asides += len(asides)
            extras[ASIDES] = asides
        if role == "system":
            extras[INSIDE] = True
        return [*results, Message(role, parts, extras=noted(extras), places=tuple(places))]

    def _part(self, block: Node) -> Part:
        kind = block.need_string("type")
        if kind == "tool_use":
            call_id, name = call_id_of(block.need_string("id")), block.need_string("name")
            self._names[call_id] = name
            rest = given(block.rest({"type", "id", "name", "input"}))
            if rest.get("caller") == DIRECT:
                del rest["caller"]  # older servers refuse the field
            return ToolCall(call_id, name, arguments_of(block.need_object("input").value), extras=noted(rest))
        return read_part(block)

    def _result(self, block: Node) -> ToolResult:
        call_id = call_id_of(block.need_string("tool_use_id"))
        rest = given(block.rest({"type", "tool_use_id", "content", "is_error"}))
        parts = [Text(b) if isinstance(b, str) else read_part(b) for b in _content(block, required=False)]
        is_error = block.boolean("is_error") or False
        return ToolResult(call_id, parts, self._names.get(call_id), is_error, noted(rest))


def _content(node: Node, *, required: bool = True) -> list[Node | str]:
    """`content`: a string or a list of blocks; an empty string is no block."""
    value = node.get("content")
    if isinstance(value, str):
        return [value] if value else []
    if value is None and not required:
        return []
    if not isinstance(value, list):
        missing = "content" not in node.value
        wrong(node.at("content"), "a string or a list of content blocks", value, missing=missing)
    return list(node.objects("content"))


def _is_aside(block: Node, role: str) -> bool:
    """Return whether only servers of this dialect understand the block: their tools, and unknown types."""
    kind = block.need_string("type")
    if kind in _READERS or kind == "tool_use":
        return False
    return role == "assistant" or kind in _SILENT or kind.endswith("_tool_result")


def read_part(block: Node) -> Part:
    """The part that a block of content means. Of an unknown kind other dialects see the JSON, this one the block."""
    reader = _READERS.get(block.need_string("type"))
    return reader(block) if reader else Data(block.value, noted({BLOCK: True}))


def read_system(body: Node, notes: dict[str, Any]) -> list[Message]:
    """The `system` field: a string, or text blocks. What only Anthropic's servers read is put into `notes`."""
    value = body.get("system")
    if value is None or value == "":
        return []
    if isinstance(value, str):
        if value.startswith(_BILLING):
            line, newline, value = value.partition("\n")
            notes[BILLING_LINE] = line + newline
        return [Message("system", [Text(value)], places=("system",))] if value else []
    if not isinstance(value, list):
        wrong("system", "a string or a list of text blocks", value)
    parts: list[Part] = []
    for index, block in enumerate(body.objects("system")):
        if block.need_string("type") != "text":
            wrong(block.at("type"), "text", block.get("type"))
        if block.need_string("text").startswith(_BILLING):
            notes.setdefault(BILLING_BLOCKS, []).append([index, block.value])
        else:
            parts.append(_text(block))
    return [Message("system", parts, places=("system",))] if parts else []


# ------------------------------------------------------------------ kinds of blocks


def _text(block: Node) -> Part:
    rest = given(block.rest({"type", "text"}))
    if rest.get(CITATIONS) == []:
        del rest[CITATIONS]
    return Text(block.need_string("text"), noted(rest))


def _thinking(block: Node) -> Part:
    rest = given(block.rest({"type", "thinking", "signature"}))
    return Reasoning(block.need_string("thinking"), block.string("signature") or None, extras=noted(rest))


def _redacted(block: Node) -> Part:
    return Reasoning("", None, block.need_string("data"), noted(given(block.rest({"type", "data"}))))


def _image(block: Node) -> Part:
    source = block.need_object("source")
    extras = given(block.rest({"type", "source"}))
    match source.need_string("type"):
        case "base64":
            where: Source = Inline(source.need_string("data"))
            mime: str | None = source.need_string("media_type")
        case "url":
            where, mime = source_of(source.need_string("url"))
        case "file":
            where, mime = FileRef(source.need_string("file_id")), None
        case other:
            wrong(source.at("type"), "one of base64, file, url", other)
    return Media(MediaKind.IMAGE, where, mime, extras=noted(extras))


def _document(block: Node) -> Part:
    source = block.need_object("source")
    extras = given(block.rest({"type", "source", "title"}))
    title = block.string("title")
    match source.need_string("type"):
        case "base64":
            where: Source = Inline(source.need_string("data"))
            mime: str | None = source.string("media_type") or _PDF
        case "text":
            data = source.need_string("data").encode("utf-8", "replace")
            where, mime = Inline(base64.b64encode(data).decode()), _PLAIN
        case "url":
            where, mime = source_of(source.need_string("url"))
        case "file":
            where, mime = FileRef(source.need_string("file_id")), None
        case "content":
            return Data(block.value, noted({BLOCK: True}))
        case other:
            wrong(source.at("type"), "one of base64, content, file, text, url", other)
    return Media(MediaKind.FILE, where, mime, title, noted(extras))


_READERS: dict[str, Callable[[Node], Part]] = {
    "text": _text,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
    "image": _image,
    "document": _document,
}
