"""The dialect `agentscope-service`: the HTTP service of AgentScope 2, which is called and not served."""

from __future__ import annotations

from typing import Any

from bridge.contract import Context, SteppedRun, SteppedRunDialect, WireRequest, WireResponse
from bridge.dialects.agentscope_service.calling import Calling
from bridge.dialects.agentscope_service.capabilities import CAPABILITIES
from bridge.dialects.agentscope_service.errors import ERRORS
from bridge.dialects.agentscope_service.options import BackOptions
from bridge.dialects.agentscope_service.read_answer import Decoder
from bridge.dialects.agentscope_service.write_request import NAME, encode_request
from bridge.errors import ErrorCode, Failure
from bridge.model import Event, Request


class AgentScopeService(SteppedRunDialect):
    """Sessions with a standing event stream, and runs that are started beside it."""

    name = NAME
    url = "http://127.0.0.1:8000"
    capabilities = CAPABILITIES
    back_options = BackOptions

    def encode_request(self, request: Request, context: Context) -> WireRequest:
        return encode_request(request, context, BackOptions.of(context))

    def stepped(self, request: Request, context: Context, memo: dict[str, Any]) -> SteppedRun:
        return Calling(request, context, BackOptions.of(context), memo)

    def decoder(self, context: Context) -> Decoder:
        return Decoder(context)

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        """There is no answer in one piece."""
        decoder = self.decoder(context)
        text = "The backend's answer is not an event stream."
        return decoder.close(Failure(ErrorCode.BACKEND_PROTOCOL, text))

    def decode_error(self, wire: WireResponse) -> Failure:
        return ERRORS.decode(wire)


dialect = AgentScopeService()
"""The dialect as the registry finds it."""
