"""Events -> the events of a message, in the one order that clients read.

Blocks are counted from 0 without gaps and never overlap (`Sequencer` sees to it); a text or thinking block opens with
its first piece, so that none is empty. Per token only the text is dumped; the bytes around it are made when the block
begins (docs/architecture.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from bridge.contract import KEEPALIVE, Context, Feature, Frame
from bridge.dialects.anthropic_messages.capabilities import card
from bridge.dialects.anthropic_messages.errors import error_object
from bridge.dialects.anthropic_messages.options import FrontOptions
from bridge.dialects.anthropic_messages.whole_answer import message_of
from bridge.dialects.anthropic_messages.wire import (
    CITATIONS,
    DIRECT,
    NAME,
    REFUSAL,
    STOP_DETAILS,
    UNREAD,
    citation_of,
    details_of,
    own,
    start_usage,
    stop_word,
    wire_id,
    write_usage,
)
from bridge.model import SHARED, Extras, PartKind
from bridge.model import events as ev
from bridge.model.events import STOP_SEQUENCE
from bridge.model.jsontext import dumps, input_of
from bridge.toolkit import Encoder
from bridge.toolkit.citations import citations_in
from bridge.toolkit.refusals import is_beside
from bridge.toolkit.template import HOLE, Template

# These write nothing in the middle of a message, or nothing that has a place in it.
_FREE = Encoder.free - {ev.Raw} | {ev.ToolResulted}
_DELTA = "content_block_delta"
_EVENT_NAME = re.compile(r"[\w.-]+", re.ASCII)  # it is written on a line of its own, which nothing may end early
_NO_END: dict[str, Any] = {"stop_reason": None, "stop_sequence": None, "stop_details": None, "container": None}
"""Why a message ended, while it has not. Clients require each field, there and at the end."""
_EMPTY: dict[str, Any] = {"type": "text", "text": "", "citations": []}
"""The start of a text block. Null would do for `citations` as well, but the AI SDK refuses it in a whole message."""
_INPUT = "input_json_delta", "partial_json"
_SPACE = " \t\r\n"
"""The white space of JSON."""
_PING = Frame(b'{"type":"ping"}', "ping")


def _piece(index: int, kind: str, field: str) -> Template:
    """The event of a piece of text in a block."""
    return Template({"type": _DELTA, "index": index, "delta": {"type": kind, field: HOLE}})


class _Part:
    """A part that began. `template` is the event of each piece, None until the first one is written.

    `held` are the pieces of arguments that do not begin as an object.
    """

    __slots__ = ("held", "hidden", "index", "started", "template")

    def __init__(self, started: ev.PartStarted, hidden: bool) -> None:
        self.started = started
        self.hidden = hidden
        self.template: Template | None = None
        self.index = 0
        self.held: list[str] = []


class MessagesEncoder(Encoder):
    """One per run."""

    dialect = NAME
    free = _FREE
    keeps = (Feature.USAGE,)
    marks_refusals = True

    def __init__(self, context: Context) -> None:
        self._options = options = FrontOptions.of(context)
        super().__init__(context, card(options.reasoning, options.media))
        self._parts: dict[str, _Part] = {}
        self._blocks = 0
        self._calls: set[str | None] = set()
        self._refusal: list[str] = []

    # ------------------------------------------------------------------ writing

    def _write(self, kind: str, fields: dict[str, Any] | None = None) -> None:
        """Write an event: its name is on a line of its own and in its payload, and clients skip those without."""
        self.write({"type": kind, **(fields or {})}, kind)

    def _open(self, block: dict[str, Any]) -> int:
        index = self._blocks
        self._blocks += 1
        self._write("content_block_start", {"index": index, "content_block": block})
        return index

    def _stop(self, index: int) -> None:
        self._write("content_block_stop", {"index": index})

    def _block_delta(self, index: int, delta: dict[str, Any]) -> None:
        self._write(_DELTA, {"index": index, "delta": delta})

    # ------------------------------------------------------------------ the head

    def run_started(self, event: ev.RunStarted) -> None:
        extras, request = own(event.extras), self.context.request
        model = event.model or self.context.model or (request.model if request else None) or ""
        rest = extras.get("message")
        message: dict[str, Any] = {
            "id": extras.get("id") or f"msg_{event.run_id}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            **_NO_END,
            "usage": start_usage(extras.get("usage")),
        }
        self._write("message_start", {"message": {**message, **(rest if isinstance(rest, dict) else {})}})

    # ------------------------------------------------------------------ parts

    def part_started(self, event: ev.PartStarted) -> None:
        hidden = is_beside(event.extras, NAME)
        part = self._parts[event.part_id] = _Part(event, hidden)
        if event.kind is PartKind.TOOL_CALL:
            self._calls.add(event.call_id)
            self._call(part)

    def text(self, event: ev.TextDelta | ev.ReasoningDelta | ev.ArgsDelta) -> None:
        part, text = self._parts[event.part_id], event.text
        if part.started.kind is PartKind.REFUSAL and not part.hidden:
            if part.template is None:
                self._refusal = []
            self._refusal.append(text)
        if part.template is None:
            if part.hidden or not text:
                return
            if part.started.kind is PartKind.TOOL_CALL:
                text = self._first_arguments(part, text)
            else:
                self._begin(part)
        if text and part.template is not None:
            self.out.append(Frame(part.template(text), _DELTA))

    reasoning = arguments = text

    def _begin(self, part: _Part) -> None:
        """Opens the block of a text or of thinking."""
        if part.started.kind is PartKind.REASONING:
            block: dict[str, Any] = {"type": "thinking", "thinking": "", "signature": ""}
            words = "thinking_delta", "thinking"
        else:
            block, words = _EMPTY, ("text_delta", "text")
        part.index = self._open({**own(part.started.extras), **block})
        part.template = _piece(part.index, *words)

    def _call(self, part: _Part) -> None:
        """Opens the block of a call."""
        started = part.started
        block: dict[str, Any] = {
            "type": "tool_use",
            "id": wire_id(started.call_id or ""),
            "name": started.name,
            "input": {},
        }
        part.index = self._open({"caller": DIRECT, **own(started.extras), **block})

    def _first_arguments(self, part: _Part, text: str) -> str:
        """Return the first piece of arguments to write, "" if there is none yet. `input` must be an object, so
        arguments that begin as anything else are held until they are complete.
        """
        begun = text if part.held else text.lstrip(_SPACE)
        if part.held or not begun.startswith("{"):
            if begun:
                part.held.append(begun)
            return ""
        part.template = _piece(part.index, *_INPUT)
        return begun

    def part_ended(self, event: ev.PartEnded) -> None:
        part = self._parts.pop(event.part_id)
        if part.hidden:
            return
        late = own(event.extras)
        is_call = part.started.kind is PartKind.TOOL_CALL
        if is_call and part.template is None:
            whole = dumps(input_of("".join(part.held))).decode()
            self._block_delta(part.index, {"type": _INPUT[0], _INPUT[1]: whole})
        elif event.signature and part.template is None:
            self._begin(part)  # thinking whose text is kept back has a signature all the same
        if part.template is not None or is_call:
            for citation in late.get(CITATIONS) or self._cited(event.extras):
                self._block_delta(part.index, {"type": "citations_delta", "citation": citation})
            for delta in late.get(UNREAD) or ():
                self._block_delta(part.index, delta)
            if event.signature:
                self._block_delta(part.index, {"type": "signature_delta", "signature": event.signature})
            self._stop(part.index)
        if event.redacted:
            more = {} if part.template is not None else own(part.started.extras)
            self._stop(self._open({**more, "type": "redacted_thinking", "data": event.redacted}))

    def _cited(self, extras: Extras | None) -> list[dict[str, Any]]:
        """Citations of web pages of other dialects' backends."""
        found = citations_in(extras, self.lost, 0) if extras else []
        return [citation_of(each["url"], each["title"]) for each in found]

    # ------------------------------------------------------------------ whole things

    def raw(self, event: ev.Raw) -> None:
        value = event.value if isinstance(event.value, dict) else {}
        if isinstance(block := value.get("block"), dict):
            self._whole(block, value.get(UNREAD) or [])
        elif isinstance(wire := value.get("event"), dict):
            name = wire.get("type")
            if isinstance(name, str) and _EVENT_NAME.fullmatch(name):
                self._write(name, wire)
            else:
                self.lost.add(Feature.RAW, "an event without a valid name")
        else:
            self.lost.add_raw(event)

    def _whole(self, block: dict[str, Any], deltas: list[dict[str, Any]]) -> None:
        """Write a block that is complete. Clients read the input of a call from deltas."""
        if isinstance(given := block.get("input"), dict) and given and not deltas:
            block = {**block, "input": {}}
            deltas = [{"type": _INPUT[0], _INPUT[1]: dumps(given).decode()}]
        index = self._open(block)
        for delta in deltas:
            self._block_delta(index, delta)
        self._stop(index)

    def heartbeat(self, event: ev.Heartbeat) -> None:
        if self._options.keepalive == "ping":
            self.out.append(_PING)
        elif self._options.keepalive == "comment":
            self.out.append(KEEPALIVE)

    # ------------------------------------------------------------------ the end

    def failed(self, event: ev.RunFailed) -> None:
        """The error ends the stream: no `message_delta` and no `message_stop` after it."""
        self.out.append(Frame(dumps(error_object(event.error)), "error"))

    def finished(self, event: ev.RunFinished) -> None:
        known = own(event.extras)
        word = stop_word(event.reason, bool(self._calls), known.get("stop_reason"))
        matched = (event.extras or {}).get(SHARED, {}).get(STOP_SEQUENCE)
        if isinstance(matched, str) and word == "end_turn":
            word, known = "stop_sequence", {**known, "stop_sequence": matched}
        if self._refusal and word == REFUSAL:
            known = {STOP_DETAILS: details_of("".join(self._refusal)), **known}
        delta = {**_NO_END, **known, "stop_reason": word}
        self._write("message_delta", {"delta": delta, "usage": write_usage(self.counted())})
        self._write("message_stop")

    def accumulate(self, frames: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return message_of(frames)
