#!/usr/bin/env python3
"""Counts what one durable run with a history asks of its database.

    python bench/statements.py             # SQLite, and a PostgreSQL of its own
    python bench/statements.py --list      # each statement

A run of two entries is counted: it is created, takes the turn of its conversation if the bridge keeps one, writes, and
ends with the conversation. In PostgreSQL each message is a round trip of the event loop, with
one statement or several; in SQLite each transaction is one of its thread. What is asked by the clock is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import aiohttp
import asyncpg
import with_postgres
from calls import END, chunk

from bridge import Bridge
from bridge.run.durable import runs
from bridge.server import running
from bridge.stores import run_store
from bridge.testing import Exchange, fake_backend, free_port

WARM = 3
TRIES = 5
"""A run meets what is asked by the clock from time to time: the least of so many counts."""
NEVER = 3600.0
QUIET = 0.1
"""Seconds after which a run has nothing left to do."""
ALONE, FIRST, NEXT = "run without a conversation", "first run of a conversation", "next run of a conversation"


@dataclass(slots=True)
class Asked:
    """The statements of one run, in their order, and how many of them wait for the one before."""

    statements: list[str] = field(default_factory=list)

    @property
    def round_trips(self) -> int:
        """Messages to PostgreSQL, or transactions of SQLite."""
        begins = [text for text in self.statements if text.startswith("BEGIN")]
        return len(begins) if any(text.startswith("BEGIN IMMEDIATE") for text in begins) else len(self.statements)


@contextmanager
def listening() -> Iterator[list[str]]:
    """What connections that are opened meanwhile send to their databases."""
    told: list[str] = []
    connect, open_file = asyncpg.connection.connect, sqlite3.connect

    async def connected(*args: Any, **options: Any) -> Any:
        db = await connect(*args, **options)
        db.add_query_logger(lambda record: told.append(record.query))
        return db

    def opened(*args: Any, **options: Any) -> sqlite3.Connection:
        db = open_file(*args, **options)
        db.set_trace_callback(told.append)
        return db

    with (
        patch.object(asyncpg, "connect", connected),
        patch.object(asyncpg.connection, "connect", connected),
        patch.object(sqlite3, "connect", opened),
        patch.object(run_store, "LOOK", NEVER),
        patch.object(runs, "POLL", NEVER),
    ):
        yield told


async def _run(session: aiohttp.ClientSession, url: str, thread: str, run: str) -> None:
    """Do a run of the protocol whose answer is the stream, or of that whose events are read at another URL."""
    message = {"id": run, "role": "user", "content": "hi"}
    body = {"threadId": thread, "runId": run, "messages": [message], "tools": [], "context": [], "state": {}}
    body["forwardedProps"] = {"runtime_mode": "chat"}
    async with session.post(url, json=body) as response:
        text = await response.text()
        assert response.ok, text
    if url.endswith("/runs"):
        async with session.get(f"{url}/{thread}/events", params={"runId": run}) as response:
            text = await response.text()
    assert "RUN_FINISHED" in text, text


async def asked(url: str) -> dict[str, Asked]:
    """Return what runs ask of the database at `url`: one without a conversation, the first of one, and the next."""
    port = free_port()
    config: dict[str, Any] = {
        "server": {"port": port},
        "stores": {"history": url, "runs": url},
        "routes": [
            {"dialect": "ag-ui", "path": "/ag-ui", "backend": "it", "durable": True},
            {"dialect": "agent-runs", "path": "/api", "backend": "it"},
        ],
    }

    async def answer(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(chunk("one ") + chunk("two ") + END)
        await exchange.end()

    found: dict[str, Asked] = {}
    with listening() as told:
        async with fake_backend() as backend:
            backend.plays(answer)
            config["backends"] = {"it": {"dialect": "openai-chat", "url": backend.url, "model": "m"}}
            async with running(Bridge.from_config(config)), aiohttp.ClientSession() as session:
                for number in range(WARM + TRIES):
                    for name, path in ((ALONE, "/ag-ui"), (FIRST, "/api/runs"), (NEXT, "/api/runs")):
                        await asyncio.sleep(QUIET)
                        told.clear()
                        run = f"{name.split()[0]}{number}"
                        await _run(session, f"http://127.0.0.1:{port}{path}", f"t{number}", run)
                        await asyncio.sleep(QUIET)
                        this = Asked(list(told))
                        if number >= WARM and (name not in found or len(this.statements) < len(found[name].statements)):
                            found[name] = this
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print each statement")
    lists = parser.parse_args().list
    with tempfile.TemporaryDirectory() as folder, with_postgres.running() as server:
        for engine, url in (("sqlite", f"sqlite:///{folder}/kept.db"), ("postgresql", server)):
            for name, each in asyncio.run(asked(url)).items():
                trips = f"{each.round_trips} round trips"
                print(f"{engine}, {name}: {len(each.statements)} statements, {trips}")
                for text in each.statements if lists else ():
                    print("   ", " ".join(text.split())[:200])


if __name__ == "__main__":
    main()
