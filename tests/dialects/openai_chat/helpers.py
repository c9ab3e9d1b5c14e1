"""What the tests of this dialect share: captures, runs through both codecs, and the real SDK fed with our bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import openai

from bridge.contract import Context, Frame, WireRequest, WireResponse
from bridge.dialects.openai_chat import dialect
from bridge.dialects.openai_chat.options import BackOptions, FrontOptions
from bridge.errors import Failure
from bridge.model import Answer, Builder, Event, Request, fold, verify
from bridge.translation.framing.sse import Splitter, join
from bridge.translation.requirements import encoded
from tests.replay import replaying

CAPTURES = Path(__file__).parents[2] / "captures" / "openai-chat"
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


def decode(
    reads: Iterable[bytes], *, failure: Failure | None = None, aborted: bool = False, context: Context | None = None
) -> list[Event]:
    """The events of a stream that came in these reads; well-formed, or this raises."""
    decoder = dialect.decoder(context or back())
    splitter = Splitter()
    events = [event for read in reads for event in decoder.feed(splitter.feed(read))]
    if not aborted:
        events += decoder.feed(splitter.close())
    return verify(events + decoder.close(failure))


def decode_chunks(*chunks: Any, done: bool = True, context: Context | None = None) -> list[Event]:
    """The events of these chunks, each written as JSON."""
    payloads = [c if isinstance(c, bytes) else json.dumps(c).encode() for c in chunks]
    return decode([join([*payloads, *([b"[DONE]"] if done else [])])], context=context)


def chunk(delta: Any = None, finish: str | None = None, index: int = 0, **top: Any) -> dict[str, Any]:
    """One chunk of a backend."""
    choice = {"index": index, "delta": {} if delta is None else delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 5, "model": "m", "choices": [choice], **top}


def encode(events: list[Event], context: Context | None = None) -> bytes:
    encoder = dialect.encoder(context or front())
    frames = encoder.encode(events)
    return join(frames)


def chunks_of(data: bytes) -> list[Any]:
    """The JSON of each event; `[DONE]` as that string, comments left out."""
    splitter = Splitter()
    frames = [*splitter.feed(data), *splitter.close()]
    payloads = [f.data if isinstance(f, Frame) else f for f in frames]
    return ["[DONE]" if p == b"[DONE]" else json.loads(p) for p in payloads]


def emitted(events: list[Event], context: Context | None = None) -> list[Any]:
    return chunks_of(encode(events, context))


def deltas(events: list[Event], context: Context | None = None) -> list[dict[str, Any]]:
    """The non-empty deltas after the role chunk."""
    found = [c["choices"][0]["delta"] for c in emitted(events, context) if isinstance(c, dict) and c.get("choices")]
    return [d for d in found if d and "role" not in d]


def answer(data: bytes | list[Event]) -> Answer:
    return fold(data if isinstance(data, list) else decode([data]))


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


def request(body: Any, headers: dict[str, str] | None = None) -> Request:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return dialect.decode_request(WireRequest(headers=headers or {}, body=data), front())


def asked(messages: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": messages or [{"role": "user", "content": "Hi"}], **fields}


def sent(wanted: Request, options: dict[str, Any] | None = None, context: Context | None = None) -> dict[str, Any]:
    """The body that a backend gets."""
    body: dict[str, Any] = json.loads(dialect.encode_request(wanted, context or back(options)).body)
    return body


def arranged(wanted: Request) -> dict[str, Any]:
    """The body that a backend gets of a request that was brought to what its API demands."""
    body: dict[str, Any] = json.loads(encoded(dialect, wanted, back()).body)
    return body


def usage_asked() -> Context:
    return front(request=request(asked(stream=True, stream_options={"include_usage": True})))


def sdk(data: bytes | WireResponse, pieces: int = 1) -> openai.OpenAI:
    """The real client, which gets these bytes whatever it asks."""
    client = replaying(data, pieces)
    return openai.OpenAI(api_key="none", base_url="http://bridge.test/v1", http_client=client, max_retries=0)
