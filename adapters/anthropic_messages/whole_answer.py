"""Whole answers: events of a stream -> one message object, and one message object -> events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bridge.contract import Context, WireResponse
from bridge.dialects.anthropic_messages.errors import ERRORS
from bridge.dialects.anthropic_messages.read_answer import MessagesDecoder
from bridge.dialects.anthropic_messages.wire import merged_usage
from bridge.model import Event
from bridge.model.jsontext import input_of, read_json

# ------------------------------------------------------------------ towards clients


def message_of(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the message that a client makes of the events of a whole answer."""
    message = _Message()
    for event in events:
        message.feed(event)
    return message.value


class _Message:
    """A message that grows by its events, as clients put it together."""

    def __init__(self) -> None:
        self.value: dict[str, Any] = {}
        self._block: dict[str, Any] = {}
        self._pieces: dict[str, list[str]] = {}
        self._citations: list[Any] = []

    def feed(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "message_start":
                self.value = {**event["message"], "content": [*event["message"]["content"]]}
            case "content_block_start":
                self._block, self._pieces, self._citations = dict(event["content_block"]), {}, []
                self.value["content"].append(self._block)
            case "content_block_delta":
                self._delta(event["delta"])
            case "content_block_stop":
                self._end_block()
            case "message_delta":
                self.value.update(event["delta"])
                self.value["usage"] = merged_usage(self.value["usage"], event["usage"])
            case _:
                pass

    def _delta(self, delta: dict[str, Any]) -> None:
        for name in ("text", "thinking", "partial_json"):
            if isinstance(delta.get(name), str):
                self._pieces.setdefault(name, []).append(delta[name])
        if "signature" in delta:
            self._block["signature"] = delta["signature"]
        if "citation" in delta:
            self._citations.append(delta["citation"])

    def _end_block(self) -> None:
        """Concatenates the pieces once: appending each to the text before it would take quadratic time."""
        for name, pieces in self._pieces.items():
            text = "".join(pieces)
            if name == "partial_json":
                self._block["input"] = input_of(text)
            else:
                self._block[name] = text
        if self._citations:
            self._block["citations"] = self._citations
        self._pieces, self._citations = {}, []


# ------------------------------------------------------------------ from backends


def parse_response(wire: WireResponse, context: Context) -> list[Event]:
    """Return the run of a whole answer; anything else than a message is a run that failed."""
    decoder = MessagesDecoder(context)
    value = read_json(wire.body)
    if isinstance(value, dict) and isinstance(value.get("content"), list):
        return decoder.whole(value)
    return decoder.close(ERRORS.of_no_answer(value, "The backend's answer is neither a message nor an error."))
