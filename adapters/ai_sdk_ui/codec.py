"""The dialect `ai-sdk-ui`: one POST of the whole chat, an SSE answer of chunks with a type."""

from __future__ import annotations

from types import MappingProxyType

from bridge.contract import (
    Context,
    Decoder,
    EncoderLike,
    Endpoint,
    Operation,
    ResumableDialect,
    WireRequest,
    WireResponse,
    json_request,
)
from bridge.dialects.ai_sdk_ui import errors, read_request, write_request
from bridge.dialects.ai_sdk_ui.capabilities import CAPABILITIES
from bridge.dialects.ai_sdk_ui.options import BackOptions, FrontOptions
from bridge.dialects.ai_sdk_ui.read_answer import UIMessageDecoder
from bridge.dialects.ai_sdk_ui.wire import NAME
from bridge.dialects.ai_sdk_ui.write_answer import UIMessageEncoder
from bridge.errors import Failure
from bridge.model import Event, Request
from bridge.model.jsontext import dumps, read_json


class AISDKUI(ResumableDialect):
    """Both sides of the UI message stream."""

    name = NAME
    spoken_by = ("ai-sdk", "usechat", "vercel")
    mount = "/api/chat"
    url = "http://127.0.0.1:3000/api/chat"
    capabilities = CAPABILITIES
    whole_is_stream = True
    surface = (
        Endpoint("POST", "", Operation.RUN),
        Endpoint("GET", "/{id}/stream", Operation.SUBSCRIBE),
    )
    stream_headers = MappingProxyType({"x-vercel-ai-ui-message-stream": "v1"})
    front_options = FrontOptions
    back_options = BackOptions

    # ------------------------------------------------------------- as the front

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        return read_request.decode_request(wire, context, FrontOptions.of(context))

    def encoder(self, context: Context) -> EncoderLike:
        return UIMessageEncoder(context)

    def encode_error(self, failure: Failure) -> WireResponse:
        return errors.encode_error(failure)

    def decode_resume(self, wire: WireRequest) -> str:
        return wire.params["id"]

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        message = {"id": "1", "role": "user", "parts": [{"type": "text", "text": text}]}
        return json_request("", dumps({"id": "example", "messages": [message], "trigger": "submit-message"}))

    # ------------------------------------------------------------- as the back

    def encode_request(self, wanted: Request, context: Context) -> WireRequest:
        return write_request.encode_request(wanted, context, BackOptions.of(context))

    def decoder(self, context: Context) -> Decoder:
        return UIMessageDecoder(context)

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        """A body in one piece, which is no answer: the protocol has streams only."""
        decoder = UIMessageDecoder(context)
        text = "The backend's answer is not an event stream."
        return decoder.close(errors.ERRORS.of_no_answer(read_json(wire.body), text))

    def decode_error(self, wire: WireResponse) -> Failure:
        return errors.ERRORS.decode(wire)


dialect = AISDKUI()
