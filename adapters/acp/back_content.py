"""A request -> the content of a prompt. An agent remembers its sessions, so that a prompt has what is new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bridge.codec import REQUEST_FEATURES, Context, Feature, FeatureSupport, Fields, entries
from bridge.codec.media import request_feature
from bridge.codec.message_losses import AS_TEXT
from bridge.dialects.acp.wire import NAME, Wire, text_block, write_block
from bridge.errors import shortened
from bridge.model import (
    Data,
    Inline,
    Media,
    MediaKind,
    Message,
    Part,
    Reasoning,
    Refusal,
    Request,
    Resume,
    Text,
    ToolCall,
    ToolResult,
    Url,
    as_text,
    json_text,
)
from bridge.model.places import unsupported

_NO_FIELD = "the protocol has no field for it"
_LINK = "a link"
_OWN_TOOLS = "agents have their own tools"

REQUESTS: dict[Feature, FeatureSupport] = entries(
    REQUEST_FEATURES,
    text={
        Feature.SYSTEM: "a line before the message",
        Feature.IMAGE_URL: _LINK,
        Feature.AUDIO_URL: _LINK,
        Feature.VIDEO_URL: _LINK,
        Feature.FILE_URL: _LINK,
        Feature.DATA: "JSON in the text",
        Feature.REFUSAL_HISTORY: "a line before the message",
        Feature.RESUME: "the answer to the open question, else text",
    },
    drop={
        Feature.MESSAGE_NAME: _NO_FIELD,
        Feature.TOOLS: _OWN_TOOLS,
        Feature.TOOL_CHOICE: _OWN_TOOLS,
        Feature.PARALLEL_TOOL_CALLS: _OWN_TOOLS,
        Feature.RESPONSE_FORMAT: _NO_FIELD,
        Feature.SAMPLING: _NO_FIELD,
        Feature.REASONING_EFFORT: _NO_FIELD,
        Feature.REASONING_HISTORY: "the agent has its own",
        Feature.TOOL_HISTORY: "the agent has its own",
        Feature.TOOL_ORIGIN: "the agent has its own",
        Feature.USER_ID: _NO_FIELD,
        Feature.METADATA: _NO_FIELD,
        Feature.CONTEXT: _NO_FIELD,
        Feature.STATE: _NO_FIELD,
        Feature.EXTRAS: _NO_FIELD,
    },
    refuse={
        Feature.VIDEO_INLINE: "content is text, image, audio or a file",
        Feature.FILE_REF: "an agent cannot fetch by id",
    },
)
"""What becomes of the features of a request."""

EVERYTHING: Final[Wire] = {"image": True, "audio": True, "embeddedContext": True}
_PROMISES = {MediaKind.IMAGE: "image", MediaKind.AUDIO: "audio", MediaKind.FILE: "embeddedContext"}
"""What an agent promises that takes bytes of a kind."""
_FIELDS = Fields(NAME, carries={"resume", "thread_id"})
"""A prompt has no field of a request."""


def prompt_blocks(request: Request, context: Context, *, fresh: bool, takes: Wire = EVERYTHING) -> list[Wire]:
    """Return the content of a prompt: what is new, after a block with what was said before.

    `fresh`: the session is new, so that the agent gets the whole conversation. `takes`: the content that the agent
    promises to take beside texts and links. Raises `Unsupported`, with its place, for a medium that it does not take.
    """
    writer = _Writer(request, context, takes)
    _FIELDS.write(request, context.lost)
    messages = request.messages
    first = next((n for n in range(len(messages), 0, -1) if messages[n - 1].role != "user"), 0)
    earlier = [each for each in messages[:first] if fresh or each.role != "assistant"]
    blocks = writer.earlier(earlier)
    for message in messages[first:]:
        blocks += writer.new(message)
    blocks += [text_block(words) for answer in request.resume if (words := _words_of(answer, alone=not messages))]
    return blocks or [text_block("")]


def _words_of(answer: Resume, *, alone: bool) -> str:
    """Return an answer as text; none for a question that is left, unless that is `alone` in the request."""
    payload = answer.payload
    if answer.decision != "resolved":
        return "no" if alone else ""
    if isinstance(payload, bool) or payload is None:
        return "no" if payload is False else "yes"
    return payload if isinstance(payload, str) else json_text(payload)


class _Writer:
    def __init__(self, request: Request, context: Context, takes: Wire) -> None:
        self._messages = request.messages
        self._lost = context.lost
        self._takes = takes

    def earlier(self, messages: Sequence[Message]) -> list[Wire]:
        """Return earlier turns as one text, each with its role, the system's first; then their pictures and files."""
        lines: list[str] = []
        media: list[Wire] = []
        for message in sorted(messages, key=lambda each: each.role not in ("system", "developer")):
            self._note(message)
            text = ""
            for part in message.parts:
                text += self._told(part, media)
            if text.strip():
                lines.append(f"{_ROLES.get(message.role, message.role)}: {text}")
        return [text_block("\n".join(lines)), *media] if lines else media

    def new(self, message: Message) -> list[Wire]:
        """Return the content of a new message. Raises `Unsupported`."""
        self._note(message)
        return [block for part in message.parts if (block := self._block(part)) is not None]

    def _note(self, message: Message) -> None:
        if message.name and message.role != "tool":
            self._lost.add(Feature.MESSAGE_NAME)

    def _told(self, part: Part, media: list[Wire]) -> str:
        match part:
            case Reasoning():
                self._lost.add(Feature.REASONING_HISTORY)
                return ""
            case ToolCall() | ToolResult():
                self._lost.add(Feature.TOOL_HISTORY)
                return ""
            case Media(source=Inline()) if self._is_taken(part):
                media.append(write_block(part))
            case Media():
                self._lost.add(request_feature(part), AS_TEXT)
            case Data():
                self._lost.add(Feature.DATA, AS_TEXT)
            case Refusal():
                self._lost.add(Feature.REFUSAL_HISTORY, AS_TEXT)
        return as_text(part)

    def _block(self, part: Part) -> Wire | None:
        match part:
            case Text():
                return write_block(part) if part.text else None
            case Reasoning():
                self._lost.add(Feature.REASONING_HISTORY)
                return None
            case ToolCall() | ToolResult():
                self._lost.add(Feature.TOOL_HISTORY)
                return None
            case Media(source=Url()):
                self._lost.add(request_feature(part), _LINK)
            case Media() if not self._is_taken(part):
                kind = shortened(part.mime or str(part.kind))
                how = "as bytes" if isinstance(part.source, Inline) else "by file id"
                raise unsupported(
                    self._messages, part, f"this agent accepts no {kind} {how}; send it as text, or leave it out."
                )
            case Data():
                self._lost.add(Feature.DATA, AS_TEXT)
        return write_block(part)

    def _is_taken(self, media: Media) -> bool:
        promise = _PROMISES.get(media.kind)
        return isinstance(media.source, Inline) and promise is not None and self._takes.get(promise) is True


_ROLES = {"developer": "system"}
