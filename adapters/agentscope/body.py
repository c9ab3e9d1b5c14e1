"""Request -> AgentRequest, the body of `POST /process`."""

from __future__ import annotations

from typing import Any

from bridge.codec import Context, Feature, Losses, WireRequest
from bridge.codec.jsontext import dumps
from bridge.codec.media import request_feature
from bridge.codec.tools import supported
from bridge.dialects.agentscope.approvals import answer_data
from bridge.dialects.agentscope.calls import call_data, call_type, origin_metadata, output_data, output_of
from bridge.dialects.agentscope.contents import content_of
from bridge.dialects.agentscope.extras import NAME, own, reasoning_metadata
from bridge.dialects.agentscope.forms import PYTHON, Form
from bridge.dialects.agentscope.options import BackOptions
from bridge.errors import Unsupported
from bridge.model import (
    Message,
    Part,
    Reasoning,
    Refusal,
    Request,
    ResponseFormat,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
    ToolResult,
)

_SAMPLING = ("top_p", "temperature", "frequency_penalty", "presence_penalty", "max_tokens", "stop", "n", "seed")
# OpenAI fields without a counterpart, carried as extra fields of the same name.
_CARRIED = ("logprobs", "logit_bias", "store")
_EMPTY_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


def encode_request(
    request: Request, context: Context, form: Form = PYTHON, options: BackOptions | None = None
) -> WireRequest:
    """Encode a request. The session id is always sent: concurrent requests without one collide in the real server.

    Raises `Unsupported` for a number of answers that the protocol does not support.
    """
    n = request.sampling.n
    if n is not None and not 1 <= n <= 5:
        raise Unsupported(f"n: expected a number from 1 to 5, got {n}.", param="n")
    options = options or BackOptions.of(context)
    _record_losses(request, form, context.lost)
    body: dict[str, Any] = {"input": _input(request, options.call_type, form, context.lost), "stream": True}
    fields = {
        "response_id" if form.exact else "id": request.run_id,
        "model": context.model or request.model,
        **{name: getattr(request.sampling, name) for name in _SAMPLING},
        "tools": _tools(request, form, context),
        "session_id": session_of(request, context),
        "user_id": request.user_id,
        **({} if form.exact else _extra(request)),
    }
    body.update((k, v) for k, v in fields.items() if v is not None)
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    return WireRequest("POST", options.path, headers, body=dumps(form.named(body)))


def encode_stop(request: Request, context: Context, form: Form, options: BackOptions) -> WireRequest | None:
    """Encode a stop, with the session and user of the request: the agent matches the pair."""
    if options.stop_path is None:
        return None
    body: dict[str, Any] = {"input": [], "session_id": session_of(request, context)}
    if request.user_id is not None:
        body["user_id"] = request.user_id
    headers = {"content-type": "application/json"}
    return WireRequest("POST", options.stop_path, headers, body=dumps(form.named(body)))


def session_of(request: Request, context: Context) -> str:
    """Return the session id, which is never empty: requests without one collide in the real server."""
    return context.thread_id or request.thread_id or context.run_id


def _record_losses(request: Request, form: Form, lost: Losses) -> None:
    """Record what has no field. Exact forms do not support the fields that other forms pass on unread."""
    dropped: list[tuple[Feature, object]] = [(Feature.CONTEXT, request.context)]
    if form.exact:
        # "none" is expressed by sending no tools.
        choice = request.tool_choice if request.tool_choice and request.tool_choice.mode is not ToolMode.NONE else None
        dropped += [
            (Feature.TOOL_CHOICE, choice),
            (Feature.RESPONSE_FORMAT, request.response_format),
            (Feature.REASONING_EFFORT, request.reasoning_effort),
            (Feature.METADATA, request.metadata),
            (Feature.MESSAGE_NAME, any(m.name for m in request.messages)),
            (
                Feature.EXTRAS,
                own(request.extras).keys() - {"input"} | (request.shared or {}).keys() & set(_CARRIED),
            ),
        ]
    for feature, value in dropped:
        if value:
            lost.add(feature)
    if request.logprobs and not form.exact:
        lost.add(Feature.SAMPLING, "the number of alternatives of log probabilities")
    if request.has_fields_of_others(NAME, _CARRIED):
        lost.add(Feature.EXTRAS, "fields of other dialects")
    if request.state not in (None, {}):  # AG-UI clients always send one
        lost.add(Feature.STATE)
    if form.exact and request.parallel_tool_calls is not None:
        lost.add(Feature.PARALLEL_TOOL_CALLS)


def _extra(request: Request) -> dict[str, Any]:
    """Return fields that the protocol passes on unread, and those of a frontend of this dialect."""
    shared = request.shared or {}
    own_fields = {k: v for k, v in own(request.extras).items() if k not in ("input", "tools")}
    return {
        "tool_choice": _choice(request.tool_choice),
        "parallel_tool_calls": request.parallel_tool_calls,
        "response_format": _format(request.response_format),
        "reasoning_effort": request.reasoning_effort,
        "metadata": request.metadata or None,
        **({"logprobs": True} if request.logprobs is not None else {}),
        **{name: shared[name] for name in _CARRIED if name in shared},
        **own_fields,
    }


def _tools(request: Request, form: Form, context: Context) -> list[dict[str, Any]] | None:
    if form.exact:
        is_excluded = request.tool_choice is not None and request.tool_choice.mode is ToolMode.NONE
        return (
            [_tool(t, strict=False) for t in supported(request, NAME, context.lost)] or None
            if not is_excluded
            else None
        )
    others = own(request.extras).get("tools")
    tools = [_tool(t) for t in supported(request, NAME, context.lost)] + (others if isinstance(others, list) else [])
    return tools or None


def _tool(tool: Tool, *, strict: bool = True) -> dict[str, Any]:
    function: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description or "",
        "parameters": _EMPTY_PARAMETERS if tool.parameters is None else tool.parameters,
    }
    if strict and tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _choice(choice: ToolChoice | None) -> Any:
    if choice is None:
        return None
    named = [{"type": "function", "function": {"name": n}} for n in choice.names]
    if not named:
        return str(choice.mode)
    if choice.mode is ToolMode.REQUIRED and len(named) == 1:
        return named[0]
    return {"type": "allowed_tools", "allowed_tools": {"mode": str(choice.mode), "tools": named}}


def _format(response_format: ResponseFormat | None) -> dict[str, Any] | None:
    if response_format is None:
        return None
    if response_format.kind != "json_schema":
        return {"type": "json_object" if response_format.kind == "json" else "text"}
    schema: dict[str, Any] = {"name": response_format.name or "answer", "schema": response_format.schema or {}}
    if response_format.strict is not None:
        schema["strict"] = response_format.strict
    if response_format.description is not None:
        schema["description"] = response_format.description
    return {"type": "json_schema", "json_schema": schema}


# ------------------------------------------------------------------ input


def _input(request: Request, default_type: str, form: Form, lost: Losses) -> list[dict[str, Any]]:
    """Return the messages, with the stored ones of a frontend of this dialect at their original positions."""
    names: dict[str, str] = {}
    blocks = [_MessageWriter(message, names, default_type, form, lost).write() for message in request.messages]
    stored = own(request.extras).get("input")
    entries = stored if isinstance(stored, list) else []
    followed_by: dict[int, list[dict[str, Any]]] = {}
    for entry in entries:
        followed_by.setdefault(entry["followed_by"], []).append(entry["message"])
    messages: list[dict[str, Any]] = []
    for position, written in enumerate((*blocks, [])):
        messages += [*followed_by.get(len(blocks) - position, ()), *written]
    if not entries:
        messages += [_approval(answer_data(r)) for r in request.resume]
    return [form.message(m) for m in messages]


def _approval(data: dict[str, Any]) -> dict[str, Any]:
    return {"type": "mcp_approval_response", "role": "user", "content": [{"type": "data", "data": data}]}


class _MessageWriter:
    """Writes one model message as one or several wire messages: reasoning, calls and outputs have their own."""

    def __init__(self, message: Message, names: dict[str, str], default_type: str, form: Form, lost: Losses) -> None:
        self._message = message
        self._names = names
        self._default_type = default_type
        self._form = form
        self._lost = lost
        self._messages: list[dict[str, Any]] = []
        self._contents: list[dict[str, Any]] | None = None

    def write(self) -> list[dict[str, Any]]:
        original = own(self._message.extras).get("whole")
        if isinstance(original, dict):
            return [original]
        for part in self._message.parts:
            self._part(part)
        if not self._messages and self._message.role != "tool":
            # `content: null` breaks the agent; an empty list does not.
            self._start(self._kind, self._role, [])
        return self._messages

    @property
    def _kind(self) -> str:
        """The type of an ordinary message; types specific to this dialect are stored in its extras."""
        stored_type = own(self._message.extras).get("type")
        return stored_type if isinstance(stored_type, str) else "message"

    @property
    def _role(self) -> str:
        role = self._message.role
        return "system" if role == "developer" else role

    def _part(self, part: Part) -> None:
        match part:
            case ToolCall():
                self._call(part)
            case ToolResult():
                self._result(part)
            case Reasoning():
                text = [{"type": "text", "text": part.text}]
                self._start("reasoning", "assistant", text, reasoning_metadata(part.signature, part.redacted))
            case _:
                self._content(part)

    def _content(self, part: Part) -> None:
        if self._contents is None:
            # Role tool is for results only; other text of that role is sent as the user's.
            role = "user" if self._role == "tool" else self._role
            self._contents = self._start(self._kind, role, [])
        kind, payload = content_of(Text(part.text) if isinstance(part, Refusal) else part, request=True)
        fields = {k: v for k, v in payload.items() if v is not None}
        self._contents.append({"type": kind, **fields, **own(part.extras)})

    def _call(self, call: ToolCall) -> None:
        kind = call_type(call.origin, call.extras, self._default_type, has_metadata=not self._form.exact)
        self._names[call.call_id] = f"{kind} {call.name}"
        data = call_data(kind, call.call_id, call.name, call.arguments or "{}", call.server_label)
        self._start(kind, "assistant", [{"type": "data", "data": data}], origin_metadata(call.origin, kind))
        self._contents = None

    def _result(self, result: ToolResult) -> None:
        kind, _, name = self._names.get(result.call_id, f"{self._default_type} ").partition(" ")
        stored_type = own(result.extras).get("type") if result.call_id not in self._names else None
        kind = stored_type if isinstance(stored_type, str) else f"{kind}_output"
        data, metadata = self._form.place_metadata(
            output_data(result.call_id, result.name or name, output_of(result, self._lost, request_feature)),
            {"is_error": True} if result.is_error else {},
        )
        self._start(kind, "tool", [{"type": "data", "data": data}], metadata)
        self._contents = None

    def _start(
        self, kind: str, role: str, contents: list[dict[str, Any]], extra_metadata: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Add a wire message. Ids are unique, since the agent joins messages with equal ids."""
        message: dict[str, Any] = {"type": kind, "role": role, "content": contents}
        if not self._messages:
            message.update(own(self._message.extras).get("fields") or {})
        source, metadata = self._message, {**self._message.metadata, **(extra_metadata or {})}
        if source.id:
            message["id"] = f"{source.id}-{len(self._messages)}" if self._messages else source.id
        if source.name:
            message["name"] = source.name
            metadata["original_name"] = source.name
        if metadata:
            message["metadata"] = metadata
        self._messages.append(message)
        self._contents = None
        return contents
