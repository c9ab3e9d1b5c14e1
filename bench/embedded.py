#!/usr/bin/env python3
"""What a client library costs inside the caller's own process, without a server in between.

    python bench/embedded.py aiohttp|openai|MODULE:FUNCTION [--tokens 200] [--streams 200]

MODULE:FUNCTION is an async function that takes the base URL of the mock upstream (no /v1), reads one streamed reply
and returns its joined text. Starts the mock upstream, prints one JSON line: seconds to import, CPU us per stream
and per event, MB.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from mock_replies import token
from targets import Mock
from wires import BODIES

BODY = BODIES["openai-chat"]
Reader = Callable[[], Awaitable[str]]


async def by_aiohttp(base: str, stack: AsyncExitStack) -> Reader:
    """By hand: the floor of any reader on aiohttp."""
    import aiohttp
    from orjson import loads

    session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))

    async def read() -> str:
        out, rest = [], b""
        async with session.post(base + "/v1/chat/completions", json=BODY) as reply:
            async for piece in reply.content.iter_any():
                blocks = (rest + piece).split(b"\n\n")
                rest = blocks.pop()
                for block in blocks:
                    if block != b"data: [DONE]":
                        choices = loads(block[6:])["choices"]
                        if text := choices and choices[0]["delta"].get("content"):
                            out.append(text)
        return "".join(out)

    return read


async def by_openai(base: str, stack: AsyncExitStack) -> Reader:
    import openai

    made = openai.AsyncOpenAI(base_url=base + "/v1", api_key="unused", max_retries=0)
    client = await stack.enter_async_context(made)

    async def read() -> str:
        out = []
        async for chunk in await client.chat.completions.create(**BODY):
            if chunk.choices and (text := chunk.choices[0].delta.content):
                out.append(text)
        return "".join(out)

    return read


async def reader(kind: str, base: str, stack: AsyncExitStack) -> Reader:
    """Imports the library and makes its client, which `stack` closes."""
    if kind in (known := {"aiohttp": by_aiohttp, "openai": by_openai}):
        return await known[kind](base, stack)
    module, _, name = kind.partition(":")
    function = getattr(importlib.import_module(module), name)
    return lambda: function(base)


async def measure(args: argparse.Namespace, base: str) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        begun = time.perf_counter()
        read = await reader(args.kind, base, stack)
        return {"import_s": round(time.perf_counter() - begun, 2), **await repeat(read, args)}


async def repeat(read: Reader, args: argparse.Namespace) -> dict[str, Any]:
    want = "".join(token(i) for i in range(args.tokens))
    wrong = 0

    async def read_many(count: int) -> None:
        nonlocal wrong
        for _ in range(count):
            wrong += await read() != want

    share = max(1, args.streams // args.concurrency)
    await asyncio.gather(*(read_many(1) for _ in range(args.concurrency)))  # warm up
    cpu, begun = time.process_time(), time.perf_counter()
    await asyncio.gather(*(read_many(share) for _ in range(args.concurrency)))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - begun
    streams = share * args.concurrency
    return {
        "kind": args.kind,
        "streams_per_s": round(streams / wall, 1),
        "cpu_us_per_stream": round(cpu / streams * 1e6, 1),
        "cpu_us_per_event": round(cpu / streams / args.tokens * 1e6, 2),
        "max_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "wrong": wrong,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--concurrency", type=int, default=16)
    args = parser.parse_args()
    with Mock() as mock:
        mock.set(tokens=args.tokens)
        result = asyncio.run(measure(args, mock.url))
    print(json.dumps(result))
    return 1 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
