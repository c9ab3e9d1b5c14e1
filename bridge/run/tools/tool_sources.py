"""Server-side tools: offered to a backend's model, and run here when it calls them.

A route may have a source of tools, such as a gateway where they register. Its backend's model gets them beside the
client's own; its calls of them are run, and it continues with the results until it answers or the rounds are used up.
To the client all rounds are one run, of a backend that runs tools by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Protocol, cast

from bridge.contract import (
    Capabilities,
    Context,
    Feature,
    Losses,
    Options,
    RunsTools,
    Support,
    ToolHostDialect,
    WireRequest,
)
from bridge.contract import WireResponse as Wire
from bridge.contract.optional.tool_host import OfferedTool
from bridge.errors import BackendError, BridgeError, ErrorCode
from bridge.model import Request, ToolCall, ToolMode, ToolResulted
from bridge.model.jsontext import loads
from bridge.run.backend import Backend, Call, CallInfo
from bridge.run.tools.rounds import Rounds, not_run
from bridge.run.wrapped import WrappedBackend

log = logging.getLogger("bridge.tools")

Ask = Callable[[str, bytes, float, Mapping[str, str]], Awaitable[bytes]]
"""Calls a path with a message and returns the answer. Further arguments: the timeout in seconds, and headers that are
sent with those of the backend. Raises `BackendError`.
"""

_LIST_SECONDS = 5.0
_CALL_SECONDS = 30.0


class Tools(Protocol):
    """The tools that a model may call beside its client's tools."""

    async def offered(self) -> list[OfferedTool]:
        """The tools that are there now. Raises `BackendError`."""

    async def call(self, tool: OfferedTool, call: ToolCall, info: CallInfo, seconds: float) -> ToolResulted:
        """Return the tool's result; any error is a result, too, so that the model can react to it."""


class ToolSource:
    """`Tools` that are found and called at a place which a dialect knows."""

    def __init__(self, dialect: ToolHostDialect, options: Options, ask: Ask) -> None:
        self._dialect = dialect
        self._options = options
        self._ask = ask

    async def offered(self) -> list[OfferedTool]:
        wire = self._dialect.tools_request()
        return self._dialect.decode_tools(await self._answer(wire, _LIST_SECONDS, {}), self._options)

    async def call(
        self,
        tool: OfferedTool,
        call: ToolCall,
        info: CallInfo,
        seconds: float,
        trace: Mapping[str, str] = MappingProxyType({}),
    ) -> ToolResulted:
        """`trace`: the headers that name the span of this call."""
        try:
            arguments = loads(call.arguments or "{}")
            if not isinstance(arguments, dict):
                raise ValueError(f"expected a JSON object, got {type(arguments).__name__}")
        except ValueError as error:
            return not_run(call, f"The arguments cannot be read: {error}.")
        context = Context(info.run_id, info.thread_id, info.created_at, self._options)
        try:
            wire = self._dialect.call_request(tool, arguments, context)
            parts, is_error = self._dialect.decode_call(await self._answer(wire, seconds, trace))
        except BridgeError as error:
            return not_run(call, _why(error, seconds))
        return ToolResulted(call.call_id, parts, call.name, is_error)

    async def _answer(self, wire: WireRequest, seconds: float, forwarded: Mapping[str, str]) -> Wire:
        body = await self._ask(wire.path, wire.body, seconds, forwarded)
        return Wire(200, {"content-type": self._dialect.content_type}, body)


def _why(error: BridgeError, seconds: float) -> str:
    """Return for a model why a tool gave no result: the message of a transport alone is of no use to it."""
    match error.code:
        case ErrorCode.BACKEND_TIMEOUT:
            return f"The tool did not answer within {seconds:g} s."
        case ErrorCode.BACKEND_UNAVAILABLE:
            return f"The tool cannot be reached, or broke off ({error.message})."
        case ErrorCode.TOO_LARGE:
            return f"What the tool was sent or answered is too large ({error.message})."
    return error.message


async def with_tools(backend: Backend, source: Tools, rounds: int, lost: Losses) -> Backend:
    """Return the backend with the source's current tools; unchanged if it does not support tools.

    If the source does not answer, the request continues without its tools: the loss is reported and logged.
    """
    if backend.capabilities.request(Feature.TOOLS) in (Support.DROP, Support.REFUSE):
        return backend
    try:
        offered = await source.offered()
    except BackendError as error:
        log.warning("backend %s: its tools cannot be listed: %s", backend.name, error.message)
        lost.add(Feature.TOOLS, "the route's tools cannot be listed")
        return backend
    return cast("Backend", WithTools(backend, source, offered, rounds)) if offered else backend


@lru_cache
def _running_tools(capabilities: Capabilities) -> Capabilities:
    return replace(capabilities, runs_tools=RunsTools.UNLISTED)


class WithTools(WrappedBackend):
    """A backend that runs the tools it was given by itself."""

    def __init__(self, backend: Backend, source: Tools, offered: Sequence[OfferedTool], rounds: int) -> None:
        super().__init__(backend)
        self.source = source
        self.rounds = rounds
        if backend.capabilities.runs_tools is RunsTools.NEVER:
            self.capabilities = _running_tools(backend.capabilities)
        self._offered = offered

    def call(self, request: Request, info: CallInfo, lost: Losses) -> Call:
        """A client's own tool hides one of the same name. A client that wants several answers, or no tools, gets
        none.
        """
        several = request.sampling.n is not None and request.sampling.n > 1
        if several or (request.tool_choice is not None and request.tool_choice.mode is ToolMode.NONE):
            return self.inner.call(request, info, lost)
        theirs = {tool.name for tool in request.tools or ()}
        own = {o.tool.name: o for o in self._offered if o.tool.name not in theirs}
        tools = [*(request.tools or ()), *(o.tool for o in own.values())]
        return Rounds(self, own, replace(request, tools=tools), info, lost)

    @property
    def call_seconds(self) -> float:
        """A tool has to be done before the run takes its backend for silent."""
        idle = self.timeouts.idle
        return min(_CALL_SECONDS, idle * 0.8) if idle else _CALL_SECONDS
