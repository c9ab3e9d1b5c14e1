"""Loads a file or a mapping into a checked `Config`.

The steps are: YAML, variables, command line, the schema, and last the checks that span sections, which need valid
sections. All problems found up to the schema are reported together.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from bridge.engine.config import checks, source
from bridge.engine.config.origin import ConfigOrigin
from bridge.engine.config.problems import Problem
from bridge.engine.config.schema.whole import Config
from bridge.engine.config.substitute import substitute
from bridge.engine.config.translate import translate
from bridge.errors import ConfigError


def load(
    path: str | os.PathLike[str],
    *,
    server: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    text: str | None = None,
) -> Config:
    """Return the configuration in the YAML file `path`.

    Arguments:
        server: Keys of the section `server` that override the file's, as from a command line; None values are ignored.
        env: The variables for `${NAME}`, by default the process environment.
        text: The result of an earlier `read` of this file.

    Raises `ConfigError` with one line for each problem, ready to print, and the same as data in
    `failure.details["problems"]`.
    """
    name = os.fspath(path)
    document = source.read(read(name) if text is None else text, name)
    return _build(document.data, ConfigOrigin(name, document.positions), document.problems, server, env)


def parse(
    mapping: Mapping[str, Any],
    source: str = "configuration",
    *,
    server: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> Config:
    """Return the configuration in a mapping of the same shape; messages show `source` in place of a file's name.

    Variables are replaced as in a file. Raises `ConfigError` like `load`, without lines.
    """
    return _build(mapping, ConfigOrigin(source), [], server, env)


def read(path: str | os.PathLike[str]) -> str:
    """Return the text of the YAML file `path`. Raises `ConfigError` if it cannot be read."""
    name = os.fspath(path)
    try:
        return FilePath(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        hint = "; `dialect-bridge init` writes a file" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f"{name}: cannot be read: {error.strerror or type(error).__name__}{hint}") from None
    except ValueError:
        raise ConfigError(f"{name}: not UTF-8 text") from None


def _build(
    raw: Any,
    origin: ConfigOrigin,
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
    # Leave out problems that are consequences of reported ones.
    known += [each for each in wrong if not any(path and each.path[: len(path)] == path for path in reported)]
    if config is not None and not known:
        known = checks.problems(config, origin.show)
    if config is None or known:
        raise origin.error(known)
    return config.from_file(origin)


def _lay_over(data: dict[str, Any], server: Mapping[str, Any], origin: ConfigOrigin) -> dict[str, Any]:
    """Return the data with the command line's values, which have no position in the file."""
    given = {key: value for key, value in server.items() if value is not None}
    section = data.get("server")
    if not given or not (section is None or isinstance(section, dict)):
        return data
    for key in given:
        origin.options.add(("server", key))
        origin.positions.pop(("server", key), None)
        origin.sources.pop(("server", key), None)
    return {**data, "server": {**(section or {}), **given}}


def _validated(data: dict[str, Any], origin: ConfigOrigin) -> tuple[Config | None, list[Problem]]:
    backends = data.get("backends")
    context = {"backends": list(backends)} if isinstance(backends, dict) else {}
    try:
        config = Config.model_validate(data, context=context)
    except ValidationError as error:
        return None, translate(error, data, origin)
    return config, []
