"""Messages of the model -> input items for a backend.

What a message says becomes items in the order of its parts: texts that follow each other are one message item, a call,
a result and a reasoning are items of their own. Items of this dialect keep their ids and all that only it understands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge.contract import Context, Feature
from bridge.dialects.openai.api import audio_format, breakpoint_of
from bridge.dialects.openai_responses import compaction
from bridge.dialects.openai_responses.capabilities import CAPABILITIES
from bridge.dialects.openai_responses.options import BackOptions
from bridge.dialects.openai_responses.wire import SUMMARY, own
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
    as_text,
    json_text,
    mime_of,
    result_text,
    seal,
    url_of,
)
from bridge.model.parts import plain_text
from bridge.toolkit.message_losses import RESULT, MessageLosses

Item = dict[str, Any]


class ItemWriter:
    """Writes the items of one request; what cannot be said is recorded in the context."""

    def __init__(self, context: Context, options: BackOptions) -> None:
        self._lost = context.lost
        self._make_id: Callable[[str], str] = context.make_id
        self._options = options
        self._messages: list[Message] = []

    def write(self, messages: list[Message]) -> list[Item]:
        """Raises `Unsupported` for a medium that this wire cannot carry."""
        self._messages = messages
        return [item for message in messages for item in self._message(message)]

    def _message(self, message: Message) -> list[Item]:
        if own(message.extras).get(compaction.TRIGGER) == "backend":
            return [{"type": compaction.TRIGGER}]
        if message.role != "tool" and (text := plain_text(message)) is not None:
            return [{"type": "message", "role": message.role, "content": text}]
        out: list[Item] = []
        parts: list[Part] = []
        for part in message.parts:
            item = self._item(part, message.role)
            if item is None:
                parts.append(part)
                continue
            out += [*self._items(message, parts), *item]
            parts = []
        out += self._items(message, parts)
        if not message.parts and message.role in ("user", "assistant"):
            out.append({"type": "message", "role": message.role, "content": ""})
        return out

    # -------------------------------------------------------------- items

    def _item(self, part: Part, role: str) -> list[Item] | None:
        """The items of a part that is one by itself; None for what belongs into a message."""
        match part:
            case ToolCall():
                return [self._call(part)]
            case ToolResult():
                return [self._result(part)]
            case Reasoning():
                return self._reasoning(part)
            case Data() if role in ("assistant", "tool") and own(part.extras).get("whole"):
                return [dict(part.value)]
            case _ if role == "tool":
                return []
        return None

    def _call(self, call: ToolCall) -> Item:
        if whole := own(call.extras).get("whole"):
            return dict(whole)
        head = {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments}
        return {**head, **_verbatim(call)}

    def _result(self, result: ToolResult) -> Item:
        if whole := own(result.extras).get("whole"):
            return dict(whole)
        output: str | list[Item] = result_text(result.parts)
        listed = own(result.extras).get("listed")
        if listed or any(isinstance(p, Media) or own(p.extras) for p in result.parts):
            output = [self._part(p, "user") for p in result.parts]
        return {"type": "function_call_output", "call_id": result.call_id, "output": output, **_verbatim(result)}

    def _reasoning(self, part: Reasoning) -> list[Item]:
        """Return reasoning of this dialect if it holds its own text: an id alone means nothing unless the backend
        stored it.

        Backends accept no reasoning of other models. What a client of this dialect sends passes unchanged.
        """
        notes = own(part.extras)
        if "whole" in notes:
            return [dict(notes["whole"])]
        item: Item = {"type": "reasoning", "id": notes.get("id"), "summary": []}
        if part.text and notes.get("form") == SUMMARY:
            item["summary"] = [{"type": "summary_text", "text": part.text}]
        elif part.text:
            item["content"] = [{"type": "reasoning_text", "text": part.text}]
        if value := seal(part.signature, part.redacted):
            item["encrypted_content"] = value
        if not item["id"] or not ("content" in item or "encrypted_content" in item):
            self._lost.add(Feature.REASONING_HISTORY, "backends of this dialect cannot read it")
            return []
        return [{**item, **notes.get("item", {})}]

    # -------------------------------------------------------------- messages

    def _items(self, message: Message, parts: list[Part]) -> list[Item]:
        if not parts:
            return []
        if message.role == "assistant":
            return [self._answer(message, parts)]
        content = [self._part(part, message.role) for part in parts]
        return [{"type": "message", "role": message.role, "content": _shortest(content), **_verbatim(message)}]

    def _answer(self, message: Message, parts: list[Part]) -> Item:
        """Return the assistant's text. With an id it is an output item, which must have parts and a status."""
        content = [self._spoken(part) for part in parts]
        item: Item = {"type": "message", "role": "assistant"}
        plain = all(part.keys() == {"type", "text"} for part in content)
        wire_id = own(message.extras).get("id")
        if plain and not wire_id:
            return {**item, "content": "".join(part["text"] for part in content), **_verbatim(message)}
        for part in content:
            if part["type"] == "output_text":
                part.setdefault("annotations", [])
        wire_id = wire_id or self._make_id("msg")
        return {**item, "id": wire_id, "status": "completed", "content": content, **_verbatim(message)}

    def _spoken(self, part: Part) -> Item:
        """Assistants can only have text here; a picture of an assistant becomes text, as in our answers."""
        more = own(part.extras).get("part", {})
        if isinstance(part, Refusal):
            return {"type": "refusal", "refusal": part.text, **more}
        return {"type": "output_text", "text": as_text(part), **(more if isinstance(part, Text) else {})}

    # -------------------------------------------------------------- parts of users, systems and results

    def _part(self, part: Part, role: str) -> Item:
        mark = breakpoint_of(part.extras) if self._options.prompt_cache == "breakpoints" else {}
        return {**mark, **self._unmarked(part, role)}

    def _unmarked(self, part: Part, role: str) -> Item:
        notes = own(part.extras)
        match part:
            case Text():
                return {"type": "input_text", "text": part.text, **notes.get("part", {})}
            case Data():
                if notes.get("whole"):
                    return dict(part.value)
                return {"type": "input_text", "text": json_text(part.value)}
            case Media():
                wire = _media(part) if role == "user" or notes else None
                if wire is not None:
                    return {**wire, **notes.get("part", {})}
                return {"type": "input_text", "text": as_text(part)}
            case _:
                return {"type": "input_text", "text": as_text(part)}


def takes(part: Part, role: str) -> bool:
    """Return whether there is a form of the wire for a medium or data in a message of this role."""
    notes = own(part.extras)
    if isinstance(part, Data):
        return bool(notes.get("whole"))
    return isinstance(part, Media) and (role in ("user", RESULT) or bool(notes)) and _media(part) is not None


LOSSES = MessageLosses(
    CAPABILITIES,
    takes=takes,
    told=("assistant", "tool"),
    keeps=(Feature.REASONING_HISTORY,),
    marks_errors=False,
    beside_results=(ToolCall, Reasoning),
    picture_detail=True,
)


def _verbatim(part: Message | ToolCall | ToolResult) -> Item:
    """The id and the fields that a client or backend of this dialect gave this item."""
    notes = own(part.extras)
    named = {"id": notes["id"]} if notes.get("id") else {}
    return {**named, **notes.get("item", {})}


def _media(media: Media) -> Item | None:
    """The part of the wire for a medium, None when there is no such part."""
    match media.kind, media.source:
        case MediaKind.IMAGE, FileRef(file_id=file_id):
            return {"type": "input_image", "detail": media.detail or "auto", "file_id": file_id}
        case MediaKind.IMAGE, _:
            return {"type": "input_image", "detail": media.detail or "auto", "image_url": url_of(media, "image/png")}
        case MediaKind.AUDIO, Inline(base64=data):
            return {"type": "input_audio", "input_audio": {"data": data, "format": audio_format(mime_of(media))}}
        case MediaKind.FILE, FileRef(file_id=file_id):
            return {"type": "input_file", "file_id": file_id}
        case MediaKind.FILE, Url(url=url):
            return {"type": "input_file", "file_url": url}
        case MediaKind.FILE, _:
            # The API wants a name beside bytes and takes the type from it
            return {"type": "input_file", "filename": media.filename or "file", "file_data": url_of(media)}
    return None


def _shortest(parts: list[Item]) -> str | list[Item]:
    """One plain text is written as a string, which every server knows; lists are for what needs them."""
    if len(parts) == 1 and parts[0].keys() == {"type", "text"} and parts[0]["type"] == "input_text":
        return str(parts[0]["text"])
    return parts
