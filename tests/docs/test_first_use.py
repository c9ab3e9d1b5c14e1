"""The first minutes of a new user: a server without a file, a configuration from a few answers, what to type next."""

from __future__ import annotations

import errno
import io
import json
import os
import pty
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge import Bridge
from bridge.cli import main
from bridge.cli.serve import _announce, _no_address
from bridge.contract import registry
from bridge.engine.config import load
from bridge.server.connect import SERVERS
from bridge.server.connect.probe import Found
from tests.docs.helpers import COMMAND, ROOT, bridge, environment, run, serve
from tests.forkserver import ForkedProcess
from tests.server.harness import free_port
from tests.unit.test_connect import CHAT, server

pytestmark = pytest.mark.slow

HTTP = registry.over_http()


def post(url: str, body: Any) -> bytes:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        text: bytes = answer.read()
    return text


HELLO = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}], "stream": True}


@contextmanager
def started(folder: Path, *args: str) -> Iterator[str]:
    """The command in a folder while it runs; gives its first line."""
    out, stdout = os.pipe()
    with open(out, "rb") as printed, open(os.devnull, "r+b") as null:
        process = ForkedProcess(
            [COMMAND, *args], cwd=folder, env=environment(BROWSER="true"), stdin=null, stdout=stdout, stderr=null
        )
        os.close(stdout)
        try:
            yield printed.readline().decode()
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.parametrize("command", [["serve"], ["demo"], ["demo", "--no-open"]])
def test_without_a_file_the_demo_is_served(command: list[str], tmp_path: Path) -> None:
    port = free_port()
    with started(tmp_path, *command, "--port", str(port)) as said:
        assert f"dialect-bridge is serving on http://127.0.0.1:{port}" in said
        assert b"data: [DONE]" in post(f"http://127.0.0.1:{port}/v1/chat/completions", HELLO)
    assert list(tmp_path.iterdir()) == [], "the demo leaves no file"


def test_a_file_in_the_folder_is_served_before_the_demo(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("backends: {}\nroutes: []\n")
    code, _, err = bridge("serve", cwd=tmp_path)
    assert code == 2
    assert err.startswith("config.yaml:2: routes: ")


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    code, _, err = bridge("serve", "config.yaml", cwd=tmp_path)
    assert (code, "config.yaml: cannot be read: No such file" in err) == (2, True)


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    port = free_port()
    with started(tmp_path, "serve", "--port", str(port)):
        code, _, err = bridge("serve", "--port", str(port), cwd=tmp_path)
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; another program has the port: try --port" in err


def test_an_address_that_others_reach(tmp_path: Path) -> None:
    code, _, err = bridge("demo", "--no-open", "--host", "0.0.0.0", cwd=tmp_path)
    assert code == 2
    assert err.startswith("--host: server.host: other machines can reach this address without a key; ")
    assert err.endswith("the demo has no file to change; `dialect-bridge init` writes one\n")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EACCES, "x"), "Permission denied; ports below 1024 need privileges: try --port"),
        (OSError(errno.EADDRNOTAVAIL, "x"), "this machine does not have the address: try --host"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), ": Name or service not known"),
    ],
)
def test_why_it_cannot_listen(error: OSError, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    routes = [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}]
    it = Bridge.from_config({"backends": {"it": {"dialect": "demo"}}, "routes": routes, "stores": {"history": "off"}})
    assert _no_address(it, error) == 1
    assert capsys.readouterr().err.startswith("cannot listen on 127.0.0.1:8080: ")
    assert _no_address(it, error) == 1
    assert capsys.readouterr().err.strip().endswith(said)


def test_python_m_bridge() -> None:
    done = run(sys.executable, "-m", "bridge", "--version", cwd=ROOT, fresh=True)
    assert done.stdout.startswith(b"dialect-bridge ")


# ------------------------------------------------------------------ init


# An agent over ACP is a command, which has no default.
@pytest.mark.parametrize("back", ["demo", *(name for name in registry.called() if name != "acp")])
@pytest.mark.parametrize("front", HTTP)
def test_every_pair_gets_a_valid_file(front: str, back: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["init", "--from", front, "--to", back]) == 0
    config = load("config.yaml", env={})
    assert [(r.dialect, r.backends) for r in config.routes] == [(front, ("demo" if back == "demo" else "main",))]
    meant = SERVERS[back].dialect if back in SERVERS else back  # a program's name comes first
    assert next(iter(config.backends.values())).dialect == meant


def test_what_flags_say(tmp_path: Path) -> None:
    code, out, err = bridge(
        *("init", "--from", "openai-chat", "--from", "ag-ui", "--to", "anthropic-messages", "--url", "http://llm.example/v1"),
        *("--model", "claude", "--api-key-env", "MY_KEY", "--port", "9000", "--output", "it.yaml", "--no-probe"),
        cwd=tmp_path,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert out == (
        "wrote it.yaml\nit reads the backend's key from $MY_KEY\nstart it with: dialect-bridge serve it.yaml\n"
    )
    config = load(tmp_path / "it.yaml", env={"MY_KEY": "k"})
    backend = config.backends["main"].model_dump()
    assert (backend["dialect"], str(backend["url"]), config.server.port) == (
        "anthropic-messages", "http://llm.example/v1", 9000,
    )  # fmt: skip
    assert [(r.dialect, r.path) for r in config.routes] == [("openai-chat", "/v1"), ("ag-ui", "/ag-ui")]
    text = (tmp_path / "it.yaml").read_text()
    assert "# POST /v1/chat/completions" in text
    assert bridge("check", "it.yaml", cwd=tmp_path)[0] == 0
    code, _, err = bridge("init", "--output", "it.yaml", cwd=tmp_path)
    assert (code, "it.yaml: exists already; --force replaces it" in err) == (2, True)
    assert bridge("init", "--from", "ag-ui", "--output", "it.yaml", "--force", cwd=tmp_path)[0] == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--from", "openai"], "unknown program or dialect 'openai'; did you mean 'openai-sdk' or 'openai-chat'?"),
        (["--from", "ag-ui", "--to", "nix"], "unknown program or dialect 'nix'.\n  Programs: ollama, "),
        ([], "--from: required, the program that calls the bridge (open-webui, "),
        (["--from", "aip"], "a route over gRPC needs `listen`"),
        (["--from", "demo"], "--from: only backends can speak demo"),
        (["--from", "ag-ui", "--to", "openai-chat", "--url", "localhost:9/v1"], "did you mean http://localhost:9/v1?"),
        (
            ["--from", "ag-ui", "--to", "openai-chat", "--url", "no url"],
            "--url: expected a URL such as https://host/v1",
        ),
        (["--from", "ag-ui", "--to", "openai-chat", "--api-key-env", "sk-1234"], "the name of an environment variable"),
        (["--from", "ag-ui", "--to", "vllm", "--target", "a:b"], "--target: is for --to python, not for vllm"),
        (["--from", "ag-ui", "--to", "python", "--target", "agent.py"], 'target: expected "module:function"'),
        (["--from", "ag-ui", "--port", "70000"], "argument --port: expected 0 to 65535, got '70000'"),
        (["--from", "ag-ui", "--output", "none/c.yaml"], "none/c.yaml: cannot be written: No such file or directory"),
    ],
)
def test_what_init_refuses(args: list[str], said: str, tmp_path: Path) -> None:
    code, _, err = bridge("init", *args, cwd=tmp_path)
    assert (code, said in err) == (2, True), err
    assert list(tmp_path.iterdir()) == []


def init_with(typed: bytes, folder: Path) -> tuple[int, bytes, bytes]:
    """The exit code, output and errors of `init` on a terminal on which this is typed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, "init"], cwd=folder, env=environment(), stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    os.write(ours, typed)
    out, err = process.communicate(timeout=30)
    os.close(ours)
    os.close(theirs)
    return process.returncode, out, err


def test_questions_on_a_terminal(tmp_path: Path) -> None:
    code, out, err = init_with(b"ag-ui\nopenai-chat\nhttp://127.0.0.1:9/v1\nsmall\n", tmp_path)
    assert (code, err.startswith(b"warning: --url: nothing answers at http://127.0.0.1:9/v1: ")) == (0, True)
    assert re.findall(r"\[(.*?)\]", out.decode()) == ["demo", "https://api.openai.com/v1"]
    config = load(tmp_path / "config.yaml", env={})
    assert config.routes[0].dialect == "ag-ui"
    assert config.backends["main"].model_dump()["dialect"] == "openai-chat"


def test_a_question_is_repeated_until_its_answer_is_valid(tmp_path: Path) -> None:
    fronts, backs = "\nopenai\nopenai-chat, ag-ui\n", "openai-caht\nopenai-chat\n"
    urls = "localhost:9/v1\nhttp://localhost:9/v1\n"
    code, out, err = init_with(f"{fronts}{backs}{urls}small\n".encode(), tmp_path)
    assert (code, err.count(b"\n")) == (0, 1)
    assert out.count(b"did you mean") == 3
    config = load(tmp_path / "config.yaml", env={})
    assert [route.dialect for route in config.routes] == ["openai-chat", "ag-ui"]
    assert str(config.backends["main"].model_dump()["url"]) == "http://localhost:9/v1"


def test_the_end_of_the_input_ends_the_questions(tmp_path: Path) -> None:
    code, _, err = init_with(b"ag-ui\n\x04", tmp_path)
    assert (code, err) == (130, b"")
    assert list(tmp_path.iterdir()) == []


def test_programs_by_name(tmp_path: Path) -> None:
    """A client with names of its own for models gets the model of the server, and its exact lines are printed."""
    with server({"/v1/models": CHAT}) as (base, seen):
        args = ("--from", "claude-code", "--to", "vllm", "--url", base, "--model", "smal")
        code, out, err = bridge("init", *args, cwd=tmp_path, OPENAI_API_KEY="sk-mine")
    assert code == 0
    assert f"warning: --url: it answers at {base}/v1, not at {base}" in err
    assert "the server lists no model 'smal'; did you mean small?" in err
    assert "lists the models small, large" in out
    assert "    export ANTHROPIC_BASE_URL=http://127.0.0.1:8080\n    export ANTHROPIC_AUTH_TOKEN=unused\n" in out
    backend = load(tmp_path / "config.yaml", env={"OPENAI_API_KEY": "sk-mine"}).backends["main"]
    assert (str(backend.url), backend.model, backend.model_map) == (f"{base}/v1", "smal", {"*": "smal"})
    assert backend.api_key is None
    assert not any("authorization" in headers for headers in seen)


def test_programs_that_start_the_bridge_get_its_command_and_file(tmp_path: Path) -> None:
    """An agent as a tool and in an editor: nothing in the file or in the lines is left to be filled in."""
    code, out, err = bridge("init", "--from", "claude-code-tools", "--from", "zed", "--to", "python", cwd=tmp_path)
    assert (code, err) == (0, "")
    file = tmp_path / "config.yaml"
    assert f"    claude mcp add bridge -- {COMMAND} mcp {file} --route /mcp\n" in out
    assert f'"command": "{COMMAND}",\n      "args": ["acp", "--config", "{file}", "--route", "/acp"]' in out
    (tools,) = [route for route in load(file, env={}).routes if route.dialect == "mcp"]
    assert tools.options.model_dump()["description"] == "Asks the agent."


def test_a_page_is_told_of_its_origin(tmp_path: Path) -> None:
    _, out, _ = bridge("init", "--from", "usechat", "--to", "demo", cwd=tmp_path)
    assert 'server: {cors: {origins: ["http://localhost:5173"]}}' in out


def test_a_server_of_this_machine_is_asked_by_its_dialect_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--to agentscope` is a dialect, at a default address; those of services elsewhere are not asked."""
    asked = list[str]()

    def answers(url: str, *_: str) -> Found:
        asked.append(url)
        return Found(url)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("bridge.cli.init.probe", answers)
    for number, name in enumerate(("agentscope", "openai-chat")):
        assert main(["init", "--from", "open-webui", "--to", name, "--output", f"{number}.yaml"]) == 0
    assert asked == ["http://127.0.0.1:8090"]


def test_a_server_that_speaks_two_dialects_is_asked_for_the_one_of_its_name(tmp_path: Path) -> None:
    tags = {"models": [{"name": "qwen3:8b"}]}
    with server({"/v1/models": CHAT, "/api/tags": tags}) as (base, _):
        for name, dialect, url in (("ollama", "ollama", base), ("openai-chat", "openai-chat", f"{base}/v1")):
            args = ("--from", "claude-code", "--to", name, "--url", url, "--output", f"{name}.yaml")
            code, out, err = bridge("init", *args, "--model", "small", cwd=tmp_path)
            assert (code, "it answers at" in err, "speaks" in err) == (0, False, False), err
            assert f"{url} lists the models" in out
            backend = load(tmp_path / f"{name}.yaml", env={}).backends["main"]
            assert (backend.dialect, str(backend.url)) == (dialect, url)


def test_the_only_model_of_a_server_is_taken(tmp_path: Path) -> None:
    with server({"/v1/models": {"object": "list", "data": [{"id": "one"}]}}) as (base, _):
        assert bridge("init", "--from", "claude-code", "--to", "vllm", "--url", f"{base}/v1", cwd=tmp_path)[0] == 0
    assert load(tmp_path / "config.yaml", env={}).backends["main"].model_map == {"*": "one"}


def test_init_warns_as_check_does(tmp_path: Path) -> None:
    url = "http://llm.example/v1/chat/completions"
    code, _, err = bridge("init", "--from", "ag-ui", "--to", "openai-chat", "--url", url, "--no-probe", cwd=tmp_path)
    assert (code, "warning: backends.main.url: expected the base URL" in err) == (0, True)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["srve"], "unknown command 'srve'; did you mean 'serve'?"),
        (["config"], "unknown command 'config' (commands: serve, demo, "),
        (["serve", "--prt", "9"], "dialect-bridge serve: error: unrecognized arguments: --prt; did you mean '--port'?"),
        (["serve", "--port", "70000"], "argument --port: expected 0 to 65535, got '70000'"),
        (["serve", "--workers", "0"], "argument --workers: expected 1 or more, got '0'"),
        (["check"], "config.yaml: cannot be read: No such file or directory; `dialect-bridge init` writes a file"),
        ([], "serve a configuration"),
    ],
)
def test_typos_on_the_command_line(args: list[str], said: str, tmp_path: Path) -> None:
    code, _, err = bridge(*args, cwd=tmp_path)
    assert (code, said in " ".join(err.split())) == (2, True), err


def test_an_agent_of_ones_own_is_written_and_served(tmp_path: Path) -> None:
    code, out, err = bridge("init", "--from", "open-webui", "--to", "python", cwd=tmp_path)
    assert (code, err) == (0, "")
    assert "wrote agent.py, an agent that repeats its input" in out
    assert "    URL: http://127.0.0.1:8080/v1\n" in out
    with serve(tmp_path, tmp_path / "config.yaml") as served:
        answer = json.loads(post(f"{served.url}/v1/chat/completions", {**HELLO, "stream": False}))
    assert answer["choices"][0]["message"]["content"] == "You said: Hello"
    (tmp_path / "agent.py").write_text("mine", encoding="utf-8")
    assert bridge("init", "--from", "ag-ui", "--to", "python", "--force", cwd=tmp_path)[0] == 0
    assert (tmp_path / "agent.py").read_text(encoding="utf-8") == "mine"
    args = ("init", "--from", "ag-ui", "--to", "python", "--target", "mine.agents:answer", "--output", "it.yaml")
    assert bridge(*args, cwd=tmp_path)[0] == 0
    assert '    target: "mine.agents:answer"' in (tmp_path / "it.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["agentscope", "agentscope-runtime", "crewai"])
def test_who_has_an_agent_object_is_told_the_shorter_way(name: str, tmp_path: Path) -> None:
    code, out, _ = bridge("init", "--from", "open-webui", "--to", name, "--no-probe", cwd=tmp_path)
    assert (code, "needs no server of its own: `dialect-bridge init --to python`" in out) == (0, True)


def test_what_init_writes_is_served(tmp_path: Path) -> None:
    assert bridge("init", "--from", "openai-chat", "--to", "demo", cwd=tmp_path)[0] == 0
    with serve(tmp_path, tmp_path / "config.yaml") as running:
        assert b"data: [DONE]" in post(f"{running.url}/v1/chat/completions", HELLO)


def test_a_route_that_queues_runs_has_a_line_for_their_events(tmp_path: Path) -> None:
    assert bridge("init", "--from", "agent-runs", "--to", "demo", cwd=tmp_path)[0] == 0
    with serve(tmp_path, tmp_path / "config.yaml") as running:
        running.wait_to_say("/events")
        lines = [line.strip() for line in running.out.splitlines() if line.startswith("  curl ")]
        queued, events = (run("bash", "-c", line.replace("curl -N", "curl -sSN", 1)).stdout for line in lines)
    assert b'"created":true' in queued
    assert b"You" in events
    assert b"RUN_FINISHED" in events


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_completion(shell: str) -> None:
    code, out, err = bridge("completion", shell)
    assert (code, err) == (0, "")
    assert "dialect-bridge" in out
    assert "--log-level" in out or "log-level" in out


@pytest.mark.parametrize(
    ("backend", "route", "model"),
    [
        ({}, {}, "YOUR_MODEL"),
        ({"model": "gpt-x"}, {}, "gpt-x"),
        ({"model_map": {"fast": "gpt-x"}}, {}, "fast"),
        ({"model_map": {"gpt-*": "gpt-x"}}, {}, "gpt-x"),
        ({}, {"backend": None, "models": {"qwen-*": "it"}}, "qwen-YOUR_MODEL"),
        ({}, {"backend": None, "models": {"*": "it"}}, "YOUR_MODEL"),
        ({}, {"backend": None, "models": {"qwen-*": "it", "fast": "it"}}, "fast"),
        ({"model": "qwen-max"}, {"backend": None, "models": {"qwen-*": "it"}}, "qwen-max"),
        ({"model_map": {"qwen-*": "gpt-x"}}, {"backend": None, "models": {"qwen-*": "it"}}, "qwen-x"),
    ],
)
def test_the_model_of_a_printed_line_is_one_that_the_backend_may_have(
    backend: dict[str, Any], route: dict[str, Any], model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = {"dialect": "openai-chat", "url": "http://llm.example/v1", **backend}
    routes = [{k: v for k, v in {"dialect": "openai-chat", "path": "/v1", "backend": "it", **route}.items() if v}]
    _announce(Bridge.from_config({"backends": {"it": chat}, "routes": routes, "stores": {"history": "off"}}), 8080)
    assert f'"model": "{model}"' in capsys.readouterr().out
