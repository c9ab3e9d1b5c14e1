"""What the tests of this dialect share: captures, the official models, runs through encoder and decoder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ag_ui.core import Event as OfficialEvent
from ag_ui.core import EventType, RunAgentInput
from pydantic import TypeAdapter

from bridge.contract import Context, Frame, FrameLike, WireRequest, WireResponse
from bridge.dialects.ag_ui import dialect
from bridge.dialects.ag_ui.options import BackOptions, FrontOptions
from bridge.errors import ErrorCode, Failure
from bridge.model import Answer, Builder, Event, Message, Request, Text, ToolCall, fold, verify
from bridge.translation.framing.sse import Splitter, join

from .order import check_order

CAPTURES = Path(__file__).parents[2] / "captures" / "ag-ui"
INDEX: dict[str, dict[str, Any]] = {c["name"]: c for c in json.loads((CAPTURES / "index.json").read_text())["captures"]}
OFFICIAL: TypeAdapter[Any] = TypeAdapter(OfficialEvent)
OFFICIAL_TYPES = frozenset(t.value for t in EventType)
_OLD_TYPES = ("THINKING_",)
_ANY_VALUE = frozenset({"value", "snapshot", "event", "result"})
OF_ANOTHER_BRIDGE = {
    ErrorCode.UNAUTHORIZED: ErrorCode.BACKEND_AUTH,
    ErrorCode.FORBIDDEN: ErrorCode.BACKEND_AUTH,
    ErrorCode.INTERNAL: ErrorCode.BACKEND_ERROR,
}
"""What its key check and its crash are for us."""


# ------------------------------------------------------------------ captures


def request_of(name: str) -> WireRequest:
    head, _, body = (CAPTURES / f"{name}.request.http").read_bytes().partition(b"\r\n\r\n")
    return WireRequest(headers=_headers(head), body=body)


def response_of(name: str) -> WireResponse:
    head, _, body = (CAPTURES / f"{name}.response.http").read_bytes().partition(b"\r\n\r\n")
    headers = _headers(head)
    if headers.get("transfer-encoding") == "chunked":
        body = _dechunked(body)
    return WireResponse(int(head.split(b" ")[1]), headers, body)


def client_of(name: str) -> dict[str, Any]:
    """What the official client made of it."""
    return json.loads((CAPTURES / f"{name}.client.json").read_text())


def _headers(head: bytes) -> dict[str, str]:
    lines = [line.partition(":") for line in head.decode().split("\r\n")[1:]]
    return {name.lower(): value.strip() for name, _, value in lines}


def _dechunked(body: bytes) -> bytes:
    out = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size or b"0", 16)
        out += rest[:length]
        body = rest[length + 2 :]
    return out


# ------------------------------------------------------------------ through the codec


def front(options: dict[str, Any] | None = None, **fields: Any) -> Context:
    return Context(**{"run_id": "run1", "options": FrontOptions(**(options or {})), **fields})


def back(options: dict[str, Any] | None = None, **fields: Any) -> Context:
    return Context(**{"run_id": "run1", "options": BackOptions(**(options or {})), **fields})


def asked(*messages: Any, version: str | None = "1.0", **fields: Any) -> dict[str, Any]:
    body = {
        "threadId": "t1", "runId": "r1", "state": {}, "messages": list(messages), "tools": [], "context": [],
        "forwardedProps": {}, **fields,
    }  # fmt: skip
    return body if version is None else {**body, "protocolVersion": version}


def read(body: Any, options: dict[str, Any] | None = None) -> Request:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return dialect.decode_request(WireRequest(body=data), front(options))


def old_client(**options: Any) -> Context:
    """The front's context for a client of 0.x."""
    return front(options, request=read(asked(version=None)))


def new_client(**options: Any) -> Context:
    return front(options, request=read(asked()))


def sent(request: Request, options: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """The body that a backend gets; the official model takes it when it has no part of 0.x."""
    wire = dialect.encode_request(request, back(options, request=request, **fields))
    if b'"binary"' not in wire.body:
        RunAgentInput.model_validate_json(wire.body)
    return json.loads(wire.body)


def decode(reads: Iterable[bytes], ctx: Context | None = None, failure: Failure | None = None) -> list[Event]:
    """The events of a stream that came in these reads; well-formed, or this raises."""
    decoder, splitter, out = dialect.decoder(ctx or back()), Splitter(), []
    for chunk in reads:
        out += decoder.feed(splitter.feed(chunk))
    if failure is None:
        out += decoder.feed(splitter.close())
    return verify([*out, *decoder.close(failure)])


def heard(*events: dict[str, Any] | bytes, ctx: Context | None = None, ends: bool = True) -> Answer:
    """The answer that these events of a backend amount to; with `ends`, a RUN_FINISHED follows them."""
    written = [e if isinstance(e, bytes) else json.dumps(e).encode() for e in events]
    if ends:
        written.append(b'{"type":"RUN_FINISHED","threadId":"t","runId":"r"}')
    return fold(decode([join(written)], ctx))


def encode(events: Sequence[Event], ctx: Context | None = None, size: int | None = None) -> list[FrameLike]:
    """The frames of these events, in batches of `size`; each accepted by the official models."""
    encoder, out = dialect.encoder(ctx or front()), []
    step = size or max(1, len(events))
    for at in range(0, len(events), step):
        out += encoder.encode(list(events[at : at + step]))
    for event in payloads(out):
        accept(event)
    return out


def accept(event: dict[str, Any]) -> None:
    """Raises unless the official models take this event. They know neither events and parts of 0.x nor made-up ones."""
    if event["type"] in OFFICIAL_TYPES and '"type": "binary"' not in json.dumps(event):
        OFFICIAL.validate_python(event)
        assert None not in (v for k, v in event.items() if k not in _ANY_VALUE)


def payloads(frames: Sequence[FrameLike]) -> list[dict[str, Any]]:
    data = [f.data if isinstance(f, Frame) else f for f in frames if not (isinstance(f, Frame) and f.comment)]
    return [json.loads(d) for d in data]


def said(events: Sequence[Event], ctx: Context | None = None, **checks: Any) -> list[dict[str, Any]]:
    """What a client is sent: each event accepted by the official models, all of them in a legal order."""
    out = payloads(encode(events, ctx))
    check(out, **checks)
    return out


def check(events: list[dict[str, Any]], *, strict: bool = True, unknown: Sequence[str] = ()) -> None:
    for event in events:
        accept(event)
        assert event["type"] in OFFICIAL_TYPES or event["type"].startswith(_OLD_TYPES) or event["type"] in unknown
    check_order([e for e in events if e["type"] not in unknown], strict=strict)


def again(events: Sequence[Event], ctx: Context | None = None) -> Answer:
    """The answer that comes out when these events go over the wire and back."""
    return fold(decode([join(encode(events, ctx))]))


def build(tell: Callable[[Builder], Any], *, end: bool = True) -> list[Event]:
    """The events that a builder makes of what `tell` tells it."""
    builder = Context("run1").builder()
    builder.start()
    tell(builder)
    if end and not builder.done:
        builder.finish()
        builder.end()
    return verify(builder.take())


def types(events: Iterable[dict[str, Any]]) -> list[str]:
    return [e["type"] for e in events]


def flat(messages: list[Message]) -> list[tuple[Any, ...]]:
    """The parts of an answer in order, named as `flat_wire` names those of the client's messages."""
    out: list[tuple[Any, ...]] = []
    for message in messages:
        for part in message.parts:
            match part:
                case Text():
                    out.append(("assistant", part.text))
                case ToolCall():
                    out.append(("call", part.call_id, part.name, part.arguments))
                case _ if message.role == "tool":
                    told = "".join(p.text if isinstance(p, Text) else "<media>" for p in part.parts)
                    out.append(("tool", part.call_id, told))
                case _:
                    out.append(("reasoning", part.text))
    return out


def flat_wire(messages: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    out: list[tuple[Any, ...]] = []
    for message in messages:
        if message["role"] == "tool":
            content = message["content"]
            if isinstance(content, list):
                content = "".join(p["text"] if p["type"] == "text" else "<media>" for p in content)
            out.append(("tool", message["toolCallId"], content))
        elif message.get("content"):
            out.append((message["role"], message["content"]))
        for call in message.get("toolCalls", ()):
            out.append(("call", call["id"], call["function"]["name"], call["function"]["arguments"]))
    return out
