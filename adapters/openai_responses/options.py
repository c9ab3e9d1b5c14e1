"""The options of a route (front) or a backend (back) of this dialect."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from bridge.codec import Context, Options
from bridge.dialects.openai_responses.wire import CONTENT, NAME, SUMMARY


class FrontOptions(Options):
    """Options of a route whose clients speak Responses."""

    reasoning: Literal["asked", "content", "summary"] = Field(
        "asked",
        description="How clients get the reasoning of other dialects: as its summary where they ask for one "
        "(reasoning.summary) and as reasoning_text otherwise, or always as one of the two.",
    )
    hosted_tools: Literal["offer", "keep", "drop"] = Field(
        "offer",
        description="Tools that the provider runs (web_search, mcp): sent on where the backend has this dialect and "
        "left out otherwise, sent on or refused, or always left out.",
    )
    stored: Literal["bridge", "backend", "refuse"] = Field(
        "bridge",
        description="Stored responses: kept in stores.history, left to the backend, which must be of this dialect, or "
        "refused where a client asks for them.",
    )
    compaction: Literal["bridge", "backend"] = Field(
        "bridge",
        description="Who makes compaction items: the bridge, by asking the model for a summary, or the backend where "
        "it has this dialect.",
    )
    websocket: bool = Field(
        True,
        description="Serve requests over a WebSocket (GET with Upgrade); false: refused with 426, and clients POST.",
    )
    keepalive: Literal["comment", "off"] = Field(
        "comment", description="What keeps a silent stream warm: an SSE comment, or nothing."
    )
    media: Literal["text", "drop"] = Field(
        "text", description="Pictures, files and data in an answer: told as Markdown or JSON text, or left out."
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
    """Options of a backend that speaks Responses."""

    instructions: Literal["field", "message"] = Field(
        "field", description="Where the first system message of other dialects goes: instructions, or the input."
    )
    prompt_cache: Literal["drop", "breakpoints", "key"] = Field(
        "drop",
        description="Marks for the prompt cache from clients of other dialects: left out, or sent as "
        "prompt_cache_breakpoint, which only newer models take; key: left out, and requests without a prompt_cache_key "
        "get one that stands for their tools and system text.",
    )
    unsupported_media: Literal["refuse", "text"] = Field(
        "refuse", description="Media that this wire cannot carry: refuse the request, or send it as text."
    )


def reasoning_form(context: Context) -> str:
    """Return the form of reasoning that has none of its own: `summary` or `content`."""
    wanted = front(context).reasoning
    if wanted != "asked":
        return wanted
    reasoning = context.request.extra(NAME).get("reasoning") if context.request else None
    return SUMMARY if isinstance(reasoning, dict) and reasoning.get("summary") else CONTENT


def front(context: Context) -> FrontOptions:
    """The front's options, or the defaults when a stream is translated without a route."""
    return context.options if isinstance(context.options, FrontOptions) else FrontOptions()


def back(context: Context) -> BackOptions:
    """The back's options, or the defaults when a stream is translated without a route."""
    return context.options if isinstance(context.options, BackOptions) else BackOptions()
