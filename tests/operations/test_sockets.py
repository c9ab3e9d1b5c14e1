"""Which addresses a host means, and who may listen on a port."""

from __future__ import annotations

import errno
import socket

import pytest

from bridge.server.host import listeners as listening
from tests.server.harness import free_port


def families(host: str) -> set[socket.AddressFamily]:
    made = listening.bind(host, 0)
    try:
        assert len({sock.getsockname()[1] for sock in made}) == 1, "one port for all addresses"
        return {sock.family for sock in made}
    finally:
        listening.close(made)


@pytest.mark.parametrize("host", ["::", "*", "", "localhost", "LOCALHOST"])
def test_hosts_that_mean_both_families(host: str) -> None:
    assert families(host) == {socket.AF_INET, socket.AF_INET6}


@pytest.mark.parametrize(
    ("host", "family"), [("0.0.0.0", socket.AF_INET), ("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)]
)
def test_hosts_that_mean_one_family(host: str, family: socket.AddressFamily) -> None:
    assert families(host) == {family}


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
@pytest.mark.parametrize("host", ["::", "localhost"])
def test_a_machine_without_ipv6(host: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = listening._bound

    def only_ipv4(family: socket.AddressFamily, address: object, *, shared: bool) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(number, "no IPv6")
        return bound(family, address, shared=shared)

    monkeypatch.setattr(listening, "_bound", only_ipv4)
    assert families(host) == {socket.AF_INET}
    with pytest.raises(OSError, match="no IPv6"):
        listening.bind("::1", 0)


@pytest.mark.parametrize(
    ("host", "printed"),
    [("::", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("*", "127.0.0.1"), ("::1", "[::1]"), ("localhost", "localhost")],
)
def test_the_host_that_is_printed_answers(host: str, printed: str) -> None:
    assert listening.url_host(host) == printed
    made = listening.bind(host, 0)
    listening.listen_on(made)
    socket.create_connection((printed.strip("[]"), made[0].getsockname()[1]), 10).close()
    listening.close(made)


def test_a_shared_port_is_claimed_once() -> None:
    port = free_port()
    listening.claim("127.0.0.1", port)
    first = [listening.bind("127.0.0.1", port, shared=True) for _ in range(2)]
    for sockets in first:
        listening.listen_on(sockets)
    for host in ("127.0.0.1", "::", "localhost"):
        with pytest.raises(OSError, match="in use"):
            listening.claim(host, port)
    for sockets in first:
        listening.close(sockets)
    listening.claim("127.0.0.1", port)
