"""`dialect-bridge run`: an agent over a bridge that lives as long as the agent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import pytest

from bridge.server.connect.programs import AGENTS
from tests.docs.helpers import COMMAND, bridge, environment
from tests.forkserver import ForkedProcess
from tests.server.harness import fake_backend

pytestmark = pytest.mark.slow

# Stands in for an agent: says what it was given, asks the bridge once, and ends with 7.
PROGRAM = r"""#!/usr/bin/env python3
import json, os, sys, urllib.request
from urllib.error import HTTPError
OURS = ("ANTHROPIC_", "BRIDGE_", "OPENAI_", "GEMINI_", "GOOGLE_", "OPENCODE_")
given = {k: v for k, v in os.environ.items() if k.startswith(OURS)}
def ask(key):
    body = {"model": "own-name", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    url = given["ANTHROPIC_BASE_URL"] + "/v1/messages"
    try:
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status, json.loads(reply.read())
    except HTTPError as error:
        return error.code, None
asked = [ask(given["ANTHROPIC_AUTH_TOKEN"]), ask("wrong")] if "ANTHROPIC_BASE_URL" in given else []
files = [os.environ[n] for n in ("OPENCODE_CONFIG", "GEMINI_CLI_SYSTEM_SETTINGS_PATH") if n in os.environ]
settings = json.load(open(files[0])) if files else {}
print(json.dumps({"args": sys.argv[1:], "env": given, "settings": settings, "asked": asked, "stdin": sys.stdin.read()}))
sys.exit(7)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a program of each agent's name, which is on the path."""
    for command in AGENTS:
        file = tmp_path / "bin" / command
        file.parent.mkdir(exist_ok=True)
        file.write_text(PROGRAM)
        file.chmod(0o755)
    return tmp_path


def run(folder: Path, *args: str, **variables: str) -> tuple[int, str, str]:
    path = os.pathsep.join([str(folder / "bin"), environment()["PATH"]])
    code, out, err = bridge(
        "run", *args, input="typed", cwd=folder, PATH=path, TMPDIR=str(folder), XDG_CACHE_HOME=str(folder), **variables
    )
    return code, out, err


def test_help_names_all_agents() -> None:
    said = " ".join(bridge("run", "--help")[1].split())
    assert f"{', '.join(list(AGENTS)[:-1])} or {list(AGENTS)[-1]}" in said


def test_an_agent_over_a_named_backend(folder: Path) -> None:
    code, out, err = run(folder, "claude", "--to", "demo", "--", "-p", "--to", "x", ANTHROPIC_API_KEY="own")
    said = json.loads(out)
    assert (code, said["args"], said["stdin"]) == (7, ["-p", "--to", "x"], "typed")
    assert "ANTHROPIC_API_KEY" not in said["env"]
    (status, answer), refused = said["asked"]
    assert (status, answer["type"]) == (200, "message")
    assert refused == [401, None], "the key is the agent's alone"
    log = Path(err.rpartition("log: ")[2].strip())
    assert "reason=unknown_key" in log.read_text()
    assert said["env"]["ANTHROPIC_AUTH_TOKEN"] not in log.read_text()
    assert {path.name for path in folder.iterdir()} == {"bin", log.name}, "nothing else is left"


@pytest.mark.parametrize("name", list(AGENTS))
def test_each_agent_gets_an_address_a_key_and_a_model(name: str, folder: Path) -> None:
    code, out, _ = run(folder, name, "--to", "demo", "--model", "m")
    said = json.loads(out)
    assert code == 7
    given = json.dumps(said)
    assert "http://127.0.0.1:" in given
    assert (
        name in ("claude", "gemini") or "m" in (*said["args"], said["env"].get("OPENAI_MODEL")) or "bridge/m" in given
    )


async def test_an_agents_own_model_becomes_the_backends(folder: Path) -> None:
    async with fake_backend("openai-chat") as backend:
        backend.says("Hello")
        to = ("--to", "openai-chat", "--url", backend.url, "--model", "local", "--no-probe")
        _, out, _ = await asyncio.to_thread(run, folder, "claude", *to)
    assert json.loads(out)["asked"][0][1]["content"][0]["text"] == "Hello"
    assert backend.seen[0].json["model"] == "local"


async def test_an_agent_over_a_configuration(folder: Path) -> None:
    (folder / "config.yaml").write_text(
        "server: {port: 8080, auth: {keys: [{name: me, key: secret-key-of-mine}]}}\n"
        "backends: {it: {dialect: demo}}\n"
        "stores: {history: off}\n"
        "routes:\n"
        "  - {dialect: openai-chat, path: /v1, backend: it}\n"
        "  - {dialect: anthropic-messages, path: /claude/v1, backend: it}\n"
    )
    code, _, err = run(folder, "claude")
    assert (code, err) == (2, "$BRIDGE_API_KEY: required, a key of server.auth\n")
    code, out, _ = run(folder, "claude", BRIDGE_API_KEY="secret-key-of-mine")
    said = json.loads(out)
    assert code == 7
    assert said["env"]["ANTHROPIC_BASE_URL"].endswith("/claude")
    assert [status for status, _ in said["asked"]] == [200, 401]
    file = folder / "config.yaml"
    file.write_text(file.read_text().replace("/claude/v1", "/claude"))
    code, _, err = run(folder, "claude", BRIDGE_API_KEY="secret-key-of-mine")
    assert (code, "(anthropic-messages), at a path that ends with /v1" in err) == (2, True)
    code, _, err = run(folder, "gemini", BRIDGE_API_KEY="secret-key-of-mine")
    assert (code, "no route has a dialect that Gemini CLI speaks (gemini)" in err) == (2, True)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["claude"], "--to or --config: one is required, since there is no config.yaml here"),
        (["claude", "--to", "demo", "--config", "c.yaml"], "--to, --config: expected one of both, got both"),
        (["claude", "--to", "nothing"], "--to: unknown program or dialect 'nothing'"),
        (["codex", "--to", "openai-chat", "--url", "http://127.0.0.1:9/v1", "--no-probe"], "--model: required"),
        (["claude", "--to", "demo", "--log", "none/log"], "--log: none/log cannot be written: No such file"),
        (["clod", "--to", "demo"], "unknown agent 'clod'; expected one of claude, codex, gemini, qwen, opencode"),
    ],
)
def test_what_is_refused(args: list[str], said: str, folder: Path) -> None:
    code, out, err = run(folder, *args)
    assert (code, out) == (2, "")
    assert said in err


def test_an_agent_that_is_not_installed(tmp_path: Path) -> None:
    code, _, err = bridge("run", "qwen", "--to", "demo", cwd=tmp_path, PATH=str(Path(COMMAND).parent))
    assert (code, err) == (2, "qwen: there is no such program; install it with: npm install -g @qwen-code/qwen-code\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reaches_the_agent_and_ends_both(number: signal.Signals, folder: Path) -> None:
    program = folder / "bin" / "claude"
    program.write_text(
        "#!/usr/bin/env python3\nimport os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(100)\n"
    )
    path = os.pathsep.join([str(folder / "bin"), environment()["PATH"]])
    with open(os.devnull, "r+b") as null:
        command, env = (COMMAND, "run", "claude", "--to", "demo"), environment(PATH=path, TMPDIR=str(folder))
        process = ForkedProcess(command, cwd=folder, env=env, stdin=null, stdout=null, stderr=null)
    try:
        deadline = time.monotonic() + 60
        while not (pid := (folder / "pid").read_text() if (folder / "pid").exists() else ""):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(60) == 128 + number
    finally:
        process.kill()
        process.wait()
    assert not Path(f"/proc/{pid}").exists()
    assert [path.name for path in folder.glob("*.log")] == [], "an empty log is removed"
