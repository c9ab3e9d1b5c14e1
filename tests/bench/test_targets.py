"""What `make bench` runs: every dialect, everything switched on, a reference for whatever has a budget."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import instructions
import machine
import pytest
import run
import scenarios
import wires
import yaml
from budgets import PER_PAIR
from results import ELSEWHERE, PEERS, RAW, SUBJECT
from targets import Case, Target, read

from bridge.contract import registry
from bridge.engine.config import load
from tests.docs.helpers import ROOT

TARGETS = {t.name: t for t in read(list(run.FILES), None, {"upstream": "http://127.0.0.1:1", "port": "2"})}
STREAMED = [(c.front, c.back) for t in TARGETS.values() for c in t.cases if c.stream and "bridge" in t.name]


def configured(target: Target, folder: Path) -> Path:
    path = folder / "config.yaml"
    path.write_text(target.fill("\n".join(target.spec["files"]["config.yaml"])))
    return path


SPOKEN = [d for d in map(registry.get, registry.served()) if d.called and d.framing != "json_lines"]
"""The load generator reads event streams and gRPC."""


@pytest.mark.parametrize("dialect", [d.name for d in SPOKEN])
def test_every_dialect_is_measured_over_a_model_and_over_itself(dialect: str) -> None:
    assert (dialect, "openai-chat") in STREAMED
    assert (dialect, dialect) in STREAMED


def test_the_bridge_has_switched_on_what_the_example_has(tmp_path: Path) -> None:
    example, measured = load(ROOT / "config.yaml"), load(configured(TARGETS[SUBJECT], tmp_path))
    assert example.stores.history is not None
    assert measured.stores == example.stores
    kept = {"host", "port", "limits"}
    assert measured.server.model_dump(exclude=kept) == example.server.model_dump(exclude=kept)
    assert measured.server.metrics is not None
    assert measured.server.limits.queue == example.server.limits.queue
    assert "--log-level" not in TARGETS[SUBJECT].spec["start"]


@pytest.mark.parametrize("name", ["bridge-2-workers", "bridge-asyncio"])
def test_what_is_compared_with_the_bridge_has_its_configuration(name: str) -> None:
    assert TARGETS[name].spec["files"] == TARGETS[SUBJECT].spec["files"]
    assert TARGETS[name].reference == SUBJECT


def test_debians_interpreter_is_measured_with_the_same_configuration_and_cases() -> None:
    for name, there in ELSEWHERE.items():
        here, target = TARGETS[name], TARGETS[there]
        assert target.spec["start"][1:] == here.spec["start"][1:]
        assert target.spec.get("files") == here.spec.get("files")
        assert {(c.name, c.path) for c in target.cases} <= {(c.name, c.path) for c in here.cases}
        assert target.spec["needs"] == target.spec["start"][:1] == ["{venv}/debian/bin/python"]
        assert {a.case for a in instructions.ASKED if a.target == there} == {c.name for c in target.cases}


def test_a_target_can_be_like_one_that_there_is_only(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps({"targets": [{"name": "mine", "like": "none", "cases": []}]}))
    with pytest.raises(ValueError, match="target mine: it is to be like none, which is not among the targets"):
        read([tmp_path / "mine.json"], None, {})


def test_each_budget_has_cases_and_a_reference_for_each() -> None:
    for budget in PER_PAIR:
        scenario = scenarios.BY_NAME[budget.scenario]
        own = [c for c in TARGETS[SUBJECT].cases if c.wants(scenario) and budget.kept in (None, c.kept)]
        base = {c.back for c in TARGETS[RAW].cases if c.wants(scenario)}
        assert own, budget
        assert {c.back for c in own} <= base, budget


# ---- other gateways: what can be checked without them


def test_other_gateways_are_installed_from_pinned_versions_each_in_its_own_environment() -> None:
    files = {path.stem: path for path in (ROOT / "bench" / "peers").glob("*.txt")}
    assert (
        set(files) == set(PEERS) == {t for t in TARGETS if "{venv}" in str(TARGETS[t].spec)} - set(ELSEWHERE.values())
    )
    commands = subprocess.run(["make", "-n", "bench"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rule = subprocess.run(["make", "-pn", "bench"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name, path in files.items():
        pins = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins), name
        assert any(pin.startswith(f"{name}==") for pin in pins)
        assert machine.machine()["packages"][name] in path.read_text()
        assert all(p.startswith(f"{{venv}}/{name}/bin/") for p in TARGETS[name].spec["needs"])
        assert f".venv/{name}/.done" in commands + rule


def routes(name: str, folder: Path) -> dict[str, tuple[str, str]]:
    """The dialect and the address of the backend of each model that a gateway's configuration has."""
    target = TARGETS[name]
    ((_, lines),) = target.spec["files"].items()
    target.fills |= {"port": "1234", "tmp": str(folder)}
    text = target.fill("\n".join(lines))
    dialects = {
        "openai_chat": "openai-chat",
        "anthropic_messages": "anthropic-messages",
        "anthropic": "anthropic-messages",
    }
    if name == "nemo-switchyard":
        found = tomllib.loads(text)
        clients = {t: found["llm_clients"][target["llm_client"]] for t, target in found["targets"].items()}
        used = {route["id"]: clients[route["target"]] for route in found["routes"].values()}
        return {model: (dialects[client["format"]], client["base_url"]) for model, client in used.items()}
    if name == "llm-rosetta":
        found = json.loads(text)
        used = {model: found["providers"][provider] for model, provider in found["models"].items()}
        return {model: (dialects[provider["type"]], provider["base_url"]) for model, provider in used.items()}
    found = yaml.safe_load(text)
    return {m["model_name"]: ("openai-chat", m["litellm_params"]["api_base"]) for m in found["model_list"]}


@pytest.mark.parametrize("name", PEERS)
def test_each_case_of_another_gateway_asks_for_a_model_of_its_backend(name: str, tmp_path: Path) -> None:
    known = routes(name, tmp_path)
    assert all(url.startswith("http://127.0.0.1:1/") for _, url in known.values())
    for case in TARGETS[name].cases:
        assert known[case.payload()["model"]][0] == case.back, case.name
        assert case.payload()["stream"] is case.stream


@pytest.mark.parametrize("name", PEERS)
def test_what_another_gateway_is_measured_with_the_bridge_has_too(name: str) -> None:
    for scenario in scenarios.ALL:
        own = {c.name for c in TARGETS[SUBJECT].cases if c.wants(scenario)}
        assert {c.name for c in TARGETS[name].cases if c.wants(scenario)} <= own


def test_a_gateway_that_is_not_installed_is_named_without_its_folder(tmp_path: Path) -> None:
    fill = {"venv": str(tmp_path / "venv")}
    target = Target({"name": "mine", "needs": ["{venv}/mine/bin/python", str(tmp_path / "none")], "cases": []}, fill)
    assert target.absent() == "mine/bin/python, none"


def test_each_case_of_a_target_is_told_apart_by_its_name() -> None:
    for target in TARGETS.values():
        assert len({c.name for c in target.cases}) == len(target.cases), target.name


def test_references_are_targets() -> None:
    assert {t.reference for t in TARGETS.values() if t.reference} <= set(TARGETS)


@pytest.mark.parametrize(
    "change", [{"front": "smoke-signs"}, {"only": ["stream-slow"]}, {"also": ["stream-slow"]}, {"skip": []}]
)
def test_a_case_that_says_what_there_is_not_is_refused(change: dict[str, object]) -> None:
    case = {"front": "openai-chat", "back": "openai-chat", "path": "/", **change}
    with pytest.raises(ValueError, match="target mine: "):
        Target({"name": "mine", "cases": [case]}, {})


def test_a_case_runs_what_it_asks_for() -> None:
    def wanted(**more: tuple[str, ...]) -> list[str]:
        return [s.name for s in scenarios.ALL if Case("openai-chat", "openai-chat", "/", **more).wants(s)]  # type: ignore[arg-type]

    assert wanted() == ["stream-short", "stream-burst-32", "stream-paced-c32"]
    assert wanted(also=("stream-hold-c256",)) == [*wanted(), "stream-hold-c256"]
    assert wanted(only=("stream-short",), also=("stream-hold-c256",)) == ["stream-short", "stream-hold-c256"]
    assert wanted(only=("plain-c32",)) == []


@pytest.mark.parametrize(("kilobytes", "messages"), [(1, 1), (100, 101), (5000, 1)])
def test_requests_have_the_size_that_is_said(kilobytes: int, messages: int) -> None:
    body = Case("openai-chat", "openai-chat", "/").payload(kilobytes)
    assert len(json.dumps(body)) == pytest.approx(kilobytes * 1024, rel=0.12)
    assert len(body["messages"]) == messages
    assert body == wires.grown(wires.BODIES["openai-chat"], kilobytes)


@pytest.mark.parametrize(
    ("options", "judged"),
    [
        ([], True),
        (["--no-together"], True),
        (["--repeats", "5"], False),
        (["--scenarios", "all"], False),
        (["--only", "nginx"], False),
        (["--seconds", "1"], False),
        (["mine.json"], False),
    ],
)
def test_only_the_whole_run_writes_the_documentation(
    options: list[str], judged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["run.py", *options])
    args = run.arguments()
    assert (args.judged, args.docs) == (judged, False)
    assert args.repeats >= 5


@pytest.mark.parametrize(("allowed", "left_out"), [(4096, ["stream-hold-c5000"]), (20000, []), (-1, [])])
def test_what_needs_more_open_files_than_there_may_be_is_left_out_loudly(
    allowed: int, left_out: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken: list[tuple[int, int]] = []
    monkeypatch.setattr(run.resource, "getrlimit", lambda _: (1024, allowed))
    monkeypatch.setattr(run.resource, "setrlimit", lambda _, limits: taken.append(limits))
    run_now = run.open_files(scenarios.ALL)
    assert [s.name for s in scenarios.ALL if s not in run_now] == left_out
    assert taken == [(allowed, allowed)]
    said = capsys.readouterr().err
    assert said.count("!!! SKIPPED") == len(left_out)
    assert all(name in said for name in left_out)
