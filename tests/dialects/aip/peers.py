"""Nodes that others might run, made of the protocol's own schema and stubs: an agent, and a caller.

The agent answers as one built with the specification's library: each inquiry through its script, STOP_QUEST's text
too, then STOP_RESPONSE. What it was told is in `heard`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from bridge.testing import free_port

from . import schema

Answers = Callable[[Any], list[Any]]


def text(*words: str) -> list[Any]:
    return [schema.message("ContentItem", text=word) for word in words]


def reply(asked: Any, *words: str, status: str = "HOLD_RESPONSE", task: str = "CREATE", content: Any = None) -> Any:
    """A message that answers `asked`."""
    pb = schema.tool()
    return pb.AgentMessage(
        sender_id=asked.receiver_id,
        receiver_id=asked.sender_id,
        session_id=asked.session_id,
        session_status=status,
        task_info=pb.TaskInfo(task_id="theirs", task_status=task),
        message_id=f"msg_{len(words)}_{status}",
        content=content if content is not None else text(*words),
    )


def echo(asked: Any) -> list[Any]:
    """One answer for each inquiry, and a goodbye."""
    status = "STOP_RESPONSE" if asked.session_status == 3 else "HOLD_RESPONSE"
    return [reply(asked, f"Response to: {asked.content[0].text}", status=status)]


class Agent:
    """`script` gives the answers to each message, None = the call ends; `hold` delays them until it is set."""

    def __init__(self, script: Answers = echo) -> None:
        self.script = script
        self.heard: list[Any] = []
        self.hold: asyncio.Event | None = None
        self.canceled = 0
        self.address = ""
        self.ended = asyncio.Event()
        self.shown: list[dict[str, Any]] = []
        """The metadata of each session."""

    async def CallAgent(self, messages: Any, context: Any) -> AsyncIterator[Any]:
        self.shown.append(dict(context.invocation_metadata()))
        try:
            async for asked in messages:
                self.heard.append(asked)
                if self.hold is not None:
                    await self.hold.wait()
                for answer in self.script(asked):
                    if answer is None:
                        return
                    yield answer
                    if answer.session_status == 4:
                        self.ended.set()
                        return
        except asyncio.CancelledError:
            self.canceled += 1
            raise

    @property
    def told(self) -> list[tuple[int, str]]:
        """Status and text of everything it heard."""
        return [(m.session_status, m.content[0].text if m.content else "") for m in self.heard]


@asynccontextmanager
async def agent(answers: Answers | Agent = echo) -> AsyncIterator[Agent]:
    """An agent that is served while the block runs: this one, or one that gives these answers."""
    node, server = answers if isinstance(answers, Agent) else Agent(answers), grpc.aio.server()
    schema.services().add_AgentServiceServicer_to_server(node, server)
    node.address = f"127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{free_port()}')}"
    await server.start()
    try:
        yield node
    finally:
        await server.stop(None)


class Tool:
    """A tool node of the tool generation; `fail` makes it end calls with that status."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.fail: grpc.StatusCode | None = None
        self.address = ""
        self.shown: list[dict[str, Any]] = []
        """The metadata of each call."""

    async def CallTool(self, request: Any, context: Any) -> Any:
        self.shown.append(dict(context.invocation_metadata()))
        self.heard.append(request)
        if self.fail is not None:
            await context.abort(self.fail, "the tool's own words")
        total = sum(int(value) for value in request.arguments.values())
        return schema.message("ToolResponse", error_message="No Error", content=text(str(total)))


@asynccontextmanager
async def tool() -> AsyncIterator[Tool]:
    """A tool that adds its arguments, served while the block runs."""
    node, server = Tool(), grpc.aio.server()
    schema.services().add_ToolServiceServicer_to_server(node, server)
    node.address = f"127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{free_port()}')}"
    await server.start()
    try:
        yield node
    finally:
        await server.stop(None)


class Client:
    """A caller of the gateway at `address`, by the generated stubs; `direct` calls the agent service instead."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.gateway = schema.services().GatewayServiceStub(channel)
        self.agents = schema.services().AgentServiceStub(channel)

    def open(self, *, direct: bool = False) -> Any:
        return self.agents.CallAgent() if direct else self.gateway.RouteAgentCalling()


@asynccontextmanager
async def client(address: str) -> AsyncIterator[Client]:
    """A client whose connection is closed with the block."""
    async with grpc.aio.insecure_channel(address) as channel:
        yield Client(channel)


def quest(status: str, words: str = "bye", session: str = "s1", receiver: str = "bridge", **more: Any) -> Any:
    """A message of the asking side."""
    pb = schema.tool()
    return pb.AgentMessage(
        sender_id="client",
        receiver_id=receiver,
        session_id=session,
        session_status=status,
        task_info=pb.TaskInfo(task_id="task1"),
        message_id=f"m_{words}",
        content=text(words),
        **more,
    )


async def rest(call: Any) -> list[tuple[str, str]]:
    """Status and text of everything that still comes."""
    found = []
    while (message := await call.read()) is not grpc.aio.EOF:
        status = schema.tool().AgentMessage.SessionStatus.Name(message.session_status)
        found.append((status, "".join(item.text for item in message.content)))
    return found
