"""Users over gRPC: who may call an address, whose a session is, and who is shown a key and who never."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import openai
import pytest

from bridge import Bridge, ToolCall
from bridge.contract import SCOPES, Operation, Scope
from bridge.dialects.aip import dialect
from bridge.sdk.aip import Agent, AgentServiceStub, Gateway, Tool
from bridge.server import running
from bridge.server.grpc.grpc_guard import visit_of
from bridge.testing import fake_backend, free_port

from . import peers, schema
from .peers import client, quest, rest
from .test_server import info

ALICE = (("authorization", "Bearer alice-key"),)
BOB = (("x-api-key", "bob-key"),)
NARROW = (("authorization", "Bearer narrow-key"),)


def address() -> str:
    return f"127.0.0.1:{free_port()}"


@asynccontextmanager
async def guarded(
    tmp_path: Path, model: str, *more: dict[str, Any], auth: Any = None, **backends: Any
) -> AsyncIterator[tuple[str, str]]:
    """A bridge that knows alice, bob, and one whose key opens the agent `bridge` alone; its address and its URL."""
    listen, port = address(), free_port()
    keys = [
        {"name": "alice", "key": "alice-key"},
        {"name": "bob", "key": "bob-key"},
        {"name": "narrow", "key": "narrow-key", "routes": [f"grpc://{listen}/bridge"]},
    ]
    agents = [{"dialect": "aip", "listen": listen, "agent_id": name, "backend": "llm"} for name in ("bridge", "other")]
    config = {
        "server": {"port": port, "drain": "1s", "auth": auth or {"keys": keys}},
        "backends": {
            "llm": {"dialect": "openai-chat", "url": model},
            "own": {"dialect": "aip", "url": listen, "api_key": "alice-key", "options": {"agent": "bridge"}},
            **backends,
        },
        "routes": [*agents, {"dialect": "openai-chat", "path": "/v1", "backend": "own"}, *more],
        "stores": {"history": f"sqlite:///{tmp_path}/h.db"},
    }
    async with asyncio.timeout(60), running(Bridge.from_config(config)):
        yield listen, f"http://127.0.0.1:{port}/v1"


async def refused(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, caught.value.details() or ""


async def test_every_method_asks_who_calls(tmp_path: Path) -> None:
    async with fake_backend("openai-chat") as model, guarded(tmp_path, model.url) as (listen, _):
        async with grpc.aio.insecure_channel(listen) as channel:
            for endpoint in dialect.surface:

                async def call(shown: Any, endpoint: Any = endpoint) -> Any:
                    if endpoint.operation is Operation.SESSION:
                        return await channel.stream_stream(endpoint.path)(metadata=shown).read()
                    if endpoint.operation is Operation.SUBSCRIBE:
                        return await channel.unary_stream(endpoint.path)(b"", metadata=shown).read()
                    return await channel.unary_unary(endpoint.path)(b"", metadata=shown)

                code, told = await refused(call(()))
                assert (code, "An API key is needed" in told) == ("UNAUTHENTICATED", True), endpoint.path
                wrong = (("authorization", "Bearer not-a-key"),)
                assert await refused(call(wrong)) == ("UNAUTHENTICATED", "The API key is unknown."), endpoint.path
        async with client(listen) as caller:
            asked = schema.message("GetNodesRequest", domain="default")
            listed = await caller.gateway.GetNodes(asked, metadata=BOB)
            assert [p.agent_info.agent_id for p in listed.peers] == ["bridge", "other"]
        assert not model.requests


@pytest.mark.parametrize("key", ["bob-key", "unknown"])
async def test_the_command_that_chats_shows_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    from bridge.cli import main

    async with fake_backend("openai-chat") as model, guarded(tmp_path, model.url) as (listen, _):
        model.says("hello")
        words = ["chat", f"grpc://{listen}", "Hi", "--dialect", "aip", "--model", "bridge", "--api-key", key]
        code = await asyncio.to_thread(main, words)
    assert (code, capsys.readouterr().out) == ((0, "hello\n") if key == "bob-key" else (1, ""))


async def test_a_key_opens_its_own_routes(tmp_path: Path) -> None:
    async with fake_backend("openai-chat") as model, guarded(tmp_path, model.url) as (listen, _):
        model.says("hello")
        async with client(listen) as caller:
            for _ in range(2):  # a session that was refused leaves no trace: its id is free
                closed = caller.gateway.RouteAgentCalling(metadata=NARROW)
                await closed.write(quest("START_QUEST", receiver="other"))
                assert await refused(rest(closed)) == ("PERMISSION_DENIED", "This API key does not open this route.")
            opened = caller.gateway.RouteAgentCalling(metadata=NARROW)
            await opened.write(quest("START_QUEST"))
            assert (await opened.read()).content[0].text == "hello"
            opened.cancel()


async def test_every_method_needs_its_scope(tmp_path: Path) -> None:
    """Refused before the message is looked at, with the header of RFC 6750 as metadata."""
    narrow = [
        {"name": f"no-{scope}", "key": f"no-{scope}", "operations": [other for other in Scope if other is not scope]}
        for scope in Scope
    ]
    async with (
        fake_backend("openai-chat") as model,
        guarded(tmp_path, model.url, auth={"keys": [{"name": "alice", "key": "alice-key"}, *narrow]}) as (listen, _),
        grpc.aio.insecure_channel(listen) as channel,
    ):
        for endpoint in dialect.surface:
            scope = SCOPES[endpoint.operation]
            shown = (("authorization", f"Bearer no-{scope}"),)
            if endpoint.operation is Operation.SESSION:
                call = channel.stream_stream(endpoint.path)(metadata=shown)
            elif endpoint.operation is Operation.SUBSCRIBE:
                call = channel.unary_stream(endpoint.path)(b"", metadata=shown)
            else:
                call = channel.unary_unary(endpoint.path)(b"", metadata=shown)
            code, told = await refused(call if not hasattr(call, "read") else call.read())
            assert (code, told) == ("PERMISSION_DENIED", f"This API key does not allow the operation '{scope}'.")
            trailing = dict(await call.trailing_metadata())
            assert trailing["www-authenticate"] == f'Bearer error="insufficient_scope", scope="{scope}"'
        asked = schema.message("GetNodesRequest", domain="default")
        async with client(listen) as caller:
            assert (await caller.gateway.GetNodes(asked, metadata=(("x-api-key", "no-run"),))).peers
        assert not model.requests


async def test_refusals_are_audited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of keys, of scopes, and of what belongs to another user."""
    keys = [
        {"name": "alice", "key": "alice-key"},
        {"name": "bob", "key": "bob-key"},
        {"name": "reader", "key": "reader-key", "operations": ["read"]},
    ]
    async with (
        fake_backend("openai-chat") as model,
        peers.agent() as node,
        guarded(tmp_path, model.url, auth={"keys": keys}) as (listen, _),
        client(listen) as caller,
    ):
        asked = schema.message("GetNodesRequest", domain="default")
        register = caller.gateway.RegisterAgent
        await refused(caller.gateway.GetNodes(asked))
        await refused(caller.gateway.GetNodes(asked, metadata=(("x-api-key", "wrong-key"), ("x-request-id", "r-1"))))
        await refused(register(info("AgentInfo", "chat", node.address), metadata=(("x-api-key", "reader-key"),)))
        await register(info("AgentInfo", "chat", node.address), metadata=ALICE)
        gone = schema.message("DeregisterNodeRequest", node_id="chat")
        code, _ = await refused(caller.gateway.DeregisterNode(gone, metadata=BOB))
        assert code == "PERMISSION_DENIED"
    facts = [record.__dict__["facts"] for record in caplog.records if record.name == "bridge.audit"]
    assert [{k: v for k, v in each.items() if k != "path"} for each in facts] == [
        {"reason": "no_key", "peer": "127.0.0.1"},
        {"reason": "unknown_key", "peer": "127.0.0.1", "request_id": "r-1"},
        {"reason": "operation", "peer": "127.0.0.1", "user": "reader"},
        {"reason": "forbidden", "peer": "127.0.0.1", "user": "bob"},
    ]
    assert [each["path"].rpartition("/")[2] for each in facts] == [
        "GetNodes", "GetNodes", "RegisterAgent", "DeregisterNode",
    ]  # fmt: skip
    assert "-key" not in caplog.text


async def test_a_session_is_its_users_whatever_name_he_takes(tmp_path: Path) -> None:
    async with fake_backend("openai-chat") as model, guarded(tmp_path, model.url) as (listen, _):
        model.says("noted")
        async with client(listen) as caller:
            for shown, sender, words in (
                (ALICE, "client", "a secret"), (BOB, "client", "what did I say?"), (ALICE, "somebody", "go on"),
            ):  # fmt: skip
                call = caller.agents.CallAgent(metadata=shown)
                first = quest("START_QUEST", words)
                first.sender_id = sender
                await call.write(first)
                await call.write(quest("STOP_QUEST"))
                await rest(call)
    assert [len(r.messages) for r in model.requests] == [1, 1, 3]


async def test_a_proxy_may_name_the_user(tmp_path: Path) -> None:
    auth = {"trusted_header": "X-User", "trusted_proxies": ["127.0.0.1/32"]}
    asked = schema.message("GetNodesRequest", domain="default")
    async with (
        fake_backend("openai-chat") as model,
        guarded(tmp_path, model.url, auth=auth) as (listen, _),
        client(listen) as caller,
    ):
        assert (await caller.gateway.GetNodes(asked, metadata=(("x-user", "carol"),))).peers
        assert (await refused(caller.gateway.GetNodes(asked)))[0] == "UNAUTHENTICATED"


@pytest.mark.parametrize(
    ("peer", "seen"),
    [("ipv4:10.0.0.1:5000", "10.0.0.1"), ("ipv6:%5B::1%5D:5000", "::1"), ("ipv6:[::1]:5000", "::1"), ("unix:", None)],
)
def test_what_a_call_shows(peer: str, seen: str | None) -> None:
    class Rpc:
        def invocation_metadata(self) -> Any:
            return (("x-user", "a"), ("x-user", "b"), ("key-bin", b"\x00"))

        def peer(self) -> str:
            return peer

    shown = visit_of(Rpc())
    assert (shown.address, shown.headers.getall("X-User"), "key-bin" in shown.headers) == (seen, ["a", "b"], False)


async def test_a_bridge_shows_its_key_to_a_bridge(tmp_path: Path) -> None:
    """As a backend, for the tools at a gateway, and where it registers as an agent."""
    async with fake_backend("openai-chat") as model, guarded(tmp_path / "one", model.url) as (listen, url):
        model.says("hello")
        async with openai.AsyncOpenAI(base_url=url, api_key="bob-key") as chat:
            said = await chat.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
            assert said.choices[0].message.content == "hello"
            assert "bridge" in [m.id async for m in chat.models.list()]
        guest = {"mode": "agent", "gateway": listen, "gateway_key": "bob-key"}
        route = {"dialect": "aip", "listen": address(), "agent_id": "guest", "backend": "llm", "options": guest}
        config = {
            "server": {"port": free_port(), "drain": "1s"},
            "backends": {"llm": {"dialect": "openai-chat", "url": model.url}},
            "routes": [route],
            "stores": {"history": f"sqlite:///{tmp_path}/guest.db"},
        }
        tool = Tool.create_function_tool(lambda text: text.upper(), address(), "shouter", "shout", key="alice-key")
        async with tool, running(Bridge.from_config(config)), client(listen) as caller:
            await tool.register_to_gateway(listen)
            while "guest" not in await _agents(caller):
                await asyncio.sleep(0.01)
            model.turns([ToolCall("c", "shout", '{"text": "loud"}')], ["done"])
            call = caller.gateway.RouteAgentCalling(metadata=ALICE)
            await call.write(quest("START_QUEST", receiver="guest"))
            await call.write(quest("STOP_QUEST", receiver="guest"))
            assert (await rest(call))[0] == ("HOLD_RESPONSE", "done")
        assert model.requests[-1].messages[-1].parts[0].parts[0].text == "LOUD"


async def _agents(caller: Any) -> list[str]:
    nodes = await caller.gateway.GetNodes(schema.message("GetNodesRequest", domain="default"), metadata=BOB)
    return [p.agent_info.agent_id for p in nodes.peers]


async def test_programs_show_their_key_to_their_gateway_and_to_nobody_else(tmp_path: Path) -> None:
    shown: list[str] = []

    class Nosy(peers.Agent):
        async def CallAgent(self, messages: Any, context: Any) -> AsyncIterator[Any]:
            shown.extend(f"{name}: {value}" for name, value in context.invocation_metadata())
            async for answer in super().CallAgent(messages, context):
                yield answer

    node, server = Nosy(), grpc.aio.server()
    schema.services().add_AgentServiceServicer_to_server(node, server)
    node.address = f"127.0.0.1:{server.add_insecure_port(address())}"
    await server.start()
    async with fake_backend("openai-chat") as model, guarded(tmp_path, model.url) as (listen, _):
        model.says("hello")
        async with (
            client(listen) as caller,
            Agent(address(), "asker", key="alice-key") as asker,
            Agent(address(), "stranger") as stranger,
            Tool.create_function_tool(lambda a: a, address(), "same", arguments={"a": "a text"}, key="bob-key") as tool,
        ):
            await caller.gateway.RegisterAgent(info("AgentInfo", "nosy", node.address), metadata=BOB)
            assert (await refused(stranger.register_to_gateway(listen)))[0] == "UNAUTHENTICATED"
            await asker.register_to_gateway(listen)
            await tool.register_to_gateway(listen)
            await tool.update_tool_info(description="new")
            await asker.update_peers()
            assert asker.get_nodes()["same"].description == "new"
            assert (await asker.call_tool("same", arguments={"a": "x"})).content[0].text == "x"
            direct = (AgentServiceStub, "CallAgent")
            for receiver, expected in (("bridge", "hello"), ("nosy", "Response to: hi")):
                for stub in ((), direct):
                    session = await asker.create_agent_client(receiver, *stub)
                    await asker.submit_inquiry(session, receiver, "hi")
                    assert (await asker.receive_feedback(session, receiver)).text == expected
                    assert await asker.close_agent_client(session, receiver)
        assert any(line.startswith("user-agent: ") for line in shown)
        assert "-key" not in " ".join(shown)
    await server.stop(None)


async def test_a_gateway_of_a_program_asks_for_keys() -> None:
    """With the same code as the bridge's own, so that every method asks, and nodes are shown none."""
    shown: list[str] = []

    def listens(text: str) -> str:
        return text.upper()

    async with (
        asyncio.timeout(60),
        Gateway(address(), keys={"alice": "alice-key", "bob": "bob-key"}) as gateway,
        peers.agent() as node,
        client(gateway.address) as caller,
        Agent(address(), "asker", key="alice-key") as asker,
        Agent(address(), "stranger") as stranger,
        Agent(address(), "liar", key="another-key") as liar,
        Tool.create_function_tool(listens, address(), "shout", key="bob-key") as tool,
    ):
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address), metadata=BOB)
        await asker.register_to_gateway(gateway.address)
        await tool.register_to_gateway(gateway.address)
        told = [await refused(each.register_to_gateway(gateway.address)) for each in (stranger, liar)]
        assert [code for code, _ in told] == ["UNAUTHENTICATED"] * 2
        assert "another-key" not in told[1][1]
        assert sorted(gateway.get_registered_nodes()) == ["asker", "chat", "shout"]
        for endpoint in dialect.surface:
            # Also with what an own agent or a node would be asked: nothing is answered, looked up or handed on.
            assert (await refused(_called(caller, endpoint)))[0] == "UNAUTHENTICATED", endpoint.path
        assert (await asker.call_tool("shout", arguments={"text": "loud"})).content[0].text == "LOUD"
        session = await asker.create_agent_client("chat")
        await asker.submit_inquiry(session, "chat", "hi")
        assert (await asker.receive_feedback(session, "chat")).text == "Response to: hi"
        await asker.close_agent_client(session, "chat")
        shown = [f"{name} {value}" for each in node.shown for name, value in each.items()]
    assert shown
    assert not any("key" in line for line in shown)


async def _called(caller: Any, endpoint: Any) -> Any:
    service = caller.agents if "AgentService" in endpoint.path else caller.gateway
    if "ToolService" in endpoint.path:
        service = schema.services().ToolServiceStub(caller.channel)
    call = getattr(service, endpoint.path.rpartition("/")[2])
    if endpoint.operation is Operation.SESSION:
        opened = call()
        await opened.write(quest("START_QUEST", receiver="chat"))
        return await opened.read()
    if endpoint.operation is Operation.SUBSCRIBE:
        return await call(schema.message("UpdateSubscriptionRequest", subscriber_id="s")).read()
    return await caller.channel.unary_unary(endpoint.path)(b"")


@pytest.mark.parametrize("keys", [{}, {"alice": ""}])
def test_keys_that_let_nobody_in_are_a_mistake(keys: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="keys: expected at least one name with its key"):
        Gateway("127.0.0.1:1", keys=keys)
