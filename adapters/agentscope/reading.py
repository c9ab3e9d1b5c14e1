"""What the decoder remembers of messages and contents, and how contents become events (section 17, rules 6-9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bridge.model import Builder, PartKind
from bridge.model.builder import mend

from .contents import (
    CALLS,
    CONTENT_TYPES,
    NAME,
    OUTPUTS,
    arguments_of,
    call_of,
    metadata_note,
    origin_of,
    own,
    part_of,
    reasoning_of,
    result_of,
)
from .spelling import plain

_PLAIN_KINDS = frozenset({"message", "reasoning", "mcp_approval_request"})
_MEDIA_FIELDS = ("image_url", "video_url", "file_url", "file_data", "data")
_ONCE = ("call_id", "name", "server_label", "id")
_MERGE_DEPTH = 50
_PART_KINDS = {"text": PartKind.TEXT, "refusal": PartKind.REFUSAL, "reasoning": PartKind.REASONING}


def is_known(kind: str) -> bool:
    """Whether messages of this type are understood here; others pass as a whole."""
    return kind in _PLAIN_KINDS or kind in CALLS or kind in OUTPUTS


@dataclass(eq=False, slots=True)
class Content:
    """One content; the object itself is the builder's key of its part.

    `kind` is what it becomes: text, refusal, reasoning, call, output, media, data, approval. `pieces` is what was
    passed on, `value` what was accumulated of anything but text, `opened` whether a part was opened for it.
    """

    type: str
    kind: str
    pieces: list[str] = field(default_factory=list)
    value: Any = None
    opened: bool = False
    done: bool = False
    wrapped: bool = False

    @property
    def streams(self) -> bool:
        """Whether further pieces of text go straight to the builder."""
        return self.opened and self.type == "text" and not self.done

    def repeats(self, event: dict[str, Any]) -> bool:
        """Whether an event that names no place says again what was said to the end."""
        if not self.done or event.get("delta") is True:
            return False
        if self.kind in _PART_KINDS:
            return bool(self.pieces) and event.get(self.type) == "".join(self.pieces)
        if self.kind == "media":
            return all(self.value.get(f) == event.get(f) for f in _MEDIA_FIELDS)
        return bool(self.value == event.get("data"))


@dataclass(eq=False, slots=True)
class Message:
    """One message of the wire; the object itself is the builder's key of the message.

    `implied` says that only contents of it were seen, so that its kind is a guess.
    """

    id: str | None
    kind: str
    role: str
    contents: dict[tuple[int, str], Content] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    raw: list[dict[str, Any]] = field(default_factory=list)
    done: bool = False
    implied: bool = False

    @property
    def known(self) -> bool:
        return is_known(self.kind)

    def content(self, event: dict[str, Any]) -> Content | None:
        """The content that an event speaks of; None when no content type fits or the message passes as a whole."""
        if not self.known:
            self.raw.append(event)
            return None
        kind = event.get("type")
        if not isinstance(kind, str) or kind.lower() not in CONTENT_TYPES:
            return None
        kind, index = kind.lower(), event.get("index")
        if not isinstance(index, int) or isinstance(index, bool):
            # A call in one piece and all of langgraph come without an index (capture `langgraph_tool`).
            index = self._place_of(kind, event)
        elif self.id is None and (index, kind) in self.contents and self.contents[index, kind].done:
            # Contents without a message all say index 0.
            index = self._place_of(kind, event)
        return self._at(index, kind, event)

    def _at(self, index: int, kind: str, event: dict[str, Any]) -> Content:
        found = self.contents.get((index, kind))
        if found is None:
            found = self.contents[index, kind] = Content(kind, self._role_of(kind, event.get("data")))
        return found

    def _place_of(self, kind: str, event: dict[str, Any]) -> int:
        """Where a content without an index belongs: to one that is not complete, or that says the very same."""
        same = ((i, c) for (i, t), c in self.contents.items() if t == kind)
        return next((i for i, c in same if not c.done or c.repeats(event)), self._free)

    @property
    def _free(self) -> int:
        return max((i for i, _ in self.contents), default=-1) + 1

    def retold(self, items: object) -> Iterator[tuple[Content, dict[str, Any]]]:
        """The contents that the object of a known message repeats, with what it says of each.

        Those without an index (capture `plugin_call`) are the first, second ... of their type.
        """
        counts: dict[str, int] = {}
        for item in items if isinstance(items, list) else ():
            if not isinstance(item, dict) or not isinstance(item.get("type"), str):
                continue
            said = plain(item)
            kind, index = said["type"].lower(), said.get("index")
            if kind not in CONTENT_TYPES:
                continue
            nth = counts[kind] = counts.get(kind, -1) + 1
            if not isinstance(index, int) or isinstance(index, bool):
                same = sorted(i for i, t in self.contents if t == kind)
                index = same[nth] if nth < len(same) else self._free
            yield self._at(index, kind, said), said

    def takes(self, event: dict[str, Any]) -> bool:
        """Whether a content that names no message may belong to this one, the last that was opened."""
        kind, data = event.get("type"), event.get("data")
        if kind == "data" and isinstance(data, dict):
            if "arguments" in data:
                return self.kind in CALLS or self.kind == "mcp_approval_request"
            if "output" in data:
                return self.kind in OUTPUTS
        return self.kind == "message" or (self.kind == "reasoning" and kind == "text")

    def repeated_by(self, event: dict[str, Any]) -> bool:
        """Whether a completed message may be the one to which contents without `msg_id` belong."""
        sent = next(("".join(c.pieces) for c in self.contents.values() if c.type == "text"), "")
        items = event.get("content")
        texts = [i.get("text") for i in items if isinstance(i, dict)] if isinstance(items, list) else []
        said = next((t for t in texts if isinstance(t, str)), "")
        return not said or said.startswith(mend(sent))

    def _role_of(self, kind: str, data: object) -> str:
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


class Writer:
    """Tells the builder what contents say, each fact once."""

    def __init__(self, builder: Builder, make_id: Callable[[str], str]) -> None:
        self.make_id = make_id
        self._builder = builder
        self.spoken = 0
        """How many pieces of an answer went out: an error that is reported before one was not the end."""
        self._held: dict[Content, Message] = {}
        self._calls: dict[str, bool] = {}
        self._loose: set[tuple[str, str]] = set()

    def tell(self, message: Message, content: Content, event: dict[str, Any], ragged: str | None) -> None:
        """One content event: a delta, a snapshot, or the final value."""
        if content.done:
            return
        final = event.get("status") == "completed" and event.get("delta") is not True
        if content.kind in _PART_KINDS:
            self._text(message, content, event, final, ragged)
        else:
            self._accumulate(content, event)
            if content.kind == "call":
                self._call_piece(message, content, event)
            if final:
                self._whole(message, content)
            else:
                self._held[content] = message

    def finish(self, message: Message, *, complete: bool) -> None:
        """The message is over: what its contents hold back is their value, unless it failed."""
        for content in message.contents.values():
            if content.kind in _PART_KINDS:
                content.done = True
                self._end_text(message, content)
            elif not content.done and (complete or content.kind == "media"):
                self._whole(message, content)

    def flush_held(self) -> None:
        """Pictures whose completion never comes (capture `text_and_image`) go out when something else begins."""
        for content, message in list(self._held.items()):
            if content.kind in ("media", "data") and not content.done:
                self._whole(message, content)

    # ------------------------------------------------------------------ text

    def _text(self, message: Message, content: Content, event: dict[str, Any], final: bool, ragged: str | None) -> None:
        text = event.get(content.type)
        text = text if isinstance(text, str) else ""
        if event.get("delta") is True:
            self._pass(message, content, text, ragged)
            return
        # A snapshot or the final value replaces what came before: only what it adds can still be told.
        self._rest(message, content, text)
        if final:
            content.done = True
            if content.kind != "reasoning":
                self._builder.end_part(content)

    def _end_text(self, message: Message, content: Content) -> None:
        """Reasoning ends with its message, whose metadata may hold the signature that belongs to it."""
        if content.kind != "reasoning":
            self._builder.end_part(content)
            return
        note = reasoning_of("", message.metadata)
        if note.signature is not None or note.redacted is not None:
            self._open_text(message, content)
        self._builder.end_part(content, signature=note.signature, redacted=note.redacted)

    def _rest(self, message: Message, content: Content, text: str) -> None:
        sent = "".join(content.pieces)
        if not text.startswith(sent):
            sent = mend(sent)
        if text.startswith(sent):
            self._pass(message, content, text[len(sent) :], None)

    def _pass(self, message: Message, content: Content, text: str, ragged: str | None) -> None:
        if not text:
            return
        self._open_text(message, content)
        self.spoken += content.kind != "reasoning"
        content.pieces.append(text if ragged is None else ragged)
        if ragged is None:
            self._builder.delta(content, text)
        else:
            self._builder.ragged(content, ragged)

    def _open_text(self, message: Message, content: Content) -> None:
        if not content.opened:
            content.opened = True
            self._open_message(message)
            self._builder.open_part(content, message, _PART_KINDS[content.kind])

    def _open_message(self, message: Message) -> None:
        self._builder.message(message, message_id=message.id, role=message.role)

    # ------------------------------------------------------------------ calls, outputs, data, media

    def _accumulate(self, content: Content, event: dict[str, Any]) -> None:
        """Deltas are merged, everything else replaces (section 15); media are kept as the whole content.

        Of a call and an output each field is replaced apart, since some servers complete them with less than all.
        """
        delta = event.get("delta") is True
        if content.kind == "media":
            content.value = _join_media(content.value, event) if delta and content.value else dict(event)
            return
        data = event.get("data")
        if event.get("wrapped") is True and isinstance(data, dict):
            content.value = data.get("value")
            content.wrapped = True
        elif delta and isinstance(content.value, dict) and isinstance(data, dict):
            content.value = merge(content.value, data, once=_ONCE if content.kind in ("call", "output") else ())
        elif content.kind in ("call", "output") and isinstance(content.value, dict) and isinstance(data, dict):
            content.value = {**content.value, **{k: v for k, v in data.items() if v not in (None, "")}}
        elif data is not None:
            content.value = data

    def _call_piece(self, message: Message, content: Content, event: dict[str, Any]) -> None:
        """True argument deltas go on at once; snapshots wait, since one need not begin the next (section 8)."""
        if event.get("delta") is not True or not isinstance(content.value, dict):
            return
        arguments, sent = arguments_of(content.value.get("arguments")), "".join(content.pieces)
        if content.value.get("name") and arguments.startswith(sent):
            self._open_call(message, content)
            if arguments != sent:
                content.pieces.append(arguments[len(sent) :])
                self._builder.delta(content, content.pieces[-1])

    def _open_call(self, message: Message, content: Content) -> None:
        """Opens the call's part. A call without an id gets one, which the next lonely output shares (section 14)."""
        if content.opened:
            return
        content.opened = True
        kind = message.kind if message.kind in CALLS else "plugin_call"
        data = content.value if isinstance(content.value, dict) else {}
        said = data.get("call_id")
        call_id = said if isinstance(said, str) and said else self.make_id("call")
        self._calls.setdefault(call_id, call_id != said)
        if message.id is None:
            self._loose.add(("call", call_id))
        call = call_of(kind, data, message.metadata, call_id)
        self._open_message(message)
        self._builder.open_part(
            content, message, PartKind.TOOL_CALL, call_id=call_id, name=call.name,
            origin=origin_of(kind, message.metadata), server_label=call.server_label, extras=call.extras,
        )  # fmt: skip

    def _whole(self, message: Message, content: Content) -> None:
        content.done = True
        self._held.pop(content, None)
        match content.kind:
            case "call":
                self._end_call(message, content)
            case "output":
                self._output(message, content)
            case "media":
                self._add(message, content.value)
            case "data":
                wrapped = {"data": {"value": content.value}, "wrapped": True}
                self._add(message, {"type": "data", **(wrapped if content.wrapped else {"data": content.value})})
            case _:
                pass

    def _add(self, message: Message, content: dict[str, Any]) -> None:
        part = part_of(plain(content))
        if part is not None:
            self.spoken += 1
            self._open_message(message)
            self._builder.add(message, part)

    def _end_call(self, message: Message, content: Content) -> None:
        self._open_call(message, content)
        data = content.value if isinstance(content.value, dict) else {}
        arguments, sent = arguments_of(data.get("arguments")), "".join(content.pieces)
        if arguments.startswith(sent):
            self._builder.delta(content, arguments[len(sent) :])
        self._builder.end_part(content)

    def _output(self, message: Message, content: Content) -> None:
        data = content.value if isinstance(content.value, dict) else {}
        kind = message.kind if message.kind in OUTPUTS else "plugin_call_output"
        result = result_of(kind, data, message.metadata, self._partner(data.get("call_id")))
        if message.id is None:
            self._loose.add(("output", result.call_id))
        self._builder.result(
            result.call_id, result.parts, name=result.name, is_error=result.is_error, message_id=message.id,
            extras={NAME: {**own(result.extras), **metadata_note(message.metadata)}},
        )  # fmt: skip

    def _partner(self, said: object) -> str:
        """The call that an output answers: its own id, else the oldest call to which we had to give one."""
        named = said if isinstance(said, str) and said else None
        if named in self._calls:
            return str(named)
        open_calls = self._builder.open_calls
        lonely = [c for c in open_calls if self._calls.get(c)]
        candidates = lonely or ([named] if named else open_calls)
        return candidates[0] if candidates else self.make_id("call")

    def knows(self, kind: str, item: dict[str, Any]) -> bool:
        """Whether the calls or outputs of a message object were told by contents without a message."""
        if kind not in CALLS and kind not in OUTPUTS:
            return False
        what = "call" if kind in CALLS else "output"
        contents = item.get("content")
        data = [c.get("data") for c in contents if isinstance(c, dict)] if isinstance(contents, list) else []
        ids = [d.get("call_id") for d in data if isinstance(d, dict)]
        return bool(ids) and all(isinstance(i, str) and (what, i) in self._loose for i in ids)


def _join_media(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Python's own client appends an address, the web frontend replaces it: an address that begins anew replaces."""
    joined = {**old, **{k: v for k, v in new.items() if v is not None}}
    for name in _MEDIA_FIELDS:
        before, after = old.get(name), new.get(name)
        anew = isinstance(after, str) and (after.startswith("data:") or "://" in after)
        if isinstance(before, str) and isinstance(after, str) and not anew:
            joined[name] = before + after
    return joined


def merge(old: dict[str, Any], new: dict[str, Any], *, once: tuple[str, ...] = (), depth: int = 0) -> dict[str, Any]:
    """Joins a data delta key by key as the original builder does (capture `builder_data_merge`).

    Keys in `once` are never joined: servers repeat a call's name and id beside each piece of its arguments.
    """
    out = dict(old)
    for key, value in new.items():
        before = out.get(key)
        if key in once:
            out[key] = value if value is not None and not before else before
        elif key not in out or depth > _MERGE_DEPTH:
            out[key] = value
        elif isinstance(before, dict) and isinstance(value, dict):
            out[key] = merge(before, value, depth=depth + 1)
        elif _joins(before, value):
            out[key] = before + value
        elif value is not None or not once:
            out[key] = value
    return out


def _joins(before: object, value: object) -> bool:
    if isinstance(before, (str, list)):
        return isinstance(value, type(before))
    return _number(before) and _number(value)


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
