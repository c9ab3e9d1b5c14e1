"""Coding agents for the command line, unchanged: one turn with a tool call each, over backends of four dialects.

The number of requests is bounded, so that an agent that asks again and again fails its test. Each run takes seconds of
CPU time, so CI tries each agent over two backends, and `make interop-all` over the others.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest

from tests.docs.helpers import COMMAND as BRIDGE
from tests.docs.helpers import environment
from tests.interop.conftest import node_client
from tests.pairs.agents import AGENTS, Heard, Say, Step, Use
from tests.server.harness import Exchange, fake_backend, serving

FOLDER = Path(__file__).parent / "agents"
LARGE = Path(__file__).parent / "agents-all"
BACKS = ("openai-chat", "anthropic-messages", "openai-responses", "agentscope")
PATIENCE = 100.0
"""Seconds after which an agent that does not come to its end is ended, so that the test fails instead of hanging."""
MOST_REQUESTS = 6
QUESTION, ANSWER = "What does the command say?", "It says seven and thirty."
COMMAND, SAID = "printf %d 0x25", "37"
"""Gemini CLI runs no command with a substitution in it."""

Setup = Callable[[Path, str], tuple[list[str], dict[str, str]]]
"""Writes an agent's configuration into a folder, for a bridge at this address; its arguments and environment."""


def codex(home: Path, base: str) -> tuple[list[str], dict[str, str]]:
    provider = {"name": '"bridge"', "base_url": f'"{base}/v1"', "env_key": '"KEY"', "wire_api": '"responses"'}
    lines = [f"{name} = {value}" for name, value in provider.items()]
    head = ['model = "m"', 'model_provider = "bridge"', "[model_providers.bridge]", "supports_websockets = true"]
    (home / "config.toml").write_text("\n".join([*head, *lines]))
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return ["exec", *options, QUESTION], {"CODEX_HOME": str(home)}


def claude(home: Path, base: str) -> tuple[list[str], dict[str, str]]:
    variables = {
        "ANTHROPIC_BASE_URL": base,
        "ANTHROPIC_API_KEY": "x",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CONFIG_DIR": str(home),
    }
    return ["-p", QUESTION, "--model", "m", "--allowedTools", "Bash"], variables


def gemini(home: Path, base: str) -> tuple[list[str], dict[str, str]]:
    settings = home / ".gemini" / "settings.json"
    settings.parent.mkdir()
    quiet = {"privacy": {"usageStatisticsEnabled": False}, "general": {"enableAutoUpdate": False}}
    settings.write_text(json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}, **quiet}))
    variables = {"GOOGLE_GEMINI_BASE_URL": base, "GEMINI_API_KEY": "x", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    variables["GEMINI_CLI_NO_RELAUNCH"] = "true"
    return ["--model", "m", "--yolo", "--prompt", QUESTION], variables


def opencode(home: Path, base: str) -> tuple[list[str], dict[str, str]]:
    options = {"baseURL": f"{base}/v1", "apiKey": "x"}
    provider = {"npm": "@ai-sdk/openai", "name": "bridge", "options": options, "models": {"m": {"name": "m"}}}
    (home / "opencode.json").write_text(json.dumps({"provider": {"bridge": provider}, "autoupdate": False}))
    variables = {"XDG_CONFIG_HOME": str(home), "OPENCODE_CONFIG": str(home / "opencode.json")}
    variables |= dict.fromkeys(("OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_DEFAULT_PLUGINS"), "true")
    return ["run", "-m", "bridge/m", QUESTION], variables


def qwen(home: Path, base: str) -> tuple[list[str], dict[str, str]]:
    variables = {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": f"{base}/v1", "OPENAI_MODEL": "m"}
    variables["QWEN_CODE_NO_RELAUNCH"] = "true"
    return ["--auth-type", "openai", "-y", "-p", QUESTION], variables


def cline(home: Path, base: str) -> tuple[list[str], dict[str, str]]:
    settings = home / "data" / "settings" / "providers.json"
    settings.parent.mkdir(parents=True)
    provider = {"provider": "openai-compatible", "apiKey": "x", "model": "m", "baseUrl": f"{base}/v1"}
    entry = {"settings": provider, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}
    known = {"version": 1, "lastUsedProvider": provider["provider"], "modes": {}}
    settings.write_text(json.dumps({**known, "providers": {provider["provider"]: entry}}))
    return ["--data-dir", str(home / "data"), QUESTION], {}


def continue_with(provider: str) -> Setup:
    def setup(home: Path, base: str) -> tuple[list[str], dict[str, str]]:
        model = {"name": "m", "provider": provider, "model": "m", "apiBase": f"{base}/v1", "apiKey": "x"}
        abilities = {"roles": ["chat"], "capabilities": ["tool_use"]}
        config = {"name": "bridge", "version": "1.0.0", "schema": "v1", "models": [{**model, **abilities}]}
        (home / "config.yaml").write_text(json.dumps(config))
        variables = {"CONTINUE_TELEMETRY_ENABLED": "0"}
        return ["--config", str(home / "config.yaml"), "--auto", "-p", QUESTION], variables

    return setup


def pi(api: str, path: str = "/v1") -> Setup:
    def setup(home: Path, base: str) -> tuple[list[str], dict[str, str]]:
        models = home / ".pi" / "agent" / "models.json"
        models.parent.mkdir(parents=True)
        provider = {"baseUrl": f"{base}{path}", "api": api, "apiKey": "x", "models": [{"id": "m"}]}
        models.write_text(json.dumps({"providers": {"bridge": provider}}))
        return ["--offline", "--provider", "bridge", "--model", "m", "-p", QUESTION], {}

    return setup


@dataclass(frozen=True)
class Program:
    """An agent: the dialect that it speaks, and the tool by which it runs commands. `command`: a large one."""

    dialect: str
    setup: Setup
    tool: str
    arguments: dict[str, Any]
    path: str = "/v1"
    command: str = ""


RUN = {"command": COMMAND, "description": "Say it"}
ONLY = {"command": COMMAND}
PROGRAMS = {
    "codex": Program("openai-responses", codex, "exec_command", {"cmd": COMMAND}),
    "claude": Program("anthropic-messages", claude, "Bash", RUN),
    "gemini": Program("gemini", gemini, "run_shell_command", RUN, path="/"),
    "opencode": Program("openai-responses", opencode, "bash", RUN),
    "qwen": Program("openai-chat", qwen, "run_shell_command", {**RUN, "is_background": False}),
    "cline": Program("openai-chat", cline, "run_commands", {"commands": [COMMAND]}, command="cline"),
    "continue": Program("openai-chat", continue_with("openai"), "Bash", ONLY, command="cn"),
    "continue-claude": Program("anthropic-messages", continue_with("anthropic"), "Bash", ONLY, command="cn"),
    "pi": Program("openai-chat", pi("openai-completions"), "bash", ONLY, command="pi"),
    "pi-claude": Program("anthropic-messages", pi("anthropic-messages", ""), "bash", ONLY, command="pi"),
    "pi-responses": Program("openai-responses", pi("openai-responses"), "bash", ONLY, command="pi"),
}


def talk(program: Program) -> Callable[[Heard], list[Step]]:
    """What the model says: the call, then the answer. Requests without the tool (for a title) get words."""

    def brain(heard: Heard) -> list[Step]:
        if heard.last[0] == "result":
            return [Say(ANSWER)]
        if program.tool in heard.tools:
            return [Use("call_1", program.tool, json.dumps(program.arguments))]
        return [Say("A command")]

    return brain


def runs() -> Iterator[Any]:
    """Each agent over each backend; of small ones, the first of another dialect than its own is tried in CI."""
    for name, program in PROGRAMS.items():
        in_ci = [] if program.command else [back for back in BACKS if back != program.dialect][:1]
        for back in BACKS:
            mark = pytest.mark.interop if back in in_ci else pytest.mark.interop_all
            yield pytest.param(name, back, marks=mark, id=f"{name}-{back}")


@pytest.mark.parametrize(("name", "back"), [*runs()])
async def test_a_turn_with_a_tool(name: str, back: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    folder = LARGE if program.command else FOLDER
    node_client(folder, name)
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    async with fake_backend() as backend:
        agent = AGENTS[back](backend)
        agent.brain = talk(program)
        config = {
            "backends": {"it": {"dialect": back, "url": agent.url}},
            "routes": [{"dialect": program.dialect, "path": program.path, "backend": "it"}],
            "stores": {"history": "off"},
        }
        async with serving(config) as base:
            arguments, variables = program.setup(home, base)
            command = [str(folder / "node_modules" / ".bin" / (program.command or name)), *arguments]
            out = await said_by(command, work, HOME=str(home), KEY="x", **variables)
        results = [entry for heard in agent.heard for entry in heard.conversation if entry[0] == "result"]
        assert results, (out, backend.problems)
        assert SAID in str(results[0][2])
        assert ANSWER in out
        assert len(backend.seen) <= MOST_REQUESTS
        assert backend.problems == []


PRINTS = {
    "claude": ["-p", "Hi"],
    "codex": ["exec", "--skip-git-repo-check", "Hi"],
    "gemini": ["--skip-trust", "--prompt", "Hi"],
    "opencode": ["run", "Hi"],
    "qwen": ["-p", "Hi"],
}


@pytest.mark.interop_all
@pytest.mark.parametrize("name", PRINTS)
async def test_an_agent_that_run_starts(name: str, tmp_path: Path) -> None:
    node_client(FOLDER, name)
    # In the home of the user, as agents read no settings below /tmp.
    parent = Path(__file__).parents[2] / "build"
    parent.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=parent) as home:
        bin_folder = f"{FOLDER / 'node_modules' / '.bin'}{os.pathsep}{environment()['PATH']}"
        command = [BRIDGE, "run", name, "--to", "demo", "--model", "demo", "--", *PRINTS[name]]
        out = await said_by(command, tmp_path, HOME=home, PATH=bin_folder)
    assert "You said: " in out
    assert "Hi Write help to see what else I can show." in out


async def local_model(exchange: Exchange) -> None:
    """Ollama's server with a model that runs the command, and then tells the answer."""
    if exchange.seen.path != "/api/chat":
        model = {"name": "qwen3:8b", "model": "qwen3:8b", "capabilities": ["completion", "tools"]}
        found = {"/api/tags": {"models": [model]}, "/api/version": {"version": "0.40.1"}, "/api/show": model}
        known = found.get(exchange.seen.path)
        await exchange.answer(404 if known is None else 200, json.dumps(known or {"error": "not found"}).encode())
        return
    body = exchange.seen.json
    tools = [tool["function"]["name"] for tool in body.get("tools", [])]
    said: dict[str, Any] = {"role": "assistant", "content": "A command"}
    if body["messages"][-1]["role"] == "tool":
        said["content"] = ANSWER
    elif "Bash" in tools:
        said = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "Bash", "arguments": RUN}}]}
    facts = {"model": body["model"], "created_at": "2026-01-01T00:00:00Z"}
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 3}
    await exchange.head(200, "application/x-ndjson")
    for each in ({"message": said, "done": False}, {"message": {"role": "assistant", "content": ""}, **end}):
        await exchange.send(json.dumps({**facts, **each}).encode() + b"\n")
    await exchange.end()


@pytest.mark.interop_all
async def test_claude_code_on_a_local_model(tmp_path: Path) -> None:
    node_client(FOLDER, "claude")
    parent = Path(__file__).parents[2] / "build"
    parent.mkdir(exist_ok=True)
    async with fake_backend() as ollama:
        ollama.plays(local_model)
        with TemporaryDirectory(dir=parent) as home:
            bin_folder = f"{FOLDER / 'node_modules' / '.bin'}{os.pathsep}{environment()['PATH']}"
            command = [BRIDGE, "run", "claude", "--to", "ollama", "--url", ollama.url, "--model", "qwen3:8b"]
            said = [*command, "--", "-p", QUESTION, "--allowedTools", "Bash"]
            out = await said_by(said, tmp_path, HOME=home, PATH=bin_folder)
        talks = [seen.json for seen in ollama.seen if seen.path == "/api/chat"]
    assert ANSWER in out
    assert {body["model"] for body in talks} == {"qwen3:8b"}
    (result,) = [message for message in talks[-1]["messages"] if message["role"] == "tool"]
    assert SAID in result["content"]


async def said_by(command: list[str], folder: Path, **variables: str) -> str:
    """What an agent printed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment(**variables),
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        if home := variables.get("HOME"):
            for other in started_in(home):
                other.kill()
    assert process.returncode == 0, out.decode()
    return out.decode()


def started_in(home: str) -> list[psutil.Process]:
    """The processes with this home that run: an agent may leave a server of its own (Cline does)."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("HOME") == home and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
