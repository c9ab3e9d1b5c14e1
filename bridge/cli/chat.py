"""`dialect-bridge chat`: a terminal that talks to anything that speaks a dialect.

Answer text goes to stdout, so that it can be piped; reasoning, tool calls and errors go to stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager

from bridge.cli.progress import Progress
from bridge.codec import Dialect, registry
from bridge.engine import LIBRARY
from bridge.model import (
    Answer,
    ArgsDelta,
    ContentAdded,
    Event,
    Folder,
    Interrupted,
    Message,
    PartEnded,
    PartKind,
    PartStarted,
    ReasoningDelta,
    Request,
    RunFailed,
    Text,
    TextDelta,
    ToolResulted,
    as_text,
    json_text,
    result_text,
)
from bridge.pipeline import Backend, CallInfo, Run, Way
from bridge.transports.http import HttpBackend


def chat(args: argparse.Namespace) -> int:
    """One turn, or a conversation read from stdin line by line. Exit code 1 when an answer failed."""
    dialect = registry.get(args.dialect)
    backend = _backend(dialect, args.url, args.api_key or os.environ.get("BRIDGE_API_KEY"))
    conversation = _Conversation(backend, args.model)
    text = " ".join(args.text)
    with asyncio.Runner() as runner:
        runner.run(backend.start())
        try:
            if text:
                return runner.run(conversation.turn(text))
            # Lines are read outside the loop, in the main thread: there Ctrl-C ends the waiting.
            codes = [runner.run(conversation.turn(line)) for line in _lines()]
            return max(codes, default=0)
        finally:
            runner.run(backend.close())


def _backend(dialect: Dialect, url: str, api_key: str | None) -> Backend:
    """The backend at `url`. Raises `ConfigError` when the dialect's libraries are not installed."""
    if not dialect.over_grpc:
        return HttpBackend("chat", dialect, url, api_key=api_key)
    registry.check_installed(dialect)
    from bridge.transports.grpc import GrpcBackend

    return GrpcBackend("chat", dialect, url)


def _lines() -> Iterator[str]:
    """What the user writes, until the end of input."""
    prompt = "> " if sys.stdin.isatty() else ""
    while True:
        try:
            line = input(prompt).strip()
        except EOFError:
            return
        if line:
            yield line


class _Conversation:
    """Sends the whole talk, or only what is new to backends that remember it themselves."""

    def __init__(self, backend: Backend, model: str | None) -> None:
        self.backend = backend
        self._model = model
        self._thread = uuid.uuid4().hex
        self._talk: list[Message] = []

    async def turn(self, text: str) -> int:
        asked = Message("user", [Text(text)])
        messages = [asked] if self.backend.card.takes_news else [*self._talk, asked]
        request = Request(messages, model=self._model, thread_id=self._thread)
        run = Run(Way(request, self.backend, LIBRARY, CallInfo(uuid.uuid4().hex, self._thread, 0.0)))
        folder, shown = Folder(), _Screen()
        try:
            async with shown.waiting():
                while not run.done:
                    events = await run.read()
                    folder.feed(events)
                    shown.show(events)
        finally:
            await run.close()
        shown.end(folder.answer)
        if folder.answer.failure is not None:
            return 1
        self._talk += [asked, *folder.answer.messages]
        return 0


class _Screen:
    """What comes, as it comes; and between two lines, on a terminal, for how long nothing came."""

    def __init__(self) -> None:
        self._progress = Progress()
        self._between = True
        self._same = sys.stdout.isatty()
        self._calls: dict[str, None] = {}
        self._thoughts: dict[str, None] = {}
        self._dim = "\x1b[2m" if sys.stderr.isatty() else ""
        self._plain = "\x1b[0m" if self._dim else ""

    def waiting(self) -> AbstractAsyncContextManager[None]:
        return self._progress.waiting(lambda: self._between)

    def show(self, events: list[Event]) -> None:
        for event in events:
            self._one(event)
        sys.stdout.flush()

    def _one(self, event: Event) -> None:
        match event:
            case TextDelta():
                self._answer(event.text)
            case ReasoningDelta() | ArgsDelta():
                self._aside(event.text)
            case PartStarted(kind=PartKind.REASONING):
                self._thoughts[event.part_id] = None
                self._aside("[thinking] ")
            case PartStarted(kind=PartKind.TOOL_CALL):
                self._calls[event.part_id] = None
                self._aside(f"\n[calls {event.name}] ")
            case PartEnded() if event.part_id in self._calls or event.part_id in self._thoughts:
                self._aside("\n")
            case Interrupted():
                self._aside(f"\n[waits for you] {event.reason or ''} {json_text(event.payload)}\n")
            case ToolResulted():
                self._aside(f"[result] {result_text(event.parts)}\n")
            case ContentAdded():
                self._answer(f"\n{as_text(event.part)}\n")
            case RunFailed():
                self._aside(f"\n[{event.error.code}] {event.error.message}\n")
            case _:
                pass

    def _answer(self, text: str) -> None:
        self._told(text, self._same)
        sys.stdout.write(text)

    def _aside(self, text: str) -> None:
        self._told(text, True)
        sys.stdout.flush()
        sys.stderr.write(f"{self._dim}{text}{self._plain}")
        sys.stderr.flush()

    def _told(self, text: str, seen: bool) -> None:
        """Something is written now; `seen` on the terminal where waiting is told, whose cursor it moves."""
        self._progress.rest()
        if seen and text:
            self._between = text.endswith("\n")

    def end(self, answer: Answer) -> None:
        sys.stdout.write("\n")
        sys.stdout.flush()
        if answer.usage is not None:
            self._aside(f"[{answer.usage.input} tokens in, {answer.usage.output} out]\n")
