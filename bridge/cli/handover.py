"""What the parent of several workers passes to each: sockets, the configuration, a pipe to signal readiness."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from dataclasses import asdict, dataclass

_VARIABLE = "BRIDGE_WORKER"


@dataclass(frozen=True, slots=True)
class Handover:
    """For one worker. `number` counts from 1, `announces`: it prints the routes; the rest are open file descriptors.

    `config` is the text of the configuration: a replaced worker gets the one in use, even if the file has changed.
    """

    number: int
    sockets: list[int]
    config: int
    ready: int
    announces: bool

    @property
    def descriptors(self) -> list[int]:
        return [*self.sockets, self.config, self.ready]

    def environment(self) -> dict[str, str]:
        """The environment of the worker."""
        return {**os.environ, _VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def received(cls) -> Handover | None:
        """Return what the parent passed to this process; None in a process that is not a worker."""
        text = os.environ.pop(_VARIABLE, None)
        return cls(**json.loads(text)) if text else None

    def open_sockets(self) -> list[socket.socket]:
        return [socket.socket(fileno=number) for number in self.sockets]

    def read_config(self) -> str:
        """The text of the configuration; others read the same file, each from its beginning."""
        return os.pread(self.config, os.fstat(self.config).st_size, 0).decode()

    def say_ready(self) -> None:
        os.write(self.ready, b"1")
        os.close(self.ready)


def kept(text: str) -> int:
    """Return a descriptor from which workers read this text; no other process can."""
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.flush()
        return os.dup(file.fileno())
