"""The decoder's state: messages and contents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bridge.dialects.agentscope.calls import CALLS, OUTPUTS
from bridge.dialects.agentscope.merge import MEDIA_FIELDS, Merged
from bridge.dialects.agentscope.normalization import CONTENT_TYPES, normalized, payload_of
from bridge.model import PartKind
from bridge.model.surrogates import repair
from bridge.toolkit.pieces import Pieces

_PLAIN_KINDS = frozenset({"message", "reasoning", "mcp_approval_request"})
PART_KINDS = {"text": PartKind.TEXT, "refusal": PartKind.REFUSAL, "reasoning": PartKind.REASONING}


def content_type(value: str) -> str:
    """Return the type of a content in the Python form; unknown types are unchanged."""
    return name if (name := value.lower()) in CONTENT_TYPES else value


def is_known(kind: str) -> bool:
    """Return whether messages of this type are decoded; others are passed on whole."""
    return kind in _PLAIN_KINDS or kind in CALLS or kind in OUTPUTS


@dataclass(eq=False, slots=True)
class Content:
    """One content; the object itself is the builder's key of its part.

    `kind`: text, refusal, reasoning, call, output, media, data, approval, or unknown. `pieces`: the emitted text.
    `merged`: the value of anything but text, `Merged` while it grows by deltas. `follows`: the emitted text is all that
    came of the arguments; None while that is unknown, False if they began with other text. `opened`: a part was opened
    for it. `final`: the value is complete. `done`: everything was emitted. `end`: the fields of an end other than
    completion.
    """

    type: str
    kind: str
    pieces: Pieces = field(default_factory=Pieces)
    merged: Any = None
    follows: bool | None = None
    opened: bool = False
    final: bool = False
    done: bool = False
    wrapped: bool = False
    end: dict[str, Any] = field(default_factory=dict)

    @property
    def value(self) -> Any:
        """The value that came so far, as JSON."""
        return self.merged.plain() if isinstance(self.merged, Merged) else self.merged

    @property
    def streams(self) -> bool:
        """True if further text deltas can be passed to the builder directly."""
        return self.opened and self.type == "text" and not self.done

    @property
    def is_complete(self) -> bool:
        """True if it has ended, so that a content without an index cannot continue it."""
        return self.done or self.final

    @property
    def repetition_key(self) -> str | None:
        """A key that equals the one of a repetition of this content; None if it is empty."""
        if self.kind in PART_KINDS:
            return self.pieces.text or None
        return _key_of_value(self.value if self.kind in ("unknown", "media") else {"data": self.value}, self.kind)


def _key_of_value(value: Any, kind: str) -> str:
    """Return a text that is equal for equal values; of media and data, only the payload counts."""
    if kind == "media":
        value = [value.get(name) for name in MEDIA_FIELDS]
    elif kind != "unknown":
        value = value.get("data")
    return json.dumps(value, sort_keys=True)


def event_repetition_key(kind: str, event: dict[str, Any], name: str) -> str | None:
    """Return the key of an event without an index, if it may repeat a finished content of this kind."""
    if event.get("delta") is True:
        return None
    if kind in PART_KINDS:
        text = event.get(name)
        return text if isinstance(text, str) and text else None
    return _key_of_value(payload_of(event) if kind == "unknown" else event, kind)


@dataclass(slots=True)
class _TypedContents:
    """The indexes of contents of one type, the number of finished ones, and their indexes by repetition key."""

    indexes: list[int] = field(default_factory=list)
    finished: int = 0
    index_by_key: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Message:
    """One message of the stream; the object itself is the builder's key of the message.

    `implied`: only contents of it were received, so that its kind is inferred. `end`: the fields of an end other than
    completion.
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
    by_type: dict[str, _TypedContents] = field(default_factory=dict)
    next_index: int = 0

    @property
    def known(self) -> bool:
        return is_known(self.kind)

    def content(self, event: dict[str, Any]) -> Content | None:
        """Return the content of an event; None without a type, or if the message is passed on whole."""
        if not self.known:
            self.raw.append(event)
            return None
        kind = event.get("type")
        if not isinstance(kind, str) or not kind:
            return None
        kind, index = content_type(kind), event.get("index")
        if not isinstance(index, int) or isinstance(index, bool):
            # A call in one piece and all of langgraph come without an index (capture `langgraph_tool`).
            index = self._index_of(kind, event)
        elif self.id is None and (index, kind) in self.contents and self.contents[index, kind].is_complete:
            # Contents without a message all have index 0.
            index = self._index_of(kind, event)
        return self._content_at(index, kind, event)

    def _content_at(self, index: int, kind: str, event: dict[str, Any]) -> Content:
        content = self.contents.get((index, kind))
        if content is None:
            content = self.contents[index, kind] = Content(kind, self._content_kind(kind, event.get("data")))
            self.by_type.setdefault(kind, _TypedContents()).indexes.append(index)
            self.next_index = max(self.next_index, index + 1)
        return content

    def _index_of(self, kind: str, event: dict[str, Any]) -> int:
        """Return the index for an event without one: of an incomplete content, or of one with the same value."""
        typed = self.by_type.get(kind)
        if typed is None:
            return self.next_index
        while (
            typed.finished < len(typed.indexes)
            and (content := self.contents[typed.indexes[typed.finished], kind]).is_complete
        ):
            if (key := content.repetition_key) is not None:
                typed.index_by_key.setdefault(key, typed.indexes[typed.finished])
            typed.finished += 1
        content_kind = self.contents[typed.indexes[0], kind].kind
        index = typed.index_by_key.get(event_repetition_key(content_kind, event, kind) or "")
        if index is not None:
            return index
        return typed.indexes[typed.finished] if typed.finished < len(typed.indexes) else self.next_index

    def repeated_contents(self, items: object) -> Iterator[tuple[Content, dict[str, Any]]]:
        """Yield the contents in the object of a known message, with their normalized objects.

        Those without an index (capture `plugin_call`) are matched by their order within their type.
        """
        counts: dict[str, int] = {}
        known = {kind: sorted(typed.indexes) for kind, typed in self.by_type.items()}
        for item in items if isinstance(items, list) else ():
            if not isinstance(item, dict) or not isinstance(item.get("type"), str) or not item["type"]:
                continue
            normalized_item = normalized(item)
            kind, index = content_type(normalized_item["type"]), normalized_item.get("index")
            position = counts[kind] = counts.get(kind, -1) + 1
            if not isinstance(index, int) or isinstance(index, bool):
                indexes = known.get(kind, [])
                index = indexes[position] if position < len(indexes) else self.next_index
            yield self._content_at(index, kind, normalized_item), normalized_item

    def accepts(self, event: dict[str, Any]) -> bool:
        """Return whether a content without a message id may belong to this message, the last that was opened."""
        kind, data = event.get("type"), event.get("data")
        if kind == "data" and isinstance(data, dict):
            if "arguments" in data:
                return self.kind in CALLS or self.kind == "mcp_approval_request"
            if "output" in data:
                return self.kind in OUTPUTS
        return self.kind == "message" or (self.kind == "reasoning" and kind == "text")

    def is_repeated_by(self, event: dict[str, Any]) -> bool:
        """Return whether a completed message may be the one that contents without `msg_id` belong to."""
        sent = next((c.pieces.text for c in self.contents.values() if c.type == "text"), "")
        items = event.get("content")
        texts = [i.get("text") for i in items if isinstance(i, dict)] if isinstance(items, list) else []
        text = next((t for t in texts if isinstance(t, str)), "")
        return not text or text.startswith(repair(sent))

    def _content_kind(self, kind: str, data: object) -> str:
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
        # The kind of contents without a message (null msg_id) is inferred from their keys.
        keys = data if isinstance(data, dict) and self.id is None else {}
        return "call" if "arguments" in keys else "output" if "output" in keys else "data"
