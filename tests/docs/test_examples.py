"""Every program in examples/ runs to its end, and shows what it says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.docs.helpers import EXAMPLES, Server, bridge, run, server
from tests.server.harness import free_port

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
    "openai_client": (
        "models: ['demo']",
        "forty-two.The answer is 42.",
        'calls: get_weather {"city": "Paris"}',
        "says: The tool said: sunny, 21 C.",
    ),
}


def test_every_example_is_tried() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SHOWS, "mount"}


@pytest.mark.parametrize("name", SHOWS)
def test_it_runs_to_its_end(name: str, demo: Server) -> None:
    done = run(sys.executable, "-W", "error", f"examples/{name}.py", BRIDGE_URL=demo.url)
    assert done.returncode == 0, done.stderr.decode()
    for told in SHOWS[name]:
        assert told in done.stdout.decode()


@pytest.mark.parametrize("name", [*SHOWS, "mount"])
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
