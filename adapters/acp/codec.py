"""The dialect `acp`: JSON-RPC between an editor and an agent, over standard input and output or a WebSocket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bridge.contract import Context, EncoderLike, Endpoint, Framing, Operation, WireRequest, WireResponse, json_request
from bridge.contract.optional.rpc import (
    NewSession,
    Note,
    OpenSession,
    Params,
    RpcCall,
    RpcDialect,
    RpcService,
    RpcSession,
)
from bridge.dialects.acp import front
from bridge.dialects.acp.back import Back
from bridge.dialects.acp.capabilities import CAPABILITIES
from bridge.dialects.acp.options import FrontOptions
from bridge.dialects.acp.wire import ERRORS, NAME
from bridge.dialects.acp.write_answer import Stream, Turn, error_object
from bridge.errors import Failure
from bridge.model import Message, Request
from bridge.model.jsontext import dumps


class ACP(Back, RpcDialect):
    """Both sides of the protocol.

    A route serves WebSockets at its path, and `dialect-bridge acp` the same over standard input and output. Both are
    connections over which both sides ask, so that neither is a request with an answer: hence the operation `CONNECT`,
    and not `SOCKET`, whose messages are requests that a server only answers.
    """

    name = NAME
    spoken_by = ("agent-client-protocol", "zed")
    mount = "/acp"
    capabilities = CAPABILITIES
    framing = Framing.JSON_LINES
    surface = (Endpoint("GET", "", Operation.CONNECT),)
    front_options = FrontOptions
    rpc_requests = front.REQUESTS
    rpc_notifications = front.NOTIFICATIONS

    # ------------------------------------------------------------- as the front

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        return front.decode_request(wire, context)

    def encoder(self, context: Context) -> EncoderLike:
        return Stream(context)

    def encode_error(self, failure: Failure) -> WireResponse:
        return ERRORS.response(failure, {"jsonrpc": "2.0", "id": None, "error": error_object(failure)})

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        params = {"sessionId": "example", "prompt": [{"type": "text", "text": text}]}
        return json_request("", dumps({"jsonrpc": "2.0", "id": 0, "method": "session/prompt", "params": params}))

    # ------------------------------------------------------------- over a connection

    def decode_rpc(self, method: str, params: Any, service: RpcService) -> RpcCall:
        return front.decode_call(method, params, service)

    def encode_greeting(self, service: RpcService) -> Params:
        return front.greeting(service)

    def encode_opened(self, session: RpcSession, call: NewSession | OpenSession) -> Params:
        return front.opened(session, call)

    def encode_chosen(self, session: RpcSession) -> Params:
        return {"configOptions": front.options_of(session)}

    def encode_list(self, sessions: Sequence[RpcSession], following: int | None) -> Params:
        return front.listed(sessions, following)

    def encode_replay(self, session_id: str, messages: Sequence[Message]) -> list[Note]:
        return front.replay(session_id, messages)

    def turn(self, session_id: str, client: Any) -> Turn:
        return Turn(session_id, isinstance(client, front.Client) and client.has_forms)

    def rpc_error(self, failure: Failure) -> tuple[int, str, Any]:
        error = error_object(failure)
        return error["code"], error["message"], error["data"]

    def rpc_cancel(self, call_id: Any) -> Note:
        return "$/cancel_request", {"requestId": call_id}

    def handshake_headers(self, connection_id: str) -> Mapping[str, str]:
        return {"acp-connection-id": connection_id}


dialect = ACP()
