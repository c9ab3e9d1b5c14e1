"""`Gateway`: where agents and tools register and find each other (specification; page, section 6)."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, Self

from adapters.aip.gateway import Gateway as Machine
from bridge.codec.session import Handle, Refuse, Respond, Serve

from .data import AgentInfo, NodeInfo, ToolBoxInfo, ToolInfo, info_of
from .node import Node


class Gateway(Node):
    """A gateway at `address`, "host:port". `gateway_id` is made up when there is none."""

    def __init__(self, address: str, gateway_id: str | None = None, **settings: Any) -> None:
        super().__init__(address, **settings)
        self.gateway_id = gateway_id or f"gateway_{uuid.uuid4()}"
        self._machine = Machine(self.address, {})

    async def start(self) -> Self:
        self._machine = Machine(self.address, {})
        await self._serve(self._machine, _Nobody())
        return self

    def get_registered_nodes(self) -> dict[str, NodeInfo]:
        """Every node that is registered now, by its id."""
        nodes = self._machine.nodes.values()
        return {node.node_id: info for node in nodes if node.connected and (info := info_of(node.peer)) is not None}

    def get_registered_agents(self) -> dict[str, AgentInfo]:
        return {name: info for name, info in self.get_registered_nodes().items() if isinstance(info, AgentInfo)}

    def get_registered_tools(self) -> dict[str, ToolInfo | ToolBoxInfo]:
        """Tools; a box of them (a node of the later generation) counts as one."""
        return {name: info for name, info in self.get_registered_nodes().items() if not isinstance(info, AgentInfo)}


class _Nobody:
    """See `bridge.server.grpc.Host`: a gateway has no agents and tools of its own."""

    async def session(self, reply: Serve, first: bytes, rpc: Any, leaving: asyncio.Event) -> None:
        raise NotImplementedError

    async def call(self, reply: Handle, body: bytes) -> Respond | Refuse:
        raise NotImplementedError
