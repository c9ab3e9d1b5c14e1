"""TLS with certificates of a CA of our own: server and client, the bridge and programs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import trustme

from bridge import Bridge, Message, Request, Text
from bridge.dialects.aip.options import Tls
from bridge.errors import BridgeError, ConfigError
from bridge.sdk.aip import Agent, Gateway, Tool
from bridge.testing import free_port

from .peers import quest, rest
from .schema import services
from .test_server import served


@dataclass
class Files:
    """PEM files of one CA and one certificate that it signed for this machine."""

    ca: str
    cert: str
    key: str

    @property
    def ca_bytes(self) -> bytes:
        return Path(self.ca).read_bytes()

    @property
    def server(self) -> dict[str, str]:
        return {"cert": self.cert, "key": self.key}

    @property
    def both(self) -> dict[str, str]:
        return {"ca": self.ca, **self.server}


def made(folder: Path) -> Files:
    folder.mkdir()
    ca = trustme.CA()
    leaf = ca.issue_cert("127.0.0.1", "localhost")
    files = Files(str(folder / "ca.pem"), str(folder / "cert.pem"), str(folder / "key.pem"))
    ca.cert_pem.write_to_path(files.ca)
    leaf.private_key_pem.write_to_path(files.key)
    for blob in leaf.cert_chain_pems:
        blob.write_to_path(files.cert, append=True)
    return files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return made(tmp_path / "ours")


async def asked(address: str, **tls: str) -> str:
    """What a bridge hears that calls the agent there."""
    options: dict[str, Any] = {"agent": "bridge", **({"tls": tls} if tls else {})}
    config = {
        "backends": {"it": {"dialect": "aip", "url": address, "options": options, "timeouts": {"connect": "5s"}}},
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
        "stores": {"history": "off"},
    }
    async with Bridge.from_config(config) as bridge:
        return (await bridge.complete(Request([Message("user", [Text("hi")])]))).text


async def test_a_bridge_calls_a_bridge_with_tls(tmp_path: Path, files: Files) -> None:
    async with served(tmp_path / "s", tls=Tls(**files.server)) as (address, _):
        assert await asked(address, ca=files.ca) == "You said hi"
        credentials = grpc.ssl_channel_credentials(files.ca_bytes)
        async with grpc.aio.secure_channel(address, credentials) as channel:
            call = services().AgentServiceStub(channel).CallAgent()
            await call.write(quest("START_QUEST", "one"))
            await call.write(quest("STOP_QUEST"))
            assert await rest(call) == [("HOLD_RESPONSE", "You said one"), ("STOP_RESPONSE", "Session closed")]


async def test_who_is_not_trusted_is_not_talked_to(tmp_path: Path, files: Files) -> None:
    other = made(tmp_path / "theirs")
    async with served(tmp_path / "s", tls=Tls(**files.both)) as (address, behind):
        assert await asked(address, **files.both) == "You said hi"
        # Nobody's certificate, a stranger's, a server that is a stranger, and no TLS at all.
        for tls in ({"ca": files.ca}, {"ca": files.ca, **other.server}, other.both, {}):
            with pytest.raises(BridgeError) as caught:
                await asked(address, **tls)
            assert caught.value.code == "backend_unavailable"
        assert len(behind.requests) == 1


async def test_programs_with_tls(files: Files) -> None:
    tls = Tls(**files.both)

    def shout(text: str) -> str:
        return text.upper()

    def address() -> str:
        return f"localhost:{free_port()}"

    async with (
        asyncio.timeout(60),
        Gateway(address(), tls=tls) as gateway,
        Agent(address(), "a", tls=tls) as one,
        Agent(address(), "b", tls=tls) as two,
        Tool.create_function_tool(shout, address(), "shouter", tls=tls) as tool,
    ):
        for node in (tool, one, two):
            await node.register_to_gateway(gateway.address)
        session = await two.create_agent_client("a")
        await two.submit_inquiry(session, "a", "hi")
        inquiry = await one.receive_inquiry()
        loud = await one.call_tool("shouter", arguments={"text": inquiry.text})
        await one.submit_feedback(session, "b", loud.content[0].text or "")
        assert (await two.receive_feedback(session, "a")).text == "HI"


async def test_a_server_needs_certificate_and_key(tmp_path: Path, files: Files) -> None:
    with pytest.raises(ConfigError, match="tls: a server needs cert and key"):
        await Gateway(f"127.0.0.1:{free_port()}", tls=Tls(cert=files.cert)).start()
    with pytest.raises(OSError, match=r"missing\.pem"):
        await Gateway(f"127.0.0.1:{free_port()}", tls=Tls(cert=files.cert, key=str(tmp_path / "missing.pem"))).start()
