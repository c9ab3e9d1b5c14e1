"""A Python async generator as a backend: an agent in this process, served in every dialect.

    async def run(request: bridge.Request) -> AsyncIterator[bridge.Event | bridge.Part | str]:
        yield "Hello "
        yield "world"

It yields strings (answer text), parts (`Reasoning`, `ToolCall`, `ToolResult`, `Media`, ...) or events. Events need
not be complete: whatever is missing - starts, ends, ids - is added, and the run ends when the generator does.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from bridge.contract import (
    ANSWER_FEATURES,
    REQUEST_FEATURES,
    Capabilities,
    Context,
    Dialect,
    Embeddings,
    EmbeddingsRequest,
    Losses,
    ModelInfo,
    RunsTools,
    WireRequest,
    entries,
)
from bridge.contract.naming import ModelNames
from bridge.errors import BackendError, BridgeError, ErrorCode, Failure
from bridge.model import Builder, Event, PartKind, Request
from bridge.model import events as ev
from bridge.model import parts as pt
from bridge.model.events import TERMINAL
from bridge.run.backend import BaseCall, CallInfo, ConfiguredBackend, Timeouts
from bridge.run.breaker import CircuitBreaker
from bridge.toolkit.redact import masked

log = logging.getLogger("bridge.local")

_BREATH = 64
"""Items after which other streams get their turn."""

_FRAMES = 20
_LONGEST_TRACE = 8000

_LAST_WORDS = 5.0
"""Seconds that an agent has to clean up when its run is over."""

Yielded = Event | pt.Part | str
Agent = Callable[[Request], AsyncIterator[Yielded]]

CAPABILITIES = Capabilities(
    answers=entries(ANSWER_FEATURES), requests=entries(REQUEST_FEATURES), runs_tools=RunsTools.ANY
)


class LocalBackend(ConfiguredBackend):
    """A configured agent in this process."""

    def __init__(
        self,
        name: str,
        agent: Agent,
        *,
        names: ModelNames | None = None,
        timeouts: Timeouts | None = None,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        super().__init__(name, CAPABILITIES, names, timeouts, None, breaker)
        self._agent = agent

    async def start(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    def model_for(self, requested: str | None) -> str | None:
        return super().model_for(requested) or self.name

    def forwards(self, headers: Mapping[str, str], front: Dialect) -> dict[str, str]:
        return {}

    async def models(self) -> list[ModelInfo]:
        return [ModelInfo(self.name)]

    async def check(self) -> None:
        """It is in this process."""

    async def count(self, request: Request, info: CallInfo) -> int | None:
        return None

    async def embed(self, asked: EmbeddingsRequest, info: CallInfo) -> Embeddings | None:
        return None

    def call(self, request: Request, info: CallInfo, lost: Losses) -> LocalCall:
        context = Context(
            info.run_id, info.thread_id, info.created_at, None, self.model_for(request.model), request, lost
        )
        return LocalCall(self._agent, request, context)


class LocalCall(BaseCall):
    """One run of the generator."""

    sent: WireRequest | None = None

    def __init__(self, agent: Agent, request: Request, context: Context) -> None:
        self.context = context
        super().__init__()
        self._agent = agent
        self._request = request
        self._items: AsyncIterator[Yielded] | None = None
        self._count = 0
        self._builder = context.builder()
        self._builder.begin(model=context.model)
        self._adapter = YieldAdapter(self._builder)

    async def open(self) -> None:
        items: object = self._agent(self._request)
        if inspect.iscoroutine(items):
            items.close()
        if not isinstance(items, AsyncIterator):
            kind = type(items).__name__
            raise BackendError(
                f"The agent must be an async generator (async def with yield), but it returned a {kind}."
            )
        self._items = items

    async def read(self) -> list[Event]:
        assert self._items is not None, "read() before open()"
        builder = self._builder
        if builder.done:
            return []
        self._count += 1
        if not self._count % _BREATH:
            # An agent that never awaits would hold the loop until it is done.
            await asyncio.sleep(0)
        try:
            item = await anext(self._items)
            self.received += _size(item)
            self._adapter.add(item)
        except StopAsyncIteration:
            if not builder.finishing:
                builder.finish()
            builder.end()
        except BridgeError as error:
            builder.fail(error.failure)
        except Exception as error:
            log.error("run %s: the agent failed: %s", self.context.run_id, _told(error))
            builder.fail(Failure(ErrorCode.BACKEND_ERROR, f"The agent failed ({type(error).__name__})."))
        events = builder.take()
        if events and type(events[-1]) in TERMINAL:
            self.wire_ended = True
        return events

    def fail(self, failure: Failure) -> list[Event]:
        self._builder.close(failure)
        return self._builder.take()

    async def close(self) -> None:
        close = getattr(self._items, "aclose", None)
        if close is not None:
            try:
                async with asyncio.timeout(_LAST_WORDS):
                    await close()
            except Exception as error:
                log.warning(
                    "run %s: the agent raised %s while it was closed", self.context.run_id, type(error).__name__
                )


def _told(error: Exception) -> str:
    """Return an exception of the agent for its author: its words, and the lines of the agent that led to it.

    Nothing that looks like a key is in it.
    """
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    lines = "".join(traceback.format_list(frames[-_FRAMES:])).rstrip()
    words = masked("".join(traceback.format_exception_only(error)).strip(), _LONGEST_TRACE)
    return f"{words}\n{masked(lines, _LONGEST_TRACE)}" if lines else words


def _size(item: Yielded) -> int:
    """Bytes that the item counts for in the limit of an answer; what has no text of its own counts as an event."""
    match item:
        case str():
            return len(item)
        case pt.Media(source=pt.Inline() as inline):
            return len(inline.base64)
        case _:
            return len(getattr(item, "text", ""))


class YieldAdapter:
    """Passes what a generator yields to a builder."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._message: Any = "agent"

    def add(self, item: Yielded) -> None:
        """Raises `TypeError` for what is neither text nor part nor event."""
        match item:
            case str():
                if item:
                    self._builder.flow(self._message, PartKind.TEXT, item)
            case pt.Text() | pt.Reasoning() | pt.Refusal() | pt.ToolCall() | pt.ToolResult() | pt.Media() | pt.Data():
                self._builder.add(self._message, item)
            case _:
                self._event(item)

    def _event(self, event: Event) -> None:
        builder = self._builder
        match event:
            case ev.RunStarted():
                builder.begin(model=event.model, metadata=event.metadata, extras=event.extras)
            case ev.MessageStarted():
                self._message = event.message_id
                builder.message(
                    event.message_id,
                    message_id=event.message_id,
                    role=event.role,
                    name=event.name,
                    choice=event.choice,
                    extras=event.extras,
                )
            case ev.PartStarted():
                builder.open_part(
                    event.part_id,
                    event.message_id,
                    event.kind,
                    part_id=event.part_id,
                    call_id=event.call_id,
                    name=event.name,
                    origin=event.origin,
                    server_label=event.server_label,
                    extras=event.extras,
                )
            case ev.TextDelta() | ev.ReasoningDelta() | ev.ArgsDelta():
                self._delta(event)
            case ev.PartEnded():
                builder.end_part(event.part_id, signature=event.signature, redacted=event.redacted, extras=event.extras)
            case ev.MessageEnded():
                builder.end_message(event.message_id, event.status, event.reason, event.extras)
                self._message = object()
            case ev.ContentAdded():
                builder.add(event.message_id if builder.is_open(event.message_id) else self._message, event.part)
            case ev.ToolResulted():
                builder.result(
                    event.call_id,
                    event.parts,
                    name=event.name,
                    is_error=event.is_error,
                    message_id=event.message_id,
                    extras=event.extras,
                )
            case ev.UsageReported():
                builder.usage(event)
            case ev.Interrupted():
                builder.interrupt(event)
                builder.finish(ev.FinishReason.INTERRUPTED)
            case ev.RunFinished():
                builder.finish(event.reason, event.extras)
            case ev.RunFailed():
                builder.fail(event.error, event.extras)
            case ev.StepStarted() | ev.StepEnded() | ev.StateChanged() | ev.Custom() | ev.Raw() | ev.Heartbeat():
                builder.emit(event)
            case _:
                raise TypeError(
                    f"an agent yields strings, parts or events of bridge.model (Text, Reasoning, ToolCall, ToolResult, "
                    f"Media, UsageReported, ...), not {type(event).__name__}"
                )

    def _delta(self, event: ev.Delta) -> None:
        """A delta of a part that was never opened is text (or reasoning) that simply flows."""
        builder = self._builder
        if builder.part(event.part_id) is not None:
            builder.delta(event.part_id, event.text, event.extras)
        elif isinstance(event, ev.ArgsDelta):
            raise TypeError("an ArgsDelta needs an open tool call: yield PartStarted first, or a whole ToolCall")
        elif event.text:
            kind = PartKind.REASONING if isinstance(event, ev.ReasoningDelta) else PartKind.TEXT
            builder.flow(self._message, kind, event.text, event.extras)
