"""`${NAME}`, `${NAME:-default}` and `${file:/path}` in string values.

As in a shell, the default applies if the variable is unset or empty. `$${` is a literal `${`. Substituted values are
not expanded again, keys are never expanded, and no message shows a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from bridge.engine.config.problems import Path, Problem

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_VARIABLE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<rest>:-(?P<default>.*))?", re.DOTALL)
_SECRET = re.compile(r"(^|_)(key|secret|token|password|credentials)$", re.IGNORECASE)
"""Settings whose value is a secret."""
_FORMS = 'expected ${NAME}, ${NAME:-default} or ${file:/path}; a literal "${" is written "$${"'


@dataclass(slots=True)
class Substituted:
    """A copy of the configuration with every reference replaced.

    `sources` holds the reference of each replaced value (`${PORT}`), for messages that must not show it. A value with a
    problem is unchanged.
    """

    data: Any
    sources: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


class _Failed(Exception):
    pass


def substitute(data: Any, env: Mapping[str, str]) -> Substituted:
    """Replace the references in every string of nested mappings and lists. Never raises."""
    result = Substituted(None)
    result.data = _walk(data, (), env, result)
    return result


def _walk(value: Any, path: Path, env: Mapping[str, str], result: Substituted) -> Any:
    if isinstance(value, Mapping):
        return _mapping(value, path, env, result)
    if isinstance(value, list | tuple):
        return [_walk(item, (*path, index), env, result) for index, item in enumerate(value)]
    if isinstance(value, str) and "${" in value:
        return _string(value, path, env, result)
    return value


def _mapping(value: Mapping[Any, Any], path: Path, env: Mapping[str, str], result: Substituted) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(key, str):
            found[key] = _walk(item, (*path, key), env, result)
        else:
            result.problems.append(Problem(path, f"expected text as key, got {key!r}"))
    return found


def _string(text: str, path: Path, env: Mapping[str, str], result: Substituted) -> str:
    used: list[str] = []
    try:
        is_secret = bool(path) and _SECRET.search(str(path[-1])) is not None
        replaced = _REFERENCE.sub(lambda match: _replacement(match, env, used, is_secret), text)
    except _Failed as error:
        result.problems.append(Problem(path, str(error)))
        return text
    if used:
        result.sources[path] = ", ".join(used)
    return replaced


def _replacement(match: re.Match[str], env: Mapping[str, str], used: list[str], is_secret: bool) -> str:
    if match[0] == "$${":
        return "${"
    body = match["body"]
    # `${A:-${B}}` would end at the first brace and leave the second behind.
    if not match["end"] or "${" in body:
        raise _Failed(_FORMS)
    if body.startswith("file:"):
        used.append(f"${{{body}}}")
        return _file(body.removeprefix("file:"))
    variable = _VARIABLE.fullmatch(body)
    if variable is None:
        raise _Failed(_FORMS)
    used.append(f"${{{variable['name']}}}")
    return _variable(variable["name"], variable["default"], env, is_secret)


def _variable(name: str, default: str | None, env: Mapping[str, str], is_secret: bool) -> str:
    value = env.get(name)
    if default is not None:
        return value or default
    if value is None:
        # A secret in a file is none.
        other = "write ${file:/path} to read a file" if is_secret else f"write ${{{name}:-default}}"
        raise _Failed(f"the environment variable {name} is not set; set it, or {other}")
    return value


def _file(name: str) -> str:
    """Return the file's text without trailing line breaks and a byte order mark.

    The name is relative to the working directory.
    """
    if not name:
        raise _Failed(_FORMS)
    try:
        return FilePath(name).read_text(encoding="utf-8-sig").rstrip("\r\n")
    except OSError as error:
        raise _Failed(f"the file {name} cannot be read: {error.strerror or type(error).__name__}") from None
    except ValueError:
        raise _Failed(f"the file {name} is not UTF-8 text") from None
