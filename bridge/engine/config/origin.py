"""The origin of a configuration: the YAML positions of its values, and which values are secret."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bridge.engine.config.problems import Path, Problem, path_text
from bridge.errors import ConfigError

# Values below these keys may be secrets: messages name their kind, never the value.
_SECRET = re.compile(r"(.*[_-])?(key|secret|token|password)|headers|auth|stores", re.IGNORECASE)
_URL = re.compile(r"(.*_)?(?:url|proxy)", re.IGNORECASE)
_HOLDS_MORE = re.compile(r"[@?]")  # a URL with credentials or a query
# ... but these are names, even below `auth`.
_NAMES = ("name", "routes", "operations", "not_before", "expires")
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a file; line and column count from 1."""

    line: int
    column: int


@dataclass(slots=True)
class ConfigOrigin:
    """The origin of the values of a configuration.

    `name` is the file as the user wrote it, or what stands for it. `places` are the positions of keys, by path.
    `sources` names the variable or file of each value that came from one, `options` are the paths of those from the
    command line.
    """

    # Configurations with the same values are equal, wherever these come from.
    name: str = field(compare=False)
    positions: dict[Path, Position] = field(default_factory=dict, compare=False)
    sources: dict[Path, str] = field(default_factory=dict, compare=False)
    options: set[Path] = field(default_factory=set, compare=False)

    def position(self, path: Path) -> Position | None:
        """Return the position of the key at `path`, or of its nearest parent; None without a file."""
        while path and path not in self.positions:
            path = path[:-1]
        return self.positions.get(path)

    def hides(self, path: Path) -> bool:
        """Return whether the value at `path`, or one below it, is secret."""
        if any(source[: len(path)] == path for source in self.sources):
            return True
        keys = [step for step in path if isinstance(step, str)]
        if "auth" in keys and keys[-1] in _NAMES:
            return False
        return any(_SECRET.fullmatch(key) for key in keys)

    def show(self, path: Path, value: Any) -> str:
        """Return the value as a message may show it: `"abc"`, `12`, `a list`, `the value of ${PORT}`."""
        if path in self.sources:
            return f"the value of {self.sources[path]}"
        kind = _kind(value)
        if kind not in ("text", "a number", "a truth value") or (kind != "a truth value" and self.hides(path)):
            return kind
        if isinstance(value, str) and path and _URL.fullmatch(str(path[-1])) and _HOLDS_MORE.search(value):
            return kind
        text = json.dumps(value, ensure_ascii=False)
        return text if len(text) <= _LONGEST else f'{text[:_LONGEST]}..."'

    def error(self, problems: Iterable[Problem]) -> ConfigError:
        """Return all problems as one exception, with a line for each in the order of the file.

        `failure.details["problems"]` holds them as mappings with path, message, file, line and column.
        """
        rows = sorted(dict.fromkeys(problems), key=lambda problem: self._order(problem.path))
        return ConfigError(
            "\n".join(self._line(row) for row in rows), details={"problems": [self._details(row) for row in rows]}
        )

    def located(self, error: ConfigError) -> ConfigError:
        """Return an error that a checked configuration caused later, with file and line if it names a key of it."""
        key = error.failure.param
        path = next((path for path in self.positions if path and path_text(path) == key), None)
        return error if path is None else self.error([Problem(path, error.reason)])

    def _order(self, path: Path) -> tuple[int, int]:
        found = self.position(path)
        return (found.line, found.column) if found else (0, 0)

    def _line(self, problem: Problem) -> str:
        found = self.position(problem.path)
        head = f"{self.name}:{found.line}" if found else self.name
        if problem.path in self.options:
            head = f"--{problem.path[-1]}"
        return ": ".join(part for part in (head, path_text(problem.path), problem.message) if part)

    def _details(self, problem: Problem) -> dict[str, Any]:
        found = self.position(problem.path)
        return {
            "path": path_text(problem.path),
            "message": problem.message,
            "file": self.name,
            "line": found.line if found else None,
            "column": found.column if found else None,
        }


def _kind(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "a truth value"
        case str():
            return "text"
        case int() | float():
            return "a number"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case _:
            return f"a {type(value).__name__}"
