#!/usr/bin/env python3
"""A program whose bytecodes are counted: `counted.py FILE -m MODULE ...` or `counted.py FILE SCRIPT ...`

The signal BEGIN begins to count, END ends it and writes FILE: how many bytecodes the main thread ran in each function.
Counting makes the program some thirty times slower.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

HERE = Path(__file__).resolve().parent
BEGIN, END = signal.SIGRTMIN, signal.SIGRTMIN + 1
"""Signals that no program here uses: the bridge ignores SIGUSR1 and SIGUSR2."""


class Counts:
    def __init__(self) -> None:
        self._run: Counter[CodeType] = Counter()

    def begin(self, *_: object) -> None:
        self._run.clear()
        sys.settrace(self._call)

    def end(self, file: Path) -> None:
        sys.settrace(None)
        found = Counter[str]()
        for code, number in self._run.items():
            found[_name(code)] += number
        part = file.with_suffix(".part")
        part.write_text(json.dumps(found))
        part.replace(file)  # whoever waits for it finds all of it

    def _call(self, frame: FrameType, *_: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "opcode":
            self._run[frame.f_code] += 1
        return self._step


def _name(code: CodeType) -> str:
    """File and function; the file as one imports it, wherever it is installed."""
    file = code.co_filename
    for start in (str(HERE.parent), os.path.dirname(os.__file__)):
        file = file.removeprefix(start + os.sep)
    return f"{file.rpartition('site-packages' + os.sep)[2]}:{code.co_qualname}"


def main(file: Path, *command: str) -> None:
    counts = Counts()
    signal.signal(BEGIN, counts.begin)
    signal.signal(END, lambda *_: counts.end(file))
    if command[0] == "-m":
        sys.argv = list(command[1:])
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(command)
        sys.path[0] = str(Path(command[0]).parent)
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
