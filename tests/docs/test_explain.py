"""`translate --explain` on recordings; `python -m tests.docs.test_explain` writes the expected files anew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bridge import __version__
from bridge.cli.explain import Explanation, _size
from bridge.errors import ConfigError
from tests.docs.helpers import ROOT, bridge

CAPTURES = ROOT / "tests" / "captures"
GOLDEN = Path(__file__).parent / "explained"
CASES = {
    "stream": ("agentscope/plugin_call.response.sse", "agentscope", "openai-chat", "stream"),
    "cut-stream": ("openai-chat/eof-before-finish.sse", "openai-chat", "ag-kit", "stream"),
    "request": ("agentscope/text_deltas.request.json", "agentscope", "anthropic-messages", "request"),
    "response": ("openai-chat/json-tool.json", "openai-chat", "anthropic-messages", "response"),
}


def explained(name: str, width: int = 120) -> str:
    file, source, target, what = CASES[name]
    return Explanation((CAPTURES / file).read_bytes(), source, target, what).text(width).replace(__version__, "VERSION")


@pytest.mark.parametrize("name", CASES)
def test_a_recording_is_explained(name: str) -> None:
    assert explained(name) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [80, 133, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = explained("stream", width)
    assert max(sum(map(_size, line)) for line in text.split("\n")[2:]) <= width
    # The width moves where lines end and nothing else.
    columns = [[re.sub(r"\s", "", cell) for cell in line.split(" | ", 2)] for line in text.split("\n")[4:]]
    wide = [[re.sub(r"\s", "", cell) for cell in line.split(" | ", 2)] for line in explained("stream").split("\n")[4:]]
    assert "".join(cells[0] for cells in columns) == "".join(cells[0] for cells in wide), "nothing is cut off"


def test_what_a_terminal_would_obey_is_escaped() -> None:
    text = Explanation(b'data: \x1b[2J\xff"\t\xe4\xbd\xa0e\xcc\x81\n\n', "openai-chat", "ag-ui", "stream").text(120)
    assert r'data: \x1b[2J\xff"\t' in text
    assert "\x1b" not in text
    assert "你" in text


def test_a_request_that_is_none_is_shown_with_the_reason() -> None:
    shown = Explanation(b'{"model": "m", "messages": 3}', "openai-chat", "ag-ui", "request")
    assert "invalid_request: messages" in shown.text(300)
    assert shown.failed


def test_an_unknown_dialect_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'ag-ui'"):
        Explanation(b"", "ag-iu", "openai-chat", "stream")


def test_the_command_writes_it_instead_of_the_bytes() -> None:
    file, source, target, what = CASES["stream"]
    data = (CAPTURES / file).read_bytes()
    command = ("translate", "--explain", "--from", source, "--to", target, "--what", what)
    code, out, err = bridge(*command, input=data, COLUMNS="120")
    assert (code, err) == (0, "")
    assert out.replace(__version__, "VERSION") == (GOLDEN / "stream.txt").read_text(encoding="utf-8")


def test_the_command_exits_1_when_there_is_no_translation() -> None:
    code, out, err = bridge(
        "translate", "--explain", "--from", "ag-ui", "--to", "ag-kit", "--what", "request", input="{"
    )
    assert (code, err) == (1, "")
    assert "invalid_request: " in out


if __name__ == "__main__":
    for case in CASES:
        (GOLDEN / f"{case}.txt").write_text(explained(case), encoding="utf-8")
