"""`dialect-bridge serve`: this process as the server, or as the parent of several that share the port."""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import os
import shlex
import signal
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote

from bridge.cli import early_signals, logs
from bridge.cli.demo import configuration
from bridge.cli.health_file import write_health_file
from bridge.cli.worker_channel import WorkerChannel
from bridge.contract import Operation, QueuedRunsDialect, ToolServerDialect, WireRequest
from bridge.engine.bridge import Bridge
from bridge.engine.config import Config, load, read, share_of
from bridge.engine.route import Route
from bridge.engine.telemetry import SHARED_METRICS
from bridge.errors import ConfigError, Unsupported
from bridge.server import serve as run
from bridge.server.host.http_server import check
from bridge.server.host.listeners import url_host

_HINTS = {
    errno.EADDRINUSE: "; another program has the port: try --port",
    errno.EACCES: "; ports below 1024 need privileges: try --port",
    errno.EADDRNOTAVAIL: "; this machine does not have the address: try --host",
}
DEFAULT = "config.yaml"
"""The file that is served when the command line names none."""


def serve(args: argparse.Namespace) -> int:
    """Serve until stopped."""
    logs.set_up(args.log_level, args.log_format)
    handed = WorkerChannel.received()
    if handed is not None:
        config = _config(args, handed.read_config())
        return _serve(args, Bridge.of(share_of(config, handed.number)), handed)
    early_signals.kept()  # the file is read now
    text = _source(args)
    bridge = _bridge(args, text)
    server = bridge.config.server
    if server.workers == 1:
        return _serve(args, bridge)
    if server.port == 0:
        raise ConfigError("several workers share one port, so it cannot be 0.", key="server.port")
    from bridge.cli.workers import ProcessSupervisor

    check(bridge)
    try:
        with _shared_metrics():
            return asyncio.run(ProcessSupervisor(partial(_checked, args), sys.argv[1:]).run(text, bridge.config))
    except OSError as error:
        return _no_address(bridge, error)


def demo(args: argparse.Namespace) -> int:
    """Serve the demo, and open its page."""
    args.config, args.demo = None, True
    return serve(args)


def _serve(args: argparse.Namespace, bridge: Bridge, handed: WorkerChannel | None = None) -> int:
    """This process as the server; `handed` makes it a worker."""
    listening = False

    def ready(port: int) -> None:
        nonlocal listening
        listening = True
        if handed is None:
            write_health_file(bridge.config, port)
        if handed is None or handed.announces:
            # One of several processes prints this, as soon as it listens.
            _announce(bridge, port)
            if getattr(args, "demo", False) and not args.no_open:
                # In a thread: some browsers keep the command until they end.
                threading.Thread(target=webbrowser.open, args=(f"http://127.0.0.1:{port}/",), daemon=True).start()
        if handed is not None:
            handed.beat()
        elif early_signals.kept():
            signal.raise_signal(signal.SIGHUP)

    def changed(bridge: Bridge, port: int) -> None:
        write_health_file(bridge.config, port)

    sockets = handed.open_sockets() if handed is not None else None
    reload = None if handed is not None else lambda: _bridge(args, _source(args))
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(run(bridge, sockets, ready=ready, reload=reload, changed=changed, parent=handed))
    except ConfigError as error:
        raise bridge.config.located(error) from None
    except OSError as error:
        if listening:
            raise
        return _no_address(bridge, error)
    return 0


def _no_address(bridge: Bridge, error: OSError) -> int:
    server = bridge.config.server
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
    hint = _HINTS.get(error.errno or 0, "")
    print(f"cannot listen on {server.host}:{server.port}: {reason}{hint}", file=sys.stderr)
    return 1


@contextmanager
def _shared_metrics() -> Iterator[None]:
    """Return a folder for the metrics of all workers, which any of them reports, unless one is configured."""
    if SHARED_METRICS in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="dialect-bridge-metrics-", ignore_cleanup_errors=True) as folder:
        os.environ[SHARED_METRICS] = folder
        yield


def _bridge(args: argparse.Namespace, text: str | None = None) -> Bridge:
    """The bridge of the configuration; `text` instead of the file's."""
    return Bridge.of(_config(args, text), http_client="httptools" if find_spec("httptools") else "aiohttp")


def _config(args: argparse.Namespace, text: str | None = None) -> Config:
    """Return the configuration with the options of the command line."""
    overrides = {k: v for k in ("host", "port", "workers") if (v := getattr(args, k)) is not None}
    try:
        return load(args.config or DEFAULT, server=overrides or None, text=text)
    except ConfigError as error:
        if args.config is not None or (os.path.exists(DEFAULT) and not getattr(args, "demo", False)):
            raise
        raise ConfigError(
            f"{error.message}\nthe demo has no file to change; `dialect-bridge init` writes one"
        ) from None


def _source(args: argparse.Namespace) -> str:
    """The text of the file that the command line names, else of the default one, else of the demo."""
    if args.config is not None:
        return read(args.config)
    return configuration() if getattr(args, "demo", False) or not os.path.exists(DEFAULT) else read(DEFAULT)


def _checked(args: argparse.Namespace) -> tuple[str, Config]:
    """Return the text of the configuration and the checked configuration."""
    text = _source(args)
    bridge = _bridge(args, text)
    check(bridge)
    return text, bridge.config


def _loop_factory() -> Any:
    """uvloop's where it is installed: 0-16% less CPU, nothing else changes."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


# ---------------------------------------------------------------------- what is printed


def _announce(bridge: Bridge, port: int) -> None:
    """Print the route table, with a line for each that can be pasted. Nobody may be there to read it."""
    try:
        for line in _route_table(bridge, port):
            print(line)
        sys.stdout.flush()
    except (OSError, ValueError):
        # A closed pipe, a full disk. What is left in the buffer would fail again at exit.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_CURLS = 2
"""Routes whose curl lines are printed: those of all would fill the screen. The page has one for each."""


def _route_table(bridge: Bridge, port: int) -> Iterator[str]:
    """Yield the addresses, one a line; at the end what to do next, which is what a terminal shows."""
    config: Config = bridge.config
    base = f"http://{url_host(config.server.host)}:{port}"
    keyed = not config.server.is_open
    yield f"dialect-bridge is serving on {base}"
    yield ""
    rows = [(r.dialect.name, _address(base, r), ", ".join(b.name for b in r.backends)) for r in bridge.routes]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)] if rows else [0, 0]
    for dialect, address, backends in rows:
        yield f"  {dialect:{widths[0]}}  {address:{widths[1]}}  ->  {backends}"
    shown = [lines for route in bridge.routes if (lines := curls(base, route, keyed))][:_CURLS]
    for lines in shown:
        yield ""
        yield from (f"  {line}" for line in lines)
    if config.server.has_page:
        yield f"\nOpen {base}/ in a browser: it tries every route, and shows the lines to paste into your program."


def _address(base: str, route: Route) -> str:
    return _base_url(base, route) if route.listen is None else f"{route.listen}, agent {route.agent_id}"


def _base_url(base: str, route: Route) -> str:
    return base if route.path == "/" else f"{base}{route.path}"


def curls(base: str, route: Route, keyed: bool) -> list[str]:
    """Return the curl commands that send a greeting to the route and stream the answer."""
    return [] if route.listen is not None else list(_curls(base, route, keyed))


def _curls(base: str, route: Route, keyed: bool) -> Iterator[str]:
    dialect = route.dialect
    try:
        wire: WireRequest = dialect.example_request("Hello")
    except Unsupported:
        return
    if isinstance(dialect, ToolServerDialect):
        wire = dialect.example_call(dialect.tool_names(route.options, route.site)[0], "Hello")
    elif not any(endpoint.operation in (Operation.RUN, Operation.START) for endpoint in dialect.surface):
        return
    mount = _base_url(base, route)
    model, target = route.some_model or "YOUR_MODEL", wire.target
    if (named := wire.params.get("model")) is not None:
        target = target.replace(named, quote(model, safe=""), 1)
    body = wire.body.decode()
    sent = json.loads(body)
    if "model" in sent or (route.models is not None and not wire.params):
        body = json.dumps({**sent, "model": model}, ensure_ascii=False)
    yield _curl(f"{mount}{target}", wire.headers, keyed, "-d", body)
    if isinstance(dialect, QueuedRunsDialect) and (events := dialect.example_events()) is not None:
        yield _curl(f"{mount}{events.target}", events.headers, keyed)


def _curl(url: str, headers: Mapping[str, str], keyed: bool, *more: str) -> str:
    pieces = ["curl", "-N", url]
    for name, value in {**headers, **({"authorization": "Bearer YOUR_KEY"} if keyed else {})}.items():
        pieces += ["-H", f"{name}: {value}"]
    return shlex.join([*pieces, *more])
