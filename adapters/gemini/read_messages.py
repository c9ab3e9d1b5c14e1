"""Contents and their parts, as clients send them -> messages.

The helpers of Google's SDKs keep each chunk of a stream as a content of its own and send all of them back, so that
contents of the model in a row are one message, and its texts run together. A part with a thought signature stays by
itself. Parts that only Gemini understands are set aside on the message with their places: a backend of this dialect
gets them where they were, others get none of them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from bridge.dialects.gemini.wire import ASIDES, MADE, SIGNATURE, Spelled, given, medium, noted, own
from bridge.model import Message, Part, Reasoning, Text, ToolCall, ToolResult, json_text
from bridge.model.jsontext import arguments_of
from bridge.toolkit.check import wrong

_KINDS = ("text", "inlineData", "fileData", "functionCall", "functionResponse")
_MEDIA = frozenset({"inlineData", "fileData"})
_BESIDE = frozenset({SIGNATURE, "partMetadata", "mediaResolution", "videoMetadata"})
"""Fields beside the kind of a part that only Gemini understands."""
OUTPUTS = ("output", "result")
"""The keys under which a function's response holds what came out, by custom."""
KEY = "key"
"""The one of `OUTPUTS` that a client used, in a result's extras."""


class ContentReader:
    """Reads the contents of one request in order; it remembers calls, since responses may name them only by name."""

    def __init__(self) -> None:
        self.asides = 0
        self._messages: list[Message] = []
        # Of the message that is being read: the places, the parts that are set aside, the pieces of its last text.
        self._places: list[str] = []
        self._aside: list[list[Any]] = []
        self._pieces: list[str] = []
        self._made = 0
        # Calls of the model's last turn without a response, of each name in the order of the calls.
        self._waiting: dict[str, OrderedDict[str, None]] = {}

    def read(self, body: Spelled) -> list[Message]:
        """The messages of `contents`. Raises `RequestError`."""
        for node in body.objects("contents"):
            role = node.one_of("role", ("user", "model", "function")) or "user"
            if not isinstance(node.get("parts"), dict) and not node.need_array("parts"):
                wrong(node.at("parts"), "at least one part", [])
            if role != "model":
                self._begin("user", node.path)
            elif not self._messages or self._messages[-1].role != "assistant":
                self._begin("assistant", node.path)
                self._waiting = {}
            for part in node.objects("parts"):
                self._part(part, role)
        self._end()
        return [message for message in self._messages if message.parts or message.extras]

    def _begin(self, role: str, path: str) -> None:
        self._end()
        self._messages.append(Message(role, []))
        self._places, self._aside = [path], []

    def _end(self) -> None:
        """The message is whole; one that says nothing but an empty text has that."""
        if not self._messages:
            return
        message = self._messages[-1]
        self._end_text()
        if self._aside:
            message.extras = noted({ASIDES: self._aside})
        elif not message.parts and message.role == "assistant":
            message.parts.append(Text(""))
        message.places = tuple(self._places)

    def _end_text(self) -> None:
        if self._pieces:
            self._messages[-1].parts[-1].text = "".join(self._pieces)  # type: ignore[union-attr]
            self._pieces = []

    # -------------------------------------------------------------- parts

    def _part(self, node: Spelled, role: str) -> None:
        beside = {name: node.value[name] for name in _BESIDE if node.get(name) is not None}
        node.string(SIGNATURE)
        kind = next((kind for kind in _KINDS if node.get(kind) is not None), "")
        read: Part | None = None
        if kind == "text":
            text = node.need_string("text")
            thought = node.boolean("thought") and role == "model"
            if not text and role == "model" and (thought or not beside):
                return
            if thought:
                read = Reasoning(text, extras=noted({"thought": True, **beside}))
            elif text or role != "model":
                read = Text(text, noted(beside))
        elif kind in _MEDIA:
            read = _medium(node, kind, beside)
        elif kind == "functionCall" and role == "model":
            read = self._call(node.need_object(kind), beside)
        elif kind == "functionResponse" and role != "model":
            self._respond(self._result(node.need_object(kind)), node.path)
            return
        elif kind:
            wrong(node.at(kind), "a part that fits the role", kind)
        elif not given(node.value).keys() - {"thought"}:
            wrong(node.path, "a part with text, inlineData, functionCall or another kind", node.value)
        if read is not None:
            self._add(read, node.path)
        else:
            self._end_text()
            self._aside.append([len(self._messages[-1].parts), node.value])
            self.asides += not node.value.keys() <= {"text", SIGNATURE}

    def _add(self, part: Part, path: str) -> None:
        """Adds a part; a text of the model goes on with the one before it, unless either has a signature."""
        message = self._messages[-1]
        last = message.parts[-1] if self._pieces else None
        if isinstance(part, (Text, Reasoning)) and message.role == "assistant":
            joins = type(last) is type(part) and last.extras == part.extras
            if joins and SIGNATURE not in own(part.extras):
                self._pieces.append(part.text)
                return
            self._end_text()
            self._pieces = [part.text]
        else:
            self._end_text()
        message.parts.append(part)
        self._places.append(path)

    def _call(self, node: Spelled, beside: dict[str, Any]) -> ToolCall:
        name = node.need_string("name")
        call_id = node.string("id") or self._new_id()
        self._waiting.setdefault(name, OrderedDict())[call_id] = None
        return ToolCall(call_id, name, arguments_of(_free(node, "args")), extras=noted(beside))

    def _new_id(self) -> str:
        self._made += 1
        return f"{MADE}_{self._made}"

    def _respond(self, result: ToolResult, path: str) -> None:
        """A message for each response, before what else its content says."""
        message = Message("tool", [result], places=(path, path))
        self._messages.insert(len(self._messages) - 1, message)

    def _result(self, node: Spelled) -> ToolResult:
        name = node.need_string("name")
        waiting = self._waiting.get(name) or OrderedDict()
        call_id = node.string("id") or next(iter(waiting), None) or self._new_id()
        waiting.pop(call_id, None)
        response = _free(node, "response")
        key = next(iter(response)) if len(response) == 1 else ""
        text = response.get(key)
        rest = given(node.rest({"name", "id", "response", "parts"}))
        if key in OUTPUTS and isinstance(text, str):
            rest[KEY] = key
        elif key != "error":
            text = response
        parts: list[Part] = [Text(text if isinstance(text, str) else json_text(text))]
        for part in node.objects("parts"):
            kind = next((kind for kind in sorted(_MEDIA) if part.get(kind) is not None), "")
            if not kind:
                wrong(part.path, "a part with inlineData or fileData", part.value)
            parts.append(_medium(part, kind, {}))
        return ToolResult(call_id, parts, name, key == "error", noted(rest))


def read_system(body: Spelled) -> list[Message]:
    """The `systemInstruction`: a content whose parts are texts, or a text."""
    if isinstance(body.get("systemInstruction"), str):
        return [
            Message("system", [Text(body.need_string("systemInstruction"))], places=(body.at("systemInstruction"),))
        ]
    node = body.object("systemInstruction")
    if node is None:
        return []
    found = list(node.objects("parts"))
    parts: list[Part] = [Text(part.need_string("text")) for part in found]
    return [Message("system", parts, places=(node.path, *(part.path for part in found)))] if parts else []


def _free(node: Spelled, name: str) -> dict[str, Any]:
    """An object of the user's own, whose names have one spelling."""
    value = node.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        wrong(node.at(name), "an object", value)
    return value


def _medium(part: Spelled, kind: str, beside: dict[str, Any]) -> Part:
    node = part.need_object(kind)
    where = "data" if kind == "inlineData" else "fileUri"
    node.need_string(where)
    node.string("displayName")
    if kind == "inlineData":
        node.need_string("mimeType")
    node.string("mimeType")
    found = medium(kind, node.value)
    if found is None:
        wrong(node.at(where), "a non-empty value", "")
    found.extras = noted(beside)
    return found
