"""The decoder's state of the messages and contents that it has seen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bridge.dialects.agentscope.calls import CALLS, OUTPUTS
from bridge.dialects.agentscope.merge import MEDIA_FIELDS
from bridge.dialects.agentscope.spelling import CONTENT_TYPES, payload_of, plain
from bridge.model import PartKind
from bridge.model.surrogates import mend

_PLAIN_KINDS = frozenset({"message", "reasoning", "mcp_approval_request"})
PART_KINDS = {"text": PartKind.TEXT, "refusal": PartKind.REFUSAL, "reasoning": PartKind.REASONING}


def content_type(said: str) -> str:
    """The type of a content in the Python form; an unknown one stays as it came."""
    return name if (name := said.lower()) in CONTENT_TYPES else said


def is_known(kind: str) -> bool:
    """Return whether messages of this type are decoded; others pass as a whole."""
    return kind in _PLAIN_KINDS or kind in CALLS or kind in OUTPUTS


@dataclass(eq=False, slots=True)
class Content:
    """One content; the object itself is the builder's key of its part.

    `kind` is what it becomes: text, refusal, reasoning, call, output, media, data, approval, or unknown. `pieces` is
    what was passed on, `value` what was accumulated of anything but text, `opened` whether a part was opened for it,
    `final` whether the wire said that the value is whole, `done` that nothing more is to be told of it. `end` has the
    fields by which the wire told an end other than completion.
    """

    type: str
    kind: str
    pieces: list[str] = field(default_factory=list)
    value: Any = None
    opened: bool = False
    final: bool = False
    done: bool = False
    wrapped: bool = False
    end: dict[str, Any] = field(default_factory=dict)

    @property
    def streams(self) -> bool:
        """True if further pieces of text can go straight to the builder."""
        return self.opened and self.type == "text" and not self.done

    @property
    def whole(self) -> bool:
        """True if all of it was passed on, so that a content without an index cannot continue it."""
        return self.done or self.final

    @property
    def told(self) -> str | None:
        """What a finished content said, in a form in which repetitions are found; None if it said nothing."""
        if self.kind in PART_KINDS:
            return "".join(self.pieces) or None
        return _written(self.value if self.kind in ("unknown", "media") else {"data": self.value}, self.kind)


def _written(value: Any, kind: str) -> str:
    """A value, or of media and data what of an event is one, as text that is the same for equal values."""
    if kind == "media":
        value = [value.get(name) for name in MEDIA_FIELDS]
    elif kind != "unknown":
        value = value.get("data")
    return json.dumps(value, sort_keys=True)


def repeated(kind: str, event: dict[str, Any], name: str) -> str | None:
    """What an event without an index would repeat of a finished content of this kind."""
    if event.get("delta") is True:
        return None
    if kind in PART_KINDS:
        text = event.get(name)
        return text if isinstance(text, str) and text else None
    return _written(payload_of(event) if kind == "unknown" else event, kind)


@dataclass(slots=True)
class _Told:
    """The contents of one type in order: how many of them are finished for good, and what these said first where."""

    places: list[int] = field(default_factory=list)
    count: int = 0
    said: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Message:
    """One message of the wire; the object itself is the builder's key of the message.

    `implied` says that only contents of it were seen, so that its kind is a guess. `end` has the fields by which it
    told an end other than completion.
    """

    id: str | None
    kind: str
    role: str
    contents: dict[tuple[int, str], Content] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    usage: object = None
    raw: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)
    done: bool = False
    implied: bool = False
    told: dict[str, _Told] = field(default_factory=dict)
    free: int = 0

    @property
    def known(self) -> bool:
        return is_known(self.kind)

    def content(self, event: dict[str, Any]) -> Content | None:
        """The content that an event speaks of; None when it has no type or the message passes as a whole."""
        if not self.known:
            self.raw.append(event)
            return None
        kind = event.get("type")
        if not isinstance(kind, str) or not kind:
            return None
        kind, index = content_type(kind), event.get("index")
        if not isinstance(index, int) or isinstance(index, bool):
            # A call in one piece and all of langgraph come without an index (capture `langgraph_tool`).
            index = self._place_of(kind, event)
        elif self.id is None and (index, kind) in self.contents and self.contents[index, kind].whole:
            # Contents without a message all say index 0.
            index = self._place_of(kind, event)
        return self._at(index, kind, event)

    def _at(self, index: int, kind: str, event: dict[str, Any]) -> Content:
        found = self.contents.get((index, kind))
        if found is None:
            found = self.contents[index, kind] = Content(kind, self._role_of(kind, event.get("data")))
            self.told.setdefault(kind, _Told()).places.append(index)
            self.free = max(self.free, index + 1)
        return found

    def _place_of(self, kind: str, event: dict[str, Any]) -> int:
        """Return the content that one without an index belongs to: an incomplete one, or one with the same value."""
        told = self.told.get(kind)
        if told is None:
            return self.free
        while told.count < len(told.places) and (content := self.contents[told.places[told.count], kind]).whole:
            if (said := content.told) is not None:
                told.said.setdefault(said, told.places[told.count])
            told.count += 1
        role = self.contents[told.places[0], kind].kind
        place = told.said.get(repeated(role, event, kind) or "")
        if place is not None:
            return place
        return told.places[told.count] if told.count < len(told.places) else self.free

    def retold(self, items: object) -> Iterator[tuple[Content, dict[str, Any]]]:
        """The contents that the object of a known message repeats, with what it says of each.

        Those without an index (capture `plugin_call`) are the first, second ... of their type.
        """
        counts: dict[str, int] = {}
        known = {kind: sorted(told.places) for kind, told in self.told.items()}
        for item in items if isinstance(items, list) else ():
            if not isinstance(item, dict) or not isinstance(item.get("type"), str) or not item["type"]:
                continue
            said = plain(item)
            kind, index = content_type(said["type"]), said.get("index")
            nth = counts[kind] = counts.get(kind, -1) + 1
            if not isinstance(index, int) or isinstance(index, bool):
                same = known.get(kind, [])
                index = same[nth] if nth < len(same) else self.free
            yield self._at(index, kind, said), said

    def takes(self, event: dict[str, Any]) -> bool:
        """Return whether a content without a message id may belong to this message, the last that was opened."""
        kind, data = event.get("type"), event.get("data")
        if kind == "data" and isinstance(data, dict):
            if "arguments" in data:
                return self.kind in CALLS or self.kind == "mcp_approval_request"
            if "output" in data:
                return self.kind in OUTPUTS
        return self.kind == "message" or (self.kind == "reasoning" and kind == "text")

    def repeated_by(self, event: dict[str, Any]) -> bool:
        """Return whether a completed message may be the one that contents without `msg_id` belong to."""
        sent = next(("".join(c.pieces) for c in self.contents.values() if c.type == "text"), "")
        items = event.get("content")
        texts = [i.get("text") for i in items if isinstance(i, dict)] if isinstance(items, list) else []
        said = next((t for t in texts if isinstance(t, str)), "")
        return not said or said.startswith(mend(sent))

    def _role_of(self, kind: str, data: object) -> str:
        if kind not in CONTENT_TYPES:
            return "unknown"
        if kind == "text":
            return "reasoning" if self.kind == "reasoning" else "text"
        if kind != "data":
            return "refusal" if kind == "refusal" else "media"
        if self.kind == "mcp_approval_request":
            return "approval"
        if self.kind in CALLS:
            return "call"
        if self.kind in OUTPUTS:
            return "output"
        # Contents without a message of their own (null msg_id) tell by their keys what they are.
        keys = data if isinstance(data, dict) and self.id is None else {}
        return "call" if "arguments" in keys else "output" if "output" in keys else "data"
