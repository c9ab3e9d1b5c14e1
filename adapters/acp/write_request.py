"""A request -> the content of a prompt. An agent remembers its sessions, so that a prompt has what is new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bridge.contract import Context
from bridge.dialects.acp.capabilities import CAPABILITIES
from bridge.dialects.acp.wire import NAME, Wire, text_block, write_block
from bridge.model import (
    Inline,
    Media,
    MediaKind,
    Message,
    Part,
    Reasoning,
    Request,
    Resume,
    Text,
    ToolCall,
    ToolResult,
    as_text,
    json_text,
)
from bridge.toolkit import Fields, MessageLosses

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


def _is_taken(part: Part, takes: Wire) -> bool:
    """Return whether an agent that promises to take this takes a medium as bytes."""
    if not isinstance(part, Media) or not isinstance(part.source, Inline):
        return False
    promise = _PROMISES.get(part.kind)
    return promise is not None and takes.get(promise) is True


class _Writer:
    def __init__(self, request: Request, context: Context, takes: Wire) -> None:
        self._messages = request.messages
        self._lost = context.lost
        self._takes = takes
        self._losses = MessageLosses(CAPABILITIES, takes=lambda part, _: _is_taken(part, takes))

    def earlier(self, messages: Sequence[Message]) -> list[Wire]:
        """Return earlier turns as one text, each with its role, the system's first; then their pictures and files."""
        self._losses.note(self._messages, self._lost, of=messages, as_text=True)
        lines: list[str] = []
        media: list[Wire] = []
        for message in sorted(messages, key=lambda each: each.role not in ("system", "developer")):
            parts = [part for part in message.parts if not isinstance(part, _AGENTS_OWN)]
            media += [write_block(part) for part in parts if _is_taken(part, self._takes)]
            text = "".join(map(as_text, parts))
            if text.strip():
                lines.append(f"{_ROLES.get(message.role, message.role)}: {text}")
        return [text_block("\n".join(lines)), *media] if lines else media

    def new(self, message: Message) -> list[Wire]:
        """Return the content of a new message. Raises `Unsupported`."""
        self._losses.note(self._messages, self._lost, of=[message])
        parts = [part for part in message.parts if not isinstance(part, _AGENTS_OWN)]
        return [write_block(part) for part in parts if not isinstance(part, Text) or part.text]


_AGENTS_OWN = (Reasoning, ToolCall, ToolResult)
"""What an agent remembers of its session."""
_ROLES = {"developer": "system"}
