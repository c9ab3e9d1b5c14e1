"""AgentRequest -> Request: the body of `POST /process`, validated in one pass."""

from __future__ import annotations

from collections import deque
from typing import Any

from bridge.contract import Context, WireRequest
from bridge.dialects.agentscope.calls import CALLS, OUTPUTS, call_of, result_of
from bridge.dialects.agentscope.contents import part_of
from bridge.dialects.agentscope.extras import NAME, reasoning_of
from bridge.dialects.agentscope.normalization import CONTENT_TYPES, SPELLING, message_type, unwrap_data
from bridge.dialects.openai.shapes import choice, shape, write_choice, write_format
from bridge.model import (
    HistoryMode,
    Interrupted,
    Message,
    Part,
    Request,
    Resume,
    Text,
    Tool,
    ToolCall,
    interrupt_text,
)
from bridge.model.jsontext import read_body, text_of
from bridge.toolkit.check import Node, SpelledNode, need_json
from bridge.toolkit.fields import BOOLEAN, OBJECT, STRING, STRINGS, Fields, Row, integer, number
from bridge.toolkit.tools import FUNCTION

_ROLES = frozenset({"user", "assistant", "system", "tool"})
# Messages for agents of this dialect only, or of no use to a model; passed through unchanged.
_PASSED_THROUGH = frozenset({"mcp_approval_request", "mcp_approval_response", "mcp_list_tools", "heartbeat", "error"})
_PASSED_THROUGH_PREFIX = "a2ui_"
# Types implied by the role or the parts of a message; others are stored in its extras.
_IMPLIED_TYPES = frozenset({"message", "reasoning"}) | CALLS | OUTPUTS
_MESSAGE_FIELDS = frozenset(
    {
        "role", "type", "content", "id", "metadata", "name", "object", "status", "code", "message", "usage", "error",
        "sequence_number",
    }
)  # fmt: skip
_CONTENT_FIELDS = frozenset(
    {
        "type", "data", "format", "detail", "wrapped", "object", "status", "error", "index", "delta", "msg_id",
        "sequence_number",
    }
)  # fmt: skip
_PAYLOADS = frozenset(
    {"text", "refusal", "image_url", "video_url", "file_url", "file_id", "file_data", "filename", "file_name"}
)
_KNOWN_CONTENT_FIELDS = _CONTENT_FIELDS | _PAYLOADS


_OF_OPENAI = (
    Row("tool_choice", choice, "tool_choice", write_choice),
    Row("parallel_tool_calls", BOOLEAN, "parallel_tool_calls"),
    Row("response_format", shape, "response_format", write_format),
    Row("reasoning_effort", STRING, "reasoning_effort"),
    Row("metadata", OBJECT, "metadata", lambda metadata: metadata or None),
)
PASSED_ON = frozenset(row.name for row in _OF_OPENAI)
"""Fields of OpenAI's API, which this protocol passes on unread; values of another type stay among the extras."""
CARRIED = ("logprobs", "logit_bias", "store")
"""Fields of OpenAI's API without a place in the model, which are sent under the same names."""


def _streams(body: Node, name: str) -> bool:
    return body.boolean(name) is not False


def _run(body: Node, name: str) -> str | None:
    return body.string(name) or None


_NUMBER, _INTEGER = number(convert=True), integer(convert=True)
FIELDS = Fields(
    NAME,
    Row("input"),
    Row("stream", _streams, "stream"),
    Row("response_id", _run, "run_id"),
    Row("id", _run, "run_id"),
    Row("model", STRING, "model"),
    Row("top_p", _NUMBER, "sampling.top_p"),
    Row("temperature", _NUMBER, "sampling.temperature"),
    Row("frequency_penalty", _NUMBER, "sampling.frequency_penalty"),
    Row("presence_penalty", _NUMBER, "sampling.presence_penalty"),
    Row("max_tokens", _INTEGER, "sampling.max_tokens"),
    Row("stop", STRINGS, "sampling.stop"),
    Row("n", integer(convert=True, least=1, most=5), "sampling.n"),
    Row("seed", _INTEGER, "sampling.seed"),
    Row("tools", to="tools"),
    Row("session_id", STRING, "thread_id"),
    Row("user_id", STRING, "user_id"),
    *_OF_OPENAI,
    carries={"resume"},
    common=CARRIED,
)


def decode_request(wire: WireRequest, context: Context) -> Request:
    """Decode a request. Unknown fields go to `extras`; clients send new messages only, so the history is a DELTA."""
    need_json(wire)
    body = _NormalizedNode(read_body(wire.body))
    reader = _InputReader()
    reader.read(body)
    request = Request(reader.messages, history=HistoryMode.DELTA, resume=reader.resume)
    rest = FIELDS.read(body, request, only=FIELDS.known - PASSED_ON)
    request.stream = True  # as the reference server, which knows no other answer
    _tools(body, request, rest)
    if rest:
        rest = FIELDS.read(Node(rest), request, only=PASSED_ON, tolerant=True)
    if reader.passed_through:
        rest["input"] = reader.passed_through
    request.extras = {NAME: rest} if rest else None
    return request


class _NormalizedNode(SpelledNode):
    """An object normalized to the Python form. Errors have the client's field names."""

    __slots__ = ()

    spelling = SPELLING

    def __init__(self, value: dict[str, Any], path: str = "") -> None:
        super().__init__(value, path)
        if self.value is not value and self.value.get("type") == "data":
            self.value = unwrap_data(self.value)


def _tools(body: Node, request: Request, rest: dict[str, Any]) -> None:
    """Read tools in OpenAI's shape; other objects are kept in extras, as the real server keeps them."""
    tools, others = [], []
    for node in body.objects("tools"):
        function = node.get(FUNCTION)
        tool = _function(function) if isinstance(function, dict) else None
        if tool is None:
            others.append(node.value)
        else:
            tools.append(tool)
    request.tools = tools or None
    if others:
        rest["tools"] = others


def _function(function: dict[str, Any]) -> Tool | None:
    name, description = function.get("name"), function.get("description")
    parameters, strict = function.get("parameters"), function.get("strict")
    if not isinstance(name, str) or not name:
        return None
    return Tool(
        name,
        description if isinstance(description, str) else None,
        parameters if isinstance(parameters, dict) else None,
        strict if isinstance(strict, bool) else None,
    )


# ------------------------------------------------------------------ input


class _InputReader:
    """Reads `input` in one pass; errors name their path."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.resume: list[Resume] = []
        self.passed_through: list[dict[str, Any]] = []
        self._calls: dict[str, ToolCall] = {}
        self._without_id: deque[ToolCall] = deque()
        self._unanswered: set[str] = set()
        # Messages to pass through since the last ordinary one: only approvals not followed by one resume the run.
        self._pending: list[tuple[str, dict[str, Any], list[Node]]] = []

    def read(self, body: Node) -> None:
        for position, value in enumerate(body.need_array("input")):
            path = f"input[{position}]"
            Node.of(value, path)
            self._message(_NormalizedNode(value, path))
        for _, message, contents in self._pending:
            self._pass_through(message)
            if message["type"] == "mcp_approval_response":
                for content in contents:
                    self._add_resume(Node(_data(content), f"{content.path}.data"))
        for entry in self.passed_through:
            # Counted from the end, since stored history is inserted before the request's messages.
            entry["followed_by"] = len(self.messages) - entry.pop("after")

    def _message(self, node: Node) -> None:
        role, wire_type = node.one_of("role", _ROLES), node.string("type")
        if role is None and wire_type is not None and wire_type.lower() in _ROLES:
            # The documentation has the role as the type, and Java has USER and SYSTEM as types.
            role = wire_type.lower()
        kind, metadata = message_type(wire_type), node.object("metadata")
        name = node.string("name") or _string(metadata.get("original_name") if metadata else None)
        java = wire_type is not None and wire_type != wire_type.lower()
        contents = [_content(c, java) for c in node.objects("content")]
        if kind == "mcp_approval_response" and (role == "tool" or any("output" in _data(c) for c in contents)):
            kind = "mcp_call_output"
        if kind in _PASSED_THROUGH or kind.startswith(_PASSED_THROUGH_PREFIX):
            original = {**node.value, "type": kind, "content": [c.value for c in contents]}
            self._pending.append((node.path, original, contents))
            return
        self._flush_pending()
        fields = metadata.value if metadata else {}
        parts, places = self._parts(kind, contents, fields, java)
        if kind in CALLS or kind == "reasoning":
            role = "assistant"
        elif kind in OUTPUTS:
            role = "tool"
        rest = node.rest(_MESSAGE_FIELDS)
        own_extras = {**({"fields": rest} if rest else {}), **({} if kind in _IMPLIED_TYPES else {"type": kind})}
        extras = {NAME: own_extras} if own_extras else None
        message = Message(role or "assistant", parts, node.string("id"), name, fields, extras, (node.path, *places))
        self.messages.append(message)

    def _flush_pending(self) -> None:
        """Process pending messages before an ordinary one: approvals among them are history, since the run continued.

        Other dialects get them as text. While calls are open, nothing may come between them and their outputs, which
        show the decision.
        """
        for path, message, contents in self._pending:
            data = _data(contents[0]) if contents else {}
            if message["type"] == "mcp_approval_request" and not self._unanswered:
                self._add_history(path, message, "assistant", interrupt_text(Interrupted("", "approval", data)))
            elif message["type"] == "mcp_approval_response" and not self._unanswered:
                decision = "Approved" if data.get("approve") is True else "Not approved"
                self._add_history(
                    path, message, "user", ": ".join(filter(None, (decision, text_of(data.get("reason")))))
                )
            else:
                self._pass_through(message)
        self._pending.clear()

    def _add_history(self, path: str, message: dict[str, Any], role: str, text: str) -> None:
        self.messages.append(Message(role, [Text(text)], extras={NAME: {"whole": message}}, places=(path,)))

    def _pass_through(self, message: dict[str, Any]) -> None:
        self.passed_through.append({"after": len(self.messages), "message": message})

    def _add_resume(self, data: Node) -> None:
        request_id = data.string("approval_request_id") or data.need_string("id")
        decision = "resolved" if data.boolean("approve") else "cancelled"
        self.resume.append(Resume(request_id, decision, data.value, place=data.path))

    def _parts(
        self, kind: str, contents: list[Node], metadata: dict[str, Any], java: bool
    ) -> tuple[list[Part], list[str]]:
        """Return the parts and their paths."""
        read = [(self._part(kind, content, metadata, java), content.path) for content in contents]
        parts = [(part, path) for part, path in read if part is not None]
        # The web frontend always sends a text first, even an empty one, and some backends refuse empty texts.
        non_empty = [(p, path) for p, path in parts if not isinstance(p, Text) or p.text] or parts[:1]
        return [part for part, _ in non_empty], [path for _, path in non_empty]

    def _part(self, kind: str, content: Node, metadata: dict[str, Any], java: bool) -> Part | None:
        is_data = content.get("type") == "data" and "wrapped" not in content.value
        if is_data and (kind in CALLS or kind in OUTPUTS):
            data = Node(_data(content), f"{content.path}.data")
            # The agent requires a call id; only the Java form omits it.
            call_id = data.string("call_id") if java else data.need_string("call_id")
            if kind in CALLS:
                return self._call(kind, data, metadata, call_id)
            result = result_of(kind, data.value, metadata, self._answered_call_id(call_id))
            self._unanswered.discard(result.call_id)
            return result
        if kind == "reasoning" and content.get("type") == "text":
            return reasoning_of(content.string("text") or "", metadata)
        part, rest = part_of(content.value), content.rest(_KNOWN_CONTENT_FIELDS)
        if part is not None and rest:
            part.extras = {**(part.extras or {}), NAME: rest}
        return part

    def _call(self, kind: str, data: Node, metadata: dict[str, Any], call_id: str | None) -> ToolCall:
        call = call_of(kind, data.value, metadata, call_id or f"call_{len(self._calls) + 1}")
        self._calls[call.call_id] = call
        self._unanswered.add(call.call_id)
        if not call_id:
            self._without_id.append(call)
        return call

    def _answered_call_id(self, wire_id: str | None) -> str:
        """Return the call id of an output. A call without an id gets that of its output, if there is one."""
        if wire_id and wire_id in self._calls:
            return wire_id
        if self._without_id:
            call = self._without_id.popleft()
            self._unanswered.discard(call.call_id)
            call.call_id = wire_id or call.call_id
            return call.call_id
        return wire_id or f"call_{len(self._calls) + 1}"


def _content(node: Node, java: bool) -> Node:
    """Return a content in the Python form. Raises `RequestError` for an unknown type or an invalid field."""
    content = _NormalizedNode(node.value, node.path)
    content.value = {**content.value, "type": content.need_string("type").lower()}
    if java and content.value["type"] == "data":
        content.value = unwrap_data(content.value)
    content.one_of("type", CONTENT_TYPES)
    for name in content.value:
        if name in _PAYLOADS:
            content.string(name)
    if content.value["type"] == "audio":
        content.string("data")
        content.string("format")
    elif content.value["type"] == "data":
        content.object("data")
    return content


def _data(content: Node) -> dict[str, Any]:
    value = content.get("data")
    return value if isinstance(value, dict) else {}


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None
