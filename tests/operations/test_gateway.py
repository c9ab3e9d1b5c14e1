"""A gateway that did not run for a while has heard no heartbeats, and forgets no node for that."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from bridge.contract.optional.sessions import Dialed
from bridge.dialects.aip import dialect
from bridge.dialects.aip.gateway import Gateway
from bridge.server.grpc import grpc_server
from bridge.server.grpc.grpc_server import GrpcServer
from bridge.stores.liveness import NEVER, Liveness
from tests.dialects.aip.test_gateway import call, gateway
from tests.dialects.aip.test_keys import address
from tests.dialects.aip.test_server import info


@pytest.fixture
def grace(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The grace of the process; change its only item."""
    value = [NEVER]

    class Set(Liveness):
        def grace(self) -> float:
            return value[0]

    monkeypatch.setattr(grpc_server, "Liveness", Set)
    return value


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> asyncio.Semaphore:
    """Counts the looks of the gateway at its nodes."""
    counted = asyncio.Semaphore(0)
    tidy = grpc_server.Nodes.tidy

    async def counting(self: grpc_server.Nodes, *arguments: object) -> None:
        counted.release()
        await tidy(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(grpc_server.Nodes, "tidy", counting)
    return counted


def silent_node() -> Gateway:
    made = gateway()
    made.check_every = 0.01
    call(made, "RegisterAgent", info("AgentInfo", "node", "127.0.0.1:9"))
    made.dialed("node", Dialed.CONNECTED, -100.0)
    return made


@contextlib.asynccontextmanager
async def served(registry: Gateway):  # type: ignore[no-untyped-def]
    server = GrpcServer(address(), dialect, registry, dialect.channel(dialect.front_options()), None)  # type: ignore[arg-type]
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0)


async def test_silent_nodes_are_forgotten_only_by_a_gateway_that_runs(
    grace: list[float], checks: asyncio.Semaphore
) -> None:
    registry = silent_node()
    async with served(registry):
        for _ in range(5):
            await checks.acquire()
        assert "node" in registry.nodes
        grace[0] = 0.0
        async with asyncio.timeout(30):
            while "node" in registry.nodes:
                await checks.acquire()


async def test_a_failure_does_not_end_the_looks(
    grace: list[float], checks: asyncio.Semaphore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    registry = silent_node()
    grace[0] = 0.0

    def fails(now: float) -> list[str]:
        raise RuntimeError("once")

    with monkeypatch.context() as patched:
        patched.setattr(registry, "expire", fails)
        async with served(registry), asyncio.timeout(30):
            while "nodes cannot be looked after" not in caplog.text:
                await asyncio.sleep(0.01)
            patched.undo()
            while "node" in registry.nodes:
                await asyncio.sleep(0.01)
