"""How an agent is reached: the program to start, or the URL of its WebSocket."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import ClientSession

from bridge.errors import BackendError, ConfigError, ErrorCode
from bridge.jsonrpc.carrier import Carrier
from bridge.jsonrpc.process import ProcessCarrier, short_environment
from bridge.jsonrpc.websocket import WebSocketCarrier

OWNER = "{owner}"
"""In the folder of a configuration: the name of the owner."""
_NOBODY = "shared"
_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,99}")


@dataclass(frozen=True, slots=True)
class Program:
    """An agent as configured. Its environment is short, and holds nothing of the server's but what is listed."""

    cwd: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    max_frame: int = 64 * 2**20

    @property
    def shown(self) -> str:
        """The agent for the log: its arguments may hold anything."""
        return f"program {self.command!r}" if self.url is None else f"WebSocket {self.url}"

    def folder(self, owner: str) -> str:
        """Return the folder of an owner's sessions, which is created if it is the owner's own."""
        if OWNER not in self.cwd:
            return self.cwd
        folder = self.cwd.replace(OWNER, folder_name(owner))
        if self.url is None:
            Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    async def connect(self, folder: str, http: ClientSession | None) -> Carrier:
        """Start the program, or open the WebSocket. Raises `CarrierEnded`."""
        if self.url is not None:
            assert http is not None
            return await WebSocketCarrier.connect(
                http, self.url, headers=self.headers, max_frame=self.max_frame, heartbeat=30.0
            )
        command = [self.command or "", *self.args]
        return await ProcessCarrier.start(
            command, env=short_environment(self.env), cwd=folder, max_frame=self.max_frame
        )

    def check(self) -> None:
        """Raise `BackendError` if the program is not installed."""
        if (
            self.command is not None
            and shutil.which(self.command, path=short_environment(self.env).get("PATH")) is None
        ):
            raise BackendError(
                "The agent's program is not installed, or not in its PATH.", code=ErrorCode.BACKEND_UNAVAILABLE
            )


def folder_name(owner: str) -> str:
    """Return the name of a folder that is this owner's alone."""
    if not owner:
        return _NOBODY
    if _FOLDER_NAME.fullmatch(owner) and owner != _NOBODY:
        return owner
    return "~" + hashlib.sha256(owner.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def absolute(cwd: str, folder: str | None) -> str:
    """Return the folder of a configuration: a relative one is in the folder of the configuration's file."""
    path = Path(cwd).expanduser()
    if not path.is_absolute():
        if folder is None:
            raise ConfigError(f"expected an absolute path, got {cwd!r}")
        path = Path(folder).absolute() / path
    return str(path)
