"""Compaction: a conversation is replaced by one item with its summary.

Clients request it by an item `compaction_trigger` at the end of their input, or by `POST /responses/compact`. The model
writes a summary, whatever the backend, and the item contains it: plain text in base64 after a marker, so that every
process reads it, also after a restart. It is not signed, as clients could send the same in a message of theirs.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from bridge.dialects.openai_responses.wire import NAME, noted, own
from bridge.errors import ErrorCode, Failure
from bridge.model import Data, FinishReason, Message, PartKind, Raw, Request
from bridge.model import events as ev
from bridge.model.events import Event
from bridge.model.jsontext import dict_of

ITEM, TRIGGER = "compaction", "compaction_trigger"
KINDS = frozenset({ITEM, "compaction_summary"})
PATH = "/responses/compact"

INSTRUCTION = """\
Summarize the conversation above for another model that continues it and sees nothing but your summary. Write plain \
text, call no tool, and keep everything that is needed to go on:
- what the user wants, with constraints and preferences, in the user's own words where they matter;
- what was done and decided, with exact names, paths, commands, identifiers and values;
- what was found out, including errors and what did not work;
- what is left to do, and the next step."""
RECALLED = "Summary of the conversation so far:\n\n"

_MARK = "bridge-summary-1."
_SHOWN = (ev.RunStarted, ev.UsageReported, ev.Heartbeat, ev.RunFailed)
_CUT = {
    FinishReason.LENGTH: "was cut at the limit of its tokens",
    FinishReason.CONTENT_FILTER: "was stopped by a content filter",
}


def pack(summary: str) -> str:
    """Return the `encrypted_content` of an item with this summary."""
    return _MARK + base64.b64encode(summary.encode("utf-8", "surrogatepass")).decode()


def unpack(content: str) -> str | None:
    """Return the summary in an `encrypted_content`; None if it was not made here."""
    if not content.startswith(_MARK):
        return None
    try:
        return base64.b64decode(content.removeprefix(_MARK), validate=True).decode("utf-8", "surrogatepass")
    except (binascii.Error, ValueError):
        return None


def with_trigger(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body of `POST /responses` that requests the same compaction."""
    items = body.get("input")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if items is None and body.get("previous_response_id"):
        items = []
    if isinstance(items, list):
        items = [*items, {"type": TRIGGER}]
    return {**body, "input": items, "stream": False, "store": False, "background": False}


def asks(message: Message) -> bool:
    """Return whether the message is a trigger."""
    return bool(own(message.extras).get(TRIGGER))


def is_wanted(request: Request | None) -> bool:
    """Return whether the answer to a request is to be a compaction."""
    return request is not None and bool(request.messages) and asks(request.messages[-1])


def is_object(request: Request | None) -> bool:
    """Return whether the client requested only the compaction, by `POST /responses/compact`."""
    return request is not None and is_wanted(request) and bool(own(request.messages[-1].extras).get("alone"))


class Compaction:
    """Reads the answer to a request for a summary as a stream whose only content is the compaction item.

    An item that the backend made by itself is taken as it is.
    """

    def __init__(self, make_id: Callable[[str], str]) -> None:
        self._make_id = make_id
        self._texts: set[str] = set()
        self._pieces: list[str] = []
        self._theirs = False

    def __call__(self, events: Sequence[Event]) -> list[Event]:
        return [told for event in events for told in self._told(event)]

    def _told(self, event: Event) -> list[Event]:
        match event:
            case ev.PartStarted(kind=PartKind.TEXT):
                self._texts.add(event.part_id)
            case ev.TextDelta() if event.part_id in self._texts:
                self._pieces.append(event.text)
            case Raw(dialect=name, value=dict() as value) if name == NAME and _is_about(value):
                self._theirs = True
                return [event]
            case ev.RunFinished():
                return self._end(event)
            case _ if isinstance(event, _SHOWN):
                return [event]
        return []

    def _end(self, event: ev.RunFinished) -> list[Event]:
        summary = "".join(self._pieces).strip()
        if self._theirs or event.reason is FinishReason.CANCELED:
            return [event]
        if event.reason in _CUT:
            return [_failed(f"The summary of the conversation {_CUT[event.reason]}.")]
        if not summary:
            return [_failed("The model wrote no summary of the conversation.")]
        item = {"id": self._make_id("cmp"), "type": ITEM, "encrypted_content": pack(summary)}
        message = self._make_id("msg")
        content = ev.ContentAdded(message, Data(item, noted(whole=item)))
        ended = replace(event, reason=FinishReason.STOP)
        return [ev.MessageStarted(message), content, ev.MessageEnded(message), ended]


def _is_about(event: dict[str, Any]) -> bool:
    """Return whether an event of a backend of this dialect concerns a compaction item."""
    return event.get("type") == "response.compaction.compacting" or dict_of(event.get("item")).get("type") in KINDS


def _failed(message: str) -> ev.RunFailed:
    return ev.RunFailed(Failure(ErrorCode.BACKEND_ERROR, message))
