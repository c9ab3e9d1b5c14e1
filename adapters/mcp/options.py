"""The options of a route of this dialect."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from bridge.contract import Options

ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,48}$")]
"""Clients put `mcp__<server>__` or the like before it, and models take 64 characters."""


class FrontOptions(Options):
    """Options of an MCP route."""

    tool: ToolName | None = Field(
        None,
        description="Name of the tool of a route with `backend`; null = `ask_` and the backend's name. A route with "
        "several tools has them in `tools`, beside `options`."
        " For: every route with one tool.",
    )
    title: str = Field("", description="Title of that tool for people. For: clients that show titles of tools.")
    description: str = Field(
        "",
        description="What that tool is for; a model chooses by it."
        " For: every route with one tool, as models choose by it.",
    )
    instructions: str = Field(
        "",
        description="What clients tell their model about all tools of the route."
        " For: routes with several tools that belong together.",
    )
    arguments: tuple[Literal["images", "files", "system"], ...] = Field(
        (),
        description="Further arguments of the tools: images and files (lists of URLs, data: included), and system, "
        "a text that precedes the conversation."
        " For: models that see, or agents whose instructions the client may set.",
    )
    progress: Literal["text", "all", "off"] = Field(
        "text",
        description="Notifications of progress while the backend answers: the pieces of its text; with all, also the "
        "tools that an agent calls; or none, other than a sign of life when it is silent."
        " For: clients that show what an agent does (all), or count notifications (off).",
    )
    structured: bool = Field(
        False,
        description="Answer in structuredContent, too. Claude Code and Codex then show their model its JSON in place "
        "of the text; images and files become text."
        " For: programs that parse answers.",
    )
