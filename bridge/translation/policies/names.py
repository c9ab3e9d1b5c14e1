"""Tool names that a backend forbids: renamed on the way there, and back on the way to the client and into the history.

The new name depends on the old one alone, so that a conversation keeps it over all of its requests and a restart.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace

from bridge.model import Event, Message, PartStarted, Request, ToolCall, ToolResult, ToolResulted
from bridge.translation.survey import Survey

_NAMED: frozenset[type] = frozenset({PartStarted, ToolResulted})

_ODD = re.compile(r"[^a-zA-Z0-9_-]+")

_LENGTH = 64
"""Characters that every backend with a rule for names allows."""


class ToolNames:
    """The names of one run: `request` is what the backend is sent."""

    def __init__(self, request: Request, forbidden: dict[str, str]) -> None:
        self._theirs = forbidden
        self._ours = {new: old for old, new in forbidden.items()}
        self.request = self._renamed(request)

    def restore(self, events: list[Event]) -> list[Event]:
        """The events with the names that the client knows."""
        if _NAMED.isdisjoint(map(type, events)):
            return events
        ours = self._ours
        return [
            replace(e, name=ours[e.name])
            if isinstance(e, (PartStarted, ToolResulted)) and e.name in ours and e.name is not None
            else e
            for e in events
        ]

    def _renamed(self, request: Request) -> Request:
        choice = request.tool_choice
        if choice is not None:
            choice = replace(choice, names=[self._theirs.get(n, n) for n in choice.names])
        tools = request.tools
        if tools is not None:
            tools = [replace(t, name=self._theirs.get(t.name, t.name)) for t in tools]
        return replace(request, messages=[self._message(m) for m in request.messages], tools=tools, tool_choice=choice)

    def _message(self, message: Message) -> Message:
        theirs = self._theirs
        parts = [
            replace(p, name=theirs[p.name])
            if isinstance(p, (ToolCall, ToolResult)) and p.name in theirs and p.name is not None
            else p
            for p in message.parts
        ]
        name = message.name
        if message.role == "tool" and name is not None:
            name = theirs.get(name, name)
        return replace(message, parts=parts, name=name)


def tool_names(request: Request, survey: Survey, legal: Callable[[str], object]) -> ToolNames | None:
    """Return the names to change, None if `legal` matches all of them."""
    names = survey.names.union([tool.name for tool in request.tools]) if request.tools else survey.names
    if all(map(legal, names)):
        return None
    return ToolNames(request, {name: _legal(name, legal) for name in names if not legal(name)})


def _legal(name: str, legal: Callable[[str], object]) -> str:
    """Return the allowed characters of the name, and enough of its digest to distinguish it.

    An underscore precedes a first character that the backend takes only further on.
    """
    tail = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    plain = _ODD.sub("_", name)[: _LENGTH - len(tail) - 2]
    return f"{plain}_{tail}" if legal(f"{plain}_{tail}") else f"_{plain}_{tail}"
