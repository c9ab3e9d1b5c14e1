"""The options of a route (front) or a backend (back) of this dialect."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from bridge.codec import Context, Options
from bridge.dialects.anthropic_messages.wire import VERSION


class FrontOptions(Options):
    """Options of a route whose clients speak Anthropic Messages."""

    reasoning: Literal["thinking", "drop"] = Field(
        "thinking", description="The model's reasoning: thinking blocks, or left out."
    )
    thinking_effort: bool = Field(
        True, description="Tell backends of other dialects an effort (low, medium, high) for a thinking budget."
    )
    keepalive: Literal["ping", "comment", "off"] = Field(
        "ping", description="What keeps a silent stream warm: a ping event, an SSE comment, or nothing."
    )
    media: Literal["text", "drop"] = Field(
        "text", description="Pictures, files and data in an answer: told as Markdown or JSON text, or left out."
    )
    server_tools: Literal["drop", "text", "reasoning"] = Field(
        "drop",
        description="Tools that a backend of another dialect ran itself: withheld, or told as text or reasoning.",
    )

    @field_validator("keepalive", mode="before")
    @classmethod
    def _yaml_off(cls, value: Any) -> Any:
        """YAML reads a bare `off` as false."""
        return "off" if value is False else value


class BackOptions(Options):
    """Options of a backend that speaks Anthropic Messages."""

    version: str = Field(VERSION, description="The header anthropic-version, where the client sent none.")
    max_tokens: int = Field(
        4096, ge=1, description="Limit of an answer for requests that name none; this wire demands one."
    )
    reasoning_history: Literal["signed", "always", "never"] = Field(
        "signed", description="Which earlier reasoning goes back: what has a signature or is redacted, all, or none."
    )
    effort: Literal["output_config", "thinking", "drop"] = Field(
        "output_config",
        description="A wish for more or less reasoning: output_config.effort, a thinking budget for older models, or "
        "left out.",
    )
    system_inside: Literal["hoist", "system"] = Field(
        "hoist",
        description="System messages in the middle of a talk: put into the system field, or kept where they are.",
    )
    prompt_cache: Literal["marks", "auto"] = Field(
        "marks",
        description="What is cached of a prompt: what clients mark, or of requests without marks also their tools and "
        "system text, where these are long, and the conversation so far.",
    )
    unsupported_media: Literal["refuse", "text"] = Field(
        "refuse", description="Media that this wire cannot carry: refuse the request, or send it as text."
    )


def front(context: Context) -> FrontOptions:
    """The options of a route; a context made without any means the defaults."""
    return context.options if isinstance(context.options, FrontOptions) else FrontOptions()


def back(context: Context) -> BackOptions:
    """The options of a backend; a context made without any means the defaults."""
    return context.options if isinstance(context.options, BackOptions) else BackOptions()
