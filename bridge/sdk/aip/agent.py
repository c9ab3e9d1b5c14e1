"""`Agent`: a program that answers sessions, opens sessions with other agents and calls tools (specification, page 5-7).

agent = await Agent("127.0.0.1:50051", "echo", description="repeats").start()
await agent.register_to_gateway("127.0.0.1:50050")
while True:
    inquiry = await agent.receive_inquiry()
    await agent.submit_feedback(inquiry.session_id, inquiry.sender_id, inquiry.text)
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, Self

from bridge.contract.optional.sessions import OwnAgent
from bridge.dialects.aip.gateway import Gateway as Machine
from bridge.dialects.aip.options import FrontOptions
from bridge.sdk.aip.answering import Inquiries
from bridge.sdk.aip.asking import Client
from bridge.sdk.aip.content import Content, Modes, content_items, new_id
from bridge.sdk.aip.data import (
    AgentInfo,
    AgentMessage,
    AgentSkill,
    ContentItem,
    GetNodesRequest,
    Mode,
    NodeInfo,
    RegisterAgentResponse,
    SessionStatus,
    TaskInfo,
    ToolBoxInfo,
    ToolRequest,
    ToolResponse,
    generation_of,
    infos_of,
)
from bridge.sdk.aip.node import DEADLINE, InfoField, RegisteringNode
from bridge.sdk.aip.stubs import GatewayServiceStub

Handler = Callable[..., Any]
"""Called with a message, or without one when it has it already."""

_TOOL_DEADLINE = 60.0
"""Seconds for a tool."""
_CANCEL_GRACE = 30.0
"""Seconds that an agent has to say goodbye when a session with it is closed; at the end of the program less."""
_IDLE = 600.0


class KnownNodes(dict[str, NodeInfo]):
    """Nodes by their ids. Awaiting it gives itself."""

    def __await__(self) -> Generator[Any, None, Self]:
        yield from ()
        return self


def takes_message(handler: Handler) -> bool:
    """Return whether a handler still takes a message: a plain one that accepts an argument, or a `partial` that is
    called with too few without one.
    """
    try:
        signature = inspect.signature(handler)
    except ValueError:  # some builtins have no signature
        return True
    bound = isinstance(handler, partial)
    try:
        signature.bind(*(() if bound else (None,)))
    except TypeError:
        return bound
    return not bound


class Agent(RegisteringNode):
    """An agent at `address`, "host:port".

    Its registration is `agent_info`, whose fields are also attributes.
    """

    skills = InfoField[list[AgentSkill]]()

    @property
    def info(self) -> AgentInfo:
        """The registration, `agent_info`."""
        return self.agent_info

    def __init__(
        self,
        address: str,
        agent_id: str,
        name: str = "",
        domain: str = "default",
        description: str = "",
        version: str = "",
        input_mode: Sequence[int] = (Mode.TEXT,),
        output_mode: Sequence[int] = (Mode.TEXT,),
        skills: Iterable[AgentSkill] = (),
        **settings: Any,
    ) -> None:
        super().__init__(address, **settings)
        self.agent_id = agent_id
        self.agent_info = AgentInfo(
            agent_id, self.address, name or agent_id, domain, list(input_mode), list(output_mode), description,
            list(skills), version,
        )  # fmt: skip
        self._inquiries = Inquiries(_IDLE)
        self._clients: dict[str, Client] = {}
        self._tool_sessions: dict[str, str] = {}
        self._nodes = KnownNodes()

    def _create_agent_info(self) -> AgentInfo:
        """What the agent registers, as an object of the caller's own."""
        return replace(deepcopy(self.agent_info), agent_id=self.agent_id, address=self.address)

    async def start(self) -> Self:
        self._inquiries = Inquiries(_IDLE)
        options = FrontOptions.model_construct(mode="agent")
        await self._serve(Machine(self.address, {self.agent_id: OwnAgent(options, ())}), self._inquiries)
        return self

    async def stop(self) -> None:
        """Also end every session that this agent opened; the other agents have a second to end it, too."""
        await asyncio.gather(*(self._close(session, 1.0) for session in list(self._clients)))
        await super().stop()

    # ------------------------------------------------------------------ the gateway

    async def register_to_gateway(self, gateway_address: str) -> Self:
        """Raises `grpc.aio.AioRpcError`: ALREADY_EXISTS if the id or the address is in use."""
        self.agent_info = self._create_agent_info()
        answer = await self._register(gateway_address, self.agent_info)
        self._nodes = KnownNodes(infos_of(RegisterAgentResponse.from_bytes(answer).peers))
        return self

    async def update_peers(self, domain: str = "default") -> Self:
        """Fetch the nodes of a domain, all for `default`. Raises `grpc.aio.AioRpcError`."""
        stub = GatewayServiceStub(self._channel(self._gateway))
        request, shown = GetNodesRequest(self.agent_id, domain), self._shown(self._gateway)
        listed = await stub.GetNodes(request, timeout=DEADLINE, metadata=shown)
        self._nodes = KnownNodes(infos_of(listed.peers))
        return self

    def get_nodes(self) -> KnownNodes:
        """The nodes that were fetched last, by their ids. It may be awaited, as published programs do."""
        return KnownNodes(self._nodes)

    # ------------------------------------------------------------------ messages

    def create_task_info(self, parent_task_ids: Sequence[str] | None = None) -> TaskInfo:
        return TaskInfo(new_id("task"), list(parent_task_ids or ()))

    def create_content_items(self, content: Content, content_mode: Modes | None = None) -> list[ContentItem]:
        """Raises `ValueError` for modes that do not fit the contents."""
        return content_items(content, content_mode)

    def create_agent_message(
        self,
        receiver_id: str,
        content: Content,
        session_id: str | None = None,
        task_info: TaskInfo | None = None,
        content_mode: Modes | None = None,
        session_status: int = SessionStatus.START_QUEST,
        message_id: str | None = None,
        reply_to_message_id: str | None = None,
    ) -> AgentMessage:
        return AgentMessage(
            self.agent_id,
            receiver_id,
            session_id or new_id("agent_session"),
            session_status,
            task_info or self.create_task_info(),
            message_id or new_id("msg"),
            reply_to_message_id or "",
            content_items(content, content_mode),
        )

    # ------------------------------------------------------------------ as the one who asks

    async def create_agent_client(
        self, receiver_id: str, stub: type = GatewayServiceStub, stream_calling: str = "RouteAgentCalling"
    ) -> str:
        """Open a session and return its id: through the gateway, or with `AgentServiceStub` and "CallAgent" directly.

        Raises `ValueError` if the address of an agent to call directly is not known (see `update_peers`).
        """
        service = stub.__name__.removesuffix("Stub")
        address = self._gateway if service.startswith("Gateway") else self._address_of(receiver_id)
        call = self._channel(address).stream_stream(f"/grpc_service.{service}/{stream_calling}")(
            metadata=self._shown(address)
        )
        session_id = new_id("agent_session")
        self._clients[session_id] = Client(session_id, receiver_id, call)
        return session_id

    def _address_of(self, receiver_id: str) -> str:
        info = self._nodes.get(receiver_id)
        if info is None:
            raise ValueError(f"{receiver_id!r} is not a known node; update_peers() fetches the nodes")
        return self._plain(info.address)

    def _client(self, session_id: str) -> Client:
        client = self._clients.get(session_id)
        if client is None:
            raise ValueError(f"{session_id!r} is not a session that this agent opened; create_agent_client() opens one")
        return client

    async def submit_inquiry(
        self,
        session_id: str,
        receiver_id: str,
        content: Content,
        content_mode: Modes | None = None,
        session_status: int | None = None,
        task_info: TaskInfo | None = None,
    ) -> None:
        """Send an inquiry. Without a status, the first inquiry starts the session; further ones keep it open."""
        client = self._client(session_id)
        if session_status is None:
            session_status = SessionStatus.HOLD_QUEST if client.started else SessionStatus.START_QUEST
        await client.send(
            self.create_agent_message(receiver_id, content, session_id, task_info, content_mode, session_status)
        )

    async def receive_feedback(self, session_id: str, receiver_id: str) -> AgentMessage:
        """Return the next answer. Raises `EOFError` if the session has ended, `grpc.aio.AioRpcError` if it failed."""
        return await self._client(session_id).receive()

    async def close_agent_client(self, session_id: str, receiver_id: str) -> bool:
        """End a session. Return False if this agent did not open it."""
        return await self._close(session_id, _CANCEL_GRACE)

    async def _close(self, session_id: str, grace: float) -> bool:
        client = self._clients.pop(session_id, None)
        if client is None:
            return False
        status = SessionStatus.STOP_QUEST
        goodbye = self.create_agent_message(client.receiver_id, "bye", session_id, session_status=status)
        await client.close(goodbye, grace)
        return True

    # ------------------------------------------------------------------ as the one who answers

    async def receive_inquiry(self) -> AgentMessage:
        """Return the next inquiry of any session; STOP_QUEST marks a caller's last one."""
        return await self._inquiries.receive()

    async def submit_feedback(
        self,
        session_id: str,
        receiver_id: str,
        content: Content,
        content_mode: Modes | None = None,
        session_status: int | None = None,
        task_info: TaskInfo | None = None,
    ) -> bool:
        """Send an answer. Return False if the caller disconnected.

        Without a status, an answer to STOP_QUEST ends the session; any other one keeps it open.
        """
        conversation = self._inquiries.conversations.get(session_id)
        if conversation is None:
            return False
        if session_status is None:
            asked_to_stop = conversation.last.session_status == SessionStatus.STOP_QUEST
            session_status = SessionStatus.STOP_RESPONSE if asked_to_stop else SessionStatus.HOLD_RESPONSE
        message = self.create_agent_message(
            receiver_id, content, session_id, task_info or conversation.last.task_info, content_mode, session_status,
            reply_to_message_id=conversation.last.message_id,
        )  # fmt: skip
        return await conversation.send(message)

    async def invoke_session_handlers(self, session_id: str, handlers: Handler | Iterable[Handler]) -> list[Any]:
        """Return what each handler returns, in order.

        Handlers that have their message, as `partial(handler, request)` has, are called at once. The others get the
        message of the session that was received last, an answer or an inquiry; when handlers had it before, or none was
        received yet, the next one. Raises `EOFError` when the session is over and a handler needs a message.
        """
        calls = [handlers] if callable(handlers) else list(handlers)
        takes = [takes_message(call) for call in calls]
        given: tuple[AgentMessage, ...] = ()
        if any(takes):
            session = self._clients.get(session_id)
            message = session.for_handlers() if session is not None else self._inquiries.for_handlers(session_id)
            given = (await message,)
        results = []
        for call, needs in zip(calls, takes, strict=True):
            result = call(*given) if needs else call()
            results.append(await result if inspect.isawaitable(result) else result)
        return results

    # ------------------------------------------------------------------ tools

    def create_tool_request(
        self,
        receiver_id: str,
        session_id: str | None = None,
        tool_name: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> ToolRequest:
        """`session_id` is one for each tool until `close_tool_client`, when it is not given."""
        session_id = session_id or self._tool_sessions.setdefault(receiver_id, new_id("tool"))
        info = self._nodes.get(receiver_id)
        name = tool_name or (info.name if info is not None else "")
        return ToolRequest(self.agent_id, receiver_id, session_id, name, dict(arguments or {}))

    async def call_tool(
        self,
        tool_id: str,
        session_id: str | None = None,
        tool_name: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> ToolResponse:
        """Call a tool through the gateway and return its answer, which may be an error.

        Raises `grpc.aio.AioRpcError` if there is no such tool, `ValueError` for a name that its toolbox does not have:
        such a call would make common gateways remove the whole toolbox.
        """
        info = self._nodes.get(tool_id)
        request = self.create_tool_request(tool_id, session_id, tool_name, arguments)
        if isinstance(info, ToolBoxInfo) and request.tool_name not in (names := [tool.name for tool in info.tools]):
            raise ValueError(f"{tool_id!r} has no tool {tool_name!r}; there are: {', '.join(names)}")
        stub = GatewayServiceStub(self._channel(self._gateway))
        body = request.to_bytes(generation_of(info))
        shown = self._shown(self._gateway)
        answer: ToolResponse = await stub.RouteToolCalling(body, timeout=_TOOL_DEADLINE, metadata=shown)
        return answer

    async def close_tool_client(self, tool_id: str) -> bool:
        """Discard the session of a tool. Return False if there was none."""
        return self._tool_sessions.pop(tool_id, None) is not None
