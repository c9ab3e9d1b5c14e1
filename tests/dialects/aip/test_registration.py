"""Agents of the bridge at a foreign gateway: registered, beating, registered again, gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest

from bridge.contract.optional.sessions import OwnAgent
from bridge.dialects.aip import dialect
from bridge.dialects.aip.registration import EVERY, Membership
from bridge.dialects.aip.wire import AgentInfo, Done, RegisterAgentResponse
from bridge.testing import free_port

from . import schema
from .peers import client, quest, rest
from .test_server import served

REGISTER, BEAT = "/grpc_service.GatewayService/RegisterAgent", "/grpc_service.GatewayService/Heartbeat"
YES, NO = Done(True).to_bytes(), Done(False).to_bytes()


def method(todo: tuple[str, bytes] | float) -> str | float:
    return todo if isinstance(todo, float) else todo[0]


def test_it_beats_and_registers_again_when_it_is_forgotten() -> None:
    it = Membership("h:1", AgentInfo("a", "h:2"))
    assert it.leave() is None
    assert it.next(0.0) == (REGISTER, schema.message("AgentInfo", agent_id="a", address="h:2").SerializeToString())
    assert it.answered(RegisterAgentResponse(True).to_bytes(), 1.0)
    assert it.next(1.0) == 1.0 + EVERY
    assert method(it.next(1.0 + EVERY)) == BEAT
    assert it.answered(YES, 11.0)
    assert method(it.next(21.0)) == BEAT
    assert not it.answered(NO, 21.0)
    assert method(it.next(21.0)) == REGISTER
    # A gateway that is away is asked again, but not in a hurry.
    assert not it.answered(None, 22.0)
    assert it.next(22.0) == 22.0 + EVERY
    assert method(it.next(32.0)) == REGISTER
    assert it.answered(RegisterAgentResponse(True).to_bytes(), 32.0)
    assert method(it.leave() or 0.0) == "/grpc_service.GatewayService/DeregisterNode"


@pytest.mark.parametrize("scheme", ["", "http://", "grpc://"])
async def test_an_agent_of_the_bridge_is_reached_through_a_foreign_gateway(tmp_path: Path, scheme: str) -> None:
    async with served(tmp_path / "one") as (gateway, _), client(gateway) as caller:

        async def listed() -> list[str]:
            nodes = await caller.gateway.GetNodes(schema.message("GetNodesRequest", domain="default"))
            return [p.agent_info.agent_id for p in nodes.peers]

        options = {"mode": "agent", "gateway": f"{scheme}{gateway}", "name": "Guest"}
        async with served(tmp_path / "two", agent_id="guest", **options) as (address, _), client(address) as direct:
            async with asyncio.timeout(40):
                while "guest" not in await listed():
                    await asyncio.sleep(0.01)
            call = caller.open()
            await call.write(quest("START_QUEST", "hi", receiver="guest"))
            await call.write(quest("STOP_QUEST", receiver="guest"))
            assert await rest(call) == [("HOLD_RESPONSE", "You said hi"), ("STOP_RESPONSE", "Session closed")]
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await direct.gateway.GetNodes(schema.message("GetNodesRequest", domain="default"))
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert await listed() == ["bridge"]


def test_an_address_is_registered_without_its_scheme() -> None:
    options = dialect.front_options(mode="agent", gateway="h:1", advertise="http://h:2/")
    registration = dialect.registration("h:3", "a", OwnAgent(options, ()))
    assert registration is not None
    assert registration.address == "h:2"


async def test_a_gateway_that_is_away_does_not_keep_the_agent_from_serving(tmp_path: Path) -> None:
    away = f"127.0.0.1:{free_port()}"
    async with served(tmp_path, mode="agent", gateway=away) as (address, _), client(address) as caller:
        call = caller.open(direct=True)
        await call.write(quest("START_QUEST", "hi"))
        assert (await call.read()).content[0].text == "You said hi"
