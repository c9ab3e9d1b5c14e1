"""Bodies of `/api/chat` and `/api/generate` -> `Request`, checked in the same walk.

Every wrong field is a `RequestError` that names its place. Fields that only this API has are kept for a backend of this
dialect; the name of the model, as it was sent, and the endpoint for the answer, under `notes`.
"""

from __future__ import annotations

import base64
from typing import Any

from bridge.contract import Context, Feature, WireRequest
from bridge.dialects.ollama.fields import BODY
from bridge.dialects.ollama.wire import NAME, NOTES, PICTURES, given, is_picture, plain_name
from bridge.errors import RequestError
from bridge.model import Inline, Media, MediaKind, Message, Part, Reasoning, Request, Text, ToolCall, ToolResult
from bridge.model.jsontext import arguments_of, read_body
from bridge.model.media_types import type_of_bytes
from bridge.toolkit import Node
from bridge.toolkit.check import model_in, wrong
from bridge.toolkit.open_calls import OpenCalls

GENERATE = "/api/generate"
_NOT_IN_CHAT = frozenset({"context", "images", "prompt", "raw", "suffix", "system", "template", "tool_choice"})
"""Fields of `/api/generate`, and one that clients send and that this API does not have."""
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_START = 64
"""Bytes of an image that are looked at."""


def decode_request(wire: WireRequest, context: Context) -> Request:
    """Return the request of a client. Raises `RequestError`. Servers read the body whatever type it is declared as."""
    body = Node(read_body(wire.body))
    sent = model_in(body, context.model)
    if sent == "":
        wrong("model", "the name of a model", sent)
    notes: dict[str, Any] = {"model": sent} if sent else {}
    context.error_details["model"] = sent
    request = Request([], model=plain_name(sent) if sent else None)
    if wire.path.rstrip("/").endswith(GENERATE):
        notes["generate"] = True
        request.messages = _prompt(body, notes, context)
    else:
        request.messages = _Talk().read(body)
    said = {name: value for name, value in BODY.read(body, request).items() if name not in _NOT_IN_CHAT}
    extras = {**said, "options": given(said.get("options", {})) or None}
    if (think := body.get("think")) is True or think == "max":
        notes["think"] = think  # no effort means the same to every model of a backend of this dialect
    if request.reasoning_effort not in (None, "none"):
        request.reasoning_summary = "auto"
    request.extras = {NAME: {**given(extras), NOTES: notes}}
    return request


def _prompt(body: Node, notes: dict[str, Any], context: Context) -> list[Message]:
    """Return the conversation of a request to generate: none without a prompt, which only loads the model."""
    prompt, system = body.string("prompt"), body.string("system")
    images = _images(body)
    if body.string("suffix"):
        raise RequestError("suffix: this server does not support insert.", param="suffix")
    if body.boolean("raw"):
        notes["raw"] = True
    if unused := [name for name in ("raw", "template", "context") if body.get(name)]:
        context.lost.add(Feature.EXTRAS, ", ".join(unused))
    if not prompt:
        return []
    user = Message("user", [Text(prompt), *images])
    user.places = ("prompt", "prompt", *(f"images[{number}]" for number in range(len(images))))
    return [*([Message("system", [Text(system)])] if system else []), user]


def _images(node: Node) -> list[Media]:
    """Return the images of an object: their bytes, whose first ones tell the type."""
    found: list[Media] = []
    for number, data in enumerate(node.array("images") or ()):
        place = f"{node.at('images')}[{number}]"
        if not isinstance(data, str):
            wrong(place, "an image as base64", data)
        data = data.replace("\n", "").replace("\r", "")
        try:
            start = base64.b64decode(data, validate=True)[:_START]
        except ValueError:
            raise RequestError(f"{place}: expected an image as base64, got another text.", param=place) from None
        mime = type_of_bytes(start)
        if not is_picture(mime):
            got = mime or ("a text" if start.isascii() and start.decode().isprintable() else "other data")
            raise RequestError(f"{place}: expected {PICTURES}, got {got}.", param=place)
        found.append(Media(MediaKind.IMAGE, Inline(data), mime))
    return found


class _Talk:
    """Reads one conversation. Calls may have no ids, and results neither an id nor a name."""

    def __init__(self) -> None:
        self._open = OpenCalls()

    def read(self, body: Node) -> list[Message]:
        self._open = OpenCalls({call_id for node in body.objects("messages") for call_id in _ids_in(node)})
        return [self._message(node) for node in body.objects("messages")]

    def _message(self, node: Node) -> Message:
        role = node.need_string("role").lower()
        content, images = node.string("content"), _images(node)
        parts: list[Part] = [Text(content)] if content else []
        if role == "tool":
            return self._result(node, [*(parts or [Text("")]), *images])
        if role not in _ROLES:
            role = "user"  # the templates of models decide what becomes of other roles
        if role == "assistant":
            thinking = node.string("thinking")
            thought: list[Part] = [Reasoning(thinking)] if thinking else []
            parts = [*thought, *parts, *images, *self._calls(node)]
        else:
            parts += images
        return Message(role, parts or [Text("")])

    def _calls(self, node: Node) -> list[ToolCall]:
        self._open.turn()
        found: list[ToolCall] = []
        for call in node.objects("tool_calls"):
            function = call.need_object("function")
            arguments = function.object("arguments")
            name = function.need_string("name")
            call_id = self._open.add(name, call.string("id"))
            found.append(ToolCall(call_id, name, arguments_of(arguments.value) if arguments else "{}"))
        return found

    def _result(self, node: Node, parts: list[Part]) -> Message:
        call_id, name = node.string("tool_call_id"), node.string("tool_name") or node.string("name")
        call = self._open.take(name, call_id, any_tool=True)
        if call is None:
            # Clients cut the beginning of a conversation off, and leave results without their calls.
            return Message("user", parts)
        return Message("tool", [ToolResult(call.call_id, parts, name=call.name)])


def _ids_in(message: Node) -> list[str]:
    calls = message.get("tool_calls")
    found = (call.get("id") for call in calls if isinstance(call, dict)) if isinstance(calls, list) else ()
    return [call_id for call_id in found if isinstance(call_id, str)]
