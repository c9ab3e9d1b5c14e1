"""What the tests of this dialect share: captures, runs through both codecs, and the SDK's own types as the judge."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from openai.types.responses import Response

from bridge.contract import Context, Frame, FrameLike, WireRequest, WireResponse
from bridge.dialects.openai_responses import dialect
from bridge.dialects.openai_responses.options import BackOptions, FrontOptions
from bridge.errors import Failure
from bridge.model import Builder, Event, Request, verify
from bridge.translation.framing.sse import Splitter, join
from tests.official import judge_response
from tests.responses_judge import judge

CAPTURES = Path(__file__).parents[2] / "captures" / "openai-responses"
INDEX: list[dict[str, Any]] = json.loads((CAPTURES / "index.json").read_text())["captures"]
STREAMS = [c for c in INDEX if c["file"].endswith(".sse")]
BODIES = [c for c in INDEX if not c["file"].endswith(".sse") and c["status"] == 200]
REFUSALS = [c for c in INDEX if c["status"] >= 400]


def names(captures: list[dict[str, Any]]) -> list[str]:
    return [c["name"] for c in captures]


def capture(name: str) -> bytes:
    found = next(c for c in INDEX if c["name"] == name)
    return (CAPTURES / found["file"]).read_bytes()


def back(options: dict[str, Any] | None = None, **fields: Any) -> Context:
    return Context("run1", created_at=1700000000.0, options=BackOptions(**options) if options else None, **fields)


def front(options: dict[str, Any] | None = None, **fields: Any) -> Context:
    return Context("run1", created_at=1700000000.0, options=FrontOptions(**options) if options else None, **fields)


# ---------------------------------------------------------------------- backend wire -> events


def decode(reads: Iterable[bytes], *, failure: Failure | None = None, aborted: bool = False) -> list[Event]:
    """The events of a stream that came in these reads; well-formed, or this raises."""
    decoder, splitter = dialect.decoder(back()), Splitter()
    events = [event for read in reads for event in decoder.feed(splitter.feed(read))]
    if not aborted:
        events += decoder.feed(splitter.close())
    return verify(events + decoder.close(failure))


def decode_events(*events: dict[str, Any]) -> list[Event]:
    """The events of these wire events, each written as JSON."""
    return decode([join([Frame(json.dumps(e).encode(), e.get("type")) for e in events])])


def parse(body: Any, content_type: str = "application/json") -> list[Event]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return verify(dialect.parse_response(WireResponse(200, {"content-type": content_type}, data), back()))


# ---------------------------------------------------------------------- events -> frontend wire


def build(tell: Callable[[Builder], Any], *, end: bool = True) -> list[Event]:
    """The events that a builder makes of what `tell` tells it."""
    builder = front().builder()
    builder.begin(model="m")
    builder.start()
    tell(builder)
    if end and not builder.done:
        builder.finish()
        builder.end()
    return verify(builder.take())


def frames(events: list[Event], context: Context | None = None) -> list[FrameLike]:
    encoder = dialect.encoder(context or front())
    return encoder.encode(events)


def encode(events: list[Event], context: Context | None = None) -> bytes:
    return join(frames(events, context))


def judged(wire: list[FrameLike]) -> list[dict[str, Any]]:
    """The events of these frames, after they have been judged strictly."""
    events = []
    for frame in wire:
        assert isinstance(frame, Frame)
        if frame.comment is not None:
            continue
        event = json.loads(frame.data)
        assert frame.event == event["type"]
        events.append(event)
    judge(events)
    return events


def emitted(events: list[Event], context: Context | None = None) -> list[dict[str, Any]]:
    return judged(frames(events, context))


def final(events: list[Event], context: Context | None = None) -> dict[str, Any]:
    """The response object of the last event."""
    response: dict[str, Any] = emitted(events, context)[-1]["response"]
    return response


def assembled(events: list[Event], context: Context | None = None) -> dict[str, Any]:
    """The response in one piece, which the SDK's type has judged strictly."""
    wire = dialect.assemble(events, context or front())
    assert wire.status == 200
    value: dict[str, Any] = json.loads(wire.body)
    Response.model_validate(value, strict=True)
    judge_response(value)
    return value


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [e["type"].removeprefix("response.") for e in events]


# ---------------------------------------------------------------------- requests


def request(body: Any, context: Context | None = None) -> Request:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return dialect.decode_request(WireRequest(headers={}, body=data), context or front())


def asked(input: Any = "Hi", **fields: Any) -> dict[str, Any]:
    return {"model": "m", "input": input, **fields}


def sent(wanted: Request, options: dict[str, Any] | None = None, context: Context | None = None) -> dict[str, Any]:
    """The body that a backend gets."""
    body: dict[str, Any] = json.loads(dialect.encode_request(wanted, context or back(options)).body)
    return body
