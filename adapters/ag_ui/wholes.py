"""Events that stand alone - state, custom, raw - as the wire has them, and the ids a run has used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from adapters.ag_ui.shapes import fitting, fitting_messages, is_patch
from adapters.ag_ui.wire import NAME, OURS
from bridge.model import Custom, Raw, StateChanged, StateOp

# Where null is a value and not an absent field.
_ANY_VALUE = frozenset({"event", "value", "snapshot"})


class Claims:
    """Ids of messages in use on this thread, as far as the request and this run show it.

    `prefix` goes before every id, for requests that do not show the thread: there are agents that give the same ids in
    every run.
    """

    def __init__(self, known: Iterable[str], prefix: str = "") -> None:
        self._used = set(known)
        self._prefix = prefix

    def note(self, name: str) -> None:
        self._used.add(name)

    def take(self, *wanted: str) -> str:
        """The first of these ids that is free, else the last one with a number."""
        wanted = tuple(self._prefix + name for name in wanted)
        for name in wanted:
            if name not in self._used:
                self._used.add(name)
                return name
        number = 1
        while (name := f"{wanted[-1]}-{number}") in self._used:
            number += 1
        self._used.add(name)
        return name


def state_of(event: StateChanged, new: bool) -> dict[str, Any] | None:
    """The event of the wire; None for a value that the client's parser would refuse, and the whole run with it."""
    value = event.value
    match event.op:
        case StateOp.SNAPSHOT:
            return {"type": "STATE_SNAPSHOT", "snapshot": value}
        case StateOp.PATCH:
            return {"type": "STATE_DELTA", "delta": value} if is_patch(value) else None
        case StateOp.MESSAGES:
            messages = fitting_messages(value, new)
            return None if messages is None else {"type": "MESSAGES_SNAPSHOT", "messages": messages}


def custom_of(event: Custom) -> dict[str, Any]:
    return {"type": "CUSTOM", "name": event.name, "value": event.value}


def raw_of(event: Raw, new: bool) -> dict[str, Any] | None:
    """Our own dialect's events go to clients of 1.0, which drop unknown types; others have a RAW event around them."""
    if event.dialect != NAME:
        return {"type": "RAW", "event": event.value, "source": f"{OURS}/{event.dialect}"}
    value = event.value
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return None
    if not new and value["type"] != "RAW":
        return None
    return fitting({k: v for k, v in value.items() if v is not None or k in _ANY_VALUE})


class Subagents:
    """Keeps the lives of subagents whole: clients refuse a run that ends while one is open (section 4)."""

    def __init__(self) -> None:
        self._open: dict[str, None] = {}
        self._known: set[str] = set()

    def allow(self, wire: dict[str, Any]) -> bool:
        """Whether this event may be sent now; events of other kinds always may."""
        kind = wire["type"]
        if kind not in ("SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR"):
            return True
        name = wire["subagentRunId"]
        if kind != "SUBAGENT_STARTED":
            return self._open.pop(name, 0) is None
        if name in self._known:
            return False
        self._known.add(name)
        self._open[name] = None
        return True

    def closing(self) -> Iterator[dict[str, Any]]:
        for name in self._open:
            yield {"type": "SUBAGENT_FINISHED", "subagentRunId": name}
