"""The keys that are planned and that this version does not serve, in one table.

A key whose silent absence would break a promise is refused; one that does no harm while unused is checked and
named in `Config.notices`. When a feature arrives, its row goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bridge.config.problems import Path, Problem, path_text
from bridge.config.units import is_off


def _asked(value: Any) -> bool:
    """Whether a value asks for something: not absent, not `off`, not empty text and not an empty list."""
    return not (value is None or is_off(value) or value in ("", []))


@dataclass(frozen=True, slots=True)
class Later:
    """`pattern`: a path whose `*` stands for any key or index. `why`: what happens without it."""

    pattern: tuple[str, ...]
    refused: bool
    why: str
    asked: Callable[[Any], bool] = _asked


LATER: tuple[Later, ...] = ()


def refused(data: Any) -> list[Problem]:
    """The keys in `data` (replaced, not yet checked) that this version must refuse."""
    return [Problem(path, f"not available in this version: {row.why}") for row, path in _found(data) if row.refused]


def notices(data: Any) -> list[str]:
    """A sentence for each key in `data` that is accepted and not used."""
    return [f"{path_text(path)}: not used by this version; {row.why}" for row, path in _found(data) if not row.refused]


def _found(data: Any) -> Iterator[tuple[Later, Path]]:
    for row in LATER:
        for path, value in _matches(data, row.pattern, ()):
            if row.asked(value):
                yield row, path


def _matches(value: Any, pattern: tuple[str, ...], path: Path) -> Iterator[tuple[Path, Any]]:
    if not pattern:
        yield path, value
        return
    step, rest = pattern[0], pattern[1:]
    entries: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        entries = [(key, item) for key, item in value.items() if step in ("*", key)]
    elif isinstance(value, list) and step == "*":
        entries = list(enumerate(value))
    for key, item in entries:
        yield from _matches(item, rest, (*path, key))
