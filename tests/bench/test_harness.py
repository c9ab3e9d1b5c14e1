"""The harness from end to end, too short to measure anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from results import Measured

from tests.docs.helpers import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]
SHORT = ("--repeats", "1", "--seconds", "0.1")


def bench(out: Path, *options: str) -> tuple[int, str]:
    command = [sys.executable, str(ROOT / "bench" / "run.py"), *SHORT, "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    return done.returncode, done.stderr


def test_all_wires_are_measured_and_checked(tmp_path: Path) -> None:
    status, said = bench(tmp_path, "--only", "aiohttp-raw,bridge-asyncio", "--scenarios", "stream-paced-c32")
    assert status == 0, said
    found = Measured.read(tmp_path / "performance.json")
    assert {r.target for r in found.rows} == {"aiohttp-raw", "bridge-asyncio"}
    assert len(found.rows) == 12
    for row in found.rows:
        assert row.wrong == {}
        assert row.median("cpu_us_per_event") is not None
    assert found.short
    assert found.targets["bridge-asyncio"].event_loop == "asyncio"
    assert "short trial" in (tmp_path / "performance.md").read_text()


def test_what_is_not_installed_is_skipped_loudly_and_what_does_not_start_fails_the_run(tmp_path: Path) -> None:
    case = {"front": "openai-chat", "back": "openai-chat", "path": "/v1/chat/completions"}
    absent = {"name": "absent", "needs": ["no-such-program"], "start": ["no-such-program"], "cases": [case]}
    (tmp_path / "one.json").write_text(json.dumps({"targets": [absent]}))
    status, said = bench(tmp_path, str(tmp_path / "one.json"))
    assert status == 0, said
    assert "!!! SKIPPED: target absent, because no-such-program is not installed" in said
    broken = {"name": "broken", "start": [sys.executable, "-c", "raise SystemExit('no')"], "cases": [case]}
    (tmp_path / "two.json").write_text(json.dumps({"targets": [broken]}))
    status, said = bench(tmp_path, str(tmp_path / "two.json"))
    assert status == 1
    assert "!!! broken did not start: exit status 1" in said


def test_a_wrong_reply_fails_the_run(tmp_path: Path) -> None:
    case = {"front": "agentscope", "back": "openai-chat", "path": "/v1/chat/completions"}
    target = {"name": "mistaken", "base": "{upstream}", "cases": [case]}
    (tmp_path / "one.json").write_text(json.dumps({"targets": [target]}))
    status, said = bench(tmp_path, str(tmp_path / "one.json"), "--scenarios", "stream-short")
    assert status == 1
    assert "WRONG" in said
