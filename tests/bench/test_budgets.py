"""Ratios and verdicts of a run."""

from __future__ import annotations

import budgets
import pytest
from budgets import PER_PAIR, START, Budget, state
from results import RAW, SUBJECT, ratio

from tests.bench.made import PACED, measured, row

BUDGET = Budget("event, paced", PACED, 1.25, 1.1)


def test_the_goals() -> None:
    goals = {(b.scenario, b.kept): (b.goal, b.stretch) for b in PER_PAIR}
    assert goals == {
        ("stream-paced-c32", None): (1.3, 1.0),
        ("stream-burst-32", None): (1.7, 1.1),
        ("stream-short", False): (2.0, 1.6),
        ("plain-c32", False): (2.0, 1.6),
        ("stream-short", True): (3.0, 2.2),
        ("stream-hold-c256", None): (1.5, 1.25),
        ("stream-hold-c5000", None): (1.5, 1.25),
    }
    assert {figure: goal for _, figure, goal in START} == {"start_cpu_s": 0.7, "rss_mb": 65}
    assert (budgets.BYTECODES, budgets.BYTECODES_STRETCH) == (8000, 6500)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "not measured"),
        (1.26, "missed"),
        (1.254, "met"),
        (1.25, "met"),
        (1.11, "met"),
        (1.1, "met, stretch too"),
        (0.5, "met, stretch too"),
    ],
)
def test_a_budget_is_met_up_to_its_limit_as_it_is_shown(found: float | None, said: str) -> None:
    assert state(found, 1.25, 1.1) == said


def test_without_a_stretch_there_is_none_to_meet() -> None:
    assert state(0.5, 1.25) == "met"


def test_a_ratio_is_that_of_the_medians_and_its_range_that_of_single_repeats() -> None:
    found = ratio(row(SUBJECT, [30.0, 20.0, 90.0]), row(RAW, [10.0, 20.0, 30.0]), "cpu_us_per_event")
    assert found is not None
    assert (found.middle, found.least, found.most) == (1.5, 1.0, 3.0)


def test_a_repeat_that_one_of_two_missed_is_left_out_of_the_range() -> None:
    found = ratio(row(SUBJECT, [30.0, None, 90.0]), row(RAW, [10.0, 1.0, 30.0]), "cpu_us_per_event")
    assert found is not None
    assert (found.middle, found.least, found.most) == (6.0, 3.0, 3.0)


@pytest.mark.parametrize("costs", [[], [None, None]])
def test_nothing_measured_has_no_ratio(costs: list[float | None]) -> None:
    assert ratio(row(SUBJECT, costs), row(RAW, [1.0]), "cpu_us_per_event") is None
    assert ratio(row(SUBJECT, [1.0]), row(RAW, costs), "cpu_us_per_event") is None
    (verdict,) = budgets.judged(measured(row(SUBJECT, costs), row(RAW, [1.0])), BUDGET)
    assert (verdict.found, verdict.state) == (None, "not measured")


def test_each_case_is_judged_beside_the_same_backend_wire() -> None:
    found = measured(
        row(SUBJECT, [12.0]),
        row(SUBJECT, [26.0], "ag-ui", "ag-ui"),
        row(SUBJECT, [99.0], "ag-kit", "ag-kit"),
        row(RAW, [10.0]),
        row(RAW, [20.0], "ag-ui", "ag-ui"),
    )
    said = [(v.case, v.found, v.state) for v in budgets.judged(found, BUDGET)]
    assert said == [("openai-chat -> openai-chat", 1.2, "met"), ("ag-ui -> ag-ui", 1.3, "missed")]


def test_the_same_frontend_is_preferred_where_a_reference_has_several() -> None:
    other, same = row("x", [1.0], "ag-ui"), row("x", [2.0])
    assert measured(other, same).reference_of(row(SUBJECT, [4.0]), "x") is same
    assert measured(other).reference_of(row(SUBJECT, [4.0]), "x") is other


def test_a_reply_in_one_piece_is_not_compared_with_a_stream() -> None:
    plain = row(RAW, [1.0], scenario="plain-c32", figure="cpu_us_per_request")
    streamed = row(SUBJECT, [4.0])
    assert measured(plain, streamed).reference_of(streamed, RAW) is None


def test_what_stands_apart_has_figures_and_no_verdict() -> None:
    found = measured(row(SUBJECT, [90.0], "agent-runs", apart="it is kept first"), row(RAW, [10.0]))
    (verdict,) = budgets.judged(found, BUDGET)
    assert (verdict.found, verdict.state, verdict.apart) == (9.0, "no budget", "it is kept first")


def test_pairs_that_store_conversations_have_a_budget_of_their_own() -> None:
    found = measured(
        row(SUBJECT, [24.0], scenario="stream-short", figure="cpu_us_per_request"),
        row(SUBJECT, [29.0], "ag-kit", scenario="stream-short", figure="cpu_us_per_request", kept=True),
        row(RAW, [10.0], scenario="stream-short", figure="cpu_us_per_request"),
    )
    said = [(v.case, v.goal, v.state) for budget in PER_PAIR for v in budgets.judged(found, budget)]
    assert said == [
        ("openai-chat -> openai-chat", 2.0, "missed"),
        ("ag-kit -> openai-chat", 3.0, "met"),
    ]


def test_the_start_is_judged_by_the_median_of_all_starts() -> None:
    found = measured()
    found.targets[SUBJECT].starts = {"start_cpu_s": [0.9, 0.6, 0.5], "rss_mb": [66.0, 65.5, 59.0]}
    said = [(v.found, v.spread, v.state) for v in budgets.starts(found)]
    assert said == [(0.6, (0.5, 0.9), "met"), (65.5, (59.0, 66.0), "missed")]


def test_the_start_is_not_measured_where_nothing_was_started() -> None:
    assert [v.state for v in budgets.starts(measured())] == ["not measured"] * 2


@pytest.mark.parametrize(
    ("count", "said"),
    [(None, "not measured"), (8001, "missed"), (8000, "met"), (6500, "met, stretch too")],
)
def test_bytecodes_of_a_stream_are_judged_by_their_number(count: int | None, said: str) -> None:
    found = measured()
    found.bytecodes = count
    assert budgets.bytecodes(found).state == said
