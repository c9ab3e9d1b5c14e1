"""The options of a route (front) or a backend (back) of this dialect."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from bridge.codec import Options


class FrontOptions(Options):
    """Options of a route whose clients speak chat completions."""

    reasoning_field: Literal["reasoning_content", "reasoning", "both", "reasoning_details"] = Field(
        "reasoning_content",
        description="Name of the field in which clients get the model's reasoning; reasoning_details: that one, with "
        "signatures, beside reasoning.",
    )
    keepalive: Literal["comment", "chunk", "off"] = Field(
        "comment", description="What keeps a silent stream warm: an SSE comment, an empty chunk, or nothing."
    )
    message_separator: str = Field("\n\n", description="Text put between the texts of two messages of one answer.")
    media: Literal["text", "images", "drop"] = Field(
        "text",
        description="Media and data in an answer: told as Markdown or JSON text; the same, but pictures in images; "
        "or left out. Audio whose bytes are here is always in audio.",
    )
    server_tools: Literal["drop", "text", "reasoning"] = Field(
        "drop", description="Tools that the backend ran itself: withheld, or told as text or as reasoning."
    )

    @field_validator("keepalive", mode="before")
    @classmethod
    def _yaml_off(cls, value: Any) -> Any:
        """YAML reads a bare `off` as false."""
        return "off" if value is False else value


class BackOptions(Options):
    """Options of a backend that speaks chat completions."""

    include_usage: bool = Field(
        True, description="Ask for token counts in streams; off for servers that refuse stream_options."
    )
    developer_role: Literal["keep", "system"] = Field(
        "keep", description="Send the role developer as it is, or as system to servers that do not know it."
    )
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = Field(
        "max_tokens", description="Name of the field that limits the length of an answer."
    )
    reasoning_history: Literal["tool_turns", "always", "never"] = Field(
        "tool_turns", description="Which earlier reasoning goes back: that of messages with tool calls, all, or none."
    )
    think_tags: Literal["text", "reasoning"] = Field(
        "text", description="Leave <think>...</think> in the text, or read it as reasoning."
    )
    prompt_cache: Literal["drop", "breakpoints", "key"] = Field(
        "drop",
        description="Marks for the prompt cache from clients of other dialects: left out, or sent as "
        "prompt_cache_breakpoint, which only newer models take; key: left out, and requests without a prompt_cache_key "
        "get one that stands for their tools and system text.",
    )
    unsupported_media: Literal["refuse", "text", "parts"] = Field(
        "refuse",
        description="Media that OpenAI cannot take: refuse the request, send it as text, or in the parts of other "
        "servers: audio_url, video_url, file_url.",
    )
