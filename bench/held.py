#!/usr/bin/env python3
"""Counts what an open stream holds while its backend is silent: bytes and objects that our code allocated.

    python bench/held.py            # how many
    python bench/held.py --lines    # the lines that allocated most

Client, server and backend share one process. What is counted does not depend on how busy the machine is, so that a
test can hold it (`tests/bench/test_held.py`); what frameworks, parsers and the allocator take beside it is measured by
the scenario `stream-hold-c256`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field

import aiohttp
from calls import ASK, END, KITS, OURS, ROOT, chunk, serving

from bridge.testing import Exchange, FakeBackend, fake_backend

FRONTS = {
    "openai-chat": ("/chat/completions", {**ASK, "stream": True}),
    "ag-ui": ("", {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "hi"}]}),
}
"""The path and a request of each dialect; the backend speaks openai-chat."""
WARM, OPEN = 3, 20
PACKAGE = "bridge."


@dataclass(slots=True)
class Held:
    """Of one open stream."""

    bytes: float = 0
    objects: float = 0
    lines: Counter[str] = field(default_factory=Counter)
    """Bytes by the line that allocated them."""


async def held(front: str) -> Held:
    """Return what each of `OPEN` streams holds after its first token."""
    goes_on = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(chunk("Hello"))
        await goes_on.wait()
        await exchange.send(END)
        await exchange.end()

    async with fake_backend() as backend, serving(backend, front, "off") as (session, url):
        await _ask(session, backend, url, front)
        backend.plays(script)
        path, body = FRONTS[front]
        gc.collect()
        before = _ours()
        tracemalloc.start()
        try:
            answers = await asyncio.gather(*(_begun(session, url + path, body) for _ in range(OPEN)))
            gc.collect()
            taken, objects = tracemalloc.take_snapshot(), _ours() - before
        finally:
            tracemalloc.stop()
        goes_on.set()
        for answer in answers:
            await answer.read()
    found = Held(objects=objects / OPEN)
    for each in taken.statistics("lineno"):
        frame = each.traceback[0]
        if frame.filename.startswith(OURS) and not frame.filename.startswith(KITS):
            found.bytes += each.size / OPEN
            found.lines[f"{frame.filename.removeprefix(f'{ROOT}/')}:{frame.lineno}"] += each.size // OPEN
    return found


async def _ask(session: aiohttp.ClientSession, backend: FakeBackend, url: str, front: str) -> None:
    """What is made once is made before."""
    path, body = FRONTS[front]
    backend.streams(chunk("Hello"), END)
    for _ in range(WARM):
        await (await session.post(url + path, json=body)).read()


async def _begun(session: aiohttp.ClientSession, url: str, body: object) -> aiohttp.ClientResponse:
    """Return an answer whose first token has come."""
    answer = await session.post(url, json=body)
    seen = b""
    while b"Hello" not in seen:
        seen += await answer.content.readany()
    return answer


def _ours() -> int:
    """Return how many objects of our classes there are; test kits have a few of their own."""
    kits = f"{PACKAGE}testing"
    modules = (str(type(each).__module__) for each in gc.get_objects())
    return sum(module.startswith(PACKAGE) and not module.startswith(kits) for module in modules)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", action="store_true", help="also the lines that allocated most")
    args = parser.parse_args()
    for front in FRONTS:
        found = asyncio.run(held(front))
        print(f"{front} -> openai-chat: {found.bytes:,.0f} bytes, {found.objects:.0f} objects of ours")
        for line, size in found.lines.most_common(40 if args.lines else 0):
            print(f"{size:8,}  {line}")


if __name__ == "__main__":
    main()
