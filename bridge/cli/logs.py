"""How log lines look. One line is written for every run, so its price counts: it is part of every request's."""

from __future__ import annotations

import json
import logging
import sys
import time
from functools import lru_cache


class _Stamp:
    """Local time with milliseconds; the part that changes once a second is made once a second."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def of(self, moment: float) -> str:
        second = int(moment)
        if second != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(second))
        return f"{self._text}.{int((moment - second) * 1000):03d}"


@lru_cache(maxsize=256)
def _places(names: tuple[str, ...]) -> str:
    """Where the values of these facts go. Most lines have the same few: filling them in takes half the time."""
    return " ".join(f"{name.replace('%', '%%')}=%s" for name in names)


class TextFormatter(logging.Formatter):
    """`time level message key=value ...`; a record's facts are its attribute `facts`, a mapping."""

    def __init__(self) -> None:
        super().__init__()
        self._stamp = _Stamp()

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self._stamp.of(record.created)} {record.levelname} {record.getMessage()}"
        facts: dict[str, object] = record.__dict__.get("facts") or {}
        if facts:
            line = f"{line} {_places(tuple(facts)) % tuple(facts.values())}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with the record's facts beside time, level and message."""

    def __init__(self) -> None:
        super().__init__()
        self._stamp = _Stamp()

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": self._stamp.of(record.created),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **(record.__dict__.get("facts") or {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


def set_up(level: str, form: str) -> None:
    """Log lines go to stderr; `form` is text or json."""
    # Nobody here prints the caller, thread or process of a line; finding them out is a third of its price
    # (Python's logging documentation, "Optimization").
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
