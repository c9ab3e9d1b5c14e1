"""The options of a backend that is an AgentScope 2 agent service."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from bridge.contract import Options


class BackOptions(Options):
    """Options of a backend. Its `headers` may hold what a proxy in front of the service wants."""

    agent_id: str | None = Field(
        None,
        description="The agent that is called; null = the only one that the user has. For: users with several agents.",
    )
    user_id: str = Field(
        "dialect-bridge",
        min_length=1,
        pattern=r"[\x21-\x7e]+",
        description="X-User-ID: whose agents and sessions these are; the service checks nothing else."
        " For: agents that another user owns.",
    )
    chat_model_config: dict[str, Any] | None = Field(
        None,
        description="The model of the sessions that the bridge makes, as the service has it (`type`, `credential_id`, "
        "`model`, `parameters`); the service answers no session without one."
        " For: every agent whose sessions the bridge begins.",
    )
    permission_mode: Literal["default", "accept_edits", "explore", "bypass", "dont_ask"] | None = Field(
        None,
        description="What tools may do in these sessions without asking; dont_ask refuses instead of asking. "
        "null = the service's own."
        " For: runs without a person, or agents that may only read (explore).",
    )
    system: Literal["text", "drop"] = Field(
        "text",
        description="System text of a request stands before the user's first text, or is left out."
        " For: agents whose own instructions must not be joined by those of clients.",
    )
