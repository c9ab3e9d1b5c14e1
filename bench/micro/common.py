"""Timing and sample data shared by the micro benchmarks (no sockets here)."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

import orjson

N = 2000
_WORDS = [
    " the",
    " Hello",
    " quick",
    " translation",
    " of",
    " a",
    " stream",
    " event",
    " is",
    "\n\n",
    ' "quoted"',
    " 你好",
    " and",
    " 42",
    " faster",
    ",",
    ".",
    " e",
    " über",
    " function",
]


def texts(n: int = N, seed: int = 1) -> list[str]:
    rnd = random.Random(seed)
    return [rnd.choice(_WORDS) for _ in range(n)]


def openai_chunk(text: str) -> bytes:
    """One chat.completion.chunk of about 300 bytes, as hosted services write them."""
    return orjson.dumps(
        {
            "id": "chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG",
            "object": "chat.completion.chunk",
            "created": 1741570283,
            "model": "gpt-4o-mini-2024-07-18",
            "service_tier": "default",
            "system_fingerprint": "fp_fc9f1d7035",
            "choices": [{"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": None}],
            "usage": None,
        }
    )


def run(benches: list[tuple[str, Callable[[], object]]], per: int = N, rounds: int = 15) -> dict[str, float]:
    """Median CPU ns per item. Rounds interleave the candidates, so drift hits all alike."""
    samples: dict[str, list[float]] = {name: [] for name, _ in benches}
    for _, f in benches:
        f()
    for _ in range(rounds):
        for name, f in benches:
            t = time.process_time()
            f()
            samples[name].append((time.process_time() - t) / per * 1e9)
    result = {}
    for name, _ in benches:
        s = samples[name]
        result[name] = statistics.median(s)
        print(f"{result[name]:9.0f} ns  (best {min(s):8.0f})  {name}", flush=True)
    return result
