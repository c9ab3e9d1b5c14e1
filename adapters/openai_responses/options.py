"""The options of a route (front) or a backend (back) of this dialect."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bridge.contract import Context, Options
from bridge.dialects.openai_responses.wire import CONTENT, SUMMARY


class FrontOptions(Options):
    """Options of a Responses route."""

    reasoning: Literal["asked", "content", "summary"] = Field(
        "asked",
        description="Format of reasoning from other dialects: a summary if the client requests one "
        "(reasoning.summary) and reasoning_text otherwise, or always one of the two."
        " For: clients that show only one of the two.",
    )
    hosted_tools: Literal["offer", "keep", "drop"] = Field(
        "offer",
        description="Tools that the provider runs (web_search, mcp): offer = sent to backends of this dialect, "
        "else omitted; keep = sent to backends of this dialect, else refused; drop = always omitted."
        " For: applications that must not lose a tool silently (keep), or must not search (drop).",
    )
    stored: Literal["bridge", "backend", "refuse"] = Field(
        "bridge",
        description="Stored responses: kept in stores.history, left to the backend (which must be of this "
        "dialect), or refused if a client requests them."
        " For: backends that store themselves, or servers that must store nothing (refuse).",
    )
    compaction: Literal["bridge", "backend"] = Field(
        "bridge",
        description="Source of compaction items: the bridge, which asks the model for a summary, or the backend "
        "if it is of this dialect."
        " For: Codex over OpenAI, whose own items hold more.",
    )
    websocket: bool = Field(
        True,
        description="Accept requests over a WebSocket (GET with Upgrade); false: refused with 426, after which "
        "clients use POST."
        " For: proxies that pass no WebSocket on.",
    )
    media: Literal["text", "drop"] = Field(
        "text",
        description="Images, files and data in an answer: sent as Markdown or JSON text, or omitted."
        " For: clients that read the text aloud or parse it.",
    )
    server_tools: Literal["drop", "text", "reasoning"] = Field(
        "drop",
        description="Tool calls that the backend ran itself: omitted, or sent as text or as reasoning."
        " For: clients over agents, where people want to see what was done.",
    )


class BackOptions(Options):
    """Options of a Responses backend."""

    instructions: Literal["field", "message"] = Field(
        "field",
        description="Place of the first system message of other dialects: instructions, or the input."
        " For: servers that ignore the field, or forget it in the next response.",
    )
    prompt_cache: Literal["drop", "breakpoints", "key"] | None = Field(
        None,
        description="Prompt cache markers of clients of other dialects: omitted, or sent as "
        "prompt_cache_breakpoint, which only newer models accept; key: omitted, and requests without "
        "a prompt_cache_key get one derived from their tools and system text; absent = key towards api.openai.com for "
        "clients of all dialects but anthropic-messages and openai-responses, else drop."
        " For: newer OpenAI models (breakpoints), or servers that reject the key (drop).",
    )
    unsupported_media: Literal["refuse", "text"] = Field(
        "refuse",
        description="Media that the protocol does not support: refuse the request, or send them as text."
        " For: clients that send audio and video.",
    )


def reasoning_form(context: Context) -> str:
    """Return the form of reasoning without a form of its own: `summary` or `content`."""
    wanted = FrontOptions.of(context).reasoning
    if wanted != "asked":
        return wanted
    return SUMMARY if context.request is not None and context.request.reasoning_summary else CONTENT
