"""A mixed load over every pair of dialects with everything going wrong in between: `make soak TIME=600`.

The bridge runs in a process of its own. At the end it must have no task, no file and no socket more than at the start,
every whole answer was whole, and no callback held its event loop for longer than `tests.watched.LONGEST`. Beside runs
there are the loads of `tests.faults.shapes`.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from bridge.contract import registry
from bridge.testing.pairs import frames_of
from tests.faults.apart import Apart, Figures, apart
from tests.faults.faults import FAULTS, Said, with_run
from tests.faults.measure import queued
from tests.faults.shapes import BIG, HUGE, SHAPES, SLOW_READER, forwarded, much, prepare, rich
from tests.faults.wire import LIMIT, SPEAKING, ask, asking, connect, exchange, raw, read
from tests.server.harness import Exchange, FakeBackend, fake_backend, serving
from tests.watched import LONGEST

_CLIENTS = 24
_SIPS = 50
"""Small reads of a slow reader, who then takes the rest: on a busy machine all of it would take him minutes."""
_BROKEN = [fault for fault in FAULTS if not fault.section]
_OPTIONS = {"agent-runs": {"connection_limit": 1_000}}
_BACKEND_OPTIONS = {"agent-runs": {"reconnect": []}, "a2a": {"card": "none"}}
_RUNS = {"whole": 50, "fault": 20, "bad bytes": 10, "hang-up": 12, "slow reader": 8}
_BAD = (b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"messages": 7}', b"[" * 5_000)


@dataclass
class Result:
    """`lost` counts whole answers that came otherwise; `problems` are the first of what should not have been seen."""

    done: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    problems: list[str] = field(default_factory=list)
    bridge: Figures = field(default_factory=Figures)

    def wrong(self, what: str) -> None:
        self.lost += 1
        if len(self.problems) < 5:
            self.problems.append(what)

    def lag(self, share: float) -> float:
        """The lag of which this share of all timers stayed below, or the largest for 1.0."""
        lags = sorted(self.bridge.lags)
        return lags[min(int(len(lags) * share), len(lags) - 1)]

    def memory(self, share: float) -> int:
        """The bytes that the bridge held after this share of the load, or after its end for 1.0."""
        held = self.bridge.memory
        return held[min(int(len(held) * share), len(held) - 1)]

    def failed(self) -> bool:
        """True if an answer was lost, something is left, or a callback held the loop for too long."""
        bridge = self.bridge
        return bool(self.lost or bridge.tasks > 0 or bridge.files > 0 or bridge.held > LONGEST)


class World:
    """Eight backends, a bridge with every front over each, and what is to be said in which run."""

    def __init__(self) -> None:
        self.base = ""
        self.playing: Counter[str] = Counter()
        self._texts: dict[str, str] = {}

    async def open(self, stack: AsyncExitStack, folder: str) -> None:
        """Start the backends, and the bridge in this process."""
        self.base = await stack.enter_async_context(serving(await self._config(stack, folder)))

    async def open_apart(self, stack: AsyncExitStack, folder: str) -> Apart:
        """Start the backends, and the bridge in another process."""
        bridge = await stack.enter_async_context(apart(await self._config(stack, folder)))
        self.base = bridge.base
        return bridge

    async def _config(self, stack: AsyncExitStack, folder: str) -> dict[str, Any]:
        backends: dict[str, Any] = {}
        for name in SPEAKING:
            backend = await stack.enter_async_context(fake_backend())
            backend.plays(self._script(name, backend))
            section = {"dialect": name, "url": backend.url, "breaker": {"failures": 1_000_000}}
            backends[name] = {**section, "options": _BACKEND_OPTIONS.get(name, {})}
        config = {
            "backends": backends,
            "routes": [
                {"dialect": front, "path": f"/{front}/{back}", "backend": back, "options": _OPTIONS.get(front, {})}
                for front in SPEAKING
                for back in SPEAKING
            ],
            "stores": {"history": f"sqlite:///{folder}/h.db", "attachments": f"file:///{folder}/images"},
            "server": {"page": True, "slow_reader": f"{SLOW_READER}s"},
        }
        far = await stack.enter_async_context(fake_backend())
        far.plays(self._forwards(far))
        backends["far"] = {"dialect": "openai-chat", "url": far.url, "breaker": "off"}
        config["routes"].append({"dialect": "openai-chat", "path": "/forward/v1", "backend": "far", "extras": "far"})
        return config

    def _forwards(self, backend: FakeBackend) -> Callable[[Exchange], Awaitable[None]]:
        async def script(exchange: Exchange) -> None:
            del backend.seen[:-_CLIENTS]
            with suppress(ConnectionError):
                await forwarded(exchange)

        return script

    def _script(self, name: str, backend: FakeBackend) -> Callable[[Exchange], Awaitable[None]]:
        async def script(exchange: Exchange) -> None:
            seen = exchange.seen
            del backend.seen[:-_CLIENTS]  # what a long run was asked is not kept
            if name == "agent-runs" and seen.method == "POST":
                if seen.path.endswith("/runs"):
                    self._texts[seen.json["runId"]] = _wish(seen.body)
                    while len(self._texts) > 1_000:
                        del self._texts[next(iter(self._texts))]
                await queued(exchange)
                return
            if name == "a2a" and seen.json["method"] != "SendStreamingMessage":
                # What became of the task, after a stream that broke off.
                await exchange.answer(200, b'{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no such task"}}')
                return
            run = dict(parse_qsl(urlsplit(seen.path).query)).get("runId")
            wish = self._texts.get(run, "") if run else _wish(seen.body)
            with suppress(ConnectionError):
                await _grant(name, wish, run, exchange)

        return script


async def _grant(name: str, wish: str, run: str | None, exchange: Exchange) -> None:
    kind, _, number = wish.partition("-")
    if kind == "fault":
        said = Said.of(name, run)
        said.heard.set()
        await _BROKEN[int(number)].play(exchange, said)
        return
    if kind in ("rich", "big", "huge"):
        made = rich(name) if kind == "rich" else much(name, BIG if kind == "big" else HUGE)
    else:
        made = frames_of(registry.get(name), f"<{wish}>", " and ", "☀" * 200)
    frames = with_run(made, run)
    await exchange.head()
    for frame in frames:
        await exchange.send(frame)
        if kind == "slow":
            await asyncio.sleep(0.01)
    await exchange.end()


def _wish(body: bytes) -> str:
    """What the newest message asks for."""
    for word in (b"whole-", b"fault-", b"slow-", b"rich-", b"big-", b"huge-"):
        if (place := body.rfind(word)) >= 0:
            return body[place : place + 100].split(b'"')[0].decode()
    return ""


async def _one(world: World, number: int, chance: random.Random, result: Result) -> None:
    weights = {**_RUNS, **{name: weight for name, (_, weight, _) in SHAPES.items()}}
    kind = chance.choices(list(weights), list(weights.values()))[0]
    if kind in SHAPES:
        await _shape(world, kind, number, chance, result)
        return
    front = registry.get(chance.choice(SPEAKING))
    mount = f"/{front.name}/{chance.choice(SPEAKING)}"
    named = {"thread": f"t{number}", "run": f"r{number}"}
    if kind == "whole":
        wish = f"whole-{number}"
        got = read(front, await ask(world.base, front, mount, text=wish, **named))
        if (got.verdict, got.text) != ("whole", f"<{wish}> and " + "☀" * 200):
            result.wrong(f"{mount}: {got}")
    elif kind == "fault":
        which = chance.randrange(len(_BROKEN))
        got = read(front, await ask(world.base, front, mount, text=f"fault-{which}", **named))
        if got.verdict == "whole" and not mount.endswith("/ag-kit"):
            result.wrong(f"{mount}: {_BROKEN[which].name} reads as whole")
    elif kind == "bad bytes":
        wire = asking(front, **named)
        wire.body = chance.choice(_BAD)
        seen = await exchange(world.base, raw(wire, mount))
        if read(front, seen).failure is None or not (400 <= seen.status < 500 or front.name == "a2a"):
            # Errors of JSON-RPC have the HTTP status 200.
            result.wrong(f"{mount}: {wire.body[:20]!r} was taken")
    else:
        await _rude(world, raw(asking(front, f"slow-{number}", **named), mount), kind, chance)
    result.done[kind] += 1


async def _shape(world: World, kind: str, number: int, chance: random.Random, result: Result) -> None:
    """One case of this shape, unless as many are played as may be at a time."""
    play, _, most = SHAPES[kind]
    if world.playing[kind] >= most:
        return
    world.playing[kind] += 1
    try:
        problem = await play(world.base, number, chance)
    except (AssertionError, TimeoutError, asyncio.IncompleteReadError) as error:
        problem = repr(error)
    finally:
        world.playing[kind] -= 1
    if problem:
        result.wrong(f"{kind}: {problem}")
    result.done[kind] += 1


async def _rude(world: World, request: bytes, kind: str, chance: random.Random) -> None:
    reader, writer = await connect(world.base)
    try:
        writer.write(request if kind == "slow reader" or chance.random() < 0.7 else request[: len(request) // 2])
        await writer.drain()
        if kind == "hang-up":
            await asyncio.sleep(chance.random() * 0.1)
            return
        with suppress(ConnectionError):
            async with asyncio.timeout(LIMIT):
                for _ in range(_SIPS):
                    await reader.read(64)
                    await asyncio.sleep(0.001)
                await reader.read()
    finally:
        (writer.transport.abort if chance.random() < 0.5 else writer.close)()


def soak(seconds: float, seed: int = 0) -> Result:
    """Runs the load for so long, in an event loop of its own."""
    return asyncio.run(_soak(seconds, seed))


async def _soak(seconds: float, seed: int) -> Result:
    loop, result, chance = asyncio.get_running_loop(), Result(), random.Random(seed)
    numbers = iter(range(10**9))
    with TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            world = World()
            bridge = await world.open_apart(stack, folder)
            prepare()
            await bridge.begin()
            end = loop.time() + seconds

            async def client() -> None:
                while loop.time() < end:
                    await _one(world, next(numbers), chance, result)

            await asyncio.gather(*(client() for _ in range(_CLIENTS)))
            result.bridge = await bridge.end()
    return result


def main(seconds: float) -> int:
    """Runs the load, prints what it saw, and returns the exit status."""
    found = soak(seconds)
    bridge, shares = found.bridge, (0.1, 0.25, 0.5, 0.75, 1.0)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(found.done.items())))
    print(f"lost {found.lost}, tasks {bridge.tasks:+}, files {bridge.files:+}")
    told = ", ".join(f"{found.memory(share) / 2**20:.0f}" for share in shares)
    print(f"MiB held after {', '.join(f'{share:.0%}' for share in shares)} of the load: {told}")
    print(f"lag of the event loop: p99 {found.lag(0.99) * 1e3:.1f} ms, max {found.lag(1.0) * 1e3:.1f} ms")
    print(f"longest callback: {bridge.held * 1e3:.1f} ms of CPU time (limit {LONGEST * 1e3:.0f} ms): {bridge.holder}")
    print("\n".join(found.problems))
    return int(found.failed())


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
