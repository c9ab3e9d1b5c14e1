"""Requests: bodies of `POST /talk` to requests and back."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from bridge import RequestError, Unsupported
from bridge.codec import Capabilities, Context, Feature, Fields, MessageLosses, Node, Row
from bridge.codec.check import model_in
from bridge.codec.fields import BOOLEAN
from bridge.codec.jsontext import arguments_of, input_of
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
    Text,
    Tool,
    ToolCall,
    ToolResult,
    as_text,
    mime_of,
)

NAME = "inhouse"
Wire = dict[str, Any]


def _tools(body: Node, name: str) -> list[Tool]:
    return [read_function(node) for node in body.objects(name)]


BODY = Fields(
    NAME,
    Row("model"),
    Row("turns"),
    Row("tools", _tools, "tools"),
    Row("stream", BOOLEAN, "stream"),
    carries={"resume"},
)
"""The fields of a body; what a request says and none of them carries is lost."""


# ------------------------------------------------------------- from the client


def decoded(body: Node, default_model: str | None) -> Request:
    """Return the request that a body asks for. Raises `RequestError` with the place of what is wrong."""
    reader = _Turns()
    request = Request([reader.message(turn) for turn in body.objects("turns")], model=model_in(body, default_model))
    if not request.messages:
        raise RequestError("turns: expected at least one turn.", param="turns")
    extras = BODY.read(body, request)
    request.extras = {NAME: extras} if extras else None
    return request


class _Turns:
    """Reads turns in their order: calls have no ids, so that they are numbered, and results are matched by the tool."""

    def __init__(self) -> None:
        self._made = 0
        self._open: list[tuple[str, str]] = []

    def message(self, turn: Node) -> Message:
        role = turn.need_one_of("from", ("system", "user", "assistant", "tool"))
        parts: list[Part] = []
        if thought := turn.string("thought"):
            parts.append(Reasoning(thought))
        if (text := turn.string("text")) is not None:
            parts.append(Text(text))
        parts += [_picture(data) for data in turn.strings("pictures") or ()]
        for call in turn.objects("calls"):
            name, given = call.need_string("name"), call.object("input")
            self._made += 1
            self._open.append((f"call_{self._made}", name))
            parts.append(ToolCall(f"call_{self._made}", name, arguments_of(given.value) if given else "{}"))
        if role == "tool":
            parts = [self._result(turn, parts)]
        message = Message(role, parts)
        message.places = (turn.path,)
        return message

    def _result(self, turn: Node, parts: list[Part]) -> ToolResult:
        name = turn.need_string("of")
        found = next((call for call in self._open if call[1] == name), None)
        if found is None:
            raise RequestError(
                f"{turn.at('of')}: expected the tool of an open call, got {name!r}.", param=turn.at("of")
            )
        self._open.remove(found)
        return ToolResult(found[0], parts, name=name)


def _picture(data: str) -> Media:
    picture = Media(MediaKind.IMAGE, Inline(data))
    picture.mime = mime_of(picture)
    return picture


# ------------------------------------------------------------- for the backend


def encoded(request: Request, context: Context, card: Capabilities) -> Wire:
    """Return the body that asks a backend. Raises `Unsupported` with the place of what it cannot be asked."""
    if request.resume:
        raise Unsupported("resume: this backend has no questions to answer.", param="resume")
    MessageLosses(card, takes=_takes, marks_errors=False).note(request.messages, context.lost)
    if any(isinstance(p, Reasoning) and (p.signature or p.redacted) for m in request.messages for p in m.parts):
        context.lost.add(Feature.REASONING_HISTORY, "its signature")
    tools = [write_function(tool) for tool in supported(request, NAME, context.lost)]
    given = {
        "model": context.model or request.model or "",
        "turns": _turns(request),
        "tools": tools or None,
        "stream": request.stream,
    }
    return {**BODY.write(request, context.lost, given), **request.extra(NAME)}


def _takes(part: Part, role: str) -> bool:
    return isinstance(part, Media) and part.kind is MediaKind.IMAGE and isinstance(part.source, Inline)


def _turns(request: Request) -> list[Wire]:
    """The conversation. Each result is a turn; results that follow each other are in the order of their calls."""
    calls = [part for message in request.messages for part in message.parts if isinstance(part, ToolCall)]
    places = {call.call_id: (number, call.name) for number, call in enumerate(calls)}
    out: list[Wire] = []
    results: list[tuple[int, Wire]] = []
    for message in request.messages:
        others = [part for part in message.parts if not isinstance(part, ToolResult)]
        for part in message.parts:
            if isinstance(part, ToolResult):
                place, name = places.get(part.call_id, (len(places), part.name or ""))
                results.append((place, {**_turn("tool", part.parts), "of": name}))
        if others or not message.parts:
            out += [turn for _, turn in sorted(results, key=itemgetter(0))]
            results.clear()
            out.append(_turn("system" if message.role == "developer" else message.role, others))
    return out + [turn for _, turn in sorted(results, key=itemgetter(0))]


def _turn(role: str, parts: Sequence[Part]) -> Wire:
    texts: list[str] = []
    fields: Wire = {}
    for part in parts:
        match part:
            case Reasoning():
                fields["thought"] = fields.get("thought", "") + part.text
            case ToolCall():
                fields.setdefault("calls", []).append({"name": part.name, "input": input_of(part.arguments)})
            case Media(kind=MediaKind.IMAGE, source=Inline(base64=data)):
                fields.setdefault("pictures", []).append(data)
            case _:
                texts.append(as_text(part))
    return {"from": role, "text": "\n".join(texts), **fields}
