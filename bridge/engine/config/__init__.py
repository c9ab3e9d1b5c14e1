"""The configuration: its YAML schema, loading, checks and error messages."""

from bridge.engine.config.json_schema import json_schema
from bridge.engine.config.kinds import Names, is_loopback, names_in, weights_in
from bridge.engine.config.load import load, parse, read
from bridge.engine.config.schema.backends import (
    BackendAuthSection,
    BackendSection,
    BreakerSection,
    RetrySection,
    TimeoutsSection,
)
from bridge.engine.config.schema.base import ConcurrencySection
from bridge.engine.config.schema.routes import RouteSection
from bridge.engine.config.schema.server import (
    ApiKeySection,
    AuthSection,
    CorsSection,
    HealthSection,
    HttpClient,
    JwtSection,
    LimitsSection,
    MetricsSection,
    ServerSection,
)
from bridge.engine.config.schema.whole import Config, SpeechSection, StoresSection
from bridge.engine.config.share import share_of

__all__ = [
    "ApiKeySection",
    "AuthSection",
    "BackendAuthSection",
    "BackendSection",
    "BreakerSection",
    "ConcurrencySection",
    "Config",
    "CorsSection",
    "HealthSection",
    "HttpClient",
    "JwtSection",
    "LimitsSection",
    "MetricsSection",
    "Names",
    "RetrySection",
    "RouteSection",
    "ServerSection",
    "SpeechSection",
    "StoresSection",
    "TimeoutsSection",
    "is_loopback",
    "json_schema",
    "load",
    "names_in",
    "parse",
    "read",
    "share_of",
    "weights_in",
]
