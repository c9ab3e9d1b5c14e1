"""What the tests of this dialect share: captures, runs through both codecs, the SDK's types as judge, and the SDK."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import anthropic
import pydantic
from anthropic.types import Message, RawMessageStreamEvent

from bridge.contract import Context, Frame, WireRequest, WireResponse
from bridge.dialects.anthropic_messages import dialect
from bridge.dialects.anthropic_messages.options import BackOptions, FrontOptions
from bridge.errors import Failure
from bridge.model import Answer, Builder, Event, Request, fold, verify
from bridge.translation.framing.sse import Splitter, join
from bridge.translation.requirements import encoded
from tests.official import judge_message, judge_message_event
from tests.replay import replaying

CAPTURES = Path(__file__).parents[2] / "captures" / "anthropic-messages"
INDEX: list[dict[str, Any]] = json.loads((CAPTURES / "index.json").read_text())["captures"]
STREAMS = [c for c in INDEX if c["file"].endswith(".sse")]
BODIES = [c for c in INDEX if c["file"].endswith(".json") and c["status"] == 200]
REFUSALS = [c for c in INDEX if c["status"] >= 400]

_EVENT: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(RawMessageStreamEvent)


def names(captures: list[dict[str, Any]]) -> list[str]:
    return [c["name"] for c in captures]


def capture(name: str) -> bytes:
    found = next(c for c in INDEX if c["name"] == name)
    return (CAPTURES / found["file"]).read_bytes()


def back(options: dict[str, Any] | None = None, **fields: Any) -> Context:
    return Context("run1", created_at=1700000000.0, options=BackOptions(**options) if options else None, **fields)


def front(options: dict[str, Any] | None = None, **fields: Any) -> Context:
    return Context("run1", created_at=1700000000.0, options=FrontOptions(**options) if options else None, **fields)


# ---------------------------------------------------------------------- reading


def decode(reads: Iterable[bytes], *, failure: Failure | None = None, context: Context | None = None) -> list[Event]:
    """The events of a stream that came in these reads; well-formed, or this raises."""
    decoder = dialect.decoder(context or back())
    splitter = Splitter()
    events = [event for read in reads for event in decoder.feed(splitter.feed(read))]
    if failure is None:
        events += decoder.feed(splitter.close())
    return verify(events + decoder.close(failure))


def decode_events(*events: Any, named: bool = True) -> list[Event]:
    """The events of a backend that says these, each a JSON value or bytes as they are."""
    return decode([wire(*events, named=named)])


def wire(*events: Any, named: bool = True) -> bytes:
    frames: list[Any] = []
    for event in events:
        data = event if isinstance(event, bytes) else json.dumps(event).encode()
        frames.append(Frame(data, event["type"]) if named and isinstance(event, dict) and "type" in event else data)
    return join(frames)


START = {
    "type": "message_start",
    "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 1},
    },
}  # fmt: skip
STOP = {"type": "message_stop"}


def block(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    empty = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}}.get(kind, {})
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **empty, **fields}}


def delta(index: int | None, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def ended(reason: str = "end_turn", **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 3, **usage}}


def answer(data: bytes | list[Event]) -> Answer:
    return fold(data if isinstance(data, list) else decode([data]))


# ---------------------------------------------------------------------- writing


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


def encode(events: list[Event], context: Context | None = None) -> bytes:
    encoder = dialect.encoder(context or front())
    frames = encoder.encode(events)
    return join(frames)


def frames_of(data: bytes) -> list[tuple[str | None, Any]]:
    """Name and JSON of each event; comments left out."""
    splitter = Splitter()
    frames = [*splitter.feed(data), *splitter.close()]
    return [(f.event, json.loads(f.data)) if isinstance(f, Frame) else (None, json.loads(f)) for f in frames]


def emitted(events: list[Event], context: Context | None = None) -> list[Any]:
    """The JSON of each event, after the judge has seen them."""
    data = encode(events, context)
    judge(data)
    return [value for _, value in frames_of(data)]


# ---------------------------------------------------------------------- the judge


def judge(data: bytes, *, foreign: bool = False) -> None:
    """Walks a stream by the SDK's types and the grammar of the protocol; raises `AssertionError` for any fault.

    The SDK itself builds its objects without validation. Here each event must be valid by its type, and hold no field
    that the type does not know; `foreign` allows such fields and events, which a backend of this dialect said.
    """
    walk = _Walk(foreign)
    for name, value in frames_of(data):
        assert name == value["type"], "clients skip events whose line does not name them"
        judge_message_event(value)
        walk.event(value)
    walk.end()


class _Walk:
    def __init__(self, foreign: bool) -> None:
        self._foreign = foreign
        self._blocks = 0
        self._open: str | None = None
        self._state = "new"

    def event(self, value: dict[str, Any]) -> None:
        kind = value["type"]
        assert self._state not in ("stopped", "failed"), f"{kind} after the end"
        if kind == "ping":
            assert value == {"type": "ping"}
            return
        if kind == "error":
            assert self._open is None, "an error while a block is open"
            assert isinstance(value["error"]["type"], str)
            assert isinstance(value["error"]["message"], str)
            self._state = "failed"
            return
        if self._foreign and not kind.startswith(("message_", "content_block_")):
            return
        if not (self._foreign and _is_unknown(value)):
            parsed = _EVENT.validate_python(value)
            assert self._foreign or strange(parsed) == []
        getattr(self, f"_{kind}")(value)

    def _message_start(self, value: dict[str, Any]) -> None:
        assert self._state == "new"
        assert (value["message"]["content"], value["message"]["stop_reason"]) == ([], None)
        self._state = "content"

    def _content_block_start(self, value: dict[str, Any]) -> None:
        assert self._state == "content"
        assert self._open is None, "two blocks open"
        assert value["index"] == self._blocks, "a gap in the indexes"
        self._blocks += 1
        self._open = value["content_block"]["type"]

    def _content_block_delta(self, value: dict[str, Any]) -> None:
        assert value["index"] == self._blocks - 1
        fits = {
            "text_delta": "text", "citations_delta": "text", "thinking_delta": "thinking",
            "signature_delta": "thinking",
        }  # fmt: skip
        kind = value["delta"]["type"]
        if kind == "input_json_delta":
            assert self._open in ("tool_use", "server_tool_use")
        elif kind in fits:
            assert self._open == fits[kind]
        else:
            assert self._foreign

    def _content_block_stop(self, value: dict[str, Any]) -> None:
        assert self._open is not None
        assert value["index"] == self._blocks - 1
        self._open = None

    def _message_delta(self, value: dict[str, Any]) -> None:
        assert self._state == "content"
        assert self._open is None
        assert value["delta"]["stop_reason"]
        self._state = "ending"

    def _message_stop(self, value: dict[str, Any]) -> None:
        assert self._state == "ending"
        self._state = "stopped"

    def end(self) -> None:
        assert self._state in ("stopped", "failed"), "the stream has no end"


def _is_unknown(value: dict[str, Any]) -> bool:
    kind = (value.get("content_block") or value.get("delta") or {}).get("type", "text")
    return kind.startswith("hologram")


def strange(model: Any, path: str = "") -> list[str]:
    """Fields that the SDK's types do not know, anywhere in a parsed value."""
    out: list[str] = []
    if isinstance(model, pydantic.BaseModel):
        out += [f"{path}.{name}" for name in model.model_extra or {}]
        for name in type(model).model_fields:
            out += strange(getattr(model, name), f"{path}.{name}")
    elif isinstance(model, list):
        for place, entry in enumerate(model):
            out += strange(entry, f"{path}[{place}]")
    return out


def judged_message(response: WireResponse) -> Message:
    """A message in one piece, valid by the SDK's type and with no field that it does not know."""
    assert response.status == 200
    message = Message.model_validate_json(response.body)
    judge_message(json.loads(response.body))
    assert strange(message) == []
    return message


# ---------------------------------------------------------------------- requests


def request(body: Any, headers: dict[str, str] | None = None, context: Context | None = None) -> Request:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return dialect.decode_request(WireRequest(headers=headers or {}, body=data), context or front())


def asked(messages: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    conversation = messages or [{"role": "user", "content": "Hi"}]
    return {"model": "m", "max_tokens": 100, "messages": conversation, **fields}


def sent(wanted: Request, options: dict[str, Any] | None = None, context: Context | None = None) -> dict[str, Any]:
    """The body that a backend gets."""
    body: dict[str, Any] = json.loads(dialect.encode_request(wanted, context or back(options)).body)
    return body


def arranged(wanted: Request, context: Context | None = None) -> dict[str, Any]:
    """The body that a backend gets of a request that was brought to what its API demands."""
    body: dict[str, Any] = json.loads(encoded(dialect, wanted, context or back()).body)
    return body


# ---------------------------------------------------------------------- the SDK


def sdk(data: bytes | WireResponse, pieces: int = 1) -> anthropic.Anthropic:
    """The real client, which gets these bytes whatever it asks."""
    client = replaying(data, pieces)
    return anthropic.Anthropic(api_key="none", base_url="http://bridge.test", http_client=client, max_retries=0)
