"""Log formats. One line is written for every run, so its cost is part of every request."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TextIO

from bridge.errors import LOG_FACTS

_NOBODY = dict.fromkeys(("thread", "threadName", "process", "processName"))
_BLANK = {**vars(logging.makeLogRecord({})), **_NOBODY}
_BEGAN = time.time()


class Record(logging.LogRecord):
    """A log record without the attributes that no line shows, which cost more to determine than all others: file,
    module, thread and process.
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
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S.", time.localtime(second))
        return self._text + _MILLISECONDS[int((moment - second) * 1000)]


_MILLISECONDS = [f"{number:03d}" for number in range(1000)]


@lru_cache(maxsize=256)
def _locations(names: tuple[str, ...]) -> str:
    """The positions of these facts in a line. Most lines have the same ones, and this is half of the time."""
    return " ".join(f"{name.replace('%', '%%')}=%s" for name in names)


_UNPRINTABLE = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_UNPRINTABLE |= {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
# Line separators, and marks that turn the direction of what follows.
_UNPRINTABLE |= {code: f"\\u{code:04x}" for code in (0x2028, 0x2029, 0x202A, 0x202B, 0x202C, 0x202D, 0x202E)}
_UNPRINTABLE |= {code: f"\\u{code:04x}" for code in (*range(0x2066, 0x206A), *range(0xD800, 0xE000))}


class _Handler(logging.StreamHandler[TextIO]):
    """Writes each line at once; a handler's own steps between a record and its stream cost as much as the line."""

    def handle(self, record: logging.LogRecord) -> bool:
        if self.filters or self.lock is None:
            return bool(super().handle(record))
        with self.lock:
            self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.stream.write(f"{self.format(record)}\n")
            self.stream.flush()
        except Exception:
            self.handleError(record)


class _Formatter(logging.Formatter):
    """A record's facts are its attribute `facts`; without `tracebacks` an exception is its class and place."""

    def __init__(self, *, tracebacks: bool = True) -> None:
        super().__init__()
        self._stamp = _Stamp()
        self._tracebacks = tracebacks


class TextFormatter(_Formatter):
    """`time level message key=value ...` in one line, with escaped control characters, followed by tracebacks.

    Lines of libraries name their logger before the message.
    """

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self._stamp.of(record.created)} {record.levelname} {_library(record)}{record.getMessage()}"
        facts = _facts(record)
        if facts:
            line = f"{line} {_locations(tuple(facts)) % tuple(facts.values())}"
        if record.exc_info and not self._tracebacks:
            line = f"{line} ({_brief(record.exc_info)})"
        if not line.isprintable():  # spares nearly every line the slower look
            line = line.translate(_UNPRINTABLE)
        if record.exc_info and self._tracebacks:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


class JsonFormatter(_Formatter):
    """One JSON object a line, with the record's facts beside time, level and message."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": self._stamp.of(record.created),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **_facts(record),
        }
        if _library(record):
            entry["logger"] = record.name
        if record.exc_info:
            trace = self.formatException if self._tracebacks else _brief
            entry["exception"] = trace(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


def _library(record: logging.LogRecord) -> str:
    """Return the name of the logger and a colon for a line that is not of the bridge, else nothing."""
    name = record.name
    return f"{name}: " if name and name.partition(".")[0] != "bridge" else ""


def _facts(record: logging.LogRecord) -> Mapping[str, object]:
    """The facts of a record, and before them those of the task that logs it."""
    facts: Mapping[str, object] = record.__dict__.get("facts") or {}
    shared = LOG_FACTS.get()
    return {**shared, **facts} if shared else facts


def _brief(exc_info: Any) -> str:
    """The class of an exception and where it was raised; its text may hold anything."""
    kind, error, trace = exc_info
    frames = traceback.extract_tb(trace)
    where = f" at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    return f"{kind.__name__ if kind else type(error).__name__}{where}"


def set_up(level: str, form: str, stream: TextIO | None = None) -> None:
    """Send log lines to `stream` (default: stderr), as `form`: text or json.

    Tracebacks, those of libraries included, need level debug.
    """
    # No line shows the caller, thread or process; determining them takes a third of its time (see "Optimization" in
    # Python's logging documentation).
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.setLogRecordFactory(Record)
    handler = _Handler(sys.stderr if stream is None else stream)
    formatter = JsonFormatter if form == "json" else TextFormatter
    handler.setFormatter(formatter(tracebacks=level.upper() == "DEBUG"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
