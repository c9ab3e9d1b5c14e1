"""Requests over a WebSocket: each message is a `response.create` with the body that `POST /responses` takes."""

from __future__ import annotations

from bridge.contract import WireRequest, WireResponse
from bridge.errors import RequestError
from bridge.model.jsontext import dict_of, dumps, read_body, read_json
from bridge.toolkit.check import Node


def decode_message(message: str) -> WireRequest:
    """Raises `RequestError`."""
    body = Node(read_body(message.encode("utf-8", "surrogatepass")))
    body.need_one_of("type", ("response.create",))
    for name in ("stream_id", "background"):
        if body.get(name):
            raise RequestError(
                f"{name}: not supported over a WebSocket, which serves one response at a time.", param=name
            )
    fields = {k: v for k, v in body.value.items() if k not in ("type", "stream_id", "background")}
    return WireRequest("POST", "/responses", body=dumps({**fields, "stream": True}))


def encode_refusal(response: WireResponse) -> bytes:
    return dumps({"type": "error", "status": response.status, **dict_of(read_json(response.body))})
