"""A run of the whole server's fuzzer that is the same every time; it begins with every case that once broke a promise.

`make fuzz TIME=3600` goes on from other seeds for as long as it is told.
"""

from __future__ import annotations

import pytest

from tests.fuzz.cases import Case, case, good
from tests.fuzz.whole import Report, Result, crashers, left_of, problem_of, run, serving, settled, warm
from tests.watched import LONGEST

pytestmark = pytest.mark.slow

SEED = 0
CASES = 720
GROWTH = 64 * 2**20
"""Bytes of memory that the server may hold more than at the start, whatever it was sent."""


@pytest.mark.timeout(600)
async def test_no_request_and_no_answer_breaks_the_server() -> None:
    result = Result()
    async with serving() as server:
        before = await warm(server)
        await run(server, [*crashers(), *(case(SEED, number) for number in range(CASES))], result)
        after = await settled(server, before)
    assert [f"{each.case.name}: {each.problem}" for each in result.findings] == []
    assert left_of(before, after) == ""
    assert max(report.memory for report in result.reports) - before.memory < GROWTH
    # Most cases get past the HTTP parser and the JSON parser: some run, some are refused for what they say.
    assert result.statuses[200] > CASES / 5
    assert result.statuses[422] + result.statuses[400] > CASES / 5
    assert result.statuses[502] > CASES / 20


def test_a_case_is_made_of_its_number_and_survives_a_file() -> None:
    made = [case(SEED, number) for number in range(40)]
    assert made == [case(SEED, number) for number in range(40)]
    assert [Case.load(each.dump()) for each in made] == made
    assert len({each.request for each in made}) > 30


async def test_a_broken_promise_is_noticed() -> None:
    """An answer with the words of an internal error is a finding, whatever its status."""
    right, wrong = good("openai-chat"), good("openai-chat")
    wrong.answer = [(step, data.replace(b"Hello", b"The bridge failed")) for step, data in wrong.answer]
    async with serving() as server:
        result = Result()
        await run(server, [right, wrong], result)
    (finding,) = result.findings
    assert finding.case is wrong
    assert finding.problem.startswith("an internal error")


@pytest.mark.parametrize(
    ("report", "found"),
    [
        (Report(LONGEST * 1.1, "a callback", [], 0, 0, []), "held"),
        (Report(0.0, "", ["ERROR: it broke"], 0, 0, []), "it broke"),
        (Report(LONGEST * 0.9, "a callback", [], 0, 0, []), ""),
    ],
)
def test_reports_are_judged(report: Report, found: str) -> None:
    problem = problem_of(report)
    assert found in problem
    assert bool(problem) is bool(found)


def test_what_is_left_is_told() -> None:
    some, more = Report(0, "", [], 0, 5, ["serve"]), Report(0, "", [], 0, 6, ["serve", "Run.read"])
    assert left_of(some, more) == "1 more tasks in Run.read, 1 more files"
    assert left_of(more, some) == ""
