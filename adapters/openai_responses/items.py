"""Input items -> messages of the model, checked in the same walk.

Each item is a message of its own, since the borders between items mean something to backends of this dialect; those of
other dialects join what belongs to one turn. An item of a kind that has no place in the model is kept whole.
"""

from __future__ import annotations

from collections.abc import Callable

from adapters.openai_responses.wire import CONTENT, NAME, PARAGRAPH, SUMMARY, noted
from bridge.codec.check import Node, wrong
from bridge.codec.openai import audio_type, bytes_or_url
from bridge.errors import RequestError
from bridge.model import (
    Data,
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

ROLES = ("system", "developer", "user", "assistant")
_CALL_KEYS = frozenset({"type", "id", "call_id", "name", "arguments"})
_OUTPUT_KEYS = frozenset({"type", "id", "call_id", "output"})
_MESSAGE_KEYS = frozenset({"type", "id", "role", "content"})


class ItemReader:
    """Reads the input of one request in order; it remembers calls, since results name them only by id.

    `stored`: items that point at what the backend keeps are left to the backend.
    """

    def __init__(self, *, stored: bool) -> None:
        self._stored = stored
        self._names: dict[str, str] = {}

    def read(self, body: Node) -> list[Message]:
        """The messages of `input`. Raises `RequestError` with the place of what is wrong."""
        value = body.get("input")
        if isinstance(value, str):
            return [Message("user", [Text(value)])]
        if not isinstance(value, list):
            wrong("input", "a string or a list of items", value, missing="input" not in body.value)
        if not value:
            wrong("input", "at least one item", value)
        return [self._item(node) for node in body.objects("input")]

    def _item(self, node: Node) -> Message:
        kind = node.string("type")
        if kind is None and node.get("role") is None:
            wrong(node.at("type"), "a type, or a role", None, missing=True)
        match kind:
            case None | "message":
                return self._message(node)
            case "function_call":
                return self._call(node)
            case "function_call_output":
                return self._result(node)
            case "reasoning":
                return _reasoning(node)
            case "item_reference" if not self._stored:
                raise RequestError(
                    f"{node.at('type')}: item_reference needs stored responses, which this route does not keep; "
                    "send the item itself.",
                    param=node.at("type"),
                )
        role = "tool" if kind.endswith("_output") else "assistant"
        return Message(role, [Data(node.value, noted(whole=True))])

    def _message(self, node: Node) -> Message:
        node.need_string("role")
        role = node.one_of("role", ROLES) or ""
        if node.get("content") is None:
            wrong(node.at("content"), "a string or a list of parts", None, missing="content" not in node.value)
        item_id = node.string("id")
        extras = noted(id=item_id, item=node.rest(_MESSAGE_KEYS))
        return Message(role, read_content(node, "content"), item_id, extras=extras)

    def _call(self, node: Node) -> Message:
        call_id, name = node.need_string("call_id"), node.need_string("name")
        self._names[call_id] = name
        extras = noted(id=node.string("id"), item=node.rest(_CALL_KEYS))
        return Message("assistant", [ToolCall(call_id, name, node.string("arguments") or "", extras=extras)])

    def _result(self, node: Node) -> Message:
        call_id = node.need_string("call_id")
        if node.get("output") is None:
            wrong(node.at("output"), "a string or a list of parts", None, missing="output" not in node.value)
        extras = noted(id=node.string("id"), item=node.rest(_OUTPUT_KEYS))
        return Message(
            "tool", [ToolResult(call_id, read_content(node, "output"), self._names.get(call_id), extras=extras)]
        )


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
    url = node.string("image_url")
    if url is None:
        if (file_id := node.string("file_id")) is None:
            wrong(node.at("image_url"), "image_url or file_id", None, missing=True)
        return Media(MediaKind.IMAGE, FileRef(file_id), extras=more)
    source, mime = source_of(url)
    return Media(MediaKind.IMAGE, source, mime, extras=more)


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
    if said := inner.string("format"):
        mime = audio_type(said)
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
