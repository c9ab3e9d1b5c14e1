"""`OpenCalls`: the calls of a conversation without a result, for protocols whose calls have no ids of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(slots=True)
class OpenCall:
    """A call. It is open until `OpenCalls.take` returns it."""

    call_id: str
    name: str
    is_open: bool = True


class OpenCalls:
    """Numbers calls that have no id, and finds the call of each result: by its id, else by the name of its tool.

    Calls of the latest turn come first, then those of earlier turns, each in their order. The same conversation gets
    the same ids. Each call and each result costs constant time.
    """

    def __init__(self, known: Collection[str] = ()) -> None:
        """`known` are the ids that calls of the conversation have; no other call gets them."""
        self._known = frozenset(known)
        self._made = 0
        self._by_id: dict[str, deque[OpenCall]] = {}
        self._latest, self._earlier = _Pool(), _Pool()

    def turn(self) -> None:
        """Begin a turn of the model."""
        for call in self._latest.calls:
            if call.is_open:
                self._earlier.add(call)
        self._latest = _Pool()

    def add(self, name: str, call_id: str | None = None) -> str:
        """Add a call of a tool, and return its id: the given one, else a new one."""
        call = OpenCall(call_id or self._new_id(), name)
        self._latest.add(call)
        self._by_id.setdefault(call.call_id, deque()).append(call)
        return call.call_id

    def take(self, name: str | None, call_id: str | None = None, *, any_tool: bool = False) -> OpenCall | None:
        """Return the call of a result, which is closed then: that with its id, else the first of its tool.

        With `any_tool`, the first one of all if there is none. None if no call is left.
        """
        pools = (self._latest, self._earlier)
        found = _first(self._by_id.get(call_id, deque())) if call_id else None
        if found is None and name:
            found = next((call for pool in pools if (call := _first(pool.named.get(name, deque()))) is not None), None)
        if found is None and any_tool:
            found = next((call for pool in pools if (call := _first(pool.calls)) is not None), None)
        if found is not None:
            found.is_open = False
        return found

    def _new_id(self) -> str:
        while True:
            self._made += 1
            if (made := f"call_{self._made}") not in self._known:
                return made


class _Pool:
    """Calls in their order, of which the first open one is found in constant time."""

    def __init__(self) -> None:
        self.calls: deque[OpenCall] = deque()
        self.named: dict[str, deque[OpenCall]] = {}

    def add(self, call: OpenCall) -> None:
        self.calls.append(call)
        self.named.setdefault(call.name, deque()).append(call)


def _first(calls: deque[OpenCall]) -> OpenCall | None:
    """Return the first open call; those before it are dropped."""
    while calls and not calls[0].is_open:
        calls.popleft()
    return calls[0] if calls else None
