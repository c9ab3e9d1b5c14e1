"""The agent behind the tools of these tests: what it does is the prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from bridge import Event, Interrupted, Request
from bridge.model import (
    ArgsDelta,
    ContentAdded,
    Custom,
    Data,
    FinishReason,
    Inline,
    Media,
    MediaKind,
    MessageEnded,
    MessageStarted,
    PartEnded,
    PartKind,
    PartStarted,
    ReasoningDelta,
    RunFinished,
    Text,
    TextDelta,
    ToolResulted,
    Url,
    result_text,
)

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
FORM = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city"],
}
ended: list[str] = []
"""How runs ended that somebody watched: by their prompts."""
begun: list[str] = []


def _media(kind: MediaKind, source: Any, mime: str | None = None, name: str | None = None) -> Event:
    return ContentAdded("m", Media(kind, source, mime=mime, filename=name))


async def run(request: Request) -> AsyncIterator[Event | str]:
    if request.resume:
        yield f"answers: {[(r.interrupt_id, r.decision, r.payload) for r in request.resume]}"
        return
    said = result_text(request.messages[-1].parts)
    begun.append(said)
    try:
        async for each in _scene(said, request):
            yield each
    except BaseException as error:
        ended.append(f"{said} {type(error).__name__}")
        raise


async def _scene(said: str, request: Request) -> AsyncIterator[Event | str]:
    match said.partition(" ")[0]:
        case "approve":
            yield "I will send it."
            yield Interrupted("q-1", "approval", {"message": "Send the mail?"})
        case "call":
            yield MessageStarted("m")
            yield PartStarted("c", "m", PartKind.TOOL_CALL, call_id="c-1", name="send_mail")
            yield ArgsDelta("c", '{"to":')
            yield ArgsDelta("c", '"Ann"}')
            yield PartEnded("c")
            yield MessageEnded("m")
            yield Interrupted("q-1", "confirmation", call_id="c-1")
        case "ask":
            yield Interrupted("q-1", "input_required", "Which city?")
        case "form":
            yield Interrupted("q-1", "input_required", {"message": "Where to?", "responseSchema": FORM})
        case "two":
            yield Interrupted("q-1", "approval", {"message": "Send the mail?"})
            yield Interrupted("q-2", "input_required", "To whom?")
        case "slow":
            for number in range(400):
                yield f"w{number} "
                await asyncio.sleep(0.05)
        case "silent":
            await asyncio.sleep(0.7)
            yield "at last"
        case "boom":
            yield "half"
            raise ValueError("a secret of the backend")
        case "long":
            yield "cut"
            yield RunFinished(FinishReason.LENGTH)
        case "filter":
            yield "no"
            yield RunFinished(FinishReason.CONTENT_FILTER)
        case "media":
            yield "see "
            yield MessageStarted("m")
            yield _media(MediaKind.IMAGE, Inline(PIXEL), "image/png")
            yield _media(MediaKind.AUDIO, Inline("UklGRg=="), "audio/wav")
            yield _media(MediaKind.FILE, Inline("JVBERi0="), "application/pdf", "a.pdf")
            yield _media(MediaKind.FILE, Url("https://files.example/b.pdf"), "application/pdf", "b.pdf")
            yield ContentAdded("m", Data({"a": 1}))
            yield MessageEnded("m")
        case "messages":
            for number in ("one", "two"):
                yield MessageStarted(number)
                yield PartStarted(f"{number}-t", number, PartKind.TEXT)
                yield TextDelta(f"{number}-t", number)
                yield PartEnded(f"{number}-t")
                yield MessageEnded(number)
        case "work":
            yield MessageStarted("m")
            yield PartStarted("r", "m", PartKind.REASONING)
            yield ReasoningDelta("r", "thinking")
            yield PartEnded("r")
            yield PartStarted("c", "m", PartKind.TOOL_CALL, call_id="c-1", name="search")
            yield PartEnded("c")
            yield ToolResulted("c-1", [Text("found")])
            yield MessageEnded("m")
            yield Custom("own", 1)
            yield "done"
        case "say":
            for word in said.split(" ")[1:]:
                yield f"{word} "
        case _:
            roles = [message.role for message in request.messages]
            yield f"{said} {roles}"
