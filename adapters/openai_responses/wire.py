"""Constants and small readers that both directions share.

What this dialect notes in `extras`, under its name: `id` (of the item that a part came in), `item` (fields of the item
that have no place in the model), `part` (likewise of a content part: annotations, logprobs), `form` (of reasoning:
`summary` or `content`), `border` (on a piece of reasoning: the next part of the item begins, of this form), `listed`
(of a result: its parts came one by one), `response` (fields of the backend's response object).
"""

from __future__ import annotations

from typing import Any

from bridge.dialects.openai.api import with_mark
from bridge.model import Extras, UsageReported
from bridge.model.jsontext import dict_of
from bridge.toolkit.counts import counts_in, is_all_zeros

NAME = "openai-responses"

ENCRYPTED, LOGPROBS = "reasoning.encrypted_content", "message.output_text.logprobs"
"""Values of `include`."""
SUMMARY, CONTENT = "summary", "content"
PARAGRAPH = "\n\n"
"""Between two parts of one reasoning item, for whom they are one text."""


def own(extras: Extras | None) -> dict[str, Any]:
    """Return this dialect's extras of a part or an event; an empty dict if there are none."""
    return extras.get(NAME) or {} if extras else {}


def noted(**values: Any) -> Extras | None:
    """Return `extras` with those of these values that are not empty; None if there are none."""
    given = {k: v for k, v in values.items() if v}
    return with_mark({NAME: given}, dict_of(given.get("part"))) if given else None


REFERENCE = "item_reference"
"""The type of an item that refers to a stored one by its id. Clients may leave it out, and send the id alone."""


def is_reference(item: dict[str, Any]) -> bool:
    """Return whether an item of the input refers to a stored one."""
    kind = item.get("type")
    return kind == REFERENCE or (kind is None and item.get("role") is None and isinstance(item.get("id"), str))


def rest(value: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Return the fields that are not in `known` and not empty."""
    return {k: v for k, v in value.items() if k not in known and v is not None}


# ------------------------------------------------------------------ usage


_COUNTS = ("input_tokens", "output_tokens", "total_tokens")


def read_usage(value: Any) -> UsageReported | None:
    """Return a usage object with counts, None for anything else; fields that the model does not have are kept."""
    usage = dict_of(value)
    if is_all_zeros(usage):
        return None
    return UsageReported(**counts_in(usage), extras=noted(usage=rest(usage, frozenset(_COUNTS))))


def write_usage(usage: UsageReported) -> dict[str, Any]:
    """Return the usage object of the wire, none of whose counts may be absent: strict clients fail without them."""
    taken, given = usage.input or 0, usage.output or 0
    more = dict_of(own(usage.extras).get("usage"))
    read = {"cached_tokens": 0, "cache_write_tokens": 0, **dict_of(more.get("input_tokens_details"))}
    made = {"reasoning_tokens": 0, **dict_of(more.get("output_tokens_details"))}
    if usage.written is not None:
        read["cache_write_tokens"] = usage.written
    if usage.cached is not None:
        read["cached_tokens"] = usage.cached
    if usage.reasoning is not None:
        made["reasoning_tokens"] = usage.reasoning
    return {
        **more,
        "input_tokens": taken,
        "input_tokens_details": read,
        "output_tokens": given,
        "output_tokens_details": made,
        "total_tokens": taken + given if usage.total is None else usage.total,
        **({"estimated": True} if usage.estimated else {}),
    }
