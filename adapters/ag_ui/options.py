"""The options of a route (front) or a backend (back) of this dialect."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from bridge.contract import Options

Prop: TypeAlias = Literal[
    "model",
    "temperature",
    "top_p",
    "max_tokens",
    "stop",
    "seed",
    "n",
    "frequency_penalty",
    "presence_penalty",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "reasoning_effort",
    "user",
]


class FrontOptions(Options):
    """Options of an AG-UI route."""

    reasoning_events: Literal["reasoning", "thinking", "none"] = Field(
        "reasoning",
        description="Reasoning events: REASONING_*, THINKING_* for the oldest clients, or none."
        " For: clients before 0.0.47 (thinking), or older ones that fail at both (none).",
    )
    forwarded_props: tuple[Prop, ...] = Field(
        (),
        description="Keys of forwardedProps that set fields of the request; all others go to AG-UI backends only."
        " For: pages that let people choose a model or a temperature.",
    )


class BackOptions(Options):
    """Options of an AG-UI backend."""

    protocol_version: Literal["1.0"] | None = Field(
        None,
        description="Protocol version in requests; null for agents of 0.x, some of which reject the field."
        " For: agents of AG-UI 1.0 that take media in results.",
    )
    part_style: Literal["binary", "media"] = Field(
        "media",
        description="Format of media: the parts of version 0.1.15 and later, or the earlier ones."
        " For: agents up to 0.1.14, which know only binary parts.",
    )
    forward_props: bool = Field(
        False,
        description="Send model, sampling, tool choice and response format in forwardedProps."
        " For: agents that read them, such as another bridge.",
    )
    reasoning_history: bool = Field(
        True,
        description="Send earlier reasoning as messages; off for Python agents up to 0.1.9, which reject them."
        " For: Python agents up to 0.1.9, which reject such messages.",
    )
