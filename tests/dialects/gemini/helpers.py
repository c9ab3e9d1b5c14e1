"""What the tests of this dialect share: captures, and runs through both codecs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bridge.contract import Context, WireRequest, wire_request
from bridge.dialects.gemini import dialect
from bridge.dialects.gemini.options import BackOptions, FrontOptions
from bridge.model import Event, Request, verify
from bridge.translation.framing.sse import Splitter, join
from bridge.translation.requirements import encoded

CAPTURES = Path(__file__).parents[2] / "captures" / "gemini"
INDEX: list[dict[str, Any]] = json.loads((CAPTURES / "index.json").read_text())["captures"]
ANSWERS = [c for c in INDEX if "expect" in c]


def names(captures: list[dict[str, Any]]) -> list[str]:
    return [c["name"] for c in captures]


def asked(name: str) -> tuple[str, Any]:
    """The path with the query, and the body, of a recorded request."""
    head, _, body = (CAPTURES / f"{name}.request.http").read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")
    return head.split(b" ")[1].decode(), json.loads(body)


def back(model: str = "gemini-2.5-flash", **options: Any) -> Context:
    return Context("run1", created_at=1700000000.0, options=BackOptions(**options), model=model)


def front(request: Request | None = None, **options: Any) -> Context:
    return Context("run1", created_at=1700000000.0, options=FrontOptions(**options), model="m", request=request)


# ---------------------------------------------------------------------- requests


def read(body: Any, path: str = "/v1beta/models/gemini-3-pro:generateContent", **options: Any) -> Request:
    """The request that a client means."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return dialect.decode_request(wire_request({}, data, path), front(None, **options))


def user(*parts: Any, **fields: Any) -> dict[str, Any]:
    """A body with one content of the user."""
    return {"contents": [{"role": "user", "parts": list(parts) or [{"text": "Hello"}]}], **fields}


def sent(request: Request, context: Context | None = None) -> WireRequest:
    return encoded(dialect, request, context or back())


def body_of(request: Request, context: Context | None = None) -> Any:
    """The body that a backend gets."""
    return json.loads(sent(request, context).body)


# ---------------------------------------------------------------------- answers


def decode(data: bytes, context: Context | None = None) -> list[Event]:
    """The events of a backend's stream; well-formed, or this raises."""
    splitter, decoder = Splitter(), dialect.decoder(context or back())
    events = decoder.feed(splitter.feed(data)) + decoder.feed(splitter.close())
    return verify(events + decoder.close())


def decode_chunks(*chunks: Any) -> list[Event]:
    return decode(join([json.dumps(chunk).encode() for chunk in chunks]))


def chunk(*parts: Any, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], **fields}


def chunks(events: list[Event], context: Context | None = None) -> list[Any]:
    """The chunks that a client of this dialect gets."""
    encoder = dialect.encoder(context or front())
    return [json.loads(frame) for frame in encoder.encode(events) if isinstance(frame, bytes)]


def parts(said: list[Any]) -> list[Any]:
    return [part for each in said for c in each.get("candidates", ()) for part in c["content"]["parts"]]
