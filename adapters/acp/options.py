"""The options of a route of this dialect."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bridge.contract import Options


class FrontOptions(Options):
    """Options of an ACP route."""

    mcp_servers: Literal["ignore", "refuse"] = Field(
        "ignore",
        description="MCP servers that an editor passes with a session: none is ever started or called. ignore: the "
        "session begins without them, which is logged; refuse: the session is refused."
        " For: editors whose user should know that the servers are not there.",
    )
