"""The options of a route (front) or a backend (back) of this dialect."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bridge.codec import Context, Options


class FrontOptions(Options):
    """Options of a route whose clients speak A2A."""

    versions: tuple[Literal["1.0", "0.3"], ...] = Field(
        ("1.0",), min_length=1, description="The versions of the protocol that clients may speak."
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
