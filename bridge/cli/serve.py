"""`dialect-bridge serve`: this process as the server, or as the parent of several that share the port."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shlex
import sys
from typing import Any

from bridge.cli import logs
from bridge.cli.workers import NUMBER
from bridge.cli.workers import run as run_workers
from bridge.codec import Operation, WireRequest
from bridge.codec.naming import pick
from bridge.config import Config
from bridge.engine import Bridge, Route
from bridge.errors import ConfigError, Unsupported


def serve(args: argparse.Namespace) -> int:
    """Serves until it is told to stop."""
    logs.set_up(args.log_level, args.log_format)
    bridge = _bridge(args)
    workers = bridge.config.server.workers
    worker = os.environ.get(NUMBER)
    if workers > 1 and worker is None:
        if bridge.config.server.port == 0:
            raise ConfigError("server.port: several workers share one port, so it cannot be 0.")
        return run_workers(workers, sys.argv[1:])
    from bridge.server import serve as run

    # Of several processes the first speaks for all, as soon as it listens.
    announce = (lambda port: _announce(bridge, port)) if worker in (None, "1") else None
    listening = False

    def ready(port: int) -> None:
        nonlocal listening
        listening = True
        if announce is not None:
            announce(port)

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(run(bridge, share_port=worker is not None, ready=ready))
    except OSError as error:
        if listening:
            raise
        server = bridge.config.server
        reason = os.strerror(error.errno) if error.errno else str(error)
        print(f"cannot listen on {server.host}:{server.port}: {reason}", file=sys.stderr)
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


# ---------------------------------------------------------------------- what is printed


def _announce(bridge: Bridge, port: int) -> None:
    """The route table, with a line for each that can be pasted."""
    config: Config = bridge.config
    host = config.server.host
    base = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::', '') else host}:{port}"
    print(f"dialect-bridge serves on {base}", flush=False)
    keyed = not config.server.is_open
    for route in bridge.routes:
        names = ", ".join(b.name for b in route.backends)
        if route.listen is not None:
            print(f"\n{route.dialect.name} at {route.listen}, agent {route.agent_id}  ->  {names}")
            continue
        print(f"\n{route.dialect.name} at {route.path}  ->  {names}")
        line = _curl(base, route, keyed)
        if line:
            print(f"  {line}")
    for notice in config.notices:
        print(f"note: {notice}")
    sys.stdout.flush()


def _curl(base: str, route: Route, keyed: bool) -> str | None:
    """A curl line that says hello to where the route's runs begin."""
    try:
        wire: WireRequest = route.dialect.example_request("Hello")
    except Unsupported:
        return None
    endpoint = next((e for e in route.dialect.surface if e.operation in (Operation.RUN, Operation.START)), None)
    if endpoint is None:
        return None
    mount = "" if route.path == "/" else route.path
    pieces = ["curl", "-N", f"{base}{mount}{endpoint.path}"]
    headers = {**wire.headers, **({"authorization": "Bearer YOUR_KEY"} if keyed else {})}
    for name, value in headers.items():
        pieces += ["-H", f"{name}: {value}"]
    body = wire.body.decode()
    sent = json.loads(body)
    if "model" in sent or route.models is not None:
        model = _some_model(route)
        if model is None:
            return None
        body = json.dumps({**sent, "model": model}, ensure_ascii=False)
    pieces += ["-d", body]
    return shlex.join(pieces)


def _some_model(route: Route) -> str | None:
    """A model name that this route serves; None when its patterns are beyond guessing."""
    if route.models is None:
        backend = route.backends[0]
        return next(iter(backend.names.listed), backend.name)
    guesses = (re.sub(r"\[(.).*?\]", r"\1", name).replace("*", "x").replace("?", "x") for name in route.models)
    return next((guess for guess in sorted(guesses, key=len) if pick(route.models, guess) is not None), None)
