"""Durations, times and sizes in the notation of configurations, as pydantic types for seconds and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from bridge.engine.config.problems import expected
from bridge.toolkit.units import BYTES, DURATION_PATTERN, SECONDS, SIZE_PATTERN, quantity

# YAML 1.1 reads a bare `off` as false, YAML 1.2 and a variable give the word.
_OFF = ("off", "no", "false")

_A_DURATION = "a duration such as 500ms, 5s, 10m, 24h, 90d or a number of seconds"
_A_MOMENT = "a date or a time such as 2027-01-31 or 2027-01-31T12:00:00Z (UTC where no zone is written)"
_A_SIZE = "a size such as 64KiB, 10MiB, 1GiB, 5MB or a number of bytes"


def is_off(value: Any) -> bool:
    """Return whether a value means `off`: false, or one of the words that YAML 1.1 reads as false."""
    return value is False or (isinstance(value, str) and value.strip().lower() in _OFF)


def off_is_none(value: Any) -> Any:
    """Return None for `off`, and everything else unchanged."""
    return None if is_off(value) else value


def duration(value: Any) -> float:
    """Return seconds. Raises the error "expected a duration", also for negative and infinite values."""
    return _quantity(value, SECONDS, _A_DURATION)


def moment(value: Any) -> float:
    """Return the seconds since 1970 of a date or time: ISO 8601 text, or a YAML timestamp. Naive times are UTC."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        elif isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        if isinstance(value, datetime):
            return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        pass
    raise expected(_A_MOMENT)


def duration_or_off(value: Any) -> float | None:
    """Return seconds; None for `off` and for 0."""
    if value is None or is_off(value):
        return None
    return _quantity(value, SECONDS, f"{_A_DURATION}, or off") or None


def size(value: Any) -> int:
    """Return bytes, rounded down. Raises the error "expected a size" for anything else."""
    return int(_quantity(value, BYTES, _A_SIZE))


def _quantity(value: Any, units: Mapping[str, float], what: str) -> float:
    try:
        return quantity(value, units)
    except ValueError:
        raise expected(what) from None


def _positive(value: float) -> float:
    if value <= 0:
        raise expected("more than 0")
    return value


def _duration_schema(off: bool = False) -> WithJsonSchema:
    words = r"|^(off|no|false)$" if off else ""
    kinds = ["number", "string", "boolean", "null"] if off else ["number", "string"]
    return WithJsonSchema({"type": kinds, "minimum": 0, "pattern": DURATION_PATTERN + words})


Moment = Annotated[float, BeforeValidator(moment), WithJsonSchema({"type": "string"})]
Duration = Annotated[float, BeforeValidator(duration), _duration_schema()]
DurationOrOff = Annotated[float | None, BeforeValidator(duration_or_off), _duration_schema(off=True)]


Size = Annotated[
    int,
    BeforeValidator(size),
    AfterValidator(_positive),
    WithJsonSchema({"type": ["integer", "string"], "minimum": 1, "pattern": SIZE_PATTERN}),
]
