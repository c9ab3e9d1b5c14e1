"""A client's own tools as nodes at the gateway, for the agent of one session.

In the generation `tool` each is a node with an address of its own, in `toolbox` one node has all. Their domain is the
session's id: an agent with several sessions queries the domain of the current one. Calls of others than this agent are
refused, as they would belong to another client.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.contract import Context
from bridge.contract.optional.sessions import ClientTools, Refuse, Registration, Respond
from bridge.dialects.aip.described import texts_of, typed
from bridge.dialects.aip.gateway import CALL_TOOL
from bridge.dialects.aip.generation import arguments_of
from bridge.dialects.aip.options import BackOptions
from bridge.dialects.aip.read_request import NAME
from bridge.dialects.aip.registration import Membership
from bridge.dialects.aip.wire import BoxedTool, ContentItem, Mode, ToolBoxInfo, ToolInfo, ToolRequest, ToolResponse
from bridge.model import Request, Tool, ToolCall, ToolMode, ToolResult
from bridge.model.jsontext import dumps
from bridge.toolkit.media import result_as_text
from bridge.toolkit.redact import printable
from bridge.toolkit.tools import supported

_ERROR = "Error executing tool: "


def exposed(request: Request, context: Context, session_id: str) -> Exposed | None:
    """Return the tools of a request that are exposed; None if they are not, or if there are none.

    Raises `Unsupported` for a tool that is no function.
    """
    choice = request.tool_choice
    if not BackOptions.of(context).expose_client_tools or (choice is not None and choice.mode is ToolMode.NONE):
        return None
    tools = supported(request, NAME, context.lost)
    return Exposed(tools, context, session_id) if tools else None


class Exposed(ClientTools):
    """See `bridge.contract.optional.sessions.ClientTools`."""

    path = CALL_TOOL

    def __init__(self, tools: Sequence[Tool], context: Context, session_id: str) -> None:
        options = BackOptions.of(context)
        self.host, self.wait = options.tools_host, options.tools_wait
        self._agent = options.agent or context.model or ""
        self._session_id = session_id
        self._context = context
        self._tools = list(tools)
        self._described = {tool.name: texts_of(tool.parameters) for tool in tools}
        self._nodes = {f"{session_id}/{tool.name}": tool.name for tool in tools}
        self._box = f"{session_id}/tools" if options.generation == "toolbox" else None
        self.places = 1 if self._box is not None else len(tools)

    def same(self, other: ClientTools) -> bool:
        return isinstance(other, Exposed) and other._tools == self._tools

    def registrations(self, registry: str, addresses: Sequence[str], key: str) -> list[Registration]:
        if self._box is not None:
            boxed = [BoxedTool(t.name, t.description or "", repr(self._described[t.name])) for t in self._tools]
            box = ToolBoxInfo(self._box, addresses[0], self._box, self._session_id, "tools of a client", boxed)
            return [Membership(registry, box, key)]
        return [
            Membership(registry, self._info(node, tool, address), key)
            for node, tool, address in zip(self._nodes, self._tools, addresses, strict=True)
        ]

    def _info(self, node: str, tool: Tool, address: str) -> ToolInfo:
        text, described = [int(Mode.TEXT)], self._described[tool.name]
        return ToolInfo(node, address, tool.name, self._session_id, text, text, tool.description or "", described, "1")

    def called(self, body: bytes) -> ToolCall | Respond | Refuse:
        try:
            request = ToolRequest.from_bytes(body)
        except ValueError as error:
            return Refuse("INVALID_ARGUMENT", f"CallTool: the request is not a message of this method ({error}).")
        boxed = self._box is not None and request.receiver_id == self._box
        name = request.tool_name if boxed else self._nodes.get(request.receiver_id)
        if name not in self._described:
            missing = (
                f"{printable(request.tool_name)}] in the box [{self._box}" if boxed else printable(request.receiver_id)
            )
            return Refuse("NOT_FOUND", f"Receiver not found: no tool [{missing}] answers at this address.")
        if request.sender_id != self._agent:
            return Respond(_response(request, error="this tool belongs to the session of another agent").to_bytes())
        try:
            arguments = arguments_of(request.arguments)
        except ValueError as error:
            return Respond(_response(request, error=str(error)).to_bytes())
        arguments = arguments if boxed else typed(arguments, self._described[name])
        return ToolCall(self._context.make_id("call"), name, dumps(arguments).decode())

    def answer(self, body: bytes, result: ToolResult) -> bytes:
        request, text = ToolRequest.from_bytes(body), result_as_text(result, self._context.lost)
        return _response(request, **({"error": text} if result.is_error else {"text": text})).to_bytes()


def _response(request: ToolRequest, text: str = "", error: str | None = None) -> ToolResponse:
    """Return a tool's answer, with the reference tool's text if there is none."""
    failed = error is not None
    content = [] if failed else [ContentItem(text)]
    summary = f"{_ERROR}{error}" if failed else "No Error"
    return ToolResponse(request.receiver_id, request.sender_id, request.session_id, failed, summary, content)
