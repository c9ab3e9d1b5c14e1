"""What the parent of several workers shares with each: sockets, the configuration, a pipe that tells that it serves."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
from dataclasses import asdict, dataclass

from bridge.cli.early_signals import WORKER


@dataclass(frozen=True, slots=True)
class WorkerChannel:
    """For one worker. `number` counts from 1, `announces`: it prints the routes; the rest are open file descriptors.

    `config` is the text of the configuration: a replaced worker gets the one in use, even if the file has changed.
    `pulse` is the pipe into which the worker writes while it serves. `silent` is a file with the number of workers of
    this configuration that do not answer.
    """

    number: int
    sockets: list[int]
    config: int
    pulse: int
    silent: int
    announces: bool

    @property
    def descriptors(self) -> list[int]:
        return [*self.sockets, self.config, self.pulse, self.silent]

    def environment(self) -> dict[str, str]:
        """The environment of the worker."""
        return {**os.environ, WORKER: json.dumps(asdict(self))}

    @classmethod
    def received(cls) -> WorkerChannel | None:
        """Return what the parent passed to this process; None in a process that is not a worker."""
        text = os.environ.pop(WORKER, None)
        if not text:
            return None
        handed = cls(**json.loads(text))
        os.set_blocking(handed.pulse, False)
        return handed

    def open_sockets(self) -> list[socket.socket]:
        return [socket.socket(fileno=number) for number in self.sockets]

    def read_config(self) -> str:
        """The text of the configuration; others read the same file, each from its beginning."""
        return os.pread(self.config, os.fstat(self.config).st_size, 0).decode()

    def beat(self) -> bool:
        """Tell the parent that this process serves. Return False if the parent is gone."""
        try:
            with contextlib.suppress(BlockingIOError):  # it has not read yet what is there
                os.write(self.pulse, b"1")
        except BrokenPipeError:
            return False
        return True

    def silent_workers(self) -> int:
        """Return how many workers of this configuration do not answer at the moment."""
        return int(os.pread(self.silent, 20, 0) or b"0")

    def leave(self) -> None:
        """Tell the parent that this process does not serve any more."""
        os.close(self.pulse)


class SilentCount:
    """The number of workers that do not answer, in a file that all of them can read."""

    def __init__(self) -> None:
        self.descriptor = kept("0")
        self._written = 0
        self._closed = False

    def write(self, count: int) -> None:
        if count != self._written and not self._closed:
            # Always as long, so that no reader sees a part of it.
            os.pwrite(self.descriptor, b"%020d" % count, 0)
            self._written = count

    def close(self) -> None:
        self._closed = True
        os.close(self.descriptor)


def kept(text: str) -> int:
    """Return a descriptor from which workers read this text; no other process can."""
    if hasattr(os, "memfd_create"):
        # In memory: the folder of temporary files may be full or gone.
        file = os.memfd_create("dialect-bridge")
        os.write(file, text.encode())
        return file
    with tempfile.TemporaryFile() as temporary:
        temporary.write(text.encode())
        temporary.flush()
        return os.dup(temporary.fileno())
