"""Translates pydantic's errors: what was expected, what was given, and the most similar valid key."""

from __future__ import annotations

from inspect import isclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bridge.contract import registry
from bridge.engine.config.kinds import back_options, front_options
from bridge.engine.config.origin import ConfigOrigin
from bridge.engine.config.problems import EXPECTED, UNKNOWN, WRONG, Path, Problem, nearest, path_text
from bridge.engine.config.removed import removed
from bridge.engine.config.schema.backends import BackendSection
from bridge.engine.config.schema.routes import RouteSection
from bridge.engine.config.schema.whole import Config

_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "tuple_type": "a list",
    "list_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "too_short": "{min_length} or more entries",
    "too_long": "{max_length} or fewer entries",
    "string_too_short": "{min_length} or more characters",
    "string_too_long": "{max_length} or fewer characters",
    "string_pattern_mismatch": "text that matches {pattern}",
}

_WITHOUT_SEPARATORS = str.maketrans("", "", "_.-")

_ELSEWHERE: dict[str, tuple[str, ...]] = {
    "accesstoken": ("api_key",),
    "address": ("host", "server.host"),
    "agents": ("backends",),
    "apibase": ("url",),
    "apikeys": ("api_key", "keys", "auth.keys", "server.auth.keys"),
    "apitoken": ("api_key",),
    "authorization": ("api_key",),
    "baseurl": ("url",),
    "bearer": ("api_key",),
    "bind": ("host", "server.host"),
    "bodylimit": ("max_body",),
    "clientmaxbodysize": ("max_body",),
    "clusters": ("backends",),
    "connecttimeout": ("timeouts.connect",),
    "database": ("stores.history",),
    "databaseurl": ("stores.history",),
    "db": ("stores.history",),
    "defaultmodel": ("model",),
    "deployment": ("model",),
    "endpoint": ("url", "path"),
    "endpoints": ("routes",),
    "frontend": ("dialect",),
    "frontends": ("routes",),
    "generalsettings": ("server",),
    "host": ("url", "server.host"),
    "keys": ("auth.keys", "server.auth.keys"),
    "keysfile": ("keys",),
    "listen": ("port", "server.port"),
    "llms": ("backends",),
    "location": ("path",),
    "masterkey": ("auth.keys", "server.auth.keys"),
    "maxretries": ("attempts", "retry.attempts"),
    "modellist": ("backends",),
    "modelname": ("model",),
    "models": ("model", "backends"),
    "mount": ("path",),
    "numretries": ("attempts", "retry.attempts"),
    "port": ("url", "server.port"),
    "prefix": ("path",),
    "protocol": ("dialect",),
    "provider": ("dialect",),
    "providers": ("backends",),
    "proxypass": ("backend",),
    "ratelimit": ("limits",),
    "read": ("idle",),
    "readtimeout": ("timeouts.idle",),
    "requesttimeout": ("timeouts.total",),
    "retries": ("attempts", "retry.attempts"),
    "service": ("backend",),
    "services": ("backends",),
    "storage": ("stores",),
    "target": ("backend",),
    "timeout": ("timeouts.total", "backends.*.timeouts.total"),
    "token": ("api_key",),
    "tries": ("attempts",),
    "type": ("dialect",),
    "upstream": ("backend", "backends"),
    "upstreams": ("backend", "backends"),
    "url": ("path",),
}
"""Keys of other software, in lower case without separators, and the keys with the same meaning here: the first one
that is valid at the same place counts.
"""

_OTHER_PLACES: dict[str, str] = {
    "apikeys": "server.auth.keys",
    "auth": "server.auth",
    "cors": "server.cors",
    "fallbacks": "routes[].backend",
    "loglevel": "dialect-bridge serve --log-level",
    "logging": "dialect-bridge serve --log-level",
    "models": "routes[].models",
    "timeout": "backends.*.timeouts",
    "weight": "routes[].backend",
}
"""Keys of other software whose meaning is at another place of the file here, or an option of the command line."""

_EXAMPLES: dict[str, str] = {
    "backends": "{llm: {dialect: ..., url: https://llm.example/v1}}",
    "cors": '{origins: ["https://app.example"]}',
    "headers": "{x-name: value}",
    "keys": '[{name: web, key: "${WEB_KEY}"}]',
    "keys[]": '{name: web, key: "${WEB_KEY}"}',
    "metrics": "{path: /metrics}",
    "model_map": "{fast: gpt-4o-mini}",
    "models": '{"gpt-*": llm}',
    "retry": "{attempts: 3}",
    "routes": "[{dialect: ..., path: /v1, backend: llm}]",
    "stores": '{history: "sqlite:///bridge.db"}',
    "timeouts": "{total: 60s}",
}
"""Example values of keys that often get a value of the wrong type."""


def translate(error: ValidationError, data: Any, origin: ConfigOrigin, model: Any = Config) -> list[Problem]:
    """Return the problems of one pydantic error about `data`, which should have been a `model`."""
    rows = error.errors(include_url=False)
    return [Problem(row["loc"], _message(row, data, origin, model)) for row in rows if not _only_seems_short(row, rows)]


def _only_seems_short(row: ErrorDetails, rows: list[ErrorDetails]) -> bool:
    """Return whether a list is "too short" only because pydantic does not count its invalid entries."""
    path = row["loc"]
    return row["type"] == "too_short" and any(r["loc"][: len(path)] == path != r["loc"] for r in rows)


def _message(row: ErrorDetails, data: Any, origin: ConfigOrigin, model: Any) -> str:
    kind, path, context = row["type"], row["loc"], row.get("ctx", {})
    given = origin.show(path, row["input"])
    if kind == WRONG:
        return str(context["text"])
    if kind == EXPECTED:
        return f"expected {context['text']}, got {given}"
    if kind == UNKNOWN:
        return _unknown_name(context["what"], context["known"], row["input"], given)
    if kind == "extra_forbidden":
        return _unknown_key(path, data, model)
    if kind == "missing":
        return "missing; this key is required"
    if kind in ("string_type", "string_sub_type"):
        quotes = "; put it in quotes" if isinstance(row["input"], bool | int | float) else ""
        return f"expected text, got {given}{quotes}"
    if kind == "too_short" and context["min_length"] == 1:
        return "must not be empty"
    if kind in _EXPECTED:
        key = path_text(path[-2:]).rpartition(".")[2].replace("[0]", "[]")
        example = f"; for example {_EXAMPLES[key]}" if key in _EXAMPLES and kind.endswith("_type") else ""
        return f"expected {_EXPECTED[kind].format_map(context)}, got {given}{example}"
    return _foreign(row, path, origin)


def _foreign(row: ErrorDetails, path: Path, origin: ConfigOrigin) -> str:
    """Return the message of a dialect's own validator, unless it may contain a secret value."""
    if origin.hides(path):
        return f"not a valid value, got {origin.show(path, row['input'])}"
    return row["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")


def _unknown_name(what: str, known: list[str], value: Any, given: str) -> str:
    listed = f" Known {what}s: {', '.join(known) or 'none'}" if len(known) <= 50 else ""
    quoted = given if given.startswith('"') else f"({given})"
    near = registry.suggestion(str(value), known) if what == "dialect" else None
    hint = f'; did you mean "{near}"?' if near else nearest(str(value), known)
    return f"unknown {what} {quoted}{hint}{listed}".rstrip(".")


def _unknown_key(path: Path, data: Any, model: Any) -> str:
    if (instead := removed(".".join(map(str, (*path[:1], *path[2:]))))) is not None:
        return instead
    section, word = _model_at(path[:-1], data, model), str(path[-1])
    fields = section.model_fields.items() if _is_model(section) else ()
    known = [field.alias or name for name, field in fields]
    plain = word.translate(_WITHOUT_SEPARATORS).lower()
    meant = next((key for key in _ELSEWHERE.get(plain, ()) if key.partition(".")[0] in known), _OTHER_PLACES.get(plain))
    hint = f'; did you mean "{meant}"?' if meant else nearest(word, known)
    return f"unknown key{hint} Known keys: {', '.join(known) or 'none'}"


def _model_at(path: Path, data: Any, model: Any) -> Any:
    """Return the type of the value at `path` in a `model`; `data` holds the dialect of options."""
    for step in path:
        model = _below(model, step, data)
        data = _entry(data, step)
    return model


def _below(model: Any, step: str | int, value: Any) -> Any:
    """Return the type of the entry `step` in a value of type `model`."""
    if not _is_model(model):
        arguments = get_args(model)
        return _plain(arguments[-1 if get_origin(model) is dict else 0]) if arguments else None
    if step == "options" and model in (BackendSection, RouteSection):
        options = back_options if model is BackendSection else front_options
        return options(str(_entry(value, "dialect")))
    fields = model.model_fields.items()
    return next((_plain(field.annotation) for name, field in fields if step in (name, field.alias)), None)


def _plain(annotation: Any) -> Any:
    """Return the annotation without `Annotated` and `| None`."""
    while get_origin(annotation) in (Annotated, Union, UnionType):
        annotation = next(each for each in get_args(annotation) if each is not type(None))
    return annotation


def _is_model(value: Any) -> bool:
    return isclass(value) and issubclass(value, BaseModel)


def _entry(value: Any, step: str | int) -> Any:
    try:
        return value[step]
    except (KeyError, IndexError, TypeError):
        return None
