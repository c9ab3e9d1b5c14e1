"""Which extras a configuration needs, so that all that are not installed are named at once."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from bridge.contract import registry
from bridge.engine import config as cfg
from bridge.errors import ConfigError


def check_extras(config: cfg.Config) -> None:
    """Raise `ConfigError` if a dialect lacks what it needs, or if two or more extras are missing.

    Of a single extra that no dialect needs, the part that needs it says more.
    """
    missing = {extra: place for place, extra, module in _needed(config) if not _is_installed(module)}
    if len(missing) > 1:
        places = ", ".join(f"{place} ({extra})" for extra, place in missing.items())
        first = next(iter(missing.values()))
        install = f"pip install 'dialect-bridge[{','.join(missing)}]'"
        raise ConfigError(f"{len(missing)} extras are not installed: {install}; needed by {places}", key=first)
    for place, name in _dialects(config):
        try:
            registry.check_installed(registry.get(name))
        except ConfigError as error:
            raise ConfigError(error.message, key=place) from None


def _is_installed(module: str) -> bool:
    """Return whether the module can be found; the package that a dotted one is in may be missing as well."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _needed(config: cfg.Config) -> Iterator[tuple[str, str, str]]:
    """Yield each setting that needs an extra, with the extra and a module of it."""
    server, stores = config.server, config.stores
    if server.http_client == "httptools":
        yield "server.http_client", "httptools", "httptools"
    if server.traces is not None:
        yield "server.traces", "otel", "opentelemetry"
    if server.auth is not None and getattr(server.auth, "jwt", None) is not None:
        yield "server.auth.jwt", "jwt", "cryptography"
    for name, scheme, extra, module in (
        ("history", "postgres", "postgres", "asyncpg"),
        ("runs", "postgres", "postgres", "asyncpg"),
        *(("attachments", f"{scheme}:", "objects", "obstore") for scheme in ("s3", "gs", "az")),
    ):
        if str(getattr(stores, name) or "").startswith(scheme):
            yield f"stores.{name}", extra, module
    for name, backend in config.backends.items():
        for extra, module in (("gcp", "google.auth"), ("azure", "azure.identity"), ("aws", "botocore")):
            if backend.auth is not None and getattr(backend.auth, extra) is not None:
                yield f"backends.{name}.auth.{extra}", extra, module
    for place, name in _dialects(config):
        if (dialect := registry.get(name)).extra:
            for module in dialect.needs:
                yield place, dialect.extra, module


def _dialects(config: cfg.Config) -> Iterator[tuple[str, str]]:
    """Yield each setting that names a registered dialect, with the name."""
    for index, route in enumerate(config.routes):
        yield f"routes[{index}].dialect", route.dialect
    for name, backend in config.backends.items():
        if registry.known(backend.dialect):
            yield f"backends.{name}.dialect", backend.dialect
