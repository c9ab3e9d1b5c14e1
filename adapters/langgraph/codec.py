"""The dialect `langgraph`: LangGraph's server API, which is called and not served."""

from __future__ import annotations

from typing import Any

from bridge.contract import Context, SteppedRun, SteppedRunDialect, WireRequest, WireResponse
from bridge.dialects.langgraph.calling import Calling
from bridge.dialects.langgraph.capabilities import CAPABILITIES
from bridge.dialects.langgraph.errors import refusal, run_failure
from bridge.dialects.langgraph.options import BackOptions
from bridge.dialects.langgraph.read_answer import Decoder
from bridge.dialects.langgraph.wire import NAME
from bridge.dialects.langgraph.write_request import RunWriter
from bridge.errors import ErrorCode, Failure
from bridge.model import Event, Request
from bridge.model.jsontext import read_json
from bridge.toolkit.errors import error_in


class LangGraph(SteppedRunDialect):
    """Threads, and runs whose streams are read until their server says that they are complete."""

    name = NAME
    url = "http://127.0.0.1:2024"
    key_variable = "LANGSMITH_API_KEY"
    spoken_by = ("aegra", "langchain", "langgraph-api", "langgraph-platform", "langgraph-server", "langgraphjs")
    capabilities = CAPABILITIES
    back_options = BackOptions

    def encode_request(self, request: Request, context: Context) -> WireRequest:
        return RunWriter(request, context, BackOptions.of(context)).write()

    def stepped(self, request: Request, context: Context, memo: dict[str, Any]) -> SteppedRun:
        return Calling(request, context, memo)

    def decoder(self, context: Context) -> Decoder:
        return Decoder(context)

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        """There is no answer in one piece."""
        decoder = self.decoder(context)
        if (error := error_in(read_json(wire.body))) is not None:
            return decoder.close(run_failure(error))
        text = "The backend's answer is not an event stream."
        return decoder.close(Failure(ErrorCode.BACKEND_PROTOCOL, text))

    def decode_error(self, wire: WireResponse) -> Failure:
        return refusal(wire)

    def auth_headers(self, api_key: str) -> dict[str, str]:
        return {"x-api-key": api_key}


dialect = LangGraph()
"""The dialect as the registry finds it."""
