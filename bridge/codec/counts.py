"""Token counts as APIs of models write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeGuard

from bridge.errors import BackendError, ErrorCode

from .jsontext import dict_of, is_number, read_json, whole
from .wire import WireResponse

NOT_REPORTED = "zeros; the backend reported no usage"
"""The detail of a lost usage: the wire requires one, and the backend did not report any."""


def is_count(value: Any) -> TypeGuard[int]:
    """Return whether this JSON value is a count."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1e15


def is_all_zeros(usage: dict[str, Any]) -> bool:
    """Return whether all numbers of a usage object are zero.

    Servers that do not count tokens write zeros, because clients require numbers. No real answer takes zero tokens.
    """
    for value in usage.values():
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
}  # fmt: skip
"""The counts that APIs also have in an inner object: the names of the object, and of the count in it."""
_INNER = {group for groups, _ in _GROUPS.values() for group in groups}
_COUNTS = {name: count for count, names in _NAMES.items() for name in names}
_RANKS = {name: rank for rank, name in enumerate(_COUNTS)}
"""Of the names of one count the first that has a number is read."""


def counts_in(usage: Any) -> dict[str, Any]:
    """Return the counts of a usage object of any server: `input`, `output`, `total`, `cached` and `reasoning`, as far
    as they are reported. Numbers below zero and other values are left out.
    """
    if not isinstance(usage, dict):
        return {}
    found: dict[str, Any] = {}
    if not _INNER.isdisjoint(usage):
        for count, (groups, names) in _GROUPS.items():
            inner = next((dict_of(usage[group]) for group in groups if isinstance(usage.get(group), dict)), {})
            _note(found, count, inner, filter(inner.__contains__, names))
    known = _COUNTS.keys() & usage.keys()
    for name in sorted(known, key=_RANKS.__getitem__) if len(known) > 1 else known:
        if _COUNTS[name] not in found:
            _note(found, _COUNTS[name], usage, (name,))
    return found


def _note(found: dict[str, Any], count: str, values: dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        value = _number(values[name])
        if value is not None:
            found[count] = value
            return


def _number(given: Any) -> int | None:
    """Return a count, which may be written as a string; None for any other value."""
    if isinstance(given, str) and given.isascii() and given.isdecimal() and len(given) < 16:
        given = int(given)
    value = whole(given)
    return None if value is None or value < 0 else value


def input_tokens_in(wire: WireResponse) -> int:
    """Return the `input_tokens` in a backend's count. Raises `BackendError` if there are none."""
    value = read_json(wire.body)
    tokens = value.get("input_tokens") if isinstance(value, dict) else None
    if not is_count(tokens):
        raise BackendError("The backend's answer is not a token count.", code=ErrorCode.BACKEND_PROTOCOL)
    return tokens
