"""The configuration: its YAML schema, loading, checks and error messages."""

from bridge.engine.config.json_schema import json_schema
from bridge.engine.config.kinds import Names, is_loopback, names_in, weights_in
from bridge.engine.config.load import load, parse, read
from bridge.engine.config.schema.backends import Backend, BackendAuth, Breaker, Retry, Timeouts
from bridge.engine.config.schema.base import Concurrency
from bridge.engine.config.schema.routes import Route
from bridge.engine.config.schema.server import (
    ApiKey,
    Auth,
    Cors,
    Health,
    HttpClient,
    Jwt,
    Limits,
    Metrics,
    Server,
)
from bridge.engine.config.schema.whole import Config, Speech, Stores
from bridge.engine.config.share import share_of

__all__ = [
    "ApiKey",
    "Auth",
    "Backend",
    "BackendAuth",
    "Breaker",
    "Concurrency",
    "Config",
    "Cors",
    "Health",
    "HttpClient",
    "Jwt",
    "Limits",
    "Metrics",
    "Names",
    "Retry",
    "Route",
    "Server",
    "Speech",
    "Stores",
    "Timeouts",
    "is_loopback",
    "json_schema",
    "load",
    "names_in",
    "parse",
    "read",
    "share_of",
    "weights_in",
]
