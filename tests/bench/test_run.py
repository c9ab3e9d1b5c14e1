"""Who is measured when: turns, repeats, and who is not asked again."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import run
from results import RAW, Measured
from scenarios import Scenario
from targets import Case, Target

PLAIN = Scenario("plain-c1", "a trial", "plain", 1, 1.0)
SHORT = Scenario("stream-short", "a trial", "stream", 1, 1.0)
ONCE = Scenario("stream-burst", "a trial", "stream", 1, 1.0, asked=True, repeats=1)
GOOD = {"ok": 3, "bad": 0, "errors": {}, "cpu_us_per_event": 7.0}


class Runner:
    """A run of targets without processes; `asked` is who was measured, in order."""

    def __init__(self, folder: Path, chosen: list[Scenario], repeats: int, monkeypatch: pytest.MonkeyPatch) -> None:
        case = {"front": "openai-chat", "back": "openai-chat", "path": "/"}
        targets = [Target({"name": name, "base": "http://none", "cases": [case]}, {}) for name in "abc"]
        options = {"chosen": chosen, "repeats": repeats, "together": True, "reference": RAW, "judged": False}
        self.bench = run.Bench(targets, None, Namespace(out=folder, **options))  # type: ignore[arg-type]
        self.asked: list[tuple[str, str]] = []
        self.answers: dict[str, dict[str, Any]] = {}
        monkeypatch.setattr(run, "measure", self.measure)

    def measure(self, target: Target, case: Case, scenario: Scenario, mock: object) -> dict[str, Any]:
        self.asked.append((target.name, scenario.name))
        return dict(self.answers.get(target.name, GOOD))


def test_every_second_repeat_goes_backwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(tmp_path, [SHORT], 3, monkeypatch)
    runner.bench.run()
    assert "".join(name for name, _ in runner.asked) == "abc" + "cba" + "abc"


def test_a_scenario_runs_where_it_fits_and_as_often_as_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(tmp_path, [PLAIN, SHORT, ONCE], 2, monkeypatch)
    runner.bench.targets[0].cases = [Case("openai-chat", "openai-chat", "/", also=("stream-burst",))]
    runner.bench.run()
    assert [s for name, s in runner.asked if name == "a"] == ["stream-short", "stream-burst", "stream-short"]
    assert [s for name, s in runner.asked if name == "b"] == ["stream-short", "stream-short"]


def test_who_gave_no_reply_is_not_asked_again_and_the_run_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner(tmp_path, [SHORT], 2, monkeypatch)
    runner.answers["b"] = {"ok": 0, "bad": 2, "errors": {"timeout": 2}}
    assert not runner.bench.wrong
    runner.bench.run()
    assert "".join(name for name, _ in runner.asked) == "abc" + "ca"
    assert runner.bench.wrong


def test_a_run_leaves_what_it_has_after_every_repeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(tmp_path, [SHORT], 1, monkeypatch)
    runner.bench.run()
    kept = Measured.read(tmp_path / "performance.json")
    assert kept == runner.bench.measured
    assert [(r.target, r.figures) for r in kept.rows] == [(name, {"cpu_us_per_event": [7.0]}) for name in "abc"]
    assert list(kept.scenarios) == ["stream-short"]
