"""What the lines of the log look like."""

from __future__ import annotations

import json
import logging

import pytest

from bridge.cli.logs import JsonFormatter, TextFormatter

FACTS = {"request_id": "50%s", "http": 200, "total_ms": 1.5, "back": "", "of%": (1, 2), "none": None}


def line(formatter: logging.Formatter, facts: dict[str, object] | None) -> str:
    record = logging.makeLogRecord({"msg": "run %s", "args": ("one",), "levelname": "INFO", "created": 0.25})
    if facts is not None:
        record.facts = facts
    return formatter.format(record)


def test_a_text_line_says_every_fact_as_it_is() -> None:
    said = line(TextFormatter(), FACTS)
    assert said.partition(".250 ")[2] == (
        "INFO run one request_id=50%s http=200 total_ms=1.5 back= of%=(1, 2) none=None"
    )  # fmt: skip


@pytest.mark.parametrize("facts", [None, {}])
def test_a_line_without_facts_is_its_message(facts: dict[str, object] | None) -> None:
    assert line(TextFormatter(), facts).endswith(" INFO run one")


def test_a_json_line_holds_the_facts_beside_its_message() -> None:
    said = json.loads(line(JsonFormatter(), FACTS))
    assert said == {**FACTS, "of%": [1, 2], "time": said["time"], "level": "info", "message": "run one"}
