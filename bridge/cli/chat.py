"""`dialect-bridge chat`: a terminal client for servers of any dialect.

The text of answers goes to stdout, so that it can be piped; reasoning, tool calls and errors go to stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import uuid
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager

from bridge.cli.key import given_key
from bridge.cli.progress import Progress
from bridge.contract import Dialect, registry
from bridge.engine.assembly import backend_class
from bridge.engine.route import LIBRARY
from bridge.errors import ConfigError
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
    StepStarted,
    Text,
    TextDelta,
    ToolResulted,
    as_text,
    json_text,
    result_text,
)
from bridge.run.attempt import BackendAttempt
from bridge.run.backend import Backend, CallInfo
from bridge.run.run import Run


def chat(args: argparse.Namespace) -> int:
    """One turn, or a conversation read from stdin line by line. Exit code 1 when an answer failed."""
    dialect = registry.get(args.dialect)
    backend = _backend(dialect, args.url, given_key(args))
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
    """The backend at `url`. Raises `ConfigError` for a URL without a scheme and for missing libraries."""
    if dialect.called_over_http and not url.startswith(("http://", "https://")):
        raise ConfigError(f"expected a URL such as https://host/v1, got {url!r}")
    registry.check_installed(dialect)
    return backend_class(dialect)("chat", dialect, url, api_key=api_key)


def _lines() -> Iterator[str]:
    """Yield the user's lines until the end of input."""
    prompt = "> " if sys.stdin.isatty() else ""
    while True:
        try:
            line = input(prompt).strip()
        except EOFError:
            return
        if line:
            yield line


class _Conversation:
    """Send the whole conversation, or only what is new to backends that remember it."""

    def __init__(self, backend: Backend, model: str | None) -> None:
        self.backend = backend
        self._model = model
        self._thread = uuid.uuid4().hex
        self._conversation: list[Message] = []

    async def turn(self, text: str) -> int:
        question = Message("user", [Text(text)])
        messages = [question] if self.backend.capabilities.takes_news else [*self._conversation, question]
        request = Request(messages, model=self._model, thread_id=self._thread)
        run = Run(BackendAttempt(request, self.backend, LIBRARY, CallInfo(uuid.uuid4().hex, self._thread, 0.0)))
        folder, screen = Folder(), _Screen()
        try:
            async with screen.waiting():
                while not run.ended:
                    events = await run.read()
                    folder.feed(events)
                    screen.show(events)
        finally:
            await run.close()
        screen.end(folder.answer)
        if folder.answer.failure is not None:
            return 1
        self._conversation += [question, *folder.answer.messages]
        return 0


class _Screen:
    """Print the answer as it arrives; on a terminal, show how long it has been silent."""

    def __init__(self) -> None:
        self._progress = Progress()
        self._same = sys.stdout.isatty() and sys.stderr.isatty()
        # Whether a line has been begun and not ended, there.
        self._in_answer = self._in_aside = False
        # The part whose pieces continue on the current line, and those that wait for a new line.
        self._open: str | None = None
        self._waiting: dict[str, str] = {}
        self._ended: set[str] = set()
        self._dim = "\x1b[2m" if sys.stderr.isatty() else ""
        self._plain = "\x1b[0m" if self._dim else ""

    def waiting(self) -> AbstractAsyncContextManager[None]:
        return self._progress.waiting(lambda: not self._in_aside)

    def show(self, events: list[Event]) -> None:
        for event in events:
            self._one(event)
        sys.stdout.flush()

    def _one(self, event: Event) -> None:
        match event:
            case TextDelta():
                self._answer(event.text)
            case PartStarted(kind=PartKind.REASONING):
                self._begin(event.part_id, "[thinking] ")
            case PartStarted(kind=PartKind.TOOL_CALL):
                self._begin(event.part_id, f"[calls {event.name}] ")
            case ReasoningDelta() | ArgsDelta() if event.part_id in self._waiting:
                self._waiting[event.part_id] += event.text
            case ReasoningDelta() | ArgsDelta():
                self._notice(event.text)
            case PartEnded() if event.part_id in self._waiting:
                self._ended.add(event.part_id)
            case PartEnded() if event.part_id == self._open:
                self._end_line()
            case Interrupted():
                self._note(f"[waiting for you] {event.reason or ''} {json_text(event.payload)}")
            case ToolResulted():
                self._note(f"[result] {result_text(event.parts)}")
            case StepStarted():
                self._note(f"[step {event.name}]")
            case ContentAdded():
                self._answer(("\n" if self._in_answer else "") + as_text(event.part) + "\n")
            case RunFailed():
                self._note(f"[{event.error.code}] {event.error.message}")
            case _:
                pass

    def _begin(self, part_id: str, title: str) -> None:
        """Keep parts that are open at the same time apart: the first one continues, the others follow."""
        if self._open is None:
            self._open = part_id
            self._note(title, "")
        else:
            self._waiting[part_id] = title

    def _end_line(self) -> None:
        self._open = None
        self._notice("\n" if self._in_aside else "")
        while self._waiting and self._open is None:
            part_id = next(iter(self._waiting))
            text = self._waiting.pop(part_id)
            if part_id in self._ended:
                self._note(text)
            else:
                self._begin(part_id, text)

    def _answer(self, text: str) -> None:
        self._progress.rest()
        if text:
            self._in_answer = not text.endswith("\n")
            self._in_aside = self._in_answer if self._same else self._in_aside
        sys.stdout.write(text)

    def _notice(self, text: str) -> None:
        self._progress.rest()
        if text:
            self._in_aside = not text.endswith("\n")
            self._in_answer = self._in_aside if self._same else self._in_answer
        sys.stdout.flush()
        sys.stderr.write(f"{self._dim}{text}{self._plain}")
        sys.stderr.flush()

    def _note(self, text: str, end: str = "\n") -> None:
        """A line of its own beside the answer; without `end` its rest is still to come."""
        self._notice(("\n" if self._in_aside else "") + text + end)

    def end(self, answer: Answer) -> None:
        if self._in_answer:
            self._answer("\n")
        sys.stdout.flush()
        if answer.usage is not None:
            self._note(f"[{answer.usage.input} tokens in, {answer.usage.output} out]")
