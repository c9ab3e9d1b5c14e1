"""The server as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.docs.helpers import COMMAND, environment
from tests.forkserver import ForkedProcess, children
from tests.server.harness import free_port

SECONDS = 60.0
"""As long as a busy machine may need for anything here."""


def demo_config(**server: Any) -> dict[str, Any]:
    """A configuration whose backend is the scripted agent."""
    return {
        "server": server,
        "stores": {"history": "off"},
        "backends": {"it": {"dialect": "demo"}},
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
    }


@dataclass
class Process:
    """A started server; it may not answer yet."""

    process: subprocess.Popen[bytes] | ForkedProcess
    port: int
    folder: Path

    def get(self, path: str = "/healthz", *, host: str = "127.0.0.1", seconds: float = 5.0) -> tuple[int, Any]:
        """Return status and JSON of a GET; status 0 without an answer."""
        try:
            with urllib.request.urlopen(f"http://{host}:{self.port}{path}", timeout=seconds) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except OSError:
            return 0, None

    @property
    def log(self) -> str:
        return (self.folder / "err").read_text(encoding="utf-8")

    @property
    def children(self) -> set[int]:
        return children(self.process.pid)

    def until_served(self) -> None:
        until(lambda: self.get()[0] == 200, lambda: f"{self.process.poll()} {self.log}")

    def stopped(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.process.terminate()
        return self.process.wait(SECONDS)


def until(what: Callable[[], bool], why: Callable[[], str] = lambda: "") -> None:
    """Return when it is true."""
    end = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < end, why()
        time.sleep(0.02)


@contextlib.contextmanager
def started(
    folder: Path,
    config: dict[str, Any],
    *options: str,
    command: Sequence[str] = (COMMAND,),
    shell: str = "",
    port: int | None = None,
    forked: bool = False,
    stdout: str | int = "out",
    stderr: str | int = "err",
    **variables: str,
) -> Iterator[Process]:
    """Start `dialect-bridge serve` in the folder. `shell` is what a shell does with its streams, such as `0<&-`.

    `forked`: where the test is not about the start of an interpreter. `stdout`, `stderr`: files for what it writes, or
    descriptors, which are closed here.
    """
    port = port or free_port()
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    words = [*command, "serve", str(file), "--port", str(port), *options]
    variables = {k: v for k, v in environment(TMPDIR=str(folder), **variables).items() if k != "PYTHONPATH" or v}
    process: subprocess.Popen[bytes] | ForkedProcess
    outputs = (each if isinstance(each, int) else folder / each for each in (stdout, stderr))
    with open(os.devnull, "rb") as null, open(next(outputs), "wb") as out, open(next(outputs), "wb") as err:
        if forked:
            process = ForkedProcess(words, cwd=folder, env=variables, stdin=null, stdout=out, stderr=err)
        else:
            words = ["sh", "-c", f'exec "$@" {shell}', "sh", *words]
            process = subprocess.Popen(words, cwd=folder, env=variables, stdin=null, stdout=out, stderr=err)
    try:
        yield Process(process, port, folder)
    finally:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
        if process.poll() is None:
            os.kill(process.pid, 9)
            process.wait()
