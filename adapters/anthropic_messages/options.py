"""The options of a route (front) or a backend (back) of this dialect."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bridge.contract import Options
from bridge.dialects.anthropic_messages.wire import VERSION, VERTEX_VERSION
from bridge.toolkit.units import OffWord


class FrontOptions(Options):
    """Options of an Anthropic Messages route."""

    reasoning: Literal["thinking", "drop"] = Field(
        "thinking",
        description="Reasoning of the model: sent as thinking blocks, or omitted."
        " For: clients that fail at thinking blocks.",
    )
    thinking_effort: bool = Field(
        True,
        description="Send a thinking budget to backends of other dialects as an effort (low, medium, high)."
        " For: Claude Code over models that reject an effort.",
    )
    keepalive: OffWord[Literal["ping", "comment", "off"]] = Field(
        "ping",
        description="What is sent on an idle stream: a ping event, an SSE comment, or nothing."
        " For: clients that fail at ping (comment), or at both (off).",
    )
    media: Literal["text", "drop"] = Field(
        "text",
        description="Images, files and data in an answer: sent as Markdown or JSON text, or omitted."
        " For: clients that read the text aloud or parse it.",
    )
    server_tools: Literal["drop", "text", "reasoning"] = Field(
        "drop",
        description="Tool calls that a backend of another dialect ran itself: omitted, or sent as text or as "
        "reasoning."
        " For: clients over agents, where people want to see what was done.",
    )


class BackOptions(Options):
    """Options of an Anthropic Messages backend."""

    endpoint: Literal["messages", "vertex"] = Field(
        "messages",
        description="Where requests go: to /v1/messages; or, for Vertex AI, to models/MODEL:rawPredict and "
        ":streamRawPredict below the url, without the model in the body."
        " For: Claude on Vertex AI.",
    )
    version: str = Field(
        VERSION,
        description="The header anthropic-version, if the client sent none. With endpoint: vertex it is a field of the "
        f"body, by default {VERTEX_VERSION}."
        " For: servers of another version of the API.",
    )
    max_tokens: int = Field(
        4096,
        ge=1,
        description="max_tokens of requests that have none; the protocol requires it."
        " For: clients that send no limit and expect long answers.",
    )
    reasoning_history: Literal["signed", "always", "never"] = Field(
        "signed",
        description="Earlier reasoning to send: reasoning that has a signature or is redacted, all, or none."
        " For: servers of other models (DeepSeek, Kimi), which sign nothing but want it back.",
    )
    effort: Literal["output_config", "thinking", "drop"] = Field(
        "output_config",
        description="Reasoning effort: sent as output_config.effort, sent as a thinking budget for older models, "
        "or omitted."
        " For: older models of Anthropic (thinking), or servers of other models (drop).",
    )
    system_inside: Literal["hoist", "system"] = Field(
        "hoist",
        description="System messages in the middle of a conversation: moved to the system field, or kept in place."
        " For: servers that take messages of role system.",
    )
    prompt_cache: Literal["marks", "auto"] | None = Field(
        None,
        description="Prompt caching: marks = only what the client marks; auto = in requests without markers also"
        " long tools and system text, and the conversation so far; absent = auto for prompts that are long"
        " enough to be cached, of clients of all dialects but anthropic-messages and openai-responses, which mark them"
        " themselves."
        " For: costs: auto where prompts repeat, marks where they do not.",
    )
    unsupported_media: Literal["refuse", "text"] = Field(
        "refuse",
        description="Media that the protocol does not support: refuse the request, or send them as text."
        " For: clients that send audio and video.",
    )

    @property
    def vertex_version(self) -> str:
        """The version in the body of requests to Vertex AI."""
        return self.version if "version" in self.model_fields_set else VERTEX_VERSION
