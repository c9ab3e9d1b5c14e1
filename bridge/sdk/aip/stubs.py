"""The services as a caller sees them: `GatewayServiceStub(channel).RegisterAgent(info)`, as generated stubs are used.

A method is a call of `grpc.aio` that takes and gives the messages of this package. No generated code, no descriptors.
"""

from __future__ import annotations

from typing import Any, ClassVar

from bridge.dialects.aip.wire import ToolResponse
from bridge.sdk.aip import data as d


def _bytes(message: Any) -> bytes:
    # Programs that use the toolbox generation write its requests themselves.
    return message if isinstance(message, bytes) else message.to_bytes()


class _Stub:
    """`channel` is a channel of `grpc.aio`. `METHODS`: name -> kind of call, and the class of the answer."""

    SERVICE: ClassVar[str]
    METHODS: ClassVar[dict[str, tuple[str, Any]]]

    def __init__(self, channel: Any) -> None:
        for name, (kind, answer) in self.METHODS.items():
            path = f"/grpc_service.{self.SERVICE}/{name}"
            call = getattr(channel, kind)(path, request_serializer=_bytes, response_deserializer=answer.from_bytes)
            setattr(self, name, call)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__} has no method {name!r}; there are: {', '.join(self.METHODS)}")


class AgentServiceStub(_Stub):
    """An agent, called directly."""

    SERVICE = "AgentService"
    METHODS: ClassVar[dict[str, tuple[str, Any]]] = {"CallAgent": ("stream_stream", d.AgentMessage)}


class ToolServiceStub(_Stub):
    """A tool, called directly."""

    SERVICE = "ToolService"
    METHODS: ClassVar[dict[str, tuple[str, Any]]] = {"CallTool": ("unary_unary", ToolResponse)}


class GatewayServiceStub(_Stub):
    """A gateway."""

    SERVICE = "GatewayService"
    METHODS: ClassVar[dict[str, tuple[str, Any]]] = {
        "RouteAgentCalling": ("stream_stream", d.AgentMessage),
        "RouteToolCalling": ("unary_unary", ToolResponse),
        "RegisterAgent": ("unary_unary", d.RegisterAgentResponse),
        "RegisterTool": ("unary_unary", d.RegisterToolResponse),
        "DeregisterNode": ("unary_unary", d.DeregisterNodeResponse),
        "GetNodes": ("unary_unary", d.GetNodesResponse),
        "Heartbeat": ("unary_unary", d.HeartbeatResponse),
        "UpdateNodeInfo": ("unary_unary", d.UpdateNodeInfoResponse),
    }
