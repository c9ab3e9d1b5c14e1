"""Runs the tests in several processes that share one collection: `pytest -p tests.parallel --processes 6`.

To collect takes ten seconds of CPU time, which pytest-xdist spends in each process. It also sends five messages about
each test, which take longer than most tests do. Here the process that collected forks, and each test is one message.
The tests of a file run in one process, in order, so what they share starts once. Forks need a process without threads,
which system libraries have on macOS; pytest-xdist runs there, too.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=0, help="run the tests in so many forks of this process")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    option = session.config.option
    if not option.processes or option.collectonly or session.testsfailed:
        return None
    # Files alternate: the name of one would begin a line for almost every result.
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    reporter.showfspath = False
    _Run(session).all(option.processes)
    return True


class _Process:
    """A fork and the tests that it has not finished, of which the first one runs."""

    def __init__(self, pid: int, pending: deque[pytest.Item]) -> None:
        self.pid = pid
        self.pending = pending


class _Run:
    def __init__(self, session: pytest.Session) -> None:
        self.session = session
        files: dict[str, list[pytest.Item]] = {}
        for item in session.items:
            files.setdefault(item.nodeid.partition("::")[0], []).append(item)
        self.files = list(files.values())
        self.given = 0
        self.forks = 0
        self.running: dict[Connection, _Process] = {}

    def all(self, processes: int) -> None:
        """Run the tests. Raises what pytest raises to end early, such as after `--maxfail` failures."""
        try:
            while len(self.running) < processes and (file := self._next()) is not None:
                self._fork(deque(self.files[file]))
            while self.running:
                for pipe in wait(list(self.running)):
                    assert isinstance(pipe, Connection)
                    self._take(pipe)
                    if self.session.shouldfail:
                        raise self.session.Failed(self.session.shouldfail)
                    if self.session.shouldstop:
                        raise self.session.Interrupted(self.session.shouldstop)
        finally:
            # Those that still run end after their test, because they cannot tell its result.
            for pipe in self.running:
                pipe.close()
            for process in self.running.values():
                os.waitpid(process.pid, 0)

    def _next(self) -> int | None:
        """Return the index of a file that no process has yet."""
        if self.given == len(self.files):
            return None
        self.given += 1
        return self.given - 1

    def _fork(self, pending: deque[pytest.Item]) -> None:
        ours, theirs = Pipe()
        self.forks += 1
        folders: Any = self.session.config._tmp_path_factory  # type: ignore[attr-defined]
        folder = folders.getbasetemp() / f"process-{self.forks}"
        if pid := os.fork():
            theirs.close()
            self.running[ours] = _Process(pid, pending)
            return
        code = 1
        try:
            for pipe in (ours, *self.running):
                pipe.close()
            folder.mkdir(mode=0o700)
            folders._basetemp = folder
            _work(self.session, pending, self.files, theirs)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _take(self, pipe: Connection) -> None:
        """Handle a message of a process: the reports of a test, that it needs another file, or its end."""
        process = self.running[pipe]
        try:
            told = pipe.recv()
        except (EOFError, ConnectionResetError):
            self._ended(pipe)
            return
        if told is None:
            file = self._next()
            process.pending.extend(() if file is None else self.files[file])
            with suppress(BrokenPipeError):
                pipe.send(file)
        else:
            self._log(process.pending.popleft(), told)

    def _ended(self, pipe: Connection) -> None:
        """An end before the last test is the fault of the test that ran; those after it run in another process."""
        process = self.running.pop(pipe)
        pipe.close()
        code = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        if process.pending:
            item = process.pending.popleft()
            told = f"the process of this test ended with exit code {code}"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", told, "call")
            self._log(item, [item.config.hook.pytest_report_to_serializable(config=item.config, report=report)])
        elif code:
            raise RuntimeError(f"expected exit code 0 of a process after its last test, got {code}")
        if process.pending:
            self._fork(process.pending)

    def _log(self, item: pytest.Item, reports: list[dict[str, Any]]) -> None:
        hook, config = item.ihook, item.config
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for data in reports:
            hook.pytest_runtest_logreport(report=config.hook.pytest_report_from_serializable(config=config, data=data))
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


class _Reports:
    """What is in place of the terminal in a fork."""

    def __init__(self, config: pytest.Config) -> None:
        self._tw = config.get_terminal_writer()  # plugins write to that of the terminal, e.g. stacks after a timeout
        self._config = config
        self.of_test: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.of_test.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


def _work(
    session: pytest.Session, pending: deque[pytest.Item], files: list[list[pytest.Item]], pipe: Connection
) -> None:
    """Run tests in this fork until there is no other file."""
    plugins = session.config.pluginmanager
    reports = _Reports(session.config)
    plugins.unregister(name="terminalreporter")
    plugins.register(reports, "terminalreporter")
    capture: Any = plugins.get_plugin("capturemanager")
    # Files of captured output are shared with the process that collected.
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    try:
        while pending:
            item = pending.popleft()
            if not pending:
                pipe.send(None)
                file = pipe.recv()
                pending.extend(() if file is None else files[file])
            # It ends the fixtures that the next test does not use.
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=pending[0] if pending else None)
            pipe.send(reports.of_test)
            reports.of_test.clear()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        session._setupstate.teardown_exact(None)
    capture.stop_global_capturing()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
