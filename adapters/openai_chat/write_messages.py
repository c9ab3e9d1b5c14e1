"""Messages of the model -> `messages` for a backend.

Order and ids are kept: `bridge.translation.requirements` has arranged calls and results as chat backends insist on.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from bridge.contract import Context, Feature
from bridge.dialects.openai.api import audio_format, breakpoint_of
from bridge.dialects.openai.free_text import INPUT
from bridge.dialects.openai_chat.audio import TRANSCRIPT
from bridge.dialects.openai_chat.capabilities import CAPABILITIES
from bridge.dialects.openai_chat.options import BackOptions
from bridge.dialects.openai_chat.wire import BLOCK, CUSTOM, fields_of_call, own
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
    url_of,
)
from bridge.model.parts import plain_text
from bridge.toolkit.caching import control_of
from bridge.toolkit.message_losses import RESULT, MessageLosses

Wire = dict[str, Any]


class MessageWriter:
    """Writes the messages of one request; what cannot be said is recorded in the context."""

    def __init__(self, context: Context, options: BackOptions, messages: list[Message]) -> None:
        self._lost = context.lost
        self._options = options
        self._roles = {"developer": "system"} if options.developer_role == "system" else {}
        self._pictures: dict[str, list[Wire]] = {}
        self._index = 0  # of the message that is written
        self._tool_turns: list[bool] | None = None
        self._messages = messages

    def write(self) -> list[Wire]:
        """The messages. What a tool's result shows follows in a user's message, after the last result."""
        out: list[Wire] = []
        pictures: list[Wire] = []
        messages = self._messages
        for self._index, message in enumerate(messages):
            text = plain_text(message) if message.role != "tool" else None
            if text and not pictures:
                out.append(self._plain(message, text))
                continue
            for wire in [self._plain(message, text)] if text else self._message(message):
                if wire["role"] == "tool":
                    pictures += self._pictures.pop(wire["tool_call_id"], [])
                elif pictures:
                    if wire["role"] == "user":
                        wire["content"] = [*pictures, *_parts_of(wire["content"])]
                    else:
                        out.append({"role": "user", "content": pictures})
                    pictures = []
                out.append(wire)
        return [*out, {"role": "user", "content": pictures}] if pictures else out

    def _message(self, message: Message) -> list[Wire]:
        """One message; results inside it become messages of their own, after the calls and before a user's words."""
        results = [self._result(p) for p in message.parts if isinstance(p, ToolResult)]
        others: list[Part] = [p for p in message.parts if not isinstance(p, ToolResult)]
        if message.role == "tool":
            told = [part for part in others if type(part) is Data]
            if results:
                results[0].update(own(message.extras))
            return [*results, self._other(Message("user", []), told)] if told else results
        if message.role == "assistant":
            return [*([self._assistant(message, others)] if others or not results else []), *results]
        if results and not others:
            return results
        return [*results, self._other(message, others)]

    def _plain(self, message: Message, text: str) -> Wire:
        wire = {"role": self._roles.get(message.role, message.role), "content": text}
        return {**wire, "name": message.name} if message.name else wire

    def _head(self, message: Message, role: str) -> Wire:
        head: Wire = {"role": role, "content": None}
        if message.name:
            head["name"] = message.name
        if message.extras:
            head.update(own(message.extras))
        return head

    def _other(self, message: Message, parts: Iterable[Part]) -> Wire:
        role = self._roles.get(message.role, message.role)
        written = [self._part(part, role) for part in parts]
        wire = self._head(message, role)
        wire["content"] = _shortest([w for w in written if w is not None]) or ""
        return wire

    # -------------------------------------------------------------- assistant and tool

    def _assistant(self, message: Message, parts: list[Part]) -> Wire:
        calls = [self._call(p) for p in parts if isinstance(p, ToolCall)]
        wire = self._head(message, "assistant")
        if thoughts := [p for p in parts if isinstance(p, Reasoning)]:
            self._add_reasoning(wire, thoughts)
        spoken = [p for p in parts if not isinstance(p, (ToolCall, Reasoning))]
        if "audio" in wire:
            spoken = [p for p in spoken if TRANSCRIPT not in (p.extras or ())]
        refusals = [p for p in spoken if isinstance(p, Refusal)]
        if len(refusals) == 1 and spoken[-1] is refusals[0] and not refusals[0].extras:
            wire["refusal"] = spoken.pop().text  # type: ignore[union-attr]
        content = _shortest([self._controlled(p, self._spoken(p)) for p in spoken if isinstance(p, Text) or as_text(p)])
        if not content and not calls and "refusal" not in wire and "audio" not in wire:
            content = ""
        wire["content"] = content
        if calls:
            wire["tool_calls"] = calls
        return wire

    def _add_reasoning(self, wire: Wire, parts: list[Reasoning]) -> None:
        """DeepSeek answers 400 without it in a turn with calls, others refuse the field: the option decides."""
        blocks = [block for p in parts if (block := _thinking_block(p)) is not None]
        if blocks:
            wire.setdefault("thinking_blocks", blocks)
        elif any(p.signature or p.redacted for p in parts) and "reasoning_details" not in wire:
            self._lost.add(Feature.REASONING_HISTORY, "signatures")
        text = "".join(p.text for p in parts)
        if text and self._sends_reasoning(self._index):
            wire.update(dict.fromkeys(own(parts[0].extras).get("fields", ("reasoning_content",)), text))

    def sends(self, index: int, message: Message, part: Reasoning) -> bool:
        """Return whether reasoning of the message with this index is sent."""
        return message.role != "assistant" or not part.text or self._sends_reasoning(index)

    def _sends_reasoning(self, index: int) -> bool:
        wanted = self._options.reasoning_history
        if wanted != "tool_turns":
            return wanted == "always"
        if self._tool_turns is None:
            self._tool_turns = _tool_turns(self._messages)
        return self._tool_turns[index]

    def _spoken(self, part: Part) -> Wire:
        """Assistants can only have text here; a picture of an assistant becomes text, as in our answers."""
        if isinstance(part, Refusal):
            return {"type": "refusal", "refusal": part.text, **own(part.extras)}
        if (wire := _verbatim(part)) is not None:
            return wire
        return {"type": "text", "text": as_text(part), **(_beside(part) if isinstance(part, Text) else {})}

    def _call(self, call: ToolCall) -> Wire:
        extras = dict(fields_of_call(call.extras)) if call.extras else {}
        kind = extras.pop("type", "function")
        inner = {"name": call.name}
        if kind == CUSTOM:  # that of an answer which was kept is the text itself
            inner[INPUT] = extras.pop(INPUT, call.arguments)
        else:
            inner["arguments"] = call.arguments
        more = extras.pop("function", None)
        if isinstance(more, dict):
            inner.update(more)
        return {"id": call.call_id, "type": kind, kind: inner, **extras}

    def _result(self, result: ToolResult) -> Wire:
        content: str | list[Wire]
        if any(own(p.extras) for p in result.parts):
            texts = [{"type": "text", "text": as_text(p)} for p in result.parts]
            content = [
                _verbatim(p) or {**text, **(_beside(p) if isinstance(p, Text) else {})}
                for p, text in zip(result.parts, texts, strict=True)
            ]
        else:
            content = "".join(self._result_text(p, result.call_id) for p in result.parts)
        if self._options.prompt_cache == "marks" and isinstance(content, str):
            marks = [control_of(part.extras) for part in (*result.parts, result)]
            if mark := next(filter(None, reversed(marks)), None):
                content = [{"type": "text", "text": content, **mark}]
        return {"role": "tool", "tool_call_id": result.call_id, "content": content}

    def _result_text(self, part: Part, call_id: str) -> str:
        """A part of a result as text. A picture is no text: as bytes it would fill the model's window with base64."""
        wire = _media(part) if isinstance(part, Media) else None
        if wire is None or not isinstance(part, Media):
            return result_text([part])
        note = {"type": "text", "text": f"The {part.kind} in the result of call {call_id}:"}
        self._pictures.setdefault(call_id, []).extend([note, wire])
        return f"[{part.kind}: shown below]"

    # -------------------------------------------------------------- parts of users and systems

    def _part(self, part: Part, role: str) -> Wire | None:
        wire = self._unmarked(part, role)
        if wire is None or self._options.prompt_cache != "breakpoints":
            return None if wire is None else self._controlled(part, wire)
        return {**breakpoint_of(part.extras), **wire}

    def _controlled(self, part: Part, wire: Wire) -> Wire:
        """A part with the mark for the prompt cache that servers beside OpenAI know, if the option is so."""
        return {**control_of(part.extras), **wire} if self._options.prompt_cache == "marks" else wire

    def _unmarked(self, part: Part, role: str) -> Wire | None:
        match part:
            case Text():
                return {"type": "text", "text": part.text, **_beside(part)}
            case Data():
                if (kept := _verbatim(part)) is not None:
                    return kept
                return {"type": "text", "text": json_text(part.value)}
            case Media():
                wire = _media(part) if role == "user" else _verbatim(part)
                return wire if wire is not None else self._other_medium(part)
            case Refusal():
                return {"type": "text", "text": part.text}
        return None

    def _other_medium(self, media: Media) -> Wire:
        """A medium that OpenAI has no part for: in that of other servers by option, else as text."""
        kind, url = f"{media.kind}_url", url_of(media)
        if self._options.unsupported_media == "parts" and url is not None:
            return {"type": kind, kind: {"url": url}}
        return {"type": "text", "text": as_text(media)}


def takes(part: Part, role: str) -> bool:
    """Return whether there is a part of the wire for a medium or data in a message of this role."""
    if isinstance(part, Media) and role in ("user", RESULT):
        return _media(part) is not None
    return _verbatim(part) is not None


def takes_urls(part: Part, role: str) -> bool:
    """The same with the parts of other servers, which take any medium of a user by URL."""
    return takes(part, role) or (isinstance(part, Media) and role not in _TOLD and url_of(part) is not None)


_TOLD = ("assistant", "tool", RESULT)
_losses = partial(
    MessageLosses,
    CAPABILITIES,
    told=_TOLD,
    keeps=(Feature.REASONING_HISTORY,),
    marks_errors=False,
    of_assistants=(ToolCall, Reasoning),
    beside_results=(Data,),
    picture_detail=True,
)
LOSSES = {"parts": _losses(takes=takes_urls), "text": _losses(takes=takes)}
LOSSES["refuse"] = LOSSES["text"]
"""The losses of messages, by the option `unsupported_media`."""


def _beside(part: Text) -> Wire:
    """The other fields of a text, without what belongs to answers only."""
    return {name: value for name, value in own(part.extras).items() if name not in ("annotations", "logprobs")}


def _verbatim(part: Part) -> Wire | None:
    """A part that a chat client put where OpenAI has none (a picture in a tool's result): other servers know it."""
    extras = own(part.extras)
    if isinstance(part, Data) and extras.get("part"):
        return dict(part.value)
    return _media(part) if isinstance(part, Media) and extras.get("odd_place") else None


def _media(media: Media) -> Wire | None:
    """The part of the wire for a medium, None when there is no such part."""
    extras = dict(own(media.extras))
    extras.pop("odd_place", None)
    marked = extras.pop("type", None)
    if media.kind is MediaKind.IMAGE and not isinstance(media.source, FileRef):
        detail = {"detail": media.detail} if media.detail is not None else {}
        return _wire_part("image_url", {"url": url_of(media, "image/png"), **detail}, extras)
    if marked == "url":
        detail = {"detail": media.detail} if media.detail is not None else {}
        return _wire_part(f"{media.kind}_url", {"url": url_of(media), **detail}, extras)
    if media.kind is MediaKind.AUDIO and (isinstance(media.source, Inline) or marked == "input_audio"):
        data = media.source.base64 if isinstance(media.source, Inline) else url_of(media)
        return _wire_part("input_audio", {"data": data, "format": audio_format(mime_of(media))}, extras)
    if media.kind is MediaKind.FILE:
        return _file(media, marked, extras)
    return None


def _file(media: Media, marked: str | None, extras: Wire) -> Wire | None:
    named = {"filename": media.filename} if media.filename else {}
    match media.source:
        case FileRef(file_id=file_id):
            return _wire_part("file", {"file_id": file_id, **named}, extras)
        case Inline():
            # The API wants a name beside bytes and takes the type from it
            return _wire_part("file", {"filename": "file", **named, "file_data": url_of(media)}, extras)
        case Url(url=url):
            return _wire_part("file", {marked: url, **named}, extras) if marked in ("file_url", "file_data") else None


def _wire_part(kind: str, inner: Wire, extras: Wire) -> Wire:
    more = extras.pop(kind, None)
    return {"type": kind, kind: {**inner, **(more if isinstance(more, dict) else {})}, **extras}


def _parts_of(content: str | list[Wire]) -> list[Wire]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content


def _shortest(parts: list[Wire]) -> str | list[Wire] | None:
    """One plain text is written as a string, which every server knows; lists are for what needs them."""
    if not parts:
        return None
    if len(parts) == 1 and parts[0].keys() == {"type", "text"} and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts


def _tool_turns(messages: Iterable[Message]) -> list[bool]:
    """Return of each message whether its turn, from one message of the user to the next, has a call: DeepSeek wants the
    reasoning of all messages of such a turn back, the final one included (decolua/9router#1786).
    """
    out: list[bool] = []
    begin, has_call = 0, False  # of the turn
    for message in messages:
        kinds = set(map(type, message.parts))
        if message.role == "user" and not kinds <= {ToolResult}:
            begin, has_call = len(out), False
        out.append(has_call)
        if ToolCall in kinds and not has_call:
            has_call = True
            out[begin:] = [True] * (len(out) - begin)
    return out


def _thinking_block(part: Reasoning) -> Wire | None:
    """Return signed reasoning as the block of LiteLLM that it was; None for any other."""
    if part.redacted is not None and part.redacted.startswith(BLOCK):
        return {"type": "redacted_thinking", "data": part.redacted.removeprefix(BLOCK)}
    if part.signature is None or not part.signature.startswith(BLOCK):
        return None
    return {"type": "thinking", "thinking": part.text, "signature": part.signature.removeprefix(BLOCK)}
