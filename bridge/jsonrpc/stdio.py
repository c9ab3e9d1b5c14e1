"""`StdioCarrier`: this process's standard input and output, for a program that was started to be spoken to.

Standard output then belongs to messages alone: `claim_stdio` moves everything else that is written there, by this
process or its children, to standard error. Call it before anything can print.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import sys
from collections.abc import Callable, Sequence

from bridge.jsonrpc.carrier import CHUNK, CarrierEnded, LineReader, joined
from bridge.jsonrpc.peer import MAX_FRAME


class ClaimedStdio:
    """The file descriptors that were standard input and output; see `claim_stdio`."""

    def __init__(self, input_fd: int, output_fd: int) -> None:
        self.input = input_fd
        self.output = output_fd
        self._blocking = os.get_blocking(input_fd), os.get_blocking(output_fd)

    def close(self) -> None:
        """Close both. Repeating it is harmless."""
        if self.input >= 0:
            # Some event loops make descriptors non-blocking, which other processes share: a shell, for example.
            os.set_blocking(self.input, self._blocking[0])
            os.set_blocking(self.output, self._blocking[1])
            os.close(self.input)
            os.close(self.output)
            self.input = self.output = -1


def claim_stdio() -> ClaimedStdio:
    """Take standard input and output away from everything else in this process, until it exits.

    From then on, `print` and children write to standard error, and reading standard input finds its end. Raises
    `OSError` if one of the two is closed.
    """
    if sys.stdout is not None:
        sys.stdout.flush()
    # Never one of the standard numbers, not even where standard error is closed.
    claimed = ClaimedStdio(*(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1)))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    if nothing > 2:
        os.close(nothing)
    sys.stdout = sys.stderr
    return claimed


class StdioCarrier:
    """Messages over standard input and output, one line each. `close` closes both.

    Pipes, sockets, terminals and files all work. They stay in blocking mode, since other processes may share them:
    reads and writes wait until they are ready, and write no more at a time than a ready pipe takes.
    """

    def __init__(self, stdio: ClaimedStdio, *, max_frame: int = MAX_FRAME) -> None:
        self._stdio = stdio
        self._lines = LineReader(max_frame)
        self._has_ended = False

    async def receive(self) -> list[bytes]:
        frames = self._lines.feed(b"")
        while not frames and not self._has_ended:
            data = await self._read()
            self._has_ended = not data
            frames = self._lines.feed(data) if data else self._lines.close()
        if not frames:
            raise CarrierEnded("the input ended")
        return frames

    async def send(self, frames: Sequence[bytes]) -> None:
        rest = memoryview(joined(frames))
        loop, fd = asyncio.get_running_loop(), self._stdio.output
        while rest:
            await _wait(loop.add_writer, loop.remove_writer, fd, select.POLLOUT)
            for _ in range(CHUNK // select.PIPE_BUF):
                try:
                    rest = rest[os.write(fd, rest[: select.PIPE_BUF]) :]
                except BlockingIOError:
                    break
                except OSError:
                    raise CarrierEnded("the output was closed") from None
                if not rest or not _is_ready(fd, select.POLLOUT):
                    break

    async def close(self) -> None:
        self._stdio.close()

    async def _read(self) -> bytes:
        """Return the next bytes; none at the end."""
        loop, fd = asyncio.get_running_loop(), self._stdio.input
        while True:
            await _wait(loop.add_reader, loop.remove_reader, fd, select.POLLIN)
            try:
                return os.read(fd, CHUNK)
            except BlockingIOError:
                continue
            except OSError:
                return b""  # a terminal or a socket was hung up


def _is_ready(fd: int, event: int) -> bool:
    """Return whether a descriptor can be read, or takes `PIPE_BUF` bytes, without waiting. Files always do."""
    poll = select.poll()
    poll.register(fd, event)
    return bool(poll.poll(0))


async def _wait(add: Callable[..., object], remove: Callable[[int], object], fd: int, event: int) -> None:
    """Wait until a descriptor is ready; let other tasks run in any case."""
    if _is_ready(fd, event):
        await asyncio.sleep(0)
        return
    ready = asyncio.get_running_loop().create_future()
    add(fd, _resolve, ready)
    try:
        await ready
    finally:
        remove(fd)


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
