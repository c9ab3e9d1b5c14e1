"""Messages of the model -> `system` and `messages` for a backend.

What follows each other in one role becomes one message, as other dialects tell a turn in several. Nothing is moved:
`bridge.translation.requirements` has put results behind their calls, and system messages where the API takes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bridge.contract import Context, Feature
from bridge.dialects.anthropic_messages.capabilities import CAPABILITIES
from bridge.dialects.anthropic_messages.options import BackOptions
from bridge.dialects.anthropic_messages.read_messages import ASIDES, BLOCK, INSIDE
from bridge.dialects.anthropic_messages.wire import CITATIONS, UNREAD, is_made, own, wire_id
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
)
from bridge.model.jsontext import input_of
from bridge.model.parts import plain_text
from bridge.toolkit.message_losses import RESULT, MessageLosses

Block = dict[str, Any]

_PDF, _PLAIN = "application/pdf", "text/plain"
_TEXTUAL = frozenset({"application/json", "application/xml", "application/yaml", "application/javascript"})
_SYSTEM = frozenset({"system", "developer"})
_SOURCES: dict[type, str] = {Url: "by URL", Inline: "as bytes", FileRef: "by file id"}


@dataclass(slots=True)
class _Turn:
    """One message of the wire."""

    role: str
    blocks: list[Block] = field(default_factory=list)
    extras: dict[str, Any] = field(default_factory=dict)

    @property
    def wire(self) -> dict[str, Any]:
        blocks = self.blocks
        if len(blocks) > 1:
            # The API takes no text without a visible character. Where that is all there is, it may say so itself.
            blocks = [b for b in blocks if not _blank(b)] or blocks[:1]
        return {"role": self.role, "content": shortest(blocks), **self.extras}


class MessageWriter:
    """Writes the messages of one request; what cannot be said is recorded in the context."""

    def __init__(self, context: Context, options: BackOptions) -> None:
        self._lost = context.lost
        self._options = options
        self._messages: list[Message] = []
        self._turns: list[_Turn] = []
        self._system: list[Block] = []

    def write(self, messages: list[Message]) -> tuple[list[Block], list[dict[str, Any]]]:
        """The blocks of `system`, and `messages`. Raises `Unsupported` for a medium that the wire cannot carry."""
        self._messages = messages
        for message in messages:
            if message.role in _SYSTEM:
                self._system_message(message)
            elif (text := plain_text(message)) and not text.isspace():
                role = "assistant" if message.role == "assistant" else "user"
                self._turn(role).blocks.append({"type": "text", "text": text})
            else:
                self._message(message)
        return self._system, [turn.wire for turn in self._turns] or [{"role": "user", "content": ""}]

    def _turn(self, role: str) -> _Turn:
        """The turn to which the next block of this role belongs."""
        if not self._turns or self._turns[-1].role != role:
            self._turns.append(_Turn(role))
        return self._turns[-1]

    def _system_message(self, message: Message) -> None:
        blocks = [b for p in message.parts if (b := self._block(p, "system"))]
        if not (self._turns or own(message.extras).get(INSIDE)):
            self._system += [b for b in blocks if not _blank(b)]
        elif blocks:
            self._turn("system").blocks += blocks

    def _message(self, message: Message) -> None:
        role = "assistant" if message.role == "assistant" else "user"
        extras: dict[str, Any] = dict(own(message.extras)) if message.extras else {}
        asides: dict[int, list[Block]] = {}
        if ASIDES in extras:
            for at, block in extras.pop(ASIDES) if role == message.role else ():
                asides.setdefault(at, []).append(dict(block))
        came = False
        for index, part in enumerate(message.parts):
            if index in asides:
                self._turn(role).blocks += asides[index]
                came = True
            if isinstance(part, ToolResult):
                self._turn("user").blocks.append(self._result(part))
                continue
            block = self._block(part, message.role)
            if block is not None and not (role == "assistant" and _blank(block)):
                self._turn(role).blocks.append(block)
                came = True
        last = asides.get(len(message.parts))
        if last is not None:
            self._turn(role).blocks += last
        if (last is not None or came) and extras:
            self._turns[-1].extras.update(extras)

    # -------------------------------------------------------------- blocks

    def _block(self, part: Part, role: str) -> Block | None:
        match part:
            case Text():
                return {"type": "text", "text": part.text, **_fields(part)}
            case Refusal():
                return {"type": "text", "text": part.text} if part.text else None
            case Data():
                if own(part.extras).get(BLOCK):
                    return dict(part.value)
                return {"type": "text", "text": json_text(part.value)}
            case Media():
                block = media_block(part) if role == "user" else None
                return block or {"type": "text", "text": as_text(part)}
            case Reasoning():
                return self._reasoning(part, role)
            case ToolCall() if role == "assistant":
                return self._call(part)
        return None

    def _call(self, call: ToolCall) -> Block:
        known = {"type": "tool_use", "id": wire_id(call.call_id), "name": call.name, "input": input_of(call.arguments)}
        return {**known, **_fields(call)}

    def _reasoning(self, part: Reasoning, role: str) -> Block | None:
        """The API checks signatures: thinking of its own must come back, anybody else's is refused."""
        if role != "assistant" or not self._sends_reasoning(part):
            return None
        if part.redacted and not part.signature:
            if part.text:
                self._lost.add(Feature.REASONING_HISTORY, "the text of redacted reasoning")
            return {"type": "redacted_thinking", "data": part.redacted, **_fields(part)}
        known = {"type": "thinking", "thinking": part.text, "signature": part.signature or ""}
        return {**known, **_fields(part)}

    def _sends_reasoning(self, part: Reasoning) -> bool:
        wanted = self._options.reasoning_history
        return wanted != "never" and bool(part.redacted or part.signature or (wanted == "always" and part.text))

    def sends(self, index: int, message: Message, part: Reasoning) -> bool:
        """Return whether reasoning is sent, or has nothing to send."""
        has_any = part.text or part.redacted or part.signature
        return message.role != "assistant" or not has_any or self._sends_reasoning(part)

    def _result(self, result: ToolResult) -> Block:
        blocks = [b for p in result.parts if (b := self._block(p, "user"))]
        wire: Block = {"type": "tool_result", "tool_use_id": wire_id(result.call_id)}
        wire["content"] = shortest([b for b in blocks if not _blank(b)])
        if result.is_error:
            wire["is_error"] = True
        return {**wire, **own(result.extras)}


def takes(part: Part, role: str) -> bool:
    """Return whether there is a block for a medium or data in a message of this role."""
    if isinstance(part, Media):
        return role in ("user", RESULT) and media_block(part) is not None
    return bool(own(part.extras).get(BLOCK))


LOSSES = MessageLosses(
    CAPABILITIES,
    takes=takes,
    told=("assistant", "system", "developer", "tool"),
    keeps=(Feature.REASONING_HISTORY,),
    of_assistants=(ToolCall, Reasoning),
)


def _fields(part: Text | ToolCall | Reasoning) -> dict[str, Any]:
    """Fields that only this dialect knows; the pieces in which some of them came are no field of a request."""
    if not part.extras:
        return {}
    fields = {name: value for name, value in own(part.extras).items() if name != UNREAD}
    if isinstance(citations := fields.get(CITATIONS), list):
        fields[CITATIONS] = [each for each in citations if not is_made(each)]
        if not fields[CITATIONS]:
            del fields[CITATIONS]
    return fields


def _blank(block: Block) -> bool:
    return block.get("type") == "text" and not str(block.get("text")).strip()


def shortest(blocks: list[Block]) -> str | list[Block]:
    """One plain text is written as a string, which every server knows; lists are for what needs them."""
    if not blocks:
        return ""
    if len(blocks) == 1 and len(blocks[0]) == 2 and blocks[0].get("type") == "text" and "text" in blocks[0]:
        return str(blocks[0]["text"])
    return blocks


def media_block(media: Media) -> Block | None:
    """The block of the wire for a medium, None when there is no such block."""
    mime = mime_of(media) or ""
    if media.kind is MediaKind.IMAGE or (media.kind is MediaKind.FILE and mime.startswith("image/")):
        return {"type": "image", "source": _source(media, mime or "image/png"), **own(media.extras)}
    if media.kind is not MediaKind.FILE:
        return None
    if not isinstance(media.source, Inline) or mime == _PDF:
        source: Block | None = _source(media, mime)
    else:
        source = _plain(media.source, mime)
    named = {"title": media.filename} if media.filename else {}
    return None if source is None else {"type": "document", "source": source, **named, **own(media.extras)}


def _source(media: Media, mime: str) -> Block:
    match media.source:
        case Url(url=url):
            return {"type": "url", "url": url}
        case Inline(base64=data):
            return {"type": "base64", "media_type": mime, "data": data}
        case FileRef(file_id=file_id):
            return {"type": "file", "file_id": file_id}


def _plain(source: Inline, mime: str) -> Block | None:
    """A text document, whatever kind of text; None for bytes that are no text."""
    if not mime.startswith("text/") and mime not in _TEXTUAL:
        return None
    try:
        data = source.bytes.decode()
    except ValueError:
        return None
    return {"type": "text", "media_type": _PLAIN, "data": data}
