"""A program's own standard input and output, of every kind that there is, with nothing but messages on the latter."""

from __future__ import annotations

import asyncio
import os
import pty
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from bridge.jsonrpc import CarrierEnded, RpcConnection, RpcNotification, RpcRequest, RpcResponse
from bridge.jsonrpc.process import ProcessCarrier, short_environment
from bridge.jsonrpc.stdio import StdioCarrier, claim_stdio

from .helpers import joined_carriers

ROOT = Path(__file__).parents[2]
SERVER = [sys.executable, "-m", "tests.jsonrpc.server"]
LOOPS = [[], ["uvloop"]]


def lines(frames: Iterable[bytes]) -> bytes:
    return b"".join(frame + b"\n" for frame in frames)


ASKED = [RpcRequest.of(n, "echo", ["x" * n * 10_000]).encode() for n in range(30)]
LAST = b"ended: the input ended\nat the exit\n"
ANSWERED = {RpcResponse.of(n, ["x" * n * 10_000]).encode() for n in range(30)}


def run(*arguments: str, **settings: Any) -> subprocess.CompletedProcess[bytes]:
    settings = {"stderr": subprocess.PIPE, "timeout": 60} | settings
    return subprocess.run([*SERVER, *arguments], cwd=ROOT, check=False, **settings)


# ---------------------------------------------------------------------- what it may be


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_pipes(loop: list[str]) -> None:
    done = run(*loop, input=lines(ASKED), stdout=subprocess.PIPE)
    assert set(done.stdout.splitlines()) == ANSWERED
    assert (done.returncode, done.stderr) == (0, LAST)


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_files(loop: list[str], tmp_path: Path) -> None:
    asked, answered = tmp_path / "asked", tmp_path / "answered"
    asked.write_bytes(lines(ASKED).removesuffix(b"\n"))
    with asked.open("rb") as stdin, answered.open("wb") as stdout:
        done = run(*loop, stdin=stdin, stdout=stdout)
    assert (done.returncode, done.stderr) == (0, LAST)
    assert set(answered.read_bytes().splitlines()) == ANSWERED


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_nothing_at_all(loop: list[str]) -> None:
    done = run(*loop, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, LAST)


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_a_socket(loop: list[str]) -> None:
    """One for both directions, as Node.js gives it to its children."""
    ours, theirs = socket.socketpair()
    with (
        ours,
        theirs,
        subprocess.Popen([*SERVER, *loop], cwd=ROOT, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL) as child,
    ):
        ours.sendall(lines(ASKED))
        ours.shutdown(socket.SHUT_WR)
        theirs.close()
        answers = ours.makefile("rb").read().splitlines()
        assert child.wait(60) == 0
    assert set(answers) == ANSWERED


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_a_terminal_stays_as_it_was(loop: list[str]) -> None:
    """The shell shares it: a terminal that was left non-blocking breaks what runs next."""
    terminal, inside = pty.openpty()
    try:
        with subprocess.Popen([*SERVER, *loop], cwd=ROOT, stdin=inside, stdout=inside, stderr=subprocess.PIPE) as child:
            os.write(terminal, lines([RpcRequest.of(1, "echo", ["typed"]).encode()]))
            shown = b""
            while b'"result":["typed"]}' not in shown:
                shown += os.read(terminal, 4096)
            os.write(terminal, b"\x04")
            assert child.wait(60) == 0
        assert os.get_blocking(inside)
    finally:
        os.close(terminal)
        os.close(inside)


# ---------------------------------------------------------------------- nothing but messages


@pytest.mark.slow
def test_whatever_else_is_written_goes_to_standard_error() -> None:
    done = run(input=lines([RpcRequest.of(1, "noise").encode()]), stdout=subprocess.PIPE)
    assert done.stdout == b'{"jsonrpc":"2.0","id":1,"result":{"input":""}}\n'
    written = [b"printed", b"printed to the early stream", b"written", b"of a child", *LAST.splitlines()]
    assert sorted(done.stderr.splitlines()) == sorted(written)


@pytest.mark.slow
def test_without_standard_error() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *SERVER],
        cwd=ROOT,
        input=lines([RpcRequest.of(1, "noise").encode()]),
        stdout=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert done.stdout == b'{"jsonrpc":"2.0","id":1,"result":{"input":""}}\n'
    assert done.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_without_standard_input_or_output(closed: str) -> None:
    code = "from bridge.jsonrpc.stdio import claim_stdio\ntry: claim_stdio()\nexcept OSError: raise SystemExit(7)"
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", code]
    assert subprocess.run(command, cwd=ROOT, timeout=60, check=False).returncode == 7


@pytest.mark.slow
def test_a_client_that_does_not_read_any_more() -> None:
    with subprocess.Popen(
        SERVER, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdin
        assert child.stdout
        assert child.stderr
        child.stdin.write(lines([RpcRequest.of(1, "echo").encode()]))
        child.stdin.flush()
        assert child.stdout.readline()
        child.stdout.close()
        child.stdin.write(lines([RpcRequest.of(2, "echo").encode()]))
        child.stdin.flush()
        assert child.stderr.readline() == b"ended: the output was closed\n"
        child.stdin.close()
        assert child.wait(60) == 0


@pytest.mark.slow
async def test_both_ends_are_ours() -> None:
    """A child of ours speaks to us over its standard input and output: the two carriers meet."""
    carrier = await ProcessCarrier.start(
        SERVER, env=short_environment({"PYTHONPATH": str(ROOT)}), cwd=ROOT, exit_timeout=20
    )
    async with asyncio.timeout(60), RpcConnection(carrier) as connection:
        calls = [connection.call("echo", ["x" * n * 1000]) for n in range(100)]
        assert await asyncio.gather(*calls) == [["x" * n * 1000] for n in range(100)]
        assert await connection.call("noise") == {"input": ""}
    assert carrier.exit_status == 0
    assert "of a child" in carrier.stderr


# ---------------------------------------------------------------------- the carrier alone


async def test_frames_in_pieces() -> None:
    """Half a line waits for its other half; carriage returns and blank lines are no part of frames."""
    with joined_carriers() as (one, two):
        data = '{"é":1}\r\n\r\n \n[2]\nlast'.encode()
        frames: list[bytes] = []
        for place in range(len(data)):
            os.write(one._stdio.output, data[place : place + 1])
            if data[place] == 0x0A and data[place - 1] in b"]\r" and data[place - 2 : place] != b"\n\r":
                frames += await two.receive()
        os.close(one._stdio.output)
        one._stdio.output = os.dup(2)
        frames += await two.receive()
        assert frames == ['{"é":1}'.encode(), b"[2]", b"last"]
        for _ in range(2):
            with pytest.raises(CarrierEnded, match="the input ended"):
                await two.receive()


async def test_descriptors_stay_blocking() -> None:
    with joined_carriers() as (one, two):
        ends = [one._stdio.input, one._stdio.output, two._stdio.input, two._stdio.output]
        sending = asyncio.create_task(one.send([b"x" * 200_000]))
        received: list[bytes] = []
        while not received:
            received = await two.receive()
            assert all(os.get_blocking(end) for end in ends)
        await sending
        assert received == [b"x" * 200_000]


async def test_non_blocking_descriptors_work_too() -> None:
    with joined_carriers() as (one, two):
        for end in (one._stdio.output, two._stdio.input):
            os.set_blocking(end, False)
        sending = asyncio.create_task(one.send([RpcNotification.of("m", ["x" * 500_000]).encode()]))
        assert len((await two.receive())[0]) > 500_000
        await sending


def test_claiming_in_this_process(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    given = os.dup(0), os.dup(1)
    stdio = claim_stdio()
    try:
        print("not a message", flush=True)  # noqa: T201
        os.write(stdio.output, b"a message\n")
        assert not os.get_inheritable(stdio.input)
        assert not os.get_inheritable(stdio.output)
    finally:
        for _ in range(2):
            asyncio.run(StdioCarrier(stdio).close())
        for fd, end in enumerate(given):
            os.dup2(end, fd)
            os.close(end)
    assert capfd.readouterr() == ("a message\n", "not a message\n")
