"""One fault, one pair of dialects: what the client saw, what the backend saw, what arrived."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from tempfile import gettempdir
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from bridge.codec import registry
from bridge.errors import Failure
from tests.faults.faults import Fault, Said
from tests.faults.wire import SPEAKING, ask, read
from tests.server.harness import Exchange, FakeBackend, fake_backend, serving

_SOON = 1.0
"""Seconds within which a backend must learn that nobody waits any more."""


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
    """The bridge between the two. A backend that queues its runs is not asked again for their rest."""
    options = {"options": {"reconnect": []}} if back == "agent-runs" else {}
    return {
        "backends": {"it": {"dialect": back, "url": url, "api_key": "backend-key", **options, **section}},
        "routes": [{"dialect": front, "path": "/it", "backend": "it"}],
        "stores": {"history": "sqlite:///:memory:", "attachments": f"file:///{gettempdir()}/never-used"},
    }


async def outcome(fault: Fault, front: str) -> Outcome:
    back = back_of(front)
    heard = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        if back == "agent-runs" and exchange.seen.method == "POST":
            await queued(exchange)
        else:
            said = Said.of(back, dict(parse_qsl(urlsplit(exchange.seen.path).query)).get("runId"))
            said.heard = heard
            await fault.play(exchange, said)

    async with fake_backend() as backend:
        backend.plays(script)
        async with serving(setup(front, back, backend.url, **fault.section)) as base:
            saw = await ask(base, registry.get(front), "/it", heard=heard)
            seen = read(registry.get(front), saw)
            told = await _backend_saw(backend, fault, back)
    got = "all" if seen.text == ("Hello " if fault.begun else "") else f"{seen.text!r}"
    return Outcome(seen.verdict, told, got if fault.begun else "-", seen.failure)


async def queued(exchange: Exchange) -> None:
    """What a backend that queues its runs says to being started and cancelled."""
    if exchange.seen.path.endswith("/runs"):
        body = exchange.seen.json
        named = {"taskId": "task", "threadId": body["threadId"], "runId": body["runId"], "created": True}
        await exchange.answer(202, orjson.dumps(named))
    else:
        await exchange.answer(202, b'{"threadId":"t","runId":"r","accepted":true}')


async def _backend_saw(backend: FakeBackend, fault: Fault, back: str) -> str:
    """How often the run was asked for, and that it was let go in time while the bridge still serves.

    Runs that a backend queues are cancelled by a request of its own, and their streams read on to their last words.
    """
    if back == "agent-runs":
        runs = [seen for seen in backend.seen if seen.path.endswith("/runs")]
        async with asyncio.timeout(_SOON):
            while not any("/cancel?" in seen.path for seen in backend.seen):
                await asyncio.sleep(0.01)
    else:
        runs = backend.seen
        for seen in () if fault.complete else runs:
            await asyncio.wait_for(seen.gone.wait(), _SOON)
    return f"{len(runs)} request" + "s" * (len(runs) != 1)


def row_of(outcomes: dict[str, Outcome]) -> dict[str, str]:
    """A row of the table, from the outcomes of all fronts."""
    verdicts = {front: outcome.verdict for front, outcome in outcomes.items()}
    (backend,) = {outcome.backend for outcome in outcomes.values()}
    (arrived,) = {outcome.arrived for outcome in outcomes.values()}
    return {**verdicts, "backend saw": backend, "of what it had said, the client got": arrived}
