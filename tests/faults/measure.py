"""One fault, one pair of dialects: what the client saw, what the backend saw, what arrived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from tempfile import gettempdir
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from bridge.contract import registry
from bridge.errors import Failure
from tests.faults.faults import Fault, Said
from tests.faults.wire import SPEAKING, Read, ask, read
from tests.server.harness import Exchange, FakeBackend, fake_backend, serving

SOON = 10.0
"""Seconds within which a backend must have learned that nobody waits any more. On an idle machine it is a small part of
the second that we promise; machines that run tests are busy.
"""


async def soon(happened: Callable[[], bool]) -> None:
    """Returns when it did. Raises `TimeoutError` after `SOON`."""
    async with asyncio.timeout(SOON):
        while not happened():
            await asyncio.sleep(0.01)


@dataclass(frozen=True)
class Outcome:
    verdict: str
    backend: str
    arrived: str
    failure: Failure | None


def back_of(front: str) -> str:
    """The backend's dialect beside this front: each has its turn on each side, and never both."""
    return SPEAKING[(SPEAKING.index(front) + 3) % len(SPEAKING)]


def setup(front: str, back: str, url: str, **section: Any) -> dict[str, Any]:
    """The bridge between the two. A backend that queues its runs is not asked again for their rest, nor for a card."""
    known = {"agent-runs": {"reconnect": []}, "a2a": {"card": "none"}}
    options = {"options": known[back]} if back in known else {}
    return {
        "backends": {"it": {"dialect": back, "url": url, "api_key": "backend-key", **options, **section}},
        "routes": [{"dialect": front, "path": "/it", "backend": "it"}],
        "stores": {"history": "sqlite:///:memory:", "attachments": f"file:///{gettempdir()}/never-used"},
    }


async def outcome(fault: Fault, front: str, **server: Any) -> Outcome:
    """A client of this front over HTTP. `server`: settings of that section."""
    back, heard = back_of(front), asyncio.Event()
    async with (
        broken(fault, back, heard) as backend,
        serving({**setup(front, back, backend.url, **fault.section), "server": server}) as base,
    ):
        seen = read(registry.get(front), await ask(base, registry.get(front), "/it", heard=heard))
        told = await backend_saw(backend, fault, back)
    return outcome_of(seen, told, begun=fault.begun)


@asynccontextmanager
async def broken(fault: Fault, back: str, heard: asyncio.Event) -> AsyncIterator[FakeBackend]:
    """The backend that does this; `heard` is set when the client has the first words."""

    async def script(exchange: Exchange) -> None:
        if back == "agent-runs" and exchange.seen.method == "POST":
            await queued(exchange)
        elif back == "a2a" and exchange.seen.json["method"] != "SendStreamingMessage":
            await exchange.answer(503, b"")  # of a task that broke off nothing more is known
        else:
            said = Said.of(back, dict(parse_qsl(urlsplit(exchange.seen.path).query)).get("runId"))
            said.heard = heard
            await fault.play(exchange, said)

    async with fake_backend() as backend:
        backend.plays(script)
        yield backend


def outcome_of(seen: Read, told: str, *, begun: bool) -> Outcome:
    """`begun`: the backend's first words must arrive, and nothing else may."""
    got = "all" if seen.text == ("Hello " if begun else "") else f"{seen.text!r}"
    return Outcome(seen.verdict, told, got if begun else "-", seen.failure)


async def queued(exchange: Exchange) -> None:
    """What a backend that queues its runs says to being started and cancelled."""
    if exchange.seen.path.endswith("/runs"):
        body = exchange.seen.json
        named = {"taskId": "task", "threadId": body["threadId"], "runId": body["runId"], "created": True}
        await exchange.answer(202, orjson.dumps(named))
    else:
        await exchange.answer(202, b'{"threadId":"t","runId":"r","accepted":true}')


async def backend_saw(backend: FakeBackend, fault: Fault, back: str) -> str:
    """How often the run was asked for, and that it was let go in time while the bridge still serves.

    Runs that a backend queues are cancelled by a request of its own, and their streams read on to their last words.
    """
    if back == "agent-runs":
        runs = [seen for seen in backend.seen if seen.path.endswith("/runs")]
        await soon(lambda: any("/cancel?" in seen.path for seen in backend.seen))
    else:
        # Beside its message, a caller of a2a asks what became of the task.
        runs = [seen for seen in backend.seen if back != "a2a" or seen.json["method"] == "SendStreamingMessage"]
        for seen in () if fault.complete else runs:
            await soon(seen.gone.is_set)
    return f"{len(runs)} request" + "s" * (len(runs) != 1)


def row_of(outcomes: dict[str, Outcome], saw: str, got: str) -> dict[str, str]:
    """A row of a table, from the outcomes of all fronts; `saw` and `got` are its last columns."""
    verdicts = {front: outcome.verdict for front, outcome in outcomes.items()}
    backend, arrived = (_same(outcomes, what) for what in ("backend", "arrived"))
    return {**verdicts, saw: backend, got: arrived}


def _same(outcomes: dict[str, Outcome], what: str) -> str:
    found = {front: getattr(outcome, what) for front, outcome in outcomes.items()}
    assert len(set(found.values())) == 1, found
    return next(iter(found.values()))
