"""The bridge as agents and gateway, over real sockets; callers, agents and tools come from the protocol's own stubs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from bridge import Bridge, ErrorCode, Failure, Inline, Media, MediaKind, Message, Request, RunFailed, Text
from bridge.contract import registry
from bridge.engine.config import Config, ServerSection
from bridge.engine.route import Route
from bridge.engine.services import Services
from bridge.run.backends.local_backend import LocalBackend
from bridge.run.conversation.turns import ConversationTurns
from bridge.run.group import BackendGroup
from bridge.server import running
from bridge.stores import open_conversations
from bridge.testing import free_port

from . import schema
from .peers import agent, client, quest, rest, tool

pytestmark = pytest.mark.interop

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSnc"


class Scripted:
    """A backend that echoes; it notes what it was asked and whether it was left before it was done."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.hold: asyncio.Event | None = None
        self.waiting = asyncio.Event()
        self.left = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, request: Request) -> AsyncIterator[Any]:
        self.requests.append(request)
        asked = "".join(p.text for p in request.messages[-1].parts if isinstance(p, Text))
        try:
            if self.hold is not None:
                self.waiting.set()
                await self.hold.wait()
        except (asyncio.CancelledError, GeneratorExit):
            self.left.set()
            raise
        if asked == "fail":
            yield "half"
            yield RunFailed(Failure(ErrorCode.BACKEND_ERROR, "It broke."))
        elif asked == "gone":
            yield RunFailed(Failure(ErrorCode.BACKEND_UNAVAILABLE, "Nobody there."))
        elif asked == "picture":
            yield "Look: "
            yield Media(MediaKind.IMAGE, Inline(PICTURE), "image/png")
        elif asked == "flood":
            try:
                while True:
                    yield "x" * 100_000
            except GeneratorExit:
                self.left.set()
                raise
        elif asked == "pause":
            yield "before"
            try:
                await self.go_on.wait()
            except (asyncio.CancelledError, GeneratorExit):
                self.left.set()
                raise
            yield "after"
        else:
            yield "You said "
            yield asked


@asynccontextmanager
async def served(
    tmp_path: Any, agent_id: str = "bridge", limits: Any = None, *, slow_reader: float = 60.0, **options: Any
) -> AsyncIterator[tuple[str, Scripted]]:
    """A bridge with one agent; gives its address and what answers behind it."""
    address, behind = f"127.0.0.1:{free_port()}", Scripted()
    dialect = registry.get("aip")
    route = Route(
        dialect, f"grpc://{address}/{agent_id}", dialect.front_options(**options),
        BackendGroup([LocalBackend("it", behind)]), listen=address, agent_id=agent_id,
    )  # fmt: skip
    config = Config.model_construct(
        server=ServerSection(port=free_port(), drain=2, slow_reader=slow_reader, limits=limits or {}),
        backends={},
        routes=(),
    )
    tmp_path.mkdir(exist_ok=True)
    turns = ConversationTurns(open_conversations(f"sqlite:///{tmp_path}/history.db"))
    async with asyncio.timeout(60), running(Bridge([route], config, Services(turns=turns))):
        yield address, behind


# ---------------------------------------------------------------------- sessions


@pytest.mark.parametrize("direct", [False, True], ids=["gateway", "direct"])
async def test_a_session_of_several_turns(tmp_path: Any, direct: bool) -> None:
    async with served(tmp_path) as (address, behind), client(address) as caller:
        call = caller.open(direct=direct)
        await call.write(quest("START_QUEST", "one"))
        first = await call.read()
        await call.write(quest("HOLD_QUEST", "two"))
        second = await call.read()
        await call.write(quest("STOP_QUEST"))
        assert await rest(call) == [("STOP_RESPONSE", "Session closed")]
        assert await call.code() is grpc.StatusCode.OK
    assert [m.content[0].text for m in (first, second)] == ["You said one", "You said two"]
    assert (first.sender_id, first.receiver_id, first.session_id) == ("bridge", "client", "s1")
    assert (first.task_info.task_id, first.task_info.task_status) == ("task1", 4)
    assert first.reply_to_message_id == "m_one"
    assert first.message_id
    assert first.message_id != second.message_id
    # The backend keeps nothing, so the bridge tells it the whole talk.
    said = [(m.role, "".join(p.text for p in m.parts if isinstance(p, Text))) for m in behind.requests[1].messages]
    assert said == [("user", "one"), ("assistant", "You said one"), ("user", "two")]


async def test_a_stop_right_behind_an_inquiry_lets_it_be_answered(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, _), client(address) as caller:
        call = caller.open()
        for message in (quest("START_QUEST", "a"), quest("HOLD_QUEST", "b"), quest("STOP_QUEST")):
            await call.write(message)
        assert await rest(call) == [
            ("HOLD_RESPONSE", "You said a"), ("HOLD_RESPONSE", "You said b"), ("STOP_RESPONSE", "Session closed"),
        ]  # fmt: skip


async def test_pieces_as_they_come(tmp_path: Any) -> None:
    async with served(tmp_path, stream="delta") as (address, _), client(address) as caller:
        call = caller.open()
        await call.write(quest("START_QUEST", "a"))
        messages = [await call.read() for _ in range(3)]
        assert [(m.content[0].text, m.task_info.task_status) for m in messages] == [("You said ", 1), ("a", 1), ("", 4)]


async def test_callers_have_the_limits_that_users_have(tmp_path: Any) -> None:
    limits = {"per_key": {"requests_per_minute": 2}}
    async with served(tmp_path, limits=limits) as (address, behind), client(address) as caller:
        call = caller.open()
        await call.write(quest("START_QUEST", "a"))
        await call.write(quest("HOLD_QUEST", "b"))
        assert [(await call.read()).content[0].text for _ in range(2)] == ["You said a", "You said b"]
        await call.write(quest("HOLD_QUEST", "c"))
        refused = await call.read()
        assert refused.task_info.task_status == 3
        assert refused.content[0].text == "Error: This key has sent too many requests within a minute."
        # Somebody else has a minute of his own.
        other, asked = caller.open(), quest("START_QUEST", "d", session="s2")
        asked.sender_id = "other"
        await other.write(asked)
        assert (await other.read()).content[0].text == "You said d"
        assert len(behind.requests) == 3


async def test_callers_wait_for_a_place_or_are_told(tmp_path: Any) -> None:
    limits = {"concurrent": 1, "queue": 0}
    async with served(tmp_path, limits=limits) as (address, behind), client(address) as caller:
        behind.hold = asyncio.Event()
        first, second = caller.open(), caller.open()
        await first.write(quest("START_QUEST", "a"))
        await behind.waiting.wait()
        await second.write(quest("START_QUEST", "b", session="s2"))
        refused = (await second.read()).content[0].text
        assert refused == "Error: The bridge is at its limit of runs at once; try again in a moment."
        behind.hold.set()
        assert (await first.read()).content[0].text == "You said a"


async def test_a_turn_may_end_the_session(tmp_path: Any) -> None:
    async with served(tmp_path, close_after_turn=True) as (address, _), client(address) as caller:
        call = caller.open()
        await call.write(quest("START_QUEST", "a"))
        assert await rest(call) == [("STOP_RESPONSE", "You said a")]


async def test_pictures_go_and_come_as_bytes(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, behind), client(address) as caller:
        call = caller.open()
        asked = quest("START_QUEST", "picture")
        asked.content.append(schema.message("ContentItem", image=Inline(PICTURE).bytes))
        await call.write(asked)
        answer = await call.read()
    assert [item.WhichOneof("data") for item in answer.content] == ["text", "image"]
    assert answer.content[1].image == Inline(PICTURE).bytes
    assert behind.requests[0].messages[-1].parts[1] == Media(MediaKind.IMAGE, Inline(PICTURE), "image/png")


async def test_a_failed_turn_breaks_its_task_and_the_session_goes_on(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, _), client(address) as caller:
        call = caller.open()
        await call.write(quest("START_QUEST", "fail"))
        half, broken = await call.read(), await call.read()
        assert (half.content[0].text, half.task_info.task_status) == ("half", 1)
        assert (broken.content[0].text, broken.task_info.task_status) == ("Error: It broke.", 3)
        await call.write(quest("HOLD_QUEST", "again"))
        assert (await call.read()).content[0].text == "You said again"
        await call.write(quest("HOLD_QUEST", "gone"))
        assert await rest(call) == [("STOP_RESPONSE", "Error: Nobody there.")]


async def test_who_leaves_cancels_the_run(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, behind), client(address) as caller:
        behind.hold = asyncio.Event()
        call = caller.open()
        await call.write(quest("START_QUEST", "a"))
        await behind.waiting.wait()
        call.cancel()
        await behind.left.wait()


async def test_a_stop_may_cancel_the_run(tmp_path: Any) -> None:
    async with served(tmp_path, stop="cancel") as (address, behind), client(address) as caller:
        behind.hold = asyncio.Event()
        call = caller.open()
        await call.write(quest("START_QUEST", "a"))
        await behind.waiting.wait()
        await call.write(quest("STOP_QUEST"))
        assert await rest(call) == [("STOP_RESPONSE", "Session closed")]
        assert behind.left.is_set()


async def test_a_half_closed_session_ends_after_its_silence(tmp_path: Any) -> None:
    async with served(tmp_path, idle_timeout="50ms") as (address, _), client(address) as caller:
        call = caller.open()
        await call.write(quest("START_QUEST", "a"))
        await call.done_writing()
        assert await rest(call) == [("HOLD_RESPONSE", "You said a"), ("STOP_RESPONSE", "Session closed")]


async def test_open_sessions_are_told_goodbye_when_the_server_stops(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, _):
        channel = grpc.aio.insecure_channel(address)
        call = schema.services().AgentServiceStub(channel).CallAgent()
        await call.write(quest("START_QUEST", "a"))
        assert (await call.read()).content[0].text == "You said a"
        ending = asyncio.create_task(rest(call))
    assert await ending == [("STOP_RESPONSE", "Session closed")]
    await channel.close()


@pytest.mark.parametrize("direct", [False, True], ids=["gateway", "direct"])
@pytest.mark.parametrize(
    ("first", "code", "details"),
    [
        (None, "ABORTED", "Empty request stream"),
        (
            quest("HOLD_QUEST"),
            "INVALID_ARGUMENT",
            "First message must be START_QUEST: there is no session [s1] to which a HOLD_QUEST could belong.",
        ),
        (quest("START_QUEST", session=""), "INVALID_ARGUMENT", "Missing session_id in START_QUEST"),
        (
            quest("START_QUEST", receiver="nobody"),
            "NOT_FOUND",
            "Receiver not found: no agent [nobody] {}.",
        ),
    ],
)
async def test_what_is_wrong_with_a_first_message(
    tmp_path: Any, direct: bool, first: Any, code: str, details: str
) -> None:
    async with served(tmp_path) as (address, _), client(address) as caller:
        call = caller.open(direct=direct)
        if first is not None:
            await call.write(first)
        await call.done_writing()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rest(call)
        told = details.format("answers at this address" if direct else "is registered here")
        assert (caught.value.code().name, caught.value.details()) == (code, told)


async def test_a_session_id_that_lives_is_refused_and_free_again_afterwards(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, _), client(address) as caller:
        call, second = caller.open(), caller.open(direct=True)
        await call.write(quest("START_QUEST", "a"))
        await call.read()
        await second.write(quest("START_QUEST", "b"))
        with pytest.raises(grpc.aio.AioRpcError, match=r"Session_id \[s1\] is already registered"):
            await rest(second)
        await call.write(quest("STOP_QUEST"))
        await rest(call)
        third = caller.open()
        await third.write(quest("START_QUEST", "c"))
        assert (await third.read()).content[0].text == "You said c"


# ---------------------------------------------------------------------- the gateway


def info(kind: str, name: str, address: str, /, **more: Any) -> Any:
    return schema.message(kind, **{("agent_id" if kind == "AgentInfo" else "tool_id"): name}, address=address, **more)


async def test_agents_are_registered_listed_and_called(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, _), agent() as node, client(address) as caller:
        registered = await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address, domain="talk"))
        assert registered.success
        assert [p.agent_info.agent_id for p in registered.peers] == ["bridge", "chat"]
        listed = await caller.gateway.GetNodes(schema.message("GetNodesRequest", domain="talk"))
        assert [p.agent_info.address for p in listed.peers] == [node.address]
        assert not (await caller.gateway.GetNodes(schema.message("GetNodesRequest", domain=""))).peers
        call = caller.open()
        await call.write(quest("START_QUEST", "hi", receiver="chat"))
        await call.write(quest("STOP_QUEST", receiver="chat"))
        assert await rest(call) == [("HOLD_RESPONSE", "Response to: hi"), ("STOP_RESPONSE", "Response to: bye")]
        # A second bridge calls it through this one.
        backend = {"dialect": "aip", "url": address, "options": {"agent": "chat"}}
        route = {"dialect": "openai-chat", "path": "/v1", "backend": "it"}
        config = {"backends": {"it": backend}, "routes": [route], "stores": {"history": "off"}}
        async with Bridge.from_config(config) as other:
            assert (await other.complete(Request([Message("user", [Text("you")])]))).text == "Response to: you"
            assert [m.id for m in await other.route().list_models()] == ["bridge", "chat"]


@pytest.mark.parametrize(
    ("name", "same_address", "details"),
    [
        ("chat", False, "Agent [chat] already registered."),
        ("bridge", False, "Agent [bridge] already registered."),
        ("other", True, "Address ["),
    ],
)
async def test_what_is_taken_is_refused(tmp_path: Any, name: str, same_address: bool, details: str) -> None:
    async with served(tmp_path) as (address, _), agent() as node, client(address) as caller:
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
        where = node.address if same_address else f"127.0.0.1:{free_port()}"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await caller.gateway.RegisterAgent(info("AgentInfo", name, where))
        assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS
        assert caught.value.details().startswith(details)
        assert caught.value.details().endswith("already registered.")


async def test_a_tool_is_told_yes_or_that_its_name_is_taken(tmp_path: Any) -> None:
    """And no list of nodes: that is for agents."""
    async with served(tmp_path) as (address, _), tool() as node, grpc.aio.insecure_channel(address) as channel:
        register = channel.unary_unary("/grpc_service.GatewayService/RegisterTool")
        body = info("ToolInfo", "adder", node.address).SerializeToString()
        assert await register(body) == schema.message("RegisterToolResponse", success=True).SerializeToString()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await register(info("ToolInfo", "adder", f"127.0.0.1:{free_port()}").SerializeToString())
        assert (caught.value.code().name, caught.value.details()) == (
            "ALREADY_EXISTS",
            "Tool [adder] already registered.",
        )


async def test_beats_and_farewells(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, _), agent() as node, client(address) as caller:
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))

        async def beat(name: str) -> tuple[bool, str]:
            answer = await caller.gateway.Heartbeat(schema.message("HeartbeatRequest", sender_id=name))
            return answer.success, answer.message

        async def leave(name: str) -> bool:
            request = schema.message("DeregisterNodeRequest", node_id=name)
            return bool((await caller.gateway.DeregisterNode(request)).success)

        assert await beat("chat") == (True, "Heartbeat received")
        assert await beat("nobody") == (False, "Node nobody not registered")
        assert [await leave(name) for name in ("chat", "chat", "bridge")] == [True, False, False]


async def test_tools_are_called_and_their_own_status_passed_on(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, _), tool() as node, client(address) as caller:
        await caller.gateway.RegisterTool(info("ToolInfo", "adder", node.address, arguments={"a": "a number"}))
        request = schema.message("ToolRequest", receiver_id="adder", tool_name="add", arguments={"a": "1", "b": "2"})
        answer = await caller.gateway.RouteToolCalling(request)
        assert (answer.error_message, answer.content[0].text) == ("No Error", "3")
        node.fail = grpc.StatusCode.INTERNAL
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await caller.gateway.RouteToolCalling(request)
        assert (caught.value.code().name, caught.value.details()) == ("INTERNAL", "the tool's own words")
        node.fail = None
        # A call that failed does not remove the node.
        assert (await caller.gateway.RouteToolCalling(request)).content[0].text == "3"
        for receiver in ("bridge", "nobody"):
            with pytest.raises(grpc.aio.AioRpcError, match="Receiver not found"):
                await caller.gateway.RouteToolCalling(schema.message("ToolRequest", receiver_id=receiver))
        call = caller.open()
        await call.write(quest("START_QUEST", receiver="adder"))
        with pytest.raises(grpc.aio.AioRpcError, match="Receiver not found"):
            await rest(call)


async def test_a_toolbox_is_listed_as_it_registered(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, _), tool() as node, grpc.aio.insecure_channel(address) as channel:
        box = schema.message("ToolBoxInfo", box=True, toolbox_id="box", address=node.address, description="words")
        box.tools.add(name="add", description="adds", arguments="{'a': 'int'}")
        register = channel.unary_unary("/grpc_service.GatewayService/RegisterTool")
        await register(box.SerializeToString())
        listing = channel.unary_unary("/grpc_service.GatewayService/GetNodes")
        raw = await listing(schema.message("GetNodesRequest", domain="default").SerializeToString())
        peers = schema.toolbox().GetNodesResponse.FromString(raw).peers
        assert peers[1].toolbox_info == box


async def test_a_node_that_cannot_be_reached_is_refused_and_holds_up_nobody(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bridge.dialects.aip.codec import AIP
    from bridge.dialects.aip.gateway import Gateway

    monkeypatch.setattr(AIP, "agent_registry", lambda self, address, agents: Gateway(address, agents, dial_timeout=0.5))
    async with served(tmp_path) as (address, _), agent() as node, client(address) as caller:
        lost = asyncio.ensure_future(
            caller.gateway.RegisterAgent(info("AgentInfo", "lost", f"127.0.0.1:{free_port()}"))
        )
        assert (await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))).success
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await lost
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        listed = await caller.gateway.GetNodes(schema.message("GetNodesRequest", domain="default"))
        assert [p.agent_info.agent_id for p in listed.peers] == ["bridge", "chat"]


async def test_subscribers_are_told_what_becomes_of_nodes(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, _), agent() as node, client(address) as caller:
        asked = schema.message("UpdateSubscriptionRequest", subscriber_id="me")
        updates = caller.gateway.SubscribeToUpdates(asked)
        await updates.initial_metadata()
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address, name="old"))
        added = await updates.read()
        renamed = info("AgentInfo", "chat", node.address, name="new")
        await caller.gateway.UpdateNodeInfo(schema.message("UpdateNodeInfoRequest", peer={"agent_info": renamed}))
        updated = await updates.read()
        await caller.gateway.DeregisterNode(schema.message("DeregisterNodeRequest", node_id="chat"))
        removed = await updates.read()
        assert [u.update_type for u in (added, updated, removed)] == [0, 1, 2]
        assert {u.node_id for u in (added, updated, removed)} == {"chat"}
        assert (added.peer.agent_info.name, updated.peer.agent_info.name) == ("old", "new")
        assert not removed.HasField("peer")
        with pytest.raises(grpc.aio.AioRpcError, match=r"Subscriber \[me\] already subscribed"):
            await caller.gateway.SubscribeToUpdates(asked).read()
        leaving = schema.message("UnsubscribeRequest", subscriber_id="me")
        assert (await caller.gateway.Unsubscribe(leaving)).success
        assert await updates.read() is grpc.aio.EOF
        assert not (await caller.gateway.Unsubscribe(leaving)).success


async def test_an_unknown_method_is_unimplemented(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, _), grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/grpc_service.GatewayService/Nothing")(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_pieces_within_a_time_are_one_message(tmp_path: Any) -> None:
    async with served(tmp_path, stream="delta", flush="10s") as (address, _), client(address) as caller:
        call = caller.open()
        await call.write(quest("START_QUEST", "a"))
        messages = [await call.read() for _ in range(2)]
        assert [(m.content[0].text, m.task_info.task_status) for m in messages] == [("You said a", 1), ("", 4)]


async def test_pieces_are_not_kept_for_longer(tmp_path: Any) -> None:
    async with served(tmp_path, stream="delta", flush="20ms") as (address, behind), client(address) as caller:
        call = caller.open()
        await call.write(quest("START_QUEST", "pause"))
        assert (await call.read()).content[0].text == "before"
        # It is told although nothing more comes for now.
        behind.go_on.set()
        assert [(await call.read()).content[0].text for _ in range(2)] == ["after", ""]
        behind.go_on.clear()
        call = caller.open()
        await call.write(quest("START_QUEST", "pause", session="other"))
        assert (await call.read()).content[0].text == "before"
        call.cancel()
        await behind.left.wait()
