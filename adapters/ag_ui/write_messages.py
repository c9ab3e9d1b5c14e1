"""Messages of the model -> `messages` for a backend.

Order and ids are kept. What AG-UI tells in messages of its own - reasoning, results - is split off; a message that has
no id gets one made of its place and content, so that a stateful agent knows it again in the next request.
"""

from __future__ import annotations

import hashlib
from typing import Any

from bridge.contract import Context, Feature, Support
from bridge.dialects.ag_ui.capabilities import CAPABILITIES
from bridge.dialects.ag_ui.options import BackOptions
from bridge.dialects.ag_ui.parts import write_part
from bridge.dialects.ag_ui.read_messages import error_part
from bridge.dialects.ag_ui.wire import NAME, own
from bridge.model import (
    Data,
    Media,
    Message,
    Part,
    Reasoning,
    Request,
    Text,
    ToolCall,
    ToolResult,
    as_text,
    result_text,
    seal,
)
from bridge.model.jsontext import dumps
from bridge.toolkit.media import request_feature, result_as_text
from bridge.toolkit.message_losses import RESULT, MessageLosses

Wire = dict[str, Any]

_ROLES = frozenset({"system", "developer", "user"})
_SEPARATOR = "\n"


class MessageWriter:
    """Writes the messages of one request; what cannot be said is recorded in the context."""

    def __init__(self, context: Context, options: BackOptions) -> None:
        self._lost = context.lost
        self._options = options
        self._new = options.protocol_version is not None
        self._ids: set[str] = set()
        self._last: dict[str, int] = {}

    def write(self, request: Request) -> list[Wire]:
        self._ids = {m.id for m in request.messages if m.id}
        self._last.clear()
        used: set[str] = set()
        out: list[Wire] = []
        set_aside = _set_aside(request)
        for index, message in enumerate(request.messages):
            out += set_aside.get(len(request.messages) - index, ())
            written = self._message(message)
            main = _main(written)
            for number, wire in enumerate(written):
                wanted = message.id if wire is main else None
                wire["id"] = self._id(wanted, message.id, index, number, wire, used)
            out += [{"id": w.pop("id"), **w} for w in written]
        return out + list(set_aside.get(0, ()))

    def _id(self, wanted: str | None, base: str | None, index: int, number: int, wire: Wire, used: set[str]) -> str:
        chosen = wanted
        if chosen is None and base is not None:
            chosen = f"{base}-{number}"
        if chosen is None:
            chosen = "msg-" + hashlib.sha256(dumps([index, number, wire])).hexdigest()[:24]
        first, number = chosen, max(number, self._last.get(chosen, 0))
        while chosen in used or (chosen in self._ids and chosen != wanted):
            number += 1
            chosen = f"{first}-{number}"
        used.add(chosen)
        self._last[first] = number
        return chosen

    def _message(self, message: Message) -> list[Wire]:
        """The wire messages that one message becomes: reasoning before it, results after it."""
        results = [self._result(p, message) for p in message.parts if isinstance(p, ToolResult)]
        thoughts = [self._reasoning(p, message) for p in message.parts if isinstance(p, Reasoning)]
        parts: list[Part] = [p for p in message.parts if not isinstance(p, (ToolResult, Reasoning))]
        if not self._options.reasoning_history:
            thoughts = []
        if not parts and message.parts:
            return [*thoughts, *results]
        main = self._assistant(message, parts) if message.role not in _ROLES else self._other(message, parts)
        if message.role == "user":
            return [*results, main]  # a user's words follow what the tools said
        return [*thoughts, main, *results]

    def _head(self, message: Message, role: str) -> Wire:
        head: Wire = {"role": role}
        if message.name and role not in ("tool", "reasoning"):
            head["name"] = message.name
        if message.metadata:
            head["metadata"] = message.metadata
        head.update((k, v) for k, v in own(message.extras).items() if k != "error")
        return head

    def _assistant(self, message: Message, parts: list[Part]) -> Wire:
        wire = self._head(message, "assistant")
        calls = [self._call(p) for p in parts if isinstance(p, ToolCall)]
        spoken = [p for p in parts if not isinstance(p, ToolCall)]
        text = "".join(as_text(p) for p in spoken)
        if text or not calls:
            wire["content"] = text
        if calls:
            wire["toolCalls"] = calls
        return wire

    def _other(self, message: Message, parts: list[Part]) -> Wire:
        wire = self._head(message, message.role)
        plain = all(isinstance(p, (Text, Data)) and not own(p.extras) for p in parts)
        if message.role != "user" or plain or (not self._new and all(isinstance(p, Text) for p in parts)):
            wire["content"] = _SEPARATOR.join(as_text(p) for p in parts)
        else:
            wire["content"] = [write_part(p, self._options.part_style == "media") for p in parts]
        return wire

    # -------------------------------------------------------------- parts

    def _reasoning(self, part: Reasoning, message: Message) -> Wire:
        wire = {**self._head(message, "reasoning"), "content": part.text}
        if sealed := seal(part.signature, part.redacted):
            wire["encryptedValue"] = sealed
        return wire

    def _call(self, call: ToolCall) -> Wire:
        function = {"name": call.name, "arguments": call.arguments}
        return {"id": call.call_id, "type": "function", "function": function, **own(call.extras)}

    def _result(self, result: ToolResult, message: Message) -> Wire:
        error = own(message.extras).get("error") if message.role == "tool" else None
        content: str | list[Wire]
        if self._new and any(isinstance(p, Media) or own(p.extras) for p in result.parts):
            content = [write_part(p, True) for p in result.parts]
        else:
            content = result_as_text(result, self._lost)
        if isinstance(error, str) and content == error_part(error).text:
            content = ""
        head = self._head(message, "tool") if message.role == "tool" else {"role": "tool"}
        wire: Wire = {**head, "content": content, "toolCallId": result.call_id}
        if error or result.is_error:
            wire["error"] = error or content if isinstance(error or content, str) else result_text(result.parts)
        return wire


def _takes(part: Part, role: str) -> bool:
    is_exact = isinstance(part, Media) and CAPABILITIES.request(request_feature(part)) is Support.EXACT
    return is_exact and role in ("user", RESULT)


LOSSES = MessageLosses(
    CAPABILITIES,
    takes=_takes,
    told=("system", "developer", "assistant", "tool"),
    keeps=(Feature.REASONING_HISTORY,),
)


def _main(written: list[Wire]) -> Wire | None:
    """The one that keeps the message's id: what was said, else the first."""
    spoken = [w for w in written if w["role"] not in ("reasoning", "tool")]
    return next(iter(spoken or written), None)


def _set_aside(request: Request) -> dict[int, list[Wire]]:
    """Activities of an AG-UI client, by the number of messages that follow them."""
    entries = request.extra(NAME).get("messages")
    out: dict[int, list[Wire]] = {}
    for entry in entries if isinstance(entries, list) else ():
        index = min(entry["followed_by"], len(request.messages))
        out.setdefault(index, []).append(entry["message"])
    return out
