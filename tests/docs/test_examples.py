"""Every program in examples/ runs to its end, and shows what it says."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from bridge import decode, fold, pretty
from bridge.contract import Operation, offers, registry
from tests.docs.helpers import COMMAND, EXAMPLES, ROOT, Server, blocks_of, bridge, run, server
from tests.server.harness import free_port

pytestmark = pytest.mark.slow

AT_ONCE = [name for name in registry.names() if offers(registry.get(name).surface, Operation.RUN)]

SHOWS = {
    "library_translate": ('"text":"Hello, world!"', "lost: []", "data: [DONE]"),
    "own_sockets": ("The answer is 42.", '"status":"completed"', '"session_id":"s-1"'),
    "in_process": (
        "text: Let me look.",
        "calls: [('get_weather', '{\"city\": \"Paris\"}')]",
        "reason: tool_calls",
        "thinks: The user wants",
        "ends: stop",
    ),
    "agent": ("ReasoningDelta(", "'look.'", "ToolCall("),
    "stage": ("YOU SAID: HELLO",),
    "chain": tuple(f"{name}: You asked: What is the weather in Paris? It is sunny. (6 tokens)" for name in AT_ONCE),
    "dialect_toy": ('"delta":{"content":"Hello"}', "data: [DONE]", "RunFinished"),
    "aip_tools": (
        "the model is offered: ['add']",
        "the tool adds 17 and 25",
        "chat client: It is 42.",
        "AIP client: It is 42.",
    ),
    "openai_client": (
        "models: ['demo']",
        "forty-two.The answer is 42.",
        'calls: get_weather {"city": "Paris"}',
        "says: The tool said: sunny, 21 C.",
    ),
}

TRIED_APART = ("convert", "mount", "starlette_app")


def test_every_example_is_tried() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SHOWS, *TRIED_APART}


@pytest.mark.parametrize("name", SHOWS)
def test_it_runs_to_its_end(name: str, demo: Server) -> None:
    done = run(sys.executable, "-W", "error", f"examples/{name}.py", BRIDGE_URL=demo.url)
    assert done.returncode == 0, done.stderr.decode()
    for told in SHOWS[name]:
        assert told in done.stdout.decode()


@pytest.mark.parametrize("name", [*SHOWS, *TRIED_APART])
def test_it_says_how_to_run_it(name: str) -> None:
    docstring = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8").split('"""')[1]
    assert f"python examples/{name}.py" in docstring


def test_own_sockets_ends_as_agentscope_does(demo: Server) -> None:
    done = run(sys.executable, "examples/own_sockets.py", BRIDGE_URL=demo.url)
    last = json.loads(done.stdout.decode().rstrip().rpartition("\n\n")[2].removeprefix("data: "))
    assert (last["object"], last["status"]) == ("response", "completed")
    assert done.stderr == b"lost: ['thread_id']\n"


def test_mounted_in_an_application_of_ones_own(tmp_path: Path) -> None:
    port = free_port()
    with server(
        tmp_path, sys.executable, "-W", "error", "examples/mount.py", port=port, ready="/", PORT=str(port)
    ) as served:
        assert run("curl", "-sS", f"{served.url}/").stdout == b"My own page.\n"
        for path, dialect in (("/llm/v1", "openai-chat"), ("/llm/agentscope", "agentscope")):
            code, out, err = bridge("chat", served.url + path, "reasoning", "--dialect", dialect)
            assert (code, out) == (0, "The answer is 42.\n"), err
        assert served.stop() == 0
        assert "Traceback" not in served.err


def test_in_a_starlette_application(tmp_path: Path) -> None:
    port = free_port()
    command = (sys.executable, "-W", "error", "examples/starlette_app.py")
    with server(tmp_path, *command, port=port, ready="/", PORT=str(port)) as served:
        assert run("curl", "-sS", served.url).stdout == b"My own page.\n"
        for path, dialect in (("v1", "openai-chat"), ("agentscope", "agentscope")):
            code, out, err = bridge("chat", f"{served.url}/llm/{path}", "reasoning", "--dialect", dialect)
            assert (code, out) == (0, "The answer is 42.\n"), err
        assert served.stop() in (0, -15)
        assert "Traceback" not in served.err


def test_programs_and_recipes_have_types(tmp_path: Path) -> None:
    """The examples, and the Python of the pages: mypy, strict."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for block in blocks_of(page.read_text(encoding="utf-8")):
            if block.language == "python" and not block.mark.startswith("file:") and "openai import" not in block.text:
                (tmp_path / f"{page.stem.lower().replace('-', '_')}_{block.line}.py").write_text(block.text)
    # The package `openai` has types of its own for every dict that a program would write.
    programs = [path for path in EXAMPLES.glob("*.py") if "openai import" not in path.read_text(encoding="utf-8")]
    files = sorted(map(str, [*programs, *tmp_path.glob("*.py")]))
    # `make types` has checked the package itself: its cache spares that here.
    options = ("--strict", "--cache-dir", str(ROOT / ".mypy_cache"), "--config-file", str(ROOT / "pyproject.toml"))
    assert len(files) > 14
    done = run(sys.executable, "-m", "mypy", *options, *files, fresh=True, PYTHONPATH=str(ROOT), MYPYPATH=str(EXAMPLES))
    assert done.returncode == 0, done.stdout.decode()


def test_a_recording_on_the_command_line() -> None:
    data = (ROOT / "tests" / "captures" / "agentscope" / "plugin_call.response.sse").read_bytes()
    told = run(sys.executable, "-W", "error", "examples/convert.py", "agentscope", "openai-chat", input=data)
    assert (told.returncode, told.stderr) == (0, b"lost: tool_result\n")
    assert fold(decode(told.stdout, "openai-chat")).text == "It is sunny, 21C."
    lines = run(sys.executable, "examples/convert.py", "agentscope", "events", input=data).stdout.decode()
    assert lines.count("\n") == pretty(decode(data, "agentscope")).count("\n") + 1
    assert run(sys.executable, "examples/convert.py").returncode == 1
    wrong = run(sys.executable, "examples/convert.py", "agentscop", "ag-ui")
    assert (wrong.returncode, b"did you mean 'agentscope'" in wrong.stderr) == (1, True)


def test_a_chain_is_served_in_every_dialect(tmp_path: Path) -> None:
    port = free_port()
    command = (sys.executable, "-W", "error", "examples/chain.py", "serve")
    with server(tmp_path, *command, port=port, PORT=str(port)) as served:
        for name in AT_ONCE:
            code, out, err = bridge("chat", f"{served.url}/{name}/v1", "Rain?", "--dialect", name, "--model", "m")
            assert (code, out) == (0, "You asked: Rain? It is sunny.\n"), err
        assert served.stop() == 0
        assert "Traceback" not in served.err


MODEL = """
backends: {llm: {dialect: python, target: "examples.aip_tools:model"}}
routes: [{dialect: openai-chat, path: /v1, backend: llm}]
stores: {history: "off"}
"""


def test_a_tool_through_aip_in_three_terminals(tmp_path: Path) -> None:
    """The bridge with a gateway, a tool, clients; and a scripted model in a process of its own."""
    (tmp_path / "model.yaml").write_text(MODEL)
    serve = (COMMAND, "serve", "--port", "{port}")
    script = (sys.executable, "-W", "error", "examples/aip_tools.py")
    listen = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        model = stack.enter_context(server(tmp_path, *serve, str(tmp_path / "model.yaml")))
        variables = {"AIP_LISTEN": listen, "OPENAI_BASE_URL": f"{model.url}/v1"}
        bridged = stack.enter_context(server(tmp_path, *serve, "examples/configs/aip-tools.yaml", **variables))
        tool = stack.enter_context(server(tmp_path, *script, "tool", ready=None, mark="registered at", **variables))
        done = run(*script, "ask", BRIDGE_URL=bridged.url, **variables)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.decode() == "chat client: It is 42.\nAIP client: It is 42.\n"
        assert tool.out.count("the tool adds 17 and 25") == 2
