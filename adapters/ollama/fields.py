"""The fields of requests, as tables for both directions."""

from __future__ import annotations

from typing import Any

from bridge.dialects.ollama.wire import NAME
from bridge.dialects.openai.shapes import read_function
from bridge.model import ResponseFormat, Tool
from bridge.toolkit.check import Node, wrong
from bridge.toolkit.fields import BOOLEAN, NUMBER, STRINGS, Fields, Row

LEVELS = ("low", "medium", "high")
"""The words of `think` that all servers with levels know; some also know `max`."""
_SAME = {"minimal": "none", "xhigh": "high", "max": "high"}
_SCHEMA_NAME = "answer"


def _not_negative(options: Node, name: str) -> int | None:
    """A number that is not set if it is negative."""
    number = options.integer(name)
    return None if number is None or number < 0 else number


def _tools(body: Node, name: str) -> list[Tool] | None:
    return [read_function(node.need_object("function")) for node in body.objects(name)] or None


def _format(body: Node, name: str) -> ResponseFormat | None:
    said = body.get(name)
    if said is None or said == "":
        return None
    if said == "json":
        return ResponseFormat("json")
    if not isinstance(said, dict):
        wrong(body.at(name), '"json" or a JSON Schema', said)
    return ResponseFormat("json_schema", name=_SCHEMA_NAME, schema=said)


def write_format(wanted: ResponseFormat) -> Any:
    if wanted.kind == "text":
        return None
    return "json" if wanted.schema is None else wanted.schema


def _think(body: Node, name: str) -> str | None:
    think = body.get(name)
    if think is not None and not isinstance(think, bool) and think not in (*LEVELS, "max"):
        wrong(body.at(name), "true, false, low, medium, high or max", think)
    return effort_of(think)


def effort_of(think: Any) -> str | None:
    """Return the effort that `think` means; None where it is not said."""
    if isinstance(think, bool):
        return "medium" if think else "none"
    return _SAME.get(think, think) if isinstance(think, str) else None


def write_think(effort: str) -> Any:
    """Return `think` for an effort; None for a word that servers refuse."""
    word = _SAME.get(effort, effort)
    return False if word == "none" else word if word in LEVELS else None


_NUMBERS = ("repeat_penalty", "min_p", "typical_p", "repeat_last_n", "num_keep", "top_k")
"""Numbers among the options that only this API has."""
BODY = Fields(
    NAME,
    Row("model"),
    Row("messages"),
    Row("stream", BOOLEAN, "stream"),
    Row("tools", _tools, "tools"),
    Row("format", _format, "response_format", write_format),
    Row("think", _think, "reasoning_effort", write_think),
    Row("options.num_ctx", NUMBER),
    Row("options.temperature", NUMBER, "sampling.temperature"),
    Row("options.top_p", NUMBER, "sampling.top_p"),
    Row("options.num_predict", _not_negative, "sampling.max_tokens"),
    Row("options.stop", STRINGS, "sampling.stop"),
    Row("options.seed", _not_negative, "sampling.seed"),
    Row("options.frequency_penalty", NUMBER, "sampling.frequency_penalty"),
    Row("options.presence_penalty", NUMBER, "sampling.presence_penalty"),
    *(Row(f"options.{name}", NUMBER) for name in _NUMBERS),
    Row("keep_alive", Node.get),
    Row("truncate", Node.get),
    carries={"resume"},  # which is refused
)
