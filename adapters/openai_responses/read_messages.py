"""Input items -> messages of the model, checked in the same walk.

Each item is a message of its own, since the borders between items mean something to backends of this dialect; those of
other dialects join what belongs to one turn. An item of a kind that has no place in the model is kept whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bridge.dialects.openai.api import audio_type, bytes_or_url
from bridge.dialects.openai.free_text import arguments_of
from bridge.dialects.openai_responses import compaction, wire
from bridge.dialects.openai_responses.client_tools import read_call, read_output
from bridge.dialects.openai_responses.declared import ADDITIONAL_TOOLS, CONFIGURES, flat
from bridge.dialects.openai_responses.wire import CONTENT, NAME, PARAGRAPH, SUMMARY, is_reference, noted, own
from bridge.model import (
    Data,
    Extras,
    FileRef,
    Media,
    MediaKind,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    source_of,
    unseal,
)
from bridge.model.jsontext import dict_of, text_of
from bridge.toolkit.check import Node, wrong
from bridge.toolkit.plain import plain_message

Refer = Callable[[Node], Message]
"""Gives the message that an `item_reference` means. Raises `RequestError`."""

FOUND = "tool_search_output"
ROLES = ("system", "developer", "user", "assistant")
_SPEAKERS = frozenset(ROLES)
_CALL_KEYS = frozenset({"type", "id", "call_id", "name", "arguments"})
_OUTPUT_KEYS = frozenset({"type", "id", "call_id", "output"})
_MESSAGE_KEYS = frozenset({"type", "id", "role", "content"})


class ItemReader:
    """Reads the input of one request in order; it remembers calls, since results name them only by id.

    `before` are the messages that the request goes on from. `refer` gives the messages that an item points at; None =
    such items are left to the backend. `declaring` are the items that declare tools or settings and say nothing, each
    with the count of the items after it; `found` are the results of searches for tools.
    """

    def __init__(self, before: Sequence[Message] = (), refer: Refer | None = None) -> None:
        self.declaring: list[tuple[int, Node]] = []
        self.found: list[Node] = []
        self._refer = refer
        self._names: dict[str, str] = {}
        for message in before:
            self._note(message)

    def read(self, body: Node) -> list[Message]:
        """The messages of `input`. Raises `RequestError` with the place of what is wrong."""
        value = body.get("input")
        if isinstance(value, str):
            return [Message("user", [Text(value)], places=("input",))]
        if not isinstance(value, list):
            wrong("input", "a string or a list of items", value, missing="input" not in body.value)
        if not value:
            wrong("input", "at least one item", value)
        return self.items(body, "input")

    def items(self, body: Node, field: str) -> list[Message]:
        """The messages of a list of items. Raises `RequestError` as `read` does."""
        values, whole = body.array(field) or [], body.at(field)
        messages: list[Message] = []
        self.declaring = []
        for index, value in enumerate(values):
            path = f"{whole}[{index}]"
            if (message := plain_message(value, _SPEAKERS, (path,))) is not None:
                messages.append(message)
            elif _declares(node := Node.of(value, path)):
                self.declaring.append((len(values) - 1 - index, node))
            else:
                messages.append(self._placed(node))
        return messages

    def _placed(self, node: Node) -> Message:
        message = self._item(node)
        places = (node.path, node.at("output")) if message.role == "tool" else (node.path,)
        if message.places or is_reference(node.value):
            return replace(message, places=places)  # a stored message may be referred to again
        message.places = places
        return message

    def _note(self, message: Message) -> None:
        for part in message.parts:
            if isinstance(part, ToolCall):
                self._names[part.call_id] = part.name
            elif isinstance(part, ToolResult) and dict_of(own(part.extras).get("whole")).get("type") == FOUND:
                self.found.append(Node(own(part.extras)["whole"], "input"))

    def _item(self, node: Node) -> Message:
        kind = node.string("type")
        if is_reference(node.value):
            kind = wire.REFERENCE
        elif kind is None and node.get("role") is None:
            wrong(node.at("type"), "a type, or a role", None, missing=True)
        match kind:
            case None | "message":
                return self._message(node)
            case "function_call":
                return self._call(node)
            case "custom_tool_call":
                return self._free_call(node)
            case "function_call_output" | "custom_tool_call_output":
                return self._result(node)
            case "reasoning":
                return _reasoning(node)
            case wire.REFERENCE if self._refer is not None:
                message = self._refer(node)
                self._note(message)
                return message
            case compaction.TRIGGER:
                return Message("user", [Text(compaction.INSTRUCTION)], extras=noted(**{compaction.TRIGGER: True}))
        if kind in compaction.KINDS:
            return _compaction(node)
        if (call := read_call(node.value)) is not None:
            call_id, name, arguments = call
            self._names[call_id] = name
            return Message("assistant", [ToolCall(call_id, name, arguments, extras=noted(whole=node.value))])
        if (output := read_output(node.value)) is not None:
            return self._output(node, *output)
        role = "tool" if kind.endswith("_output") else "assistant"
        return Message(role, [Data(node.value, noted(whole=True))])

    def _output(self, node: Node, call_id: str, parts: list[Part], is_error: bool) -> Message:
        """The result of a tool that the client ran; a search for tools has found some."""
        if node.value["type"] == FOUND:
            self.found.append(node)
        extras = noted(whole=node.value)
        return Message("tool", [ToolResult(call_id, parts, self._names.get(call_id), is_error, extras)])

    def _message(self, node: Node) -> Message:
        role = node.need_one_of("role", ROLES)
        if node.get("content") is None:
            wrong(node.at("content"), "a string or a list of parts", None, missing="content" not in node.value)
        item_id = node.string("id")
        extras = noted(id=item_id, item=node.rest(_MESSAGE_KEYS))
        return Message(role, read_content(node, "content"), item_id, extras=extras)

    def _call(self, node: Node) -> Message:
        more = node.rest(_CALL_KEYS)
        if node.string("namespace"):
            more["name"] = node.need_string("name")  # that of the model is another one
        extras = noted(id=node.string("id"), item=more)
        return self._called(node, node.string("arguments") or "", extras)

    def _free_call(self, node: Node) -> Message:
        """A call whose input is free text."""
        return self._called(node, arguments_of(node.string("input") or ""), noted(whole=node.value))

    def _called(self, node: Node, arguments: str, extras: Extras | None) -> Message:
        call_id, name = node.need_string("call_id"), flat(node.string("namespace"), node.need_string("name"))
        self._names[call_id] = name
        return Message("assistant", [ToolCall(call_id, name, arguments, extras=extras)])

    def _result(self, node: Node) -> Message:
        call_id = node.need_string("call_id")
        if node.get("output") is None:
            wrong(node.at("output"), "a string or a list of parts", None, missing="output" not in node.value)
        more = node.rest(_OUTPUT_KEYS)
        if (kind := node.need_string("type")) != "function_call_output":
            more["type"] = kind
        parts = read_content(node, "output")
        extras = noted(id=node.string("id"), item=more, listed=len(parts) > 1)
        return Message("tool", [ToolResult(call_id, parts, self._names.get(call_id), extras=extras)])


def _declares(node: Node) -> bool:
    return node.value.get("type") in (ADDITIONAL_TOOLS, CONFIGURES)


def id_of(message: Message) -> str | None:
    """The id of the item that this message was read from."""
    for extras in (message.extras, *(p.extras for p in message.parts)):
        notes = own(extras)
        if "whole" in notes and notes["whole"] is not True:
            return text_of(notes["whole"].get("id"))
        if wire_id := notes.get("id") or notes.get("stands_for"):
            return text_of(wire_id)
    first = message.parts[0] if message.parts else None
    return text_of(first.value.get("id")) if isinstance(first, Data) and isinstance(first.value, dict) else None


def _compaction(node: Node) -> Message:
    """The summary, where it was made here; what another made is opaque, as a signature is."""
    content = node.need_string("encrypted_content")
    summary = compaction.unpack(content)
    if summary is None:
        return Message("assistant", [Reasoning("", content, extras={NAME: {"whole": node.value}})])
    extras = noted(stands_for=node.string("id"))
    return Message("user", [Text(compaction.RECALLED + summary)], extras=extras)


def _reasoning(node: Node) -> Message:
    """The text for other dialects: what was thought where it is said, else the summary."""
    contents = [part.need_string("text") for part in node.objects("content")]
    summaries = [part.need_string("text") for part in node.objects("summary")]
    signature, redacted = unseal(node.string("encrypted_content"))
    text = "".join(contents) or PARAGRAPH.join(summaries)
    extras = {NAME: {"whole": node.value, "form": CONTENT if contents else SUMMARY}}
    return Message("assistant", [Reasoning(text, signature, redacted, extras)])


# ------------------------------------------------------------------ parts


def read_content(node: Node, field: str) -> list[Part]:
    """The parts of `field`: a string, or a list of parts."""
    value = node.get(field)
    if isinstance(value, str):
        return [Text(value)]
    if not isinstance(value, list):
        wrong(node.at(field), "a string or a list of parts", value)
    return [_part(part) for part in node.objects(field)]


def _part(node: Node) -> Part:
    kind = node.need_string("type")
    reader = _READERS.get(kind)
    # A kind that only some servers know: other dialects see its JSON, this one sends it on as it came.
    return reader(node) if reader else Data(node.value, noted(whole=True))


def _text(node: Node) -> Part:
    return Text(node.need_string("text"), noted(part=node.rest({"type", "text"})))


def _refusal(node: Node) -> Part:
    return Refusal(node.need_string("refusal"), noted(part=node.rest({"type", "refusal"})))


def _image(node: Node) -> Part:
    more = noted(part=node.rest({"type", "image_url", "file_id"}))
    detail = node.string("detail")
    if detail == "auto":
        detail = None  # the API demands the field; this is its word for none
    url = node.string("image_url")
    if url is None:
        if (file_id := node.string("file_id")) is None:
            wrong(node.at("image_url"), "image_url or file_id", None, missing=True)
        return Media(MediaKind.IMAGE, FileRef(file_id), extras=more, detail=detail)
    source, mime = source_of(url)
    return Media(MediaKind.IMAGE, source, mime, extras=more, detail=detail)


def _file(node: Node) -> Part:
    more = noted(part=node.rest({"type", "file_id", "file_url", "file_data", "filename"}))
    filename = node.string("filename")
    if (file_id := node.string("file_id")) is not None:
        return Media(MediaKind.FILE, FileRef(file_id), None, filename, more)
    if (url := node.string("file_url")) is not None:
        source, mime = source_of(url)
        return Media(MediaKind.FILE, source, mime, filename, more)
    if (data := node.string("file_data")) is None:
        wrong(node.at("file_data"), "file_id, file_url or file_data", None, missing=True)
    source, mime = bytes_or_url(data)
    return Media(MediaKind.FILE, source, mime, filename, more)


def _audio(node: Node) -> Part:
    inner = node.need_object("input_audio")
    source, mime = bytes_or_url(inner.need_string("data"))
    if format := inner.string("format"):
        mime = audio_type(format)
    return Media(MediaKind.AUDIO, source, mime, extras=noted(part=node.rest({"type", "input_audio"})))


_READERS: dict[str, Callable[[Node], Part]] = {
    "input_text": _text,
    "output_text": _text,
    "text": _text,
    "refusal": _refusal,
    "input_image": _image,
    "input_file": _file,
    "input_audio": _audio,
}
