"""The options of a route (front) or a backend (back) of this dialect."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from bridge.contract import Options
from bridge.dialects.aip.addresses import AddressRule
from bridge.toolkit.units import Bytes, OffWord, Seconds

MAX_MESSAGE = 4 * 2**20
CANCEL_GRACE = 30.0
"""Seconds that a session has to stop by itself before its call is canceled."""


class Tls(BaseModel):
    """Files in PEM form; `cert` and `key` go together."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ca: str | None = Field(
        None,
        description="File with the CA certificates that verify peers."
        " For: peers whose certificates are from a CA of your own.",
    )
    cert: str | None = Field(
        None,
        description="File with the certificate of the bridge."
        " For: servers, and clients of peers that ask for a certificate.",
    )
    key: str | None = Field(None, description="File with its private key. For: every configuration with cert.")


class Skill(BaseModel):
    """One skill of an agent in the registry."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    skill_id: str = Field(description="Name of the skill. For: every skill.")
    capability: str = Field("", description="What the skill does. For: agents that choose by it.")


class FrontOptions(Options):
    """Options of an AIP route."""

    mode: Literal["gateway", "agent"] = Field(
        "gateway",
        description="gateway: the address is a gateway that contains this agent; agent: the agent registers at "
        "another gateway."
        " For: agents that register at another gateway.",
    )
    gateway: str = Field(
        "", description="mode agent: host:port of the gateway at which the agent registers. For: mode agent."
    )
    gateway_key: SecretStr | None = Field(
        None,
        description="mode agent: key for the gateway, if it needs one."
        " For: gateways that are bridges with server.auth.",
    )
    advertise: str = Field(
        "",
        description="mode agent: address at which the gateway reaches the bridge; empty = listen."
        " For: containers and NAT, where the gateway sees another address.",
    )
    name: str = Field("", description="Name in the registry; empty = the agent's id. For: registries that people read.")
    domain: str = Field("default", description="Domain in the registry. For: registries with several domains.")
    description: str = Field("", description="Description in the registry. For: agents that choose by it.")
    version: str = Field(
        "", description="Version in the registry. For: registries that tell versions of an agent apart."
    )
    skills: tuple[Skill, ...] = Field((), description="Skills in the registry. For: agents that choose by them.")
    stream: Literal["coalesce", "delta"] = Field(
        "coalesce",
        description="coalesce: one answer message for each turn, as many clients expect; delta: one for each piece "
        "of text."
        " For: clients that show text while it is written.",
    )
    flush: Seconds = Field(
        0.0,
        description="stream delta: text that arrives within this time is sent in one message; 0 = send each piece"
        " at once."
        " For: clients for which a message for each token is too many.",
    )
    close_after_turn: bool = Field(
        False,
        description="End the session after the first turn: its answer is the STOP_RESPONSE."
        " For: clients that send only START_QUEST and wait for the end.",
    )
    reasoning: Literal["drop", "text"] = Field(
        "drop",
        description="Reasoning: omitted, or sent before the answer as lines that begin with a mark."
        " For: people who read the answer.",
    )
    extras: Literal["none", "embedded"] = Field(
        "none",
        description="embedded: send usage, finish reason and model as a JSON item at the end of the answer."
        " For: another bridge, or clients that count tokens.",
    )
    on_error: Literal["auto", "hold", "stop"] = Field(
        "auto",
        description="After a failed turn: continue the session, or stop it; auto stops it if no backend can be "
        "reached."
        " For: clients that go on after an error (hold), or wait for the end (stop).",
    )
    stop: Literal["finish", "cancel"] = Field(
        "finish",
        description="Effect of a STOP_QUEST on a running turn: let it finish, or cancel it."
        " For: clients that send STOP_QUEST to cancel.",
    )
    farewell: str = Field(
        "Session closed", description="Text of the STOP_RESPONSE. For: clients that show this text to people."
    )
    idle_timeout: Seconds = Field(
        600.0,
        description="Idle time after which a half-closed session ends. For: clients that never close their session.",
    )
    generation: Literal["auto", "tool", "toolbox"] = Field(
        "auto",
        description="Generation assumed for the registration of a tool that does not show it; auto = tool."
        " For: tools of a Toolbox.",
    )
    tools: OffWord[Literal["gateway", "off"]] = Field(
        "gateway",
        description="gateway: offer the tools that register at the gateway to the backend's model."
        " For: gateways whose tools are for other agents.",
    )
    allow_addresses: tuple[str, ...] = Field(
        (),
        description="mode gateway: addresses that nodes may register in addition to their own host: networks "
        "(10.0.0.0/8), hosts (*.internal), gRPC targets (unix:/run/agents/*)."
        " For: nodes on other machines, behind NAT or a proxy.",
    )
    max_tool_rounds: int = Field(
        8,
        ge=1,
        description="Maximum number of tool rounds in one turn. For: tasks with many steps, or a limit of costs.",
    )
    max_message: Bytes = Field(MAX_MESSAGE, description="Maximum size of a received message. For: media over 4 MiB.")
    tls: Tls | None = Field(
        None,
        description="Certificates of the server; absent = plaintext. For: every server outside of a closed network.",
    )

    @field_validator("allow_addresses")
    @classmethod
    def _are_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        AddressRule.of(value)
        return value

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if (self.mode == "agent") != bool(self.gateway):
            raise ValueError("expected gateway (host:port) with mode: agent, and only there")
        return self


class BackOptions(Options):
    """Options of an AIP backend."""

    agent: str = Field(
        "",
        description="Id of the agent to call; empty = the model name of the request."
        " For: clients whose model names are no agents.",
    )
    sender_id: str = Field(
        "bridge",
        description="Id of the bridge as the caller; it need not be registered. For: agents that tell callers apart.",
    )
    direct: bool = Field(
        False, description="true: the url is that of the agent, not of a gateway. For: agents without a gateway."
    )
    session: Literal["per_request", "keep"] = Field(
        "per_request",
        description="A session for each request, or one session for each conversation id (needs server.workers: 1)."
        " For: agents that keep the conversation.",
    )
    history: Literal["render", "last"] = Field(
        "render",
        description="Earlier messages: sent as lines before the last message, or omitted."
        " For: agents that keep the conversation, or are confused by an earlier one.",
    )
    unsupported_media: Literal["refuse", "text"] = Field(
        "refuse",
        description="Videos and files by id, which AIP does not support: refuse the request, or send them as text."
        " For: clients that send videos.",
    )
    generation: Literal["auto", "tool", "toolbox"] = Field(
        "auto",
        description="Generation assumed for a tool whose registration does not show it; auto = tool."
        " For: tools of a Toolbox.",
    )
    turn_end: Literal["finish", "first", "idle"] = Field(
        "finish",
        description="session keep: what ends a turn: a finished task (or idle time), the first message, or idle time."
        " For: agents that answer with one message (first), or never report a finished task (idle).",
    )
    turn_idle: Seconds = Field(
        1.5,
        description="session keep: idle time after a message that ends a turn."
        " For: agents that pause between two messages of a turn.",
    )
    session_idle: Seconds = Field(
        600.0,
        description="session keep: time without a request after which the session is closed."
        " For: people who pause in a conversation, or agents that have few sessions.",
    )
    cancel_grace: Seconds = Field(
        CANCEL_GRACE,
        description="Time that a canceled session has to stop before its gRPC call is canceled."
        " For: agents that finish a tool before they stop.",
    )
    expose_client_tools: bool = Field(
        False,
        description="Register the client's tools at the gateway; the agent's calls of them are passed to the "
        "client (needs server.workers: 1)."
        " For: clients with tools of their own, such as editors.",
    )
    tools_host: str = Field(
        "127.0.0.1",
        description="expose_client_tools: address of this machine at which the gateway reaches the tools; ports "
        "are chosen freely."
        " For: a gateway on another machine.",
    )
    tools_wait: Seconds = Field(
        50.0,
        description="expose_client_tools: time that a client has to send a tool result; after it the call fails."
        " For: tools that a person confirms.",
    )
    error_pattern: str = Field(
        r"^\s*(Error\b|Wrong request session type)",
        description="A STOP_RESPONSE whose text matches is a failure. For: agents that word their errors differently.",
    )
    max_message: Bytes = Field(
        MAX_MESSAGE, description="Maximum size of a sent or received message. For: media over 4 MiB."
    )
    tls: Tls | None = Field(
        None,
        description="Certificates for the connection; absent = plaintext."
        " For: every gateway outside of a closed network.",
    )

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
