"""Token counts as APIs of models write them."""

from __future__ import annotations

from typing import Any, TypeGuard

from bridge.contract.wire import WireResponse
from bridge.errors import BackendError, ErrorCode
from bridge.model.events import UsageReported
from bridge.model.jsontext import is_number, read_json, whole

NOT_REPORTED = "zeros; the backend reported no usage"
"""The detail of a lost usage: the wire requires one, and the backend did not report any."""


COUNTS = ("input", "output", "total", "cached", "reasoning", "written")
"""The counts of `UsageReported`."""

_MOST = 10**15


def is_count(value: Any) -> TypeGuard[int]:
    """Return whether this JSON value is a count."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST


def is_all_zeros(usage: dict[str, Any]) -> bool:
    """Return whether all numbers of a usage object are zero.

    Servers that do not count tokens write zeros, because clients require numbers. No real answer takes zero tokens.
    """
    for value in usage.values():
        if type(value) is int and 0 < value < _MOST:
            return False  # as nearly always, at the first one
        for number in value.values() if isinstance(value, dict) else (value,):
            if number and is_number(number):
                return False
    return True


_NAMES: dict[str, tuple[str, ...]] = {
    "input": (
        "prompt_tokens", "input_tokens", "inputTokens", "promptTokens", "promptTokenCount", "prompt_token_count",
        "inputTokenCount", "input_token_count", "prompt_eval_count",
    ),
    "output": (
        "completion_tokens", "output_tokens", "outputTokens", "completionTokens", "candidatesTokenCount",
        "candidates_token_count", "outputTokenCount", "output_token_count", "eval_count",
    ),
    "total": ("total_tokens", "totalTokens", "totalTokenCount", "total_token_count"),
    "cached": (
        "prompt_cache_hit_tokens", "cached_tokens", "cachedTokens", "cachedInputTokens", "cached_input_tokens",
        "cachedContentTokenCount", "cached_content_token_count", "cache_read_input_tokens", "num_cached_tokens",
    ),
    "reasoning": ("reasoning_tokens", "reasoningTokens", "thoughtsTokenCount", "thoughts_token_count"),
    "written": (
        "cache_creation_input_tokens", "cacheWriteInputTokens", "cache_write_input_tokens", "cache_write_tokens",
    ),
}  # fmt: skip
"""The counts of a usage, and their names: OpenAI's, Anthropic's, Gemini's, the AI SDK's, Ollama's, DeepSeek's
(`prompt_cache_hit_tokens`, capture deepseek-reasoning), Moonshot's (`cached_tokens`), and both spellings of each.
"""
_GROUPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "cached": (
        ("prompt_tokens_details", "input_tokens_details", "promptTokensDetails", "inputTokenDetails",
         "inputTokensDetails"),
        ("cached_tokens", "cachedTokens", "cacheReadTokens", "cache_read_tokens"),
    ),
    "reasoning": (
        ("completion_tokens_details", "output_tokens_details", "completionTokensDetails", "outputTokenDetails",
         "outputTokensDetails"),
        ("reasoning_tokens", "reasoningTokens", "thinking_tokens"),
    ),
    "written": (
        ("prompt_tokens_details", "input_tokens_details", "promptTokensDetails", "inputTokenDetails",
         "inputTokensDetails"),
        ("cache_write_tokens", "cacheWriteTokens", "cache_creation_tokens"),
    ),
}  # fmt: skip
"""The counts that APIs also have in an inner object: the names of the object, and of the count in it."""
_PLACES = {name: (count, rank) for count, names in _NAMES.items() for rank, name in enumerate(names)}
_INNER = frozenset(group for groups, _ in _GROUPS.values() for group in groups)


def counts_in(usage: Any) -> dict[str, Any]:
    """Return the counts of a usage object of any server: `input`, `output`, `total`, `cached`, `reasoning` and
    `written`, as far as they are reported. Numbers below zero and other values are left out.

    Pass the object that has the counts; only objects with details are looked into. An inner object counts more than
    other fields, and of several names the one that comes first in the tables.
    """
    if not isinstance(usage, dict):
        return {}
    found: dict[str, Any] = {}
    ranks: dict[str, int] = {}
    for name, given in usage.items():
        if name not in _PLACES:
            continue
        count, rank = _PLACES[name]
        if count in ranks and ranks[count] <= rank:
            continue
        value = given if type(given) is int and 0 <= given < _MOST else _count(given)
        if value is not None:
            found[count] = value
            ranks[count] = rank
    if _INNER.isdisjoint(usage):
        return found
    for count, (groups, names) in _GROUPS.items():
        inner: dict[str, Any] = next((usage[group] for group in groups if isinstance(usage.get(group), dict)), {})
        values = (_count(inner[name]) for name in names if name in inner)
        value = next((value for value in values if value is not None), None)
        if value is not None:
            found[count] = value
    return found


def counts_of(usage: UsageReported) -> dict[str, int]:
    """Return the counts that are reported by their names in the model, in which bridges send them to each other."""
    return {name: count for name in COUNTS if (count := getattr(usage, name)) is not None}


def _count(given: Any) -> int | None:
    """Return a count that is a number, or a string of digits."""
    if isinstance(given, str) and given.isascii() and given.isdecimal() and len(given) < 16:
        given = int(given)
    value = whole(given)
    return value if value is not None and value >= 0 else None


def input_tokens_in(wire: WireResponse) -> int:
    """Return the `input_tokens` in a backend's count. Raises `BackendError` if there are none."""
    value = read_json(wire.body)
    tokens = value.get("input_tokens") if isinstance(value, dict) else None
    if not is_count(tokens):
        raise BackendError("The backend's answer is not a token count.", code=ErrorCode.BACKEND_PROTOCOL)
    return tokens
