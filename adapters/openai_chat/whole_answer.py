"""Whole answers: deltas -> one completion object, and one completion object -> events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bridge.contract import Context, WireResponse
from bridge.dialects.openai.errors import ERRORS
from bridge.dialects.openai_chat.options import BackOptions
from bridge.dialects.openai_chat.read_answer import ChatDecoder
from bridge.dialects.openai_chat.wire import REASONING_FIELDS
from bridge.model import Event, FinishReason
from bridge.model.jsontext import read_json
from bridge.toolkit.merging import Added

BESIDE: dict[str, Any] = {"logprobs": None, "finish_reason": None}
"""What is beside a delta."""
_FIRST = (*REASONING_FIELDS, "tool_calls")
_NUMBERED = ("tool_calls", "annotations", "images")
"""The lists whose entries have an index in chunks only."""

# ------------------------------------------------------------------ towards clients


@dataclass(slots=True)
class AddedLists:
    """What a client has of the lists and numbers of a choice, by path. `numbers` are keys only."""

    entries: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class ClientChoice:
    """The state of one choice at the client. `added` is None while it has texts and calls only."""

    calls: int = 0
    reason: FinishReason | None = None
    thoughts: int = 0
    length: int = 0
    added: AddedLists | None = None


@dataclass(slots=True)
class WholeChoice(ClientChoice):
    """One of an answer in one piece: it grows by deltas, after the one with its role."""

    _message: Added = field(default_factory=Added)
    _beside: Added | None = None
    _finish: str | None = None

    def add(self, delta: dict[str, Any], beside: dict[str, Any]) -> None:
        if delta:
            self._message.add(delta)
        if beside is BESIDE:
            return
        if len(beside) > len(BESIDE) or beside["logprobs"] is not None:
            self._beside = self._beside or Added()
            self._beside.add({k: v for k, v in beside.items() if k not in BESIDE or (k == "logprobs" and v)})
        self._finish = beside["finish_reason"] or self._finish

    def plain(self, index: int) -> dict[str, Any]:
        said = self._message.plain()
        content, refusal = said.pop("content", None), said.pop("refusal", None)
        for name in _NUMBERED if said else ():
            if isinstance(said.get(name), list):
                said[name] = [_unnumbered(entry) for entry in said[name]]
        is_silent = "tool_calls" in said or "audio" in said or refusal
        message = {
            "role": "assistant",
            "content": content or (None if is_silent else ""),
            "refusal": refusal,
            "annotations": [],
        }
        for name in _FIRST if said else ():
            if name in said:
                message[name] = said.pop(name)
        beside = {} if self._beside is None else self._beside.plain()
        return {
            "index": index,
            "message": {**message, **said},
            "logprobs": None,
            **beside,
            "finish_reason": self._finish,
        }


def _unnumbered(entry: Any) -> Any:
    return {k: v for k, v in entry.items() if k != "index"} if isinstance(entry, dict) else entry


# ------------------------------------------------------------------ from backends


def parse_response(wire: WireResponse, context: Context, options: BackOptions) -> list[Event]:
    """Return the run of a whole answer; anything else than a completion is a run that failed."""
    decoder = ChatDecoder(context, options, streamed=False)
    value = read_json(wire.body)
    if isinstance(value, dict):
        choices = value.get("choices")
        if isinstance(choices, list) and dict in map(type, choices):
            return decoder.whole(value)
    text = "The backend's answer is neither a chat completion nor an error object."
    return decoder.close(ERRORS.of_no_answer(value, text))
