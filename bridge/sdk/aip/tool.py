"""`Tool`: a function or an HTTP call that agents find and call through a gateway."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self

from bridge.contract import Endpoint
from bridge.contract.optional.sessions import Decision, Handle, Refuse, Respond, Serve, Visitor
from bridge.dialects.aip import wire
from bridge.dialects.aip.gateway import CALL_TOOL
from bridge.dialects.aip.gateway import Gateway as Machine
from bridge.sdk.aip.apis import ApiCall
from bridge.sdk.aip.content import new_id
from bridge.sdk.aip.data import (
    ContentItem,
    Mode,
    Peer,
    ToolInfo,
    ToolRequest,
    ToolResponse,
    UpdateNodeInfoRequest,
)
from bridge.sdk.aip.functions import FunctionCall
from bridge.sdk.aip.node import DEADLINE, InfoField, RegisteringNode
from bridge.sdk.aip.stubs import GatewayServiceStub

log = logging.getLogger("bridge.sdk.aip.tool")

Handler = Callable[[ToolRequest], ToolResponse | Awaitable[ToolResponse]]
_NO_ERROR = "No Error"
_ERROR = "Error executing tool: "
_UNHANDLED = "Handling request failure: "
_API_TIMEOUT = 30.0
_ROOM = 4096
"""Bytes of a message beside its content."""


class Tool(RegisteringNode):
    """A tool at `address`, "host:port". `arguments`: parameter -> its description.

    Its registration is `tool_info`, whose fields are also attributes.
    """

    arguments = InfoField[dict[str, str]]()

    @property
    def info(self) -> ToolInfo:
        """The registration, `tool_info`."""
        return self.tool_info

    def __init__(
        self,
        address: str,
        tool_id: str,
        name: str = "",
        domain: str = "default",
        description: str = "",
        version: str = "",
        input_mode: Sequence[int] = (Mode.TEXT,),
        output_mode: Sequence[int] = (Mode.TEXT,),
        arguments: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(address, **settings)
        self.tool_id = tool_id
        self.tool_info = ToolInfo(
            tool_id, self.address, name or tool_id, domain, list(input_mode), list(output_mode), description,
            dict(arguments or {}), version,
        )  # fmt: skip
        self._handler: Handler | None = None

    # ------------------------------------------------------------------ ready-made tools

    @classmethod
    def create_function_tool(
        cls,
        function: Callable[..., Any],
        address: str,
        tool_id: str | None = None,
        name: str | None = None,
        domain: str = "default",
        description: str | None = None,
        version: str = "",
        input_mode: Sequence[int] = (Mode.TEXT,),
        output_mode: Sequence[int] = (Mode.TEXT,),
        arguments: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Self:
        """A tool that calls `function`. Name, description and arguments are by default the function's.

        Raises `TypeError` for a function whose arguments have no names.
        """
        call = FunctionCall(function)
        name = name or call.name
        tool = cls(
            address, tool_id or new_id(name), name, domain, call.description if description is None else description,
            version, input_mode, output_mode, call.arguments if arguments is None else arguments, **settings,
        )  # fmt: skip
        return tool._running(call)

    @classmethod
    def create_api_tool(
        cls,
        address: str,
        api_url: str,
        api_method: str = "GET",
        api_headers: Mapping[str, str] | None = None,
        api_timeout: float = _API_TIMEOUT,
        tool_id: str | None = None,
        name: str | None = None,
        domain: str = "default",
        description: str = "",
        version: str = "",
        input_mode: Sequence[int] = (Mode.TEXT,),
        output_mode: Sequence[int] = (Mode.TEXT,),
        arguments: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Self:
        """A tool that calls an HTTP service; `{name}` in the URL is an argument, `api_timeout` in seconds.

        Raises `ValueError` for an unknown method or an invalid URL.
        """
        tool_id = tool_id or name or new_id("api_tool")
        tool = cls(
            address, tool_id, name or "", domain, description, version, input_mode, output_mode, None, **settings
        )
        call = ApiCall(api_url, api_method, api_headers, api_timeout, tool._settings.max_message - _ROOM)
        call.described = tool.tool_info.arguments = dict(call.arguments if arguments is None else arguments)
        return tool._running(call)

    creat_function_tool = create_function_tool
    """As the specification spells it."""
    creat_api_tool = create_api_tool

    def _running(self, call: Callable[[Mapping[str, Any]], Awaitable[Any]]) -> Self:
        """Answers requests with what `call` makes of their arguments; what it raises is the answer's error."""

        async def handle(request: ToolRequest) -> ToolResponse:
            try:
                result = await call(request.arguments)
            except Exception as error:
                # The caller gets any exception of a tool as an error; the model behind it may try again.
                log.info("tool %s: %s", self.tool_id, type(error).__name__)
                return self._response(request, error=f"{_ERROR}{error or type(error).__name__}")
            return self._response(request, str(result))

        return self.set_process_request_handler(handle)

    def _response(self, request: ToolRequest, text: str | None = None, error: str | None = None) -> ToolResponse:
        content = [] if text is None else [ContentItem(text=text)]
        return ToolResponse(
            self.tool_id, request.sender_id, request.session_id, error is not None, error or _NO_ERROR, content
        )

    # ------------------------------------------------------------------ life

    def set_process_request_handler(self, handler: Handler) -> Self:
        """`handler` answers every request; it may be a coroutine function."""
        self._handler = handler
        return self

    async def start(self) -> Self:
        await self._serve(ToolNode(self.address, self.tool_id), _Host(self))
        return self

    async def register_to_gateway(self, gateway_address: str) -> Self:
        """Raises `grpc.aio.AioRpcError`: ALREADY_EXISTS if the id or the address is in use."""
        await self._register(gateway_address, self.tool_info)
        return self

    async def update_tool_info(
        self,
        name: str | None = None,
        description: str | None = None,
        domain: str | None = None,
        version: str | None = None,
        input_mode: Sequence[int] | None = None,
        output_mode: Sequence[int] | None = None,
        arguments: Mapping[str, str] | None = None,
    ) -> Self:
        """Change the given fields, and update every gateway where the tool is registered."""
        changes = {"name": name, "description": description, "domain": domain, "version": version}
        for key, text in changes.items():
            if text is not None:
                setattr(self.tool_info, key, text)
        for key, modes in {"input_mode": input_mode, "output_mode": output_mode}.items():
            if modes is not None:
                setattr(self.tool_info, key, list(modes))
        if arguments is not None:
            self.tool_info.arguments = dict(arguments)
        update = UpdateNodeInfoRequest(self.tool_id, Peer(tool_info=self.tool_info))
        for registration in self._registrations:
            stub = GatewayServiceStub(self._channel(registration.gateway))
            await stub.UpdateNodeInfo(update, timeout=DEADLINE, metadata=self._shown(registration.gateway))
        return self

    async def answer(self, body: bytes) -> Respond | Refuse:
        """The unchanged answer to one call."""
        try:
            request = ToolRequest.from_bytes(body)
        except ValueError as error:
            # Arguments that cannot be read are the call's fault, like those that the function refuses.
            return Respond(self._response(ToolRequest(), error=f"{_ERROR}{error}").to_bytes())
        if self._handler is None:
            return Refuse("INTERNAL", f"{_UNHANDLED}the tool has no handler")
        try:
            answer = self._handler(request)
            response = await answer if inspect.isawaitable(answer) else answer
            return Respond(response.to_bytes())
        except Exception as error:
            log.exception("tool %s: the handler failed", self.tool_id)
            return Refuse("INTERNAL", f"{_UNHANDLED}{error}")


class ToolNode(Machine):
    """The address of one tool: no sessions, no registry. A call for another receiver is refused as tools do."""

    def __init__(self, address: str, tool_id: str) -> None:
        super().__init__(address, {})
        self._tool_id = tool_id

    def call(self, endpoint: Endpoint, body: bytes, now: float, by: Visitor) -> Decision:
        if endpoint.path != CALL_TOOL:
            return Refuse("UNIMPLEMENTED", "This is the address of a tool, not of a gateway.")
        try:
            receiver = wire.ToolRequest.from_bytes(body).receiver_id
        except ValueError as error:
            return Refuse("INVALID_ARGUMENT", f"CallTool: the request is not a message of this method ({error}).")
        if receiver not in ("", self._tool_id):
            return Refuse("INTERNAL", f"Handling request failure: this is not the tool {receiver[:80]!r}")
        return Handle(self._tool_id)

    def open(self, endpoint: Endpoint, first: bytes | None, now: float, by: Visitor) -> Decision:
        return Refuse("UNIMPLEMENTED", "This is the address of a tool, which has no sessions.")


class _Host:
    """See `bridge.server.grpc.grpc_server.GrpcHost`."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    async def session(self, reply: Serve, first: bytes, rpc: Any, leaving: asyncio.Event) -> None:
        raise NotImplementedError

    async def call(self, reply: Handle, body: bytes) -> Respond | Refuse:
        return await self._tool.answer(body)
