"""From a file or a mapping to a checked `Config`.

The order is fixed: YAML, variables, command line, the schema, and last what spans sections.
Everything found up to the schema is reported together; what spans sections needs sound sections.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from bridge.config import checks, source
from bridge.config.origin import Origin
from bridge.config.problems import Problem
from bridge.config.schema.whole import Config
from bridge.config.substitute import substitute
from bridge.config.translate import translate
from bridge.errors import ConfigError


def load(
    path: str | os.PathLike[str],
    *,
    server: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    text: str | None = None,
) -> Config:
    """The configuration in the YAML file `path`.

    `server`: keys of the section `server` that go before the file's, as a command line gives them; None values are
    left out. `env`: what `${NAME}` sees, by default the process environment. `text`: what `read` gave
    for this file earlier. Raises `ConfigError` with one line for
    each mistake, ready to print, and the same as data in `failure.details["problems"]`.
    """
    name = os.fspath(path)
    document = source.read(read(name) if text is None else text, name)
    return _build(document.data, Origin(name, document.places), document.problems, server, env)


def parse(
    mapping: Mapping[str, Any],
    source: str = "configuration",
    *,
    server: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> Config:
    """The configuration in a mapping of the same shape; `source` stands in messages where a file's name would.

    Variables are replaced as in a file. Raises `ConfigError` like `load`, without lines.
    """
    return _build(mapping, Origin(source), [], server, env)


def read(path: str | os.PathLike[str]) -> str:
    """The text of the YAML file `path`. Raises `ConfigError` when there is none."""
    name = os.fspath(path)
    try:
        return FilePath(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror or type(error).__name__}") from None
    except ValueError:
        raise ConfigError(f"{name}: not UTF-8 text") from None


def _build(
    raw: Any,
    origin: Origin,
    problems: list[Problem],
    server: Mapping[str, Any] | None,
    env: Mapping[str, str] | None,
) -> Config:
    if not isinstance(raw, Mapping):
        what = "is empty; it needs" if raw is None else "is not a mapping; it needs the keys"
        raise origin.error([*problems, Problem((), f"the configuration {what} backends and routes")])
    replaced = substitute(raw, os.environ if env is None else env)
    origin.sources = replaced.sources
    data = _lay_over(replaced.data, server or {}, origin)
    known = [*problems, *replaced.problems]
    config, wrong = _validated(data, origin)
    reported = [problem.path for problem in known]
    # Not what merely follows from a problem that is told already.
    known += [each for each in wrong if not any(path and each.path[: len(path)] == path for path in reported)]
    if config is not None and not known:
        known = checks.problems(config, origin.show)
    if config is None or known:
        raise origin.error(known)
    return config


def _lay_over(data: dict[str, Any], server: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
    """The data with the command line's values; they have no place in the file any more."""
    given = {key: value for key, value in server.items() if value is not None}
    section = data.get("server")
    if not given or not (section is None or isinstance(section, dict)):
        return data
    for key in given:
        origin.places.pop(("server", key), None)
        origin.sources.pop(("server", key), None)
    return {**data, "server": {**(section or {}), **given}}


def _validated(data: dict[str, Any], origin: Origin) -> tuple[Config | None, list[Problem]]:
    backends = data.get("backends")
    context = {"backends": list(backends)} if isinstance(backends, dict) else {}
    try:
        config = Config.model_validate(data, context=context)
    except ValidationError as error:
        return None, translate(error, data, origin)
    return config, []
