"""docs/performance.md is what was measured: nobody writes figures by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import budgets
import pictures
import pytest
import report
from results import ELSEWHERE, PEERS, RAW, SUBJECT, Measured, TargetInfo

from tests.bench.made import measured, row
from tests.docs.helpers import ROOT, run

DOCS = ROOT / "docs"
KEPT = Measured.read(DOCS / "performance.json")
WRITTEN = (DOCS / "performance.md").read_text(encoding="utf-8")
BUDGETS = (DOCS / "performance-budgets.md").read_text(encoding="utf-8")


def test_the_page_is_what_was_measured() -> None:
    assert report.page(KEPT) == WRITTEN, "`make performance` writes it anew"
    assert report.budget_page(KEPT) == BUDGETS, "`make performance` writes it anew"


def test_the_page_leads_with_what_others_cost() -> None:
    """The picture beside other gateways is the first one, above every table; budgets are for maintainers."""
    assert re.findall(r"!\[[^\]]*\]\(images/([\w-]+)\.svg\)", WRITTEN) == ["performance-others"]
    assert WRITTEN.index("performance-others.svg") < WRITTEN.index("\n|")
    assert "Budget" not in WRITTEN.replace("performance-budgets.md", "")
    assert len(WRITTEN) < 15_000
    missing = [name for name in PEERS if name not in KEPT.targets]
    for name in missing:
        assert name in WRITTEN.partition("Not measured in this run:")[2].partition("\n")[0]


def test_the_pictures_are_what_was_measured() -> None:
    drawn = {d.file: d.svg for d in pictures.drawings(KEPT)}
    assert {p.name: p.read_text(encoding="utf-8") for p in (DOCS / "images").glob("performance-*")} == drawn
    assert {"performance-paced.svg", "performance-burst.svg", "performance-others.svg"} == set(drawn)


def test_the_file_is_what_the_harness_writes() -> None:
    assert KEPT.text() == (DOCS / "performance.json").read_text(encoding="utf-8")


def test_it_names_no_place_and_no_host() -> None:
    kept = (DOCS / "performance.json").read_text(encoding="utf-8") + WRITTEN
    facts = {"date", "commit", "processor", "cores", "memory_gb", "system", "python", "packages", "load_at_start"}
    assert set(KEPT.machine) == facts
    assert re.findall(r"(?<![\w.])/(?:tmp|root|home|work|usr|var|opt)\b[^\s\"]*", kept) == []
    assert str(ROOT) not in kept


def test_commands_measure_and_write() -> None:
    assert run("make", "-n", "performance").stdout.decode().endswith("python bench/report.py\n")
    assert run("make", "-n", "bench").stdout.decode().endswith("python bench/run.py \n")


def test_every_budget_has_its_line() -> None:
    section = BUDGETS.partition("# Performance budgets")[2].partition("## All figures")[0]
    for verdict in budgets.every(KEPT):
        assert f"| {verdict.what} | {verdict.case} | " in section
    assert {b.what for b in budgets.PER_PAIR} <= {v.what for v in budgets.every(KEPT)}
    assert "not measured" not in section


def test_what_was_measured_is_read_back_as_it_was(tmp_path: Path) -> None:
    found = measured(row(SUBJECT, [12.0, None]), row(RAW, [10.0, 11.0]))
    found.rows[0].wrong["timeout"] = 2
    found.codec = {"8": {"tight": 1.0}}
    (tmp_path / "run.json").write_text(found.text())
    again = Measured.read(tmp_path / "run.json")
    assert again == found
    assert again.text() == found.text()
    assert len(json.loads(found.text())["rows"]) == 2


def test_a_page_is_written_with_its_pictures(tmp_path: Path) -> None:
    report.write(measured(row(SUBJECT, [12.0, 12.5, 13.0]), row(RAW, [10.0, 10.0, 10.0])), tmp_path)
    page = (tmp_path / "performance-budgets.md").read_text()
    assert "| event, paced, 32 streams | openai-chat -> openai-chat | 1.30 | 1.00 | 1.25 | 1.20-1.30 | met |" in page
    assert "3 interleaved repeats" in (tmp_path / "performance.md").read_text()
    assert (tmp_path / "images" / "performance-paced.svg").exists()


def test_a_missed_budget_stands_out() -> None:
    page = report.budget_page(measured(row(SUBJECT, [14.0]), row(RAW, [10.0])))
    assert "| openai-chat -> openai-chat | 1.30 | 1.00 | 1.40 | 1.40-1.40 | **missed** |" in page
    assert "1 missed" in page


def test_a_pair_without_a_budget_gives_the_reason() -> None:
    page = report.budget_page(
        measured(row(SUBJECT, [90.0], "agent-runs", apart="it is stored first"), row(RAW, [10.0]))
    )
    assert "| agent-runs -> openai-chat | 1.30 | 1.00 | 9.00 | 9.00-9.00 | no budget |" in page
    assert "No budget for agent-runs -> openai-chat: it is stored first." in page


def test_other_gateways_stand_beside_the_bridge_for_the_pairs_that_they_have() -> None:
    found = measured(
        row(RAW, [10.0]),
        row(SUBJECT, [12.0]),
        row(SUBJECT, [15.0], "anthropic-messages"),
        row(SUBJECT, [19.0], "ag-ui"),
        row("nemo-switchyard", [11.0]),
        row("llm-rosetta", [30.0]),
        row("llm-rosetta", [40.0], "anthropic-messages"),
    )
    section = report.page(found).partition("## Compared with LiteLLM and other gateways")[2].partition("## How")[0]
    assert [line for line in section.splitlines() if line.startswith("| ")] == [
        "| scenario | pair | dialect-bridge | nemo-switchyard | llm-rosetta |",
        "| stream-paced-c32 | openai-chat -> openai-chat | 1.2 | 1.1 | 3 |",
        "| stream-paced-c32 | anthropic-messages -> openai-chat | 1.5 |  | 4 |",
    ]
    drawn = {d.file: d.svg for d in pictures.drawings(found)}["performance-others.svg"]
    words = [text.text for text in ElementTree.fromstring(drawn).iterfind(".//{*}text")]
    assert words.index("event of a paced stream") < words.index("nemo-switchyard") < words.index("llm-rosetta")


def test_without_other_gateways_there_is_no_section_for_them() -> None:
    assert "and other gateways" not in report.page(measured(row(SUBJECT, [12.0]), row(RAW, [10.0])))


def test_the_bridge_on_debians_interpreter_stands_beside_its_own_reference() -> None:
    there, raw_there = ELSEWHERE[SUBJECT], ELSEWHERE[RAW]
    found = measured(row(RAW, [10.0]), row(SUBJECT, [12.0]), row(raw_there, [8.0]), row(there, [10.0]))
    found.targets[there] = TargetInfo("dialect-bridge on Debian's CPython 3.11.2")
    section = report.page(found).partition("## On Debian's interpreter")[2].partition("\n## ")[0]
    assert [line.split(" | ")[2:] for line in section.splitlines() if line.startswith("| ")] == [
        [
            "aiohttp-raw, CPython 3.11.7",
            "dialect-bridge, CPython 3.11.7",
            "aiohttp-raw, Debian's CPython 3.11.2",
            "dialect-bridge, Debian's CPython 3.11.2",
            "ratio, CPython 3.11.7",
            "ratio, Debian's CPython 3.11.2 |",
        ],
        ["10", "12", "8", "10", "1.2", "1.25 |"],
    ]
    assert "interpreter" not in report.page(measured(row(RAW, [10.0]), row(SUBJECT, [12.0]))).partition("## How")[0]


def test_a_short_trial_says_so_and_a_judged_run_does_not() -> None:
    found = measured()
    assert "short trial" not in report.page(found)
    found.short = True
    assert "short trial" in report.page(found)


def test_what_could_not_be_measured_is_told() -> None:
    found = measured(row(SUBJECT, [12.0]))
    found.targets["nginx"] = TargetInfo("one worker", missing="nginx is not installed")
    assert "| nginx | **not measured**: nginx is not installed |" in report.page(found)


def test_wrong_replies_are_told() -> None:
    found = measured(row(SUBJECT, [12.0]))
    assert "## Wrong or missing replies" not in report.budget_page(found)
    found.rows[0].wrong.update({"timeout": 2, "status 503": 1})
    assert (
        "- dialect-bridge, openai-chat -> openai-chat, stream-paced-c32: timeout x 2, status 503 x 1"
        in report.budget_page(found)
    )


def test_a_target_is_compared_with_its_own_reference() -> None:
    found = measured(row("kept", [30.0]), row("not-kept", [20.0]), row(RAW, [10.0]))
    found.targets["kept"].reference = "not-kept"
    page = report.budget_page(found)
    assert "| kept | openai-chat -> openai-chat | 30 | 1.50 (of not-kept) | 1.50-1.50 |" in page
    assert "| not-kept | openai-chat -> openai-chat | 20 | 2.00 | 2.00-2.00 |" in page


def test_other_event_loops_are_told() -> None:
    found = measured(row(SUBJECT, [12.0]), row(RAW, [10.0]))
    assert "Not like for like" not in report.page(found)
    found.targets[RAW].event_loop = "asyncio"
    assert "Not like for like" in report.page(found)


def _widths(svg: str) -> list[float]:
    bars = ElementTree.fromstring(svg).iterfind(".//{*}rect")
    return [float(bar.get("width", "0")) for bar in bars if bar.get("class") in ("met", "missed")]


BARS = [
    pictures.Bar("a & b", 1.0, "met"),
    pictures.Bar("c", 2.0, "missed", (1.5, 2.5)),
    pictures.Bar("d", 4.0, "met"),
]


def test_bars_are_as_long_as_their_values() -> None:
    one, two, four = _widths(pictures.bars("t", BARS, 1.25))
    assert (two, four) == (pytest.approx(2 * one, abs=0.3), pytest.approx(4 * one, abs=0.3))


def test_in_decades_the_same_factor_is_the_same_length() -> None:
    one, two, four = _widths(pictures.bars("t", BARS, 1.25, decades=True))
    assert two > one
    assert four - two == pytest.approx(two - one, abs=0.3)


def test_bars_and_budget_are_told_in_words() -> None:
    svg = ElementTree.fromstring(pictures.bars("t < u", BARS, 1.25))
    words = [t.text for t in svg.iterfind(".//{*}text")]
    assert {"t < u", "a & b", "2.00", "1", "goal 1.25"} <= set(words)
