"""The dialect `ag-kit`: `send-message` of AG-Kit, later named CloudBase Agent, both sides, both generations.

Generation 1 is written here. Generation 2 is AG-UI on the same path: `generation2.py` delegates to that
dialect, which is looked up by name at run time, and adapts the differences.
"""

from __future__ import annotations

from bridge.contract import (
    Capabilities,
    Context,
    Dialect,
    EncoderLike,
    Endpoint,
    Operation,
    Options,
    WireRequest,
    WireResponse,
    json_response,
)
from bridge.contract.demands import NOTHING, Demands
from bridge.contract.dialect import Decoder as AnyDecoder
from bridge.dialects.ag_kit import errors, generation2, read_request, write_answer
from bridge.dialects.ag_kit.capabilities import CAPABILITIES, card
from bridge.dialects.ag_kit.generation import generation_in, generation_of
from bridge.dialects.ag_kit.options import BackOptions, FrontOptions
from bridge.dialects.ag_kit.read_answer import Decoder
from bridge.dialects.ag_kit.wire import NAME
from bridge.dialects.ag_kit.write_request import HEADERS, encode_request
from bridge.errors import ErrorCode, Failure
from bridge.model import Event, Request
from bridge.model.jsontext import dumps, read_body, read_json
from bridge.toolkit.check import need_json
from bridge.toolkit.errors import error_in

_JSON = "application/json"


class AGKit(Dialect):
    """Both sides of `send-message`; a client is answered in the generation of its request."""

    name = NAME
    resumable = True
    url = "http://127.0.0.1:8000"
    capabilities = CAPABILITIES
    surface = (
        Endpoint("POST", "/send-message", Operation.RUN),
        # The hosted platform's path, and the same below a base URL that ends in its `/v1`.
        Endpoint("POST", "/v1/aibot/bots/{id}/send-message", Operation.RUN),
        Endpoint("POST", "/aibot/bots/{id}/send-message", Operation.RUN),
        Endpoint("GET", "/healthz", Operation.HEALTH),
    )
    front_options = FrontOptions
    back_options = BackOptions

    # ------------------------------------------------------------- as the front

    def capabilities_with(self, options: Options) -> Capabilities:
        return card(options) if isinstance(options, FrontOptions) else CAPABILITIES

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        need_json(wire)
        body = read_body(wire.body)
        normalized = generation2.normalized(body)
        if generation_of(normalized, context) == 2:
            return generation2.decode_request(wire, normalized, context)
        return read_request.decode_request(body, context)

    def encoder(self, context: Context) -> EncoderLike:
        return (
            generation2.encoder(context) if generation_in(context) == 2 else write_answer.GenerationOneEncoder(context)
        )

    def encode_error(self, failure: Failure) -> WireResponse:
        return errors.encode_error(failure)

    def encode_health(self, alive: bool) -> WireResponse:
        body = {"status": "healthy" if alive else "unhealthy", "service": "dialect-bridge"}
        return json_response(dumps(body), 200 if alive else 503)

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        body = {"conversationId": "example", "messages": [{"role": "user", "content": text}]}
        return WireRequest("POST", "/send-message", dict(HEADERS), body=dumps(body))

    # ------------------------------------------------------------- as the back

    def demands(self, options: Options) -> Demands:
        is_second = isinstance(options, BackOptions) and options.generation == 2
        return NOTHING if is_second else self.capabilities.demands

    def encode_request(self, request: Request, context: Context) -> WireRequest:
        if BackOptions.of(context).generation == 2:
            return generation2.encode_request(request, context)
        return encode_request(request, context)

    def decoder(self, context: Context) -> AnyDecoder:
        return Decoder(context, generation2.decoder)

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        """Read a response without a stream: an error sent with status 200, or the page of another server."""
        decoder = self.decoder(context)
        body = read_json(wire.body)
        if isinstance(body, dict) and (isinstance(body.get("type"), str) or body.get("error") is not None):
            return [*decoder.feed([wire.body]), *decoder.close()]
        if error_in(body) is not None:
            # An error with a status changed by an intermediary: the client's request was not invalid.
            return decoder.close(self.decode_error(WireResponse(500, wire.headers, wire.body)))
        text = "The backend's answer is neither an event stream nor a JSON object with an error."
        return decoder.close(Failure(ErrorCode.BACKEND_PROTOCOL, text))

    def decode_error(self, wire: WireResponse) -> Failure:
        return errors.ERRORS.decode(wire)


dialect = AGKit()
