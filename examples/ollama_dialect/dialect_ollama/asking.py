"""Requests: bodies of `POST /api/chat` to requests and back."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from bridge import RequestError, Unsupported
from bridge.codec import Capabilities, Context, Feature, Fields, MessageLosses, Node, Row
from bridge.codec.fields import BOOLEAN, INTEGER, NUMBER, STRINGS
from bridge.codec.tools import supported
from bridge.dialects.openai.shapes import read_function, write_function
from bridge.model import (
    Inline,
    Media,
    MediaKind,
    Message,
    Part,
    Reasoning,
    Request,
    ResponseFormat,
    Text,
    Tool,
    ToolCall,
    ToolMode,
    ToolResult,
    as_text,
)
from dialect_ollama.answering import Wire, arguments_object, arguments_of, image_of

NAME = "ollama"


def _limit(options: Node, name: str) -> int | None:
    limit = options.integer(name)
    return None if limit is None or limit < 0 else limit  # negative: no limit, in words of this API


def _tools(body: Node, name: str) -> list[Tool]:
    return [read_function(node.need_object("function")) for node in body.objects(name)]


def _format(body: Node, name: str) -> ResponseFormat | None:
    said = body.get(name)
    if isinstance(said, str) and said:
        body.need_one_of(name, ("json",))
        return ResponseFormat("json")
    return ResponseFormat("json_schema", schema=body.need_object(name).value) if said else None


def _write_format(wanted: ResponseFormat) -> Any:
    return None if wanted.kind == "text" else "json" if wanted.schema is None else wanted.schema


def _think(body: Node, name: str) -> str | None:
    think = body.get(name)
    return {True: "medium", False: "none"}[think] if isinstance(think, bool) else body.string(name)


OPTIONS = Fields(
    NAME,
    Row("temperature", NUMBER, "sampling.temperature"),
    Row("top_p", NUMBER, "sampling.top_p"),
    Row("num_predict", _limit, "sampling.max_tokens"),
    Row("stop", STRINGS, "sampling.stop"),
    Row("seed", INTEGER, "sampling.seed"),
    Row("frequency_penalty", NUMBER, "sampling.frequency_penalty"),
    Row("presence_penalty", NUMBER, "sampling.presence_penalty"),
    carries={"tools", "response_format", "reasoning_effort", "resume"},
)
"""The object `options`, which carries what `BODY` does not; what neither of them has is lost."""
BODY = Fields(
    NAME,
    Row("model"),
    Row("messages"),
    Row("stream", BOOLEAN, "stream"),
    Row("tools", _tools, "tools"),
    Row("format", _format, "response_format"),
    Row("think", _think, "reasoning_effort"),
    Row("options"),
)


# ------------------------------------------------------------- from the client


def decoded(body: Node, default_model: str | None) -> Request:
    """Return the request that a body asks for. Raises `RequestError` with the place of what is wrong."""
    model = body.string("model") if default_model else body.need_string("model")
    if not body.need_array("messages"):
        raise RequestError("messages: expected at least one message, got none.", param="messages")
    history = _History()
    request = Request([history.message(node) for node in body.objects("messages")], model=model)
    extras = BODY.read(body, request)
    options = body.object("options")
    own = OPTIONS.read(options, request) if options else {}
    if options and request.sampling.max_tokens is None and options.get("num_predict") is not None:
        own["num_predict"] = options.get("num_predict")
    if own:
        extras["options"] = own
    if body.get("think") is True:
        extras["think"] = True  # for models that know no levels
    request.extras = {NAME: extras} if extras else None
    return request


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


# ------------------------------------------------------------- for the backend


def encoded(request: Request, context: Context, card: Capabilities) -> Wire:
    """Return the body that asks a backend. Raises `Unsupported` with the place of what it cannot be asked."""
    if request.resume:
        raise Unsupported("resume: this backend has no interrupts to answer.", param="resume")
    MessageLosses(card, takes=_takes).note(request.messages, context.lost)
    if any(isinstance(p, Reasoning) and (p.signature or p.redacted) for m in request.messages for p in m.parts):
        context.lost.add(Feature.REASONING_HISTORY, "its signature")
    extras, effort, wanted = dict(request.extra(NAME)), request.reasoning_effort, request.response_format
    no_tools = request.tool_choice is not None and request.tool_choice.mode is ToolMode.NONE
    tools = [] if no_tools else supported(request, NAME, context.lost)
    options = OPTIONS.write(request, context.lost, carries={"tool_choice"} if no_tools else ())
    options.update(extras.pop("options", {}))
    fields = {
        "model": context.model or request.model or "",
        "messages": _messages(request),
        "stream": request.stream,
        "tools": [{"type": "function", "function": write_function(tool)} for tool in tools],
        "format": None if wanted is None else _write_format(wanted),
        "think": False if effort == "none" else effort,
        "options": options,
    }
    return {**{name: value for name, value in fields.items() if value not in (None, [], {})}, **extras}


def _takes(part: Part, role: str) -> bool:
    return isinstance(part, Media) and part.kind is MediaKind.IMAGE and isinstance(part.source, Inline)


def _messages(request: Request) -> list[Wire]:
    """The conversation. Each result is a message; results that follow each other are in the order of their calls."""
    calls = [part for message in request.messages for part in message.parts if isinstance(part, ToolCall)]
    places = {call.call_id: (number, call.name) for number, call in enumerate(calls)}
    out: list[Wire] = []
    results: list[tuple[int, Wire]] = []
    for message in request.messages:
        others = [part for part in message.parts if not isinstance(part, ToolResult)]
        for part in message.parts:
            if isinstance(part, ToolResult):
                place, name = places.get(part.call_id, (len(places), part.name or ""))
                results.append((place, {**_message("tool", part.parts), "tool_name": name}))
        if others or not message.parts:
            out += [wire for _, wire in sorted(results, key=itemgetter(0))]
            results.clear()
            out.append(_message("system" if message.role == "developer" else message.role, others))
    return out + [wire for _, wire in sorted(results, key=itemgetter(0))]


def _message(role: str, parts: Sequence[Part]) -> Wire:
    texts: list[str] = []
    fields: dict[str, Any] = {}
    for part in parts:
        match part:
            case Reasoning():
                fields["thinking"] = fields.get("thinking", "") + part.text
            case ToolCall():
                call = {"function": {"name": part.name, "arguments": arguments_object(part.arguments)}}
                fields.setdefault("tool_calls", []).append(call)
            case Media(kind=MediaKind.IMAGE, source=Inline(base64=data)):
                fields.setdefault("images", []).append(data)
            case _:
                texts.append(as_text(part))
    return {"role": role, "content": "\n".join(texts), **fields}
