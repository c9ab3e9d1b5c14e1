"""Output items of a backend -> facts for the builder, whether they come in pieces or whole.

An item is identified by its id, else by its index: some servers use the same index for every item, others a new id in
every event. What came in pieces is not repeated by events with the whole text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bridge.dialects.openai_responses.wire import (
    CONTENT,
    NAME,
    PARAGRAPH,
    SUMMARY,
    noted,
    rest,
)
from bridge.model import (
    Builder,
    Inline,
    Media,
    MediaKind,
    MessageStatus,
    PartKind,
    Raw,
    unseal,
)
from bridge.model.jsontext import arguments_text, dict_of, dicts_of, text_of
from bridge.toolkit.citations import with_citations
from bridge.toolkit.logprobs import shared_logprobs

Wire = dict[str, Any]
Key = tuple[int, str, int]

KINDS = {"output_text": PartKind.TEXT, "text": PartKind.TEXT, "refusal": PartKind.REFUSAL}
_MESSAGE = frozenset({"type", "id", "status", "role", "content"})
_CALL = frozenset({"type", "id", "status", "call_id", "name", "arguments"})
_REASONING = frozenset({"type", "id", "summary", "content", "encrypted_content"})
_PART = frozenset({"type", "text", "refusal"})
_STATUSES = {"incomplete": MessageStatus.INCOMPLETE, "failed": MessageStatus.FAILED}


@dataclass(slots=True)
class Item:
    """An item of the answer. `number` is its key in the builder, `said` what has come of it.

    `kind` is empty for what has no place in the model.
    """

    number: int
    kind: str
    value: Wire
    index: Any = None
    over: bool = False
    said: set[Key] = field(default_factory=set)
    ended: set[Key] = field(default_factory=set)
    annotations: dict[Key, list[Any]] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    spot: Key | None = None

    @property
    def id(self) -> str:
        return text_of(self.value.get("id"))


class Items:
    """All items of one answer, in order."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._all: list[Item] = []
        self._by_id: dict[str, Item] = {}
        self._by_index: dict[int, Item] = {}
        self._by_place: dict[tuple[int | None, str], Item] = {}  # the last one of its kind there
        self._implied: dict[str, Item] = {}  # by kind, items of which only pieces came, and neither id nor place

    # ------------------------------------------------------------------ which one

    def find(self, event: Wire) -> Item | None:
        """Return the item of an event: that with its id, else the last one with its index, else the last one."""
        wanted, index = event.get("item_id"), event.get("output_index")
        found = self._by_id.get(wanted) if type(wanted) is str else None
        if found is not None:
            return found
        if type(index) is int:
            return self._by_index.get(index)
        return self._all[-1] if self._all else None

    def same(self, value: Wire, index: Any) -> Item | None:
        """Return the item that is finished: that with its id, else one of its kind at its index."""
        found = self._by_id.get(text_of(value.get("id")))
        if found is not None:
            return found
        if (implied := self._implied.pop(text_of(value.get("type")), None)) is not None and not implied.over:
            return implied
        return self._by_place.get((index, text_of(value.get("type")))) if index is None or type(index) is int else None

    def is_open(self, value: Wire, index: Any) -> bool:
        """Return whether this item has begun already, at this place, and is not over: some servers say so twice."""
        found = self._by_id.get(text_of(value.get("id")))
        return found is not None and not found.over and found.index == index

    # ------------------------------------------------------------------ life

    def imply(self, kind: str, item_id: Any, index: Any) -> Item:
        """Return the item of a piece that came before it, or without it (openai/codex#12798)."""
        open_one = self._implied.get(kind)
        if open_one is not None and not open_one.over and not item_id and type(index) is not int:
            return open_one
        item = self._implied[kind] = self.add({"type": kind, "id": item_id}, index)
        return item

    def add(self, value: Wire, index: Any) -> Item:
        """A new item."""
        item = Item(len(self._all), text_of(value.get("type")) if is_known(value) else "", value, index)
        self._all.append(item)
        if item.id:
            self._by_id.setdefault(item.id, item)
        if type(index) is int:
            self._by_index[index] = item
        if index is None or type(index) is int:
            self._by_place[index, text_of(value.get("type"))] = item
        if item.kind == "message":
            extras = noted(id=item.id, item=rest(value, _MESSAGE))
            self._builder.message(item.number, message_id=item.id or None, extras=extras)
        elif item.kind == "function_call" and value.get("name"):
            self._open_call(item)
        return item

    def end(self, item: Item, value: Wire) -> None:
        """The item is over, and this is all of it."""
        if item.over:
            return
        item.value = {**item.value, **value}
        match item.kind:
            case "message":
                for index, part in enumerate(dicts_of(item.value.get("content"))):
                    self.end_text(item, index, part)
            case "function_call":
                self._end_call(item)
            case "reasoning":
                self._end_reasoning(item)
            case "image_generation_call":
                self._image(item)
            case _:
                self._pass_on(item)
        item.over = True
        status = text_of(item.value.get("status"))
        self._builder.end_message(item.number, _STATUSES.get(status, MessageStatus.COMPLETED))

    def _pass_on(self, item: Item) -> None:
        """The item as it came, for clients of this dialect."""
        fields = {"type": "response.output_item.done", "output_index": item.index, "item": item.value}
        self._builder.emit(Raw(NAME, fields))

    # ------------------------------------------------------------------ pieces

    def open_text(self, item: Item, index: Any, kind: PartKind) -> Key:
        """The key of a text or refusal, which is open after this."""
        key = (item.number, kind.value, _number(index))
        self._builder.open_part(key, item.number, kind)
        return key

    def text(self, item: Item, index: Any, kind: PartKind, text: str, logprobs: Any = None) -> Key:
        """A piece of a text or refusal; the key of that part."""
        key = self.open_text(item, index, kind)
        item.said.add(key)
        self._builder.delta(key, text, shared_logprobs(logprobs))
        return key

    def go_on(self, key: Key, text: str) -> bool:
        """A further piece of the part `key`; False when that one is over."""
        if self._builder.part(key) is None:
            return False
        self._builder.delta(key, text)
        return True

    def whole_text(self, item: Item, index: Any, kind: PartKind, text: str, logprobs: Any = None) -> None:
        """Read a whole text, if no piece of it came before."""
        if text and (item.number, str(kind), _number(index)) not in item.said:
            self.text(item, index, kind, text, logprobs)

    def end_text(self, item: Item, index: Any, part: Wire) -> None:
        """The end of a text or refusal, with all of it; a part of another kind is no text."""
        kind = KINDS.get(text_of(part.get("type")))
        key = (item.number, str(kind), _number(index))
        if kind is None or key in item.ended:
            return
        item.ended.add(key)
        self.open_text(item, index, kind)
        self.whole_text(item, index, kind, text_of(part.get("text") or part.get("refusal")), part.get("logprobs"))
        more = {k: v for k, v in rest(part, _PART).items() if v != []}
        if key in item.annotations:
            more.setdefault("annotations", item.annotations[key])
        annotations = more.get("annotations")
        extras = with_citations(noted(part=more), annotations if isinstance(annotations, list) else [])
        self._builder.end_part(key, extras=extras)

    def annotate(self, item: Item, index: Any, annotation: Any) -> None:
        key = self.open_text(item, index, PartKind.TEXT)
        item.annotations.setdefault(key, []).append(annotation)

    def whole_arguments(self, item: Item, text: str) -> None:
        if text and self._lacks_arguments(item):
            self.arguments(item, text)

    def _lacks_arguments(self, item: Item) -> bool:
        """Return whether no piece of the arguments came, except a placeholder."""
        key = (item.number, "call", 0)
        part = self._builder.part(key)
        return key not in item.said or (part is not None and part.fresh)

    def arguments(self, item: Item, text: str) -> Key:
        """A piece of a call's arguments; the key of that part. It is kept back as long as the call has no name."""
        key = (item.number, "call", 0)
        item.said.add(key)
        if self._builder.part(key) is None:
            item.held.append(text)
        else:
            self._builder.delta(key, text)
        return key

    def thought(self, item: Item, form: str, index: Any, text: str) -> Key:
        """A piece of reasoning; the key of it. Parts of an item are one text for other dialects, a paragraph each."""
        key, spot = self._open_reasoning(item, form), (item.number, form, _number(index))
        if item.spot is not None and item.spot != spot:
            self._builder.delta(key, PARAGRAPH, noted(border=form))
        item.spot = spot
        item.said.add(spot)
        self._builder.delta(key, text)
        return key

    def whole_thought(self, item: Item, form: str, index: Any, text: str) -> None:
        if text and (item.number, form, _number(index)) not in item.said:
            self.thought(item, form, index, text)

    # ------------------------------------------------------------------ ends

    def _open_call(self, item: Item) -> None:
        value = item.value
        self._builder.open_part(
            (item.number, "call", 0),
            item.number,
            PartKind.TOOL_CALL,
            call_id=text_of(value.get("call_id")) or item.id or None,
            name=text_of(value.get("name")),
            extras=noted(id=item.id, item=rest(value, _CALL)),
        )

    def _end_call(self, item: Item) -> None:
        key = (item.number, "call", 0)
        if self._builder.part(key) is None:
            self._open_call(item)
            for piece in item.held:
                self._builder.delta(key, piece)
        if self._lacks_arguments(item):
            self._builder.delta(key, arguments_text(item.value.get("arguments")))
        more = rest(item.value, _CALL)
        if item.value.get("status") == "incomplete":
            more["status"] = "incomplete"
        self._builder.end_part(key, extras=noted(id=item.id, item=more))

    def _open_reasoning(self, item: Item, form: str) -> Key:
        key = (item.number, "reasoning", 0)
        extras = noted(id=item.id, form=form, item=rest(item.value, _REASONING))
        self._builder.open_part(key, item.number, PartKind.REASONING, extras=extras)
        return key

    def _end_reasoning(self, item: Item) -> None:
        for form in (SUMMARY, CONTENT):
            for index, part in enumerate(dicts_of(item.value.get(form))):
                self.whole_thought(item, form, index, text_of(part.get("text")))
        form = item.spot[1] if item.spot else SUMMARY
        key = self._open_reasoning(item, form)
        signature, redacted = unseal(text_of(item.value.get("encrypted_content")))
        extras = noted(id=item.id, form=form, item=rest(item.value, _REASONING))
        self._builder.end_part(key, signature=signature, redacted=redacted, extras=extras)

    def _image(self, item: Item) -> None:
        """A picture that a tool of the backend made; its own clients get the item."""
        data = text_of(item.value.get("result"))
        format = text_of(item.value.get("output_format")) or "png"
        if data:
            picture = Media(MediaKind.IMAGE, Inline(data), f"image/{format}", extras=noted(whole=item.value))
            self._builder.add(item.number, picture)
        else:
            self._pass_on(item)


def is_known(value: Wire) -> bool:
    """Return whether the model has a place for an item; all others pass unchanged."""
    match value.get("type"):
        case "message":
            return bool(value.get("role", "assistant") == "assistant")
        case "function_call" | "reasoning" | "image_generation_call":
            return True
    return False


def _number(index: Any) -> int:
    return index if isinstance(index, int) else 0


def response_in(event: Wire) -> Wire:
    """The response object of an event of its life; some servers put its fields into the event itself."""
    return dict_of(event.get("response")) or event
