"""The options of a route (front) or a backend (back) of this dialect."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bridge.contract import Options

Generation = Literal[1, 2]


class FrontOptions(Options):
    """Options of an AG-Kit route."""

    generation: Generation | None = Field(
        None,
        description="Generation assumed for a request that fits both generations or neither; null = 2 if it has "
        "runId, else 1."
        " For: clients whose requests fit both.",
    )
    reasoning: Literal["drop", "text"] = Field(
        "drop",
        description="Reasoning in generation 1: omitted, or sent as text between <think> and </think>."
        " For: pages that fold text between these tags.",
    )
    reasoning_events: Literal["thinking", "reasoning", "none"] = Field(
        "thinking",
        description="Reasoning events in generation 2: THINKING_* as in the reference server, the newer "
        "REASONING_*, or none."
        " For: clients built on a newer AG-UI (reasoning), or that fail at such events (none).",
    )
    media: Literal["text", "drop"] = Field(
        "text",
        description="Images, files and data in generation 1: sent as Markdown or JSON text, or omitted."
        " For: pages that show no Markdown.",
    )
    finish_notice: Literal["none", "error"] = Field(
        "none",
        description="error: an answer cut off by its length limit or a filter ends with an error event."
        " For: clients that must not take a cut answer for a whole one.",
    )
    errors: Literal["event", "text"] = Field(
        "event",
        description="text: a failure in a stream is also sent as text, for clients that ignore error events."
        " For: AG-Kit's web client, which shows no error event.",
    )


class BackOptions(Options):
    """Options of an AG-Kit backend."""

    generation: Generation = Field(
        1,
        description="Generation of requests to the backend; the generation of answers is detected."
        " For: servers of generation 2.",
    )
    path: str = Field(
        "/send-message", description="Path of the endpoint below the base URL. For: servers that mount it elsewhere."
    )
    bot_id: str | None = Field(
        None,
        description="Id of a hosted agent; the path is then /v1/aibot/bots/{bot_id}/send-message."
        " For: agents hosted by CloudBase.",
    )
    unsupported_media: Literal["refuse", "text"] = Field(
        "refuse",
        description="Media, which generation 1 does not support: refuse the request, or send them as text."
        " For: clients that send media to text agents.",
    )
