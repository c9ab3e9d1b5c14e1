"""A client's tools where the agents of a registry find them: served here for as long as their session lives.

An agent's call is sent to the client as a tool call, and the client's result is the response to the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import grpc
import grpc.aio

from bridge.contract import Dialect
from bridge.contract.optional.sessions import Channel, ClientTools, Refuse, Registration, Respond
from bridge.errors import BackendError, ErrorCode
from bridge.model import Text, ToolCall, ToolResult
from bridge.run.backends.grpc.channels import add_port, channel_options
from bridge.run.backends.grpc.registration import stay

_GOODBYE = 5.0
"""Seconds to deregister the tools."""


class ClientToolBroker:
    """The tools of one session. `open` it inside the running loop, and `close` it in any case."""

    def __init__(self, tools: ClientTools, registry: str, key: str, dialect: Dialect, settings: Channel) -> None:
        self.tools = tools
        self.came = asyncio.Event()
        """Set while a call waits to be taken."""
        self._registry = registry
        self._key = key
        self._dialect = dialect
        self._settings = settings
        self._server: grpc.aio.Server | None = None
        self._new: dict[str, ToolCall] = {}
        self._waiting: dict[str, asyncio.Future[ToolResult]] = {}
        self._chores: list[asyncio.Task[None]] = []
        self._given_up = False

    async def open(self) -> None:
        """Serves and registers them all. Raises `BackendError` when the registry does not take one."""
        server = grpc.aio.server(options=channel_options(self._settings))
        server.add_generic_rpc_handlers((_Handler(self),))
        address = f"{self.tools.host}:0"
        try:
            ports = [add_port(server, address, self._settings) for _ in range(self.tools.places)]
        except (RuntimeError, OSError):
            text = f"The client's tools cannot be offered: {self.tools.host} cannot be listened on."
            raise BackendError(text, code=ErrorCode.BACKEND_UNAVAILABLE) from None
        await server.start()
        self._server = server
        registrations = self.tools.registrations(
            self._registry, [f"{self.tools.host}:{port}" for port in ports], self._key
        )
        for failed in await asyncio.gather(*map(self._register, registrations), return_exceptions=True):
            if failed is not None:
                raise failed

    async def _register(self, registration: Registration) -> None:
        """Returns when it is known for the first time; it stays so beside the runs."""
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def told(known: bool, why: str) -> None:
            if first.done():
                return
            if known:
                first.set_result(None)
            else:
                text = f"The client's tools could not be registered where the agent finds them: {why}."
                first.set_exception(BackendError(text, code=ErrorCode.BACKEND_UNAVAILABLE))

        self._chores.append(
            asyncio.get_running_loop().create_task(stay(registration, self._dialect, self._settings, told))
        )
        await first

    def take(self) -> list[ToolCall]:
        """The calls that came since the last time."""
        self.came.clear()
        calls, self._new = list(self._new.values()), {}
        return calls

    def answer(self, call_ids: Iterable[str], results: Mapping[str, ToolResult]) -> None:
        """Return the client's results of these calls; a call without one gets a result that reports this."""
        for call_id in call_ids:
            waiting = self._waiting.get(call_id)
            if waiting is not None and not waiting.done():
                waiting.set_result(results.get(call_id) or _silence(call_id))

    def give_up(self) -> None:
        """End the wait for results: pending and later calls get an error."""
        self._given_up = True
        self.answer(list(self._waiting), {})

    async def close(self) -> None:
        """Deregister the tools, and fail callers that still wait. May be repeated."""
        self.give_up()
        chores, self._chores = self._chores, []
        for chore in chores:
            chore.cancel()
        if chores:
            await asyncio.wait(chores, timeout=_GOODBYE)
        server, self._server = self._server, None
        if server is not None:
            await server.stop(_GOODBYE)

    async def call(self, body: bytes, rpc: Any) -> bytes:
        """Answer one call of an agent with the client's result, or with an error when the time is over."""
        request = self.tools.called(body)
        if isinstance(request, Refuse):
            await rpc.abort(grpc.StatusCode[request.status], request.details)
            raise AssertionError("unreachable: abort raises")
        if isinstance(request, Respond):
            return request.body
        if self._given_up:
            return self.tools.answer(body, _silence(request.call_id))
        waiting = self._waiting[request.call_id] = asyncio.get_running_loop().create_future()
        self._new[request.call_id] = request
        self.came.set()
        result = _silence(request.call_id)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.tools.wait):
                    result = await waiting
        finally:
            del self._waiting[request.call_id]
            self._new.pop(request.call_id, None)
        return self.tools.answer(body, result)


def _silence(call_id: str) -> ToolResult:
    return ToolResult(call_id, [Text("the client sent no result")], is_error=True)


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Nothing is served here but the tools."""

    def __init__(self, broker: ClientToolBroker) -> None:
        self._broker = broker

    def service(self, details: Any) -> Any:
        known = details.method == self._broker.tools.path
        return grpc.unary_unary_rpc_method_handler(self._broker.call) if known else None
