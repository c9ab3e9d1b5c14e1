"""One measurement: one case of one target under one scenario."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import procfs
from mock_replies import DEFAULTS
from scenarios import Scenario
from targets import HERE, Case, Mock, Target

REPLY_TIMEOUT = 10  # seconds; the longest reply of any scenario takes 5


def failed(why: str) -> dict[str, Any]:
    return {"ok": 0, "bad": 1, "errors": {why: 1}}


def run_load(arguments: list[str], timeout: float, client: str = "load.py") -> dict[str, Any]:
    """The client runs in a process of its own: its work must not be billed to the runner or delay it."""
    command = [sys.executable, str(HERE / client), *arguments]
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, env=env)
    except subprocess.TimeoutExpired:
        return failed(f"the client did not end within {timeout:g} s")
    try:
        result = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        result = failed("the client gave no result")
    if done.stderr.strip():
        result["note"] = done.stderr.strip()[-1500:]
    return result


def measure(target: Target, case: Case, scenario: Scenario, mock: Mock) -> dict[str, Any]:
    settings = {**DEFAULTS, **scenario.mock}
    tokens = settings["tokens"]
    path = target.fill(case.path)
    client = "load_grpc.py" if path.startswith("grpc://") else "load.py"
    arguments = ["--url", path if "://" in path else target.base + path, "--dialect", case.front]
    arguments += ["--body", target.fill(json.dumps(case.payload)), "--timeout", str(REPLY_TIMEOUT)]
    arguments += ["--expect-tokens", str(tokens)]
    for name, value in case.headers.items():
        arguments += ["--header", f"{name}: {target.fill(value)}"]
    arguments += [] if case.stream else ["--no-stream"]
    arguments += ["--stamped"] if settings["stamp"] else []
    arguments += ["--follow", case.follow] if case.follow else []

    # Warm up, unpaced: every code path and connection once. What fails here would only fail more slowly below.
    mock.set(**{**settings, "delay_ms": 0, "first_ms": 0})
    warm = min(scenario.warm, scenario.concurrency)
    first = run_load([*arguments, "--concurrency", str(warm), "--requests", str(warm * 2)], REPLY_TIMEOUT * 3, client)
    if target.dead:
        return failed("the target ended by itself")
    if not first["ok"]:
        return first

    mock.set(**settings)
    mock.reset()
    pid, c = target.pid, scenario.concurrency
    arguments += ["--concurrency", str(c), "--duration", str(scenario.seconds), "--ramp-ms", str(settings["delay_ms"])]
    if pid is None:
        result = run_load(arguments, scenario.seconds + REPLY_TIMEOUT * 3, client)
    else:
        before_cpu, before_mb, before_disk = procfs.settled(pid), procfs.memory_mb(pid), procfs.written(pid)
        sampler = procfs.Sampler(pid)
        sampler.start()
        result = run_load(arguments, scenario.seconds + REPLY_TIMEOUT * 3, client)
        at_end = procfs.cpu(pid)
        used = procfs.settled(pid).since(before_cpu)
        peak = sampler.stop()
        if target.dead:
            return failed("the target ended by itself")
        if ok := result.get("ok"):
            result["cpu_s"] = used
            result["cores"] = at_end.since(before_cpu) / result["wall_s"]
            result["cpu_us_per_request"] = used / ok * 1e6
            if case.stream:
                result["cpu_us_per_event"] = used / (ok * tokens) * 1e6
                result["disk_bytes_per_event"] = (procfs.written(pid) - before_disk) / (ok * tokens)
            result["mb_peak"] = peak
            result["kb_per_stream"] = (peak - before_mb) * 1024 / c
    result["upstream"] = mock.stats()
    if first["bad"]:  # a wrong reply is one whenever it comes
        result["bad"] += first["bad"]
        result["errors"] = dict(Counter(result["errors"]) + Counter(first["errors"]))
        result.setdefault("note", first.get("note", ""))
    if case.stream and result.get("ok"):
        result["events_per_s"] = result["ok"] * tokens / result["wall_s"]
        result["merged"] = tokens / result["deltas_per_reply"]
    return result
