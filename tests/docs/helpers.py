"""What tests of documents share: the blocks of documents, and the real command in a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import forkserver
from tests.forkserver import ForkedProcess
from tests.server.harness import free_port

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
QUICKSTART = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
LIBRARY = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples"
CONFIGS = sorted((EXAMPLES / "configs").glob("*.yaml"))
COMMAND = str(Path(sys.executable).with_name("dialect-bridge"))
USUAL = "http://127.0.0.1:8080"
"""The address that documents name; tests put a free port in its place."""

# What a test says itself must not depend on what the shell that runs it happens to hold.
_OURS = re.compile(r"BRIDGE_|MAKE|MFLAGS|OPENAI_|AGENTSCOPE_|WEB_KEY|FRIDAY_KEY|(https?|all|no)_proxy$", re.IGNORECASE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a document. `mark` is the name in the comment above it, "" without one."""

    language: str
    text: str
    line: int
    mark: str


def blocks_of(document: str) -> list[Block]:
    """The fenced blocks of a document, in order."""
    pattern = re.compile(r"(?:^<!-- ([^>]*) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [Block(m[2], m[3], document.count("\n", 0, m.start(2)) + 1, m[1] or "") for m in pattern.finditer(document)]


def block(document: str, mark: str) -> Block:
    """The block below `<!-- mark -->`."""
    (found,) = [block for block in blocks_of(document) if block.mark == mark]
    return found


def environment(**more: str) -> dict[str, str]:
    """The environment of a child: the command and this interpreter are found, and nothing of ours was said before."""
    kept = {k: v for k, v in os.environ.items() if not _OURS.match(k)}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    return {**kept, "PATH": path, "PYTHONPATH": "", "PYTHONIOENCODING": "utf-8", **more}


def run(
    *command: str, input: str | bytes = b"", cwd: Path = ROOT, fresh: bool = False, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """A command that ends by itself, on a busy machine in its time.

    Programs of Python are forked, unless the start of a `fresh` interpreter is a part of the test.
    """
    data = input.encode() if isinstance(input, str) else input
    if _is_python(command) and not fresh:
        return forkserver.run(command, input=data, cwd=cwd, env=environment(**variables), timeout=100)
    return subprocess.run(
        command, input=data, capture_output=True, cwd=cwd, env=environment(**variables), timeout=100, check=False
    )


def _is_python(command: Sequence[str]) -> bool:
    """Return whether it is a program of this project's environment."""
    return command[0] in (COMMAND, sys.executable)


def bridge(*args: str, input: str | bytes = b"", cwd: Path = ROOT, **variables: str) -> tuple[int, str, str]:
    """`dialect-bridge` in a process of its own: exit code, stdout, stderr."""
    done = run(COMMAND, *args, input=input, cwd=cwd, **variables)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Server:
    """A process that serves until it is told to stop."""

    def __init__(self, process: subprocess.Popen[bytes] | ForkedProcess, port: int, out: Path, err: Path) -> None:
        self.process = process
        self.port = port
        self._out = out
        self._err = err

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def out(self) -> str:
        return self._out.read_text(encoding="utf-8")

    @property
    def err(self) -> str:
        return self._err.read_text(encoding="utf-8")

    def wait_for(self, path: str) -> None:
        """Returns when there is any answer at `path`. Fails when the process ended before."""
        deadline = time.monotonic() + 60  # other projects' servers compile their modules when they start first
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.out}{self.err}"
            try:
                with urllib.request.urlopen(self.url + path, timeout=5) as reply:
                    reply.read()
                return
            except urllib.error.HTTPError as reply:
                reply.close()
                return
            except OSError:
                time.sleep(0.02)
        raise AssertionError(f"no answer at {self.url}{path}: {self.out}{self.err}")

    def wait_to_say(self, mark: str) -> None:
        """Returns when it has printed this."""
        deadline = time.monotonic() + 20
        while mark not in self.out:
            assert time.monotonic() < deadline, self.err
            time.sleep(0.005)

    def stop(self) -> int:
        """SIGTERM; gives the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(10)


def _checkout(folder: Path) -> Path:
    """A place that looks like this checkout and keeps its own data: what one test keeps is no other's business."""
    here = folder / "checkout"
    if not here.exists():
        here.mkdir()
        for entry in ROOT.iterdir():
            if entry.name != "data":
                (here / entry.name).symlink_to(entry)
    return here


@contextlib.contextmanager
def server(
    folder: Path,
    *command: str,
    port: int | None = None,
    ready: str | None = "/healthz",
    mark: str = "curl ",
    forked: bool | None = None,
    **variables: str,
) -> Iterator[Server]:
    """A server as a process; `{port}` in its command is replaced. By default, programs of this project are `forked`.

    Inside the block it answers at `ready`; with None it has only printed `mark`, which stands in its routes.
    """
    port = port or free_port()
    here = _checkout(folder)
    out, err = folder / f"{port}.out", folder / f"{port}.err"
    start = ForkedProcess if (_is_python(command) if forked is None else forked) else subprocess.Popen[bytes]
    with open(os.devnull, "rb") as stdin, out.open("wb") as stdout, err.open("wb") as stderr:
        process = start(
            [part.replace("{port}", str(port)) for part in command],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=here,
            env=environment(TMPDIR=str(folder), **variables),
            start_new_session=True,
        )
    try:
        served = Server(process, port, out, err)
        if ready is None:
            served.wait_to_say(mark)
        else:
            served.wait_for(ready)
        yield served
    finally:
        with contextlib.suppress(ProcessLookupError):
            # Its own workers too, whatever became of the parent.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def serve(
    folder: Path, config: str | Path, *more: str, ready: str | None = "/healthz", **variables: str
) -> contextlib.AbstractContextManager[Server]:
    """`dialect-bridge serve` on a free port."""
    return server(folder, COMMAND, "serve", str(config), "--port", "{port}", *more, ready=ready, **variables)


def listeners(port: int) -> int:
    """How many sockets of this machine listen on the port; processes that share it have one each."""
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    local = [(line.split()[1], line.split()[3]) for line in lines]
    return sum(address.endswith(f":{port:04X}") and state == "0A" for address, state in local)
