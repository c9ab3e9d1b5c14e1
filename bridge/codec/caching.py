"""Marks in a prompt up to which a backend caches it.

Each dialect spells them in its own way, so that parts and tools carry them for all dialects, under the key `CACHE` of
their extras; and so do reports of usage the tokens that were written to the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    """Return the lifetime of a mark; None if it has none."""
    return (extras or {}).get(CACHE, {}).get(_SECONDS)


def written_of(extras: Extras | None) -> int | None:
    """Return how many tokens of the input were written to the cache, by the extras of a report of usage."""
    return (extras or {}).get(CACHE, {}).get("written")


def marks_in(request: Request) -> int:
    """Return how many parts and tools of a request are marked."""
    marks = 0
    for tool in request.tools or ():
        marks += CACHE in (tool.extras or ())
    for message in request.messages:
        for part in message.parts:
            marks += CACHE in (part.extras or ())
            if isinstance(part, ToolResult):
                for inner in part.parts:
                    marks += CACHE in (inner.extras or ())
    return marks


def note_lost_marks(request: Request, items: Iterable[Any], field: str, lost: Losses) -> None:
    """Name marks of a request as lost that its `items` on the wire do not have, where they are fields of this name."""
    if (marks := marks_in(request)) and sum(field in block for block in blocks_in(items)) < marks:
        lost.add(Feature.EXTRAS, "prompt cache markers")


def blocks_in(items: Iterable[Any], depth: int = 2) -> Iterator[dict[str, Any]]:
    """Yield messages, items, tools and the parts of their content, but nothing inside a client's own JSON."""
    for item in items:
        if isinstance(item, dict):
            yield item
            for name in ("content", "output"):
                if depth and isinstance(inner := item.get(name), list):
                    yield from blocks_in(inner, depth - 1)
