"""Request bodies -> `Request`, checked in the same walk; every wrong field is a `RequestError` that names its place.

What rests on responses that somebody stored is read in one place (`_stored`), since this route keeps none yet.
"""

from __future__ import annotations

from typing import Any

from adapters.openai_responses.items import ItemReader
from adapters.openai_responses.options import FrontOptions, front
from adapters.openai_responses.tools import read_text, read_tool_choice, read_tools
from adapters.openai_responses.wire import NAME, noted
from bridge.codec import Context, Feature, WireRequest
from bridge.codec.check import Node
from bridge.codec.jsontext import need_json, read_body
from bridge.codec.tools import FUNCTION
from bridge.errors import RequestError
from bridge.model import HistoryMode, Message, Request, Sampling, Text, Tool, ToolChoice

# Fields with a place in our model; all others travel in `Request.extras`.
KNOWN = frozenset(
    {
        "model",
        "input",
        "instructions",
        "stream",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "text",
        "reasoning",
        "user",
        "metadata",
        "temperature",
        "top_p",
        "max_output_tokens",
        "background",
    }
)
_KEPT_BY_SOMEBODY = ("previous_response_id", "conversation", "store")


def decode_request(wire: WireRequest, context: Context) -> Request:
    """The request of a client. Raises `RequestError`."""
    need_json(wire, status=415)
    body = Node(read_body(wire.body))
    options = front(context)
    _stored(body, options)
    extras = body.rest(KNOWN)
    if not extras.get("store"):
        extras.pop("store", None)  # backends are told so anyway
    messages = ItemReader(stored=options.stored == "backend").read(body)
    tools, choice = read_tools(body), read_tool_choice(body, extras)
    if options.hosted_tools == "drop" and any(tool.kind != FUNCTION for tool in tools or ()):
        tools, choice = _functions(tools or [], choice, extras)
        context.lost.add(Feature.TOOLS, "option hosted_tools: drop")
    return Request(
        messages=[*_instructions(body), *messages],
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=body.boolean("parallel_tool_calls"),
        model=body.string("model"),
        user_id=body.string("user"),
        stream=body.boolean("stream") or False,
        history=HistoryMode.FULL,
        sampling=Sampling(
            temperature=body.number("temperature"),
            top_p=body.number("top_p"),
            max_tokens=body.integer("max_output_tokens"),
        ),
        response_format=read_text(body, extras),
        reasoning_effort=_effort(body, extras),
        metadata=dict(metadata.value) if (metadata := body.object("metadata")) else {},
        extras={NAME: extras},
    )


def _functions(
    tools: list[Tool], choice: ToolChoice | None, extras: dict[str, Any]
) -> tuple[list[Tool], ToolChoice | None]:
    """The functions alone; a choice among what is left out is no choice any more."""
    left = [tool for tool in tools if tool.kind == FUNCTION]
    if choice is not None and not {tool.name for tool in left}.issuperset(choice.names):
        extras.pop("tool_choice", None)
        choice = None
    return left, choice


def _stored(body: Node, options: FrontOptions) -> None:
    """Refuses what needs a memory of responses that neither this route nor its backend is said to have.

    Where it is the backend's (option `stored`), these fields travel on with all others that only this dialect knows.
    """
    if body.boolean("background"):
        _refuse("background", "this route answers while the client waits")
    body.string("previous_response_id")
    body.boolean("store")
    if options.stored == "backend":
        return
    for name in _KEPT_BY_SOMEBODY:
        if body.get(name):
            _refuse(name, "this route keeps no responses; send the whole conversation as input")


def _refuse(name: str, reason: str) -> None:
    raise RequestError(f"{name}: not supported, since {reason}.", param=name)


def _instructions(body: Node) -> list[Message]:
    text = body.string("instructions")
    return [] if text is None else [Message("system", [Text(text)], extras=noted(instructions=True))]


def _effort(body: Node, extras: dict[str, Any]) -> str | None:
    """`reasoning.effort`; the other fields of `reasoning` (`summary`) travel on."""
    node = body.object("reasoning")
    if node is None:
        return None
    if more := node.rest({"effort"}):
        extras["reasoning"] = more
    return node.string("effort")
