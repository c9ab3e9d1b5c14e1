"""The configuration as models: every key with its type, its default and a line that says what it is.

The models check what one section can know of itself; what spans sections is in `bridge.config.checks`. They are
frozen, and made by `bridge.config.load` and `parse`, whose errors name file, line and key; pydantic's own do not.
An empty value (`auth:`) is the same as an absent key.
"""

from bridge.config.schema.backends import Backend, Breaker, Retry, Timeouts
from bridge.config.schema.base import Places, Section
from bridge.config.schema.routes import Route
from bridge.config.schema.server import (
    Allowed,
    ApiKey,
    Auth,
    Cors,
    FileKey,
    Health,
    HttpClient,
    Jwt,
    Limits,
    Metrics,
    PerKey,
    Server,
)
from bridge.config.schema.whole import Config, Retention, Speech, Stores

__all__ = [
    "Allowed",
    "ApiKey",
    "Auth",
    "Backend",
    "Breaker",
    "Config",
    "Cors",
    "FileKey",
    "Health",
    "HttpClient",
    "Jwt",
    "Limits",
    "Metrics",
    "PerKey",
    "Places",
    "Retention",
    "Retry",
    "Route",
    "Section",
    "Server",
    "Speech",
    "Stores",
    "Timeouts",
]
