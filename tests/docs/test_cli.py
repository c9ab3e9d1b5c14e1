"""The command line as a user meets it: the real command in a process of its own."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bridge.cli import main
from bridge.cli.chat import _Screen
from bridge.cli.parser import _arguments, _parser
from bridge.contract import Feature, registry
from bridge.model import ArgsDelta, PartEnded, PartKind, PartStarted, Text, TextDelta, ToolResulted
from tests.docs.helpers import COMMAND, ROOT, Server, bridge, listeners, run, serve
from tests.server.harness import free_port

pytestmark = pytest.mark.slow

CAPTURES = ROOT / "tests" / "captures"
COMMANDS = (
    "serve", "demo", "mcp", "acp", "init", "run", "explain", "check", "dialects", "translate", "chat", "nodes", "key",
    "openapi",
    "schema", "completion",
)  # fmt: skip

BAD = """\
backends:
  demo:
    dialect: demo
routes:
  - dialect: openai-chat
    path: /v1
    bakend: demo
"""


# ------------------------------------------------------------------ help


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command: str) -> None:
    code, out, err = bridge(command, "--help")
    assert (code, err) == (0, "")
    subparsers = next(a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    example = subparsers.choices[command].epilog or ""
    assert example.startswith(f"example: dialect-bridge {command} ")
    assert example in out.splitlines(), "on one line, to be copied"


def _example(command: str) -> list[str]:
    """The arguments of the example in a command's help, without what is the shell's."""
    subparsers = next(a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    example = (subparsers.choices[command].epilog or "").removeprefix("example: dialect-bridge ")
    return shlex.split(re.split(r" (?:<|>>?) ", example)[0])


@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_of_help_parses(command: str) -> None:
    args = _example(command)
    assert args[0] == command
    _arguments(args)


def test_help_and_version_load_nothing_heavy() -> None:
    heavy = ("aiohttp", "pydantic", "orjson", "yaml", "uvloop")
    script = (
        "import sys\n"
        "from bridge.cli import main\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "except SystemExit as error:\n"
        "    assert error.code == 0, error.code\n"
        f"print('loaded:', [name for name in {heavy!r} if name in sys.modules])\n"
    )
    for args in (["--help"], ["--version"], *([command, "--help"] for command in COMMANDS)):
        done = run(sys.executable, "-c", script, *args, fresh=True)
        assert done.stdout.decode().endswith("loaded: []\n"), (args, done.stdout, done.stderr)


def test_no_command_and_an_unknown_one_are_wrong_usage() -> None:
    assert bridge()[0] == 2
    code, _, err = bridge("sreve")
    assert code == 2
    assert "serve" in err


def test_the_page_lists_the_commands() -> None:
    table = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").partition("\n## ")[0]
    assert tuple(re.findall(r"^\| `dialect-bridge (\w+)", table, re.MULTILINE)) == COMMANDS
    subparsers = next(a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    assert tuple(subparsers.choices) == COMMANDS
    named = set(re.findall(r"--[a-z][a-z-]*", table.partition("```")[0]))
    real = {o for p in subparsers.choices.values() for a in p._actions for o in a.option_strings if o[:2] == "--"}
    assert named == real - {"--help"}


# ------------------------------------------------------------------ check, dialects, schema


def test_check_prints_the_endpoints() -> None:
    code, out, err = bridge("check", "config.yaml")
    assert (code, err) == (0, "")
    assert "config.yaml is valid." in out
    table = [" ".join(line.split()) for line in out.splitlines()]
    assert "POST /v1/chat/completions openai-chat -> demo (demo)" in table
    assert "POST /agentscope/process agentscope -> demo (demo)" in table
    assert len({line.index(" -> ") for line in out.splitlines()[1:]}) == 1, "it is a table"


def test_check_names_file_line_key_and_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(BAD)
    code, out, err = bridge("check", "bad.yaml", cwd=tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith('bad.yaml:7: routes[0].bakend: unknown key; did you mean "backend"?')


def test_check_without_a_file_says_so(tmp_path: Path) -> None:
    code, out, err = bridge("check", cwd=tmp_path)
    assert (code, out, err) == (
        2,
        "",
        "config.yaml: cannot be read: No such file or directory; `dialect-bridge init` writes a file\n",
    )


def test_check_finds_agents_from_the_working_directory(tmp_path: Path) -> None:
    config = "backends:\n  mine: {dialect: python, target: 'own.agent:run'}\n"
    config += "routes:\n  - {dialect: openai-chat, path: /v1, backend: mine}\n"
    (tmp_path / "mine.yaml").write_text(config)
    code, _, err = bridge("check", "mine.yaml", cwd=tmp_path)
    assert code == 2
    assert err.startswith("mine.yaml:2: backends.mine.target: 'own.agent:run': cannot import 'own.agent'")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "agent.py").write_text("async def run(request):\n    yield 'hi'\n")
    assert bridge("check", "mine.yaml", cwd=tmp_path)[0] == 0


@pytest.mark.parametrize("width", [60, 100, 400])
def test_dialects_prints_the_cards_as_wide_as_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["dialects"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert width - 40 < max(map(len, out.splitlines())) <= width or width == 400
    parts = [part.splitlines() for part in out.strip().split("\n\n")]
    assert len(parts) == 2 if width == 400 else len(parts) > 2

    def row(title: str, feature: str) -> list[str]:
        """The words of a feature in all parts of a table."""
        lines = [line for part in parts if part[0].startswith(title) for line in part[1:]]
        return [word for line in lines if line.split()[0] == feature for word in line.split()[1:]]

    answers = [registry.get(name).capabilities.answers for name in registry.served()]
    requests = [registry.get(name).capabilities.requests for name in registry.called()]
    for feature in (Feature.TEXT, Feature.FINISH_CANCELED):
        assert row("answers", feature) == " ".join(str(card[feature].support) for card in answers).split()
    takes = " ".join(str(card[Feature.IMAGE_URL].support) for card in requests)
    assert row("requests", Feature.IMAGE_URL) == takes.split()


def test_dialects_as_json_gives_the_reasons() -> None:
    code, out, err = bridge("dialects", "--json")
    assert (code, err) == (0, "")
    cards = json.loads(out)
    assert {"openai-chat", "agentscope"} <= cards.keys()
    assert cards["openai-chat"]["answers"]["state"]["fate"] == "dropped"
    assert cards["openai-chat"]["answers"]["state"]["reason"]
    assert cards["agentscope"]["history"] == "delta"
    assert [name for name, capabilities in cards.items() if capabilities["inline_media_only"]] == ["aip", "openai-chat"]


def test_schema_is_a_json_schema_of_the_configuration() -> None:
    code, out, err = bridge("schema")
    assert (code, err) == (0, "")
    schema = json.loads(out)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert {"server", "backends", "routes"} <= schema["$defs"]["Config"]["properties"].keys()


# ------------------------------------------------------------------ translate


def _translate(source: str, target: str, data: bytes | str, what: str = "stream") -> tuple[int, str, str]:
    return bridge("translate", "--from", source, "--to", target, "--what", what, input=data)


def test_translate_a_stream() -> None:
    recorded = (CAPTURES / "openai-chat" / "deepseek-reasoning.sse").read_bytes()
    code, out, err = _translate("openai-chat", "agentscope", recorded)
    assert (code, err) == (0, "")
    last = json.loads(out.strip().split("\n\n")[-1].removeprefix("data: "))
    assert (last["object"], last["status"]) == ("response", "completed")
    assert [m["type"] for m in last["output"]] == ["reasoning", "message"]
    assert last["output"][1]["content"][0]["text"] == "The sum is 5."


def test_translate_names_on_stderr_what_was_lost() -> None:
    recorded = (CAPTURES / "agentscope" / "plugin_call.response.sse").read_bytes()
    code, out, err = _translate("agentscope", "openai-chat", recorded)
    assert (code, err) == (0, "lost: tool_result\n")
    assert out.endswith("data: [DONE]\n\n")


def test_translate_a_request() -> None:
    asked = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    code, out, err = _translate("openai-chat", "agentscope", json.dumps(asked), "request")
    assert (code, err) == (0, "")
    assert json.loads(out)["input"][0]["content"] == [{"type": "text", "text": "Hi"}]


def test_translate_a_response() -> None:
    recorded = (CAPTURES / "openai-chat" / "json-tool.json").read_bytes()
    code, out, err = _translate("openai-chat", "agentscope", recorded, "response")
    assert (code, err) == (0, "")
    (message,) = json.loads(out)["output"]
    assert message["content"][0]["data"]["name"] == "get_weather"


@pytest.mark.parametrize(
    ("what", "data", "told"),
    [
        ("request", "{", "invalid_request: "),
        ("request", '{"model": "m", "messages": 3}', "invalid_request: messages"),
        ("response", "<html>", "backend_protocol: "),
        ("response", '{"error": {"message": "no"}}', "backend_error: "),
    ],
)
def test_translate_exits_1_for_what_is_none(what: str, data: str, told: str) -> None:
    code, out, err = _translate("openai-chat", "agentscope", data, what)
    assert (code, out) == (1, "")
    assert err.startswith(told)


def test_translate_exits_1_for_what_the_target_cannot_be_told() -> None:
    content = [{"type": "video", "video_url": "http://127.0.0.1:1/film.mp4"}]
    asked = {"input": [{"role": "user", "type": "message", "content": content}]}
    code, out, err = _translate("agentscope", "openai-chat", json.dumps(asked), "request")
    assert (code, out) == (1, "")
    assert err.startswith("unsupported: input[0].content[0]: ")


def test_translate_exits_2_for_an_unknown_dialect_and_names_the_nearest() -> None:
    code, out, err = _translate("openai-chat", "agentscpe", "")
    assert (code, out) == (2, "")
    assert err.startswith("unknown dialect 'agentscpe'; did you mean 'agentscope'?")


def test_translate_exits_2_for_an_unknown_what() -> None:
    assert _translate("openai-chat", "agentscope", "", "answers")[0] == 2


# ------------------------------------------------------------------ chat

DOORS = (("/v1", "openai-chat"), ("/agentscope", "agentscope"))


def _chat(demo: Server, door: tuple[str, str], *text: str, input: str = "") -> tuple[int, str, str]:
    return bridge("chat", demo.url + door[0], *text, "--dialect", door[1], input=input)


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door[1])
def test_chat_keeps_the_text_apart_from_the_rest(demo: Server, door: tuple[str, str]) -> None:
    code, out, err = _chat(demo, door, "reasoning")
    assert (code, out) == (0, "The answer is 42.\n")
    assert "[thinking] The user wants to see me think." in err
    assert "[12 tokens in, 34 out]" in err
    code, out, err = _chat(demo, door, "tool")
    assert (code, out) == (0, "Let me look.\n")
    assert '[calls get_weather] {"city": "Paris"}' in err


def test_chat_does_not_mix_calls_that_are_written_at_the_same_time(capsys: pytest.CaptureFixture[str]) -> None:
    screen = _Screen()
    for part_id, name in (("1", "look"), ("2", "find"), ("3", "read"), ("4", "stop")):
        screen.show([PartStarted(part_id, "m", PartKind.TOOL_CALL, part_id, name)])
    for part_id, text in (("3", '{"c"'), ("1", '{"a"'), ("2", '{"b"'), ("1", ":1}"), ("3", ":3}")):
        screen.show([ArgsDelta(part_id, text)])
    screen.show([PartEnded("3"), PartEnded("1"), ArgsDelta("2", ":2}"), TextDelta("5", "Well."), PartEnded("2")])
    screen.show([PartEnded("4")])
    screen.show([ToolResulted("1", [Text("cold")])])
    out, err = capsys.readouterr()
    assert out == "Well."
    assert err == '[calls look] {"a":1}\n[calls find] {"b":2}\n[calls read] {"c":3}\n[calls stop] \n[result] cold\n'


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door[1])
def test_chat_exits_1_when_the_answer_failed(demo: Server, door: tuple[str, str]) -> None:
    code, out, err = _chat(demo, door, "error late")
    assert (code, out) == (1, "Half an ans\n")
    assert "[backend_error] The demo agent failed in the middle, as you asked." in err


def test_chat_reads_a_conversation_from_stdin(demo: Server) -> None:
    code, out, _ = _chat(demo, DOORS[0], input="reasoning\n\ntext\n")
    assert code == 0
    assert out.splitlines()[0] == "The answer is 42."
    assert out.splitlines()[1].startswith("Plain text: café, 你好")


def test_chat_takes_the_text_after_the_dialect(demo: Server) -> None:
    code, out, err = bridge("chat", f"{demo.url}/v1", "--dialect", "openai-chat", "--model", "m", "server", "tool")
    assert (code, out) == (0, "It is sunny in Paris, 21 C.\n"), err


def test_chat_exits_1_where_nobody_listens() -> None:
    code, out, err = bridge("chat", f"http://127.0.0.1:{free_port()}/v1", "Hi", "--dialect", "openai-chat")
    assert (code, out) == (1, "")
    assert "[backend_unavailable]" in err


def test_chat_needs_a_url_with_a_scheme() -> None:
    code, out, err = bridge("chat", "127.0.0.1:8080/v1", "Hi", "--dialect", "openai-chat")
    assert (code, out, err) == (2, "", "expected a URL such as https://host/v1, got '127.0.0.1:8080/v1'\n")


def test_chat_suggests_the_nearest_dialect() -> None:
    code, out, err = bridge("chat", "http://127.0.0.1:1", "Hi", "--dialect", "openai-cht")
    assert (code, out) == (2, "")
    assert err.startswith("unknown dialect 'openai-cht'; did you mean 'openai-chat'?")


# ------------------------------------------------------------------ serve


def _hello(url: str) -> bytes:
    body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "Hello"}], "stream": True})
    done = run("curl", "-sSN", f"{url}/v1/chat/completions", "-H", "content-type: application/json", "-d", body)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_port_in_use_is_said_plainly(demo: Server) -> None:
    code, out, err = bridge("serve", "config.yaml", "--port", str(demo.port))
    assert (code, out) == (1, "")
    assert err.startswith(f"cannot listen on 127.0.0.1:{demo.port}: ")
    assert "Address already in use" in err
    assert "Traceback" not in err


def test_serve_refuses_a_wrong_configuration(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(BAD)
    code, out, err = bridge("serve", "bad.yaml", cwd=tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith("bad.yaml:7: ")
    code, out, err = bridge("serve", "config.yaml", "--port", "70000")
    assert (code, out) == (2, "")
    assert "argument --port: expected 0 to 65535, got '70000'" in err


def test_log_lines_as_json(tmp_path: Path) -> None:
    with serve(tmp_path, "config.yaml", "--log-format", "json") as served:
        assert _hello(served.url).endswith(b"data: [DONE]\n\n")
        assert served.stop() == 0
        lines = [json.loads(line) for line in served.err.splitlines()]
    (line,) = [entry for entry in lines if entry["message"] == "run"]
    assert (line["route"], line["front"], line["back"]) == ("/v1", "openai-chat", "demo")
    assert (line["http"], line["status"], line["tokens_out"]) == (200, "stop", 34)
    assert all({"time", "level", "message"} <= entry.keys() for entry in lines)


def test_a_quiet_log_has_no_line_for_runs(tmp_path: Path) -> None:
    with serve(tmp_path, "config.yaml", "--log-level", "warning") as served:
        _hello(served.url)
        assert served.stop() == 0
        assert served.err == ""


def _both_listen(served: Server) -> None:
    deadline = time.monotonic() + 20
    while listeners(served.port) < 2:
        assert time.monotonic() < deadline, served.err
        time.sleep(0.02)


def test_two_workers_answer_and_stop_together(tmp_path: Path) -> None:
    with serve(tmp_path, "config.yaml", "--workers", "2") as served:
        _both_listen(served)
        for _ in range(8):
            assert _hello(served.url).endswith(b"data: [DONE]\n\n")
        assert served.stop() == 0
        assert listeners(served.port) == 0
        assert served.out.count("curl -N") == 2, "the routes are announced once"
        assert served.err.count(" INFO run ") == 8
        assert served.err.count(" INFO stopping; ") == 2
        assert "Traceback" not in served.err


def test_what_two_workers_print_works_at_once(tmp_path: Path) -> None:
    with serve(tmp_path, "config.yaml", "--workers", "2", ready=None) as served:
        assert listeners(served.port) >= 1


def test_ctrl_c_stops_it_cleanly(tmp_path: Path) -> None:
    with serve(tmp_path, "config.yaml") as served:
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(10) == 0
        assert "Traceback" not in served.err


def test_a_reader_that_leaves_is_no_traceback() -> None:
    command = f"{shlex.quote(COMMAND)} schema | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=30, check=False)
    assert done.stdout == b"{"
    assert b"Traceback" not in done.stderr
