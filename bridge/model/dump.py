"""Events as compact JSON values, for logs and stores, and back.

An event is `[code, field, field, ...]` in the order of its dataclass fields, with trailing defaults left out;
nested values are tagged the same way. `load(dump(e)) == e` for every event. Codes are part of stored data:
add, never renumber.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from typing import Any, cast, get_args

from bridge.errors import ErrorCode, Failure
from bridge.model import events as ev
from bridge.model import parts as pt
from bridge.model.events import Event

_CODES: dict[str, type] = {
    "r": ev.RunStarted,
    "m": ev.MessageStarted,
    "p": ev.PartStarted,
    "t": ev.TextDelta,
    "k": ev.ReasoningDelta,
    "a": ev.ArgsDelta,
    "q": ev.PartEnded,
    "c": ev.ContentAdded,
    "o": ev.ToolResulted,
    "n": ev.MessageEnded,
    "u": ev.UsageReported,
    "s": ev.StepStarted,
    "e": ev.StepEnded,
    "g": ev.StateChanged,
    "i": ev.Interrupted,
    "x": ev.Custom,
    "w": ev.Raw,
    "h": ev.Heartbeat,
    "f": ev.RunFailed,
    "z": ev.RunFinished,
    "T": pt.Text,
    "R": pt.Reasoning,
    "F": pt.Refusal,
    "C": pt.ToolCall,
    "O": pt.ToolResult,
    "M": pt.Media,
    "D": pt.Data,
    "U": pt.Url,
    "I": pt.Inline,
    "L": pt.FileRef,
    "E": Failure,
}
_BY_TYPE = {kind: code for code, kind in _CODES.items()}
_EVENTS: frozenset[type] = frozenset(get_args(Event))
# Fields whose values are ours and nested; every other field holds plain JSON that must come back untouched.
_NESTED = {"part", "parts", "source", "error"}
_ENUMS: dict[tuple[str, str], type[StrEnum]] = {
    ("p", "kind"): ev.PartKind,
    ("p", "origin"): pt.Origin,
    ("C", "origin"): pt.Origin,
    ("M", "kind"): pt.MediaKind,
    ("n", "status"): ev.MessageStatus,
    ("n", "reason"): ev.FinishReason,
    ("g", "op"): ev.StateOp,
    ("z", "reason"): ev.FinishReason,
    ("E", "code"): ErrorCode,
}
_FIELDS = {code: [f.name for f in fields(kind)] for code, kind in _CODES.items()}
_DEFAULTS = {
    code: [
        f.default if f.default is not MISSING else f.default_factory() if f.default_factory is not MISSING else MISSING
        for f in fields(kind)
    ]
    for code, kind in _CODES.items()
}


def _dump_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_dump_value(v) for v in value]
    if is_dataclass(value) and not isinstance(value, type):
        return _dump(value)
    return value


def _dump(value: Any) -> list[Any]:
    code = _BY_TYPE[type(value)]
    out: list[Any] = [code]
    for name in _FIELDS[code]:
        item = getattr(value, name)
        out.append(_dump_value(item) if name in _NESTED else str(item) if isinstance(item, StrEnum) else item)
    defaults = _DEFAULTS[code]
    while len(out) > 1 and defaults[len(out) - 2] is not MISSING and out[-1] == defaults[len(out) - 2]:
        out.pop()
    return out


def dump(event: Event) -> list[Any]:
    """The event as a JSON array."""
    return _dump(event)


def _load_value(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], str):
        return _load(value)
    return [_load_value(v) for v in value]


def _load(array: list[Any]) -> Any:
    code = array[0]
    kwargs: dict[str, Any] = {}
    for name, item in zip(_FIELDS[code], array[1:], strict=False):
        if name in _NESTED:
            kwargs[name] = _load_value(item)
        elif item is not None and (code, name) in _ENUMS:
            kwargs[name] = _ENUMS[code, name](item)
        else:
            kwargs[name] = item
    return _CODES[code](**kwargs)


def load(array: list[Any]) -> Event:
    """The event that `dump` wrote. Raises `ValueError` for anything else."""
    try:
        event = _load(array)
        if type(event) not in _EVENTS:
            raise TypeError("a part alone is no event")
        return cast(Event, event)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"expected an event array [code, field, ...], got {array!r:.120}") from error
