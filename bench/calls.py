#!/usr/bin/env python3
"""Counts our function calls and objects for one paced token, one plain request, and a turn of a kept conversation.

    python bench/calls.py           # how many, in how many files, how deep
    python bench/calls.py --tree    # each call, below the one that calls it, and the classes of the objects

Client, server and backend share one process and one loop. Counts do not depend on how busy the machine is, so that
tests can hold them (`tests/bench/test_calls.py`). What is counted: calls of functions below `bridge/` and `adapters/`,
test kits excluded; generators and coroutines count each time they are resumed. Those of the thread of an SQLite file
are counted, too. Objects are instances of classes from there, by their `__init__`, generated ones included, or by the
`__new__` of named tuples.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, ClassVar

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
TOKEN, PLAIN = "a paced token", "a plain request"
NOT_KEPT, BEGINS, GOES_ON = "a short stream", "the same, which begins a kept conversation", "the same, its third turn"


@dataclass(frozen=True, slots=True)
class Count:
    """`calls` of ours in `files` files, at most `depth` inside each other; `beside` of them in other threads.

    `objects`: the instances of our classes that were made.
    """

    calls: int
    files: int
    depth: int
    beside: int = 0
    objects: int = 0


class CallCounter:
    """Counts while it is entered, also in the threads that begin after `watch_threads`."""

    _entered: ClassVar[CallCounter | None] = None

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._found: list[tuple[CodeType, int, bool]] = []
        """Each call: what is called, how deep, and whether it is in another thread. Threads only append."""
        self.made: list[str] = []
        """The class of each object, in the order of their beginning."""

    def __enter__(self) -> CallCounter:
        CallCounter._entered = self
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        CallCounter._entered = None

    @staticmethod
    def watch_threads() -> None:
        threading.setprofile(_in_thread)

    def _event(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        if (of := _made(frame)) is not None:
            self.made.append(of.__qualname__)
        if not _is_ours(frame.f_code):
            return
        depth, above = 0, frame
        while above is not None:
            depth += _is_ours(above.f_code)
            above = above.f_back  # type: ignore[assignment]
        self._found.append((frame.f_code, depth, threading.get_ident() != self._thread))

    @property
    def count(self) -> Count:
        files = {code.co_filename for code, _, _ in self._found}
        deepest = max((depth for _, depth, _ in self._found), default=0)
        beside = sum(elsewhere for _, _, elsewhere in self._found)
        return Count(len(self._found), len(files), deepest, beside, len(self.made))

    @property
    def tree(self) -> list[str]:
        return [
            f"{'| ' if beside else ''}{'  ' * depth}{code.co_qualname}  "
            f"{code.co_filename.removeprefix(f'{ROOT}/')}:{code.co_firstlineno}"
            for code, depth, beside in self._found
        ]


def _in_thread(frame: FrameType, event: str, of: object) -> None:
    if (counter := CallCounter._entered) is not None:
        counter._event(frame, event, of)


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(OURS) and not code.co_filename.startswith(KITS)


def _made(frame: FrameType) -> type | None:
    """Return the class of ours whose new object this call begins with, or None."""
    name = frame.f_code.co_name
    if name not in ("__init__", "__new__") or not frame.f_code.co_argcount:
        return None
    first = frame.f_locals[frame.f_code.co_varnames[0]]
    if name == "__new__":
        of = first if isinstance(first, type) and issubclass(first, tuple) else None
    else:
        above = frame.f_back
        if (
            above is not None
            and above.f_code.co_name == "__init__"
            and any(first is each for each in above.f_locals.values())
        ):
            return None  # that of a base class
        of = type(first)
    if of is None or of.__module__.startswith("bridge.testing"):
        return None
    return of if of.__module__.partition(".")[0] in ("bridge", "adapters") else None


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


async def _short(session: aiohttp.ClientSession, url: str, conversation: str, turns: int) -> CallCounter:
    """Counts a short stream of AgentScope, whose client sends what is new, after so many turns."""
    said = [{"role": "user", "type": "message", "content": [{"type": "text", "text": "hi"}]}]
    body = {"input": said, "session_id": conversation, "user_id": "u", "stream": True}
    for _ in range(turns):
        await (await session.post(url, json=body)).read()
    with CallCounter() as counter:
        await (await session.post(url, json=body)).read()
        await asyncio.sleep(0)  # what follows the answer
    return counter


@asynccontextmanager
async def serving(backend: FakeBackend, dialect: str, history: str) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """A bridge with one route, and a client of it."""
    port = free_port()
    config: dict[str, Any] = {
        "server": {"port": port, "http_client": "httptools"},
        "backends": {"it": {"dialect": "openai-chat", "url": backend.url}},
        "routes": [{"dialect": dialect, "path": "/v1", "backend": "it"}],
        "stores": {"history": history},
    }
    async with running(Bridge.from_config(config)), aiohttp.ClientSession() as session:
        yield session, f"http://127.0.0.1:{port}/v1"


async def counters(tokens: int) -> dict[str, CallCounter]:
    """Count `tokens` tokens and a plain request of openai-chat, nothing kept; and streams of clients that send what is
    new. The backend speaks openai-chat.
    """
    found: dict[str, CallCounter] = {}
    CallCounter.watch_threads()
    try:
        async with fake_backend() as backend:
            async with serving(backend, "openai-chat", "off") as (session, url):
                url += "/chat/completions"
                await _stream(session, backend, url, WARM)
                found[TOKEN] = await _stream(session, backend, url, tokens)
                found[PLAIN] = await _plain(session, backend, url)
            backend.streams(chunk("Hello"), END)
            with tempfile.TemporaryDirectory() as folder:
                for history in ("off", f"sqlite:///{folder}/kept.db"):
                    async with serving(backend, "agentscope", history) as (session, url):
                        url += "/process"
                        await _short(session, url, "warm", WARM)
                        if history == "off":
                            found[NOT_KEPT] = await _short(session, url, "a", 0)
                        else:
                            found[BEGINS] = await _short(session, url, "a", 0)
                            found[GOES_ON] = await _short(session, url, "b", 2)
    finally:
        threading.setprofile(None)
    return found


async def counted(tokens: int = 50) -> dict[str, Count]:
    """Return the counts of `counters`; that of a token is the mean over `tokens`."""
    found = {what: counter.count for what, counter in (await counters(tokens)).items()}
    stream = found[TOKEN]
    token = Count(round(stream.calls / tokens), stream.files, stream.depth, objects=round(stream.objects / tokens))
    return {**found, TOKEN: token}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", action="store_true", help="print each call; those of other threads behind `|`")
    if parser.parse_args().tree:
        for what, counter in asyncio.run(counters(1)).items():
            objects = [f"{number} x {name}" for name, number in sorted(Counter(counter.made).items())]
            print(what, *counter.tree, "", *objects, "", sep="\n")
        return
    for what, count in asyncio.run(counted()).items():
        beside = f", {count.beside} of them in other threads" if count.beside else ""
        calls = f"{count.calls} calls of ours, in {count.files} files, at most {count.depth} deep{beside}"
        print(f"{what}: {calls}; {count.objects} objects")


if __name__ == "__main__":
    main()
