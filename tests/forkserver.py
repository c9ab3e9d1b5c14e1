"""Python programs as forks of one warm process, for tests in which their start is not what is tested.

Starting an interpreter and importing what a server needs takes half a second of CPU time, a fork some milliseconds. A
`ForkedProcess` has its own pid, environment, working directory, standard streams, `sys.argv`, `sys.path` and
`__main__`, takes signals and ends as any interpreter does. Two things differ from a process that is started: libraries
are imported already, and what Python or a library reads from the environment while it starts has been read before.
Tests of these use `subprocess`.

Linux alone has `os.pidfd_open`, which a fork server needs; elsewhere, a `ForkedProcess` is a process that is started.
Each interpreter, of this or another virtual environment, has a fork server, which ends with the process of the tests.
This module is what it executes, so it imports nothing but the standard library.

The workers that a forked server starts are forks, too, of a process that was forked before the server began: `Spare`.
"""

from __future__ import annotations

import ast
import asyncio
import atexit
import ctypes
import fcntl
import gc
import importlib.abc
import importlib.util
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
_OURS = (
    "uvloop",
    "bridge.cli.serve",
    "bridge.server.host.app",
    *(f"bridge.dialects.{init.parent.name}" for init in sorted((ROOT / "adapters").glob("*/__init__.py"))),
)
"""What the commands and servers of this project import."""
_EARLY = re.compile("PYTHON(?!PATH$|IOENCODING$)|PROMETHEUS_")
"""Variables that the interpreter or a library reads while it starts."""
_HAS_FORKS = sys.platform == "linux"
_LIMIT = 2**18
"""Bytes of a request: arguments and environment."""
_SPARE = "spare"
"""What the system calls the process of which workers are forks."""


class ForkedProcess:
    """A Python program, as `subprocess.Popen` would start it.

    `command` is an interpreter with `-m MODULE`, `-c CODE` or the path of a script, which `-W error` may precede; or
    a script of this interpreter alone, such as an installed command. The streams are open files or descriptors.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: dict[str, str],
        stdin: IO[Any] | int,
        stdout: IO[Any] | int,
        stderr: IO[Any] | int,
        start_new_session: bool = False,
    ) -> None:
        late = [name for name in env if _EARLY.match(name) and env[name] != os.environ.get(name)]
        assert not late, f"expected variables that a running interpreter reads, got {late}"
        self.args = command
        self.returncode: int | None = None
        self._started: subprocess.Popen[bytes] | None = None
        if not _HAS_FORKS:
            streams: dict[str, Any] = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
            self._started = subprocess.Popen(command, cwd=cwd, env=env, start_new_session=start_new_session, **streams)
            self.pid = self._started.pid
            return
        python, words = (command[0], command[1:]) if _is_interpreter(command[0]) else (sys.executable, command)
        imports = _OURS if python == sys.executable else _imports(words[0])
        request = {"words": words, "imports": imports, "cwd": str(cwd), "env": env, "session": start_new_session}
        descriptors = [each if isinstance(each, int) else each.fileno() for each in (stdin, stdout, stderr)]
        self._report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, _starting:
            socket.send_fds(_server(python), [json.dumps(request).encode()], [*descriptors, theirs.fileno()])
        self.pid = self._reported("started")

    def _reported(self, what: str) -> int:
        word, _, number = self._report.recv(64).decode().partition(" ")
        assert word == what, f"expected {what!r} from the fork server, got {word!r}"
        return int(number)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raises `subprocess.TimeoutExpired` after `timeout` seconds."""
        if (code := self._ended(timeout)) is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self._started is not None:
            with suppress(subprocess.TimeoutExpired):
                self.returncode = self._started.wait(timeout)
        elif self.returncode is None:
            self._report.settimeout(timeout)
            with suppress(BlockingIOError, TimeoutError):
                self.returncode = self._reported("ended")
                self._report.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    command: Sequence[str], *, cwd: Path, env: dict[str, str], timeout: float, input: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end, as `subprocess.run` does. Raises `subprocess.TimeoutExpired`."""
    (stdin, fed), (read_out, stdout), (read_err, stderr) = (os.pipe() for _ in range(3))
    process = ForkedProcess(command, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr)
    for inside in (stdin, stdout, stderr):
        os.close(inside)
    with ThreadPoolExecutor(3) as threads:
        threads.submit(_feed, fed, input)
        out, err = threads.submit(_read, read_out), threads.submit(_read, read_err)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess(command, code, out.result(), err.result())


def _feed(pipe: int, data: bytes) -> None:
    rest = memoryview(data)
    with suppress(BrokenPipeError):  # it ended without reading
        while rest:
            rest = rest[os.write(pipe, rest) :]
    os.close(pipe)


def _read(pipe: int) -> bytes:
    with open(pipe, "rb") as file:
        return file.read()


def _is_interpreter(program: str) -> bool:
    return os.path.basename(program).startswith("python")


@cache
def _imports(script: str) -> list[str]:
    """Return the modules that a script imports anywhere."""
    found: list[str] = []
    for node in ast.walk(ast.parse(Path(script).read_bytes())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
    return found


_starting = threading.Lock()


@cache
def _server(python: str) -> socket.socket:
    """Start the fork server of an interpreter. Return where forks are requested."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [python, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": "", "PYTHONIOENCODING": "utf-8"},
        )
    atexit.register(process.wait)
    atexit.register(ours.close)  # called first
    return ours


def children(pid: int) -> set[int]:
    """Return the processes that a process has started."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child) for child in found if _name(child) != _SPARE}


def _name(pid: str) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


# ---------------------------------------------------------------------- the fork server


def main() -> None:
    """Serve the requests of the socket in `sys.argv`. In each fork, run its program and return."""
    del sys.path[0]  # the folder of this file
    if (words := _forked(socket.socket(fileno=int(sys.argv[1])))) is not None:
        if "serve" in words:
            words = _with_spare(words)
        _run(words)


def _forked(requests: socket.socket) -> list[str] | None:
    """Fork for each request and report the ends. Return the words in a fork, None when no more requests come."""
    running: dict[int, tuple[int, int]] = {}
    imported: set[str] = set()
    while True:
        for ready in select.select([requests, *running], [], [])[0]:
            if ready is not requests:
                pid, report = running.pop(ready)
                _, status = os.waitpid(pid, 0)
                with suppress(OSError):  # whoever started it has gone
                    os.write(report, b"ended %d" % os.waitstatus_to_exitcode(status))
                os.close(ready)
                os.close(report)
                continue
            data, descriptors, _, _ = socket.recv_fds(requests, _LIMIT, 4)
            if not data:
                return None
            request = json.loads(data)
            _import(set(request["imports"]) - imported)
            imported.update(request["imports"])
            if (pid := os.fork()) == 0:
                requests.close()
                for descriptor, (_, report) in running.items():
                    os.close(descriptor)
                    os.close(report)
                return _become(request, descriptors)
            *streams, report = descriptors
            for stream in streams:
                os.close(stream)
            running[os.pidfd_open(pid)] = pid, report


def _import(modules: set[str]) -> None:
    if not modules:
        return
    for module in sorted(modules):
        with suppress(ImportError), warnings.catch_warnings():
            warnings.simplefilter("error" if module in _OURS else "ignore")
            importlib.import_module(module)
    assert threading.active_count() == 1, f"expected modules that start no thread, got {threading.enumerate()}"
    gc.collect()
    gc.freeze()


def _become(request: dict[str, Any], descriptors: Sequence[int]) -> list[str]:
    """Make this fork the process of a request, and report that it has started. Return its words."""
    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    *streams, report = descriptors
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.write(report, b"started %d" % os.getpid())
    os.close(report)
    return list(request["words"])


def _with_spare(words: list[str]) -> list[str]:
    """Make workers that this process starts forks of one that is as this one is now. Return the words to run."""
    requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        requests.close()
        return _spare(theirs)
    theirs.close()
    create = asyncio.create_subprocess_exec

    async def started(program: str, *arguments: str, **more: Any) -> Any:
        if program != sys.executable or more.keys() != {"env", "pass_fds", "process_group"}:
            return await create(program, *arguments, **more)
        descriptors = [0, 1, 2, *more["pass_fds"]]
        request = {"words": arguments, "env": more["env"], "descriptors": descriptors, "group": more["process_group"]}
        _adopt(True)
        socket.send_fds(requests, [json.dumps(request).encode()], descriptors)
        pid = int(requests.recv(64))
        _adopt(False)
        return Worker(pid)

    asyncio.create_subprocess_exec = started  # type: ignore[assignment]
    return words


class Worker:
    """A forked child of this process, as far as it is an `asyncio.subprocess.Process`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._handle = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._handle, self._reap)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)
        os.close(self._handle)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode


def _adopt(yes: bool) -> None:
    """Be the parent of processes whose parent ends, or not."""
    ctypes.CDLL(None).prctl(36, int(yes), 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _spare(requests: socket.socket) -> list[str]:
    """Fork for each request. Return the words in a fork; end when no more requests come."""
    Path("/proc/self/comm").write_text(_SPARE)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # whoever reads them waits for the server only
        os.dup2(null, stream)
    os.close(null)
    while True:
        data, received, _, _ = socket.recv_fds(requests, _LIMIT, 64)
        if not data:
            os._exit(0)
        waiting, adopted = os.pipe()
        if (between := os.fork()) == 0:
            if os.fork() != 0:
                os._exit(0)
            break
        os.waitpid(between, 0)
        for each in (*received, waiting, adopted):
            os.close(each)
    request = json.loads(data)
    os.close(adopted)
    os.read(waiting, 1)  # until the server is the parent
    os.close(waiting)
    os.setpgid(0, request["group"])
    for number, handler in before.items():
        signal.signal(number, handler)
    Path("/proc/self/comm").write_text("python")
    # Where no descriptor that they get is in their way.
    answers, *high = (fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 512) for each in (requests.fileno(), *received))
    requests.close()
    for each in received:
        os.close(each)
    for each, number in zip(high, request["descriptors"], strict=True):
        os.dup2(each, number)
        os.close(each)
    os.environ.clear()
    os.environ.update(request["env"])
    os.write(answers, b"%d" % os.getpid())
    os.close(answers)
    return list(request["words"])


def _run(words: list[str]) -> None:
    """Run a program as the interpreter does that gets these arguments."""
    if words[:2] == ["-W", "error"]:
        warnings.simplefilter("error")
        sys.warnoptions.append("error")
        words = words[2:]
    if safe_path := words[0] == "-P":
        words = words[1:]
    kind, *rest = words
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    if kind == "-m":
        if not safe_path:
            sys.path.insert(0, os.getcwd())
        spec = importlib.util.find_spec(rest[0])
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{rest[0]}.__main__")
        assert spec is not None, f"expected a module, got {rest[0]!r}"
        assert isinstance(spec.loader, importlib.abc.InspectLoader)
        sys.argv = [str(spec.origin), *rest[1:]]
        module.__spec__, module.__package__, module.__file__ = spec, spec.parent, spec.origin
        code = spec.loader.get_code(spec.name)
    elif kind == "-c":
        if not safe_path:
            sys.path.insert(0, "")
        sys.argv = ["-c", *rest[1:]]
        code = compile(rest[0], "<string>", "exec")
    else:
        assert not kind.startswith("-"), f"expected -m, -c or a script, got {kind!r}"
        sys.path.insert(0, os.path.dirname(os.path.realpath(kind)))
        sys.argv = words
        module.__file__ = kind
        code = compile(Path(kind).read_bytes(), kind, "exec")
    exec(code, vars(module))


if __name__ == "__main__":
    main()
