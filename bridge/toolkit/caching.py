"""Marks in a prompt up to which a backend caches it.

Each dialect spells them in its own way, so that parts and tools carry them for all dialects, under the key `CACHE` of
their extras.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from operator import attrgetter
from typing import Any

from bridge.contract.capabilities import Feature
from bridge.contract.context import Losses
from bridge.model import Extras, Request, ToolResult

CACHE = "cache"

CONTROL = "cache_control"
"""The field of a mark at Anthropic: `{"type": "ephemeral", "ttl": "5m" | "1h"}`. OpenRouter, LiteLLM and others have it
in chat completions as well.
"""

_parts = attrgetter("parts")
_SECONDS, _SAID = "seconds", "said"
_SHORT, _LONG = 300, 3600
"""Seconds for which Anthropic caches."""


def marked(extras: Extras | None, seconds: int) -> Extras:
    """Return `extras` with a mark; the prompt up to it is wanted again within this time."""
    return {**(extras or {}), CACHE: {_SECONDS: seconds}}


def with_control(extras: Extras | None, fields: Mapping[str, Any]) -> Extras | None:
    """Return `extras` with the mark that the `cache_control` among these fields is, in the client's own words."""
    found = fields.get(CONTROL)
    if not isinstance(found, dict):
        return extras
    return {**(extras or {}), CACHE: {_SECONDS: _LONG if found.get("ttl") == "1h" else _SHORT, _SAID: found}}


def control_of(extras: Extras | None) -> dict[str, Any]:
    """Return the field `cache_control` of what is marked; empty for others."""
    mark = (extras or {}).get(CACHE, {})
    if _SECONDS not in mark:
        return {}
    ttl = {"ttl": "1h"} if mark[_SECONDS] > _SHORT else {}
    return {CONTROL: mark.get(_SAID) or {"type": "ephemeral", **ttl}}


def seconds_of(extras: Extras | None) -> int | None:
    """Return the lifetime of a mark; None if it has none."""
    return (extras or {}).get(CACHE, {}).get(_SECONDS)


def is_said(extras: Extras | None) -> bool:
    """Return whether a client marked this in Anthropic's words."""
    return _SAID in (extras or {}).get(CACHE, {})


def marks_in(request: Request) -> int:
    """Return how many parts and tools of a request are marked."""
    marks = marks_in_tools(request)
    for part in chain.from_iterable(map(_parts, request.messages)):
        if part.extras:
            marks += CACHE in part.extras
        if type(part) is ToolResult:
            for inner in part.parts:
                marks += CACHE in (inner.extras or ())
    return marks


def marks_in_tools(request: Request) -> int:
    """Return how many tools of a request are marked."""
    return sum(CACHE in tool.extras for tool in request.tools if tool.extras) if request.tools else 0


def note_lost_marks(marks: int, items: Iterable[Any], fields: Collection[str], lost: Losses) -> None:
    """Name marks of a request as lost if its `items` on the wire have fewer, where they are one of these fields."""
    if sum(any(field in block for field in fields) for block in blocks_in(items)) < marks:
        lost.add(Feature.EXTRAS, "prompt cache markers")


def blocks_in(items: Iterable[Any], depth: int = 2) -> Iterator[dict[str, Any]]:
    """Yield messages, items, tools and the parts of their content, but nothing inside a client's own JSON."""
    for item in items:
        if isinstance(item, dict):
            yield item
            for name in ("content", "output"):
                if depth and isinstance(inner := item.get(name), list):
                    yield from blocks_in(inner, depth - 1)
