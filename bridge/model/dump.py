"""Events, messages, tools and requests as compact JSON values, for logs and stores, and back.

An event is `[code, field, field, ...]` in the order of its dataclass fields, with trailing defaults left out;
nested values are tagged the same way. `load(dump(e)) == e` for every event, and likewise for the others.
Codes are part of stored data: add, never renumber.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import MISSING, fields
from enum import StrEnum
from itertools import takewhile
from operator import attrgetter, eq
from typing import Any, TypeAlias, TypeVar, cast, get_args

from bridge.errors import ErrorCode, Failure
from bridge.model import events as ev
from bridge.model import parts as pt
from bridge.model.events import Event
from bridge.model.request import HistoryMode, Request, ResponseFormat, Resume, Sampling, Tool, ToolChoice, ToolMode

_T = TypeVar("_T")
_Turn: TypeAlias = Callable[[Any], Any]

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
    "N": pt.Message,
    "W": Tool,
    "Q": Request,
    "S": Sampling,
    "H": ToolChoice,
    "B": ResponseFormat,
    "V": Resume,
}
_EVENTS: frozenset[type] = frozenset(get_args(Event))
# Fields with nested values of the model; every other field contains plain JSON that must be restored unchanged.
_NESTED = {
    "part", "parts", "source", "error", "messages", "tools", "tool_choice", "sampling", "response_format", "resume",
    "open_interrupts",
}  # fmt: skip
_ENUMS: dict[tuple[str, str], type[StrEnum]] = {
    ("p", "kind"): ev.PartKind,
    ("p", "origin"): pt.Origin,
    ("C", "origin"): pt.Origin,
    ("M", "kind"): pt.MediaKind,
    ("q", "status"): ev.MessageStatus,
    ("n", "status"): ev.MessageStatus,
    ("n", "reason"): ev.FinishReason,
    ("g", "op"): ev.StateOp,
    ("z", "reason"): ev.FinishReason,
    ("E", "code"): ErrorCode,
    ("Q", "history"): HistoryMode,
    ("H", "mode"): ToolMode,
}


class _Shape:
    """How values of one type are written and read."""

    def __init__(self, code: str, kind: type) -> None:
        self.code = code
        self.kind = kind
        stored = [field for field in fields(kind) if field.compare]
        self.names = [field.name for field in stored]
        self.values = attrgetter(*self.names) if len(self.names) > 1 else _only_value(self.names[0])
        defaults = [f.default_factory() if f.default_factory is not MISSING else f.default for f in stored]
        self.defaults_backwards = defaults[::-1]
        nested = [index for index, name in enumerate(self.names) if name in _NESTED]
        enums = {index: _ENUMS[code, name] for index, name in enumerate(self.names) if (code, name) in _ENUMS}
        self.write: list[tuple[int, _Turn]] = [*((p, _dump_value) for p in nested), *((p, str) for p in enums)]
        self.read: list[tuple[int, _Turn]] = [*((p, _load_value) for p in nested), *enums.items()]


def _only_value(name: str) -> Callable[[Any], tuple[Any]]:
    return lambda value: (getattr(value, name),)


def _dump_value(value: Any) -> Any:
    return [_dump(v) for v in value] if isinstance(value, list) else _dump(value)


def _dump(value: Any) -> list[Any]:
    shape = _BY_TYPE[type(value)]
    out = [*shape.values(value)]
    for index, write in shape.write:
        if out[index] is not None:
            out[index] = write(out[index])
    unsaid = sum(takewhile(bool, map(eq, out[::-1], shape.defaults_backwards)))
    return [shape.code, *out[: len(out) - unsaid]]


def dump(value: Event | pt.Message | Tool | Request) -> list[Any]:
    """The value as a JSON array."""
    return _dump(value)


def _load_value(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], str):
        return _load(value)
    return [_load(v) for v in value]


def _load(array: list[Any]) -> Any:
    shape = _BY_CODE[array[0]]
    values = array[1 : len(shape.names) + 1]
    for index, read in shape.read:
        if index < len(values) and values[index] is not None:
            values[index] = read(values[index])
    return shape.kind(*values)


_BY_CODE = {code: _Shape(code, kind) for code, kind in _CODES.items()}
_BY_TYPE = {shape.kind: shape for shape in _BY_CODE.values()}


def load(array: list[Any]) -> Event:
    """The event that `dump` wrote. Raises `ValueError` for anything else."""
    return cast(Event, _only(array, _EVENTS, "an event"))


def load_message(array: list[Any]) -> pt.Message:
    """The message that `dump` wrote. Raises `ValueError` for anything else."""
    return _only(array, {pt.Message}, "a message")


def load_tool(array: list[Any]) -> Tool:
    """The tool that `dump` wrote. Raises `ValueError` for anything else."""
    return _only(array, {Tool}, "a tool")


def load_request(array: list[Any]) -> Request:
    """The request that `dump` wrote. Raises `ValueError` for anything else."""
    return _only(array, {Request}, "a request")


def _only(array: list[Any], kinds: Collection[type[_T]], what: str) -> _T:
    try:
        value = _load(array)
        if type(value) not in kinds:
            raise TypeError("something else of ours")
        return cast(_T, value)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"expected {what} array [code, field, ...], got {array!r:.120}") from error
