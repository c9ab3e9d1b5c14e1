"""Connections to the nodes of a registry, whose addresses come from their callers.

A host name is resolved once, when the node is dialed, and the connection keeps to the addresses that were admitted
then: who controls the name cannot lead later calls elsewhere.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, ip_address

import grpc
import grpc.aio

from bridge.contract.optional.sessions import Channel, Dial, Dialed
from bridge.run.backends.grpc.channels import channel_to

_LOOKUPS = 2
"""Host names that are looked up at a time. A slow name server must not take the threads that stores work in."""


class Nodes:
    """The connections of one registry, by address."""

    def __init__(self, settings: Channel) -> None:
        self._settings = settings
        self._channels: dict[str, grpc.aio.Channel] = {}
        self.targets: dict[str, str] = {}
        """The gRPC target of each address: what was admitted when the node was dialed, here or by another process."""
        self._replaced: list[tuple[str, grpc.aio.Channel]] = []
        self._resolver = ThreadPoolExecutor(_LOOKUPS, "node-names")

    async def dial(self, dial: Dial, seconds: float) -> Dialed:
        """Connects within `seconds`; what was connected to before at this address gives way."""
        channel: grpc.aio.Channel | None = None
        try:
            async with asyncio.timeout(seconds):
                target = await self._target(dial)
                if target is None:
                    return Dialed.NOT_ADMITTED
                channel = self._open(target, dial.address)
                await channel.channel_ready()
        except BaseException as error:
            if channel is not None:
                await channel.close()
            if isinstance(error, TimeoutError | OSError):
                return Dialed.UNREACHABLE
            raise
        before = self._channels.get(dial.address)
        if before is not None:
            # Sessions may still run over it.
            self._replaced.append((dial.address, before))
        self._channels[dial.address] = channel
        self.targets[dial.address] = target
        return Dialed.CONNECTED

    def learn(self, address: str, target: str) -> None:
        """Another process has dialed this address, and may do so again."""
        if self.targets.get(address) != target and (channel := self._channels.pop(address, None)) is not None:
            self._replaced.append((address, channel))
        self.targets[address] = target

    def at(self, address: str) -> grpc.aio.Channel:
        """The connection to a node that was dialed, or whose target another process has told."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._open(self.targets[address], address)
        return channel

    async def tidy(self, known: Collection[str], busy: Collection[str]) -> None:
        """Closes what leads to no known node and has no session."""
        for address in [each for each in self._channels if each not in known and each not in busy]:
            await self._channels.pop(address).close()
        self.targets = {address: target for address, target in self.targets.items() if address in known}
        unused = [pair for pair in self._replaced if pair[0] not in busy]
        self._replaced = [pair for pair in self._replaced if pair[0] in busy]
        for _, channel in unused:
            await channel.close()

    async def close(self) -> None:
        await self.tidy((), ())
        self._resolver.shutdown(wait=False, cancel_futures=True)

    async def _target(self, dial: Dial) -> str | None:
        """Return the gRPC target with the allowed addresses of the node's host; None if there are none.

        Raises `OSError` for a name that is not found.
        """
        if not dial.host:
            return dial.address
        found = await asyncio.get_running_loop().run_in_executor(
            self._resolver, lambda: socket.getaddrinfo(dial.host, dial.port, type=socket.SOCK_STREAM)
        )
        resolved = dict.fromkeys(str(address[0]) for *_, address in found)
        admitted = [ip_address(each.partition("%")[0]) for each in resolved if dial.admits(each)]
        if not admitted:
            return None
        if all(isinstance(each, IPv4Address) for each in admitted):
            return "ipv4:" + ",".join(f"{each}:{dial.port}" for each in admitted)
        # A target has one family: beside IPv6 addresses, those of IPv4 are written as mapped ones.
        mapped = (f"::ffff:{each}" if isinstance(each, IPv4Address) else str(each) for each in admitted)
        return "ipv6:" + ",".join(f"[{each}]:{dial.port}" for each in mapped)

    def _open(self, target: str, address: str) -> grpc.aio.Channel:
        """Certificates and proxies are checked against `address`, not the target."""
        # A connection of its own: one that is shared waits for minutes before it tries a restarted node again.
        options = (("grpc.default_authority", address), ("grpc.use_local_subchannel_pool", 1))
        return channel_to(target, self._settings, *options)
