"""The options of a route (front) or a backend (back) of this dialect."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from bridge.contract import Options

Capability = Literal["audio", "embedding", "insert", "thinking", "tools", "vision"]


class ModelOptions(BaseModel):
    """What clients get to know about a model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    context: int | None = Field(
        None, ge=1, description="Length of the context window in tokens. For: models whose backend does not say it."
    )
    capabilities: tuple[Capability, ...] | None = Field(
        None,
        description="What it can do beside completion: audio, embedding, insert, thinking, tools, vision."
        " For: VS Code and other clients that offer only models with tools.",
    )


class FrontOptions(Options):
    """Options of an Ollama route."""

    models: dict[str, ModelOptions] = Field(
        default_factory=dict,
        description="Model name or glob -> what clients get to know about it, in place of what the backend says."
        " For: backends that say little about their models.",
    )
    context_length: int = Field(
        32768,
        ge=1,
        description="Context window in tokens of models for which nothing says it; clients cut to it."
        " For: clients that cut conversations to it.",
    )
    version: str = Field(
        "0.33.0",
        pattern=r"^\d+\.\d+\.\d+$",
        description="The version of Ollama in /api/version. For: clients that demand a newer one.",
    )
    media: Literal["text", "drop"] = Field(
        "text",
        description="Images, files and data in an answer: sent as Markdown or JSON text, or omitted."
        " For: clients that read the text aloud or parse it.",
    )
    server_tools: Literal["drop", "text", "reasoning"] = Field(
        "drop",
        description="Tools that a backend of another dialect ran itself: left out, or sent as text or reasoning."
        " For: clients over agents, where people want to see what was done.",
    )


class BackOptions(Options):
    """Options of an Ollama backend."""

    truncate: bool = Field(
        False,
        description="A conversation longer than the context: true = the server cuts its beginning off silently, "
        "false = it answers with an error."
        " For: chats that should go on when they are too long.",
    )
    num_ctx: int | None = Field(
        None,
        ge=1,
        description="Context window in tokens with which models are loaded; absent = the server's default."
        " For: long prompts, as the server's default is short.",
    )
    keep_alive: str | int | None = Field(
        None,
        description="How long a model stays loaded, such as 10m; -1 = for ever; absent = the server's default."
        " For: machines with little memory, or models that load slowly.",
    )
