"""The addresses that nodes may register at a gateway, which connects to them.

A registration makes the gateway call an address of the caller's choice. By default a caller may therefore register only
the host that it calls from; `allow_addresses` adds others. The server resolves host names and checks each IP address
with `Dial.admits`, so that a name that points elsewhere, or is changed later, is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from bridge.contract.optional.sessions import Dial, Refuse, Visitor, without_scheme
from bridge.toolkit.redact import printable

_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):([0-9]{1,5})")
_TARGET = re.compile(r"(?:unix|unix-abstract|vsock|dns|ipv4|ipv6|xds|google-c2p|passthrough):", re.IGNORECASE)
"""Schemes that gRPC takes for a resolver and not for a host."""
_PATTERN = re.compile(r"[a-z0-9._*-]{1,253}", re.IGNORECASE)
_NUMBERS = re.compile(r"\**[0-9.][0-9.*]*")
_EXPECTED = (
    "expected a network such as 10.0.0.0/8, a host without a port such as agent.internal or *.internal, "
    "or a gRPC target such as unix:/run/agents/*"
)


def plain_address(written: str) -> str:
    """`host:port` without the `http://` or `grpc://` that programs may write, the host in lower case."""
    bare = without_scheme(written)
    return bare.lower() if _HOST_PORT.fullmatch(bare) and not _TARGET.match(bare) else bare


@dataclass(slots=True)
class AddressRule:
    """The addresses that `allow_addresses` adds to a caller's own host."""

    networks: list[IPv4Network | IPv6Network] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, entries: Iterable[str]) -> AddressRule:
        """Raises `ValueError` for an entry that is none of the three."""
        rule = cls()
        for entry in entries:
            if _TARGET.match(entry):
                rule.targets.append(entry)
            elif (network := _network(entry)) is not None:
                rule.networks.append(network)
            elif _PATTERN.fullmatch(entry) and not _NUMBERS.fullmatch(entry):
                rule.hosts.append(entry.lower())
            else:
                raise ValueError(f"{_EXPECTED}; got {printable(entry)!r}")
        return rule

    def dial(self, node: str, address: str, by: Visitor) -> Dial | Refuse:
        """Return how to connect to a node at a plain address, or the reason why not."""
        if _TARGET.match(address):
            # A path with `..` leads out of the folder that an entry names.
            allowed = ".." not in address and any(fnmatchcase(address, target) for target in self.targets)
            return Dial(node, address, "", 0, lambda ip: False) if allowed else not_allowed(address)
        found = _HOST_PORT.fullmatch(address)
        if found is None or not 0 < int(found[2]) < 65536:
            return Refuse(
                "INVALID_ARGUMENT",
                f"Address [{printable(address)}]: expected host:port, alone or after http:// or grpc://.",
            )
        host = found[1].strip("[]")
        return Dial(node, address, host, int(found[2]), lambda ip: self._admits(host, _ip(ip), _ip(by.address)))

    def _admits(
        self, host: str, address: IPv4Address | IPv6Address | None, caller: IPv4Address | IPv6Address | None
    ) -> bool:
        if address is None:
            return False
        if caller is not None and (address == caller or (address.is_loopback and caller.is_loopback)):
            return True
        if any(address in network for network in self.networks):
            return True
        # The owner of a name that a pattern allows must not lead to the gateway's own services or a cloud's metadata.
        special = address.is_loopback or address.is_link_local or address.is_multicast
        special = special or address.is_unspecified or address.is_reserved
        return not special and any(fnmatchcase(host, pattern) for pattern in self.hosts)


def not_allowed(address: str) -> Refuse:
    return Refuse(
        "PERMISSION_DENIED",
        f"Address [{printable(address)}] is not allowed: a node registers an address of the host that it calls from. "
        "The gateway's option allow_addresses allows others.",
    )


def _network(entry: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(entry)
    except ValueError as error:
        if "host bits" in str(error):
            raise
        return None


def _ip(text: str | None) -> IPv4Address | IPv6Address | None:
    """Return the IPv4 address that an IPv6 address embeds."""
    try:
        address = ip_address((text or "").partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
