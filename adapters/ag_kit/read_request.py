"""Generation 1's body -> Request, validated in one pass."""

from __future__ import annotations

from typing import Any

from bridge.contract import Context
from bridge.dialects.ag_kit.wire import EMPTY_SCHEMA, NAME, noted
from bridge.errors import RequestError
from bridge.model import HistoryMode, Message, Part, Request, Resume, Text, Tool, ToolCall, ToolResult
from bridge.model.jsontext import MAX_DEPTH, deeper_than, loads, may_nest
from bridge.toolkit.check import Node, wrong
from bridge.toolkit.fields import STRING, Fields, Row

FIELDS = Fields(
    NAME,
    Row("conversationId", STRING, "thread_id"),
    Row("messages"),
    Row("tools", to="tools"),
    Row("resume", to="resume"),
    carries={"sampling.n"},  # more than one answer is refused
    has_model=False,
)
_JSON_STARTS = frozenset('"{[tfn-0123456789')
"""The characters with which a JSON text can begin."""
_ROLES = ("system", "user", "assistant", "tool")


def decode_request(value: dict[str, Any], context: Context) -> Request:
    """Decode a request. Its messages are the new ones; the server stores the history. Unknown fields go to `extras`.

    A request without a conversation id begins a conversation, whose id the encoder sends to the client.
    """
    body = Node(value)
    request = Request([], history=HistoryMode.DELTA)
    rest = FIELDS.read(body, request)
    notes: dict[str, Any] = {"generation": 1}
    if request.thread_id is None:
        notes["conversation"] = request.thread_id = context.make_id("conv")
    request.messages = [_message(node) for node in body.objects("messages")]
    request.tools = None if body.array("tools") is None else [_tool(node) for node in body.objects("tools")]
    if (resume := body.object("resume")) is not None:
        request.resume = [resume_of(resume.need_string("interruptId"), resume.get("payload"))]
    request.extras = {NAME: {"notes": notes, **({"fields": rest} if rest else {})}}
    return request


def resume_of(interrupt_id: str, payload: Any) -> Resume:
    """Return the answer to an interrupt.

    AG-Kit's web client sends `JSON.stringify(answer)`: other dialects get the parsed answer, AG-Kit servers the string.
    """
    if (
        isinstance(payload, str)
        and payload[:1] in _JSON_STARTS
        and not may_nest(payload.encode("utf-8", "surrogatepass"))
    ):
        try:
            return Resume(interrupt_id, "resolved", loads(payload), {NAME: {"payload": payload}})
        except ValueError:
            pass
    return Resume(interrupt_id, "resolved", payload)


def _message(node: Node) -> Message:
    """Decode one message. An array of parts is refused, since generation 1 has no multimodal input."""
    role = node.need_one_of("role", _ROLES)
    if role == "assistant":
        return _assistant(node)
    content = node.need_string("content")
    if role == "tool":
        call_id = node.need_string("toolCallId")
        rest = node.rest({"role", "content", "toolCallId"})
        return Message(role, [ToolResult(call_id, [Text(content)])], extras=noted(rest))
    return Message(role, [Text(content)], extras=noted(node.rest({"role", "content"})))


def _assistant(node: Node) -> Message:
    content = node.string("content")
    calls: list[Part] = [_call(call) for call in node.objects("toolCalls")]
    parts: list[Part] = [Text(content)] if content or (content is not None and not calls) else []
    wire_id = node.get("id")
    message_id = wire_id if isinstance(wire_id, str) and wire_id else None
    rest = node.rest({"role", "content", "toolCalls", "id"})
    return Message("assistant", [*parts, *calls], message_id, extras=noted(rest))


def _call(node: Node) -> ToolCall:
    node.one_of("type", ("function",))
    function = node.need_object("function")
    return ToolCall(node.need_string("id"), function.need_string("name"), function.need_string("arguments"))


def _tool(node: Node) -> Tool:
    name, description = node.need_string("name"), node.need_string("description")
    rest = node.rest({"name", "description", "parameters"})
    return Tool(name, description, _schema(node), extras=noted(rest))


def _schema(node: Node) -> dict[str, Any]:
    """Return the parameters: a string that holds a JSON Schema or, as the reference also accepts, an object."""
    path, value = node.at("parameters"), node.get("parameters")
    if isinstance(value, dict):
        return value
    expected = "a string that holds a JSON object"
    if not isinstance(value, str):
        wrong(path, expected, value, missing="parameters" not in node.value)
    if not value.strip():
        return dict(EMPTY_SCHEMA)
    try:
        schema = loads(value)
    except ValueError:
        raise RequestError(f"{path}: expected {expected}, got one that is not valid JSON.", param=path) from None
    if not isinstance(schema, dict):
        raise RequestError(f"{path}: expected {expected}, got another JSON value in it.", param=path)
    if may_nest(value.encode(), MAX_DEPTH) and deeper_than(schema, MAX_DEPTH):
        raise RequestError(f"{path}: nested deeper than {MAX_DEPTH} levels.", param=path)
    return schema
