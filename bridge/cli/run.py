"""`dialect-bridge run`: a coding agent over a bridge that lives as long as the agent.

The agent owns the terminal: what the bridge logs goes to a file. The bridge listens on a free port of the loopback
address, and for a backend that the command line names it takes one key only, which the agent alone is given.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bridge.cli import init, logs
from bridge.cli.demo import DEMO
from bridge.engine.bridge import Bridge
from bridge.engine.config import Config, load
from bridge.engine.route import Route
from bridge.errors import ConfigError
from bridge.server.connect import CLIENTS, RouteAddress, named
from bridge.server.connect.programs import AGENTS, NO_KEY, ClientProgram, CodingAgent
from bridge.server.host.http_server import check, running

DEFAULT = "config.yaml"
_STORES = 'stores: {history: "sqlite:///:memory:", runs: "sqlite:///:memory:"}\n'
_LOOPBACK = {"host": "127.0.0.1", "port": 0, "workers": 1}
_FORWARDED = (signal.SIGTERM, signal.SIGHUP)


def run(args: argparse.Namespace) -> int:
    """Start the agent over a bridge and return its exit code, 128 and the signal's number if one ended it."""
    client = named(AGENTS, args.agent)
    if client is None or client.agent is None:
        raise ConfigError(f"unknown agent {args.agent!r}; expected one of {', '.join(AGENTS)}")
    agent = client.agent
    program = shutil.which(agent.command)
    if program is None:
        raise ConfigError(f"{agent.command}: there is no such program; install it with: {agent.install}")
    if args.to is not None and args.config is not None:
        raise ConfigError("--to, --config: expected one of both, got both")
    config, key = _named(args, client, agent) if args.to is not None else _configured(args)
    bridge = Bridge.of(config)
    route = _route(bridge, client, agent)
    model = args.model or route.some_model
    if agent.needs_model and model is None:
        raise ConfigError(f"--model: required, {agent.command} has no model of its own")
    check(bridge)
    with _log_file(args.log) as log:
        print(f"dialect-bridge: {agent.command} over {route.backends[0].name}; log: {log}", file=sys.stderr)
        return asyncio.run(_run(bridge, route, agent, [program, *args.arguments], model or "", key))


def _named(args: argparse.Namespace, client: ClientProgram, agent: CodingAgent) -> tuple[Config, str]:
    """Return the configuration for the backend that the command line names, and its key."""
    args.source = [next(name for name, each in CLIENTS.items() if each is client)]
    args.port = 0
    wanted = init.wanted(args)
    if agent.needs_model and not wanted.model and wanted.back != DEMO:
        raise ConfigError(f"--model: required, {agent.command} has no model of its own")
    key = secrets.token_urlsafe(24)
    server = {**_LOOPBACK, "auth": {"keys": [{"name": agent.command, "key": key}]}, "page": False}
    return load("the command line", text=init.text(wanted) + _STORES, server=server), key


def _configured(args: argparse.Namespace) -> tuple[Config, str]:
    """Return the configuration in the file, and the key for it."""
    if args.config is None and not os.path.exists(DEFAULT):
        raise ConfigError(f"--to or --config: one is required, since there is no {DEFAULT} here")
    config = load(args.config or DEFAULT, server=_LOOPBACK)
    key = os.environ.get("BRIDGE_API_KEY", "")
    if not key and not config.server.is_open:
        raise ConfigError("$BRIDGE_API_KEY: required, a key of server.auth")
    return config, key or NO_KEY


def _route(bridge: Bridge, client: ClientProgram, agent: CodingAgent) -> Route:
    """Return the first route in a dialect that the agent speaks, in the order of its dialects."""
    dialects = agent.dialects or client.dialects
    for dialect in dialects:
        for route in bridge.routes:
            if route.dialect.name == dialect and route.listen is None and route.path.endswith(agent.path):
                return route
    path = f", at a path that ends with {agent.path}" if agent.path else ""
    raise ConfigError(f"no route has a dialect that {client.title} speaks ({', '.join(dialects)}){path}", key="routes")


async def _run(bridge: Bridge, route: Route, agent: CodingAgent, command: Sequence[str], model: str, key: str) -> int:
    async with running(bridge) as port:
        place = RouteAddress(f"http://127.0.0.1:{port}", route.path, model, key)
        kept = {name: value for name, value in os.environ.items() if name not in agent.removed}
        given = {name: place.filled(value) for name, value in agent.variables.items()}
        arguments = map(place.filled, agent.arguments)
        with _settings(agent, place) as settings, _signals_are_the_agents() as child:
            process = await asyncio.create_subprocess_exec(
                command[0], *arguments, *command[1:], env={**kept, **given, **settings}
            )
            child.append(process)
            code = await process.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _settings(agent: CodingAgent, place: RouteAddress) -> Iterator[dict[str, str]]:
    """Write the settings of an agent that reads some from a file, and return the variable that names it."""
    if not agent.settings:
        yield {}
        return
    # Below the user's own folder: Gemini CLI reads no settings below one where others can write, as in /tmp.
    parent = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dialect-bridge-", dir=parent) as folder:
        file = Path(folder) / "settings.json"
        file.write_text(place.filled(agent.settings, lambda value: json.dumps(value)[1:-1]), encoding="utf-8")
        yield {agent.settings_variable: str(file)}


@contextmanager
def _signals_are_the_agents() -> Iterator[list[asyncio.subprocess.Process]]:
    """Leave Ctrl-C to the agent, which has the same terminal, and hand it what asks this process to end."""
    child: list[asyncio.subprocess.Process] = []

    def forward(number: signal.Signals) -> None:
        for process in child:
            if process.returncode is None:
                process.send_signal(number)

    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        for number in (*_FORWARDED, signal.SIGINT, signal.SIGQUIT):
            loop.add_signal_handler(number, forward if number in _FORWARDED else lambda _: None, number)
            stack.callback(loop.remove_signal_handler, number)
        yield child


@contextmanager
def _log_file(named: str | None) -> Iterator[Path]:
    """Send the log to this file, by default warnings to one for this run, which is removed if there were none."""
    if named is None:
        handle, name = tempfile.mkstemp(prefix="dialect-bridge-", suffix=".log")
        os.close(handle)
    else:
        name = named
    path = Path(name)
    try:
        stream = path.open("a", encoding="utf-8", buffering=1)
    except OSError as error:
        raise ConfigError(f"--log: {path} cannot be written: {error.strerror}") from None
    with stream:
        logs.set_up("warning" if named is None else "info", "text", stream)
        try:
            yield path
        finally:
            logging.getLogger().handlers.clear()
    if named is None and not path.stat().st_size:
        path.unlink()
