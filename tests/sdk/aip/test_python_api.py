"""The Python interface of the specification: its attributes, examples and methods, in programs that run as written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from bridge.sdk.aip import (
    Agent,
    AgentInfo,
    AgentMessage,
    AgentServiceStub,
    AgentSkill,
    ContentItem,
    ContextMemory,
    DeregisterNodeRequest,
    DeregisterNodeResponse,
    Gateway,
    GatewayServiceStub,
    GetNodesRequest,
    GetNodesResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    Mode,
    Peer,
    RegisterAgentResponse,
    RegisterToolResponse,
    SessionStatus,
    TaskInfo,
    TaskStatus,
    Tool,
    ToolInfo,
    ToolRequest,
    ToolResponse,
)
from bridge.testing import free_port

KINDS = ("text", "image", "audio", "embedded")
VALUES: dict[str, Any] = {"text": "words", "image": b"\x89PNG", "audio": b"RIFF", "embedded": b"\x80\x04"}


def address() -> str:
    return f"127.0.0.1:{free_port()}"


# ---------------------------------------------------------------------- data


def test_the_enumerations_have_the_numbers_of_the_schema() -> None:
    assert [(m.name, m.value) for m in Mode] == [("TEXT", 0), ("IMAGE", 1), ("AUDIO", 2), ("EMBEDDED", 3)]
    sessions = ["START_QUEST", "HOLD_QUEST", "HOLD_RESPONSE", "STOP_QUEST", "STOP_RESPONSE"]
    assert [(s.name, s.value) for s in SessionStatus] == [(name, number) for number, name in enumerate(sessions)]
    tasks = ["CREATE", "EXECUTING", "WAITING", "BREAK", "FINISH"]
    assert [(s.name, s.value) for s in TaskStatus] == [(name, number) for number, name in enumerate(tasks)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_is_made_by_the_class(kind: str) -> None:
    item = getattr(ContentItem, f"write_{kind}")(VALUES[kind])
    assert item == ContentItem(**{kind: VALUES[kind]})
    assert [getattr(item, f"_{name}") for name in KINDS] == [VALUES[kind] if name == kind else None for name in KINDS]
    assert ContentItem.from_bytes(item.to_bytes()) == item
    assert getattr(ContentItem, f"write_{kind}")(VALUES[kind]) is not item


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_is_filled_in_place(kind: str) -> None:
    item = ContentItem(text="before", image=b"before")
    assert getattr(item, f"write_{kind}")(VALUES[kind]) is item
    assert item == ContentItem(**{kind: VALUES[kind]})


def test_an_items_content_by_its_other_name() -> None:
    item = ContentItem()
    item._text = "words"
    assert (item.text, item.to_bytes()) == ("words", ContentItem("words").to_bytes())


def test_a_peer_is_an_agent_or_a_tool() -> None:
    peer = Peer()
    assert (peer._agent_info, peer._tool_info) == (None, None)
    peer.agent_info = AgentInfo(agent_id="agent_1")
    assert peer._agent_info is peer.agent_info
    other = Peer()
    other._tool_info = ToolInfo(tool_id="tool_1", arguments={"lang": "en"})
    assert other.tool_info == ToolInfo(tool_id="tool_1", arguments={"lang": "en"})
    for each in (peer, other):
        assert Peer.from_bytes(each.to_bytes()) == each


EXAMPLES = [
    AgentSkill(skill_id="translation", capability="many languages"),
    TaskInfo(task_id="task_2", parent_task_ids=["task_1"], task_status=TaskStatus.WAITING),
    AgentInfo(
        agent_id="agent_1", address="http://localhost:8080", name="Translator", domain="translation",
        input_mode=[Mode.TEXT, Mode.AUDIO], output_mode=[Mode.TEXT], description="translates",
        skills=[AgentSkill("translation", "many languages")], version="v1.0.0",
    ),
    ToolInfo(
        tool_id="tool_1", address="http://localhost:8081", name="OCR", domain="image_processing",
        input_mode=[Mode.IMAGE], output_mode=[Mode.TEXT], description="reads pictures", arguments={"lang": "en"},
        version="v2.1.0",
    ),
    RegisterAgentResponse(success=True, peers=[Peer(agent_info=AgentInfo("a")), Peer(tool_info=ToolInfo("t"))]),
    RegisterToolResponse(success=True),
    DeregisterNodeRequest(node_id="agent_1"),
    DeregisterNodeResponse(success=True),
    GetNodesRequest(agent_id="agent_1", domain="translation"),
    GetNodesResponse(peers=[Peer(agent_info=AgentInfo("a"))]),
    ToolRequest(
        sender_id="agent_1", receiver_id="tool_1", session_id="s", tool_name="translator", arguments={"text": "Hello"}
    ),
    ToolResponse(
        sender_id="tool_1", receiver_id="agent_1", session_id="s", is_error=False, error_message="",
        content=[ContentItem.write_text("Hi")],
    ),
    HeartbeatRequest(sender_id="agent_1"),
    HeartbeatResponse(success=True, message="Heartbeat received"),
]  # fmt: skip


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_is_made_by_its_attributes_and_survives_the_wire(message: Any) -> None:
    assert type(message).from_bytes(message.to_bytes()) == message


@pytest.mark.parametrize("kind", [AgentMessage, ToolResponse])
def test_content_is_added_to_a_message(kind: Any) -> None:
    message = kind(sender_id="agent_1", receiver_id="agent_2")
    message.add_content(ContentItem.write_text("Hello!"))
    message.add_content(ContentItem.write_image(b"i"))
    assert [(item._text, item._image) for item in kind.from_bytes(message.to_bytes()).content] == [
        ("Hello!", None),
        (None, b"i"),
    ]


# ---------------------------------------------------------------------- attributes

DESCRIBED: dict[str, Any] = {
    "name": "N", "domain": "dom", "description": "d", "version": "v1",
    "input_mode": [Mode.TEXT, Mode.IMAGE], "output_mode": [Mode.AUDIO],
}  # fmt: skip


def agent(**more: Any) -> Agent:
    return Agent(address="127.0.0.1:1", agent_id="a", **{**DESCRIBED, "skills": [AgentSkill("s", "c")], **more})


def tool(**more: Any) -> Tool:
    return Tool(address="127.0.0.1:1", tool_id="t", **{**DESCRIBED, "arguments": {"x": "a number"}, **more})


def test_what_an_agent_and_a_tool_are_made_of_are_their_attributes() -> None:
    one, other = agent(), tool()
    for node in (one, other):
        assert {name: getattr(node, name) for name in DESCRIBED} == DESCRIBED
        assert node.address == "127.0.0.1:1"
    assert (one.agent_id, one.skills) == ("a", [AgentSkill("s", "c")])
    assert (other.tool_id, other.arguments) == ("t", {"x": "a number"})
    assert one.agent_info == AgentInfo(agent_id="a", address="127.0.0.1:1", skills=[AgentSkill("s", "c")], **DESCRIBED)
    assert other.tool_info == ToolInfo(tool_id="t", address="127.0.0.1:1", arguments={"x": "a number"}, **DESCRIBED)


def test_an_agent_makes_the_information_that_it_registers() -> None:
    one = agent()
    made = one._create_agent_info()
    assert made == one.agent_info
    made.skills.clear()
    made.name = "Another"
    assert (one.skills, one.name) == ([AgentSkill("s", "c")], "N"), "it is the caller's own"
    one.description = "changed"
    assert one._create_agent_info().description == one.agent_info.description == "changed"


async def test_changed_attributes_are_registered() -> None:
    class Named(Agent):
        def _create_agent_info(self) -> AgentInfo:
            info = super()._create_agent_info()
            info.version = "by the program"
            return info

    async with Gateway(address(), "gw") as gateway, Named(address(), "a") as one, Tool(address(), "t") as other:
        one.description, one.skills = "says more", [AgentSkill("s", "c")]
        one.agent_info.domain = "dom"
        other.arguments = {"x": "a number"}
        await one.register_to_gateway(gateway.address)
        await other.register_to_gateway(gateway.address)
        found = gateway.get_registered_agents()["a"]
        assert (found.description, found.domain, found.version) == ("says more", "dom", "by the program")
        assert found.skills == [AgentSkill("s", "c")]
        assert gateway.get_registered_tools()["t"] == other.tool_info
        assert other.tool_info.arguments == {"x": "a number"}
        assert await other.update_tool_info(name="New", output_mode=[Mode.IMAGE]) is other
        assert (other.name, other.output_mode) == ("New", [Mode.IMAGE])
        assert gateway.get_registered_tools()["t"] == other.tool_info


def test_a_memory_says_where_it_is(tmp_path: Any) -> None:
    memory = ContextMemory("a", save_root=str(tmp_path))
    assert memory.agent_id == "a"
    assert memory.save_dir == f"{tmp_path}/a"
    assert list(memory.dbs) == []
    assert memory.create("task_1")
    assert list(memory.dbs) == ["task_1"]
    assert not memory.create("task_1")
    assert memory.write("task_1", AgentMessage("a", "b", content=[ContentItem.write_text("hi")]))
    assert not memory.write("task_2", AgentMessage("a", "b"))
    assert memory.clear("task_1")
    assert not memory.clear("task_2")


# ---------------------------------------------------------------------- content


@pytest.mark.parametrize(
    ("content", "mode", "items"),
    [
        ("x", None, [("text", "x")]),
        (b"x", None, [("embedded", b"x")]),
        (["x", b"y"], None, [("text", "x"), ("embedded", b"y")]),
        ([b"x", b"y"], Mode.IMAGE, [("image", b"x"), ("image", b"y")]),
        ([b"x", b"y"], [Mode.AUDIO], [("audio", b"x"), ("audio", b"y")]),
        (["x", "y"], Mode.TEXT, [("text", "x"), ("text", "y")]),
        (["x", b"y"], [Mode.TEXT, Mode.IMAGE], [("text", "x"), ("image", b"y")]),
        (b"x", [Mode.AUDIO], [("audio", b"x")]),
    ],
)
def test_content_and_its_modes(content: Any, mode: Any, items: list[tuple[str, Any]]) -> None:
    assert agent().create_content_items(content, mode) == [ContentItem(**{kind: value}) for kind, value in items]


# ---------------------------------------------------------------------- programs


@asynccontextmanager
async def nodes(*of: Agent | Tool) -> AsyncIterator[Gateway]:
    """A gateway with these started and registered at it."""
    async with asyncio.timeout(20):
        gateway = Gateway(address(), gateway_id="gw")
        await gateway.start()
        try:
            for node in of:
                assert await node.start() is node
                assert await node.register_to_gateway(gateway_address=f"http://{gateway.address}") is node
            yield gateway
        finally:
            for node in of:
                await node.stop()
            await gateway.stop()


async def upper(request: AgentMessage, prefix: str = "") -> str:
    return f"{prefix}{(request.content[0]._text or '').upper()}"


async def test_a_program_answers_with_handlers_that_have_their_message() -> None:
    """The form of published programs: receive, bind what came to the handlers, and run them."""
    answering, asking = Agent(address(), "answers"), Agent(address(), "asks")

    async def serve() -> None:
        while True:
            request = await answering.receive_inquiry()
            handlers = [partial(upper, request=request), partial(upper, request, prefix="> "), lambda: "plain"]
            results = await answering.invoke_session_handlers(session_id=request.session_id, handlers=handlers)
            await answering.submit_feedback(
                session_id=request.session_id, receiver_id=request.sender_id, content=results
            )

    async with nodes(answering, asking):
        serving = asyncio.create_task(serve())
        try:
            session = await asking.create_agent_client(
                receiver_id="answers", stub=GatewayServiceStub, stream_calling="RouteAgentCalling"
            )
            for text in ("one", "two"):
                await asking.submit_inquiry(session_id=session, receiver_id="answers", content=text)
                answer = await asking.receive_feedback(session_id=session, receiver_id="answers")
                assert [item._text for item in answer.content] == [text.upper(), f"> {text.upper()}", "plain"]
                seen = await asking.invoke_session_handlers(session, [partial(upper, request=answer)])
                assert seen == [text.upper()]
            await asking.submit_inquiry(session, "answers", "bye", session_status=SessionStatus.STOP_QUEST)
            last = await asking.receive_feedback(session, "answers")
            assert last.session_status == SessionStatus.STOP_RESPONSE
            assert await asking.close_agent_client(session_id=session, receiver_id="answers")
            assert not await asking.close_agent_client(session_id=session, receiver_id="answers")
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def test_a_handler_that_takes_a_message_gets_the_one_received_last_and_then_the_next() -> None:
    answering, asking = Agent(address(), "answers"), Agent(address(), "asks")
    async with nodes(answering, asking):
        session = await asking.create_agent_client("answers")
        for text in ("one", "two", "three"):
            await asking.submit_inquiry(session, "answers", text)
        received = await answering.receive_inquiry()
        assert received.text == "one"
        shown: list[Callable[..., Any]] = [lambda m: m.text, partial(upper, prefix="> "), lambda: "bound"]
        assert await answering.invoke_session_handlers(session, shown) == ["one", "> ONE", "bound"]
        assert await answering.invoke_session_handlers(session, shown[:1]) == ["two"]
        assert await answering.invoke_session_handlers(session, []) == []
        assert (await answering.receive_inquiry()).text == "three"
        assert await answering.invoke_session_handlers(session, lambda message=None: message.text) == ["three"]
        await answering.submit_feedback(session, "asks", "an answer")
        assert await asking.invoke_session_handlers(session, shown[:1]) == ["an answer"]


async def test_a_program_finds_its_peers() -> None:
    asking = Agent(address(), "asks", domain="people")
    adder = Tool.creat_function_tool(lambda a, b: a + b, address(), tool_id="adder", domain="sums")
    async with nodes(adder, asking) as gateway:
        assert gateway.gateway_id == "gw"
        assert await asking.get_nodes() == asking.get_nodes() == gateway.get_registered_nodes()
        assert await asking.update_peers(domain="sums") is asking
        found = await asking.get_nodes()
        assert found == {"adder": adder.tool_info} == gateway.get_registered_tools()
        assert await asyncio.wait_for(asking.get_nodes(), 1) == found
        await asking.update_peers()
        assert list(await asking.get_nodes()) == ["adder", "asks"]
        assert list(gateway.get_registered_agents()) == ["asks"]
    assert Gateway(address()).gateway_id != Gateway(address()).gateway_id


async def test_a_program_talks_to_another_without_the_gateway() -> None:
    answering, asking = Agent(f"http://{address()}", "answers"), Agent(address(), "asks")
    async with nodes(answering, asking):
        await asking.update_peers()
        session = await asking.create_agent_client("answers", AgentServiceStub, "CallAgent")
        task = asking.create_task_info(parent_task_ids=["task_0"])
        await asking.submit_inquiry(session, "answers", [b"p", "q"], [Mode.IMAGE, Mode.TEXT], None, task)
        request = await answering.receive_inquiry()
        assert [(item._text, item._image) for item in request.content] == [(None, b"p"), ("q", None)]
        assert request.task_info == task
        await answering.submit_feedback(
            request.session_id, request.sender_id, b"sound", Mode.AUDIO, SessionStatus.HOLD_RESPONSE, task
        )
        assert (await asking.receive_feedback(session, "answers")).content[0]._audio == b"sound"


async def test_a_program_calls_a_tool_with_a_handler_of_its_own() -> None:
    def handler(request: ToolRequest) -> ToolResponse:
        response = ToolResponse(sender_id="t", receiver_id=request.sender_id, session_id=request.session_id)
        response.add_content(ContentItem.write_text(f"{request.tool_name} {request.arguments['x']}"))
        return response

    shown, asking = Tool(address(), "t", "shown", arguments={"x": "a number"}), Agent(address(), "asks")
    assert shown.set_process_request_handler(handler) is shown
    async with nodes(shown, asking):
        request = asking.create_tool_request("t", session_id="s", tool_name="shown", arguments={"x": 1})
        assert (request.sender_id, request.receiver_id, request.session_id) == ("asks", "t", "s")
        answer = await asking.call_tool(tool_id="t", session_id="s", tool_name="shown", arguments={"x": 1})
        assert (answer.is_error, answer.session_id, [item._text for item in answer.content]) == (
            False, "s", ["shown 1"],
        )  # fmt: skip
        await asking.call_tool("t", arguments={"x": 1})
        assert await asking.close_tool_client("t")
        assert not await asking.close_tool_client("t")


def test_a_message_is_made_by_an_agent() -> None:
    one = agent()
    task = one.create_task_info(parent_task_ids=["task_0"])
    assert (task.parent_task_ids, task.task_status) == (["task_0"], TaskStatus.CREATE)
    message = one.create_agent_message(
        receiver_id="b", content="hi", session_id="s", task_info=task, content_mode=Mode.TEXT,
        session_status=SessionStatus.HOLD_QUEST, message_id="m", reply_to_message_id="r",
    )  # fmt: skip
    assert message == AgentMessage(
        "a", "b", "s", SessionStatus.HOLD_QUEST, task, "m", "r", [ContentItem.write_text("hi")]
    )
    plain = one.create_agent_message("b", b"data")
    assert plain.session_status == SessionStatus.START_QUEST
    assert plain.session_id
    assert plain.message_id
    assert plain.task_info is not None
    assert plain.content == [ContentItem.write_embedded(b"data")]


# ---------------------------------------------------------------------- addresses


@pytest.mark.parametrize("scheme", ["", "http://", "grpc://", "HTTP://"])
async def test_an_address_may_have_a_scheme(scheme: str) -> None:
    at = address()
    async with Gateway(f"{scheme}{at}") as gateway, Agent(f"{scheme}{address()}", "a") as one:
        assert gateway.address == at
        await one.register_to_gateway(f"{scheme}{at}/" if scheme else at)
        session = await one.create_agent_client("a")
        await one.submit_inquiry(session, "a", "hi")
        assert (await one.receive_inquiry()).text == "hi"


@pytest.mark.parametrize("scheme", ["https", "grpcs", "HTTPS"])
def test_a_secure_scheme_needs_certificates(scheme: str) -> None:
    with pytest.raises(ValueError, match=rf"'{scheme}://127.0.0.1:1': .*tls="):
        Agent(f"{scheme}://127.0.0.1:1", "a")
