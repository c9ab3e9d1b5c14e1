"""The options of a route (front) or a backend (back) of this dialect."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from bridge.codec import Context, Options
from bridge.codec.units import Bytes, Seconds
from bridge.dialects.aip.addresses import AddressRule

MAX_MESSAGE = 4 * 2**20
CANCEL_GRACE = 30.0
"""Seconds that a session has to stop by itself before its call is canceled."""


class Tls(BaseModel):
    """Files in PEM form; `cert` and `key` go together."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ca: str | None = Field(None, description="File with the certificates that peers are checked by.")
    cert: str | None = Field(None, description="File with our own certificate.")
    key: str | None = Field(None, description="File with its private key.")


class Skill(BaseModel):
    """One skill of an agent, as it stands in the registry."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    skill_id: str = Field(description="Name of the skill.")
    capability: str = Field("", description="What it is good for.")


class FrontOptions(Options):
    """Options of a route whose clients speak AIP."""

    mode: Literal["gateway", "agent"] = Field(
        "gateway", description="The address is a gateway with this agent in it, or an agent of a foreign gateway."
    )
    gateway: str = Field("", description="mode agent: host:port of the gateway at which the agent registers.")
    gateway_key: SecretStr | None = Field(None, description="mode agent: key for the gateway, if it asks for one.")
    advertise: str = Field("", description="mode agent: address at which it reaches us; empty = listen.")
    name: str = Field("", description="Name in the registry; empty = the agent's id.")
    domain: str = Field("default", description="Domain in the registry.")
    description: str = Field("", description="Description in the registry.")
    version: str = Field("", description="Version in the registry.")
    skills: tuple[Skill, ...] = Field((), description="Skills in the registry.")
    stream: Literal["coalesce", "delta"] = Field(
        "coalesce",
        description="One answer message for each turn, which many clients expect, or one for each piece of text.",
    )
    flush: Seconds = Field(
        0.0, description="stream delta: text that comes within this time goes into one message; 0 = each piece at once."
    )
    close_after_turn: bool = Field(
        False, description="The first turn ends the session: its answer is the STOP_RESPONSE."
    )
    reasoning: Literal["drop", "text"] = Field(
        "drop", description="Reasoning: left out, or in front of the answer as lines that begin with a mark."
    )
    message_separator: str = Field("\n\n", description="Text put between the texts of two messages of one answer.")
    extras: Literal["none", "embedded"] = Field(
        "none", description="embedded: usage, finish reason and model as a JSON item at the end of the answer."
    )
    on_error: Literal["auto", "hold", "stop"] = Field(
        "auto", description="A failed turn: the session goes on, or stops; auto stops it when no backend is reached."
    )
    stop: Literal["finish", "cancel"] = Field(
        "finish", description="What a STOP_QUEST does to a running turn: let it finish, or cancel it."
    )
    farewell: str = Field("Session closed", description="Text of the STOP_RESPONSE.")
    idle_timeout: Seconds = Field(600.0, description="Silence after which a half-closed session ends.")
    generation: Literal["auto", "tool", "toolbox"] = Field(
        "auto", description="Wire generation of a tool's registration that does not show its own; auto = tool."
    )
    tools: Literal["gateway", "off"] = Field(
        "gateway", description="gateway: tools that register at the gateway are functions of the backend's model."
    )
    allow_addresses: tuple[str, ...] = Field(
        (),
        description="mode gateway: addresses that nodes may register besides those of the host that they call from: "
        "networks (10.0.0.0/8), hosts (*.internal), gRPC targets (unix:/run/agents/*).",
    )
    max_tool_rounds: int = Field(8, ge=1, description="How often in one turn the model may call tools.")
    max_message: Bytes = Field(MAX_MESSAGE, description="Largest message that is received.")
    tls: Tls | None = Field(None, description="Certificates of the server; absent = plaintext.")

    @field_validator("allow_addresses")
    @classmethod
    def _are_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        AddressRule.of(value)
        return value

    @field_validator("tools", mode="before")
    @classmethod
    def _off(cls, value: object) -> object:
        # YAML reads a bare `off` as false.
        return "off" if value is False else value

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if (self.mode == "agent") != bool(self.gateway):
            raise ValueError("expected gateway (host:port) with mode: agent, and only there")
        return self


class BackOptions(Options):
    """Options of a backend that speaks AIP."""

    agent: str = Field("", description="Id of the agent to call; empty = the name of the model.")
    sender_id: str = Field("bridge", description="Our own id; it need not be registered.")
    direct: bool = Field(False, description="The url is the agent itself, not a gateway.")
    session: Literal["per_request", "keep"] = Field(
        "per_request",
        description="A session for each request, or one that is kept for a conversation's id (server.workers: 1).",
    )
    history: Literal["render", "last"] = Field(
        "render", description="Earlier messages: written before the last one as lines, or left out."
    )
    unsupported_media: Literal["refuse", "text"] = Field(
        "refuse",
        description="Videos and files by id, which no message holds: refuse the request, or tell them as text.",
    )
    generation: Literal["auto", "tool", "toolbox"] = Field(
        "auto", description="Wire generation of a tool whose registration does not show its own; auto = tool."
    )
    turn_end: Literal["finish", "first", "idle"] = Field(
        "finish",
        description="What ends a turn of a kept session: a finished task (or silence), the first message, or silence.",
    )
    turn_idle: Seconds = Field(1.5, description="Silence after a message that ends a turn of a kept session.")
    session_idle: Seconds = Field(600.0, description="Time without a request after which a kept session is closed.")
    cancel_grace: Seconds = Field(
        CANCEL_GRACE, description="Time a canceled session has to stop before its call is canceled."
    )
    expose_client_tools: bool = Field(
        False,
        description="A client's own tools register at the gateway, and what the agent calls is called of the client "
        "(server.workers: 1).",
    )
    tools_host: str = Field(
        "127.0.0.1",
        description="expose_client_tools: address of this machine at which the gateway reaches them, on free ports.",
    )
    tools_wait: Seconds = Field(
        50.0, description="expose_client_tools: time for a client to bring a result; then the agent gets none."
    )
    error_pattern: str = Field(
        r"^\s*(Error\b|Wrong request session type)", description="A STOP_RESPONSE with such a text is a failure."
    )
    max_message: Bytes = Field(MAX_MESSAGE, description="Largest message that is sent or received.")
    tls: Tls | None = Field(None, description="Certificates for the connection; absent = plaintext.")

    @field_validator("error_pattern")
    @classmethod
    def _is_pattern(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value

    @model_validator(mode="after")
    def _at_a_gateway(self) -> Self:
        if self.expose_client_tools and self.direct:
            raise ValueError("expected a gateway, and not direct: true, with expose_client_tools")
        if self.tls is not None and self.expose_client_tools and not (self.tls.cert and self.tls.key):
            raise ValueError("expected tls with cert and key with expose_client_tools: the gateway connects back")
        return self


def front(context: Context) -> FrontOptions:
    """The front's options, or the defaults when a stream is translated without a route."""
    return context.options if isinstance(context.options, FrontOptions) else FrontOptions()


def back(context: Context) -> BackOptions:
    """The back's options, or the defaults when a stream is translated without a route."""
    return context.options if isinstance(context.options, BackOptions) else BackOptions()
