"""The options of a route (front) or a backend (back) of this dialect."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bridge.contract import Options


class FrontOptions(Options):
    """Options of a Gemini route."""

    reasoning: Literal["asked", "always", "drop"] = Field(
        "asked",
        description="The model's reasoning, as thought parts: for requests with includeThoughts, always, or never."
        " For: clients that show thoughts without asking for them (always), or show them as text "
        "(drop).",
    )
    media: Literal["data", "drop"] = Field(
        "data",
        description="Pictures and files in an answer: as inlineData or fileData, or left out."
        " For: clients that read text only.",
    )
    server_tools: Literal["drop", "text", "reasoning"] = Field(
        "drop",
        description="Tools that a backend of another dialect ran itself: left out, or sent as text or reasoning."
        " For: clients over agents, where people want to see what was done.",
    )


class BackOptions(Options):
    """Options of a Gemini backend."""

    prefix: str = Field(
        "v1beta",
        description="The path before models/; for Vertex AI v1/projects/P/locations/L/publishers/google."
        " For: Vertex AI, and v1 or v1alpha of Google's API.",
    )
    schemas: Literal["json", "google"] = Field(
        "json",
        description="Schemas of tools and answers: JSON Schema, or Google's own subset of OpenAPI for older servers."
        " For: servers before JSON Schema (parametersJsonSchema).",
    )
    call_ids: Literal["known", "none"] = Field(
        "known",
        description="Ids of earlier calls: sent, except those that the bridge made; or none, for servers that refuse "
        "the field."
        " For: Google's endpoints that refuse the field.",
    )
    signatures: Literal["auto", "always", "never"] = Field(
        "auto",
        description="For which models a call without a thought signature is sent with the value that skips Google's "
        "check: those of Gemini 3 and later, all, or none."
        " For: proxies whose names of models do not show the generation.",
    )
    thoughts: Literal["effort", "always", "never"] = Field(
        "effort",
        description="When to ask for thoughts (includeThoughts): if the client asks for reasoning or an effort, "
        "always, or never."
        " For: people who want thoughts of any client (always), or models that have none (never).",
    )
    effort: Literal["auto", "level", "budget", "drop"] = Field(
        "auto",
        description="How the reasoning effort is sent: as thinkingLevel to Gemini 3 and later and as thinkingBudget "
        "to others, as one of them to all, or not at all."
        " For: proxies whose names of models do not show the generation (level, budget), or models "
        "without thoughts (drop).",
    )
    reasoning_history: Literal["own", "always", "never"] = Field(
        "own",
        description="Which earlier thoughts are sent back: those of Gemini clients, all, or none."
        " For: servers of other models, which read it (always), or long conversations (never).",
    )
    system_inside: Literal["hoist", "user"] = Field(
        "hoist",
        description="System messages in the middle of a conversation: put into systemInstruction, or sent as the "
        "user's text."
        " For: conversations whose later instructions must keep their place.",
    )
