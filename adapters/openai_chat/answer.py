"""Whole answers: chunks -> one completion object, and one completion object -> events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bridge.codec import Context, FrameLike, WireResponse
from bridge.codec.errors import error_in
from bridge.codec.jsontext import loads, read_json
from bridge.codec.merging import Added
from bridge.codec.wire import holds_events, payloads_in
from bridge.dialects.openai.api import ERRORS
from bridge.dialects.openai_chat.decoder import ChatDecoder
from bridge.dialects.openai_chat.options import BackOptions
from bridge.dialects.openai_chat.wire import DONE, REASONING_FIELDS
from bridge.errors import ErrorCode, Failure
from bridge.model import Event

_HEAD = ("id", "object", "created", "model")
_OF_CHOICE = frozenset({"index", "delta", "logprobs", "finish_reason"})
_FIRST = (*REASONING_FIELDS, "tool_calls")
_NUMBERED = ("tool_calls", "annotations", "images")
"""The lists whose entries have an index in chunks only."""

# ------------------------------------------------------------------ towards clients


class _Choice:
    """One choice that grows by the entries of chunks."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self._message = Added(entry["delta"])
        self._beside: Added | None = None
        self._finish: str | None = None

    def add(self, entry: dict[str, Any]) -> None:
        if entry["delta"]:
            self._message.add(entry["delta"])
        if not _OF_CHOICE.issuperset(entry) or entry["logprobs"] is not None:
            self._beside = self._beside or Added()
            self._beside.add({k: v for k, v in entry.items() if k not in _OF_CHOICE or (k == "logprobs" and v)})
        self._finish = entry["finish_reason"] or self._finish

    def plain(self, index: int) -> dict[str, Any]:
        said = self._message.plain()
        for name in _NUMBERED:
            if name in said:
                said[name] = [{k: v for k, v in each.items() if k != "index"} for each in said[name]]
        content, refusal = said.pop("content", None), said.pop("refusal", None)
        first = {name: said.pop(name) for name in _FIRST if name in said}
        is_silent = "tool_calls" in first or "audio" in said or refusal
        message = {
            "role": "assistant",
            "content": content or (None if is_silent else ""),
            "refusal": refusal,
            "annotations": [],
            **first,
            **said,
        }
        beside = {} if self._beside is None else self._beside.plain()
        return {"index": index, "message": message, "logprobs": None, **beside, "finish_reason": self._finish}


def completion(frames: Iterable[FrameLike]) -> dict[str, Any]:
    """Return the completion that a client makes of the chunks of a whole answer."""
    head: dict[str, Any] = {}
    more = Added()
    choices: dict[int, _Choice] = {}
    usage: Any = None
    for frame in frames:
        if not isinstance(frame, bytes) or frame == DONE:
            continue
        chunk = loads(frame)
        for entry in chunk.pop("choices"):
            choice = choices.get(entry["index"])
            if choice is None:
                choices[entry["index"]] = _Choice(entry)
            else:
                choice.add(entry)
        usage = chunk.pop("usage", usage)
        if not head:
            head = chunk
        elif chunk.keys() - head.keys():
            more.add({k: v for k, v in chunk.items() if k not in head})
    out = {name: head.pop(name) for name in _HEAD}
    listed = [choices[index].plain(index) for index in sorted(choices)]
    return {**out, "object": "chat.completion", "choices": listed, "usage": usage, **head, **more.plain()}


# ------------------------------------------------------------------ from backends


def parse_response(wire: WireResponse, context: Context, options: BackOptions) -> list[Event]:
    """Return the run of a whole answer; anything else than a completion is a run that failed."""
    if wire.status >= 400:
        return _failed(ERRORS.decode(wire), context)
    value = read_json(wire.body)
    if value is None and holds_events(wire):
        decoder = ChatDecoder(context, options)
        return decoder.feed(payloads_in(wire.body)) + decoder.close()
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
