"""Errors name places in the body that the client sent, whatever was put before its messages, or made of them."""

from __future__ import annotations

import re

from bridge.errors import RequestError
from bridge.model import Message, Request, ToolResult

_PLACE = re.compile(r"messages\[(\d{1,9})\](?:\.content\[(\d{1,9})\](?:\.(?:content|output)(\[\d{1,9}\]))?)?", re.ASCII)
"""A message, a part of it, and a part of that where it is a tool's result."""


def note_places(request: Request) -> None:
    """Record the path of each message in a client's body, unless its dialect has done so."""
    for message in request.messages:
        if message.places:
            return
    for number, message in enumerate(request.messages):
        message.places = (f"messages[{number}]",)


def name_place(error: RequestError, request: Request) -> None:
    """Let an error that names a message of `request` name its place in the client's body instead.

    A program that uses the engine as a library and made the request itself knows its messages by their number.
    """
    param, failure = error.failure.param or "", error.failure
    found = _PLACE.match(param)
    if found is None or int(found[1]) >= len(request.messages) or not any(m.places for m in request.messages):
        return
    place = _place_of(request.messages[int(found[1])], found[2], found[3] or "")
    failure.param = None if place is None else place + param[found.end() :]
    named = "an earlier message of this conversation" if place is None else place
    failure.message = failure.message.replace(found[0], named, 1)


def _place_of(message: Message, part: str | None, inner: str) -> str | None:
    """The place of a message or part; None if the client did not send it. `inner`: an index in a tool's result."""
    if not message.places or part is None:
        return message.places[0] if message.places else None
    whole, *known = message.places
    number = int(part)
    if number < len(known):
        return known[number] + inner
    is_result = number < len(message.parts) and isinstance(message.parts[number], ToolResult)
    return f"{whole}.content{inner}" if is_result else f"{whole}.content[{part}]{inner}"
