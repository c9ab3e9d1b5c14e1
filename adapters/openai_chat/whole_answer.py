"""Whole answers: chunks -> one completion object, and one completion object -> events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.contract import Context, WireResponse
from bridge.dialects.openai.errors import ERRORS
from bridge.dialects.openai_chat.options import BackOptions
from bridge.dialects.openai_chat.read_answer import ChatDecoder
from bridge.dialects.openai_chat.wire import REASONING_FIELDS
from bridge.errors import ErrorCode, Failure
from bridge.model import Event
from bridge.model.jsontext import read_json
from bridge.toolkit.errors import error_in
from bridge.toolkit.merging import Added

_OF_CHOICE = frozenset({"index", "delta", "logprobs", "finish_reason"})
_FIRST = (*REASONING_FIELDS, "tool_calls")
_NUMBERED = ("tool_calls", "annotations", "images")
"""The lists whose entries have an index in chunks only."""

# ------------------------------------------------------------------ towards clients


class _Choice:
    """One choice that grows by the entries of chunks, after the one with its role."""

    def __init__(self) -> None:
        self._message = Added()
        self._beside: Added | None = None
        self._finish: str | None = None

    def add(self, entry: dict[str, Any]) -> None:
        if entry["delta"]:
            self._message.add(entry["delta"])
        if len(entry) > len(_OF_CHOICE) or entry["logprobs"] is not None:
            self._beside = self._beside or Added()
            self._beside.add({k: v for k, v in entry.items() if k not in _OF_CHOICE or (k == "logprobs" and v)})
        self._finish = entry["finish_reason"] or self._finish

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


def completion(chunks: Sequence[Any]) -> dict[str, Any]:
    """Return the completion that a client makes of these chunks, of which the first is their head."""
    head = chunks[0]
    more: dict[str, Any] = {}
    choices: dict[int, _Choice] = {}
    for chunk in chunks[1:]:
        for entry in chunk["choices"]:
            choice = choices.get(entry["index"])
            if choice is None:
                choices[entry["index"]] = _Choice()
            else:
                choice.add(entry)
        if len(chunk) > 1:
            more = {**chunk, **more}
    usage = more.pop("usage", None)
    del more["choices"]
    listed = [choices[index].plain(index) for index in sorted(choices)]
    return {**head, "object": "chat.completion", "choices": listed, "usage": usage, **more}


# ------------------------------------------------------------------ from backends


def parse_response(wire: WireResponse, context: Context, options: BackOptions) -> list[Event]:
    """Return the run of a whole answer; anything else than a completion is a run that failed."""
    value = read_json(wire.body)
    if isinstance(value, dict):
        choices = value.get("choices")
        if isinstance(choices, list) and dict in map(type, choices):
            return ChatDecoder(context, options, streamed=False).whole(value)
    error = error_in(value)
    if error is not None:
        return _failed(ERRORS.failure(error), context)
    text = "The backend's answer is neither a chat completion nor an error object."
    return _failed(Failure(ErrorCode.BACKEND_PROTOCOL, text), context)


def _failed(failure: Failure, context: Context) -> list[Event]:
    builder = context.builder()
    builder.fail(failure)
    return builder.take()
