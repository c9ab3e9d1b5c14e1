"""The options of a route (front) or a backend (back) of this dialect."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bridge.codec import Context, Options


class Skill(Options):
    """What the agent does well, for those who choose among agents."""

    id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    description: str = Field(min_length=1)
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


class FrontOptions(Options):
    """Options of a route whose clients speak A2A."""

    name: str = Field("", description="The agent's name on its card; empty = the names of the backends.")
    description: str = Field("", description="What the agent is for, on its card.")
    agent_version: str = Field("1.0.0", min_length=1, description="The agent's own version, on its card.")
    skills: tuple[Skill, ...] = Field(
        (),
        description="The skills on the card: id, name, description, tags and examples of each; none = one skill, chat.",
    )
    extended_card: bool = Field(
        False, description="Offer a card with further skills to callers with a key (GetExtendedAgentCard)."
    )
    extended_skills: tuple[Skill, ...] = Field((), description="The skills that only the extended card shows.")
    provider_name: str = Field("", description="Who offers the agent, on its card, together with provider_url.")
    provider_url: str = Field("", description="The address of who offers the agent.")
    documentation_url: str = Field("", description="The address of the agent's documentation, on its card.")
    bindings: tuple[Literal["jsonrpc", "http"], ...] = Field(
        ("jsonrpc", "http"),
        min_length=1,
        description="The bindings that the card names, the preferred one first. Both are served in any case.",
    )
    versions: tuple[Literal["1.0", "0.3"], ...] = Field(
        ("1.0",), min_length=1, description="The versions of the protocol that clients may speak."
    )
    reasoning: Literal["drop", "status"] = Field(
        "drop",
        description="The model's reasoning: left out, since clients show all that an agent says as its answer, or as "
        "messages of a WORKING status, marked as thoughts.",
    )
    tools: Literal["drop", "status"] = Field(
        "drop",
        description="Tool calls that the backend ran, with their results: left out, or as data parts in messages of a "
        "WORKING status. Clients that ask for google-adk's extension get them in any case.",
    )


class BackOptions(Options):
    """Options of a backend that speaks A2A."""

    card: Literal["fetch", "none"] = Field(
        "fetch",
        description="Where and how the agent is called: as its card below the url says, of whose addresses the path "
        "counts; or at the url itself, for agents without a card.",
    )
    binding: Literal["jsonrpc", "http+json"] | None = Field(
        None, description="How requests are written; null = JSON-RPC where the agent has it."
    )
    version: Literal["1.0", "0.3"] | None = Field(
        None, description="The version of the protocol; null = 1.0 where the agent has it."
    )
    progress: Literal["reasoning", "text", "drop"] = Field(
        "reasoning", description="What the agent says of a task while it works on it: reasoning, text, or left out."
    )
    tools: Literal["drop", "refuse"] = Field(
        "drop", description="Tools that a client offers, for which the wire has no place: left out, or refused."
    )
    metadata: bool = Field(
        False, description="Send the request's metadata, and its user as user_id, in the metadata of the message."
    )
    extensions: tuple[str, ...] = Field(
        (), description="URIs of extensions that are named in A2A-Extensions, such as that of google-adk."
    )


def front(context: Context) -> FrontOptions:
    """The options of a route; a context made without any means the defaults."""
    return context.options if isinstance(context.options, FrontOptions) else FrontOptions()


def back(context: Context) -> BackOptions:
    """The options of a backend; a context made without any means the defaults."""
    return context.options if isinstance(context.options, BackOptions) else BackOptions()
