"""Coding agents for the command line, unchanged, with an agent behind the bridge as a tool, over both carriers.

The model behind the coding agent is scripted. The tool is an agent of AgentScope's protocol, so that the whole way is
tried: coding agent, model, tool, bridge, agent, and back.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge import Event, Request, ToolCall, ToolResult
from bridge.model import result_text
from tests.docs.helpers import ROOT, Server, serve
from tests.interop.conftest import node_client
from tests.interop.test_agentscope import agent  # noqa: F401
from tests.interop.test_coding_agents import FOLDER, QUESTION, claude, codex, opencode, said_by
from tests.server.harness import serving

SETUPS = {"claude": claude, "codex": codex, "opencode": opencode}
ASKED = "hello from the coding agent"
WAITING = {"MCP_CONNECTION_NONBLOCKING": "0", "MCP_CONNECT_TIMEOUT_MS": "60000", "MCP_TIMEOUT": "60000"}
"""Claude Code does not wait long for a program that starts slowly, as on a busy machine."""


async def model(request: Request) -> AsyncIterator[Event | str | ToolCall]:
    """Ask the agent, if its tool is offered; then repeat what it said."""
    results = [part for part in request.messages[-1].parts if isinstance(part, ToolResult)]
    tool = next((tool.name for tool in request.tools or [] if tool.name.endswith("ask_agent")), None)
    if results:
        yield f"It said: {result_text(results[-1].parts)}"
    elif tool is None:
        yield "Words"
    else:
        yield ToolCall("call_1", tool, json.dumps({"prompt": ASKED}))


def connected(name: str, home: Path, arguments: list[str], server: dict[str, Any]) -> list[str]:
    """Add an MCP server to the configuration of a coding agent; return its arguments."""
    if name == "claude":
        path = home / "mcp.json"
        kind = {"type": "http", **server} if "url" in server else server
        path.write_text(json.dumps({"mcpServers": {"agent": kind}}))
        at = arguments.index("Bash")
        return [*arguments[:at], "mcp__agent__ask_agent", "--mcp-config", str(path), *arguments[at + 1 :]]
    if name == "codex":
        lines = [f"{key} = {json.dumps(value)}" for key, value in server.items()]
        with (home / "config.toml").open("a") as file:
            file.write("\n".join(["", "[mcp_servers.agent]", "required = true", *lines, ""]))
        return arguments
    path = home / "opencode.json"
    found = json.loads(path.read_text())
    kind = {"type": "remote", **server}
    if "command" in server:
        kind = {"type": "local", "command": [server["command"], *server["args"]]}
    path.write_text(json.dumps({**found, "mcp": {"agent": kind}}))
    return arguments


@pytest.mark.interop_all
@pytest.mark.parametrize("carrier", ["http", "stdio"])
@pytest.mark.parametrize("name", SETUPS)
async def test_a_coding_agent_asks_an_agent(name: str, carrier: str, tmp_path: Path) -> None:
    node_client(FOLDER, name)
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    dialect = "anthropic-messages" if name == "claude" else "openai-responses"
    demo = {
        "backends": {"demo": {"dialect": "demo"}},
        "routes": [{"dialect": "agentscope", "path": "/agent", "backend": "demo"}],
    }
    async with serving(demo) as scope:
        tools = {
            "backends": {"agent": {"dialect": "agentscope", "url": f"{scope}/agent"}},
            "routes": [{"dialect": "mcp", "path": "/mcp", "backend": "agent", "options": {"description": "Asks it."}}],
            "stores": {"history": f"sqlite:///{home}/history.db", "runs": f"sqlite:///{home}/runs.db"},
        }
        (home / "tools.yaml").write_text(yaml.safe_dump(tools))
        config = {
            **tools,
            "backends": {**tools["backends"], "llm": {"dialect": "python", "target": f"{__name__}:model"}},
            "routes": [*tools["routes"], {"dialect": dialect, "path": "/v1", "backend": "llm"}],
        }
        async with serving(config) as base:
            arguments, variables = SETUPS[name](home, base)
            server: dict[str, Any] = {"url": f"{base}/mcp"}
            if carrier == "stdio":
                server = {"command": sys.executable, "args": ["-m", "bridge", "mcp", str(home / "tools.yaml")]}
            arguments = connected(name, home, arguments, server)
            assert QUESTION in arguments
            variables |= {"ENABLE_TOOL_SEARCH": "0", "PYTHONPATH": str(Path(__file__).parents[2]), **WAITING}
            command = [str(FOLDER / "node_modules" / ".bin" / name), *arguments]
            out = await said_by(command, work, HOME=str(home), KEY="x", **variables)
    assert f"You said: {ASKED}" in out
    assert "conversation: " in out


@pytest.mark.interop_all
async def test_an_agentscope_agent_in_claude_code(tmp_path: Path, agent: Server) -> None:  # noqa: F811
    """As the cookbook has it: one command adds the tool, whose agent is one of the AgentScope runtime."""
    node_client(FOLDER, "claude")
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    program = str(FOLDER / "node_modules" / ".bin" / "claude")
    llm = {
        "backends": {"llm": {"dialect": "python", "target": f"{__name__}:model"}},
        "routes": [{"dialect": "anthropic-messages", "path": "/v1", "backend": "llm"}],
        "stores": {"history": "off"},
    }
    recipe = ROOT / "examples" / "configs" / "mcp.yaml"
    with serve(tmp_path, recipe, AGENTSCOPE_URL=agent.url) as tools:
        async with serving(llm) as base:
            arguments, variables = claude(home, base)
            variables |= {"ENABLE_TOOL_SEARCH": "0", "HOME": str(home), **WAITING}
            add = [program, "mcp", "add", "--transport", "http", "agent", f"{tools.url}/mcp"]
            await said_by(add, work, **variables)
            at = arguments.index("Bash")
            asks = [program, *arguments[:at], "mcp__agent__ask_agent", *arguments[at + 1 :]]
            out = await said_by(asks, work, **variables)
    assert f"You said: {ASKED}" in out
    assert "\u4f60\u597d" in out, "the words of the AgentScope agent"
