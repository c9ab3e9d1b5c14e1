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
    systems: int = 0
    """System messages."""
    has_later_system: bool = False
    """A system message stands behind another message."""
    has_names: bool = False
    """A message names a person or an agent."""
    is_mixed: bool = False
    """A message has several parts, or a result."""


def surveyed(messages: list[Message]) -> Survey:
    """Look at each part once."""
    survey = Survey()
    is_begun = False
    for message in messages:
        if message.role in SYSTEM:
            survey.systems += 1
            survey.has_later_system = survey.has_later_system or is_begun
        else:
            is_begun = True
        if message.name:
            survey.has_names = True
        parts = message.parts
        if len(parts) != 1 or type(parts[0]) is not Text or parts[0].extras:
            survey.is_mixed = survey.is_mixed or len(parts) > 1
            for part in parts:
                _look(part, survey)
    if messages:
        survey.kinds = survey.kinds | _TEXT if survey.kinds else _TEXT
    return survey


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
