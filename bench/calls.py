#!/usr/bin/env python3
"""Counts our function calls for one paced token and for one plain request.

    python bench/calls.py           # how many, in how many files, how deep
    python bench/calls.py --tree    # each of them, below the one that calls it

Client, server and backend share one process and one loop. Counts do not depend on how busy the machine is, so that
tests can hold them (`tests/bench/test_calls.py`). What is counted: calls of functions below `bridge/` and `adapters/`,
test kits excluded; generators and coroutines count each time they are resumed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import aiohttp
import orjson

from bridge import Bridge
from bridge.server import running
from bridge.testing import Exchange, FakeBackend, fake_backend, free_port

ROOT = Path(__file__).resolve().parents[1]
OURS = (f"{ROOT}/bridge/", f"{ROOT}/adapters/")
KITS = f"{ROOT}/bridge/testing/"
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
WARM = 5


@dataclass(frozen=True, slots=True)
class Count:
    """`calls` of ours, in `files` files, at most `depth` of ours inside each other."""

    calls: int
    files: int
    depth: int


class CallCounter:
    """Counts while it is entered."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()
        self.tree: list[str] = []
        self.depth = 0

    def __enter__(self) -> CallCounter:
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _event(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not _is_ours(frame.f_code):
            return
        self.calls[frame.f_code] += 1
        depth, above = 0, frame
        while above is not None:
            depth += _is_ours(above.f_code)
            above = above.f_back  # type: ignore[assignment]
        self.depth = max(self.depth, depth)
        file = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
        self.tree.append(f"{'  ' * depth}{frame.f_code.co_qualname}  {file}:{frame.f_code.co_firstlineno}")

    @property
    def count(self) -> Count:
        return Count(self.calls.total(), len({code.co_filename for code in self.calls}), self.depth)


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(OURS) and not code.co_filename.startswith(KITS)


def chunk(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return b"data: " + orjson.dumps({"id": "c", "model": "m", "choices": [choice]}) + b"\n\n"


END = b'data: {"id":"c","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
WHOLE = orjson.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
)


async def _stream(session: aiohttp.ClientSession, backend: FakeBackend, url: str, tokens: int) -> CallCounter:
    """Counts from the first token to the last one, each sent when the client has the one before."""
    came: asyncio.Queue[bytes] = asyncio.Queue()
    counter = CallCounter()

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        for number in range(tokens + 2):
            word = f"word{number} "
            await exchange.send(chunk(word))
            while word.encode() not in await came.get():
                pass
            if number == 1:
                counter.__enter__()
        counter.__exit__()
        await exchange.send(END)
        await exchange.end()

    backend.plays(script)
    async with session.post(url, json={**ASK, "stream": True}) as response:
        async for piece in response.content.iter_any():
            came.put_nowait(piece)
    return counter


async def _plain(session: aiohttp.ClientSession, backend: FakeBackend, url: str) -> CallCounter:
    backend.answers(200, WHOLE)
    for _ in range(WARM):
        await (await session.post(url, json=ASK)).read()
    with CallCounter() as counter:
        await (await session.post(url, json=ASK)).read()
    return counter


async def counters(tokens: int) -> tuple[CallCounter, CallCounter]:
    """Count `tokens` tokens and a plain request, openai-chat to openai-chat, nothing kept."""
    port = free_port()
    config: dict[str, Any] = {
        "server": {"port": port, "http_client": "httptools"},
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
        "stores": {"history": "off"},
    }
    async with fake_backend() as backend:
        config["backends"] = {"it": {"dialect": "openai-chat", "url": backend.url}}
        async with running(Bridge.from_config(config)), aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            await _stream(session, backend, url, WARM)
            return await _stream(session, backend, url, tokens), await _plain(session, backend, url)


async def counted(tokens: int = 50) -> dict[str, Count]:
    """Return the counts of a token, as the mean over `tokens`, and of a plain request."""
    stream, plain = (counter.count for counter in await counters(tokens))
    return {"a paced token": Count(round(stream.calls / tokens), stream.files, stream.depth), "a plain request": plain}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", action="store_true", help="print each call")
    if parser.parse_args().tree:
        token, request = asyncio.run(counters(1))
        print("a paced token", *token.tree, "", "a plain request", *request.tree, sep="\n")
        return
    for what, count in asyncio.run(counted()).items():
        print(f"{what}: {count.calls} calls of ours, in {count.files} files, at most {count.depth} deep")


if __name__ == "__main__":
    main()
