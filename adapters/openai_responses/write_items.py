"""Items and parts during writing: what a client has received of them, and the bytes around their pieces."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bridge.dialects.openai_responses.wire import CONTENT, SUMMARY
from bridge.model import events as ev
from bridge.toolkit.logprobs import with_bytes
from bridge.toolkit.template import HOLE, NUMBER, Template

Wire = dict[str, Any]

# These carry no place in the answer.
FREE = frozenset(
    {ev.RunStarted, ev.UsageReported, ev.Heartbeat, ev.StateChanged, ev.StepStarted, ev.StepEnded, ev.Custom}
)
MESSAGE, FUNCTION_CALL, REASONING = "message", "function_call", "reasoning"


@dataclass(slots=True)
class Item:
    """An open output item. `value` is the object of its end; `owner` the message whose texts it takes."""

    index: int
    value: Wire
    owner: str = ""

    @property
    def place(self) -> Wire:
        """Return the fields by which events name this item."""
        return {"item_id": self.value["id"], "output_index": self.index}


@dataclass(slots=True)
class Words:
    """The events of one kind of part. `field` is its text's name in the last of them, `index` that of its number.

    Of reasoning, which has two forms: `around` names the events that begin and end the part, `kind` is its type and
    `within` the field of the item that contains it.
    """

    delta: str
    done: str
    field: str
    index: str = ""
    around: str = ""
    kind: str = ""
    within: str = ""

    def part(self, text: str) -> Wire:
        """A part of reasoning."""
        return {"type": self.kind, "text": text}


TEXT = Words("response.output_text.delta", "response.output_text.done", "text", "content_index")
REFUSAL = Words("response.refusal.delta", "response.refusal.done", "refusal", "content_index")
ARGUMENTS = Words("response.function_call_arguments.delta", "response.function_call_arguments.done", "arguments")
INPUT = Words("response.custom_tool_call_input.delta", "response.custom_tool_call_input.done", "input")
THOUGHT = Words(
    "response.reasoning_text.delta",
    "response.reasoning_text.done",
    "text",
    "content_index",
    "response.content_part",
    "reasoning_text",
    CONTENT,
)
SUMMARY_TEXT = Words(
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done",
    "text",
    "summary_index",
    "response.reasoning_summary_part",
    "summary_text",
    SUMMARY,
)


@dataclass(slots=True)
class Writing:
    """A part whose pieces are coming; `template` is a delta."""

    item: Item
    words: Words
    number: int
    template: Template
    pieces: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, item: Item, words: Words, number: int = 0) -> Writing:
        """`number`: which part of its item this is, counted from 0 for each kind."""
        named = {words.index: number} if words.index else {}
        more: Wire = {"logprobs": []} if words is TEXT else {}
        delta = {"type": words.delta, "sequence_number": NUMBER, **item.place, **named, "delta": HOLE, **more}
        return cls(item, words, number, Template(delta))

    @property
    def place(self) -> Wire:
        named = {self.words.index: self.number} if self.words.index else {}
        return {**self.item.place, **named}

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def half_done(item: Item, writing: Writing | None) -> Wire:
    """An open item with what has come of its open part."""
    value = dict(item.value)
    if writing is None or writing.item is not item:
        return value
    text = writing.text
    if writing.words is ARGUMENTS:
        return {**value, "arguments": text}
    field, part = writing.words.within or CONTENT, text_part(text, writing.logprobs)
    if writing.words is REFUSAL:
        part = {"type": "refusal", "refusal": text}
    elif writing.words.within:
        part = writing.words.part(text)
    return {**value, field: [*value.get(field, ()), part]}


def message_item(wire_id: str, more: Wire) -> Wire:
    return {"id": wire_id, "type": MESSAGE, "status": "in_progress", "role": "assistant", "content": [], **more}


def call_item(wire_id: str, call_id: str, name: str, more: Wire) -> Wire:
    return {
        "id": wire_id,
        "type": FUNCTION_CALL,
        "status": "in_progress",
        "arguments": "",
        "call_id": call_id,
        "name": name,
        **more,
    }


def free_call_item(wire_id: str, call_id: str, name: str, more: Wire) -> Wire:
    """A call whose input is free text."""
    head = {"id": wire_id, "type": "custom_tool_call", "status": "in_progress", "call_id": call_id, "name": name}
    return {**head, "input": "", **more}


def reasoning_item(wire_id: str, more: Wire) -> Wire:
    return {"id": wire_id, "type": REASONING, "summary": [], **more}


def text_part(text: str, logprobs: list[Any]) -> Wire:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(map(with_bytes, logprobs))}
