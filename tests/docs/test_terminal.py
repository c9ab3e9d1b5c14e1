"""What the commands tell on a real (pseudo) terminal while something takes long, and never anywhere else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import re
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator

import pytest

from bridge.testing import Exchange, fake_backend
from tests.docs.helpers import COMMAND, ROOT, environment

pytestmark = pytest.mark.slow

WAITING = re.compile(r"\[waiting, \d+ s\]")
DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n'
RUN = b'data: {"type":"RUN_STARTED","threadId":"t","runId":"r"}\n\n'
CALL = (
    b'data: {"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"look"}\n\n'
    b'data: {"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"{}"}\n\n'
    b'data: {"type":"TOOL_CALL_END","toolCallId":"c"}\n\n'
)
HELLO = (
    b'data: {"type":"TEXT_MESSAGE_CHUNK","messageId":"m","role":"assistant","delta":"Hel"}\n\n'
    b'data: {"type":"TEXT_MESSAGE_CHUNK","messageId":"m","delta":"lo"}\n\n'
    b'data: {"type":"RUN_FINISHED","threadId":"t","runId":"r"}\n\n'
)
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class Terminal:
    """The side of a pseudo terminal on which people sit: `slave` is given to the command."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.text = ""

    async def until(self, pattern: re.Pattern[str] | str) -> str:
        """Reads until the pattern stands on it; everything that came so far."""
        while not re.search(pattern, self.text):
            piece = await asyncio.to_thread(os.read, self.master, 65536)
            self.text += piece.decode()
        return self.text

    async def rest(self) -> str:
        """What came until the command let go of it, which Linux tells by an error."""
        with contextlib.suppress(OSError):
            while piece := await asyncio.to_thread(os.read, self.master, 65536):
                self.text += piece.decode()
        return self.text

    @property
    def screen(self) -> list[str]:
        """The lines as they are to be seen in the end: whatever was erased is gone."""
        return [line.rpartition("\x1b[K")[2] for line in self.text.replace("\r\n", "\n").split("\n")]


@contextlib.asynccontextmanager
async def command(
    *args: str, stdin: int | None = DEVNULL, stdout: bool = False, term: str = "xterm"
) -> AsyncIterator[tuple[Process, Terminal]]:
    """The command with stderr, and if asked for stdout, on a terminal."""
    terminal = Terminal()
    process = await asyncio.create_subprocess_exec(
        COMMAND,
        *args,
        stdin=terminal.slave if stdin is None else stdin,
        stdout=terminal.slave if stdout else PIPE,
        stderr=terminal.slave,
        cwd=ROOT,
        env=environment(TERM=term),
    )
    os.close(terminal.slave)
    try:
        yield process, terminal
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(terminal.master)


async def test_chat_tells_how_long_it_waits_before_the_answer_and_between_its_lines() -> None:
    goes_on = asyncio.Event()

    async def slowly(exchange: Exchange) -> None:
        await goes_on.wait()
        await exchange.head()
        await exchange.send(RUN + CALL)
        goes_on.clear()
        await goes_on.wait()
        await exchange.send(HELLO)
        await exchange.end()

    async with fake_backend() as backend:
        backend.plays(slowly)
        args = ("chat", backend.url, "--dialect", "ag-ui", "hi")
        async with command(*args, stdout=True) as (process, terminal):
            await terminal.until(WAITING)
            goes_on.set()
            await terminal.until(r"\[calls look\]")
            await terminal.until(re.compile(r"\[calls look\].*\[waiting, \d+ s\]", re.DOTALL))
            goes_on.set()
            await terminal.rest()
            assert await process.wait() == 0
    shown = [re.sub(r"\x1b\[\d*m", "", line) for line in terminal.screen]
    assert shown == ["[calls look] {}", "Hello", ""]


@contextlib.asynccontextmanager
async def chat_that_waits() -> AsyncIterator[tuple[tuple[str, ...], asyncio.Event]]:
    """The words of a `chat` whose backend is silent until the event is set, and then says Hello."""
    goes_on = asyncio.Event()

    async def slowly(exchange: Exchange) -> None:
        await goes_on.wait()
        await exchange.stream(DELTA % b"Hello", STOP)

    async with fake_backend() as backend:
        backend.plays(slowly)
        yield ("chat", backend.url, "--dialect", "openai-chat", "hi"), goes_on


async def test_chat_says_nothing_of_waiting_where_nobody_looks() -> None:
    """The same silence with stderr in a pipe: the end of it is awaited by way of a second command on a terminal."""
    async with chat_that_waits() as (args, goes_on):
        piped = await asyncio.create_subprocess_exec(
            COMMAND, *args, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, cwd=ROOT, env=environment()
        )
        async with command(*args) as (_, terminal):
            await terminal.until(r"waiting, [2-9] s")
            goes_on.set()
            out, err = await piped.communicate()
    assert (out, err, piped.returncode) == (b"Hello\n", b"", 0)


async def test_translate_writes_a_stream_while_it_comes_and_tells_how_far_it_is() -> None:
    args = ("translate", "--from", "openai-chat", "--to", "openai-chat")
    async with command(*args, stdin=PIPE) as (process, terminal):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(DELTA % b"Hello")
        first = await process.stdout.readuntil(b"Hello")
        reading = asyncio.create_task(process.stdout.read())
        telling = asyncio.create_task(terminal.until(r"\[\d+(\.\d)? [kM]B translated\]"))
        while not telling.done():
            process.stdin.write(DELTA % (b"x" * 1000))
            await process.stdin.drain()
        process.stdin.write(STOP)
        process.stdin.write_eof()
        written = first + await reading
        assert written.count(b"Hello") == 1
        assert written.endswith(b"data: [DONE]\n\n")
        await terminal.rest()
        assert await process.wait() == 0
    assert terminal.screen == [""]


async def test_explain_tells_how_far_it_is() -> None:
    args = ("translate", "--from", "openai-chat", "--to", "agentscope", "--explain")
    async with command(*args, stdin=PIPE) as (process, terminal):
        assert process.stdout is not None
        reading = asyncio.create_task(process.communicate(DELTA % b"x" * 16_000 + STOP))
        await terminal.until(r"\[\d+(\.\d)? [kM]B of \d+(\.\d)? [kM]B explained\]")
        out, _ = await reading
        assert out.endswith(b"lost: nothing\n")
        await terminal.rest()
    assert terminal.screen == [""]


async def test_translate_says_that_it_reads_from_the_terminal() -> None:
    async with command("translate", "--from", "openai-chat", "--to", "agentscope", stdin=None) as (process, terminal):
        await terminal.until(r"reading from the terminal; Ctrl-D ends the recording")
        os.write(terminal.master, b"\x04")
        assert process.stdout is not None
        assert b'"status":"failed"' in await process.stdout.read()
        assert await process.wait() == 1


async def test_a_terminal_that_cannot_erase_is_told_nothing() -> None:
    async with (
        chat_that_waits() as (args, goes_on),
        command(*args, term="dumb") as (_, dumb),
        command(*args) as (_, terminal),
    ):
        await terminal.until(r"waiting, [2-9] s")
        goes_on.set()
        assert await dumb.rest() == ""
