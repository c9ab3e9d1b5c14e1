"""`dialect-bridge serve`: this process as the server, or as the parent of several that share the port."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
from typing import Any

from bridge.cli import logs
from bridge.codec import Operation, WireRequest
from bridge.config import Config
from bridge.engine import Bridge, Route
from bridge.errors import Unsupported

_WORKER = "BRIDGE_WORKER"


def serve(args: argparse.Namespace) -> int:
    """Serves until it is told to stop."""
    logs.set_up(args.log_level, args.log_format)
    bridge = _bridge(args)
    workers = bridge.config.server.workers
    if workers > 1 and _WORKER not in os.environ:
        _announce(bridge, bridge.config.server.port)
        return _parent(workers)
    from bridge.server import serve as run

    worker = os.environ.get(_WORKER)
    announce = None if worker else lambda port: _announce(bridge, port)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(run(bridge, share_port=worker is not None, ready=announce))
    except OSError as error:
        server = bridge.config.server
        print(f"cannot listen on {server.host}:{server.port}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _bridge(args: argparse.Namespace) -> Bridge:
    """The bridge of the configuration, with the command line's own words on top."""
    from bridge.config import load

    overrides = {k: v for k in ("host", "port", "workers") if (v := getattr(args, k)) is not None}
    config = load(args.config, server=overrides) if overrides else load(args.config)
    return Bridge.of(config)


def _loop_factory() -> Any:
    """uvloop's where it is installed: 0-16% less CPU, nothing else changes."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


# ---------------------------------------------------------------------- several processes


def _parent(count: int) -> int:
    """Starts `count` processes with our own command line; ends when one of them does, or on a signal.

    Signals are passed on; the exit code is the first one that is not 0.
    """
    command = [sys.executable, "-m", "bridge.cli", *sys.argv[1:]]
    children = [subprocess.Popen(command, env={**os.environ, _WORKER: str(n + 1)}) for n in range(count)]

    def stop(number: int, frame: object) -> None:
        for child in children:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    stop(0, None)
    codes = [child.wait() for child in children]
    return next((code for code in codes if code), 0)


# ---------------------------------------------------------------------- what is printed


def _announce(bridge: Bridge, port: int) -> None:
    """The route table, with a line for each that can be pasted."""
    config: Config = bridge.config
    host = config.server.host
    base = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::', '') else host}:{port}"
    print(f"dialect-bridge serves on {base}", flush=False)
    keyed = config.server.auth is not None and bool(config.server.auth.keys)
    for route in bridge.routes:
        names = ", ".join(b.name for b in route.backends)
        print(f"\n{route.dialect.name} at {route.path}  ->  {names}")
        line = _curl(base, route, keyed)
        if line:
            print(f"  {line}")
    for notice in config.notices:
        print(f"note: {notice}")
    sys.stdout.flush()


def _curl(base: str, route: Route, keyed: bool) -> str | None:
    """A curl line that says hello to the route's `run` endpoint."""
    try:
        wire: WireRequest = route.dialect.example_request("Hello")
    except Unsupported:
        return None
    endpoint = next((e for e in route.dialect.surface if e.operation is Operation.RUN), None)
    if endpoint is None:
        return None
    mount = "" if route.path == "/" else route.path
    pieces = ["curl", "-N", f"{base}{mount}{endpoint.path}"]
    headers = {**wire.headers, **({"authorization": "Bearer YOUR_KEY"} if keyed else {})}
    for name, value in headers.items():
        pieces += ["-H", f"{name}: {value}"]
    body = wire.body.decode()
    sent = json.loads(body)
    if "model" in sent:
        sent["model"] = _some_model(route)
        body = json.dumps(sent, ensure_ascii=False)
    pieces += ["-d", body]
    return shlex.join(pieces)


def _some_model(route: Route) -> str:
    """A model name that this route serves."""
    for name in route.models or {}:
        return name.replace("*", "x")
    backend = route.backends[0]
    return next(iter(backend.names.listed), backend.name)
