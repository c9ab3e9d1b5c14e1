"""The common base of a program's agents, tools and gateways: a server at an address, registered at a foreign
gateway.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from bridge.contract.optional.sessions import AgentRegistry, Channel
from bridge.dialects.aip.addresses import plain_address
from bridge.dialects.aip.codec import dialect
from bridge.dialects.aip.options import MAX_MESSAGE, FrontOptions, Tls
from bridge.dialects.aip.registration import Membership
from bridge.dialects.aip.wire import AgentInfo, ToolInfo
from bridge.run.backends.grpc.channels import Metadata, metadata_of, open_channel
from bridge.server.grpc.grpc_guard import GrpcGuard
from bridge.server.grpc.grpc_server import GrpcHost, GrpcServer

if TYPE_CHECKING:
    import grpc.aio

DEADLINE = 10.0
"""Timeout of a call of a gateway in seconds: without a deadline it may hang forever."""
_GRACE = 1.0
"""Seconds that calls have to end when a node stops."""


T = TypeVar("T")


class InfoField(Generic[T]):
    """An attribute of a node that is a field of its registration."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, node: Any, owner: type) -> T:
        # On the class itself it is nothing but its description.
        return cast(T, self if node is None else getattr(node.info, self._name))

    def __set__(self, node: Any, value: T) -> None:
        setattr(node.info, self._name, value)


class Node:
    """A node at `address`. It belongs to the event loop in which it is started; `async with` starts and stops it.

    `tls` holds the certificates for serving and calling; without them connections are plaintext. `max_message` is the
    maximum size of a message in bytes. `key` identifies the node at the gateways where it registers, and is sent only
    there.
    """

    def __init__(
        self, address: str, *, max_message: int = MAX_MESSAGE, tls: Tls | None = None, key: str | None = None
    ) -> None:
        self._has_tls = tls is not None
        self.address = self._plain(address)
        self._settings: Channel = dialect.channel(FrontOptions(max_message=max_message, tls=tls))
        self._key = key
        self._server: GrpcServer | None = None
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._registrations: list[Membership] = []

    def _plain(self, address: str) -> str:
        """`host:port`, without the scheme that programs may write in front of it.

        Raises `ValueError` for a secure scheme when the node has no certificates.
        """
        scheme, found, rest = address.partition("://")
        if scheme.lower() not in ("https", "grpcs"):
            return plain_address(address)
        if not self._has_tls:
            raise ValueError(f"{address!r}: a secure connection needs certificates, which tls= names")
        return plain_address(f"http{found}{rest}")

    async def _serve(self, agent_registry: AgentRegistry, host: GrpcHost, guard: GrpcGuard | None = None) -> None:
        """Raises `OSError` when the address cannot be had, `RuntimeError` when it is served by this node already."""
        if self._server is not None:
            raise RuntimeError(f"the node at {self.address} has already been started")
        server = GrpcServer(self.address, dialect, agent_registry, self._settings, host, guard=guard)
        await server.start()
        self._server = server

    async def start(self) -> Self:
        """Serves. Raises `OSError` when the address cannot be had."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Leaves its gateways, ends its sessions and closes its connections. Repeating it is harmless."""
        server, self._server = self._server, None
        self._registrations.clear()
        if server is not None:
            await server.stop(_GRACE)
        while self._channels:
            await self._channels.popitem()[1].close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def _channel(self, address: str) -> grpc.aio.Channel:
        """The connection to an address, made at first use."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = open_channel(address, self._settings)
        return channel

    async def _register(self, gateway: str, info: AgentInfo | ToolInfo) -> bytes:
        """Return the gateway's answer; from then on the node sends heartbeats, and registers again if it was removed.

        Raises `grpc.aio.AioRpcError` with the gateway's message, `RuntimeError` before `start`: a gateway dials back.
        """
        if self._server is None:
            raise RuntimeError("call start() first: the gateway connects to the node before it accepts it")
        registration = Membership(self._plain(gateway), info, self._key or "")
        todo = registration.next(0.0)
        assert isinstance(todo, tuple)
        call = self._channel(registration.gateway).unary_unary(todo[0])
        answer: bytes = await call(todo[1], timeout=DEADLINE, metadata=metadata_of(dialect, self._key))
        if not registration.answered(answer, time.monotonic()):
            raise RuntimeError(f"the gateway {registration.gateway} rejected the registration")
        self._server.join(registration)
        self._registrations.append(registration)
        return answer

    def _shown(self, address: str) -> Metadata:
        """Return the metadata of a call to this address: the key, if the node is registered there."""
        known = any(registration.gateway == address for registration in self._registrations)
        return metadata_of(dialect, self._key) if known else ()

    @property
    def _gateway(self) -> str:
        """The gateway of the last registration. Raises `RuntimeError` without any."""
        if not self._registrations:
            raise RuntimeError("call register_to_gateway() first")
        return self._registrations[-1].gateway


class RegisteringNode(Node):
    """A node with a registration, `info`, whose fields are also attributes."""

    name = InfoField[str]()
    domain = InfoField[str]()
    description = InfoField[str]()
    version = InfoField[str]()
    input_mode = InfoField[list[int]]()
    output_mode = InfoField[list[int]]()

    @property
    def info(self) -> AgentInfo | ToolInfo:
        """The registration."""
        raise NotImplementedError
