"""Ports that tests are given belong to one process at a time."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

from bridge.testing import bound_socket, free_port, sockets

_GIVEN = "from bridge.testing import free_port; print(*[free_port() for _ in range(600)], flush=True); input()"


def test_processes_that_run_beside_each_other_get_other_ports() -> None:
    """600 ports are more than two blocks; the last 249 of each process are what it may still mean to listen on."""
    started = [
        subprocess.Popen([sys.executable, "-c", _GIVEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    try:
        given = []
        for process in started:
            assert process.stdout is not None
            given.append([int(port) for port in process.stdout.readline().split()])
    finally:
        for process in started:
            process.communicate("\n", timeout=20)
    recent = [set(ports[-249:]) for ports in given]
    assert all(len(ports) == 249 for ports in recent)
    assert not any(one & other for one, other in itertools.combinations(recent, 2))


def test_a_process_is_not_given_a_port_again_soon() -> None:
    given = [free_port() for _ in range(240)]
    assert len(set(given)) == 240


def test_a_port_in_use_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a single block, so that its turn comes again."""
    monkeypatch.setattr(sockets, "_FIRST", 32_000)
    monkeypatch.setattr(sockets, "_BLOCKS", 1)
    ports = sockets._ports()
    monkeypatch.setattr(sockets, "_PORTS", ports)
    try:
        with bound_socket() as listening:
            taken = listening.getsockname()[1]
            assert taken not in {free_port() for _ in range(2 * sockets._SIZE)}
        assert taken in {free_port() for _ in range(2 * sockets._SIZE)}
    finally:
        ports.close()


def test_who_finds_every_block_held_goes_on_with_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_FIRST", 32_000)
    monkeypatch.setattr(sockets, "_BLOCKS", 3)
    ports = sockets._ports()
    first = next(ports)
    others = list(iter(lambda: sockets._claim(0), None))
    try:
        assert first in itertools.islice(ports, sockets._SIZE)
        assert next(sockets._ports(), None) is None
    finally:
        ports.close()
        for other in others:
            other.close()
