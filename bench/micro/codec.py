#!/usr/bin/env python3
"""What one streamed text delta costs before any socket is touched.

    python codec.py [rounds]

Sections: parsing a 300-byte chat chunk, making an event, dispatch on its type, encoding, splitting
SSE, and whole paths in different shapes. msgspec and openai are measured only when installed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import Literal, NamedTuple

import orjson
from common import N, openai_chunk, run, texts
from pydantic import BaseModel

loads, dumps = orjson.loads, orjson.dumps
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 15
TEXTS = texts()
PAYLOADS = [openai_chunk(t) for t in TEXTS]
WIRE = [b"data: " + p + b"\n\n" for p in PAYLOADS]
READS1 = WIRE  # one event per read
READS8 = [b"".join(WIRE[i : i + 8]) for i in range(0, N, 8)]  # a burst: eight per read
MID = "msg_6b2f0c1e-9f58-4f3e-8d0a-1f2e3d4c5b6a"


# ------------------------------------------------------------------ candidates
@dataclass(slots=True)
class TextDelta:
    text: str
    item: int = 0


@dataclass(slots=True)
class Reasoning:
    text: str
    item: int = 0


@dataclass(slots=True)
class ToolArgs:
    text: str
    item: int = 0


@dataclass(slots=True)
class Finished:
    reason: str


@dataclass(slots=True, frozen=True)
class FrozenDelta:
    text: str
    item: int = 0


class TupleDelta(NamedTuple):
    text: str
    item: int = 0


class ModelDelta(BaseModel):
    text: str
    item: int = 0


class PDelta(BaseModel):
    content: str | None = None
    reasoning_content: str | None = None


class PChoice(BaseModel):
    index: int
    delta: PDelta
    finish_reason: str | None = None


class PChunk(BaseModel):
    id: str
    object: str
    created: int
    model: str
    choices: list[PChoice]


class PContent(BaseModel):
    type: Literal["TEXT_MESSAGE_CONTENT"] = "TEXT_MESSAGE_CONTENT"
    messageId: str
    delta: str


class Splitter:
    """Incremental SSE splitter, data fields only. Splits on a single LF (a memchr); LF, CRLF and CR
    line ends, also when a read ends between CR and LF. The pieces of an unfinished line are joined once,
    not at every read: a 20 MiB line in 64 KiB reads costs 1 s otherwise."""

    __slots__ = ("_cr", "_data", "_rest")

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._data: bytes | None = None
        self._cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        if self._cr and chunk:
            self._cr = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._rest:
            self._rest.append(chunk)
            if b"\n" not in chunk:
                return []
            chunk = b"".join(self._rest)
            self._rest = []
        lines = chunk.split(b"\n")
        if tail := lines.pop():
            self._rest.append(tail)
        out, data = [], self._data
        for line in lines:
            if line:
                if line[:6] == b"data: ":
                    data = line[6:] if data is None else data + b"\n" + line[6:]
                elif line[:5] == b"data:":
                    data = line[5:] if data is None else data + b"\n" + line[5:]
            elif data is not None:
                out.append(data)
                data = None
        self._data = data
        return out


class BlockSplitter:
    """The same by blank lines: the two-byte needle has no memchr path."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        blocks = (self._rest + chunk).split(b"\n\n")
        self._rest = blocks.pop()
        return [b[6:] for b in blocks if b[:6] == b"data: " and b"\n" not in b]


class Decoder:
    """Tight: a read's bytes in, the read's events out."""

    def __init__(self) -> None:
        self._split = Splitter().feed

    def feed(self, chunk: bytes) -> list:
        out: list = []
        for payload in self._split(chunk):
            choices = loads(payload).get("choices")
            if choices:
                delta = choices[0].get("delta")
                if delta:
                    if text := delta.get("content"):
                        out.append(TextDelta(text))
                    if text := delta.get("reasoning_content"):
                        out.append(Reasoning(text))
                    if calls := delta.get("tool_calls"):
                        for call in calls:
                            out.append(ToolArgs(call["function"]["arguments"]))
                if reason := choices[0].get("finish_reason"):
                    out.append(Finished(reason))
        return out


class Encoder:
    """Tight: events in, the write's bytes out; constant parts serialised once per item."""

    def __init__(self) -> None:
        self._seq = 0
        self._mid = (
            b',"object":"content","status":"in_progress","type":"text","index":0,"delta":true,"msg_id":'
            + dumps(MID)
            + b',"text":'
        )
        self._table = {TextDelta: self._text, Reasoning: self._text, ToolArgs: self._text, Finished: self._end}

    def encode(self, events: list) -> bytes:
        table = self._table
        return b"".join([table[type(e)](e) for e in events])

    def _text(self, e: TextDelta) -> bytes:
        self._seq = seq = self._seq + 1
        return b'data: {"sequence_number":%d%b%b}\n\n' % (seq, self._mid, dumps(e.text))

    def _end(self, e: Finished) -> bytes:
        return b""


class DictEncoder(Encoder):
    """As Encoder, but builds and dumps the whole object for every event."""

    def _text(self, e: TextDelta) -> bytes:
        self._seq = seq = self._seq + 1
        return (
            b"data: "
            + dumps(
                {
                    "sequence_number": seq,
                    "object": "content",
                    "status": "in_progress",
                    "type": "text",
                    "index": 0,
                    "delta": True,
                    "msg_id": MID,
                    "text": e.text,
                }
            )
            + b"\n\n"
        )


@dataclass(slots=True)
class Frame:
    data: bytes
    event: str | None = None
    id: str | None = None


class Layered:
    """Many small steps: frame objects, one call per frame, a builder that checks order, stages called
    per event, encode(event) -> list of frames, framing to bytes."""

    def __init__(self, encoder: type[Encoder], stages: int = 2) -> None:
        self._split = Splitter().feed
        self._enc = encoder()
        self._stages = [self._stage] * stages
        self._open: str | None = None

    def _text(self, key: str, text: str) -> list:
        if self._open != key:
            self._open = key
        return [TextDelta(text)]

    def _decode(self, frame: Frame) -> list:
        choices = loads(frame.data).get("choices")
        out: list = []
        if choices:
            delta = choices[0].get("delta")
            if delta and (text := delta.get("content")):
                out.extend(self._text("text", text))
        return out

    def _stage(self, event):
        return event

    def _encode(self, event) -> list[Frame]:
        return [Frame(self._enc._table[type(event)](event)[6:-2])]

    def feed(self, chunk: bytes) -> bytes:
        out = []
        for frame in [Frame(p) for p in self._split(chunk)]:
            for event in self._decode(frame):
                for stage in self._stages:
                    event = stage(event)
                for f in self._encode(event):
                    if f.event is None and f.id is None:
                        out.append(b"data: " + f.data + b"\n\n")
        return b"".join(out)


# ------------------------------------------------------------------ sections
def section(name: str, benches: list) -> None:
    print(f"\n{name}")
    run(benches, rounds=ROUNDS)


def each(f, items):
    def go():
        for x in items:
            f(x)

    return go


def parse() -> None:
    b = [
        ("orjson.loads", each(loads, PAYLOADS)),
        ("json.loads", each(json.loads, PAYLOADS)),
        ("pydantic model_validate_json, 3 small models", each(PChunk.model_validate_json, PAYLOADS)),
    ]
    try:
        import msgspec

        D = msgspec.defstruct("D", [("content", str | None, None), ("reasoning_content", str | None, None)])
        C = msgspec.defstruct("C", [("delta", D | None, None), ("finish_reason", str | None, None)])
        K = msgspec.defstruct("K", [("choices", list[C], [])])
        b.append(("msgspec typed, needed fields only", each(msgspec.json.Decoder(K).decode, PAYLOADS)))
    except ImportError:
        pass
    try:
        from openai._models import construct_type
        from openai.types.chat import ChatCompletionChunk

        b.append(
            ("openai ChatCompletionChunk.model_validate_json", each(ChatCompletionChunk.model_validate_json, PAYLOADS))
        )
        b.append(
            (
                "what the openai SDK does per chunk",
                each(lambda p: construct_type(type_=ChatCompletionChunk, value=json.loads(p)), PAYLOADS),
            )
        )
    except ImportError:
        pass
    section("parse one chunk", b)


def events() -> None:
    section(
        "make one event",
        [
            ("dataclass(slots=True)", each(TextDelta, TEXTS)),
            ("dataclass(slots=True, frozen=True)", each(FrozenDelta, TEXTS)),
            ("NamedTuple", each(TupleDelta, TEXTS)),
            ("pydantic model", each(lambda t: ModelDelta(text=t), TEXTS)),
        ],
    )


def dispatch() -> None:
    kinds = [TextDelta("x"), Reasoning("x"), ToolArgs("x"), Finished("s")]
    mix = [kinds[i % 4] for i in range(N)]

    def h(e):
        pass

    table = dict.fromkeys((TextDelta, Reasoning, ToolArgs, Finished), h)

    def chain(e):
        if isinstance(e, TextDelta):  # noqa: SIM114 - the chain is what is measured
            h(e)
        elif isinstance(e, Reasoning):  # noqa: SIM114
            h(e)
        elif isinstance(e, ToolArgs):  # noqa: SIM114
            h(e)
        elif isinstance(e, Finished):
            h(e)

    def match(e):
        match e:
            case TextDelta(text=t):
                h(t)
            case Reasoning(text=t):
                h(t)
            case ToolArgs(text=t):
                h(t)
            case Finished(reason=r):
                h(r)

    section(
        "dispatch, four kinds in turn (each in one call)",
        [
            ("table[type(e)](e)", each(lambda e: table[type(e)](e), mix)),
            ("isinstance chain", each(chain, mix)),
            ("match with field capture", each(match, mix)),
        ],
    )


def encode() -> None:
    ev = [TextDelta(t) for t in TEXTS]
    section(
        "encode one delta",
        [
            ("AgentScope: constant parts + dumps(text)", each(Encoder()._text, ev)),
            ("AgentScope: whole object through orjson", each(DictEncoder()._text, ev)),
            (
                "AG-UI: pydantic model + model_dump_json",
                each(
                    lambda e: b"data: " + PContent(messageId=MID, delta=e.text).model_dump_json().encode() + b"\n\n", ev
                ),
            ),
        ],
    )


def split() -> None:
    b = []
    for name, reads in (("1 per read", READS1), ("8 per read", READS8)):
        b += [
            (f"lines, single LF, {name}", each(Splitter().feed, reads)),
            (f"blocks, double LF, {name}", each(BlockSplitter().feed, reads)),
        ]
    section("split SSE", b)


def paths() -> None:
    def tight(enc, reads):
        d, e = Decoder(), enc()

        def go():
            for r in reads:
                e.encode(d.feed(r))

        return go

    def layered(enc, reads, stages):
        p = Layered(enc, stages)
        return each(p.feed, reads)

    def pyd(reads):
        def go():
            s = Splitter()
            for r in reads:
                out = []
                for p in s.feed(r):
                    c = PChunk.model_validate_json(p)
                    if text := c.choices[0].delta.content:
                        out.append(b"data: " + PContent(messageId=MID, delta=text).model_dump_json().encode() + b"\n\n")
                b"".join(out)

        return go

    loop = asyncio.new_event_loop()

    def agen(reads, levels):
        async def go():
            d, e = Decoder(), Encoder()

            async def source():
                for r in reads:
                    for ev in d.feed(r):
                        yield ev

            async def stage(it):
                async for ev in it:
                    yield ev

            it = source()
            for _ in range(levels):
                it = stage(it)
            async for ev in it:
                e.encode((ev,))

        return lambda: loop.run_until_complete(go())

    b = []
    for name, r in (("1 per read", READS1), ("8 per read", READS8)):
        b += [
            (f"tight, constant parts, {name}", tight(Encoder, r)),
            (f"tight, whole objects, {name}", tight(DictEncoder, r)),
            (f"layered, 2 stages, constant parts, {name}", layered(Encoder, r, 2)),
            (f"layered, 2 stages, whole objects, {name}", layered(DictEncoder, r, 2)),
            (f"async generators, 3 levels, {name}", agen(r, 3)),
            (f"pydantic in and out, {name}", pyd(r)),
        ]
    section("whole path: chat chunk -> event -> AgentScope/AG-UI", b)
    loop.close()


if __name__ == "__main__":
    print(
        f"Python {sys.version.split()[0]}, orjson {orjson.__version__}, payload {sum(map(len, PAYLOADS)) / N:.0f} bytes"
    )
    for f in (parse, events, dispatch, encode, split, paths):
        f()
