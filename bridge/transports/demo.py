"""The `demo` backend: a scripted agent that shows every feature a dialect may carry.

It needs no key and no network. What the user writes chooses the scene, `help` lists them, and what it says is fixed, so
that documentation can quote it and tests can count on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Custom,
    Data,
    FinishReason,
    Inline,
    Interrupted,
    Media,
    MediaKind,
    Origin,
    Reasoning,
    Refusal,
    Request,
    RunFailed,
    RunFinished,
    StateChanged,
    StateOp,
    StepEnded,
    StepStarted,
    Text,
    ToolCall,
    ToolResult,
    Url,
    UsageReported,
)
from bridge.transports.local import Yielded

# An 8x8 picture, one colour; small enough to print.
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAFUlEQVR4nGPQT3mAFTEMLYkUfAhzMQAOz4cBwsHXGgAAAABJRU5ErkJggg=="
# 8 kHz, 8 bit, mono: a WAV file with two samples of silence.
SOUND = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQIAAACAgA=="

_USAGE = UsageReported(input=12, output=34, total=46, cached=2, reasoning=5)

Scene = Callable[[Request], AsyncIterator[Yielded]]


def _words(text: str) -> list[str]:
    """The text in pieces such as a model sends: a word with the space before it."""
    pieces = text.split(" ")
    return pieces[:1] + [" " + p for p in pieces[1:]]


async def _say(text: str) -> AsyncIterator[Yielded]:
    for word in _words(text):
        yield word


async def _hello(request: Request) -> AsyncIterator[Yielded]:
    """a greeting, streamed word by word"""
    question = _question(request)
    async for word in _say(f"You said: {question}" if question else "Hello!"):
        yield word
    yield " Write help to see what else I can show."
    yield _USAGE


async def _text(request: Request) -> AsyncIterator[Yielded]:
    """plain text with accents, Chinese, an emoji and a line separator"""
    async for word in _say("Plain text: café, 你好, 👩‍👩‍👧, and a line\u2028separator."):
        yield word
    yield _USAGE


async def _reasoning(request: Request) -> AsyncIterator[Yielded]:
    """reasoning before the answer"""
    yield Reasoning("The user wants to see me think. Six times seven is forty-two.")
    async for word in _say("The answer is 42."):
        yield word
    yield _USAGE


async def _tool(request: Request) -> AsyncIterator[Yielded]:
    """a call of a tool that the client runs; answer it and I go on"""
    yield "Let me look."
    yield ToolCall("call_demo_1", _tool_name(request, "get_weather"), '{"city": "Paris"}')
    yield _USAGE


async def _tools(request: Request) -> AsyncIterator[Yielded]:
    """two calls at once that the client runs"""
    name = _tool_name(request, "get_weather")
    yield ToolCall("call_demo_1", name, '{"city": "Paris"}')
    yield ToolCall("call_demo_2", name, '{"city": "Rome"}')
    yield _USAGE


async def _server_tool(request: Request) -> AsyncIterator[Yielded]:
    """a call of a tool that I run myself, with its result"""
    yield ToolCall("call_demo_1", "get_weather", '{"city": "Paris"}', Origin.PLUGIN)
    yield ToolResult("call_demo_1", [Text("sunny, 21 C")], "get_weather")
    async for word in _say("It is sunny in Paris, 21 C."):
        yield word
    yield _USAGE


async def _image(request: Request) -> AsyncIterator[Yielded]:
    """a picture, as bytes and by address"""
    yield "Here is a picture:"
    yield Media(MediaKind.IMAGE, Inline(PICTURE), "image/png", "square.png")
    yield Media(MediaKind.IMAGE, Url("https://example.com/square.png"), "image/png")


async def _audio(request: Request) -> AsyncIterator[Yielded]:
    """a sound, as bytes"""
    yield "Here is a sound:"
    yield Media(MediaKind.AUDIO, Inline(SOUND), "audio/wav", "silence.wav")


async def _video(request: Request) -> AsyncIterator[Yielded]:
    """a film, by address"""
    yield "Here is a film:"
    yield Media(MediaKind.VIDEO, Url("https://example.com/film.mp4"), "video/mp4")


async def _file(request: Request) -> AsyncIterator[Yielded]:
    """a file, by address"""
    yield "Here is a file:"
    yield Media(MediaKind.FILE, Url("https://example.com/report.pdf"), "application/pdf", "report.pdf")


async def _data(request: Request) -> AsyncIterator[Yielded]:
    """a piece of data"""
    yield "Here is a record:"
    yield Data({"city": "Paris", "temperature": 21, "sunny": True})


async def _refusal(request: Request) -> AsyncIterator[Yielded]:
    """a refusal"""
    yield Refusal("I cannot help with that.")


async def _length(request: Request) -> AsyncIterator[Yielded]:
    """an answer cut by the token limit"""
    yield "This answer is cut in the mid"
    yield _USAGE
    yield RunFinished(FinishReason.LENGTH)


async def _filter(request: Request) -> AsyncIterator[Yielded]:
    """an answer stopped by a content filter"""
    yield "This answer is"
    yield RunFinished(FinishReason.CONTENT_FILTER)


async def _steps(request: Request) -> AsyncIterator[Yielded]:
    """steps, shared state and a custom event"""
    yield StepStarted("look")
    yield StateChanged(StateOp.SNAPSHOT, {"progress": 0})
    yield "Looking. "
    yield StateChanged(StateOp.PATCH, [{"op": "replace", "path": "/progress", "value": 1}])
    yield StepEnded("look")
    yield Custom("demo", {"found": 3})
    yield "Found 3."


async def _interrupt(request: Request) -> AsyncIterator[Yielded]:
    """a question to a person before I go on"""
    yield "May I delete a.txt?"
    yield Interrupted("int_demo_1", "confirmation", {"name": "delete_file", "arguments": '{"path": "a.txt"}'})


async def _error(request: Request) -> AsyncIterator[Yielded]:
    """a failure before anything was said"""
    yield RunFailed(Failure(ErrorCode.BACKEND_ERROR, "The demo agent failed, as you asked."))


async def _error_late(request: Request) -> AsyncIterator[Yielded]:
    """a failure in the middle of the answer"""
    yield "Half an ans"
    yield RunFailed(Failure(ErrorCode.BACKEND_ERROR, "The demo agent failed in the middle, as you asked."))


async def _limited(request: Request) -> AsyncIterator[Yielded]:
    """a refusal by rate limit, with Retry-After"""
    yield RunFailed(
        Failure(ErrorCode.RATE_LIMITED, "The demo agent is limited, as you asked.", headers={"retry-after": "7"})
    )


async def _slow(request: Request) -> AsyncIterator[Yielded]:
    """ten words, half a second apart"""
    for number in range(1, 11):
        yield f"{number} "
        await asyncio.sleep(0.5)


_SCENES = (
    _text, _reasoning, _tool, _tools, _server_tool, _image, _audio, _video, _file, _data, _refusal, _length, _filter,
    _steps, _interrupt, _error, _error_late, _limited, _slow,
)  # fmt: skip
SCENES: dict[str, Scene] = {scene.__name__[1:].replace("_", " "): scene for scene in _SCENES}


async def _help(request: Request) -> AsyncIterator[Yielded]:
    """this list"""
    yield "I am the demo agent. Write one of these:\n"
    for name, scene in SCENES.items():
        yield f"- {name}: {scene.__doc__}\n"
    yield "Anything else I repeat."


async def run(request: Request) -> AsyncIterator[Yielded]:
    """The agent: plays the scene that the last user message names."""
    results = _results(request)
    if results:
        async for word in _say("The tool said: " + "; ".join(results) + "."):
            yield word
        yield _USAGE
        return
    if request.resume:
        yield f"You decided: {request.resume[0].decision}."
        return
    name = _question(request).strip().lower()
    scene = _help if name == "help" else SCENES.get(name, _hello)
    async for item in scene(request):
        yield item


def _question(request: Request) -> str:
    """The text of the last user message."""
    for message in reversed(request.messages):
        if message.role == "user":
            return "".join(p.text for p in message.parts if isinstance(p, Text))
    return ""


def _results(request: Request) -> list[str]:
    """Return the tool results that end the conversation."""
    texts: list[str] = []
    for message in reversed(request.messages):
        found = [p for p in message.parts if isinstance(p, ToolResult)]
        if not found:
            break
        texts[:0] = ["".join(p.text for p in r.parts if isinstance(p, Text)) for r in found]
    return texts


def _tool_name(request: Request, fallback: str) -> str:
    """The first tool that the client offers."""
    return request.tools[0].name if request.tools else fallback
