"""`dialect-bridge acp` as a process, as an editor starts it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bridge.cli import acp as command
from bridge.engine.config import parse
from bridge.errors import ConfigError
from bridge.jsonrpc.process import ProcessCarrier, short_environment
from tests.dialects.acp.helpers import Editor, configuration

ROOT = Path(__file__).parents[3]
AGENT = """
print("a banner")
async def agent(request):
    print("noise")
    yield f"{len(request.messages)}: {request.messages[-1].parts[0].text}"
"""


def written(folder: Path, **route: Any) -> Path:
    """A configuration file and the module of its agent, in a folder of their own."""
    folder.mkdir()
    (folder / "own_agent.py").write_text(AGENT)
    config = configuration(None, **route)
    config["backends"]["it"]["target"] = "own_agent:agent"
    del config["stores"]
    (folder / "config.yaml").write_text(json.dumps(config))
    return folder / "config.yaml"


@contextlib.asynccontextmanager
async def started(config: Path, cwd: Path, *more: str) -> AsyncIterator[Editor]:
    words = [sys.executable, "-m", "bridge", "acp", "--config", str(config), *more]
    carrier = await ProcessCarrier.start(words, env=short_environment({"PYTHONPATH": str(ROOT)}), cwd=str(cwd))
    editor = Editor(carrier)
    async with editor.connection:
        yield editor


async def test_a_conversation_over_two_processes(tmp_path: Path) -> None:
    config, project = written(tmp_path / "config"), tmp_path / "project"
    project.mkdir()
    async with started(config, project, "--route", "/acp") as editor:
        await editor.greet()
        session = await editor.new(str(project))
        assert (await editor.prompt(session, "hello"))["stopReason"] == "end_turn"
        assert editor.said() == "1: hello"
        carrier = editor.connection.carrier
        assert isinstance(carrier, ProcessCarrier)
    assert carrier.exit_status == 0
    log = carrier.stderr
    assert "a banner" in log
    assert "noise" in log
    assert " INFO run " in log
    async with started(config, project) as editor:
        await editor.greet()
        await editor.call("session/load", {"sessionId": session, "cwd": str(project), "mcpServers": []})
        assert (editor.said("user_message_chunk"), editor.said()) == ("hello", "1: hello")
        await editor.prompt(session, "again")
        assert editor.said() == "3: again"
    # What is stored is beside the configuration, and nothing in the project.
    assert list(project.iterdir()) == []
    assert (config.parent / "data").is_dir()


async def test_a_signal_ends_the_command(tmp_path: Path) -> None:
    config = written(tmp_path / "config")
    async with started(config, tmp_path) as editor:
        await editor.greet()
        carrier = editor.connection.carrier
        assert isinstance(carrier, ProcessCarrier)
        os.kill(carrier.pid, signal.SIGTERM)
        await asyncio.wait_for(editor.connection.wait(), 20)
    assert carrier.exit_status == 0


@pytest.mark.parametrize(
    ("routes", "path", "said"),
    [
        ([("acp", "/acp")], "/other", "no route at '/other'; there are: /acp (acp)"),
        ([("openai-chat", "/v1")], None, "0 routes can be served to an editor; add one with `dialect: acp`"),
        ([("openai-chat", "/v1")], "/v1", "the route at /v1 has the dialect openai-chat; expected `dialect: acp`"),
        ([("acp", "/a"), ("acp", "/b")], None, "2 routes can be served to an editor; name one with --route"),
    ],
)
def test_a_route_that_cannot_be_served(routes: list[tuple[str, str]], path: str | None, said: str) -> None:
    rows = [{"dialect": dialect, "path": where, "backend": "it"} for dialect, where in routes]
    config = parse({**configuration(None), "routes": rows})
    with pytest.raises(ConfigError) as caught:
        command._section(config, path)
    assert said in caught.value.message


@pytest.mark.parametrize("path", [None, "/b/"])
def test_the_route_that_is_served(path: str | None) -> None:
    rows = [
        {"dialect": "openai-chat", "path": "/v1", "backend": "it"},
        {"dialect": "acp", "path": "/b", "backend": "it"},
    ]
    assert command._section(parse({**configuration(None), "routes": rows}), path).mount == "/b"
