"""Real child processes: what they say and read, how they end, and that none is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from bridge.jsonrpc import CarrierEnded, RpcConnection, RpcError, RpcNotification, RpcPeer, RpcRequest
from bridge.jsonrpc import process as module
from bridge.jsonrpc.process import ProcessCarrier, short_environment
from bridge.jsonrpc.rpc_messages import InvalidMessage, message_of, parse

from .helpers import conversations

PLAYER = Path(__file__).with_name("player.py")
# An agent that answers each request with its parameters, and exits at the end of its input.
ECHO = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "ask":
        print(json.dumps({"jsonrpc": "2.0", "id": "q", "method": "question", "params": message["params"]}), flush=True)
        answer = json.loads(sys.stdin.readline())
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer["result"]}), flush=True)
    elif "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": message.get("params")}), flush=True)
"""
SLEEPS = "import time\nprint('{}', flush=True)\ntime.sleep(600)\n"
IGNORES = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", {!r}])
print(child.pid, flush=True)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-E", "-c", code]


@asynccontextmanager
async def running(code: str, **settings: Any) -> AsyncIterator[ProcessCarrier]:
    """A child with this program; afterwards nothing of its group is left."""
    settings = {"exit_timeout": 20.0, "kill_timeout": 20.0, "env": short_environment()} | settings
    async with asyncio.timeout(60):
        carrier = await ProcessCarrier.start(python(code), **settings)
        try:
            yield carrier
        finally:
            await carrier.close()
    assert members(carrier.pid) == []


def members(group: int) -> list[int]:
    """The processes of a group that run. Zombies without a parent are nobody's in some containers."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                found.append(int(path.parent.name))
    return found


async def frames_of(carrier: ProcessCarrier) -> list[bytes]:
    """Everything that the process says."""
    frames: list[bytes] = []
    with suppress(CarrierEnded):
        while True:
            frames += await carrier.receive()
    return frames


async def ended(carrier: ProcessCarrier) -> str:
    """Why the process says nothing more."""
    while True:
        try:
            await carrier.receive()
        except CarrierEnded as error:
            return str(error)


# ---------------------------------------------------------------------- conversations


async def echoes(start: Callable[[], Coroutine[Any, Any, ProcessCarrier]]) -> int | None:
    async def question(request: RpcRequest) -> Any:
        return {"answer": request.params}

    carrier = await start()
    async with RpcConnection(carrier, requests={"question": question}) as connection:
        assert await connection.call("echo", {"n": 1}) == {"n": 1}
        assert await connection.call("ask", [2]) == {"answer": [2]}
        text = "é" * 600_000
        assert await connection.call("echo", [text]) == [text]
    return carrier.exit_status


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_conversation_with_a_child(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        status = runner.run(
            echoes(lambda: ProcessCarrier.start(python(ECHO), env=short_environment(), exit_timeout=20))
        )
    assert status == 0


@pytest.mark.parametrize("name", conversations())
async def test_recorded_conversations(name: str, tmp_path: Path) -> None:
    """The agent's lines come byte for byte; the client's are sent as messages, byte for byte."""
    lines = conversations()[name]
    saved = tmp_path / "lines.json"
    saved.write_text(json.dumps([[line.sender, line.frame.decode()] for line in lines]), encoding="utf-8")
    carrier = await ProcessCarrier.start(
        [sys.executable, "-S", "-E", str(PLAYER), str(saved), "agent"], env=short_environment(), exit_timeout=20
    )
    came: list[bytes] = []
    peer = RpcPeer(answers_invalid=False)
    async with asyncio.timeout(60):
        for line in lines:
            if line.sender == "agent":
                if line.frame.strip():
                    while not came:
                        came = await carrier.receive()
                    frame = came.pop(0)
                    assert frame == line.frame.strip()
                    peer.receive(frame)
                continue
            message = message_of(parse(line.frame))
            if isinstance(message, RpcRequest):
                assert peer.request(message.method, message.params) == message.id
            elif isinstance(message, RpcNotification):
                peer.notify(message.method, message.params)
            else:
                assert peer.respond(message.id, message.error or message.result)
            frames = peer.take()
            assert frames == [line.frame]
            await carrier.send(frames)
        await carrier.close()
    assert (carrier.exit_status, carrier.stderr) == (0, "")


async def test_garbage_and_long_lines() -> None:
    code = """
import sys
out = sys.stdout.buffer
out.write(b"Loading plugins...\\r\\n\\n   \\n\\xff\\xfe\\n[1,2]\\nnull\\n")
out.write(b'{"jsonrpc":"2.0","method":"commands","params":["' + b"x" * 600_000 + b'"]}\\r\\n')
out.write(b'{"jsonrpc":"2.0","method":"last"}')
"""
    async with running(code) as carrier:
        frames = await frames_of(carrier)
    assert [frame[:18] for frame in frames[:4]] == [b"Loading plugins...", b"\xff\xfe", b"[1,2]", b"null"]
    methods = []
    for frame in frames:
        with suppress(InvalidMessage):
            message = message_of(parse(frame))
            assert isinstance(message, RpcNotification)
            methods.append(message.method)
    assert methods == ["commands", "last"]


async def test_a_line_beyond_the_limit() -> None:
    async with running("print('{}\\n' + 'x' * 100_000)\n" + SLEEPS, max_frame=1000, exit_timeout=0) as carrier:
        assert await carrier.receive() == [b"{}"]
        assert await ended(carrier) == "a message is longer than the limit of 1000 bytes"


# ---------------------------------------------------------------------- starting


async def test_a_child_has_the_environment_that_it_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {"OPENAI_API_KEY": "sk-secret", "LANG": "C.UTF-8", "USER": "me", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    carrier = await ProcessCarrier.start(["env"], env=short_environment({"MINE": "1", "USER": "you"}), cwd=tmp_path)
    given = dict(frame.decode().split("=", 1) for frame in await frames_of(carrier))
    await carrier.close()
    assert given.keys() <= {"PATH", "HOME", "LANG", "TERM", "USER", "MINE"}
    assert (given["PATH"], given["USER"], given["MINE"]) == (os.environ["PATH"], "you", "1")
    carrier = await ProcessCarrier.start(["pwd", "-P"], env=short_environment(), cwd=tmp_path)
    [folder] = await frames_of(carrier)
    await carrier.close()
    assert os.path.samefile(folder, tmp_path)  # noqa: ASYNC240


async def test_a_child_is_alone() -> None:
    """It leads a session and a group of its own, so no terminal and no Ctrl-C of ours."""
    async with running("import os\nprint(os.getsid(0), os.getpgid(0), os.getpid())") as carrier:
        [frame] = await frames_of(carrier)
    assert {int(number) for number in frame.split()} == {carrier.pid}
    assert os.getsid(0) != carrier.pid


async def test_what_cannot_be_started(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    cases = {
        ("no-such-program", None): "cannot start 'no-such-program': No such file or directory",
        (str(plain), None): "Permission denied",
        (sys.executable, tmp_path / "none"): f"the working directory {str(tmp_path / 'none')!r} is not a folder",
        (sys.executable, plain): "is not a folder",
    }
    for (program, folder), reason in cases.items():
        with pytest.raises(CarrierEnded) as caught:
            await ProcessCarrier.start([program], env=short_environment(), cwd=folder)
        assert reason in str(caught.value)


# ---------------------------------------------------------------------- crashes and last words


@pytest.mark.parametrize(
    ("code", "reason", "status"),
    [
        ("import sys\nsys.exit(3)", "the process exited with status 3", 3),
        ("", "the process exited with status 0", 0),
        ("import os\nos.kill(os.getpid(), 9)", "the process was ended by SIGKILL", -9),
        ("import os\nos.kill(os.getpid(), 40)", "the process was ended by signal 40", -40),
    ],
)
async def test_why_a_process_ended(code: str, reason: str, status: int) -> None:
    async with running(code) as carrier:
        assert await ended(carrier) == reason
        assert await ended(carrier) == reason
        with pytest.raises(CarrierEnded, match=reason):
            await carrier.send([b"x" * 1_000_000])
    assert carrier.exit_status == status


async def test_a_process_that_closes_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_DRAIN", 0.05)
    async with running("import os, time\nos.close(1)\ntime.sleep(600)", exit_timeout=0) as carrier:
        assert await ended(carrier) == "the process closed its input or output"
        assert carrier.exit_status is None


async def test_a_call_fails_when_the_process_crashes() -> None:
    code = "import sys\nsys.stdin.readline()\nprint('Traceback: out of paper', file=sys.stderr)\nsys.exit(3)"
    carrier = await ProcessCarrier.start(python(code), env=short_environment())
    async with asyncio.timeout(60), RpcConnection(carrier) as connection:
        with pytest.raises(CarrierEnded, match="the process exited with status 3"):
            await connection.call("initialize")
        assert str(await connection.wait()) == "the process exited with status 3"
    assert carrier.stderr == "Traceback: out of paper\n"


async def test_the_last_response_is_read_though_the_process_reads_no_more() -> None:
    """It answers and exits, while further messages are on their way to it."""
    code = 'import os\nos.read(0, 100)\nos.close(0)\nos.write(1, b\'{"jsonrpc":"2.0","id":0,"result":7}\\n\')'
    carrier = await ProcessCarrier.start(python(code), env=short_environment())
    async with asyncio.timeout(60), RpcConnection(carrier) as connection:
        call = asyncio.create_task(connection.call("first"))
        await asyncio.sleep(0)
        with suppress(CarrierEnded):
            for _ in range(10):
                await connection.notify("more", ["x" * 100_000])
        assert await call == 7


async def test_standard_error_is_read_and_its_end_kept() -> None:
    code = "import sys\nfor n in range(100_000): print('line', n, 'x' * 50, file=sys.stderr)\nprint('{}')"
    async with running(code, stderr_bytes=1000) as carrier:
        assert await frames_of(carrier) == [b"{}"]
        while "99999" not in carrier.stderr:
            await asyncio.sleep(0)
        assert 900 < len(carrier.stderr) <= 1000
        assert len(carrier._pipes._errors) <= 2000 + 65_536 * 4
        assert all(line.startswith("line ") for line in carrier.stderr.splitlines())


async def test_short_last_words_are_whole() -> None:
    async with running("import sys\nsys.stderr.buffer.write(b'caf\\xc3\\xa9 \\xff')") as carrier:
        await frames_of(carrier)
        while not carrier.stderr:
            await asyncio.sleep(0)
    assert carrier.stderr == "café \ufffd"


# ---------------------------------------------------------------------- slow sides


async def test_all_output_of_an_exited_process_is_read_however_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_DRAIN", 0.05)
    async with running("for n in range(20_000): print(n, 'x' * 100)") as carrier:
        frames: list[bytes] = []
        with suppress(CarrierEnded):
            while True:
                frames += await carrier.receive()
                await asyncio.sleep(0.06 if len(frames) < 4000 else 0)
    assert [int(frame.split()[0]) for frame in frames] == list(range(20_000))


async def test_who_reads_slowly_holds_little() -> None:
    code = "import sys\ntry:\n    while True: print('x' * 1000)\nexcept BrokenPipeError: pass"
    async with running(code, exit_timeout=0) as carrier:
        while len(carrier._pipes._output) <= module._AHEAD:
            await asyncio.sleep(0)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert len(carrier._pipes._output) < 2 * module._AHEAD + 65_536 * 4
        for _ in range(20):
            assert await carrier.receive()


async def test_a_child_that_reads_nothing_makes_the_sender_wait() -> None:
    async with running(SLEEPS, exit_timeout=0) as carrier:
        sending = asyncio.create_task(carrier.send([b"x" * 2_000_000]))
        await carrier.receive()
        assert not sending.done()
        os.killpg(carrier.pid, signal.SIGKILL)
        with pytest.raises(CarrierEnded, match="the process was ended by SIGKILL"):
            await sending


# ---------------------------------------------------------------------- the end


async def test_the_end_of_its_input_is_enough_for_most() -> None:
    async with running("import sys\nsys.stdin.read()\nsys.exit(4)") as carrier:
        await carrier.close()
        assert carrier.exit_status == 4
        await carrier.close()


async def test_output_at_the_end_blocks_nobody() -> None:
    async with running("import sys\nsys.stdin.read()\nprint('x' * 5_000_000)\nsys.exit(5)") as carrier:
        await carrier.close()
        assert carrier.exit_status == 5


@pytest.mark.parametrize(
    ("code", "status", "kill_timeout"), [(SLEEPS, -signal.SIGTERM, 20), (IGNORES + SLEEPS, -signal.SIGKILL, 0.05)]
)
async def test_others_are_ended_by_signals(code: str, status: int, kill_timeout: float) -> None:
    async with running(code, exit_timeout=0.05, kill_timeout=kill_timeout) as carrier:
        await carrier.receive()
        await carrier.close()
        assert carrier.exit_status == status


@pytest.mark.parametrize(
    "code",
    [
        CHILD.format(SLEEPS) + "sys.stdin.read()",  # exits by itself, and leaves a child that holds its output
        CHILD.format(IGNORES + SLEEPS) + "sys.stdin.read()",
        CHILD.format(IGNORES + SLEEPS) + "child.wait()",
        CHILD.format(SLEEPS) + "raise SystemExit(3)",
    ],
)
async def test_children_of_the_child_end_with_it(code: str) -> None:
    async with running(code, exit_timeout=1, kill_timeout=0.2) as carrier:
        frames = await carrier.receive()
        while len(frames) < 2:
            frames += await carrier.receive()
        child = int(next(frame for frame in frames if frame != b"{}"))
        assert child in members(carrier.pid)
        await carrier.close()
        assert members(carrier.pid) == []


async def test_a_child_of_a_crashed_child_holds_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_DRAIN", 0.05)
    async with running(CHILD.format(SLEEPS) + "raise SystemExit(3)") as carrier:
        assert await ended(carrier) == "the process exited with status 3"


async def test_closing_goes_on_when_its_caller_is_cancelled() -> None:
    async with running(SLEEPS, exit_timeout=0.05) as carrier:
        await carrier.receive()
        closing = asyncio.create_task(carrier.close())
        await asyncio.sleep(0)
        closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing
        await carrier._pipes.exited.wait()
        assert carrier.exit_status == -signal.SIGTERM


def test_a_loop_that_ends_in_the_middle_leaves_nobody() -> None:
    async def main() -> ProcessCarrier:
        carrier = await ProcessCarrier.start(python(IGNORES + SLEEPS), env=short_environment(), exit_timeout=600)
        await carrier.receive()
        task = asyncio.create_task(carrier.close())
        await asyncio.sleep(0)
        assert not task.done()
        return carrier

    carrier = asyncio.run(main())
    assert carrier.exit_status == -signal.SIGKILL
    assert members(carrier.pid) == []


async def test_closing_a_connection_ends_its_process() -> None:
    carrier = await ProcessCarrier.start(python(SLEEPS), env=short_environment(), exit_timeout=0.05, kill_timeout=20)
    async with asyncio.timeout(60), RpcConnection(carrier) as connection:
        call = asyncio.create_task(connection.call("never"))
        await asyncio.sleep(0)
    with pytest.raises((CarrierEnded, RpcError)):
        await call
    assert carrier.exit_status == -signal.SIGTERM
    assert members(carrier.pid) == []
