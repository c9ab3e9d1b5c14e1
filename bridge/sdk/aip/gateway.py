"""`Gateway`: where agents and tools register and find each other."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Self

from bridge.contract.optional.sessions import Handle, Refuse, Respond, Serve
from bridge.dialects.aip.gateway import Gateway as Machine
from bridge.sdk.aip.data import AgentInfo, NodeInfo, ToolBoxInfo, ToolInfo, info_of
from bridge.sdk.aip.node import Node
from bridge.server.auth.api_keys import Key, Keys
from bridge.server.auth.identity import Identity
from bridge.server.grpc.grpc_guard import GrpcGuard


class Gateway(Node):
    """A gateway at `address`, "host:port". `gateway_id` is generated if there is none.

    `keys`: name -> key of callers that may register, query and be relayed, as `server.auth.keys`; None = anyone.
    Nodes and callers send theirs by `key=`, or in the metadata of their calls. Keys are not forwarded to nodes.
    `allow_addresses`: what nodes may register besides addresses of the host that they call from: networks
    (`10.0.0.0/8`), hosts (`*.internal`), gRPC targets (`unix:/run/agents/*`).
    """

    def __init__(
        self,
        address: str,
        gateway_id: str | None = None,
        *,
        keys: Mapping[str, str] | None = None,
        allow_addresses: Iterable[str] = (),
        **settings: Any,
    ) -> None:
        """Raises `ValueError` for keys without any value, and for an address that is not a network, host or target."""
        super().__init__(address, **settings)
        self._guard = _guard(keys) if keys is not None else None
        self.gateway_id = gateway_id or f"gateway_{uuid.uuid4()}"
        self._allow_addresses = tuple(allow_addresses)
        self._machine = Machine(self.address, {}, allow_addresses=self._allow_addresses)

    async def start(self) -> Self:
        self._machine = Machine(self.address, {}, allow_addresses=self._allow_addresses)
        await self._serve(self._machine, _Nobody(), self._guard)
        return self

    def get_registered_nodes(self) -> dict[str, NodeInfo]:
        """Every node that is registered now, by its id."""
        nodes = self._machine.nodes.values()
        return {node.node_id: info for node in nodes if (info := info_of(node.peer)) is not None}

    def get_registered_agents(self) -> dict[str, AgentInfo]:
        return {name: info for name, info in self.get_registered_nodes().items() if isinstance(info, AgentInfo)}

    def get_registered_tools(self) -> dict[str, ToolInfo | ToolBoxInfo]:
        """Return the tools; a toolbox (a node of the later generation) counts as one."""
        return {name: info for name, info in self.get_registered_nodes().items() if not isinstance(info, AgentInfo)}


def _guard(keys: Mapping[str, str]) -> GrpcGuard:
    if not keys or not all(keys.values()):
        raise ValueError("keys: expected at least one name with its key, and no empty key; None allows all callers")
    known = [Key(name, Keys.digest(key), frozenset("*")) for name, key in keys.items()]
    return GrpcGuard(Identity(known), {})


class _Nobody:
    """See `bridge.server.grpc.grpc_server.GrpcHost`: a gateway has no agents and tools of its own."""

    async def session(self, reply: Serve, first: bytes, rpc: Any, leaving: asyncio.Event) -> None:
        raise NotImplementedError

    async def call(self, reply: Handle, body: bytes) -> Respond | Refuse:
        raise NotImplementedError
