"""Messages and their parts, as clients send them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import Any, NoReturn

from bridge.dialects.openai.api import audio_type, bytes_or_url
from bridge.dialects.openai.free_text import INPUT, arguments_of
from bridge.dialects.openai_chat.audio import TRANSCRIPT
from bridge.dialects.openai_chat.wire import CUSTOM, NAME, REASONING_FIELDS, noted, noted_call, own
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
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Url,
    json_text,
    source_of,
)
from bridge.toolkit.caching import CONTROL, with_control
from bridge.toolkit.check import Node, wrong
from bridge.toolkit.plain import plain_message

_USUAL = frozenset({"role", "content", "name"})
_OF_ASSISTANT = _USUAL | {"refusal", "tool_calls", "function_call"}
_REASONED = _OF_ASSISTANT | frozenset(REASONING_FIELDS)
_RARE = _REASONED - {"role", "content", "name", "tool_calls"} | {"reasoning_details", "audio"}
_OF_CALL = frozenset({"id", "type", "function", CUSTOM, "index"})
_OF_RESULT = frozenset({"role", "content", "tool_call_id", "id"})
ROLES = ("system", "developer", "user", "assistant", "tool")
_SPEAKERS = frozenset({"user", "assistant", "system", "developer"})


def refuse_retired(path: str, successor: str) -> NoReturn:
    """Raise the `RequestError` for a field that OpenAI replaced in 2023."""
    raise RequestError(f"{path}: not supported; send {successor} instead.", param=path)


def read_messages(body: Node) -> list[Message]:
    """Read `messages`. Raises `RequestError`."""
    reader: MessageReader | None = None
    messages = []
    for index, value in enumerate(values := body.need_array("messages")):
        message = plain_message(value, _SPEAKERS)
        if message is None:
            if reader is None:
                reader = MessageReader(body.at("messages"))
            message = reader.plain_result(value) or reader.read(value, index)
        messages.append(message)
    if not messages:
        wrong(body.at("messages"), "at least one message", values)
    return messages


class MessageReader:
    """Reads the messages of one request in order; it remembers calls, since results name them only by id."""

    def __init__(self, path: str) -> None:
        """`path`: the place of the messages in the body."""
        self._path = path
        self._names: dict[str, str] = {}
        self._open: dict[str, str] = {}

    def read(self, value: Any, index: int) -> Message:
        node = Node.of(value, f"{self._path}[{index}]")
        role = node.need_one_of("role", ROLES)
        if role == "assistant":
            return self._assistant(node)
        if role == "tool":
            return self._result(node)
        if node.value.get("content") is None:
            wrong(node.at("content"), "a string or a list of parts", None, missing="content" not in node.value)
        rest = node.rest(_USUAL)
        parts = _marked_by(rest, read_content(node))
        if role != "user":
            _marked_odd(parts)
        return Message(role, parts, None, node.string("name"), extras={NAME: rest} if rest else None)

    def _assistant(self, node: Node) -> Message:
        known: Set[str] = _OF_ASSISTANT
        parts: list[Part] = _marked_odd(read_content(node))
        if not _RARE.isdisjoint(node.value):
            thoughts = {field: text for field in REASONING_FIELDS if (text := node.string(field))}
            known = _REASONED if thoughts else known
            parts = [*_thoughts(node, thoughts), *parts, *_spoken(node)]
        if node.get("tool_calls") is not None:
            parts += [self._call(call) for call in node.objects("tool_calls")]
        if node.get("function_call") is not None:
            refuse_retired(node.at("function_call"), "tool_calls")
        rest = node.rest(known)
        return Message(
            "assistant", _marked_by(rest, parts), None, node.string("name"), extras={NAME: rest} if rest else None
        )

    def _call(self, node: Node) -> ToolCall:
        call_id = node.need_string("id")
        kind = node.one_of("type", ("function", CUSTOM)) or "function"
        inner = node.need_object(kind)
        field = INPUT if kind == CUSTOM else "arguments"
        name = inner.need_string("name")
        self._names[call_id] = self._open[call_id] = name
        extras = node.rest(_OF_CALL)
        arguments = _arguments(inner, field)
        if kind == CUSTOM:
            extras["type"], extras[INPUT] = kind, arguments
            arguments = arguments_of(arguments)
        if more := inner.rest({"name", field}):
            extras["function"] = more
        return ToolCall(call_id, name, arguments, extras=noted_call(extras))

    def _result(self, node: Node) -> Message:
        call_id = self._answered(node)
        name = node.string("name") or self._names.get(call_id)
        self._open.pop(call_id, None)
        result = ToolResult(call_id, _marked_odd(read_content(node)), name)
        rest = node.rest(_OF_RESULT)
        result.extras = with_control(None, rest)
        return Message("tool", [result], extras={NAME: rest} if rest else None)

    def plain_result(self, value: Any) -> Message | None:
        """Return a result that is the id of its call and a text, as most are; None for any other value, which `read`
        reads.
        """
        if type(value) is dict and len(value) == 3 and value.get("role") == "tool":
            call_id, text = value.get("tool_call_id"), value.get("content")
            if type(call_id) is str and call_id and type(text) is str and text:
                self._open.pop(call_id, None)
                return Message("tool", [ToolResult(call_id, [Text(text)], self._names.get(call_id))])
        return None

    def _answered(self, node: Node) -> str:
        """The id of the call that a tool message answers. Some clients write it as `id`, others name only the function,
        or nothing: then it is the first open call of that name, else the first open call.
        """
        if node.get("tool_call_id") not in (None, "") or not self._open:
            return node.need_string("tool_call_id")
        if (known := node.get("id")) in self._open:
            return str(known)
        name = node.get("name")
        return next((call_id for call_id, called in self._open.items() if called == name), next(iter(self._open)))


def _thoughts(node: Node, thoughts: dict[str, str]) -> list[Reasoning]:
    """What an assistant has thought: `reasoning_details`, else the first of the fields `thoughts`."""
    if found := list(_details(node.get("reasoning_details"), list(thoughts))):
        return found
    # vLLM reads `reasoning`, DeepSeek `reasoning_content`: the client's choice goes back with the text
    return [Reasoning(text, extras=noted({"fields": list(thoughts)})) for text in list(thoughts.values())[:1]]


def _spoken(node: Node) -> Iterator[Part]:
    """What an assistant has said beside its content."""
    audio = node.get("audio")
    if isinstance(audio, dict) and isinstance(words := audio.get("transcript"), str) and words:
        yield Text(words, {TRANSCRIPT: {}})
    if refusal := node.string("refusal"):
        yield Refusal(refusal)


def _details(value: Any, fields: list[str]) -> Iterator[Reasoning]:
    """Reasoning with its signatures; `fields`: where else the client has it."""
    for entry in value if isinstance(value, list) else ():
        if not isinstance(entry, dict):
            continue
        said = {k: v for k, v in entry.items() if isinstance(v, str) and v}
        text, extras = said.get("text") or said.get("summary") or "", noted({"fields": fields})
        if text or "signature" in said or "data" in said:
            yield Reasoning(text, said.get("signature"), said.get("data"), extras)


def _arguments(node: Node, field: str) -> str:
    """The string as it is, valid JSON or not. Some clients send the object itself: it is written once."""
    value = node.get(field)
    if isinstance(value, dict):
        return json_text(value)
    return node.string(field) or ""


# ------------------------------------------------------------------ parts


def read_content(node: Node) -> list[Part]:
    """`content`: a string, a list of parts, or nothing."""
    value = node.value.get("content")
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [Text(value)]
    if not isinstance(value, list):
        wrong(node.at("content"), "a string or a list of parts", value)
    return [_part(part) for part in node.objects("content")]


def _part(node: Node) -> Part:
    kind = node.need_string("type")
    reader = _READERS.get(kind)
    # A kind that only some servers know: other dialects see its JSON, this one sends it on as it came.
    return reader(node) if reader else Data(node.value, noted({"part": True}))


def _text(node: Node) -> Part:
    return Text(node.need_string("text"), noted(node.rest({"type", "text"})))


def _refusal(node: Node) -> Part:
    return Refusal(node.need_string("refusal"), noted(node.rest({"type", "refusal"})))


def _image(node: Node) -> Part:
    return _by_url(node, "image_url", MediaKind.IMAGE)


def _audio_url(node: Node) -> Part:
    return _marked(_by_url(node, "audio_url", MediaKind.AUDIO))


def _video_url(node: Node) -> Part:
    return _marked(_by_url(node, "video_url", MediaKind.VIDEO))


def _by_url(node: Node, field: str, kind: MediaKind) -> Media:
    """`{"image_url": {"url": ...}}`; the bare string is seen too."""
    extras = node.rest({"type", field})
    detail = None
    if isinstance(node.get(field), str):
        url = node.need_string(field)
    else:
        inner = node.need_object(field)
        url = inner.need_string("url")
        more = inner.rest({"url"})
        if isinstance(more.get("detail"), str):
            detail = more.pop("detail")
        if more:
            extras[field] = more
    source, mime = source_of(url)
    return Media(kind, source, mime, extras=noted(extras), detail=detail)


def _file_url(node: Node) -> Part:
    return _marked(_by_url(node, "file_url", MediaKind.FILE))


def _marked_by(fields: dict[str, Any], parts: list[Part]) -> list[Part]:
    """The parts of a message; a mark for the prompt cache on the message is one on its last part."""
    if CONTROL in fields:
        last = next((part for part in reversed(parts) if not isinstance(part, Reasoning)), None)
        if last is not None:
            last.extras = with_control(last.extras, fields)
    return parts


def _marked_odd(parts: list[Part]) -> list[Part]:
    """Notes on media outside of a user's message that a chat client sent them, so that a chat backend may judge."""
    for part in parts:
        if isinstance(part, Media):
            part.extras = noted({**own(part.extras), "odd_place": True})
    return parts


def _marked(media: Media) -> Media:
    """Notes that a chat client sent this part, so that a chat backend may get it although OpenAI has no such part."""
    media.extras = noted({**own(media.extras), "type": "url"})
    return media


def _input_audio(node: Node) -> Part:
    inner = node.need_object("input_audio")
    data, audio_format = inner.need_string("data"), inner.string("format")
    extras: dict[str, Any] = node.rest({"type", "input_audio"})
    if more := inner.rest({"data", "format"}):
        extras["input_audio"] = more
    source, mime = bytes_or_url(data)
    if source != Inline(data):
        # DashScope wants `data:;base64,...` here and takes addresses, OpenAI neither: it goes back as it came
        extras = {**extras, "type": "input_audio", "input_audio": {**more, "data": data}}
    if audio_format:
        mime = audio_type(audio_format)
    return Media(MediaKind.AUDIO, source, mime, extras=noted(extras))


def _file(node: Node) -> Part:
    inner = node.need_object("file")
    extras = node.rest({"type", "file"})
    if more := inner.rest({"file_id", "file_data", "file_url", "filename"}):
        extras["file"] = more
    filename = inner.string("filename")
    if file_id := inner.string("file_id"):
        return Media(MediaKind.FILE, FileRef(file_id), None, filename, noted(extras))
    if url := inner.string("file_url"):
        source, mime = source_of(url)
        return Media(MediaKind.FILE, source, mime, filename, noted({**extras, "type": "file_url"}))
    data = inner.string("file_data")
    if not data:
        wrong(inner.at("file_data"), "file_id or file_data", data, missing=True)
    source, mime = bytes_or_url(data)
    if isinstance(source, Url):
        extras["type"] = "file_data"
    return Media(MediaKind.FILE, source, mime, filename, noted(extras))


_READERS: dict[str, Callable[[Node], Part]] = {
    "text": _text,
    "refusal": _refusal,
    "image_url": _image,
    "audio_url": _audio_url,
    "video_url": _video_url,
    "file_url": _file_url,
    "input_audio": _input_audio,
    "file": _file,
}
