"""What the tests of this dialect share: captures, runs through encoder and decoder, and a client of our own."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from bridge.contract import Context, FrameLike, WireRequest
from bridge.dialects.ag_kit import dialect
from bridge.model import Answer, Event, Request, fold, verify
from bridge.translation.framing.sse import Splitter, join

CAPTURES = Path(__file__).parents[2] / "captures" / "ag-kit"
CASES: dict[str, dict[str, Any]] = {c["name"]: c for c in json.loads((CAPTURES / "index.json").read_text())["captures"]}
WAYS = ["whole", "events", "bytes", "random 1", "random 2"]


def context(**fields: Any) -> Context:
    return Context(**{"run_id": "run1", "created_at": 1_700_000_000.0, **fields})


def body_of(name: str) -> bytes:
    return (CAPTURES / CASES[name]["file"]).read_bytes()


def cuts(data: bytes, way: str) -> list[bytes]:
    match way:
        case "whole":
            return [data]
        case "events":
            return [p + b"\n\n" for p in data.split(b"\n\n")]
        case "bytes":
            return [data[i : i + 1] for i in range(len(data))]
    rng, out = random.Random(way), []
    while data:
        size = rng.choice((1, 3, 17, 120, 900))
        out.append(data[:size])
        data = data[size:]
    return out


def decode(chunks: Iterable[bytes], ctx: Context | None = None, failure: Any = None) -> list[Event]:
    decoder, splitter, out = dialect.decoder(ctx or context()), Splitter(), []
    for chunk in chunks:
        out += decoder.feed(splitter.feed(chunk))
    out += decoder.feed(splitter.close())
    out += decoder.close(failure)
    return verify(out)


def said(*events: Any, ctx: Context | None = None, done: bool = True) -> list[Event]:
    """What these wire events, with `[DONE]` behind them, mean."""
    frames = [e if isinstance(e, bytes) else orjson.dumps(e) for e in events]
    return decode([join([*frames, *([b"[DONE]"] if done else [])])], ctx)


def encode(events: Sequence[Event], ctx: Context | None = None, size: int | None = None) -> list[FrameLike]:
    """The frames of these events, in batches of `size`."""
    encoder, out = dialect.encoder(ctx or context()), []
    step = size or max(1, len(events))
    for at in range(0, len(events), step):
        out += encoder.encode(events[at : at + step])
    return out


def payloads(frames: Sequence[FrameLike]) -> list[Any]:
    """The events before `[DONE]`, which is there once and last."""
    assert frames[-1] == b"[DONE]"
    assert b"[DONE]" not in frames[:-1]
    return [json.loads(f) for f in frames[:-1] if isinstance(f, bytes)]


def again(events: Sequence[Event]) -> Answer:
    """The answer that comes out when these events go over the wire and back."""
    return fold(decode([join(encode(events))]))


def asked(body: Any, **fields: Any) -> Request:
    """The request that this body means."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    return dialect.decode_request(WireRequest("POST", "/send-message", headers, body=data), context(**fields))


def sent(request: Request, ctx: Context | None = None) -> dict[str, Any]:
    """The body that asks a backend this."""
    return json.loads(dialect.encode_request(request, ctx or context(request=request)).body)


# ---------------------------------------------------------------------- a client


@dataclass
class Client:
    """Reads as the page says of the one JavaScript client that could be had, and shares no code with us.

    An event counts with the empty line behind it; reading stops at exactly `[DONE]`; the text is the field `content` of
    every event, whatever its type. On top of that it keeps the calls as the page describes them.
    """

    text: str = ""
    done: bool = False
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    interrupts: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    late: list[str] = field(default_factory=list)
    overlapping: bool = False
    """A call began, or text came, while a call was open."""

    def read(self, body: bytes) -> Client:
        lines = body.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
        data: list[str] = []
        for line in lines[:-1]:
            if line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
            elif not line and data:
                self._event("\n".join(data))
                data = []
        return self

    def _event(self, data: str) -> None:
        if self.done:
            self.late.append(data)
        elif data == "[DONE]":
            self.done = True
        else:
            event = json.loads(data)
            self.text += event.get("content") or ""
            if event["type"] in ("text", "tool-call-start"):
                self.overlapping = self.overlapping or not all(c["ended"] for c in self.calls.values())
            self._calls(event)

    def _calls(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind == "tool-call-start":
            assert event["toolCallId"] not in self.calls
            self.calls[event["toolCallId"]] = {"name": event["toolCallName"], "input": "", "ended": False}
        elif kind == "tool-call-args":
            assert not self.calls[event["toolCallId"]]["ended"]
            self.calls[event["toolCallId"]]["input"] += event["delta"]
        elif kind == "tool-call-end":
            call = self.calls[event["toolCallId"]]
            assert not call["ended"]
            call["ended"] = True
        elif kind == "tool-result":
            assert self.calls[event["toolCallId"]]["ended"]
            self.calls[event["toolCallId"]]["result"] = event["result"]
        elif kind == "interrupt":
            self.interrupts.append(event)
        elif kind == "error":
            self.error = event["error"]
        else:
            assert kind == "text", kind


def shown(events: Sequence[Event], ctx: Context | None = None) -> Client:
    """What a client makes of these events."""
    client = Client().read(join(encode(events, ctx)))
    assert client.done
    assert client.late == []
    # Only a failed run leaves calls open, and then what waited behind them still comes.
    assert client.error is not None or (not client.overlapping and all(c["ended"] for c in client.calls.values()))
    return client
