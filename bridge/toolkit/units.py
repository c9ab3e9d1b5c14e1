"""Durations and sizes as people write them: numbers, or numbers with a unit. For options of dialects, too."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, WithJsonSchema

SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
BYTES: dict[str, float] = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", re.ASCII)


def quantity(value: Any, units: Mapping[str, float]) -> float:
    """The amount in the unit `""`. Raises `ValueError` for anything else, negative and endless amounts included."""
    number, unit = value, ""
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value.strip())
        if match is None or match[2] not in units:
            raise ValueError(f"expected a number with one of the units {', '.join(filter(None, units))}")
        number, unit = float(match[1]), match[2]
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError("expected a number")
    try:
        amount = float(number) * units[unit]
    except OverflowError:
        raise ValueError("expected a smaller number") from None
    if not math.isfinite(amount) or amount < 0:
        raise ValueError("expected 0 or more")
    return amount


DURATION_PATTERN = r"^[0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d)?$|\$\{"
SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)?\s*(B|[kK]B|MB|GB|[KMG]iB)?$|\$\{"
"""Durations and sizes as text, for a JSON Schema; variables of a configuration (`${NAME}`) included."""

Seconds = Annotated[
    float,
    BeforeValidator(lambda value: quantity(value, SECONDS)),
    WithJsonSchema({"type": ["number", "string"], "minimum": 0, "pattern": DURATION_PATTERN}),
]
"""A duration option, in seconds: `30`, `"500ms"`, `"10m"`."""

Bytes = Annotated[
    int,
    BeforeValidator(lambda value: int(quantity(value, BYTES))),
    WithJsonSchema({"type": ["integer", "string"], "minimum": 0, "pattern": SIZE_PATTERN}),
]
"""A size option, in bytes: `4194304`, `"4MiB"`."""

_Word = TypeVar("_Word")
OffWord = Annotated[_Word, BeforeValidator(lambda value: "off" if value is False else value)]
"""An option with a word `off`, which YAML 1.1 reads as false: `OffWord[Literal["comment", "off"]]`."""
