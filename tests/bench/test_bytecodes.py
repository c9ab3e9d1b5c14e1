"""Bytecodes are counted where they run, and the page says whose they are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import counted
from bytecodes import DETAILED, RAW, Profile, is_ours, page, room

PROGRAM = """
import os, signal, sys
def once():
    pass
def work(times):
    for _ in range(times):
        once()
times = int(sys.argv[1])
work(times)  # not counted yet
os.kill(os.getpid(), signal.SIGRTMIN)
work(times)
os.kill(os.getpid(), signal.SIGRTMIN + 1)
work(times)
"""


def _counts(folder: Path, times: int) -> dict[str, int]:
    program, file = folder / "program.py", folder / "counts.json"
    program.write_text(PROGRAM)
    subprocess.run([sys.executable, counted.__file__, str(file), str(program), str(times)], check=True, timeout=40)
    found: dict[str, int] = json.loads(file.read_text())
    return {name.rpartition(":")[2]: number for name, number in found.items()}


def test_what_runs_between_the_signals_is_counted(tmp_path: Path) -> None:
    few, many = _counts(tmp_path, 10), _counts(tmp_path, 30)
    assert few["once"] > 0
    assert many["once"] == 3 * few["once"]
    each = (many["work"] - few["work"]) / 20
    assert 0 < each == int(each)
    assert few["work"] > 10 * each


def test_a_module_runs_as_it_does_by_itself(tmp_path: Path) -> None:
    command = [sys.executable, counted.__file__, str(tmp_path / "counts.json"), "-m", "bridge.cli", "--version"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=40, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.startswith("dialect-bridge ")


def test_functions_belong_to_rooms() -> None:
    assert room("bridge/run/run.py:Run.read") == "bridge/run"
    assert room("bridge/errors.py:wrong") == "bridge/errors"
    assert room("bridge/dialects/ag_ui/write_answer.py:Encoder.encode") == "bridge/dialects/ag_ui"
    assert room("aiohttp/client.py:ClientSession._request") == "aiohttp"
    assert room("functools.py:partial") == "functools"
    assert is_ours("bridge/dialects/ag_ui/write_answer.py:Encoder.encode")
    assert not is_ours("aiohttp/client.py:ClientSession._request")


def test_the_page_divides_by_the_reference_of_the_same_wire() -> None:
    ours, theirs = {"bridge/a.py:f": 30.0}, {"aiohttp/b.py:g": 20.0}
    found = {(RAW, "openai-chat -> openai-chat"): Profile(theirs, {"aiohttp/b.py:g": 10.0})}
    for pair in DETAILED:
        found["dialect-bridge", pair] = Profile({**ours, **theirs}, {"bridge/a.py:f": 12.0})
    where: dict[str, Any] = {"commit": "abc", "python": "CPython 3", "packages": {"aiohttp": "3"}}
    text = page(found, where)
    for pair in DETAILED:
        assert f"| {pair} | 50 | 30 | 20 | 2.50 | 12 | 12 | 10 | 1.20 |" in text
        assert f"## {pair}" in text
    assert "| `bridge/a.py:f` | 30 | 0 |" in text
    assert "| aiohttp | 20 | 20 | 0 | 10 |" in text
