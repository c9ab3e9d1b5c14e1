"""Backends and tools whose calls are spans: wrappers, of which they know nothing. What is not traced is not wrapped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from opentelemetry.trace import Span, SpanKind

from bridge.contract import Dialect, Losses, RunsTools
from bridge.contract.optional.tool_host import OfferedTool
from bridge.engine.telemetry.tracing import Tracing, carried, carrier_of, failed
from bridge.errors import BridgeError, ErrorCode, Failure
from bridge.model import Event, Request, RunFailed, RunFinished, RunStarted, ToolCall, ToolResulted
from bridge.model.events import CONTENT, TERMINAL, UsageReported
from bridge.run.backend import Backend, Call, CallInfo
from bridge.run.tools.tool_sources import Tools, ToolSource
from bridge.run.wrapped import WrappedBackend, WrappedCall

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

_CANCELED = str(ErrorCode.CANCELED)
_TOOL_ERROR = "tool_error"


class TracedBackend(WrappedBackend):
    """A backend with a span for each call."""

    def __init__(self, backend: Backend, tracing: Tracing, provider: str, url: str | None) -> None:
        """`provider`: the vendor of its protocol; `url`: its address."""
        super().__init__(backend)
        self._tracing = tracing
        # Who answers calls of its own is an agent.
        is_agent = backend.capabilities.runs_tools is not RunsTools.NEVER
        self._operation = "invoke_agent" if is_agent else "chat"
        self._kind = SpanKind.CLIENT if url else SpanKind.INTERNAL
        self._always: dict[str, AttributeValue] = {
            "gen_ai.operation.name": self._operation,
            "gen_ai.provider.name": provider,
            "bridge.backend": backend.name,
            **({"gen_ai.agent.name": backend.name} if is_agent else {}),
            **_place(url),
        }

    def forwards(self, headers: Mapping[str, str], front: Dialect) -> dict[str, str]:
        """With the context of the request. That of a run which another process begins is kept with it."""
        return {**self.inner.forwards(headers, front), **(carrier_of() or carried(headers))}

    @property
    def tools(self) -> Tools:
        """Return the attribute of the backend. Raises `AttributeError` if it has none."""
        return TracedTools(self.inner.tools, self._tracing)  # type: ignore[attr-defined]

    def call(self, request: Request, info: CallInfo, lost: Losses) -> Call:
        model = self.inner.model_for(request.model)
        name = f"{self._operation} {model if self._operation == 'chat' else self.inner.name}".removesuffix(" None")
        attributes = {**self._always, **_request_attributes(request, model), "bridge.run_id": info.run_id}
        span = self._tracing.call(name, carried(info.forwarded), self._kind, attributes)
        try:
            call = self.inner.call(request, replace(info, forwarded={**info.forwarded, **carrier_of(span)}), lost)
        except BridgeError as error:
            failed(span, str(error.code))
            span.end()
            raise
        return _TracedCall(call, span) if span.is_recording() else call


class _TracedCall(WrappedCall):
    """A call that notes in its span how it went. Deltas need not pass here: they come after the first content."""

    def __init__(self, call: Call, span: Span) -> None:
        super().__init__(call)
        self._span = span
        self._began = time.monotonic()
        self._spoke = self._ended = False

    async def open(self) -> None:
        self._began = time.monotonic()
        try:
            await self.inner.open()
        except BridgeError as error:
            self._failed(str(error.code))
            raise

    async def read(self) -> list[Event]:
        return self._noted(await self.inner.read())

    def fail(self, failure: Failure) -> list[Event]:
        return self._noted(self.inner.fail(failure))

    async def close(self) -> None:
        await self.inner.close()
        if not self._ended:
            self._span.set_attribute("error.type", _CANCELED)
        self._span.end()

    def _failed(self, code: str) -> None:
        self._ended = True
        failed(self._span, code)

    def _noted(self, events: list[Event]) -> list[Event]:
        if not self._spoke:
            for event in events:
                if isinstance(event, RunStarted) and event.model:
                    self._span.set_attribute("gen_ai.response.model", event.model)
            if not CONTENT.isdisjoint(map(type, events)):
                self._spoke = True
                self._span.set_attribute("gen_ai.response.time_to_first_chunk", time.monotonic() - self._began)
        if events and type(events[-1]) in TERMINAL and not self._ended:
            self._end(events)
        return events

    def _end(self, events: list[Event]) -> None:
        self._ended = True
        for event in events:
            match event:
                case UsageReported():
                    self._span.set_attributes(_usage(event))
                case RunFinished():
                    self._span.set_attribute("gen_ai.response.finish_reasons", [str(event.reason)])
                case RunFailed():
                    failed(self._span, str(event.error.code))
                case _:
                    pass


class TracedTools:
    """Tools with a span for each call, below that of the request, whose context the tool is shown."""

    def __init__(self, source: ToolSource, tracing: Tracing) -> None:
        self._source = source
        self._tracing = tracing

    async def offered(self) -> list[OfferedTool]:
        return await self._source.offered()

    async def call(self, tool: OfferedTool, call: ToolCall, info: CallInfo, seconds: float) -> ToolResulted:
        about: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.call_id,
            "bridge.run_id": info.run_id,
        }
        span = self._tracing.call(f"execute_tool {call.name}", carried(info.forwarded), SpanKind.CLIENT, about)
        try:
            result = await self._source.call(tool, call, info, seconds, carrier_of(span))
            if result.is_error:
                failed(span, _TOOL_ERROR)
            return result
        except asyncio.CancelledError:
            span.set_attribute("error.type", _CANCELED)
            raise
        finally:
            span.end()


def _place(url: str | None) -> dict[str, AttributeValue]:
    """Host and port; never the rest of a URL, which may hold secrets. A gRPC address has no scheme."""
    if not url:
        return {}
    parts = urlsplit(url if "://" in url else f"//{url}")
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return {"server.address": parts.hostname or "", **({"server.port": port} if port else {})}


def _request_attributes(request: Request, model: str | None) -> dict[str, AttributeValue]:
    sampling = request.sampling
    attributes: dict[str, AttributeValue | None] = {
        "gen_ai.request.model": model,
        "gen_ai.request.stream": request.stream,
        "gen_ai.conversation.id": request.thread_id,
        "gen_ai.request.max_tokens": sampling.max_tokens,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.seed": sampling.seed,
        "gen_ai.request.choice.count": sampling.n if sampling.n != 1 else None,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _usage(usage: UsageReported) -> dict[str, AttributeValue]:
    attributes = {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
        "gen_ai.usage.cache_creation.input_tokens": usage.written,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
    }
    return {name: count for name, count in attributes.items() if count is not None}
