"""AgentRequest -> Request: the body of `POST /process`, checked in one walk."""

from __future__ import annotations

from typing import Any

from bridge.codec import Context, WireRequest
from bridge.codec.check import Node
from bridge.codec.jsontext import need_json, read_body
from bridge.dialects.agentscope.calls import CALLS, OUTPUTS, call_of, result_of
from bridge.dialects.agentscope.contents import part_of
from bridge.dialects.agentscope.notes import NAME, reasoning_of
from bridge.dialects.agentscope.options import front
from bridge.dialects.agentscope.spelling import CAMEL, CONTENT_TYPES, message_type, plain, text_of, unwrapped
from bridge.model import (
    HistoryMode,
    Interrupted,
    Message,
    Part,
    Request,
    ResponseFormat,
    Resume,
    Sampling,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
    interrupt_text,
)

_ROLES = frozenset({"user", "assistant", "system", "tool"})
# What only this dialect's own agents understand, or what a model has no use for; passed on to them as it came.
_ASIDE = frozenset({"mcp_approval_request", "mcp_approval_response", "mcp_list_tools", "heartbeat", "error"})
_ASIDE_PREFIX = "a2ui_"
# Types that a role, a call or a reasoning says again; any other travels with its message.
_ORDINARY = frozenset({"message", "reasoning"}) | CALLS | OUTPUTS
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
_FIELDS = frozenset(
    {
        "input", "stream", "id", "response_id", "model", "top_p", "temperature", "frequency_penalty",
        "presence_penalty", "max_tokens", "stop", "n", "seed", "tools", "session_id", "user_id",
    }
)  # fmt: skip
_SAMPLING = frozenset(
    {"top_p", "temperature", "frequency_penalty", "presence_penalty", "max_tokens", "stop", "n", "seed"}
)
_PAYLOADS = frozenset(
    {"text", "refusal", "image_url", "video_url", "file_url", "file_id", "file_data", "filename", "file_name"}
)
_KNOWN_CONTENT_FIELDS = _CONTENT_FIELDS | _PAYLOADS


def decode_request(wire: WireRequest, context: Context) -> Request:
    """Unknown top-level fields travel in `extras`; the frontend sends what is new, so the history is a DELTA."""
    need_json(wire)
    body = _Spelled(read_body(wire.body))
    reader = _Reader()
    reader.read(body)
    streams = body.boolean("stream") is not False or not front(context).honour_stream
    rest = body.rest(_FIELDS)
    request = Request(
        reader.messages,
        model=body.string("model"),
        thread_id=body.string("session_id"),
        run_id=body.string("id") or body.string("response_id"),
        user_id=body.string("user_id"),
        stream=streams,
        history=HistoryMode.DELTA,
        sampling=_sampling(body),
        resume=reader.resume,
    )
    _tools(body, request, rest)
    if rest:
        _openai_fields(rest, request)
    if reader.aside:
        rest["input"] = reader.aside
    request.extras = {NAME: rest} if rest else None
    return request


class _Spelled(Node):
    """Return an object in the Python form. Errors use the names that the client used."""

    __slots__ = ("_said",)

    def __init__(self, value: dict[str, Any], path: str = "") -> None:
        super().__init__(plain(value), path)
        self._said = value

    def at(self, name: str) -> str:
        camel = CAMEL.get(name, name)
        return super().at(camel if camel in self._said else name)


def _sampling(body: Node) -> Sampling:
    if _SAMPLING.isdisjoint(body.value):
        return Sampling()
    return Sampling(
        temperature=body.number("temperature", convert=True),
        top_p=body.number("top_p", convert=True),
        max_tokens=body.integer("max_tokens", convert=True),
        stop=body.strings("stop"),
        seed=body.integer("seed", convert=True),
        n=body.integer("n", convert=True, least=1, most=5),
        frequency_penalty=body.number("frequency_penalty", convert=True),
        presence_penalty=body.number("presence_penalty", convert=True),
    )


def _tools(body: Node, request: Request, rest: dict[str, Any]) -> None:
    """Functions in OpenAI's shape; any other object is kept for the same dialect, as the real server keeps it."""
    tools, others = [], []
    for node in body.objects("tools"):
        function = node.get("function")
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


# ------------------------------------------------------------------ fields that agents know from OpenAI


def _openai_fields(rest: dict[str, Any], request: Request) -> None:
    """Fields that this protocol has no word for and keeps; in another shape they stay as they came."""
    choice, wanted = _tool_choice(rest.get("tool_choice")), _format(rest.get("response_format"))
    if choice is not None:
        request.tool_choice = choice
        del rest["tool_choice"]
    if wanted is not None:
        request.response_format = wanted
        del rest["response_format"]
    if isinstance(rest.get("parallel_tool_calls"), bool):
        request.parallel_tool_calls = rest.pop("parallel_tool_calls")
    if isinstance(rest.get("reasoning_effort"), str):
        request.reasoning_effort = rest.pop("reasoning_effort")
    if isinstance(rest.get("metadata"), dict):
        request.metadata = rest.pop("metadata")


def _tool_choice(value: object) -> ToolChoice | None:
    if isinstance(value, str):
        return ToolChoice(ToolMode(value)) if value in ("auto", "none", "required") else None
    if not isinstance(value, dict):
        return None
    if value.get("type") == "allowed_tools" and isinstance(value.get("allowed_tools"), dict):
        allowed = value["allowed_tools"]
        tools, mode = allowed.get("tools"), allowed.get("mode")
        names = [n for n in map(_named, tools) if n] if isinstance(tools, list) else []
        return ToolChoice(ToolMode(mode), names) if mode in ("auto", "required") and names else None
    name = _named(value)
    return ToolChoice(ToolMode.REQUIRED, [name]) if name else None


def _named(value: object) -> str | None:
    function = value.get("function") if isinstance(value, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) and name else None


def _format(value: object) -> ResponseFormat | None:
    if not isinstance(value, dict):
        return None
    if value.get("type") in ("text", "json_object"):
        return ResponseFormat("json" if value["type"] == "json_object" else "text")
    said = value.get("json_schema")
    if value.get("type") != "json_schema" or not isinstance(said, dict) or not isinstance(said.get("schema"), dict):
        return None
    name, strict, description = said.get("name"), said.get("strict"), said.get("description")
    return ResponseFormat(
        "json_schema",
        name if isinstance(name, str) else None,
        said["schema"],
        strict if isinstance(strict, bool) else None,
        description if isinstance(description, str) else None,
    )


# ------------------------------------------------------------------ input


class _Reader:
    """Walks `input` once; every mistake is named with its place."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.resume: list[Resume] = []
        self.aside: list[dict[str, Any]] = []
        self._calls: dict[str, ToolCall] = {}
        self._nameless: list[ToolCall] = []
        self._unanswered: set[str] = set()
        # What came aside since the last ordinary message: what else comes decides whether an answer is one to this run.
        self._last: list[tuple[str, dict[str, Any], list[Node]]] = []

    def read(self, body: Node) -> None:
        for place, value in enumerate(body.need_array("input")):
            path = f"input[{place}]"
            Node.of(value, path)
            self._message(_Spelled(value, path))
        for _, message, contents in self._last:
            self._put_aside(message)
            if message["type"] == "mcp_approval_response":
                for content in contents:
                    self._answer(Node(_data(content), f"{content.path}.data"))
        for entry in self.aside:
            # Counted from the end: a stored history is put in front of what came.
            entry["followed_by"] = len(self.messages) - entry.pop("after")

    def _message(self, node: Node) -> None:
        role, said = node.one_of("role", _ROLES), node.string("type")
        if role is None and said is not None and said.lower() in _ROLES:
            # The document writes the role as the type, and Java has USER and SYSTEM as types.
            role = said.lower()
        kind, metadata = message_type(said), node.object("metadata")
        name = node.string("name") or _string(metadata.get("original_name") if metadata else None)
        java = said is not None and said != said.lower()
        contents = [_content(c, java) for c in node.objects("content")]
        if kind == "mcp_approval_response" and (role == "tool" or any("output" in _data(c) for c in contents)):
            kind = "mcp_call_output"
        if kind in _ASIDE or kind.startswith(_ASIDE_PREFIX):
            whole = {**node.value, "type": kind, "content": [c.value for c in contents]}
            self._last.append((node.path, whole, contents))
            return
        self._pass()
        notes = metadata.value if metadata else {}
        parts, places = self._parts(kind, contents, notes, java)
        if kind in CALLS or kind == "reasoning":
            role = "assistant"
        elif kind in OUTPUTS:
            role = "tool"
        rest = node.rest(_MESSAGE_FIELDS)
        mine = {**({"fields": rest} if rest else {}), **({} if kind in _ORDINARY else {"type": kind})}
        extras = {NAME: mine} if mine else None
        message = Message(role or "assistant", parts, node.string("id"), name, notes, extras, (node.path, *places))
        self.messages.append(message)

    def _pass(self) -> None:
        """An ordinary message follows what came aside, so that approvals in there are history: the run went on.

        Other dialects get them as text. While calls are open nothing may come between them and their outputs, which
        tell the decision.
        """
        for place, message, contents in self._last:
            data = _data(contents[0]) if contents else {}
            if message["type"] == "mcp_approval_request" and not self._unanswered:
                self._history(place, message, "assistant", interrupt_text(Interrupted("", "approval", data)))
            elif message["type"] == "mcp_approval_response" and not self._unanswered:
                said = "Approved" if data.get("approve") is True else "Not approved"
                self._history(place, message, "user", ": ".join(filter(None, (said, text_of(data.get("reason"))))))
            else:
                self._put_aside(message)
        self._last.clear()

    def _history(self, place: str, message: dict[str, Any], role: str, text: str) -> None:
        self.messages.append(Message(role, [Text(text)], extras={NAME: {"whole": message}}, places=(place,)))

    def _put_aside(self, message: dict[str, Any]) -> None:
        self.aside.append({"after": len(self.messages), "message": message})

    def _answer(self, data: Node) -> None:
        wanted = data.string("approval_request_id") or data.need_string("id")
        decision = "resolved" if data.boolean("approve") else "cancelled"
        self.resume.append(Resume(wanted, decision, data.value, place=data.path))

    def _parts(
        self, kind: str, contents: list[Node], metadata: dict[str, Any], java: bool
    ) -> tuple[list[Part], list[str]]:
        """The parts, and where each stands."""
        told = [(self._part(kind, content, metadata, java), content.path) for content in contents]
        parts = [(part, path) for part, path in told if part is not None]
        # The web frontend puts a text first even when it is empty, and some backends refuse empty texts.
        kept = [(p, path) for p, path in parts if not isinstance(p, Text) or p.text] or parts[:1]
        return [part for part, _ in kept], [path for _, path in kept]

    def _part(self, kind: str, content: Node, metadata: dict[str, Any], java: bool) -> Part | None:
        is_data = content.get("type") == "data" and "wrapped" not in content.value
        if is_data and (kind in CALLS or kind in OUTPUTS):
            data = Node(_data(content), f"{content.path}.data")
            # The agent needs a call id; only the Java form leaves it out.
            call_id = data.string("call_id") if java else data.need_string("call_id")
            if kind in CALLS:
                return self._call(kind, data, metadata, call_id)
            result = result_of(kind, data.value, metadata, self._partner(call_id))
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
            self._nameless.append(call)
        return call

    def _partner(self, said: str | None) -> str:
        """The call that an output answers. One that came without an id takes its output's, if that has one."""
        if said and said in self._calls:
            return said
        if self._nameless:
            call = self._nameless.pop(0)
            self._unanswered.discard(call.call_id)
            call.call_id = said or call.call_id
            return call.call_id
        return said or f"call_{len(self._calls) + 1}"


def _content(said: Node, java: bool) -> Node:
    """A content in the Python form. It needs a type that is known, and strings where strings belong."""
    content = _Spelled(said.value, said.path)
    content.value = {**content.value, "type": content.need_string("type").lower()}
    if java and content.value["type"] == "data":
        content.value = unwrapped(content.value)
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
