"""`forwardedProps` <-> the fields of a request that AG-UI has no place for, in OpenAI's spelling."""

from __future__ import annotations

from bridge.dialects.ag_ui.wire import NAME
from bridge.dialects.openai.shapes import choice, shape, write_choice, write_format
from bridge.toolkit.fields import BOOLEAN, INTEGER, NUMBER, STRING, STRINGS, Fields, Row, integer

PROPS = Fields(
    NAME,
    Row("model", STRING, "model"),
    Row("temperature", NUMBER, "sampling.temperature"),
    Row("top_p", NUMBER, "sampling.top_p"),
    Row("max_tokens", INTEGER, "sampling.max_tokens"),
    Row("stop", STRINGS, "sampling.stop"),
    Row("seed", INTEGER, "sampling.seed"),
    Row("n", integer(least=1), "sampling.n"),
    Row("frequency_penalty", NUMBER, "sampling.frequency_penalty"),
    Row("presence_penalty", NUMBER, "sampling.presence_penalty"),
    Row("tool_choice", choice, "tool_choice", write_choice),
    Row("parallel_tool_calls", BOOLEAN, "parallel_tool_calls"),
    Row("response_format", shape, "response_format", write_format),
    Row("reasoning_effort", STRING, "reasoning_effort"),
    Row("user", STRING, "user_id"),
    carries={"tools", "thread_id", "context", "state", "resume"},
)
