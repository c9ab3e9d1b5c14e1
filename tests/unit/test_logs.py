"""What the lines of the log look like."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

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


@pytest.mark.parametrize("name", ["asyncpg.pool", "opentelemetry.exporter.otlp", "bridges"])
def test_a_line_of_a_library_names_its_logger(name: str) -> None:
    record = logging.LogRecord(name, logging.WARNING, "", 0, "lost", None, None)
    assert TextFormatter().format(record).endswith(f" WARNING {name}: lost")
    assert json.loads(JsonFormatter().format(record))["logger"] == name


@pytest.mark.parametrize("name", ["bridge", "bridge.server"])
def test_a_line_of_the_bridge_does_not(name: str) -> None:
    record = logging.LogRecord(name, logging.WARNING, "", 0, "lost", None, None)
    assert TextFormatter().format(record).endswith(" WARNING lost")
    assert "logger" not in json.loads(JsonFormatter().format(record))


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


HOSTILE = "a\nERROR forged\r\x1b[2J\x07\x00\x85\u2028\u2029\x9b\u202e\tb"


@pytest.mark.parametrize("kind", ["argument", "named", "message", "fact", "name of a fact", "list"])
def test_a_text_line_is_one_line_whatever_is_told(kind: str) -> None:
    record = logging.makeLogRecord({"msg": "said", "args": (), "levelname": "INFO"})
    match kind:
        case "argument":
            record.msg, record.args = "said %s of %r", (HOSTILE, HOSTILE)
        case "named":
            record.msg, record.args = "said %(it)s", {"it": HOSTILE}
        case "message":
            record.msg = HOSTILE
        case "fact":
            record.facts = {"node": HOSTILE}
        case "name of a fact":
            record.facts = {HOSTILE: 1}
        case _:
            record.facts = {"nodes": [HOSTILE], "exact": HOSTILE}
    said = TextFormatter().format(record)
    assert len(said.splitlines()) == 1
    assert said.isprintable()
    assert "\\n" in said
    assert "ERROR forged" in said
    whole = JsonFormatter().format(record)
    assert len(whole.split("\n")) == 1
    json.loads(whole)


def test_words_of_other_languages_stay_as_they_are() -> None:
    record = logging.makeLogRecord({"msg": "naïve 工程 🙂", "levelname": "INFO"})
    assert TextFormatter().format(record).endswith("INFO naïve 工程 🙂")


@pytest.mark.parametrize("formatter", [TextFormatter, JsonFormatter])
def test_tracebacks_are_told_where_they_are_wanted(formatter: type[TextFormatter] | type[JsonFormatter]) -> None:
    try:
        raise ValueError("the secret text")
    except ValueError:
        record = Record("asyncio", logging.ERROR, "", 1, "never retrieved", (), sys.exc_info())
    full, brief = formatter().format(record), formatter(tracebacks=False).format(record)
    assert "the secret text" in full
    assert "the secret text" not in brief
    assert "Traceback" not in brief
    assert "ValueError at test_logs.py:" in brief


@pytest.mark.parametrize(("level", "shown"), [("info", False), ("debug", True)])
def test_tracebacks_of_libraries_need_level_debug(level: str, shown: bool) -> None:
    code = (
        "import logging; from bridge.cli.logs import set_up; "
        f"set_up({level!r}, 'text')\ntry: 1 / 0\nexcept ZeroDivisionError: logging.getLogger('asyncpg').exception('oh')"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert "ERROR asyncpg: oh" in said
    assert ("Traceback" in said) is shown
