"""The options of a route (front) or a backend (back) of this dialect."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bridge.contract import Options
from bridge.toolkit.units import OffWord


class FrontOptions(Options):
    """Options of a Gemini route."""

    reasoning: Literal["asked", "always", "drop"] = Field(
        "asked",
        description="The model's reasoning, as thought parts: for requests with includeThoughts, always, or never.",
    )
    message_separator: str = Field("\n\n", description="Text between the texts of two messages of one answer.")
    keepalive: OffWord[Literal["text", "off"]] = Field(
        "text", description="What is sent on a silent stream: a chunk with an empty text, or nothing."
    )
    media: Literal["data", "drop"] = Field(
        "data", description="Pictures and files in an answer: as inlineData or fileData, or left out."
    )
    server_tools: Literal["drop", "text", "reasoning"] = Field(
        "drop",
        description="Tools that a backend of another dialect ran itself: left out, or sent as text or reasoning.",
    )


class BackOptions(Options):
    """Options of a Gemini backend."""

    prefix: str = Field(
        "v1beta",
        description="The path before models/; for Vertex AI v1/projects/P/locations/L/publishers/google.",
    )
    schemas: Literal["json", "google"] = Field(
        "json",
        description="Schemas of tools and answers: JSON Schema, or Google's own subset of OpenAPI for older servers.",
    )
    call_ids: Literal["known", "none"] = Field(
        "known",
        description="Ids of earlier calls: sent, except those that the bridge made; or none, for servers that refuse "
        "the field.",
    )
    signatures: Literal["auto", "always", "never"] = Field(
        "auto",
        description="For which models a call without a thought signature is sent with the value that skips Google's "
        "check: those of Gemini 3 and later, all, or none.",
    )
    thoughts: Literal["effort", "always", "never"] = Field(
        "effort",
        description="When to ask for thoughts (includeThoughts): if the client asks for reasoning or an effort, "
        "always, or never.",
    )
    effort: Literal["auto", "level", "budget", "drop"] = Field(
        "auto",
        description="How the reasoning effort is sent: as thinkingLevel to Gemini 3 and later and as thinkingBudget "
        "to others, as one of them to all, or not at all.",
    )
    reasoning_history: Literal["own", "always", "never"] = Field(
        "own", description="Which earlier thoughts are sent back: those of Gemini clients, all, or none."
    )
    system_inside: Literal["hoist", "user"] = Field(
        "hoist",
        description="System messages in the middle of a conversation: put into systemInstruction, or sent as the "
        "user's text.",
    )
