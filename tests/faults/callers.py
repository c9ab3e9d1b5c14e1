"""A caller of one of our agents over gRPC, by the protocol's own stubs: what an AIP client sees of a broken backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from bridge.testing import free_port
from tests.dialects.aip import schema
from tests.dialects.aip.peers import client, quest
from tests.faults.faults import Fault
from tests.faults.measure import Outcome, backend_saw, broken, outcome, outcome_of, setup
from tests.faults.wire import LIMIT, Read
from tests.server.harness import serving

FRONT = "aip"
BACK = "openai-chat"


@asynccontextmanager
async def agent_over(back: str, url: str, keepalive: str = "15s", **section: Any) -> AsyncIterator[str]:
    """A bridge that is an agent over this backend; gives its address."""
    address = f"127.0.0.1:{free_port()}"
    config = setup("openai-chat", back, url, **section)
    route = {"dialect": FRONT, "listen": address, "agent_id": "bridge", "backend": "it", "options": {"stream": "delta"}}
    async with serving({**config, "routes": [route], "server": {"keepalive": keepalive}}):
        yield address


async def call(address: str, heard: asyncio.Event | None = None) -> Read:
    """One session with one question. `heard` is set when the first words came."""
    async with asyncio.timeout(LIMIT), client(address) as caller:
        session = caller.open(direct=True)
        await session.write(quest("START_QUEST", "hi"))
        await session.write(quest("STOP_QUEST"))
        return await _read(session, heard)


async def _read(session: Any, heard: asyncio.Event | None) -> Read:
    words, failed = "", False
    pb = schema.tool()
    try:
        while (message := await session.read()) is not grpc.aio.EOF:
            said = "".join(item.text for item in message.content)
            if message.task_info.task_status == pb.TaskInfo.BREAK:
                assert said.startswith("Error: ")
                failed = True
            elif message.session_status == pb.AgentMessage.SessionStatus.HOLD_RESPONSE:
                words += said
            if heard is not None and words:
                heard.set()
    except grpc.aio.AioRpcError as error:
        return Read(f"status {error.code().name}", words, None)
    return Read("failed task" if failed else "whole", words, None)


async def outcome_at(fault: Fault, front: str) -> Outcome:
    """What a client of this front is told of a broken HTTP backend, also where it comes over gRPC."""
    if front != FRONT:
        return await outcome(fault, front)
    heard = asyncio.Event()
    async with broken(fault, BACK, heard) as backend, agent_over(BACK, backend.url, **fault.section) as address:
        seen = await call(address, heard)
        told = await backend_saw(backend, fault, BACK)
    return outcome_of(seen, told, begun=fault.begun)
