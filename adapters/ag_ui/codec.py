"""The dialect `ag-ui`: one POST with a RunAgentInput, an SSE answer.

As a front it satisfies clients from 0.0.35 on; as a back it reads every legal stream and what real agents make of it.
"""

from __future__ import annotations

from bridge.contract import (
    Capabilities,
    Context,
    Decoder,
    DescribedAgent,
    DescribedDialect,
    EncoderLike,
    Endpoint,
    Operation,
    Options,
    WireRequest,
    WireResponse,
    json_response,
)
from bridge.dialects.ag_ui import errors, read_request, write_request
from bridge.dialects.ag_ui.capabilities import CAPABILITIES, card
from bridge.dialects.ag_ui.described import description
from bridge.dialects.ag_ui.options import BackOptions, FrontOptions
from bridge.dialects.ag_ui.read_answer import AGUIDecoder
from bridge.dialects.ag_ui.wire import NAME, VERSION
from bridge.dialects.ag_ui.write_answer import AGUIEncoder
from bridge.errors import Failure
from bridge.model import Event, Request
from bridge.model.jsontext import dumps, read_json


class AGUI(DescribedDialect):
    """Both sides of AG-UI."""

    name = NAME
    spoken_by = ("copilotkit",)
    resumable = True
    url = "http://127.0.0.1:8000"
    capabilities = CAPABILITIES
    whole_is_stream = True
    surface = (Endpoint("POST", "", Operation.RUN), Endpoint("GET", "", Operation.DESCRIBE))
    front_options = FrontOptions
    back_options = BackOptions

    # ------------------------------------------------------------- as the front

    def capabilities_with(self, options: Options) -> Capabilities:
        return card(options, new=True) if isinstance(options, FrontOptions) else CAPABILITIES

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        return read_request.decode_request(wire, FrontOptions.of(context))

    def encoder(self, context: Context) -> EncoderLike:
        return AGUIEncoder(context)

    def encode_description(self, agent: DescribedAgent) -> WireResponse:
        return json_response(dumps(description(agent.name, agent.backends)))

    def encode_error(self, failure: Failure) -> WireResponse:
        return errors.encode_error(failure)

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        value = {
            "threadId": "example",
            "runId": "example-1",
            "protocolVersion": VERSION,
            "state": {},
            "messages": [{"id": "1", "role": "user", "content": text}],
            "tools": [],
            "context": [],
            "forwardedProps": {},
        }
        return WireRequest("POST", "", dict(write_request.HEADERS), body=dumps(value))

    # ------------------------------------------------------------- as the back

    def encode_request(self, wanted: Request, context: Context) -> WireRequest:
        return write_request.encode_request(wanted, context, BackOptions.of(context))

    def decoder(self, context: Context) -> Decoder:
        return AGUIDecoder(context)

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        """A body in one piece: a list of events, or an error object."""
        decoder = AGUIDecoder(context)
        value = read_json(wire.body)
        values = value if isinstance(value, list) else [value]
        if values and all(isinstance(v, dict) and isinstance(v.get("type"), str) for v in values):
            return decoder.feed([dumps(v) for v in values]) + decoder.close()
        text = "The backend's answer is neither an event stream nor an error object."
        return decoder.close(errors.ERRORS.of_no_answer(value, text))

    def decode_error(self, wire: WireResponse) -> Failure:
        return errors.ERRORS.decode(wire)


dialect = AGUI()
