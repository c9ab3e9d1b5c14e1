"""Messages of the model -> generation 1's `messages` (docs/dialects/ag-kit.md).

The reference server fails on assistant messages with `toolCalls`, so completed tool calls and their results become
assistant text. Only calls whose results the server has yet to answer stay structured: those at the end of the request,
and results of calls that are not in the request, since then the server has stored them.
"""

from __future__ import annotations

from typing import Any

from bridge.contract import Context, Feature
from bridge.dialects.ag_kit.capabilities import CAPABILITIES
from bridge.dialects.ag_kit.options import BackOptions
from bridge.dialects.ag_kit.wire import unknown_fields
from bridge.model import (
    Message,
    Part,
    Reasoning,
    Request,
    Text,
    ToolCall,
    ToolResult,
    as_text,
    result_text,
)
from bridge.toolkit.message_losses import RESULT, MessageLosses

_Wire = dict[str, Any]
_ROLES = {"developer": "system"}


class MessageWriter:
    """Writes the messages of one request and records losses in the context."""

    def __init__(self, context: Context, options: BackOptions) -> None:
        self._context = context
        self._lost = context.lost
        self._options = options
        self._sent: list[Message] = []
        self._results: dict[str, str] = {}
        self._request_calls: set[str] = set()
        self._structured_calls: set[str] = set()
        self._messages: list[_Wire] = []
        self._accepts_lines = False
        self._appended_lines: list[str] = []  # to be appended to the last message's content

    def write(self, request: Request) -> list[_Wire]:
        self._index_calls(request.messages)
        self._sent = request.messages
        for message in request.messages:
            for part in message.parts:
                if isinstance(part, ToolResult):
                    self._result(part, message)
            if message.role == "assistant":
                self._assistant(message)
            elif message.role != "tool" and (not message.parts or not _only_results(message)):
                self._text_message(message)
        self._flush_lines()
        return self._messages

    def _flush_lines(self) -> None:
        if self._appended_lines:
            self._messages[-1]["content"] = "\n".join([self._messages[-1]["content"], *self._appended_lines])
            self._appended_lines = []

    def _index_calls(self, messages: list[Message]) -> None:
        """Collect the calls in the request, their results, and the calls that stay structured."""
        answering: set[str] = set()
        for message in reversed(messages):
            if not _only_results(message):
                break
            answering.update(p.call_id for p in message.parts if isinstance(p, ToolResult))
        for message in messages:
            calls = {p.call_id for p in message.parts if isinstance(p, ToolCall)}
            self._request_calls |= calls
            if calls & answering:
                self._structured_calls |= calls
            for part in message.parts:
                if isinstance(part, ToolResult):
                    text = result_text(part.parts)
                    self._results.setdefault(part.call_id, text)

    # ------------------------------------------------------------------ one message

    def _add(self, wire: _Wire, *, accepts_lines: bool = False) -> None:
        self._flush_lines()
        self._messages.append(wire)
        self._accepts_lines = accepts_lines

    def _text_message(self, message: Message) -> None:
        """Write a system or user message, whose content is one string."""
        texts = [_told(part) for part in message.parts]
        role = _ROLES.get(message.role, message.role)
        self._add({**unknown_fields(message.extras), "role": role, "content": "".join(texts)})

    def _result(self, result: ToolResult, message: Message) -> None:
        if result.call_id in self._structured_calls or result.call_id not in self._request_calls:
            content = result_text(result.parts)
            self._add(
                {**unknown_fields(message.extras), "role": "tool", "content": content, "toolCallId": result.call_id}
            )

    # ------------------------------------------------------------------ assistants

    def _assistant(self, message: Message) -> None:
        calls = [p for p in message.parts if isinstance(p, ToolCall)]
        text = "".join(_told(p) for p in message.parts if not isinstance(p, ToolCall))
        structured = any(c.call_id in self._structured_calls for c in calls)
        if calls and not structured:
            self._lost.add(Feature.TOOL_HISTORY, "completed tool calls are sent as text")
            text = "\n".join([*([text] if text else []), *(self._call_text(c) for c in calls)])
        elif not text and not calls and any(not isinstance(p, Text) for p in message.parts):
            return
        if self._accepts_lines and not structured:
            self._appended_lines.append(text)
            self._accepts_lines = bool(calls)
            return
        wire: _Wire = {
            **unknown_fields(message.extras),
            "role": "assistant",
            # The reference server refuses assistant messages without an id.
            "id": message.id or self._context.make_id("msg"),
            "content": text or (None if structured else ""),
        }
        if structured:
            wire["toolCalls"] = [_call(c) for c in calls]
        self._add(wire, accepts_lines=bool(calls) and not structured)

    def _call_text(self, call: ToolCall) -> str:
        result = self._results.get(call.call_id)
        return as_text(call) if result is None else f"{as_text(call)} -> {result}"


LOSSES = MessageLosses(
    CAPABILITIES, told=("assistant", "tool", RESULT), keeps=(Feature.TOOL_HISTORY,), marks_errors=False
)


def _call(call: ToolCall) -> _Wire:
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    return {"id": call.call_id, "type": "function", "function": function}


def _told(part: Part) -> str:
    return "" if isinstance(part, (Reasoning, ToolResult)) else as_text(part)


def _only_results(message: Message) -> bool:
    return bool(message.parts) and all(isinstance(p, ToolResult) for p in message.parts)
