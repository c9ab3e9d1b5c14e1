"""Single events (state, custom, raw) as on the wire, and the ids that a run has used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bridge.dialects.ag_ui.valid import event_of, is_patch, message_of
from bridge.dialects.ag_ui.wire import NAME, OURS
from bridge.model import Raw, StateChanged, StateOp


class Claims:
    """Ids of messages in use on this thread, as far as the request and this run show it.

    `prefix` precedes every id, for requests that do not contain the thread: some agents use the same ids in every run.
    """

    def __init__(self, known: Iterable[str], prefix: str = "") -> None:
        self._used = set(known)
        self._prefix = prefix
        self._numbers: dict[str, int] = {}

    def note(self, name: str) -> None:
        self._used.add(name)

    def take(self, *wanted: str) -> str:
        """The first of these ids that is free, else the last one with a number."""
        wanted = tuple(self._prefix + name for name in wanted)
        for name in wanted:
            if name not in self._used:
                self._used.add(name)
                return name
        base = wanted[-1]
        number = self._numbers.get(base, 1)
        while (name := f"{base}-{number}") in self._used:
            number += 1
        self._numbers[base] = number + 1
        self._used.add(name)
        return name


def state_of(event: StateChanged, new: bool) -> dict[str, Any] | None:
    """The event of the wire; None for a value that the client's parser would refuse, and the whole run with it."""
    value = event.value
    match event.op:
        case StateOp.SNAPSHOT:
            return {"type": "STATE_SNAPSHOT", "snapshot": value}
        case StateOp.PATCH if is_patch(value):
            return {"type": "STATE_DELTA", "delta": value}
        case StateOp.MESSAGES if isinstance(value, list):
            messages = [message_of(m, new) for m in value]
            return None if None in messages else {"type": "MESSAGES_SNAPSHOT", "messages": messages}
    return None


def raw_of(event: Raw, new: bool) -> dict[str, Any] | None:
    """Return whether an event is passed on as it is: those of this dialect for clients of 1.0, which drop unknown
    types.

    Others are wrapped into a RAW event, and so is one that a client would reject, and with it the whole run.
    """
    if event.dialect != NAME:
        return {"type": "RAW", "event": event.value, "source": f"{OURS}/{event.dialect}"}
    value = event.value
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return None
    if not new and value["type"] != "RAW":
        return None
    return event_of(value) or {"type": "RAW", "event": value}


class Subagents:
    """Keeps the lives of subagents whole: clients refuse a run that ends while one is open."""

    def __init__(self) -> None:
        self._open: dict[str, None] = {}
        self._known: set[str] = set()

    def admit(self, wire: dict[str, Any]) -> dict[str, Any] | None:
        """The event as it may be sent now, None when it may not; events of other kinds always may."""
        kind = wire["type"]
        if kind not in ("SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR"):
            return wire
        name: str = wire["subagentRunId"]
        if kind != "SUBAGENT_STARTED":
            return wire if self._open.pop(name, 0) is None else None
        if name in self._known:
            return None
        self._known.add(name)
        self._open[name] = None
        if wire.get("parentSubagentRunId", name) not in self._known - {name}:
            wire = {k: v for k, v in wire.items() if k != "parentSubagentRunId"}
        return wire

    def closing(self) -> Iterator[dict[str, Any]]:
        for name in self._open:
            yield {"type": "SUBAGENT_FINISHED", "subagentRunId": name}
