"""`ProcessCarrier`: a child process that is spoken to over its standard input and output, one line for each message."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

from bridge.jsonrpc.carrier import CarrierEnded, LineReader, joined
from bridge.jsonrpc.peer import MAX_FRAME

_INHERITED = ("PATH", "HOME", "LANG", "TERM", "USER")
_AHEAD = 256 * 1024
"""Bytes that are read before they are asked for."""
_DRAIN = 1.0
"""Seconds that a process's output may stay open after its exit, and the reverse."""
_KILLED = 1.0
"""Seconds that the system has to end killed processes. Some containers leave those without a parent for ever."""
_POLL = 0.02


def short_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment for a child: PATH, HOME, LANG, TERM and USER of this process, and `more`.

    Nothing else of this process's environment is in it, where keys often are.
    """
    return {name: os.environ[name] for name in _INHERITED if name in os.environ} | dict(more or {})


@dataclass(frozen=True, slots=True)
class _Limits:
    """See `ProcessCarrier.start`."""

    max_frame: int
    exit_timeout: float
    kill_timeout: float


class ProcessCarrier:
    """A running child process; `start` creates it.

    The child and the processes that it starts are one group, which `close` ends. It has no terminal, and signals from
    one (Ctrl-C) do not reach it.
    """

    def __init__(self, transport: asyncio.SubprocessTransport, pipes: _Pipes, limits: _Limits) -> None:
        self.pid: int = transport.get_pid()
        self._transport = transport
        self._pipes = pipes
        self._limits = limits
        self._lines = LineReader(limits.max_frame)
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | Path | None = None,
        max_frame: int = MAX_FRAME,
        stderr_bytes: int = 16 * 1024,
        exit_timeout: float = 2.0,
        kill_timeout: float = 2.0,
    ) -> Self:
        """Start a program and return its carrier.

        `command`: the program and its arguments. `env`: the whole environment of the child, see `short_environment`;
        its PATH finds the program. `stderr_bytes`: how much of its standard error is kept. `exit_timeout`,
        `kill_timeout`: seconds that it has to exit after the end of its input, and after SIGTERM. Raises `CarrierEnded`
        if it cannot be started.
        """
        try:
            transport, pipes = await asyncio.get_running_loop().subprocess_exec(
                lambda: _Pipes(stderr_bytes), *command, env=dict(env), cwd=cwd, start_new_session=True
            )
        except OSError as error:
            raise CarrierEnded(_not_started(command[0], cwd, error)) from None
        return cls(transport, pipes, _Limits(max_frame, exit_timeout, kill_timeout))

    @property
    def exit_status(self) -> int | None:
        """The exit status, negative for the number of a signal; None while the process runs."""
        return self._transport.get_returncode()

    @property
    def stderr(self) -> str:
        """The last lines of the process's standard error. They may contain anything, keys included."""
        return self._pipes.last_errors()

    # ------------------------------------------------------------------ frames

    async def receive(self) -> list[bytes]:
        pipes = self._pipes
        while True:
            frames = self._lines.feed(pipes.read())
            if frames:
                return frames
            if pipes.has_ended:
                break
            await pipes.wait_for_output()
        frames = self._lines.close()
        self._lines = LineReader()
        if not frames:
            raise CarrierEnded(await self._why())
        return frames

    async def send(self, frames: Sequence[bytes]) -> None:
        stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        if not stdin.is_closing():
            stdin.write(joined(frames))
            await self._pipes.is_writable.wait()
        if stdin.is_closing():
            raise CarrierEnded(await self._why())

    async def _why(self) -> str:
        """Return why the process says nothing more, or reads nothing more."""
        await _within(_DRAIN, self._pipes.exited.wait())
        status = self.exit_status
        if status is None:
            return "the process closed its input or output"
        if status < 0:
            return f"the process was ended by {_signal_name(-status)}"
        return f"the process exited with status {status}"

    # ------------------------------------------------------------------ the end

    async def close(self) -> None:
        """Close the process's input; after `exit_timeout` send SIGTERM, after `kill_timeout` SIGKILL, to the group.

        When the process exits earlier, what is left of its group is ended in the same way. The rest of its output is
        discarded. A caller that is cancelled does not interrupt this.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._end())
        await asyncio.shield(self._closing)

    async def _end(self) -> None:
        self._pipes.discard()
        if (stdin := self._transport.get_pipe_transport(0)) is not None:
            stdin.close()
        try:
            await _within(self._limits.exit_timeout, self._pipes.exited.wait())
            if self._pipes.signal_group(signal.SIGTERM):
                await _within(self._limits.kill_timeout, self._wait_for_group())
        finally:
            if self._pipes.signal_group(signal.SIGKILL):
                await _within(_KILLED, self._wait_for_group())
            self._transport.close()
            await _within(_KILLED, self._pipes.closed.wait())

    async def _wait_for_group(self) -> None:
        """Wait until no process of the group is left, which has to be polled: only the end of a child is reported."""
        await self._pipes.exited.wait()
        while self._pipes.signal_group(0):  # noqa: ASYNC110
            await asyncio.sleep(_POLL)


async def _within(seconds: float, work: Coroutine[Any, Any, object]) -> None:
    """Wait for something, but no longer than so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _not_started(program: str, cwd: str | Path | None, error: OSError) -> str:
    # The error is the same for a program and for a folder that does not exist.
    if cwd is not None and not Path(cwd).is_dir():
        return f"cannot start {program!r}: the working directory {str(cwd)!r} is not a folder"
    return f"cannot start {program!r}: {error.strerror}"


class _Pipes(asyncio.SubprocessProtocol):
    """The three pipes of a process, as asyncio fills and empties them."""

    def __init__(self, stderr_bytes: int) -> None:
        self.exited = asyncio.Event()
        self.closed = asyncio.Event()
        self.is_writable = asyncio.Event()
        self.is_writable.set()
        self.has_ended = False
        self._news = asyncio.Event()
        self._output = bytearray()
        self._errors = bytearray()
        self._stderr_bytes = stderr_bytes
        self._cut = False
        self._discards = False
        self._transport: asyncio.SubprocessTransport | None = None
        self._has_group = True

    # ------------------------------------------------------------------ for the carrier

    def read(self) -> bytes:
        """Return the output that has come since the last call."""
        data = bytes(self._output)
        self._output.clear()
        if len(data) > _AHEAD:
            self._stdout().resume_reading()
        return data

    async def wait_for_output(self) -> None:
        self._news.clear()
        try:
            # After the process's exit another one may hold the output open for ever.
            async with asyncio.timeout(_DRAIN if self.exited.is_set() else None):
                await self._news.wait()
        except TimeoutError:
            await asyncio.sleep(0)  # a loop that was late looks at its timers before its pipes
            self.has_ended = self.has_ended or not self._news.is_set()

    def discard(self) -> None:
        """Read on and keep nothing, so that the process can write what it still has, and exit."""
        self._discards = True
        self._output.clear()
        self._stdout().resume_reading()

    def last_errors(self) -> str:
        kept = bytes(self._errors[-self._stderr_bytes :])
        if self._cut or len(self._errors) > len(kept):
            kept = kept.partition(b"\n")[2] or kept
        return kept.decode("utf-8", "replace")

    def signal_group(self, number: int) -> bool:
        """Send a signal to each process of the child's group; 0 only looks. Return whether there is one."""
        assert self._transport is not None
        try:
            if self._has_group:
                os.killpg(self._transport.get_pid(), number)
        except (ProcessLookupError, PermissionError):
            self._has_group = False  # for ever: the number may be that of another group later
        return self._has_group

    # ------------------------------------------------------------------ for asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)  # that of uvloop is no subclass

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._errors += data
            if len(self._errors) > 2 * self._stderr_bytes:
                del self._errors[: -self._stderr_bytes]
                self._cut = True
        elif not self._discards:
            self._output += data
            if len(self._output) > _AHEAD:
                self._stdout().pause_reading()
            self._news.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 0:
            self.is_writable.set()
        elif fd == 1:
            self.has_ended = True
            self._news.set()

    def pause_writing(self) -> None:
        self.is_writable.clear()

    def resume_writing(self) -> None:
        self.is_writable.set()

    def process_exited(self) -> None:
        self.exited.set()
        self.signal_group(0)
        self.is_writable.set()
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    # ------------------------------------------------------------------ inside

    def _stdout(self) -> asyncio.ReadTransport:
        assert self._transport is not None
        return cast(asyncio.ReadTransport, self._transport.get_pipe_transport(1))
