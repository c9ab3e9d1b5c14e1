"""The processes of a run: the mock upstream and the targets that JSON files describe (README.md)."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import procfs
from scenarios import BY_NAME, Scenario
from wires import BODIES, DIALECTS, grown

HERE = Path(__file__).resolve().parent
PORTS = range(20000, 32000)  # below what Linux hands out by itself, so no client's socket can sit on one


class NotStarted(Exception):
    """A process did not come up; the text says why."""


def free_port() -> int:
    for _ in range(200):
        port = random.choice(PORTS)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise NotStarted(f"no free port between {PORTS.start} and {PORTS.stop}")


def http(url: str, data: bytes | None = None, timeout: float = 5, headers: dict[str, str] | None = None) -> bytes:
    request = urllib.request.Request(url, data=data, headers=headers or {})
    with urllib.request.urlopen(request, timeout=timeout) as reply:
        return reply.read()


@dataclass(slots=True)
class Daemon:
    """A child in a process group of its own, so that ending it ends what it started and nothing else."""

    command: list[str]
    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self, health: str, timeout: float) -> None:
        """Returns once `health` answers below 500; otherwise raises `NotStarted` with the end of its output."""
        with self.log.open("wb") as out:
            try:
                self.process = subprocess.Popen(
                    self.command,
                    cwd=self.folder,
                    env={**os.environ, **self.env},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as e:
                raise NotStarted(f"{self.command[0]}: {e}") from e
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise NotStarted(f"exit status {self.process.returncode}; its output ended with\n{self.tail()}")
            try:
                http(health, timeout=2)
                return
            except urllib.error.HTTPError as e:
                if e.code < 500:
                    return
            except OSError:
                pass
            time.sleep(0.02)
        output = self.tail()
        self.stop()
        raise NotStarted(f"{health} gave no answer for {timeout:g} s; its output ended with\n{output}")

    def tail(self) -> str:
        text = self.log.read_text(errors="replace").strip() if self.log.exists() else ""
        return "\n".join("    " + line for line in text[-2000:].splitlines()) or "    (no output)"

    def stop(self) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        for sign, patience in ((signal.SIGTERM, 8), (signal.SIGKILL, 5)):
            try:
                os.killpg(process.pid, sign)
                process.wait(patience)
                return
            except ProcessLookupError:
                process.wait()
                return
            except subprocess.TimeoutExpired:
                continue


class Mock:
    """The mock upstream as a process of its own; `agent` is the address where it speaks gRPC, if it is to."""

    def __init__(self, *, grpc: bool = False) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.agent = f"127.0.0.1:{free_port()}" if grpc else ""
        self.folder = Path(tempfile.mkdtemp(prefix="bench-mock-"))
        command = [sys.executable, str(HERE / "mock_upstream.py"), "--port", str(self.port)]
        command += ["--grpc-port", self.agent.rpartition(":")[2]] if grpc else []
        # The AIP agent is written with the product's own messages.
        self.daemon = Daemon(command, self.folder, {"PYTHONPATH": str(HERE.parent)} if grpc else {})

    def __enter__(self) -> Mock:
        try:
            self.daemon.start(self.url + "/health", 20)
        except NotStarted as e:
            self.__exit__()
            raise NotStarted(f"the mock upstream did not start: {e}") from e
        except BaseException:  # interrupted: nothing may stay behind
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.daemon.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def set(self, **settings: Any) -> None:
        http(self.url + "/__set?" + "&".join(f"{k}={v}" for k, v in settings.items()))

    def reset(self) -> None:
        http(self.url + "/__reset")

    def stats(self) -> dict[str, int]:
        return json.loads(http(self.url + "/__stats"))


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One path through a target: the client uses the dialect `front`, the target asks the mock upstream in `back`.

    Cases compare by identity, because they are keys of results. `only` restricts the scenarios, `also` adds scenarios
    that few cases run. `kept` marks a case whose conversations the target stores; `apart` gives the reason why no
    budget applies.
    """

    front: str
    back: str
    path: str
    stream: bool = True
    body: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    follow: str = ""
    only: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    kept: bool = False
    apart: str = ""

    @property
    def name(self) -> str:
        return f"{self.front} -> {self.back}" + ("" if self.stream else ", plain")

    @property
    def kind(self) -> str:
        return "stream" if self.stream else "plain"

    def wants(self, scenario: Scenario) -> bool:
        if scenario.kind != self.kind:
            return False
        usual = scenario.name in self.only if self.only else not scenario.asked
        return usual or scenario.name in self.also

    def payload(self, kilobytes: int = 0) -> dict[str, Any]:
        body = {**(self.body or BODIES[self.front]), **({} if self.stream else {"stream": False})}
        return grown(body, kilobytes) if kilobytes else body


class Target:
    """Something that is measured: started from its description, on a free port, in a folder that is thrown away."""

    def __init__(self, spec: dict[str, Any], fill: dict[str, str]) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        try:
            self.cases = [Case(**c) for c in spec["cases"]]
        except TypeError as e:
            raise ValueError(f"target {self.name}: {e}") from e
        if unknown := {c.front for c in self.cases} - set(DIALECTS):
            raise ValueError(f"target {self.name}: the client knows no dialect {', '.join(sorted(unknown))}")
        if unknown := {n for c in self.cases for n in (*c.only, *c.also)} - set(BY_NAME):
            raise ValueError(f"target {self.name}: unknown scenario {', '.join(sorted(unknown))}")
        self.fills = dict(fill)
        self.folder: Path | None = None
        self.daemon: Daemon | None = None
        self.starts: list[dict[str, Any]] = []
        self.version = self.fill(spec.get("version", ""))
        self.reference: str = spec.get("reference", "")
        self.loop = ""

    def fill(self, value: Any) -> Any:
        if isinstance(value, str):
            for name, text in self.fills.items():
                value = value.replace(f"{{{name}}}", text)
            return value
        if isinstance(value, list):
            return [self.fill(v) for v in value]
        if isinstance(value, dict):
            return {k: self.fill(v) for k, v in value.items()}
        return value

    @property
    def base(self) -> str:
        return self.fill(self.spec.get("base", "http://127.0.0.1:{port}"))

    @property
    def pid(self) -> int | None:
        """None for a target without a process of its own (no proxy at all)."""
        return self.daemon.process.pid if self.daemon and self.daemon.process else None

    @property
    def dead(self) -> bool:
        """It was started and has ended by itself."""
        return bool(self.daemon and self.daemon.process and self.daemon.process.poll() is not None)

    def absent(self) -> str:
        """The programs that the target needs and that are not installed here. It is then skipped, which is no error."""
        absent = [p for p in self.fill(self.spec.get("needs", [])) if not self.find(p)]
        # `python` of which environment: the path inside {venv} names it, and no folder of this machine.
        venv = self.fill("{venv}/")
        return ", ".join(p.removeprefix(venv) if p.startswith(venv) else Path(p).name for p in absent)

    @staticmethod
    def find(program: str) -> str | None:
        return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")

    def start(self) -> None:
        """A new process on a new port. Raises `NotStarted`."""
        if not self.spec.get("start"):
            return
        folder = self.folder = self.folder or Path(tempfile.mkdtemp(prefix="bench-"))
        self.fills |= {"tmp": str(folder), "port": str(free_port()), "grpc_port": str(free_port())}
        for name, text in self.spec.get("files", {}).items():
            lines = text if isinstance(text, list) else [text]
            (folder / name).write_text(self.fill("\n".join(lines)) + "\n")
        command = self.fill(self.spec["start"])
        command[0] = self.find(command[0]) or command[0]
        daemon = self.daemon = Daemon(command, folder, self.fill(self.spec.get("env", {})))
        begun = time.perf_counter()
        daemon.start(self.base + self.spec.get("health", "/healthz"), self.spec.get("start_timeout", 30))
        seconds = time.perf_counter() - begun
        pid = self.pid or 0
        used, idle = procfs.cpu(pid).coarse, procfs.memory_mb(pid)
        alone = procfs.memory_mb(pid, "Rss")
        self.starts.append({"start_s": seconds, "start_cpu_s": used, "idle_mb": idle, "rss_mb": alone})
        self.loop = procfs.event_loop(pid)

    def stop(self) -> None:
        if self.daemon:
            self.daemon.stop()

    def clean(self) -> None:
        self.stop()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def read(files: list[Path], only: str | None, fill: dict[str, str]) -> list[Target]:
    """The targets of JSON files, or those named in `only`; raises `ValueError` for a name that is not there."""
    specs = [s for f in files for s in json.loads(f.read_text())["targets"]]
    known = {s["name"]: s for s in specs}
    for spec in specs:
        if like := spec.get("like"):
            if like not in known:
                raise ValueError(f"target {spec['name']}: it is to be like {like}, which is not among the targets")
            spec["files"] = known[like]["files"]
    if twice := {n for n, times in Counter(s["name"] for s in specs).items() if times > 1}:
        raise ValueError(f"two targets have one name: {', '.join(sorted(twice))}")
    if only:
        names = only.split(",")
        if unknown := [n for n in names if n not in {s["name"] for s in specs}]:
            raise ValueError(f"unknown target {', '.join(unknown)}; known: {', '.join(s['name'] for s in specs)}")
        specs = [s for s in specs if s["name"] in names]
    return [Target(s, fill) for s in specs]
