"""Events and requests as lines for people: what `print` of them should have shown. `dump` is the form for machines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from bridge.model import events as ev
from bridge.model.events import Event
from bridge.model.request import Request

_LONG = 60
_DEPTHS: dict[type, int] = {
    ev.RunStarted: 0, ev.RunFinished: 0, ev.RunFailed: 0,
    ev.PartStarted: 2, ev.PartEnded: 2, ev.ContentAdded: 2,
    ev.TextDelta: 3, ev.ReasoningDelta: 3, ev.ArgsDelta: 3,
}  # fmt: skip


def pretty(events: Event | Iterable[Event]) -> str:
    """Return one line for each event: indented by its parent, without empty fields, with long values shortened.

    RunStarted 'run-1' model='gpt-4o'
      MessageStarted 'm-1'
        PartStarted 'p-1' 'm-1' text
          TextDelta 'p-1' 'Hello'
    """
    each = events if isinstance(events, Iterable) else (events,)
    return "\n".join("  " * _DEPTHS.get(type(event), 1) + _printed(event) for event in each)


def pretty_request(request: Request) -> str:
    """Return a request as lines: its fields, and one line for each message and tool."""
    lines: list[str] = []
    for field in fields(request):
        value = getattr(request, field.name)
        if isinstance(value, list) and value and all(map(is_dataclass, value)):
            lines += (f"{field.name}[{n}] {_printed(item)}" for n, item in enumerate(value))
        elif value != _default(field):
            lines.append(f"{field.name} {_printed(value) if is_dataclass(value) else repr(value)}")
    return "\n".join(lines)


def _printed(value: Any) -> str:
    """Return a value of the model: required fields positionally, the others by name if they are not the default."""
    pieces = [type(value).__name__]
    for field in fields(value):
        item = getattr(value, field.name)
        if field.default is MISSING and field.default_factory is MISSING:
            pieces.append(_short(item))
        elif field.repr and item != _default(field):
            pieces.append(f"{field.name}={_short(item)}")
    return " ".join(pieces)


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _short(value: Any) -> str:
    if is_dataclass(value):
        return f"({_printed(value)})"
    if isinstance(value, list) and value and all(map(is_dataclass, value)):
        return f"[{', '.join(map(_short, value))}]"
    text = str(value) if type(value) not in (str, list, dict) else repr(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}... ({len(text)} characters)"
