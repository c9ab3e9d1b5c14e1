"""One look at all parts of a request, so that each rule knows whether it has anything to do."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.model import Message, Part, Text, ToolCall, ToolResult

SYSTEM = frozenset({"system", "developer"})
_TEXT: frozenset[type] = frozenset({Text})


@dataclass(slots=True)
class Survey:
    """What may be in the messages of a request.

    It names at least what is there, and holds until something is added: a rule that leaves parts out, or changes their
    values, need not look again.
    """

    kinds: frozenset[type] = frozenset()
    """The classes of parts, without those in results."""
    extras: frozenset[str] = frozenset()
    """The names in `extras` of parts and of those in results: dialects, `CACHE`, `SIGNATURE`."""
    names: set[str] = field(default_factory=set)
    """The names of tools in calls and results."""
    has_several_systems: bool = False
    """There are several system messages."""
    has_later_system: bool = False
    """A system message stands behind another message."""
    has_names: bool = False
    """A message names a person or an agent."""
    is_mixed: bool = False
    """A message has several parts, or a result."""


PLAIN = Survey(_TEXT)
"""The survey of messages that are one text each, without extras and names, and with one system message at most, which
is the first: no rule about parts has anything to do. It is one object for all requests, and is not changed.
"""


def surveyed(messages: list[Message]) -> Survey:
    """Look at each part once."""
    survey: Survey | None = None
    systems = others = 0
    for message in messages:
        parts = message.parts
        if message.role not in SYSTEM:
            others += 1
        else:
            systems += 1
            if systems > 1 or others:
                survey = survey or Survey(_TEXT)
                survey.has_several_systems = systems > 1
                survey.has_later_system = survey.has_later_system or others > 0
        if message.name or len(parts) != 1 or type(parts[0]) is not Text or parts[0].extras:
            survey = survey or Survey(_TEXT)
            survey.has_names = survey.has_names or bool(message.name)
            survey.is_mixed = survey.is_mixed or len(parts) > 1
            for part in parts:
                _look(part, survey)
    return PLAIN if survey is None else survey


def _look(part: Part, survey: Survey) -> None:
    if type(part) not in survey.kinds:
        survey.kinds = survey.kinds.union([type(part)])
    if part.extras:
        survey.extras = survey.extras.union(part.extras)
    if isinstance(part, ToolResult):
        survey.is_mixed = True
        for inner in part.parts:
            if inner.extras:
                survey.extras = survey.extras.union(inner.extras)
    if isinstance(part, (ToolCall, ToolResult)) and part.name:
        survey.names.add(part.name)
