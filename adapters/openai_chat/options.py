"""The options of a route (front) or a backend (back) of this dialect."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bridge.contract import Options
from bridge.toolkit.units import OffWord


class FrontOptions(Options):
    """Options of a chat completions route."""

    reasoning_field: Literal["reasoning_content", "reasoning", "both", "reasoning_details"] = Field(
        "reasoning_content",
        description="Field with the model's reasoning; reasoning_details adds that field, with signatures, to "
        "reasoning."
        " For: clients of newer vLLM (reasoning) and OpenRouter (reasoning_details).",
    )
    keepalive: OffWord[Literal["comment", "chunk", "off"]] = Field(
        "comment",
        description="What is sent on an idle stream: an SSE comment, an empty chunk, or nothing."
        " For: clients whose time limit only chunks reset (chunk), or that do not skip comments (off).",
    )
    media: Literal["text", "images", "drop"] = Field(
        "text",
        description="Media and data in an answer: sent as Markdown or JSON text; the same, but images in the "
        "field images; or omitted. Inline audio is always sent in audio."
        " For: clients of OpenRouter, which read images; clients that parse the text (drop).",
    )
    server_tools: Literal["drop", "text", "reasoning"] = Field(
        "drop",
        description="Tool calls that the backend ran itself: omitted, or sent as text or as reasoning."
        " For: chat pages over agents, where people want to see what was done.",
    )


class BackOptions(Options):
    """Options of a chat completions backend."""

    include_usage: bool = Field(
        True,
        description="Request token counts in streams. For: servers that reject stream_options.",
    )
    developer_role: Literal["keep", "system"] = Field(
        "keep",
        description="Send the role developer unchanged, or as system."
        " For: vLLM, llama.cpp and others that know no developer role.",
    )
    system_inside: Literal["keep", "hoist"] = Field(
        "keep",
        description="System messages: kept in place, or joined to one before all other "
        "messages."
        " For: models whose chat template takes one system message at the start (Qwen).",
    )
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = Field(
        "max_tokens", description="Field that limits the length of an answer. For: OpenAI's reasoning models."
    )
    reasoning_history: Literal["tool_turns", "always", "never"] = Field(
        "tool_turns",
        description="Earlier reasoning to send: that of turns with tool calls, all, or none."
        " For: DeepSeek, which wants or refuses it by model.",
    )
    think_tags: Literal["text", "reasoning"] = Field(
        "text",
        description="Keep <think>...</think> in the text, or decode it as reasoning."
        " For: models without a reasoning parser in front, such as R1 and QwQ.",
    )
    prompt_cache: Literal["drop", "breakpoints", "marks", "key"] | None = Field(
        None,
        description="Prompt cache markers of clients of other dialects: omitted, sent as "
        "prompt_cache_breakpoint, which only newer models accept, or (marks) as cache_control, for servers such as "
        "OpenRouter and LiteLLM; key: omitted, and requests without a prompt_cache_key get one derived from their "
        "tools and system text; absent = key towards api.openai.com for clients of all dialects but "
        "anthropic-messages and openai-responses, else drop."
        " For: OpenRouter and LiteLLM (marks), and newer OpenAI models (breakpoints).",
    )
    unsupported_media: Literal["refuse", "text", "parts"] = Field(
        "refuse",
        description="Media that OpenAI does not support: refuse the request, send them as text, or send them in "
        "the parts of other servers (audio_url, video_url, file_url)."
        " For: vLLM and DashScope, which take video and audio URLs (parts), or text models (text).",
    )
