"""The official clients of the Agent Client Protocol, unchanged, over standard input and output and over a WebSocket.

Each plays one talk: it chooses a model, the agent thinks, asks for an approval and goes on, fails; the session is
listed and loaded. `acpx`, a client for scripts, answers the approval by its policy.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import ErrorCode, Failure
from bridge.model import Interrupted, Reasoning, ToolCall, ToolResult, UsageReported
from bridge.model.parts import Text
from tests.docs.helpers import environment
from tests.interop.conftest import node_client
from tests.interop.test_frameworks import said_by
from tests.server.harness import fake_backend, serving

pytestmark = pytest.mark.interop

AGENTS = Path(__file__).parent / "agents"
CALL = ToolCall("call_1", "transfer", '{"to": "Bo"}')
TURNS: list[Any] = [
    [Reasoning("Hm."), "42", UsageReported(10, 4, 14)],
    [CALL, Interrupted("call_1", "approval", {"message": "Transfer?"}, "call_1")],
    [ToolResult("call_1", [Text("sent")]), "Done."],
    Failure(ErrorCode.RATE_LIMITED, "Slow down."),
]


def configuration(url: str, folder: Path) -> dict[str, Any]:
    """A route with two models, of which the second one answers."""
    there = {"dialect": "ag-ui", "url": url, "retry": {"attempts": 1}}
    return {
        "backends": {"it": there, "nobody": {**there, "url": "http://127.0.0.1:9"}},
        "routes": [{"dialect": "acp", "path": "/acp", "models": {"small": "nobody", "large": "it"}}],
        "stores": {"history": f"sqlite:///{folder}/history.db"},
    }


@pytest.mark.parametrize("carrier", ["command", "socket"])
@pytest.mark.parametrize("sdk", ["acp_python", "acp_js"])
async def test_a_talk(sdk: str, carrier: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    command: list[str] = request.getfixturevalue(sdk)
    async with fake_backend("ag-ui") as backend:
        backend.turns(*TURNS)
        config = configuration(backend.url, tmp_path)
        if carrier == "socket":
            async with serving(config) as base:
                seen = await said_by([*command, f"{base.replace('http', 'ws')}/acp"])
        else:
            file = tmp_path / "config.yaml"
            file.write_text(json.dumps(config))
            ours = [str(Path(sys.prefix) / "bin" / "dialect-bridge"), "acp", "--config", str(file)]
            seen = await said_by([*command, *ours])
    thinks, pays, fails = seen["turns"]
    assert seen["version"] == 1
    assert seen["models"] == [["small", "large"], "large"]
    assert (thinks["stop"], thinks["total"]) == ("end_turn", 14)
    assert [u["sessionUpdate"] for u in thinks["updates"]] == ["agent_thought_chunk", "agent_message_chunk"]
    assert seen["asked"] == ["transfer"]
    assert pays["stop"] == "end_turn"
    states = [u["status"] for u in pays["updates"] if u["sessionUpdate"].startswith("tool_call")]
    assert states == ["in_progress", "pending", "in_progress", "completed"]
    assert pays["updates"][-1]["content"] == {"type": "text", "text": "Done."}
    assert (fails["error"], fails["updates"]) == (-32603, [])
    assert "Slow down." in fails["message"]
    assert seen["titles"] == ["Think."]
    assert seen["replayed"] == [
        "user_message_chunk", "agent_thought_chunk", "agent_message_chunk",
        "user_message_chunk", "tool_call", "tool_call_update", "agent_message_chunk", "user_message_chunk",
    ]  # fmt: skip


async def test_acpx(tmp_path: Path) -> None:
    node_client(AGENTS, "acpx")
    program = AGENTS / "node_modules" / ".bin" / "acpx"
    async with fake_backend("ag-ui") as backend:
        backend.turns([CALL, Interrupted("call_1", "approval", {"message": "Transfer?"}, "call_1")], ["Done."])
        config = configuration(backend.url, tmp_path)
        file = tmp_path / "config.yaml"
        file.write_text(json.dumps(config))
        agent = shlex.join([str(Path(sys.prefix) / "bin" / "dialect-bridge"), "acp", "--config", str(file)])
        words = ["--approve-all", "--model", "large", "--cwd", str(tmp_path), "--format", "json", "--json-strict"]
        process = await asyncio.create_subprocess_exec(
            str(program), "--agent", agent, *words, "exec", "Pay.", stdout=-1, env=environment(HOME=str(tmp_path))
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
        lines = [json.loads(line) for line in out.splitlines()]
        said = [line["params"]["update"] for line in lines if line.get("method") == "session/update"]
        assert lines[-1]["result"]["stopReason"] == "end_turn"
        assert "Done." in [each["content"]["text"] for each in said if each["sessionUpdate"] == "agent_message_chunk"]
        (answer,) = backend.requests[-1].resume
        assert answer.agrees
