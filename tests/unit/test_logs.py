"""What the lines of the log look like."""

from __future__ import annotations

import json
import logging

import pytest

from bridge.cli.logs import JsonFormatter, Record, TextFormatter

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


BLANK = {
    "filename", "module", "thread", "threadName", "process", "processName", "taskName", "relativeCreated", "created",
    "msecs",
}  # fmt: skip


@pytest.mark.parametrize("args", [(), ("one",), ("one", 2), ({"name": "one"},), ({},)])
def test_our_records_are_those_of_the_standard_library_but_for_what_no_line_says(args: tuple[object, ...]) -> None:
    error = (ValueError, ValueError("x"), None)
    made = ("bridge.run", logging.ERROR, "/a/file.py", 7, "run %s", args, error, "work", "stack")
    ours, theirs = vars(Record(*made)), vars(logging.LogRecord(*made))  # type: ignore[arg-type]
    assert ours.keys() == theirs.keys()
    assert {k: v for k, v in ours.items() if k not in BLANK} == {k: v for k, v in theirs.items() if k not in BLANK}
    assert 0 <= theirs["created"] - ours["created"] < 60
    assert ours["msecs"] == int(ours["created"] % 1 * 1000)


def test_a_format_of_somebody_else_in_this_process_still_works() -> None:
    form = "%(filename)s %(module)s %(threadName)s %(process)s %(relativeCreated)d %(lineno)d %(message)s"
    line = logging.Formatter(form).format(Record("theirs", logging.INFO, "", 3, "run %s", ("one",), None))
    assert line.endswith(" 3 run one")
    assert 0 <= int(line.split()[-4]) < 10**9
