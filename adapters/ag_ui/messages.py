"""Messages and their parts, as clients of every version send them (section 2)."""

from __future__ import annotations

from typing import Any

from adapters.ag_ui.wire import REDACTED, camel, noted
from bridge.codec.check import Node, wrong
from bridge.errors import RequestError
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
    json_text,
    source_of,
)

ROLES = ("developer", "system", "user", "assistant", "tool", "reasoning", "activity")
KINDS: dict[str, MediaKind] = {
    "image": MediaKind.IMAGE,
    "audio": MediaKind.AUDIO,
    "video": MediaKind.VIDEO,
    "document": MediaKind.FILE,
}
_PART_TYPES = ("text", "binary", *KINDS)
_COMMON = {"id", "role", "name", "metadata"}


class MessageReader:
    """Reads the messages of one request in order; it remembers calls, since results name them only by id.

    `aside` holds what models have no use for (activities), with its place counted from the end.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.aside: list[dict[str, Any]] = []
        self._names: dict[str, str] = {}

    def read(self, body: Node) -> None:
        body.need_array("messages")
        for found in body.objects("messages"):
            node = Node(camel(found.value), found.path)
            node.need_string("role")
            role = node.one_of("role", ROLES) or ""
            if role == "activity":
                self.aside.append({"after": len(self.messages), "message": node.value})
            else:
                self.messages.append(self._message(node, role))
        for entry in self.aside:
            # Counted from the end: a stored history is put in front of what came.
            entry["followed_by"] = len(self.messages) - entry.pop("after")

    def _message(self, node: Node, role: str) -> Message:
        known = set(_COMMON)
        notes: dict[str, Any] = {}
        parts: list[Part]
        if role == "assistant":
            known |= {"content", "toolCalls"}
            parts = [*_content(node), *(self._call(Node(camel(c.value), c.path)) for c in node.objects("toolCalls"))]
        elif role == "tool":
            known |= {"content", "toolCallId", "error"}
            parts = [self._result(node, notes)]
        elif role == "reasoning":
            known |= {"content", "encryptedValue"}
            parts = [_reasoning(node)]
        else:
            known.add("content")
            if node.get("content") is None:
                wrong(node.at("content"), "a string or a list of parts", None, missing="content" not in node.value)
            parts = _content(node)
        metadata = node.object("metadata")
        notes.update(node.rest(known))
        return Message(
            "assistant" if role == "reasoning" else role,
            parts,
            node.string("id") or None,
            node.string("name") or None,
            dict(metadata.value) if metadata else {},
            noted(notes),
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


def error_part(error: str) -> Text:
    """What a model is told of a tool that failed and said nothing else (section 6)."""
    return Text(json_text({"error": error}))


def _reasoning(node: Node) -> Reasoning:
    text, value = node.string("content") or "", node.string("encryptedValue")
    if value and value.startswith(REDACTED):
        return Reasoning(text, None, value.removeprefix(REDACTED))
    return Reasoning(text, value or None)


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


def read_part(found: Node) -> Part:
    """One content part. Raises `RequestError` with its place."""
    node = Node(camel(found.value), found.path)
    node.need_string("type")
    kind = node.one_of("type", _PART_TYPES) or ""
    if kind == "text":
        return Text(node.need_string("text"), noted(node.rest({"type", "text"})))
    if kind == "binary":
        return _binary(node)
    inner = node.need_object("source")
    source, mime = _source(Node(camel(inner.value), inner.path))
    extras = node.rest({"type", "source"})
    if (provider := inner.get("provider")) is not None:
        extras["provider"] = provider
    metadata = node.get("metadata")
    filename = metadata.get("filename") if isinstance(metadata, dict) else None
    if not isinstance(filename, str):
        filename = None
    return Media(KINDS[kind], source, mime, filename, noted(extras))


def _source(node: Node) -> tuple[Source, str | None]:
    node.need_string("type")
    kind = node.one_of("type", ("data", "url", "file"))
    value, mime = node.need_string("value"), node.string("mimeType")
    if kind == "file":
        return FileRef(value), mime
    return _located(value, mime, inline=kind == "data")


def _located(value: str, mime: str | None, *, inline: bool) -> tuple[Source, str | None]:
    """A data URL is seen in either place, with its prefix."""
    source, said = source_of(value)
    if inline and not isinstance(source, Inline):
        source = Inline(value)
    return source, mime or said


def _binary(node: Node) -> Media:
    """The part of 0.x: what it is stands in its media type only."""
    said, filename = node.string("mimeType"), node.string("filename")
    data, url, file_id = node.string("data"), node.string("url"), node.string("id")
    source: Source
    mime = said
    if data:
        source, mime = _located(data, said, inline=True)
    elif url:
        source, mime = _located(url, said, inline=False)
    elif file_id:
        source = FileRef(file_id)
    else:
        raise RequestError(f"{node.path}: expected one of data, url or id in a binary part.", param=node.path)
    kind = KINDS.get((mime or "").partition("/")[0].lower(), MediaKind.FILE)
    rest = node.rest({"type", "mimeType", "filename", "data", "url", "id"})
    return Media(kind, source, mime, filename, noted(rest))


def tolerant_parts(value: Any) -> list[Part]:
    """The content of a backend's result: a string, a list of parts, or whatever JSON stands there."""
    if isinstance(value, str):
        return [Text(value)]
    if not isinstance(value, list):
        return [] if value is None else [Text(json_text(value))]
    parts: list[Part] = []
    for item in value:
        try:
            parts.append(read_part(Node.of(item, "content")))
        except RequestError:
            parts.append(Data(item))
    return parts
