"""Token counts: `POST /responses/input_tokens`."""

from __future__ import annotations

from bridge.contract import Context, WireRequest, WireResponse, json_response
from bridge.dialects.openai_responses.write_request import body_of
from bridge.model import Request
from bridge.model.jsontext import dumps
from bridge.toolkit.counts import input_tokens_in

_PATH = "/responses/input_tokens"
_COUNTED = frozenset(
    {
        "conversation", "input", "instructions", "model", "parallel_tool_calls", "previous_response_id", "reasoning",
        "text", "tool_choice", "tools", "truncation",
    }
)  # fmt: skip
"""The fields of the endpoint, by the types of the official SDK."""


def count_request(request: Request, context: Context) -> WireRequest:
    """The question to a backend. Raises `Unsupported` for a medium or a tool that the wire cannot carry."""
    counted = {name: value for name, value in body_of(request, context).items() if name in _COUNTED}
    headers = {"content-type": "application/json", "accept": "application/json"}
    return WireRequest("POST", _PATH, headers, body=dumps(counted))


def encode_count(tokens: int, estimated: bool) -> WireResponse:
    """`estimated` is in the body only if it is true; the SDK's type ignores it."""
    more = {"estimated": True} if estimated else {}
    return json_response(dumps({"object": "response.input_tokens", "input_tokens": tokens, **more}))


def decode_count(wire: WireResponse) -> int:
    """Raises `BackendError`."""
    return input_tokens_in(wire)
