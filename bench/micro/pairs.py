#!/usr/bin/env python3
"""What a streamed text delta costs in our own codecs, for each pair, beside the least that such work can cost.

    python bench/micro/pairs.py [rounds] [--json]

The reference line is the tight prototype of codec.py: one parsed chunk, one event, constant parts around the text.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import orjson
from codec import READS1, READS8, Decoder, Encoder
from common import N, run, texts

from bridge.contract import registry
from bridge.translation.library import Translator

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 15
MID = "msg_6b2f0c1e-9f58-4f3e-8d0a-1f2e3d4c5b6a"


def scope(number: int, text: str) -> bytes:
    """One AgentScope text delta, as the runtime writes it."""
    return orjson.dumps(
        {
            "sequence_number": number,
            "object": "content",
            "status": "in_progress",
            "error": None,
            "type": "text",
            "index": 0,
            "delta": True,
            "msg_id": MID,
            "text": text,
        }
    )


SCOPE = [b"data: " + scope(n, t) + b"\n\n" for n, t in enumerate(texts())]
WIRES = {
    "openai-chat": {1: READS1, 8: READS8},
    "agentscope": {1: SCOPE, 8: [b"".join(SCOPE[i : i + 8]) for i in range(0, N, 8)]},
}


def tight(reads: list[bytes]) -> object:
    decoder, encoder = Decoder(), Encoder()

    def go() -> None:
        for read in reads:
            encoder.encode(decoder.feed(read))

    return go


def pair(source: str, target: str, reads: list[bytes]) -> object:
    """One endless stream: the round's reads are fed again and again."""
    translator = Translator(source, target, run_id="bench")

    def go() -> None:
        for read in reads:
            translator.feed(read)

    return go


def measured() -> dict[int, dict[str, float]]:
    """Nanoseconds per event, by events in a read and name. `tight` is the reference."""
    pairs = [("openai-chat", target) for target in registry.over_http()]
    pairs += [("agentscope", target) for target in WIRES]
    benches = []
    for size in (8, 1):
        benches.append((f"{size} tight", tight(WIRES["openai-chat"][size])))
        benches += [
            (f"{size} {source} -> {target}", pair(source, target, WIRES[source][size])) for source, target in pairs
        ]
    out: dict[int, dict[str, float]] = {8: {}, 1: {}}
    for name, ns in run(benches, rounds=ROUNDS).items():  # type: ignore[arg-type]
        size, _, plain = name.partition(" ")
        out[int(size)][plain] = round(ns, 1)
    return out


def main() -> None:
    if "--json" in sys.argv:
        with contextlib.redirect_stdout(sys.stderr):
            found = measured()
        print(json.dumps(found))
        return
    for size, lines in measured().items():
        print(f"\n{size} per read, times the tight prototype:")
        for name, ns in lines.items():
            print(f"  {ns / lines['tight']:5.2f}  {name}")


if __name__ == "__main__":
    main()
