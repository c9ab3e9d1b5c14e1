"""One measurement: one case of one target under one scenario."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from threading import Timer
from typing import Any

import procfs
from mock_replies import DEFAULTS
from scenarios import Scenario
from targets import HERE, Case, Mock, Target

PATIENCE = 30  # seconds that a reply may take beyond the pauses of the mock


def failed(why: str) -> dict[str, Any]:
    return {"ok": 0, "bad": 1, "errors": {why: 1}}


class Client:
    """The load client. It runs in a process of its own: its work must not be billed to the runner or delay it.

    First it warms up (every code path and connection once), then it waits for the word to begin.
    """

    def __init__(self, command: list[str], timeout: float) -> None:
        self.notes = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in __exit__
        env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.notes, text=True, env=env
        )
        self.timer = Timer(timeout, self.process.kill)
        self.timer.start()

    def warmed(self) -> dict[str, Any]:
        return self.result()

    def run(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.result()

    def result(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        try:
            return json.loads(self.process.stdout.readline())
        except ValueError:
            return failed("the client gave no result in time" if self.process.poll() else "the client gave no result")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.timer.cancel()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.kill()
        self.process.wait()
        self.notes.close()

    def note(self) -> str:
        self.notes.seek(0)
        return self.notes.read().strip()[-1500:]


def command(target: Target, case: Case, scenario: Scenario, settings: dict[str, Any], body: Path) -> list[str]:
    """The client's command line."""
    path = target.fill(case.path)
    client = "load_grpc.py" if path.startswith("grpc://") else "load.py"
    longest = PATIENCE + (settings["tokens"] + 10) * settings["delay_ms"] / 1000
    out = [sys.executable, str(HERE / client), "--url", path if "://" in path else target.base + path]
    out += ["--dialect", case.front, "--body", f"@{body}", "--timeout", str(longest)]
    out += ["--expect-tokens", str(settings["tokens"])]
    for name, value in case.headers.items():
        out += ["--header", f"{name}: {target.fill(value)}"]
    out += [] if case.stream else ["--no-stream"]
    out += ["--stamped"] if settings["stamp"] else []
    out += ["--follow", case.follow] if case.follow else []
    out += ["--warm-up", str(min(scenario.warm, scenario.concurrency) * 2)]
    out += ["--concurrency", str(scenario.concurrency), "--duration", str(scenario.seconds)]
    return [*out, "--ramp-ms", str(settings["delay_ms"])]


def measure(target: Target, case: Case, scenario: Scenario, mock: Mock) -> dict[str, Any]:
    """Figures of this one run: `ok` and `bad` replies, `errors` by kind, and what COLUMNS of report.py shows."""
    settings = {**DEFAULTS, **scenario.mock}
    body = mock.folder / "body"
    body.write_text(target.fill(json.dumps(case.payload(scenario.body_kb))))
    # Warmed up unpaced: what fails then would only fail more slowly afterwards.
    mock.set(**{**settings, "delay_ms": 0, "first_ms": 0})
    limit = scenario.seconds + (settings["tokens"] + 10) * settings["delay_ms"] / 1000 + PATIENCE * 3
    with Client(command(target, case, scenario, settings, body), limit) as client:
        first = client.warmed()
        if target.dead:
            return failed("the target ended by itself")
        if not first["ok"]:
            return {**first, "note": client.note()}
        mock.set(**settings)
        mock.reset()
        result = client.run() if target.pid is None else billed(target.pid, client, case, scenario, settings["tokens"])
        if note := client.note():
            result["note"] = note
    if target.dead:
        return failed("the target ended by itself")
    result["upstream"] = mock.stats()
    if scenario.fresh and (open_at_once := result["upstream"]["max_open"]) < scenario.concurrency:
        result["errors"][f"only {open_at_once} of {scenario.concurrency} streams were open at once"] = 1
        result["bad"] += 1
        if open_at_once and "kb_per_stream" in result:
            result["kb_per_stream"] *= scenario.concurrency / open_at_once
    result["bad"] += first["bad"]  # a wrong reply is one whenever it comes
    result["errors"] = dict(Counter(result["errors"]) + Counter(first["errors"]))
    if case.stream and result["ok"]:
        result["events_per_s"] = result["ok"] * settings["tokens"] / result["wall_s"]
        result["merged"] = settings["tokens"] / result["deltas_per_reply"]
    return result


def billed(pid: int, client: Client, case: Case, scenario: Scenario, tokens: int) -> dict[str, Any]:
    """The run, with what the target's process tree used for it."""
    before_cpu, before_mb, before_disk = procfs.settled(pid), procfs.memory_mb(pid), procfs.written(pid)
    sampler = procfs.Sampler(pid)
    sampler.start()
    result = client.run()
    at_end = procfs.cpu(pid)
    used = procfs.settled(pid).since(before_cpu)
    peak = sampler.stop()
    if ok := result["ok"]:
        result["cpu_s"] = used
        result["cores"] = at_end.since(before_cpu) / result["wall_s"]
        result["cpu_us_per_request"] = used / ok * 1e6
        if case.stream:
            result["cpu_us_per_event"] = used / (ok * tokens) * 1e6
            result["disk_bytes_per_event"] = (procfs.written(pid) - before_disk) / (ok * tokens)
        result["mb_peak"] = peak
        result["kb_per_stream"] = (peak - before_mb) * 1024 / scenario.concurrency
    return result
