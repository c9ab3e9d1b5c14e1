"""MCP's own SDKs, unchanged, as clients: Python over both carriers, and those of JavaScript over HTTP.

Each lists tools, calls one with progress, answers its question, continues a conversation, and cancels a call.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dialects.mcp import agent
from tests.dialects.mcp.client import config, until
from tests.interop.conftest import node_client
from tests.interop.test_frameworks import said_by
from tests.server.harness import serving

pytestmark = pytest.mark.interop

HERE = Path(__file__).parent
PYTHON = Path(sys.prefix) / "mcp" / "bin" / "python"


def judge(seen: dict[str, Any]) -> None:
    assert seen["tools"] == ["ask_agent"]
    is_error, text, progress = seen["answer"]
    assert (is_error, text, sorted(progress.split())) == (False, "one two ", ["one", "two"])
    assert seen["asked"] == ["Send the mail?"]
    assert seen["answered"].endswith("answers: [('q-1', 'resolved', {'approved': True})]")
    assert seen["again"] == "again ['user', 'assistant', 'user']"
    assert seen["failed"] == [True, "backend_error"]
    assert seen["media"] == ["text", "image", "audio", "resource", "resource_link", "text"]
    assert "Unknown tool: nope" in seen["unknown"]


async def over_http(folder: Path, *command: str) -> dict[str, Any]:
    """What a client saw, whose last call was cancelled at the agent."""
    agent.ended.clear()
    async with serving(config(folder)) as base:
        seen: dict[str, Any] = await said_by([*command, f"{base}/mcp"])
        await until(lambda: [each for each in agent.ended if each.startswith("slow sdk")])
    judge(seen)
    return seen


@pytest.mark.parametrize(("mode", "revision"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_the_python_sdk_over_http(tmp_path: Path, mode: str, revision: str) -> None:
    seen = await over_http(tmp_path, str(PYTHON), str(HERE / "mcp" / "session.py"), mode)
    assert seen["revision"] == revision


@pytest.mark.parametrize(("mode", "revision"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_the_python_sdk_over_standard_input(tmp_path: Path, mode: str, revision: str) -> None:
    setup = tmp_path / "tools.yaml"
    setup.write_text(yaml.safe_dump(config(tmp_path)))
    serve = [sys.executable, "-m", "bridge", "mcp", str(setup)]
    async with asyncio.timeout(60):
        seen = await said_by([str(PYTHON), str(HERE / "mcp" / "session.py"), mode, *serve])
    judge(seen)
    assert seen["revision"] == revision


@pytest.mark.parametrize("client", [("1",), ("2", "legacy"), ("2", "auto")], ids="-".join)
async def test_the_sdks_for_javascript(tmp_path: Path, client: tuple[str, ...]) -> None:
    folder = HERE / "mcp-js"
    node_client(folder, "the SDK of MCP for JavaScript")
    await over_http(tmp_path, "node", str(folder / "session.mjs"), *client)
