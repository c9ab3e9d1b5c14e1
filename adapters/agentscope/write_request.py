"""Request -> AgentRequest, the body of `POST /process`."""

from __future__ import annotations

from typing import Any

from bridge.contract import Context, Feature, Losses, WireRequest
from bridge.dialects.agentscope.approvals import answer_data
from bridge.dialects.agentscope.calls import call_data, call_type, origin_metadata, output_data, output_of
from bridge.dialects.agentscope.capabilities import CAPABILITIES, JAVA_CAPABILITIES
from bridge.dialects.agentscope.contents import content_of
from bridge.dialects.agentscope.extras import NAME, own, reasoning_metadata
from bridge.dialects.agentscope.forms import PYTHON, Form
from bridge.dialects.agentscope.options import BackOptions
from bridge.dialects.agentscope.read_request import CARRIED, FIELDS, PASSED_ON
from bridge.dialects.openai.shapes import write_function
from bridge.errors import Unsupported
from bridge.model import (
    Message,
    Part,
    Reasoning,
    Refusal,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolMode,
    ToolResult,
)
from bridge.model.jsontext import dumps
from bridge.toolkit.message_losses import MessageLosses
from bridge.toolkit.tools import FUNCTION, supported

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
    choice = request.tool_choice
    no_tools = form.exact and choice is not None and choice.mode is ToolMode.NONE
    made = {
        "input": _input(request, options.call_type, form, context.lost),
        "stream": True,
        "response_id": request.run_id if form.exact else None,
        "id": None if form.exact else request.run_id,
        "model": context.model or request.model,
        "tools": None if no_tools else _tools(request, form, context),
        "session_id": session_of(request, context),
    }
    # Exact forms do not support the fields that other forms pass on unread.
    sent = FIELDS.known - PASSED_ON if form.exact else None
    body = FIELDS.write(
        request, context.lost, made, only=sent, carries={"model", "tool_choice"} if no_tools else {"model"}
    )
    _record_losses(request, form, context.lost)
    if not form.exact:
        body.update((name, value) for name, value in _extra(request).items() if value is not None)
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
    """Record what one of the forms has no field for."""
    _LOSSES[form.exact].note(request.messages, lost)
    if form.exact:
        if own(request.extras).keys() - {"input"} or (request.shared or {}).keys() & set(CARRIED):
            lost.add(Feature.EXTRAS)
    elif request.logprobs:
        lost.add(Feature.SAMPLING, "the number of alternatives of log probabilities")


_LOSSES = {False: MessageLosses(CAPABILITIES, picture_detail=True), True: MessageLosses(JAVA_CAPABILITIES)}
"""Of forms that take any field, and of exact ones."""


def _extra(request: Request) -> dict[str, Any]:
    """Return fields that the protocol passes on unread, and those of a frontend of this dialect."""
    shared = request.shared or {}
    return {
        **({"logprobs": True} if request.logprobs is not None else {}),
        **{name: shared[name] for name in CARRIED if name in shared},
        **{name: value for name, value in own(request.extras).items() if name not in ("input", "tools")},
    }


def _tools(request: Request, form: Form, context: Context) -> list[dict[str, Any]] | None:
    tools = [_tool(t, strict=not form.exact) for t in supported(request, NAME, context.lost, strict=not form.exact)]
    others = None if form.exact else own(request.extras).get("tools")
    return [*tools, *(others if isinstance(others, list) else [])] or None


def _tool(tool: Tool, *, strict: bool) -> dict[str, Any]:
    function = {"name": tool.name, "description": "", "parameters": _EMPTY_PARAMETERS, **write_function(tool)}
    if not strict:
        function.pop("strict", None)
    return {"type": FUNCTION, FUNCTION: function}


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
            output_data(result.call_id, result.name or name, output_of(result, self._lost)),
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
