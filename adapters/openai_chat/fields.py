"""The fields of a request, in both directions, in the order in which they are sent."""

from __future__ import annotations

from bridge.dialects.openai.api import SHARED
from bridge.dialects.openai_chat.wire import NAME
from bridge.toolkit.check import Node
from bridge.toolkit.fields import BOOLEAN, INTEGER, NUMBER, OBJECT, STRING, STRINGS, Fields, Row, integer


def _stream_options(body: Node, name: str) -> None:
    options = body.object(name)
    if options is not None:
        options.boolean("include_usage")


FIELDS = Fields(
    NAME,
    Row("model"),
    Row("messages"),
    Row("stream", BOOLEAN, "stream"),
    Row("temperature", NUMBER, "sampling.temperature"),
    Row("top_p", NUMBER, "sampling.top_p"),
    Row("n", integer(least=1), "sampling.n"),
    Row("seed", INTEGER, "sampling.seed"),
    Row("stop", STRINGS, "sampling.stop"),
    Row("presence_penalty", NUMBER, "sampling.presence_penalty"),
    Row("frequency_penalty", NUMBER, "sampling.frequency_penalty"),
    Row("max_tokens", INTEGER, "sampling.max_tokens"),
    Row("max_completion_tokens", INTEGER, "sampling.max_tokens"),
    Row("tools", to="tools"),
    Row("tool_choice", to="tool_choice"),
    Row("parallel_tool_calls", BOOLEAN, "parallel_tool_calls"),
    Row("response_format", to="response_format"),
    Row("logprobs", BOOLEAN),
    Row("top_logprobs", INTEGER),
    Row("reasoning_effort", STRING, "reasoning_effort"),
    Row("user", STRING, "user_id"),
    Row("metadata", OBJECT, "metadata", lambda metadata: metadata or None),
    Row("stream_options", _stream_options),
    Row("store", BOOLEAN),
    Row("logit_bias", OBJECT),
    *(Row(name, STRING) for name in sorted(SHARED)),
    also={"functions", "function_call"},
    carries={"resume"},  # which is refused
    common=SHARED,
)
