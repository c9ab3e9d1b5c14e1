"""What the tests of this dialect share: captures, runs through encoder and decoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson

from bridge.contract import Context, WireRequest
from bridge.dialects.ai_sdk_ui import dialect
from bridge.dialects.ai_sdk_ui.options import BackOptions, FrontOptions
from bridge.model import Answer, Builder, Event, Request, fold, verify
from bridge.translation.framing.sse import Splitter, join

CAPTURES = Path(__file__).parents[2] / "captures" / "ai-sdk-ui"
INDEX: dict[str, dict[str, Any]] = {c["name"]: c for c in json.loads((CAPTURES / "index.json").read_text())["captures"]}
STREAMS = [name for name, found in INDEX.items() if str(found.get("file")).endswith(".sse")]
REQUESTS = [name for name, found in INDEX.items() if (found["request"] or {}).get("body_file")]


def request_body(name: str) -> dict[str, Any]:
    return json.loads((CAPTURES / INDEX[name]["request"]["body_file"]).read_text())


def context(options: Any = None, request: Request | None = None) -> Context:
    return Context("run1", None, 1_700_000_000.0, options, None, request)


def asked(body: dict[str, Any], **options: Any) -> Request:
    """The request of a client that sends this body."""
    wire = WireRequest(headers={"content-type": "application/json"}, body=orjson.dumps(body))
    return dialect.decode_request(wire, context(FrontOptions(**options)))


def sent(request: Request, **options: Any) -> dict[str, Any]:
    """The body that a server gets."""
    return orjson.loads(dialect.encode_request(request, context(BackOptions(**options), request)).body)


def read(stream: bytes, request: Request | None = None) -> list[Event]:
    decoder, splitter = dialect.decoder(context(BackOptions(), request)), Splitter()
    events = decoder.feed([*splitter.feed(stream), *splitter.close()])
    return verify([*events, *decoder.close()])


def heard(chunks: list[dict[str, Any]], request: Request | None = None, *, done: bool = True) -> Answer:
    """What is made of these chunks of a server."""
    return fold(read(join([*map(orjson.dumps, chunks), *([b"[DONE]"] if done else [])]), request))


def told(builder: Builder, request: Request | None = None, **options: Any) -> list[dict[str, Any]]:
    """The chunks that a client gets of this run."""
    return written(builder.take(), request, **options)


def written(events: list[Event], request: Request | None = None, **options: Any) -> list[dict[str, Any]]:
    encoder = dialect.encoder(context(FrontOptions(**options), request))
    *frames, last = encoder.encode(events)
    assert last == b"[DONE]"
    return [orjson.loads(frame) for frame in frames if isinstance(frame, bytes)]


def types(chunks: list[dict[str, Any]]) -> list[str]:
    return [chunk["type"] for chunk in chunks]


def run() -> Builder:
    return context().builder()
