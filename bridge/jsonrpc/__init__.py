"""JSON-RPC 2.0 between two equal sides: both may ask, answer and notify (jsonrpc.org/specification).

`RpcPeer` is the protocol without I/O. `RpcConnection` runs it over a carrier:

| carrier | the other side |
|---|---|
| `bridge.jsonrpc.stdio.StdioCarrier` | the program that started this one |
| `bridge.jsonrpc.process.ProcessCarrier` | a program that this one starts |
| `bridge.jsonrpc.websocket.WebSocketCarrier` | the client or the server of a WebSocket |

    async def add(request: RpcRequest) -> int:
        return sum(request.params["numbers"])

    carrier = await ProcessCarrier.start(["calculator"], env=short_environment())
    async with RpcConnection(carrier, requests={"add": add}) as connection:
        print(await connection.call("multiply", {"numbers": [6, 7]}))
"""

from __future__ import annotations

from bridge.jsonrpc.carrier import Carrier, CarrierEnded
from bridge.jsonrpc.connection import RpcConnection
from bridge.jsonrpc.peer import Ignored, RpcPeer
from bridge.jsonrpc.rpc_messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REQUEST_CANCELLED,
    RpcError,
    RpcId,
    RpcNotification,
    RpcParams,
    RpcRequest,
    RpcResponse,
)

__all__ = [
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "PARSE_ERROR",
    "REQUEST_CANCELLED",
    "Carrier",
    "CarrierEnded",
    "Ignored",
    "RpcConnection",
    "RpcError",
    "RpcId",
    "RpcNotification",
    "RpcParams",
    "RpcPeer",
    "RpcRequest",
    "RpcResponse",
]
