"""Warnings about valid configurations that are probably mistakes; `dialect-bridge check` prints them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bridge.contract import AgentTasksDialect, Dialect, Operation, ToolServerDialect, offers, registry
from bridge.engine.config.kinds import dialect_of
from bridge.engine.config.schema.whole import Config

_NAME = r"([A-Za-z_][A-Za-z0-9_]{0,99})"
_VARIABLE = re.compile(
    rf"\${_NAME}|\$\({_NAME}\)|\$?env:{_NAME}|%{_NAME}%|os\.environ[/.]{_NAME}|\{{\{{ ?(?:env\.)?{_NAME} ?\}}\}}"
)
"""Environment variables as shells and other software write them."""
_PLACEHOLDER = re.compile(r"<.*>|your[-_ ].*key.*|sk-(x{3,}|\.{3})|change-?me|\.{3}", re.IGNORECASE)
_READ_AGAIN = (Operation.SUBSCRIBE, Operation.STATUS, Operation.TASKS, Operation.TOOLS)
_LONG = 3 * 3600.0
_SMALL = 1024
_TWICE = re.compile(r"/(v\d+\w*)/\1$")


def warnings(config: Config) -> list[str]:
    """Return a warning for each setting that is valid and unlikely to work, with its place."""
    return [*_server(config), *_backends(config), *_routes(config), *_models(config)]


def _server(config: Config) -> Iterator[str]:
    if config.server.max_body < _SMALL:
        yield f"server.max_body: {config.server.max_body} bytes are too few for most requests; a number is in bytes"


def _backends(config: Config) -> Iterator[str]:
    for name, backend in config.backends.items():
        place = f"backends.{name}"
        key = backend.api_key.get_secret_value() if backend.api_key is not None else ""
        for field, value in (("api_key", key), ("model", backend.model or ""), ("url", str(backend.url or ""))):
            if (found := _VARIABLE.fullmatch(value)) is not None:
                variable = next(filter(None, found.groups()))
                written = f"an environment variable is written ${{{variable}}}"
                yield f"{place}.{field}: {value} is used literally; {written}"
        if _PLACEHOLDER.fullmatch(key):
            yield f"{place}.api_key: this looks like a placeholder"
        for field, seconds in backend.timeouts.model_dump().items():
            if seconds is not None and field != "total" and seconds >= _LONG:
                yield f"{place}.timeouts.{field}: {seconds:g} s are {seconds / 3600:.1f} hours; a number is in seconds"
        dialect, url = dialect_of(backend.dialect), str(backend.url or "").partition("?")[0].rstrip("/")
        if dialect is not None and (ending := _ending(dialect, url)):
            yield f"{place}.url: expected the base URL; the dialect adds {ending} itself"
        if (twice := _TWICE.search(url)) is not None:
            yield f"{place}.url: has /{twice[1]} twice"


def _routes(config: Config) -> Iterator[str]:
    for index, route in enumerate(config.routes):
        dialect = registry.get(route.dialect)
        if route.path is not None and (ending := _ending(dialect, route.path)):
            yield f"routes[{index}].path: clients find it at {route.path}{ending}; the dialect adds {ending} itself"
        is_demo = isinstance(route.backend, str) and config.backends[route.backend].is_demo
        has_tasks = isinstance(dialect, AgentTasksDialect) and offers(dialect.surface, Operation.TASKS)
        if has_tasks and not route.durable and not is_demo:
            yield (
                f"routes[{index}].durable: a task that waits for an answer is kept in the process that asked, so that "
                "a restart loses it, and another worker does not know it; durable: true stores it"
            )
        if isinstance(dialect, ToolServerDialect):
            missing = [f"options.{key}" for key in dialect.undescribed(route.options)] if not route.offered else []
            missing += [f"tools.{name}.description" for name, tool in route.offered.items() if not tool.description]
            for key in missing:
                yield f"routes[{index}].{key}: missing; a model chooses a tool by its description"
            if config.server.workers > 1 and ":memory:" in config.stores.runs:
                yield (
                    f"routes[{index}]: a client that cancels a call of a session, or answers its question, does so "
                    f"over another connection, which may reach another one of the {config.server.workers} workers; "
                    "stores.runs: a file or PostgreSQL passes it on"
                )
        if route.durable and not _is_read_again(dialect):
            yield (
                f"routes[{index}].durable: clients of {dialect.name} cannot resume a stream, so that runs are "
                "stored, and continue after their clients disconnect, without use"
            )


def _is_read_again(dialect: Dialect) -> bool:
    """Return whether clients can come back to a run: to its stream, or to its result."""
    return dialect.resumable or any(e.operation in _READ_AGAIN for e in dialect.surface)


def _ending(dialect: Dialect, address: str) -> str:
    """Return the path of an endpoint of this dialect with which the address ends; empty if there is none."""
    if dialect.over_grpc:
        return ""
    paths = (endpoint.path for endpoint in dialect.surface if endpoint.path and "{" not in endpoint.path)
    return next((path for path in paths if address.rstrip("/").endswith(path)), "")


def _models(config: Config) -> Iterator[str]:
    for index, route in enumerate(config.routes):
        front = registry.get(route.dialect)
        for name in route.backends:
            backend = config.backends[name]
            back = dialect_of(backend.dialect)
            if back is None or not back.requires_model or backend.model is not None or "*" in backend.model_map:
                continue
            if not front.requires_model:
                yield (
                    f"routes[{index}]: clients of {route.dialect} need not name a model, and backends.{name}.model "
                    "is not set"
                )
