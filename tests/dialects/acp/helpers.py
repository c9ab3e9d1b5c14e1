"""An editor for these tests: it speaks JSON-RPC over pipes, and keeps what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from bridge.cli.acp import AcpCommand
from bridge.engine.config import parse
from bridge.jsonrpc import RpcConnection, RpcError, RpcNotification, RpcRequest
from bridge.jsonrpc.stdio import StdioCarrier
from bridge.server.sessions import SessionConnection
from tests.dialects.acp import agents
from tests.jsonrpc.helpers import joined_carriers

Update = dict[str, Any]
TARGET = "tests.dialects.acp.agents:agent"
ALL = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True, "elicitation": {"form": {}}}


_others: set[psutil.Process] = set()
"""Processes that earlier tests have left running in this one, such as fork servers."""


@pytest.fixture
def known_others() -> None:
    """Of what runs already, `processes` gives nothing."""
    _others.clear()
    _others.update(psutil.Process().children(recursive=True))


def processes() -> list[psutil.Process]:
    """The living processes that a test has started here, and theirs."""
    found = psutil.Process().children(recursive=True)
    return [each for each in found if each not in _others and each.status() != psutil.STATUS_ZOMBIE]


def configuration(folder: Path | None, **route: Any) -> dict[str, Any]:
    """A route to the agent of these tests; its sessions are stored in this folder, if there is one."""
    history = "off" if folder is None else f"sqlite:///{folder}/history.db"
    return {
        "backends": {"it": {"dialect": "python", "target": TARGET}},
        "routes": [{"dialect": "acp", "path": "/acp", "backend": "it", **route}],
        "stores": {"history": history},
    }


class Editor:
    """A client. `answers` makes the results of the agent's requests; `asked` are those that came."""

    def __init__(self, carrier: Any) -> None:
        self.updates: list[Update] = []
        self.asked: list[tuple[str, Any]] = []
        self.withdrawn: list[Any] = []
        self.answers: Callable[[str, Any], Any] = allow
        methods = ("session/request_permission", "elicitation/create")
        self.connection = RpcConnection(
            carrier,
            requests=dict.fromkeys(methods, self._asked),
            notifications={"session/update": self._updated, "$/cancel_request": self._withdrawn},
        )

    async def _updated(self, note: RpcNotification) -> None:
        self.updates.append(note.params)

    async def _withdrawn(self, note: RpcNotification) -> None:
        self.withdrawn.append(note.params["requestId"])

    async def _asked(self, request: RpcRequest) -> Any:
        self.asked.append((request.method, request.params))
        answer = self.answers(request.method, request.params)
        return await answer if asyncio.iscoroutine(answer) else answer

    async def call(self, method: str, params: Any = None) -> Any:
        return await self.connection.call(method, params, timeout=20)

    async def error(self, method: str, params: Any = None) -> RpcError:
        with pytest.raises(RpcError) as caught:
            await self.call(method, params)
        return caught.value

    async def greet(self, **capabilities: Any) -> Any:
        return await self.call("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities})

    async def new(self, cwd: str = "/home/user/project") -> str:
        created = await self.call("session/new", {"cwd": cwd, "mcpServers": []})
        return str(created["sessionId"])

    async def prompt(self, session: str, *texts: str | dict[str, Any]) -> Any:
        """The result of a prompt; `updates` holds those of this prompt afterwards."""
        self.updates.clear()
        return await self.call("session/prompt", prompt_of(session, *texts))

    def said(self, kind: str = "agent_message_chunk") -> str:
        return "".join(u["content"]["text"] for u in self.told() if u["sessionUpdate"] == kind)

    def told(self) -> list[Update]:
        return [params["update"] for params in self.updates]

    def calls(self) -> list[Update]:
        return [u for u in self.told() if u["sessionUpdate"] in ("tool_call", "tool_call_update")]


def prompt_of(session: str, *texts: str | dict[str, Any]) -> dict[str, Any]:
    blocks = [{"type": "text", "text": text} if isinstance(text, str) else text for text in texts]
    return {"sessionId": session, "prompt": blocks}


def allow(method: str, params: Any) -> Any:
    """Choose the first option that allows once."""
    option = next(o for o in params["options"] if o["kind"] == "allow_once")
    return chosen(option["optionId"])


def reject(method: str, params: Any) -> Any:
    return chosen(next(o for o in params["options"] if o["kind"].startswith("reject"))["optionId"])


def chosen(option: str) -> Any:
    return {"outcome": {"outcome": "selected", "optionId": option}}


@contextlib.asynccontextmanager
async def served(config: dict[str, Any], carrier: StdioCarrier) -> AsyncIterator[None]:
    """The route of a configuration, served over a carrier as the command does it."""
    parsed = parse(config)
    command = AcpCommand(parsed, parsed.routes[0])
    connection = SessionConnection(command)
    task = asyncio.create_task(connection.serve(carrier))
    try:
        yield
    finally:
        await connection.close()
        await task
        await command.close()


@contextlib.asynccontextmanager
async def editing(
    folder: Path | None = None, config: dict[str, Any] | None = None, **caps: Any
) -> AsyncIterator[Editor]:
    """An editor that has greeted, in front of the agent."""
    with joined_carriers() as (ours, theirs):
        async with served(config or configuration(folder), theirs):
            editor = Editor(ours)
            async with editor.connection:
                await editor.greet(**caps)
                yield editor


@contextlib.asynccontextmanager
async def raw(folder: Path | None = None) -> AsyncIterator[tuple[StdioCarrier, Callable[[], Any]]]:
    """A carrier on which anything can be sent, and a function that reads the next message."""
    with joined_carriers() as (ours, theirs):
        async with served(configuration(folder), theirs):
            waiting: list[bytes] = []

            async def read() -> Any:
                while not waiting:
                    waiting.extend(await asyncio.wait_for(ours.receive(), 20))
                return json.loads(waiting.pop(0))

            yield ours, read


@pytest.fixture(autouse=True)
def forgotten() -> None:
    agents.SEEN.clear()
    agents.GATE.clear()
