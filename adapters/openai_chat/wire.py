"""Constants and small readers that both directions share."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from bridge.dialects.openai.api import with_mark
from bridge.model import SHARED, Extras, Request, UsageReported
from bridge.model.jsontext import dict_of
from bridge.toolkit.caching import with_control
from bridge.toolkit.counts import counts_in, is_all_zeros
from bridge.toolkit.signed_parts import GOOGLE, signature_of, signed

NAME = "openai-chat"
NOTES = "notes"
"""The key, in a request's extras, of what the model has in other words: `fields` are fields of the client's body, and
`derived_effort` is set if one of them says the effort, and not `reasoning_effort`.
"""

CUSTOM, FREE, FLAT = "custom", "free", "flat"
"""The type of tools with free text as input, the note on them, and its value if their fields stand beside the type."""
RESPONSES = "openai-responses"
"""The dialect of bodies that Cursor sends to the same path."""

DONE = b"[DONE]"
"""The last frame of a stream."""
REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Servers use either; when one delta holds both, the first non-empty one is read."""

BLOCK = "thinking_blocks:"
"""How signatures begin that LiteLLM sent in `thinking_blocks`, where they go back."""

_EXTRA_CONTENT = "extra_content"
_THOUGHT_SIGNATURE = "thought_signature"


def own(extras: Extras | None) -> dict[str, Any]:
    """Return this dialect's extras of a part or an event; an empty dict if there are none."""
    if not extras:
        return {}
    values = extras.get(NAME) or {}
    return {**values, **extras[SHARED]} if SHARED in extras else values


def noted(values: dict[str, Any]) -> Extras | None:
    """Return `extras` with these values for this dialect, None if there are none."""
    return with_control(with_mark({NAME: values}, values), values) if values else None


def noted_call(values: dict[str, Any]) -> Extras | None:
    """Return `extras` with these values of a call.

    Gemini's signature, which Google sends in `extra_content`, goes where every dialect looks for it.
    """
    if _EXTRA_CONTENT not in values:
        return noted(values)
    content = dict_of(values[_EXTRA_CONTENT])
    google = dict_of(content.get(GOOGLE))
    signature = google.get(_THOUGHT_SIGNATURE)
    if not isinstance(signature, str):
        return noted(values)
    other = {k: v for k, v in google.items() if k != _THOUGHT_SIGNATURE}
    content = {**content, GOOGLE: other} if other else {k: v for k, v in content.items() if k != GOOGLE}
    rest = {k: v for k, v in values.items() if k != _EXTRA_CONTENT}
    return signed(noted({**rest, _EXTRA_CONTENT: content} if content else rest), signature)


def fields_of_call(extras: Extras | None) -> dict[str, Any]:
    """Return the values of a call that `noted_call` kept, and the signature of a call of another dialect."""
    values, signature = own(extras), signature_of(extras)
    if signature is None:
        return values
    content = dict_of(values.get(_EXTRA_CONTENT))
    google = {**dict_of(content.get(GOOGLE)), _THOUGHT_SIGNATURE: signature}
    return {**values, _EXTRA_CONTENT: {**content, GOOGLE: google}}


def free_text_tools(request: Request | None) -> dict[str, bool]:
    """Return the names of the request's tools with free text as input, and whether their fields stand beside the type.

    The latter is how Cursor declares them, in bodies of chat completions as in those of the Responses API.
    """
    found: dict[str, bool] = {}
    for tool in (request.tools if request else None) or ():
        said = own(tool.extras).get(FREE)
        if said or (tool.extras or {}).get(RESPONSES, {}).get(FREE):
            found[tool.name] = said in (None, FLAT)
    return found


def shared(values: dict[str, Any], names: Set[str]) -> Extras | None:
    """`extras` that hold the values of these names for all dialects, and the others for this one."""
    if names.isdisjoint(values):
        return {NAME: values} if values else None
    known = {k: v for k, v in values.items() if k in names}
    rest = {k: v for k, v in values.items() if k not in names}
    return {SHARED: known, NAME: rest} if rest else {SHARED: known}


def without_empty(values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that are not empty: null, empty strings, lists and objects are left out, 0 and false are
    kept.
    """
    return {k: v for k, v in values.items() if v or v == 0}


# ------------------------------------------------------------------ usage


_COUNTS = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})


def read_usage(value: dict[str, Any]) -> UsageReported | None:
    """Return a usage object with counts; None for `{}` and for nulls or zeros, which servers send as well.

    Fields that the model does not have (audio tokens, cost, ...) are kept, so that a chat client gets them back.
    """
    if is_all_zeros(value):
        return None
    rest = {} if _COUNTS.issuperset(value) else without_empty({k: v for k, v in value.items() if k not in _COUNTS})
    return UsageReported(**counts_in(value), extras=noted(rest) if rest else None)


def write_usage(usage: UsageReported) -> dict[str, Any]:
    """Return the usage object of the wire, whose three counts are never absent (as the SDK's type demands)."""
    taken, given = usage.input or 0, usage.output or 0
    out: dict[str, Any] = {
        "prompt_tokens": taken,
        "completion_tokens": given,
        "total_tokens": taken + given if usage.total is None else usage.total,
        **own(usage.extras),
        **({"estimated": True} if usage.estimated else {}),
    }
    if usage.cached is None and usage.reasoning is None and usage.written is None:
        return out
    for group, name, count in (
        ("prompt_tokens_details", "cached_tokens", usage.cached),
        ("prompt_tokens_details", "cache_write_tokens", usage.written),
        ("completion_tokens_details", "reasoning_tokens", usage.reasoning),
    ):
        if count is not None:
            known = out.get(group)
            out[group] = {**(known if isinstance(known, dict) else {}), name: count}
    return out
