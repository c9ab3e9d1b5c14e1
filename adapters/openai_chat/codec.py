"""The dialect `openai-chat`: chat completions, of all servers that are called OpenAI-compatible.

Rule of thumb: accept everything, emit only the strict form. A bridge that copies a backend's quirks to its clients
fails with the real SDK, mostly silently.
"""

from __future__ import annotations

from bridge.contract import (
    Capabilities,
    Context,
    Decoder,
    EncoderLike,
    Endpoint,
    Operation,
    Options,
    WireRequest,
    WireResponse,
)
from bridge.contract.demands import Demands
from bridge.dialects.openai.api import EXTRAS, MODELS, OpenAIDialect
from bridge.dialects.openai_chat import read_request, whole_answer, write_request
from bridge.dialects.openai_chat.capabilities import CAPABILITIES, DEMANDS, HOISTED, card_of
from bridge.dialects.openai_chat.options import BackOptions, FrontOptions
from bridge.dialects.openai_chat.read_answer import ChatDecoder
from bridge.dialects.openai_chat.wire import NAME
from bridge.dialects.openai_chat.write_answer import ChatEncoder
from bridge.model import Event, Request
from bridge.model.jsontext import dumps


class OpenAIChat(OpenAIDialect):
    """Both sides of chat completions."""

    name = NAME
    spoken_by = (
        "azure",
        "deepseek",
        "groq",
        "litellm",
        "llama.cpp",
        "lmstudio",
        "mistral",
        "openai",
        "openrouter",
        "qwen",
        "sglang",
        "vllm",
    )
    provider = "openai"
    mount = "/v1"
    url = "https://api.openai.com/v1"
    key_variable = "OPENAI_API_KEY"
    capabilities = CAPABILITIES
    requires_model = True
    surface = (
        Endpoint("POST", "/chat/completions", Operation.RUN),
        *MODELS,
        *EXTRAS,
    )
    front_options = FrontOptions
    back_options = BackOptions

    # ------------------------------------------------------------- as the front

    def capabilities_with(self, options: Options) -> Capabilities:
        return card_of(options) if isinstance(options, FrontOptions) else CAPABILITIES

    def decode_request(self, wire: WireRequest, context: Context) -> Request:
        return read_request.decode_request(wire, context)

    def encoder(self, context: Context) -> EncoderLike:
        return ChatEncoder(context, FrontOptions.of(context))

    def example_request(self, text: str, stream: bool = True) -> WireRequest:
        message = {"role": "user", "content": text}
        value = {"model": "default", "messages": [message], "stream": stream}
        return WireRequest("POST", "/chat/completions", {"content-type": "application/json"}, body=dumps(value))

    # ------------------------------------------------------------- as the back

    def encode_request(self, wanted: Request, context: Context) -> WireRequest:
        return write_request.encode_request(wanted, context, BackOptions.of(context))

    def demands(self, options: Options) -> Demands:
        hoists = isinstance(options, BackOptions) and options.system_inside == "hoist"
        return HOISTED if hoists else DEMANDS

    def decoder(self, context: Context) -> Decoder:
        return ChatDecoder(context, BackOptions.of(context))

    def parse_response(self, wire: WireResponse, context: Context) -> list[Event]:
        return whole_answer.parse_response(wire, context, BackOptions.of(context))


dialect = OpenAIChat()
