"""How log lines look. One line is written for every run, so its price counts: it is part of every request's."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_NOBODY = dict.fromkeys(("thread", "threadName", "process", "processName"))
_BLANK = {**vars(logging.makeLogRecord({})), **_NOBODY}
_BEGAN = time.time()


class Record(logging.LogRecord):
    """A record that leaves blank what none of our lines says, and what costs more to find out than all the rest: the
    file's name and what it is a module of, the thread and the process.
    """

    def __init__(
        self,
        name: str,
        level: int,
        pathname: str,
        lineno: int,
        msg: object,
        args: Any,
        exc_info: Any,
        func: Any = None,
        sinfo: str | None = None,
        **_: object,
    ) -> None:
        vars(self).update(_BLANK)
        self.name, self.msg, self.levelno, self.levelname = name, msg, level, logging.getLevelName(level)
        # `log.info("%(name)s", {"name": ...})`, as the base has it.
        self.args = args[0] if args and len(args) == 1 and isinstance(args[0], Mapping) and args[0] else args
        self.pathname, self.lineno, self.funcName = pathname, lineno, func
        self.exc_info, self.stack_info = exc_info, sinfo
        self.created = now = time.time()
        self.msecs = int((now - int(now)) * 1000) + 0.0
        self.relativeCreated = (now - _BEGAN) * 1000


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
    logging.setLogRecordFactory(Record)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
