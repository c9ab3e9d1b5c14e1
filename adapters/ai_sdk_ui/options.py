"""The options of a route (front) or a backend (back) of this dialect."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from bridge.contract import Options
from bridge.model import HistoryMode

BodyField: TypeAlias = Literal[
    "system",
    "tools",
    "model",
    "temperature",
    "top_p",
    "max_tokens",
    "stop",
    "seed",
    "reasoning_effort",
    "user",
    "metadata",
    "context",
    "state",
]


class FrontOptions(Options):
    """Options of a route with the UI message stream."""

    ui_version: Literal[5, 6, 7] = Field(
        6,
        description="Oldest major version of `ai` among the clients; version 5 has no tool approvals."
        " For: pages with version 5 of `ai`.",
    )
    body_fields: tuple[BodyField, ...] = Field(
        ("system", "tools", "model"),
        description="Fields beside `messages` that set fields of the request; all others go to backends of this "
        "dialect only."
        " For: pages that send more (body of useChat), or that must not choose a model.",
    )
    last_message: bool = Field(
        False,
        description="Clients may send `message`, the last one, in place of `messages`; the bridge keeps the chat by "
        "its `id`."
        " For: pages that send the last message only, as the AI SDK's guide for stored chats does.",
    )

    @property
    def sent_history(self) -> HistoryMode | None:
        """The last message, for clients that may send it alone."""
        return HistoryMode.LAST if self.last_message else None


class BackOptions(Options):
    """Options of a backend with the UI message stream."""

    system: Literal["text", "message", "body"] = Field(
        "text",
        description="Place of the system prompt: before the user's first text, in a message of role system "
        "(rejected by servers of version 7 and Pydantic AI), or in the field `system`."
        " For: handlers that read the instructions elsewhere.",
    )
    body_fields: tuple[BodyField, ...] = Field(
        (),
        description="Fields to send beside `messages`; the protocol defines none of them."
        " For: handlers that read model, tools or a temperature of the body.",
    )
