"""What agents over gRPC do wrong: each fault a script of messages, or of bytes on the connection below them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from bridge.contract import registry
from bridge.testing import bound_socket, free_port
from tests.dialects.aip import schema
from tests.dialects.aip.peers import reply
from tests.faults.measure import Outcome, outcome_of, setup, soon
from tests.faults.wire import ask, read
from tests.server.harness import serving
from tests.stores.door import RouteLimiter

METHOD = "/grpc_service.AgentService/CallAgent"


class Turn:
    """One session as the agent sees it. `heard` is set when the client has the first words."""

    def __init__(self, asked: Any, door: RouteLimiter, context: Any, heard: asyncio.Event) -> None:
        self.gone = asyncio.Event()
        self.heard = heard
        self._asked = asked
        self._door = door
        self._context = context

    async def say(self, words: str = "", **more: Any) -> None:
        await self.send(reply(self._asked, *([words] if words else ()), **more).SerializeToString())

    async def send(self, message: bytes) -> None:
        await self._context.write(message)

    async def begin(self) -> None:
        """The first words, until the client has them."""
        await self.say("Hello ")
        await self.heard.wait()

    async def fail(self, code: grpc.StatusCode) -> None:
        await self._context.abort(code, "out of order")

    async def reset(self) -> None:
        """The connection is cut."""
        await self._door.shut()


Play = Callable[[Turn], Awaitable[None]]
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class AgentFault:
    """`play`: what the agent says; or `answers`: what answers instead of a gRPC server; with neither nobody listens.

    `section`, `options`: the backend's configuration. `ends`: the agent itself ended the session.
    """

    name: str
    play: Play | None = None
    answers: Answer | None = None
    begun: bool = False
    ends: bool = False
    section: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


FAULTS: list[AgentFault] = [AgentFault("nothing listens at the address")]


def fault(name: str, **more: Any) -> Callable[[Play], Play]:
    def keep(play: Play) -> Play:
        FAULTS.append(AgentFault(name, play, **more))
        return play

    return keep


def below(name: str, **more: Any) -> Callable[[Answer], Answer]:
    def keep(answers: Answer) -> Answer:
        FAULTS.append(AgentFault(name, None, answers, **more))
        return answers

    return keep


@below("a server without gRPC")
async def _(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\0\x01\x02\r\n\r\n")
    await writer.drain()
    writer.close()


@below("a connection without data", section={"timeouts": {"connect": "150ms", "first_event": "300ms"}})
async def _(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


@fault("connection reset before an answer", ends=True)
async def _(turn: Turn) -> None:
    await turn.reset()


@fault("connection reset between messages", begun=True, ends=True)
async def _(turn: Turn) -> None:
    await turn.begin()
    await turn.reset()


@fault("silent before the first message", section={"timeouts": {"first_event": "300ms"}})
async def _(turn: Turn) -> None:
    await turn.gone.wait()


@fault("silent between messages", begun=True, section={"timeouts": {"idle": "300ms"}})
async def _(turn: Turn) -> None:
    await turn.begin()
    await turn.gone.wait()


@fault("no end of the session", begun=True, section={"timeouts": {"total": "600ms"}})
async def _(turn: Turn) -> None:
    await turn.begin()
    while not turn.gone.is_set():
        await turn.say("")


@fault("a status before the first message", ends=True)
async def _(turn: Turn) -> None:
    await turn.fail(grpc.StatusCode.INTERNAL)


@fault("a status between messages", begun=True, ends=True)
async def _(turn: Turn) -> None:
    await turn.begin()
    await turn.fail(grpc.StatusCode.INTERNAL)


@fault("no STOP_RESPONSE, no content", ends=True)
async def _(turn: Turn) -> None:
    pass


@fault("no STOP_RESPONSE after content", begun=True, ends=True)
async def _(turn: Turn) -> None:
    await turn.begin()


@fault("bytes that are not a message")
async def _(turn: Turn) -> None:
    await turn.send(b"\xff\xff\xff")
    await turn.gone.wait()


@fault("bytes that are not a message, between messages", begun=True)
async def _(turn: Turn) -> None:
    await turn.begin()
    await turn.send(b"\xff\xff\xff")
    await turn.gone.wait()


@fault("text that is not UTF-8", begun=True)
async def _(turn: Turn) -> None:
    await turn.begin()
    whole = reply(turn._asked, "w0rd").SerializeToString()
    await turn.send(whole.replace(b"w0rd", b"\xff\xfe\xff\xfe"))
    await turn.gone.wait()


@fault("a message that is too large", options={"max_message": "64KiB"}, ends=True)
async def _(turn: Turn) -> None:
    await turn.say("x" * 70_000)
    await turn.gone.wait()


@fault("a message that is too large, between messages", begun=True, options={"max_message": "64KiB"}, ends=True)
async def _(turn: Turn) -> None:
    await turn.begin()
    await turn.say("x" * 70_000)
    await turn.gone.wait()


@fault("a failed task", ends=True)
async def _(turn: Turn) -> None:
    await turn.say("Error: no model", status="STOP_RESPONSE", task="BREAK")


@fault("a failed task after content", begun=True, ends=True)
async def _(turn: Turn) -> None:
    await turn.begin()
    await turn.say("Error: no model", status="STOP_RESPONSE", task="BREAK")


class Node:
    """A gRPC server behind a door. `sessions` counts what was asked; `turns` are those whose script began."""

    def __init__(self, play: Play, heard: asyncio.Event) -> None:
        self.turns: list[Turn] = []
        self.door = RouteLimiter(self._connect)
        self._play = play
        self._heard = heard
        self._port = 0

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port)

    def handlers(self) -> grpc.GenericRpcHandler:
        service, method = METHOD.strip("/").split("/")
        return grpc.method_handlers_generic_handler(service, {method: grpc.stream_stream_rpc_method_handler(self.call)})

    async def call(self, messages: Any, context: Any) -> None:
        asked = schema.tool().AgentMessage.FromString(await context.read())
        turn = Turn(asked, self.door, context, self._heard)
        self.turns.append(turn)
        listening = asyncio.create_task(self._listen(context, turn))
        try:
            await self._play(turn)
        except asyncio.CancelledError:
            turn.gone.set()
            raise
        finally:
            listening.cancel()

    async def _listen(self, context: Any, turn: Turn) -> None:
        """Until the caller says that nothing more comes, which is how a session is given up."""
        with suppress(grpc.aio.BaseError, asyncio.InvalidStateError):
            while await context.read() is not grpc.aio.EOF:
                pass
        turn.gone.set()

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Its address, that of the door."""
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self.handlers(),))
        self._port = server.add_insecure_port(f"127.0.0.1:{free_port()}")
        await server.start()
        try:
            async with _listening(self.door.enter) as address:
                yield address
                await self.door.shut()
        finally:
            await server.stop(None)


@asynccontextmanager
async def _listening(answers: Answer) -> AsyncIterator[str]:
    sock, writers = bound_socket(), list[asyncio.StreamWriter]()

    async def noted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await answers(reader, writer)

    server = await asyncio.start_server(noted, sock=sock)
    try:
        yield f"127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            # grpc keeps a connection whose handshake is not over for twenty seconds, also where its channel is closed.
            writer.transport.abort()


def agent_setup(front: str, address: str, section: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    config = setup(front, "aip", address, **section)
    del config["backends"]["it"]["api_key"]
    config["backends"]["it"]["options"] = {"agent": "chat", "direct": True, "cancel_grace": "1s", **options}
    return config


async def agent_outcome(fault: AgentFault, front: str) -> Outcome:
    """What a client of this front is told of the fault, what the agent saw of the bridge, what arrived."""
    heard = asyncio.Event()
    if fault.play is not None:
        node = Node(fault.play, heard)
        async with node.served() as address:
            seen = await _seen(fault, front, address, heard, node)
        sessions = f"{len(node.turns)} session" + "s" * (len(node.turns) != 1)
    elif fault.answers is not None:
        async with _listening(fault.answers) as address:
            seen, sessions = await _seen(fault, front, address, heard, None), "-"
    else:
        seen, sessions = await _seen(fault, front, f"127.0.0.1:{free_port()}", heard, None), "-"
    return outcome_of(seen, sessions, begun=fault.begun)


async def _seen(fault: AgentFault, front: str, address: str, heard: asyncio.Event, node: Node | None) -> Any:
    async with serving(agent_setup(front, address, fault.section, fault.options)) as base:
        seen = read(registry.get(front), await ask(base, registry.get(front), "/it", heard=heard))
        for turn in node.turns if node is not None and not fault.ends else ():
            await soon(turn.gone.is_set)
    return seen
