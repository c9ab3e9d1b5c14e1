"""Warnings about valid configurations that are probably mistakes; `dialect-bridge check` prints them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bridge.codec import Dialect, registry
from bridge.config.kinds import dialect_of
from bridge.config.schema.whole import Config

_UNBRACED = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]{0,99}")


def warnings(config: Config) -> list[str]:
    """Return a warning for each setting that is valid and unlikely to work, with its place."""
    return [*_backends(config), *_routes(config), *_models(config)]


def _backends(config: Config) -> Iterator[str]:
    for name, backend in config.backends.items():
        place = f"backends.{name}"
        key = backend.api_key.get_secret_value() if backend.api_key is not None else ""
        for field, value in (("api_key", key), ("model", backend.model or ""), ("url", str(backend.url or ""))):
            if _UNBRACED.fullmatch(value):
                written = f"an environment variable is written ${{{value[1:]}}}"
                yield f"{place}.{field}: {value} is used literally; {written}"
        dialect, url = dialect_of(backend.dialect), str(backend.url or "").partition("?")[0].rstrip("/")
        if dialect is not None and (ending := _ending(dialect, url)):
            yield f"{place}.url: expected the base URL; the dialect adds {ending} itself"


def _routes(config: Config) -> Iterator[str]:
    for index, route in enumerate(config.routes):
        dialect = registry.get(route.dialect)
        if route.path is not None and (ending := _ending(dialect, route.path)):
            yield f"routes[{index}].path: clients find it at {route.path}{ending}; the dialect adds {ending} itself"
        if route.durable and not dialect.resumable:
            yield (
                f"routes[{index}].durable: clients of {dialect.name} cannot resume a stream, so that runs are "
                "stored, and continue after their clients disconnect, without use"
            )


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
