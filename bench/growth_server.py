"""What a serving process costs as streams, routes and histories grow, and for how long one thing holds its loop."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import procfs
from targets import HERE, Daemon, Mock, free_port, http

sys.path.insert(0, str(HERE.parent))

from bridge.contract import registry
from bridge.testing import sizes
from bridge.testing.wires import encode

STREAMS = (1, 10, 100, 1_000, 5_000)
ROUTES = (1, 10, 100, 1_000)
HISTORY = (10, 100, 1_000, 10_000)
EVENTS_A_SECOND = 800
WATCH = 8.0
"""Seconds for which open streams are watched."""
_MODEL = {"dialect": "openai-chat", "model": "m"}


class Server:
    """A bridge of its own, with the probe."""

    def __init__(self, daemon: Daemon, port: int, probe: int) -> None:
        assert daemon.process is not None
        self.pid = daemon.process.pid
        self.url = f"http://127.0.0.1:{port}"
        self._probe = f"http://127.0.0.1:{probe}/"

    def lag(self) -> float:
        """CPU milliseconds of the longest hold of the loop since the last call."""
        return float(http(self._probe))

    def cpu(self) -> float:
        return procfs.cpu(self.pid).fine


@contextmanager
def serving(config: dict[str, Any]) -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="growth-"))
    port, probe = free_port(), free_port()
    config = {"server": {"host": "127.0.0.1", "port": port, "max_body": "64MB", **config.pop("server", {})}, **config}
    (folder / "config.yaml").write_text(json.dumps(config))
    command = [sys.executable, str(HERE / "probed.py"), str(probe), "serve", str(folder / "config.yaml")]
    daemon = Daemon(command, folder, {"PYTHONPATH": str(HERE.parent)})
    try:
        daemon.start(f"http://127.0.0.1:{port}/healthz", 60)
        yield Server(daemon, port, probe)
    finally:
        daemon.stop()
        shutil.rmtree(folder, ignore_errors=True)


def load(url: str, *arguments: object) -> dict[str, Any]:
    """One run of the load client; raises `RuntimeError` when a reply was wrong."""
    command = [sys.executable, str(HERE / "load.py"), "--url", url, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{url}: {done.stdout[-500:]}{done.stderr[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def chat(mock: str, **more: Any) -> dict[str, Any]:
    return {
        "backends": {"m": {**_MODEL, "url": f"{mock}/v1"}},
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "m"}],
        "stores": {"history": "off"},
        **more,
    }


def body(messages: int = 1, stream: bool = True) -> str:
    roles = ("user", "assistant")
    conversation = [{"role": roles[n % 2], "content": f"Words number {n} of a talk."} for n in range(messages - 1)]
    return json.dumps(
        {"model": "m", "stream": stream, "messages": [*conversation, {"role": "user", "content": "And?"}]}
    )


def streams(mock: Mock) -> list[dict[str, Any]]:
    """Open streams: CPU of one event at the same number of events a second, and memory of one stream."""
    out = []
    for count in STREAMS:
        pause = max(0.02, count / EVENTS_A_SECOND)
        opening = count / 100
        mock.set(tokens=int((3 * opening + WATCH + 20) / pause) + 2, delay_ms=pause * 1000)
        with serving(chat(mock.url, server={"limits": {"concurrent": 2 * count}})) as server:
            load(f"{server.url}/v1/chat/completions", "--body", body(stream=False), "--no-stream", "--requests", 5)
            idle = procfs.memory_mb(server.pid)
            arguments = ["--body", body(), "--concurrency", count, "--requests", count, "--timeout", 300]
            arguments += ["--ramp-ms", opening * 1000]
            command = [sys.executable, str(HERE / "load.py"), "--url", f"{server.url}/v1/chat/completions"]
            client = subprocess.Popen([*command, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
            end = time.monotonic() + 120
            while mock.stats()["open"] < count and time.monotonic() < end:
                time.sleep(0.1)
            time.sleep(1)
            server.lag()
            cpu, began = server.cpu(), time.monotonic()
            time.sleep(WATCH)
            cpu, took = server.cpu() - cpu, time.monotonic() - began
            opened = mock.stats()["open"]
            if opened < 0.9 * count:  # a machine with other work may be too slow to open all of them
                raise RuntimeError(f"{count} streams: {opened} are open")
            events = opened * took / pause  # the mock keeps its pace
            memory = procfs.memory_mb(server.pid)
            lag = server.lag()
            client.terminate()
            client.communicate()
        out.append(
            {
                "n": opened,
                "events_s": round(events / took),
                "cpu_us_event": round(cpu / events * 1e6, 1),
                "kib_stream": round((memory - idle) * 1024 / opened, 1),
                "loop_ms": round(lag, 2),
            }
        )
        print(f"  {count} streams: {out[-1]}", flush=True)
    return out


def routes(mock: Mock) -> list[dict[str, Any]]:
    out = []
    mock.set(tokens=1, delay_ms=0)
    for count in ROUTES:
        made = [{"dialect": "openai-chat", "path": f"/r{n}", "backend": "m"} for n in range(count)]
        with serving(chat(mock.url, routes=made)) as server:
            url = f"{server.url}/r{count - 1}/chat/completions"
            load(url, "--body", body(stream=False), "--no-stream", "--requests", 100, "--concurrency", 8)
            cpu = server.cpu()
            load(url, "--body", body(stream=False), "--no-stream", "--requests", 600, "--concurrency", 8)
            us = (server.cpu() - cpu) / 600 * 1e6
            out.append({"n": count, "cpu_us_request": round(us), "mib": round(procfs.memory_mb(server.pid), 1)})
        print(f"  {count} routes: {out[-1]}", flush=True)
    return out


def histories(mock: Mock) -> list[dict[str, Any]]:
    """Requests with a long talk."""
    out = []
    mock.set(tokens=1, delay_ms=0)
    with serving(chat(mock.url)) as server:
        url = f"{server.url}/v1/chat/completions"
        for count in HISTORY:
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                file.write(body(count, stream=False))
                file.flush()
                times = max(20, min(1000, 40_000 // count))
                load(url, "--body", f"@{file.name}", "--no-stream", "--requests", 3)
                server.lag()
                cpu = server.cpu()
                load(url, "--body", f"@{file.name}", "--no-stream", "--requests", times)
                ms = (server.cpu() - cpu) / times * 1e3
            out.append({"n": count, "cpu_ms_request": round(ms, 3), "us_message": round(ms / count * 1e3, 2)})
            out[-1]["loop_ms"] = server.lag()
            print(f"  {count} messages: {out[-1]}", flush=True)
    return out


BIG = {"long_delta": 20 * 1024, "image": 5 * 1024, "fragments": 10_000}


def holds() -> list[dict[str, Any]]:
    """For how long one large thing holds the loop of a server, by dialect and side."""
    out = []
    names = [name for name in registry.names() if not registry.get(name).over_grpc]
    for what, size in BIG.items():
        for name in names:
            for front, back in (
                ((name, "openai-chat"), ("openai-chat", name)) if name != "openai-chat" else ((name, name),)
            ):
                found = _hold(front, back, what, size)
                if found is not None:
                    out.append({"front": front, "back": back, "what": what, **found})
        print(f"  {what}", flush=True)
    return out


def _hold(front: str, back: str, what: str, size: int) -> dict[str, Any] | None:
    spoken = registry.get(front)
    endpoint = next((e for e in spoken.surface if str(e.operation) == "run"), None)
    if endpoint is None:
        return None
    wire = encode(registry.get(back), sizes.ANSWERS[what](size))
    with tempfile.TemporaryDirectory(prefix="growth-") as folder:
        (Path(folder) / "events").write_bytes(wire)
        port = free_port()
        command = [sys.executable, str(HERE / "mock_upstream.py"), "--port", str(port), "--replay", f"{folder}/events"]
        daemon = Daemon(command, Path(folder))
        daemon.start(f"http://127.0.0.1:{port}/health", 20)
        try:
            config = {
                "stores": {"history": "off"},
                "backends": {"b": {"dialect": back, "url": f"http://127.0.0.1:{port}"}},
                "routes": [{"dialect": front, "path": "/x", "backend": "b"}],
            }
            asked = spoken.example_request("Hello")
            with serving(config) as server:
                server.lag()
                began = time.monotonic()
                try:
                    got = http(f"{server.url}/x{endpoint.path}", asked.body, 120, dict(asked.headers))
                except urllib.error.HTTPError:
                    return None  # a backend that queues its runs, or cannot say this
                return {
                    "loop_ms": server.lag(),
                    "seconds": round(time.monotonic() - began, 2),
                    "mib": round(len(got) / 2**20, 1),
                }
        finally:
            daemon.stop()


def start() -> dict[str, float]:
    """What a process has used when it answers for the first time; the best of three."""
    found = []
    for _ in range(3):
        with serving(chat("http://127.0.0.1:1")) as server:
            used = procfs.cpu(server.pid)
            found.append({"cpu_s": round(used.fine, 2), "mib": round(procfs.memory_mb(server.pid), 1)})
    return min(found, key=lambda f: f["cpu_s"])


_PLAIN = "not-kept"


def durable() -> dict[str, float]:
    """How many times as dear as a plain event, at the pace of a model, one is that is kept; disk bytes of it."""
    with tempfile.TemporaryDirectory(prefix="growth-") as folder:
        asked = ["--reference", _PLAIN, "--scenarios", "stream-paced-c32", "--repeats", "3", "--out", folder]
        subprocess.run([sys.executable, str(HERE / "run.py"), str(HERE / "durable.json"), *asked], check=True)
        return kept(json.loads((Path(folder) / "bench.json").read_text()))


def kept(results: list[dict[str, Any]]) -> dict[str, float]:
    """The same of what `run.py` has written of the targets in durable.json."""
    found = {r["target"]: r["runs"] for r in results if r["case"] == "ag-ui -> openai-chat"}

    def median(target: str, figure: str) -> float:
        return statistics.median(run[figure] for run in found[target])

    out: dict[str, float] = {}
    for engine in ("sqlite", "postgresql"):
        target = f"kept-{engine}"
        out[engine] = round(median(target, "cpu_us_per_event") / median(_PLAIN, "cpu_us_per_event"), 2)
        out[f"{engine}_disk_bytes"] = round(median(target, "disk_bytes_per_event"))
    return out
