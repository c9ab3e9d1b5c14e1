"""The fields of a request, in both directions, in the order in which they are sent."""

from __future__ import annotations

from typing import Any

from bridge.dialects.openai.api import SHARED
from bridge.dialects.openai_responses.wire import NAME
from bridge.toolkit.check import Node
from bridge.toolkit.fields import BOOLEAN, INTEGER, NUMBER, STRING, Fields, Row


def _strings(body: Node, name: str) -> dict[str, Any] | None:
    found = body.object(name)
    return {key: found.need_string(key) for key in found.value} if found else None


def _truncation(body: Node, name: str) -> None:
    body.one_of(name, ("auto", "disabled"))


FIELDS = Fields(
    NAME,
    Row("model"),
    Row("instructions"),
    Row("input"),
    Row("stream", BOOLEAN, "stream"),
    Row("store", BOOLEAN),
    Row("temperature", NUMBER, "sampling.temperature"),
    Row("top_p", NUMBER, "sampling.top_p"),
    Row("max_output_tokens", INTEGER, "sampling.max_tokens"),
    Row("tools", to="tools"),
    Row("tool_choice", to="tool_choice"),
    Row("parallel_tool_calls", BOOLEAN, "parallel_tool_calls"),
    Row("text", to="response_format"),
    Row("reasoning.effort", STRING, "reasoning_effort"),
    Row("reasoning.generate_summary", STRING, "reasoning_summary"),
    Row("reasoning.summary", STRING, "reasoning_summary"),
    Row("top_logprobs", INTEGER),
    Row("user", STRING, "user_id"),
    Row("metadata", _strings, "metadata", lambda metadata: metadata or None),
    Row("max_tool_calls", INTEGER),
    Row("presence_penalty", NUMBER),
    Row("frequency_penalty", NUMBER),
    Row("truncation", _truncation),
    *(Row(name, STRING) for name in sorted(SHARED - {"verbosity"})),  # which stands in `text` here
    also={"background"},
    common=SHARED,
)
