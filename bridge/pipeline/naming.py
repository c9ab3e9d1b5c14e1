"""Which model name a backend is sent for the one a client named."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase


def is_pattern(name: str) -> bool:
    """Whether a configured model name is a glob."""
    return any(c in name for c in "*?[")


@dataclass(frozen=True, slots=True)
class ModelNames:
    """`default` is used when the client names none; `renames` maps a name or glob to the backend's name."""

    default: str | None = None
    renames: dict[str, str] = field(default_factory=dict)

    def model_for(self, asked: str | None) -> str | None:
        """Exact names win over globs, globs in the order of writing; else the client's name goes through."""
        if not asked:
            return self.default
        if asked in self.renames:
            return self.renames[asked]
        for pattern, name in self.renames.items():
            if is_pattern(pattern) and fnmatchcase(asked, pattern):
                return name
        return asked

    @property
    def listed(self) -> list[str]:
        """The names that can be shown to a client."""
        shown = [n for n in self.renames if not is_pattern(n)]
        return [*shown, *([self.default] if self.default and self.default not in shown else [])]
