"""The dialect `a2a`: messages to an agent, answered by tasks with artifacts, over JSON-RPC or plain HTTP."""

from __future__ import annotations

from typing import Any

from bridge.codec import (
    Context,
    Decoder,
    Endpoint,
    Operation,
    SteppedRun,
    SteppedRunDialect,
    WireRequest,
    WireResponse,
)
from bridge.dialects.a2a import calling
from bridge.dialects.a2a.capabilities import CAPABILITIES
from bridge.dialects.a2a.decoder import A2ADecoder
from bridge.dialects.a2a.options import BackOptions, FrontOptions
from bridge.dialects.a2a.wire import NAME
from bridge.errors import Failure
from bridge.model import Event, Request


class A2A(SteppedRunDialect):
    """Both sides of A2A."""

    name = NAME
    url = "http://127.0.0.1:9999"
    capabilities = CAPABILITIES
    event_ids = False
    surface = (Endpoint("POST", "", Operation.RUN),)
    front_options = FrontOptions
    back_options = BackOptions

    # ------------------------------------------------------------- as the back

    def encode_request(self, wanted: Request, context: Context) -> WireRequest:
        return calling.encode_request(wanted, context)

    def stepped(self, wanted: Request, context: Context, memo: dict[str, Any]) -> SteppedRun:
        return calling.Calling(wanted, context, memo)

    def decoder(self, context: Context) -> Decoder:
        return A2ADecoder(context)

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        return calling.parse_response(wire, context)

    def decode_error(self, wire: WireResponse) -> Failure:
        return calling.decode_error(wire)


dialect = A2A()
