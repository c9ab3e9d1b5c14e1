"""The fields of a request, in both directions, in the order in which they are sent."""

from __future__ import annotations

from bridge.dialects.anthropic_messages.wire import NAME
from bridge.toolkit.caching import CONTROL
from bridge.toolkit.check import Node
from bridge.toolkit.fields import BOOLEAN, INTEGER, NUMBER, STRING, Fields, Row, integer


def _stop(body: Node, name: str) -> list[str] | None:
    body.array(name)
    return body.strings(name) or None


FIELDS = Fields(
    NAME,
    Row("model"),
    Row("max_tokens", integer(least=0), "sampling.max_tokens"),
    Row("system"),
    Row("messages"),
    Row("tools", to="tools"),
    Row("tool_choice", to="tool_choice"),
    Row("temperature", NUMBER, "sampling.temperature"),
    Row("top_p", NUMBER, "sampling.top_p"),
    Row("stop_sequences", _stop, "sampling.stop"),
    Row("metadata"),
    Row("stream", BOOLEAN, "stream"),
    Row(CONTROL, Node.get),
    Row("top_k", INTEGER),
    Row("service_tier", STRING),
    carries={"parallel_tool_calls", "user_id", "response_format", "reasoning_effort"},
    common={CONTROL},
)
"""`tool_choice` has parallel calls, `metadata` the user, and `output_config` the effort and the shape of the answer."""
