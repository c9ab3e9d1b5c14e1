"""Model names as people configure them: exact ones and globs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeVar

T = TypeVar("T")


def is_pattern(name: str) -> bool:
    """Return whether a configured model name is a glob."""
    return any(c in name for c in "*?[")


def pick(table: Mapping[str, T], name: str) -> T | None:
    """The value that belongs to the model `name`: its own entry, else the first glob in order of writing, else None.

    Globs are those of `fnmatch.fnmatchcase`: `*`, `?`, `[abc]`, and case counts.
    """
    if name in table:
        return table[name]
    for pattern, value in table.items():
        if fnmatchcase(name, pattern):
            return value
    return None


@dataclass(frozen=True, slots=True)
class ModelNames:
    """Which name a backend is sent for the one a client named.

    `default` is used when the client names none, else what the glob `*` maps to; `renames` maps a name or glob to the
    backend's name.
    """

    default: str | None = None
    renames: Mapping[str, str] = field(default_factory=dict)

    def model_for(self, requested: str | None) -> str | None:
        """Return the backend's name for a client's name, which is unchanged unless it is renamed."""
        if not requested:
            return self.default or self.renames.get("*")
        return (pick(self.renames, requested) if self.renames else None) or requested

    @property
    def listed(self) -> list[str]:
        """The names that can be shown to a client."""
        listed = [n for n in self.renames if not is_pattern(n)]
        return [*listed, *([self.default] if self.default and self.default not in listed else [])]
