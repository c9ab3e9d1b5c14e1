"""The dialect `aip`: agents in sessions over gRPC, both sides. A frame is one message, without framing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.contract import (
    Capabilities,
    Context,
    EncoderLike,
    Endpoint,
    Framing,
    ModelInfo,
    ModelsDialect,
    Operation,
    Options,
    SessionDialect,
    ToolHostDialect,
    WireRequest,
    WireResponse,
)
from bridge.contract.dialect import Decoder as AnyDecoder
from bridge.contract.optional.sessions import (
    AgentRegistry,
    CallerSession,
    Channel,
    OwnAgent,
    RegisteredNode,
    Registration,
    without_scheme,
)
from bridge.contract.optional.tool_host import OfferedTool
from bridge.dialects.aip import (
    errors,
    read_request,
    tools,
    write_answer,
    write_request,
)
from bridge.dialects.aip.caller import Caller
from bridge.dialects.aip.capabilities import CAPABILITIES, card
from bridge.dialects.aip.gateway import EVERY_DOMAIN, Gateway, info_of, options_of
from bridge.dialects.aip.options import CANCEL_GRACE, MAX_MESSAGE, BackOptions, FrontOptions, Tls
from bridge.dialects.aip.read_answer import Decoder
from bridge.dialects.aip.read_request import CONTENT_TYPE, NAME
from bridge.dialects.aip.registration import Membership
from bridge.dialects.aip.wire import AgentMessage, ContentItem, SessionStatus, TaskInfo
from bridge.errors import ErrorCode, Failure
from bridge.model import Event, Part, Request

_GATEWAY = "/grpc_service.GatewayService/"
_TOOL = "/grpc_service.ToolService/"


class AIP(SessionDialect, ToolHostDialect, ModelsDialect):
    """Both sides of an agent session; one turn of it is one run."""

    name = NAME
    url = "127.0.0.1:50051"
    capabilities = CAPABILITIES
    framing = Framing.MESSAGES
    content_type = CONTENT_TYPE
    surface = (
        Endpoint("POST", write_request.CALL_AGENT, Operation.SESSION),
        Endpoint("POST", write_request.ROUTE_AGENT, Operation.SESSION),
        Endpoint("POST", f"{_TOOL}CallTool", Operation.CALL),
        Endpoint("POST", f"{_GATEWAY}RouteToolCalling", Operation.CALL),
        Endpoint("POST", f"{_GATEWAY}RegisterAgent", Operation.REGISTER),
        Endpoint("POST", f"{_GATEWAY}RegisterTool", Operation.REGISTER),
        Endpoint("POST", f"{_GATEWAY}DeregisterNode", Operation.DEREGISTER),
        Endpoint("POST", f"{_GATEWAY}GetNodes", Operation.DISCOVER),
        Endpoint("POST", f"{_GATEWAY}Heartbeat", Operation.BEAT),
        Endpoint("POST", f"{_GATEWAY}UpdateNodeInfo", Operation.UPDATE),
        Endpoint("POST", f"{_GATEWAY}SubscribeToUpdates", Operation.SUBSCRIBE),
        Endpoint("POST", f"{_GATEWAY}Unsubscribe", Operation.DISCOVER),
    )
    needs = ("grpc",)
    extra = "aip"
    front_options = FrontOptions
    back_options = BackOptions

    # ------------------------------------------------------------- sessions

    def channel(self, options: Options) -> Channel:
        if not isinstance(options, FrontOptions | BackOptions):
            return Channel(MAX_MESSAGE)
        tls = options.tls or Tls()
        grace = options.cancel_grace if isinstance(options, BackOptions) else CANCEL_GRACE
        idle = options.session_idle if isinstance(options, BackOptions) else options.idle_timeout
        return Channel(options.max_message, tls.ca, tls.cert, tls.key, grace, idle)

    def session_key(self, request: Request, context: Context) -> str | None:
        return request.thread_id if BackOptions.of(context).session == "keep" else None

    def single_process_options(self, options: Options) -> list[str]:
        if not isinstance(options, BackOptions):
            return []
        found = {"expose_client_tools": options.expose_client_tools, "session": options.session == "keep"}
        return [name for name, on in found.items() if on]

    def caller(self, context: Context) -> CallerSession:
        return Caller(context)

    def agent_registry(self, address: str, agents: Mapping[str, OwnAgent]) -> AgentRegistry:
        return Gateway(address, agents)

    def registration(self, address: str, agent_id: str, agent: OwnAgent) -> Registration | None:
        options = options_of(agent)
        if options.mode == "gateway":
            return None
        key = options.gateway_key.get_secret_value() if options.gateway_key is not None else ""
        return Membership(options.gateway, info_of(agent_id, without_scheme(options.advertise or address), agent), key)

    # ------------------------------------------------------------- as the front

    def capabilities_with(self, options: Options) -> Capabilities:
        return card(options) if isinstance(options, FrontOptions) else CAPABILITIES

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        return read_request.decode_request(wire)

    def encoder(self, context: Context) -> EncoderLike:
        return write_answer.TurnEncoder(context)

    def encode_error(self, failure: Failure) -> WireResponse:
        return errors.encode_error(failure)

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        message = AgentMessage(
            "example", "bridge", "example", SessionStatus.START_QUEST, TaskInfo("task"), "msg", "", [ContentItem(text)]
        )
        return WireRequest("POST", write_request.CALL_AGENT, {"content-type": CONTENT_TYPE}, body=message.to_bytes())

    # ------------------------------------------------------------- as the back

    def encode_request(self, request: Request, context: Context) -> WireRequest:
        return write_request.encode_request(request, context)

    def decoder(self, context: Context) -> AnyDecoder:
        return Decoder(context)

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        """Read a single message as the whole answer."""
        decoder = Decoder(context)
        declared = wire.content_type
        if declared not in (CONTENT_TYPE, "application/grpc"):
            text = f"The agent's answer is no message: expected {CONTENT_TYPE}, got {declared[:40] or 'nothing'}."
            return decoder.close(Failure(ErrorCode.BACKEND_PROTOCOL, text))
        return [*decoder.feed([wire.body]), *decoder.close()]

    def decode_error(self, wire: WireResponse) -> Failure:
        return errors.ERRORS.decode(wire)

    def nodes_request(self, domain: str | None = None) -> WireRequest:
        return tools.nodes_request("bridge", domain or EVERY_DOMAIN)

    def decode_nodes(self, wire: WireResponse) -> list[RegisteredNode]:
        return tools.nodes_of(wire)

    def models_request(self) -> WireRequest:
        return self.nodes_request()

    def own_tools(self, options: Options) -> int | None:
        offers = isinstance(options, FrontOptions) and options.tools == "gateway"
        return options.max_tool_rounds if isinstance(options, FrontOptions) and offers else None

    def tools_request(self) -> WireRequest:
        return self.nodes_request()

    def decode_tools(self, wire: WireResponse, options: Options) -> list[OfferedTool]:
        generation = options.generation if isinstance(options, FrontOptions | BackOptions) else "auto"
        return tools.offered(wire, "tool" if generation == "auto" else generation)

    def call_request(self, tool: OfferedTool, arguments: Mapping[str, Any], context: Context) -> WireRequest:
        return tools.call_request(tool, arguments, context)

    def decode_call(self, wire: WireResponse) -> tuple[list[Part], bool]:
        return tools.answer_of(wire)

    def decode_models(self, wire: WireResponse) -> list[ModelInfo]:
        return [ModelInfo(node.node_id) for node in tools.nodes_of(wire) if node.kind == "agent"]


dialect = AIP()
