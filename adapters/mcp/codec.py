"""The dialect `mcp`: clients list tools and call them, over HTTP or standard input; each tool is an agent.

Why a route is a server, and its backends are the tools: a client connects to one server at a time and shows its tools
together, while a route is what has a path, keys, limits and options. So the configuration says which backends are
offered, under which names and with which keys; no other route is offered by itself. The run of a call is that of any
other frontend, with the same history, limits and fallback.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bridge.contract import (
    Capabilities,
    Context,
    EncoderLike,
    Endpoint,
    ModesDialect,
    Operation,
    Options,
    TaskCall,
    TaskStatus,
    ToolAddress,
    ToolEncoder,
    ToolMessage,
    ToolServerDialect,
    ToolSite,
    WireRequest,
    WireResponse,
    json_request,
    json_response,
)
from bridge.dialects.mcp import errors, read_messages, tasks
from bridge.dialects.mcp.capabilities import CAPABILITIES, card
from bridge.dialects.mcp.options import FrontOptions
from bridge.dialects.mcp.read_request import notes_of, read_request
from bridge.dialects.mcp.tools import tools_of
from bridge.dialects.mcp.wire import (
    CAPABILITIES_KEY,
    METHOD_HEADER,
    NAME,
    NAME_HEADER,
    NAMED,
    SESSION_HEADER,
    STATELESS,
    VERSION_HEADER,
    VERSION_KEY,
    WITH_BATCHES,
    Method,
    Wire,
    header_value,
    written,
)
from bridge.dialects.mcp.write_answer import CallEncoder
from bridge.errors import Failure, RequestError
from bridge.model import Event, Request
from bridge.model.jsontext import dict_of, text_of


class MCP(ToolServerDialect, ModesDialect):
    """The server's side of MCP."""

    name = NAME
    capabilities = CAPABILITIES
    called = False
    event_ids = False
    modes = ()
    own_headers = (VERSION_HEADER, SESSION_HEADER, METHOD_HEADER, NAME_HEADER)
    surface = (
        Endpoint("POST", "", Operation.TOOLS),
        Endpoint("DELETE", "", Operation.TOOLS),
    )
    front_options = FrontOptions
    spoken_by = ("model-context-protocol", "mcp-server")

    def capabilities_with(self, options: Options) -> Capabilities:
        return card(structured=isinstance(options, FrontOptions) and options.structured)

    def mode_of(self, request: Request) -> str | None:
        return notes_of(request).tool

    # ------------------------------------------------------------- messages

    def batch(self, wire: WireRequest, context: Context) -> list[WireRequest] | None:
        return read_messages.batch(wire, context)

    def decode_message(self, wire: WireRequest, context: Context) -> ToolMessage:
        return read_messages.decode_message(wire, context)

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        return read_request(read_messages.read_call(wire, context), context)

    def tool_encoder(self, context: Context, before: ToolEncoder | None = None) -> ToolEncoder:
        return CallEncoder(context, before if isinstance(before, CallEncoder) else None)

    def encoder(self, context: Context) -> EncoderLike:
        return CallEncoder(context)

    def assemble(self, events: Sequence[Event], context: Context) -> WireResponse:
        encoder = CallEncoder(context)
        frames = encoder.encode(events)
        last = frames[-1] if frames else b""
        return json_response(last if isinstance(last, bytes) else last.data)

    def encode_error(self, failure: Failure) -> WireResponse:
        return errors.encode_error(failure)

    def tool_names(self, options: Options, site: ToolSite) -> Sequence[str]:
        return list(tools_of(options if isinstance(options, FrontOptions) else FrontOptions(), site))

    def undescribed(self, options: Options) -> Sequence[str]:
        return () if not isinstance(options, FrontOptions) or options.description else ("description",)

    # ------------------------------------------------------------- tasks

    def continues(self, request: Request, runs: Sequence[TaskStatus]) -> Request:
        return tasks.continues(request, runs)

    def encode_task_now(self, call: TaskCall, runs: Sequence[TaskStatus]) -> WireResponse:
        return tasks.encode_task_now(call, runs)

    def not_cancelable(self, task_id: str) -> RequestError:
        return tasks.not_cancelable()

    # ------------------------------------------------------------- without HTTP

    session_header = SESSION_HEADER

    def address(self, message: Mapping[str, Any]) -> ToolAddress:
        method, params = text_of(message.get("method")), dict_of(message.get("params"))
        match method:
            case Method.INITIALIZE:
                return ToolAddress(every=True, opens=True, batches=params.get("protocolVersion") == WITH_BATCHES)
            case Method.DISCOVER | Method.LIST:
                return ToolAddress(every=True)
            case Method.GET_TASK | Method.UPDATE_TASK | Method.CANCEL_TASK:
                return ToolAddress(task=text_of(params.get("taskId")) or "-")
            case Method.CANCELLED:
                return ToolAddress(cancels=params.get("requestId"))
        return ToolAddress(text_of(params.get("name")))

    def cancellation(self, call_id: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "method": Method.CANCELLED, "params": {"requestId": call_id}}

    def carried(self, message: Mapping[str, Any], session: str) -> WireRequest:
        params = dict_of(message.get("params"))
        method = text_of(message.get("method"))
        headers = {"accept": "application/json, text/event-stream"}
        version = dict_of(params.get("_meta")).get(VERSION_KEY)
        if isinstance(version, str):
            headers |= {VERSION_HEADER: header_value(version), METHOD_HEADER: header_value(method)}
            if isinstance(named := params.get(NAMED.get(method, "")), str):
                headers[NAME_HEADER] = header_value(named)
        elif session and method != Method.INITIALIZE:
            headers[SESSION_HEADER] = session
        return json_request("", written(dict(message)), headers)

    def merged(self, message: Mapping[str, Any], results: Sequence[Any]) -> Any:
        first: Wire = dict(results[0])
        if message.get("method") == Method.LIST:
            return {**first, "tools": [tool for each in results for tool in each.get("tools", ())]}
        first["capabilities"] = {k: v for each in results for k, v in dict_of(each.get("capabilities")).items()}
        if told := [each["instructions"] for each in results if each.get("instructions")]:
            first["instructions"] = "\n\n".join(told)
        return first

    def example_call(self, tool: str, text: str, *, stream: bool = True) -> WireRequest:
        meta: Wire = {VERSION_KEY: STATELESS, CAPABILITIES_KEY: {}, **({"progressToken": 1} if stream else {})}
        params = {"name": tool, "arguments": {"prompt": text}, "_meta": meta}
        return self.carried({"jsonrpc": "2.0", "id": 1, "method": Method.CALL, "params": params}, "")

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        return self.example_call("ask_backend", text, stream=stream)


dialect = MCP()
