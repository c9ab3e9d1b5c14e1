"""`dialect-bridge mcp`: the tools of routes, for the program that started this one."""

from __future__ import annotations

import argparse
import asyncio
import signal

from bridge.cli import logs
from bridge.cli.tool_stdio import ToolStdio
from bridge.contract import ToolServerDialect, registry
from bridge.engine.bridge import Bridge
from bridge.engine.config import Config, load
from bridge.engine.route import Route
from bridge.errors import ConfigError
from bridge.jsonrpc.stdio import ClaimedStdio, StdioCarrier, claim_stdio

DEFAULT = "config.yaml"


def mcp(args: argparse.Namespace) -> int:
    """Serve the tools until standard input ends. Everything else goes to standard error."""
    stdio = claim_stdio()
    logs.set_up(args.log_level, args.log_format)
    bridge = Bridge.of(_private(load(args.config_file or args.config or DEFAULT)))
    tools = ToolStdio(bridge, _tool_routes(bridge, args.route))
    asyncio.run(_serve(tools, stdio))
    return 0


def _private(config: Config) -> Config:
    """Return the configuration for the one client that started this process: without keys, page and other processes."""
    changes = {"auth": None, "hosts": None, "host": "127.0.0.1", "page": False, "metrics": None, "workers": 1}
    return config.model_copy(update={"server": config.server.model_copy(update=changes)})


def _tool_routes(bridge: Bridge, wanted: list[str]) -> list[Route]:
    offered = [route for route in bridge.routes if isinstance(route.dialect, ToolServerDialect)]
    if not offered:
        kinds = [name for name in registry.served() if isinstance(registry.get(name), ToolServerDialect)]
        raise ConfigError(f"no route offers tools: add one with `dialect: {kinds[0]}`", key="routes")
    if not wanted:
        return offered
    paths = {route.path: route for route in offered}
    if unknown := next((path for path in wanted if (path.rstrip("/") or "/") not in paths), None):
        raise ConfigError(f"--route {unknown}: there are tools at {', '.join(paths)}")
    return [paths[path.rstrip("/") or "/"] for path in dict.fromkeys(wanted)]


async def _serve(tools: ToolStdio, stdio: ClaimedStdio) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await tools.serve(StdioCarrier(stdio), stop)
