"""The fields of `generationConfig` that our model has, in both directions, in the order in which they are sent."""

from __future__ import annotations

from bridge.dialects.gemini.wire import NAME
from bridge.toolkit.check import Node
from bridge.toolkit.fields import NUMBER, Fields, Row, integer


def _stop(config: Node, name: str) -> list[str] | None:
    return config.strings(name) or None


CONFIG = Fields(
    NAME,
    Row("temperature", NUMBER, "sampling.temperature"),
    Row("topP", NUMBER, "sampling.top_p"),
    Row("maxOutputTokens", integer(convert=True, least=0), "sampling.max_tokens"),
    Row("stopSequences", _stop, "sampling.stop"),
    Row("seed", integer(convert=True), "sampling.seed"),
    Row("candidateCount", integer(convert=True, least=1), "sampling.n"),
    Row("presencePenalty", NUMBER, "sampling.presence_penalty"),
    Row("frequencyPenalty", NUMBER, "sampling.frequency_penalty"),
    carries={"tools", "tool_choice", "response_format"},
)
