"""The words with which servers say why an answer ended: one table for all dialects.

`end_of` reads a word. A word that the table does not have is read as what it resembles; one that resembles nothing is a
failure that names it, since an answer that ended for an unknown reason must not look complete.

Words are compared without case, separators and prefixes such as `FINISH_REASON_`: `MAX_TOKENS`, `max-tokens` and
`maxTokens` are one word. Dialects with words of another meaning pass them as `own`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bridge.errors import ErrorCode, Failure
from bridge.model import FinishReason
from bridge.toolkit.redact import LONGEST_WORD, masked

_STOP, _LENGTH, _CALLS = FinishReason.STOP, FinishReason.LENGTH, FinishReason.TOOL_CALLS
_FILTER, _CANCELED = FinishReason.CONTENT_FILTER, FinishReason.CANCELED
_ERROR, _OVERLOADED, _TIMEOUT = ErrorCode.BACKEND_ERROR, ErrorCode.OVERLOADED, ErrorCode.BACKEND_TIMEOUT

UNSURE = "unsure"
"""The meaning of words that give no reason: a normal end after an answer, a failure without one."""
NOT_OVER = "not over"
"""The meaning of words that servers send while the answer continues."""

Meaning = FinishReason | ErrorCode | str
"""What a word means: an end, a failure, `UNSURE` or `NOT_OVER`."""

ROWS: tuple[tuple[Meaning, str, str], ...] = (
    (_STOP, "stop", "OpenAI, Gemini, Ollama, AI SDK: API references"),
    (_LENGTH, "length", "OpenAI, Ollama, AI SDK: API references"),
    (_CALLS, "tool_calls function_call", "OpenAI, AI SDK: API references"),
    (_FILTER, "content_filter", "OpenAI, AI SDK: API references"),
    (_STOP, "end_turn stop_sequence pause_turn compaction", "Anthropic, handling stop reasons"),
    (_CALLS, "tool_use", "Anthropic, handling stop reasons"),
    (_LENGTH, "max_tokens model_context_window_exceeded", "Anthropic, handling stop reasons; Zhipu GLM"),
    (_FILTER, "refusal", "Anthropic, handling stop reasons"),
    (_LENGTH, "max_output_tokens", "OpenAI Responses, incomplete_details.reason"),
    (_LENGTH, "continuation", "Gemini, a proxy's word"),
    (
        _FILTER,
        "safety recitation blocklist prohibited_content spii model_armor image_safety image_prohibited_content "
        "image_recitation escalation",
        "Gemini API, FinishReason",
    ),
    (
        _ERROR,
        "malformed_function_call unexpected_tool_call too_many_tool_calls missing_thought_signature malformed_response "
        "no_image image_other",
        "Gemini API, FinishReason",
    ),
    (UNSURE, "other language", "Gemini API, FinishReason; AI SDK"),
    (NOT_OVER, "unspecified null none", "Gemini API, unused default; DashScope and llama.cpp, while writing"),
    (UNSURE, "unknown", "AI SDK 5, a provider without a finish reason"),
    (_ERROR, "error", "OpenRouter, Mistral, AI SDK"),
    (_ERROR, "function_call_filter", "NousResearch/hermes-agent#83886: Gemini behind an OpenAI proxy"),
    (_ERROR, "abort", "vllm-project/vllm#57082; SGLang"),
    (_ERROR, "repetition", "vLLM v1, FinishReason"),
    (_OVERLOADED, "insufficient_system_resource", "DeepSeek API, finish_reason"),
    (_FILTER, "sensitive", "Zhipu GLM API; Tencent Hunyuan"),
    (_ERROR, "network_error", "Zhipu GLM API"),
    (_LENGTH, "model_length", "Mistral API"),
    (_STOP, "eos eos_token word normal complete completed finished done success", "Together, TGI, llama.cpp, ERNIE"),
    (_STOP, "load unload", "Ollama, done_reason"),
    (_FILTER, "content_filtered guardrail_intervened", "Amazon Bedrock Converse, stopReason"),
    (_ERROR, "malformed_model_output malformed_tool_use", "Amazon Bedrock Converse, stopReason"),
    (_FILTER, "error_toxic", "Cohere API v1"),
    (_LENGTH, "error_limit", "Cohere API v1"),
    (_CANCELED, "user_cancel", "Cohere API v1"),
    (_CALLS, "tool_call", "Cohere API v2"),
    (_TIMEOUT, "timeout time_limit", "Cohere API v2; xAI"),
    (_LENGTH, "max_len max_context", "xAI gRPC, FinishReason"),
    (_ERROR, "invalid", "xAI gRPC, FinishReason"),
    (_LENGTH, "incomplete exceed_max_iters", "OpenAI Responses and AgentScope, status; AgentScope Service"),
    (_FILTER, "rejected", "AgentScope, status"),
    (_CANCELED, "canceled cancelled interrupted", "OpenAI Responses, AG-UI, A2A and AgentScope, status"),
    (_ERROR, "failed", "OpenAI Responses, A2A and AgentScope, status"),
)  # fmt: skip
"""The meaning of words, the words, and the source that has them."""

_WORDS: dict[str, Meaning] = {word: meaning for meaning, words, _ in ROWS for word in words.split()}

_RESEMBLANCES: tuple[tuple[Meaning, str], ...] = (
    (
        _ERROR,
        "abort aborted broken capacity connection crash crashed deadline denied disconnect disconnected error errors "
        "exception expired fail failed failure insufficient internal invalid killed lost malformed missing network "
        "never no non not oom overloaded quota rate timeout un unavailable unexpected",
    ),
    (
        _FILTER,
        "blocked blocklist filter filtered guardrail guardrails harm harmful moderated moderation policy prohibited "
        "recitation refusal refused rejected safety sensitive toxic unsafe violation",
    ),
    (_CANCELED, "cancel canceled cancelled cancellation"),
    (_LENGTH, "budget context cut exceeded incomplete length limit max maximum partial truncated tokens"),
    (_CALLS, "call calls function functions tool tools"),
    (_STOP, "complete completed done end ended eos finish finished natural ok stop stopped success"),
)
"""What an unknown word resembles if one of its pieces is among these; the first row counts."""
_LIKE = tuple((meaning, frozenset(pieces.split())) for meaning, pieces in _RESEMBLANCES)

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATORS = re.compile(r"[^a-z0-9]+")
_PREFIX = re.compile(r"^(?:(?:finish|stop|done|end|finished|stopped)_)?reason_")
_MOST = 200
"""The most characters of a word that are read."""


def plain(word: str) -> str:
    """Return a word in lower case with underscores, without the name of its enumeration."""
    spaced = _SEPARATORS.sub("_", _HUMP.sub("_", word[:_MOST]).lower()).strip("_")
    return _PREFIX.sub("", spaced)


def meaning_of(word: str, own: Mapping[str, Meaning] | None = None) -> Meaning | None:
    """Return what a word means; None for one that resembles nothing. `own` has words of the dialect, in plain form."""
    text = word if word in _WORDS else plain(word)
    if own and text in own:
        return own[text]
    known = _WORDS.get(text)
    if known is None and ":" in word[:_MOST]:
        known = _WORDS.get(plain(word.partition(":")[0]))
    if known is not None or not word.strip():
        return known or NOT_OVER
    pieces = frozenset(text.split("_"))
    return next((meaning for meaning, like in _LIKE if not like.isdisjoint(pieces)), None)


def reason_of(word: Any) -> FinishReason | None:
    """Return the finish reason that a word means after an answer; None for failures and anything else."""
    end = end_of(word, answered=True)
    return end if isinstance(end, FinishReason) else None


def end_of(
    word: Any, text: Any = None, *, answered: bool, own: Mapping[str, Meaning] | None = None
) -> FinishReason | Failure | None:
    """Return how an answer ended, by the word of its server: a finish reason or a failure; None if it did not end.

    `text` is the server's explanation, which a failure repeats. `answered` says whether the answer has content: a word
    that gives no reason is then a normal end.
    """
    if not isinstance(word, str) or not word:
        return None
    meaning = meaning_of(word, own)
    if meaning == NOT_OVER:
        return None
    if meaning == UNSURE and answered:
        return _STOP
    if isinstance(meaning, FinishReason):
        return meaning
    shown = masked(word, LONGEST_WORD)
    words = text if isinstance(text, str) and text else f"The backend ended its answer with {shown}."
    return Failure(meaning if isinstance(meaning, ErrorCode) else _ERROR, masked(words), backend_code=shown)
