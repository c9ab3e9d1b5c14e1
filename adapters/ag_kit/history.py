"""Messages of the model -> generation 1's `messages` (docs/dialects/ag-kit.md).

The reference server breaks off on assistant messages with `toolCalls`, so a finished tool round becomes plain text of
the assistant. Only a round whose results the server has still to answer keeps its form: the one at the end of the
request, and results of calls that the request does not hold, since then the server holds them.
"""

from __future__ import annotations

from typing import Any

from bridge.codec import Context, Feature
from bridge.codec.media import request_feature, result_words
from bridge.dialects.ag_kit.options import BackOptions
from bridge.dialects.ag_kit.wire import unknown
from bridge.errors import Unsupported
from bridge.model import (
    Data,
    Media,
    Message,
    Origin,
    Part,
    Reasoning,
    Request,
    Text,
    ToolCall,
    ToolResult,
    as_text,
    result_text,
)

_Wire = dict[str, Any]
_ROLES = {"developer": "system"}


class Writer:
    """Writes the messages of one request; what cannot be said is recorded in the context."""

    def __init__(self, context: Context, options: BackOptions) -> None:
        self._context = context
        self._lost = context.lost
        self._options = options
        self._results: dict[str, str] = {}
        self._held: set[str] = set()
        self._native: set[str] = set()
        self._out: list[_Wire] = []
        self._folded = False
        self._folds: list[str] = []  # the lines of the message that ends the output so far

    def write(self, request: Request) -> list[_Wire]:
        turns = _turns(request.messages)
        self._look(turns)
        for place, message in turns:
            path = f"messages[{place}]"
            if message.name and message.role != "tool":
                self._lost.add(Feature.MESSAGE_NAME)
            for part in message.parts:
                if isinstance(part, ToolResult):
                    self._result(part, message)
            if message.role == "assistant":
                self._assistant(message)
            elif message.role != "tool" and (not message.parts or not _only_results(message)):
                self._said(message, path)
        self._unfold()
        return self._out

    def _unfold(self) -> None:
        if self._folds:
            self._out[-1]["content"] = "\n".join([self._out[-1]["content"], *self._folds])
            self._folds = []

    def _look(self, turns: list[tuple[int, Message]]) -> None:
        """Which calls are in the request, what their results are, and which of them keep their form."""
        answering: set[str] = set()
        for _, message in reversed(turns):
            if not _only_results(message):
                break
            answering.update(p.call_id for p in message.parts if isinstance(p, ToolResult))
        for _, message in turns:
            calls = {p.call_id for p in message.parts if isinstance(p, ToolCall)}
            self._held |= calls
            if calls & answering:
                self._native |= calls
            for part in message.parts:
                if isinstance(part, ToolResult):
                    words = result_words(part.parts, self._lost, request_feature)
                    self._results.setdefault(part.call_id, words)

    # ------------------------------------------------------------------ one message

    def _add(self, wire: _Wire, *, folded: bool = False) -> None:
        self._unfold()
        self._out.append(wire)
        self._folded = folded

    def _said(self, message: Message, path: str) -> None:
        """A system's or user's message: one string."""
        texts = [self._part(part, f"{path}.content[{place}]") for place, part in enumerate(message.parts)]
        role = _ROLES.get(message.role, message.role)
        self._add({**unknown(message.extras), "role": role, "content": "".join(texts)})

    def _part(self, part: Part, path: str | None) -> str:
        """Return a part as text. `path` is its position, or None in an assistant's message."""
        match part:
            case Media():
                return self._media(part, path)
            case Data():
                self._lost.add(Feature.DATA, "sent as text")
            case Reasoning():
                self._lost.add(Feature.REASONING_HISTORY)
                return ""
            case ToolResult():
                return ""
            case _:
                pass
        return as_text(part)

    def _media(self, media: Media, path: str | None) -> str:
        """An assistant's parts are never refused: they become text, as in our answers."""
        if path is None:
            self._lost.add(request_feature(media), "in an assistant's message, sent as text")
        elif self._options.unsupported_media == "refuse":
            raise Unsupported(
                f"{path}: this backend takes text only, not {media.kind}; send it as text, or leave it out.",
                param=path,
            )
        else:
            self._lost.add(request_feature(media), "sent as text")
        return as_text(media)

    def _result(self, result: ToolResult, message: Message) -> None:
        if result.is_error:
            self._lost.add(Feature.TOOL_HISTORY, "the mark that a result is an error")
        if result.call_id in self._native or result.call_id not in self._held:
            content = result_text(result.parts)
            self._add({**unknown(message.extras), "role": "tool", "content": content, "toolCallId": result.call_id})

    # ------------------------------------------------------------------ assistants

    def _assistant(self, message: Message) -> None:
        calls = [p for p in message.parts if isinstance(p, ToolCall)]
        text = "".join(self._part(p, None) for p in message.parts if not isinstance(p, ToolCall))
        if any(c.origin is not Origin.FUNCTION for c in calls):
            self._lost.add(Feature.TOOL_ORIGIN)
        native = any(c.call_id in self._native for c in calls)
        if calls and not native:
            self._lost.add(Feature.TOOL_HISTORY, "completed tool calls are sent as text")
            text = "\n".join([*([text] if text else []), *(self._told(c) for c in calls)])
        elif not text and not calls and any(not isinstance(p, Text) for p in message.parts):
            return
        if self._folded and not native:
            self._folds.append(text)
            self._folded = bool(calls)
            return
        wire: _Wire = {
            **unknown(message.extras),
            "role": "assistant",
            # The reference server refuses an assistant's message without an id.
            "id": message.id or self._context.make_id("msg"),
            "content": text or (None if native else ""),
        }
        if native:
            wire["toolCalls"] = [_call(c) for c in calls]
        self._add(wire, folded=bool(calls) and not native)

    def _told(self, call: ToolCall) -> str:
        result = self._results.get(call.call_id)
        return as_text(call) if result is None else f"{as_text(call)} -> {result}"


def _call(call: ToolCall) -> _Wire:
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    return {"id": call.call_id, "type": "function", "function": function}


def _only_results(message: Message) -> bool:
    return bool(message.parts) and all(isinstance(p, ToolResult) for p in message.parts)


def _turns(messages: list[Message]) -> list[tuple[int, Message]]:
    """The messages with their places; calls that follow an assistant's message become part of it.

    Other wires tell every call in a message of its own, here all calls of a turn stand in one.
    """
    out: list[tuple[int, Message]] = []
    joined = False
    for place, message in enumerate(messages):
        last = out[-1][1] if out else None
        if last is not None and _is_calls(message) and (joined or _is_turn(last)):
            if not joined:
                parts, joined = [*last.parts], True
                last = Message("assistant", parts, last.id, last.name, last.metadata, last.extras)
                out[-1] = (out[-1][0], last)
            last.parts += message.parts
            last.id = last.id or message.id
        else:
            out.append((place, message))
            joined = False
    return out


def _is_turn(message: Message) -> bool:
    return message.role == "assistant" and not any(isinstance(p, ToolResult) for p in message.parts)


def _is_calls(message: Message) -> bool:
    calls = bool(message.parts) and all(isinstance(p, ToolCall) for p in message.parts)
    return calls and message.role == "assistant"
