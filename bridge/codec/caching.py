"""Marks in a prompt up to which a backend caches it.

Each dialect spells them in its own way, so that parts and tools carry them for all dialects, under the key `CACHE` of
their extras; and so do reports of usage the tokens that were written to the cache.
"""

from __future__ import annotations

from typing import Any

from bridge.codec.capabilities import Feature
from bridge.codec.context import Losses
from bridge.model import Extras, Request, ToolResult

CACHE = "cache"

_SECONDS = "seconds"


def marked(extras: Extras | None, seconds: int) -> Extras:
    """Return `extras` with a mark; the prompt up to it is wanted again within this time."""
    return {**(extras or {}), CACHE: {_SECONDS: seconds}}


def seconds_of(extras: Extras | None) -> int | None:
    """Return the time of a mark; None where there is none."""
    return (extras or {}).get(CACHE, {}).get(_SECONDS)


def written_of(extras: Extras | None) -> int | None:
    """Return how many tokens of the input were written to the cache, by the extras of a report of usage."""
    return (extras or {}).get(CACHE, {}).get("written")


def marks_in(request: Request) -> int:
    """Return how many parts and tools of a request are marked."""
    extras = [tool.extras for tool in request.tools or ()]
    for message in request.messages:
        for part in message.parts:
            extras.append(part.extras)
            if isinstance(part, ToolResult):
                extras += [inner.extras for inner in part.parts]
    return sum(CACHE in e for e in extras if e)


def note_lost_marks(request: Request, body: Any, field: str, lost: Losses) -> None:
    """Name marks of a request as lost that `body` does not have, where they are fields of this name."""
    if (marks := marks_in(request)) and len(fields_in(body, field)) < marks:
        lost.add(Feature.EXTRAS, "marks for the prompt cache")


def fields_in(value: Any, field: str) -> list[dict[str, Any]]:
    """Return the objects within a JSON value that have this field, in their order."""
    if isinstance(value, list):
        return [found for item in value for found in fields_in(item, field)]
    if not isinstance(value, dict):
        return []
    inner = [found for item in value.values() if isinstance(item, (list, dict)) for found in fields_in(item, field)]
    return [*inner, value] if field in value else inner
