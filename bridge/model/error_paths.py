"""Paths of parts of a request in the body that the client sent, for errors.

A message knows its own place (`Message.places`). The path of a part is only written when an error names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from bridge.errors import Unsupported
from bridge.model.parts import Message, Part, ToolResult
from bridge.model.request import Request

_places = attrgetter("places")


def note_places(request: Request) -> None:
    """Record the place of each message in a client's body, unless its dialect has done so."""
    if not any(map(_places, request.messages)):
        for number, message in enumerate(request.messages):
            message.places = (number,)


def place_of_message(message: Message) -> str | None:
    """Return the path of a message in the client's body; None if the client did not send it."""
    if not message.places:
        return None
    whole = message.places[0]
    return whole if isinstance(whole, str) else f"messages[{whole}]"


def place_of(messages: Sequence[Message], part: Part) -> tuple[str | None, str]:
    """Return the path of a part in the client's body, for `param`, and what names it in a sentence.

    `part` is an object in `messages`, or in a tool's result there. The path is None, and the name a description, where
    the client did not send the message itself. A program that made the request itself has no places, and knows
    its messages by their number.
    """
    has_places = any(map(_places, messages))
    for number, message in enumerate(messages):
        for index, inner in _positions(message, part):
            if not has_places:
                path = f"messages[{number}].content[{index}]{inner and '.content'}{inner}"
            elif (whole := place_of_message(message)) is not None:
                path = _path(whole, message, index) + inner
            else:
                return None, "an earlier message of this conversation"
            return path, path
    return None, "a part of this request"


def unsupported(messages: Sequence[Message], part: Part, why: str) -> Unsupported:
    """Return the error of a backend's dialect for a part of `messages` that it cannot express; `why` is a sentence."""
    path, name = place_of(messages, part)
    return Unsupported(f"{name}: {why}", param=path)


def refuse_resume(request: Request) -> None:
    """Raise `Unsupported`, with its place, if a request answers a question, for a backend that asks none."""
    if request.resume:
        place = request.resume[0].place
        raise Unsupported(f"{place}: this backend has no interrupts to answer.", param=place)


def _positions(message: Message, part: Part) -> Iterator[tuple[int, str]]:
    """Yield where a part is in a message: the index, and what follows it for a part of a tool's result."""
    for index, each in enumerate(message.parts):
        if each is part:
            yield index, ""
        elif isinstance(each, ToolResult):
            yield from ((index, f"[{n}]") for n, inner in enumerate(each.parts) if inner is part)


def _path(whole: str, message: Message, index: int) -> str:
    """Return the path of a part; of a tool's result, that of the field with its parts."""
    known = message.places[1:]
    if index < len(known):
        place = known[index]
        return place if isinstance(place, str) else f"{whole}.content[{place}]"
    return f"{whole}.content" if isinstance(message.parts[index], ToolResult) else f"{whole}.content[{index}]"
