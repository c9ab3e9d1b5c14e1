"""Requests: bodies of `POST /api/chat` to requests and back."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from bridge import RequestError, Unsupported
from bridge.codec import Context, Feature, Node
from bridge.codec.tools import supported
from bridge.model import (
    Data,
    Inline,
    Media,
    MediaKind,
    Message,
    Origin,
    Part,
    Reasoning,
    Request,
    ResponseFormat,
    Sampling,
    Text,
    Tool,
    ToolCall,
    ToolMode,
    ToolResult,
    as_text,
    unsupported,
)
from dialect_ollama.answering import Wire, arguments_object, arguments_of, image_of

NAME = "ollama"
_KNOWN = {"model", "messages", "tools", "format", "options", "stream", "think"}
_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "num_predict",
    "stop": "stop",
    "seed": "seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}
"""The fields of `Sampling` and their names among the options."""


# ------------------------------------------------------------- from the client


def decoded(body: Node, default_model: str | None) -> Request:
    """Return the request that a body asks for. Raises `RequestError` with the place of what is wrong."""
    model = body.string("model") if default_model else body.need_string("model")
    if not body.need_array("messages"):
        raise RequestError("messages: expected at least one message, got none.", param="messages")
    history = _History()
    sampling, options = _sampling(body.object("options"))
    extras = {**body.rest(_KNOWN), **({"options": options} if options else {})}
    think = body.get("think")
    if think is True:
        extras["think"] = True  # for models that know no levels
    return Request(
        [history.message(node) for node in body.objects("messages")],
        tools=[_tool(node) for node in body.objects("tools")] or None,
        model=model,
        stream=body.boolean("stream") is not False,
        sampling=sampling,
        response_format=_format(body),
        reasoning_effort={True: "medium", False: "none"}[think] if isinstance(think, bool) else body.string("think"),
        extras={NAME: extras} if extras else None,
    )


class _History:
    """Numbers the calls of a conversation, and finds the call that a result belongs to."""

    def __init__(self) -> None:
        self._count = 0
        self._open: list[tuple[str, str]] = []

    def message(self, node: Node) -> Message:
        role = node.need_one_of("role", ("system", "user", "assistant", "tool"))
        parts: list[Part] = []
        if thinking := node.string("thinking"):
            parts.append(Reasoning(thinking))
        if content := node.string("content"):
            parts.append(Text(content))
        parts += [image_of(image) for image in node.strings("images") or ()]
        parts += [self._call(call.need_object("function")) for call in node.objects("tool_calls")]
        if role == "tool":
            parts = [self._result(node, parts)]
        return Message(role, parts)

    def _call(self, function: Node) -> ToolCall:
        self._count += 1
        call_id, name = f"call_{self._count}", function.need_string("name")
        self._open.append((call_id, name))
        arguments = function.object("arguments")
        return ToolCall(call_id, name, arguments_of(arguments.value) if arguments else "{}")

    def _result(self, node: Node, parts: list[Part]) -> ToolResult:
        """The result of the first call of this tool that has none; without a name, of the first call."""
        name = node.string("tool_name") or node.string("name")
        found = next((call for call in self._open if name in (None, call[1])), None)
        if found is None:
            wanted = "a call" if name is None else f"a call of {name!r}"
            raise RequestError(
                f"{node.path}: expected {wanted} without a result before this message, got none.", param=node.path
            )
        self._open.remove(found)
        return ToolResult(found[0], parts, name=found[1])


def _tool(node: Node) -> Tool:
    function = node.need_object("function")
    parameters = function.object("parameters")
    return Tool(function.need_string("name"), function.string("description"), parameters.value if parameters else None)


def _format(body: Node) -> ResponseFormat | None:
    said = body.get("format")
    if said in (None, ""):
        return None
    if isinstance(said, str):
        body.need_one_of("format", ("json",))
        return ResponseFormat("json")
    return ResponseFormat("json_schema", schema=body.need_object("format").value)


def _sampling(options: Node | None) -> tuple[Sampling, Wire]:
    """The options that every model has, and the others."""
    if options is None:
        return Sampling(), {}
    said: Wire = {
        name: options.number(wire) for name, wire in _SAMPLING.items() if name not in ("stop", "max_tokens", "seed")
    }
    said["stop"], said["seed"] = options.strings("stop"), options.integer("seed")
    limit = options.integer("num_predict")
    own = options.rest(set(_SAMPLING.values()))
    if limit is not None and limit < 0:  # no limit, in words of this API
        own["num_predict"], limit = limit, None
    return Sampling(**said, max_tokens=limit), own


# ------------------------------------------------------------- for the backend


def encoded(request: Request, context: Context) -> Wire:
    """Return the body that asks a backend. Raises `Unsupported` with the place of what it cannot be asked."""
    if request.resume:
        raise Unsupported("resume: this backend has no interrupts to answer.", param="resume")
    extras = dict(request.extra(NAME))
    body: Wire = {
        "model": context.model or request.model or "",
        "messages": _messages(request, context),
        "stream": request.stream,
    }
    if tools := _tools(request, context):
        body["tools"] = tools
    if (wanted := request.response_format) is not None and wanted.kind != "text":
        body["format"] = wanted.schema if wanted.schema is not None else "json"
    if (effort := request.reasoning_effort) is not None:
        body["think"] = False if effort == "none" else effort
    said = {wire: getattr(request.sampling, name) for name, wire in _SAMPLING.items()}
    options = {**{k: v for k, v in said.items() if v is not None}, **extras.pop("options", {})}
    if options:
        body["options"] = options
    _note_losses(request, context)
    return {**body, **extras}


def _note_losses(request: Request, context: Context) -> None:
    lost = {
        Feature.PARALLEL_TOOL_CALLS: request.parallel_tool_calls is not None,
        Feature.USER_ID: request.user_id is not None,
        Feature.THREAD_ID: request.thread_id is not None,
        Feature.METADATA: request.metadata,
        Feature.CONTEXT: request.context,
        Feature.STATE: request.state,
        Feature.EXTRAS: request.shared or request.has_fields_of_others(NAME),
    }
    for feature, said in lost.items():
        if said:
            context.lost.add(feature)
    if (request.sampling.n or 1) > 1:
        context.lost.add(Feature.SAMPLING, "n")


def _tools(request: Request, context: Context) -> list[Wire]:
    choice = request.tool_choice
    if choice is not None and choice.mode is ToolMode.NONE:
        return []
    if choice is not None and (choice.mode is ToolMode.REQUIRED or choice.names):
        context.lost.add(Feature.TOOL_CHOICE)
    tools = []
    for tool in supported(request, NAME, context.lost):
        function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        tools.append({"type": "function", "function": {k: v for k, v in function.items() if v is not None}})
    return tools


def _messages(request: Request, context: Context) -> list[Wire]:
    """The conversation. Each result is a message; results that follow each other are in the order of their calls."""
    calls = [part for message in request.messages for part in message.parts if isinstance(part, ToolCall)]
    places = {call.call_id: (number, call.name) for number, call in enumerate(calls)}
    out: list[Wire] = []
    results: list[tuple[int, Wire]] = []
    for message in request.messages:
        if message.name is not None:
            context.lost.add(Feature.MESSAGE_NAME)
        others: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                place, name = places.get(part.call_id, (len(places), part.name or ""))
                wire = _message("tool", part.parts, request, context)
                results.append((place, {**wire, "tool_name": name}))
            else:
                others.append(part)
        if others or not message.parts:
            out += [wire for _, wire in sorted(results, key=itemgetter(0))]
            results.clear()
            out.append(_message("system" if message.role == "developer" else message.role, others, request, context))
    return out + [wire for _, wire in sorted(results, key=itemgetter(0))]


def _message(role: str, parts: list[Part], request: Request, context: Context) -> Wire:
    texts: list[str] = []
    fields: dict[str, Any] = {}
    for part in parts:
        match part:
            case Text():
                texts.append(part.text)
            case Reasoning():
                fields["thinking"] = fields.get("thinking", "") + part.text
                if part.signature or part.redacted:
                    context.lost.add(Feature.REASONING_HISTORY, "its signature")
            case ToolCall():
                if part.origin is not Origin.FUNCTION:
                    context.lost.add(Feature.TOOL_ORIGIN)
                call = {"function": {"name": part.name, "arguments": arguments_object(part.arguments)}}
                fields.setdefault("tool_calls", []).append(call)
            case Media(kind=MediaKind.IMAGE, source=Inline(base64=data)):
                fields.setdefault("images", []).append(data)
            case Media():
                came = f"{part.kind} as {type(part.source).__name__}"
                raise unsupported(request.messages, part, f"expected an image as bytes, got {came}.")
            case _:
                feature = Feature.DATA if isinstance(part, Data) else Feature.REFUSAL_HISTORY
                context.lost.add(feature, "told as text")
                texts.append(as_text(part))
    return {"role": role, "content": "\n".join(texts), **fields}
