"""`dialect-bridge nodes`: who is registered at a running gateway, and what is said when it cannot be asked."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bridge.cli import main
from bridge.dialects.aip.options import Tls
from bridge.sdk.aip import Agent, Gateway, Tool, ToolBoxInfo
from bridge.testing import fake_backend, free_port

from . import peers, schema
from .peers import client
from .test_keys import BOB, address, guarded
from .test_server import info, served
from .test_tls import made

pytestmark = pytest.mark.interop


async def nodes(*args: str) -> int:
    """The exit code of the command; it has an event loop of its own."""
    return await asyncio.to_thread(main, ["nodes", *args])


def rows(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines()]


@pytest.mark.parametrize("scheme", ["", "grpc://", "http://"])
async def test_it_lists_who_is_registered(tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str) -> None:
    async with (
        served(tmp_path, name="Ours") as (listen, _),
        client(listen) as caller,
        peers.agent() as node,
        peers.tool() as adder,
    ):
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address, name="Chat", domain="talk"))
        await caller.gateway.RegisterTool(info("ToolInfo", "adder", adder.address, description="adds two numbers"))
        assert await nodes(f"{scheme}{listen}") == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        assert rows(printed.out) == [
            ["kind", "id", "name", "domain", "address", "description"],
            ["agent", "bridge", "Ours", "default", listen],
            ["agent", "chat", "Chat", "talk", node.address],
            ["tool", "adder", adder.address, "adds", "two", "numbers"],
        ]
        where = (listen, node.address, adder.address)
        places = [line.index(at) for line, at in zip(printed.out.splitlines()[1:], where, strict=True)]
        assert len(set(places)) == 1, "it is a table"
        assert await nodes(listen, "--domain", "talk") == 0
        assert [row[1] for row in rows(capsys.readouterr().out)] == ["id", "chat"]


async def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    async with Gateway(address()) as gateway, Agent(address(), "a\nb", description="two\nlines") as one:
        await one.register_to_gateway(gateway.address)
        assert await nodes(gateway.address, "--json") == 0
        assert json.loads(capsys.readouterr().out) == [
            {
                "kind": "agent", "node_id": "a\nb", "name": "a\nb", "domain": "default", "address": one.address,
                "description": "two\nlines",
            }
        ]  # fmt: skip
        assert await nodes(gateway.address) == 0
        assert [row[1] for row in rows(capsys.readouterr().out)] == ["id", "a\\nb"]


async def test_nobody_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    async with Gateway(address()) as gateway:
        assert await nodes(gateway.address) == 0
        assert capsys.readouterr().out == "no node is registered\n"
        assert await nodes(gateway.address, "--json") == 0
        assert json.loads(capsys.readouterr().out) == []


async def test_a_box_of_tools_is_a_tool(capsys: pytest.CaptureFixture[str]) -> None:
    async with Gateway(address()) as gateway, Tool(address(), "box") as node, client(gateway.address) as caller:
        box = ToolBoxInfo("box", node.address, "Box", "sums", "adds and more")
        register = caller.channel.unary_unary("/grpc_service.GatewayService/RegisterTool")
        assert schema.tool().RegisterToolResponse.FromString(await register(box.to_bytes())).success
        assert await nodes(gateway.address) == 0
        assert rows(capsys.readouterr().out)[1:] == [
            ["tool", "box", "Box", "sums", node.address, "adds", "and", "more"]
        ]


async def test_a_key_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BRIDGE_API_KEY", raising=False)
    async with fake_backend("openai-chat") as model, guarded(tmp_path, model.url) as (listen, _):
        assert await nodes(listen) == 1
        assert "use --api-key or $BRIDGE_API_KEY" in capsys.readouterr().err
        assert await nodes(listen, "--api-key", "bob-key") == 0
        assert [row[1] for row in rows(capsys.readouterr().out)] == ["id", "bridge", "other"]
        monkeypatch.setenv("BRIDGE_API_KEY", "bob-key")
        assert await nodes(listen) == 0
    assert dict(BOB)["x-api-key"] == "bob-key"


async def test_over_tls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = made(tmp_path / "files")
    async with served(tmp_path / "it", tls=Tls(**files.both)) as (listen, _):
        assert await nodes(listen, "--ca", files.ca, "--cert", files.cert, "--cert-key", files.key) == 0
        assert [row[1] for row in rows(capsys.readouterr().out)] == ["id", "bridge"]
        assert await nodes(listen) == 1


async def test_what_cannot_be_asked_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert await nodes(f"127.0.0.1:{free_port()}") == 1
    assert capsys.readouterr().err.startswith("backend_unavailable: ")
    assert await nodes("127.0.0.1:1", "--dialect", "openai-chat") == 2
    assert capsys.readouterr().err == "openai-chat: expected a dialect whose agents register at a gateway: aip\n"
    async with Agent(address(), "a") as alone:
        assert await nodes(alone.address) == 1
        assert "not of a gateway" in capsys.readouterr().err
