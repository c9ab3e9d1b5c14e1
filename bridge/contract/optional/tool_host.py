"""The optional contract of dialects whose backends list and run tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bridge.contract.context import Context
from bridge.contract.dialect import Dialect, Options
from bridge.contract.wire import WireRequest, WireResponse
from bridge.model.parts import Part
from bridge.model.request import Tool


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that the provider runs. `place` is how its dialect finds it again."""

    tool: Tool
    place: Any


class ToolHostDialect(Dialect):
    """A dialect whose backends list and run tools, in addition to models or instead of them."""

    def own_tools(self, options: Options) -> int | None:
        """Return how many rounds of calls the model behind a route may make to tools at the route's own address.

        None, as by default, means never.
        """
        return None

    def tools_request(self) -> WireRequest:
        """Return the request for the tools at an address."""
        raise NotImplementedError

    def decode_tools(self, wire: WireResponse, options: Options) -> list[OfferedTool]:
        """Return the tools in the answer; `options` are those of a backend or a route.

        Raises `BackendError` when the answer is no list of tools.
        """
        raise NotImplementedError

    def call_request(self, tool: OfferedTool, arguments: Mapping[str, Any], context: Context) -> WireRequest:
        """Return the request that calls a tool."""
        raise NotImplementedError

    def decode_call(self, wire: WireResponse) -> tuple[list[Part], bool]:
        """Return the result of a tool, and whether it is an error.

        Raises `BackendError` when the answer is not one of a tool.
        """
        raise NotImplementedError
