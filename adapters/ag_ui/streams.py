"""The open parts of a backend's stream: texts, calls, reasoning and chunks, and their messages.

Texts and reasoning begin with their first piece, so that an empty message, by which some agents announce the parent of
a call (capture pyd-tool-turn1), does not become an empty answer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from bridge.dialects.ag_ui.parts import tolerant_parts
from bridge.dialects.ag_ui.wire import attached, camel, is_result_error, noted
from bridge.model import Builder, PartKind, unseal
from bridge.model.jsontext import arguments_text, text_of

_Event = dict[str, Any]
_TEXT = frozenset({"TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"})
_REASONING = frozenset({"REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT"})
_FOREIGN = frozenset({"user", "system", "developer"})


class Streams:
    """Keys of text parts are their wire ids; those of calls and reasoning are pairs.

    `live` contains for events with pieces the field of their id and the open parts; `unsettled` is set while a chunk or
    an ended text or reasoning waits for what follows; `texted` and `thought` are set if there was text and reasoning,
    `called` contains the calls.
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._texts: dict[str, Hashable] = {}
        # Open texts by their owner and by whether an event began them; of each text that pair.
        self._speech: dict[tuple[str | None, bool], dict[str, None]] = {}
        self._speakers: dict[str, tuple[str | None, bool]] = {}
        self._calls: dict[str, Hashable] = {}
        self._thoughts: dict[str, Hashable] = {}
        self.live: dict[str, tuple[str, dict[str, Hashable]]] = {
            "TEXT_MESSAGE_CONTENT": ("messageId", self._texts),
            "TOOL_CALL_ARGS": ("toolCallId", self._calls),
            "REASONING_MESSAGE_CONTENT": ("messageId", self._thoughts),
        }
        self.called: set[str] = set()
        self._over: set[str] = set()  # calls that ended and wait for a result
        self._answered: set[str] = set()  # calls whose result was in a snapshot
        self.unsettled = False
        self.texted = False
        self.thought = False
        self.thinking = "thinking-1"
        self._announced: dict[str, _Event] = {}
        self._foreign: set[str] = set()
        # Of open parts their messages, of messages how many parts are open, and open messages without any.
        self._owners: dict[Hashable, Hashable] = {}
        self._busy: dict[Hashable, int] = {}
        self._idle: dict[Hashable, None] = {}
        self._turn: Hashable | None = None
        self._turns = 0
        self._thinkings = 1
        # By owner: the kind of the open chunks and their ids, the last of which continues if a chunk has no id.
        self._chunks: dict[str | None, tuple[str, dict[str, None]]] = {}
        self._last: dict[tuple[str | None, str], str] = {}
        self._ending: str | None = None
        self._closing: tuple[str, _Event] | None = None
        self._secrets: dict[str, str] = {}

    # -------------------------------------------------------------- messages

    def _open_message(self, key: Hashable, message_id: str | None, name: str | None = None) -> None:
        """Opens a message; those before it that have nothing open are over."""
        if self._builder.is_open(key):
            return
        idle, self._idle = self._idle, {}
        for other in idle:
            self._builder.end_message(other)
        self._builder.message(key, message_id=message_id, name=name)

    def _own(self, key: Hashable, message: Hashable) -> None:
        """Part `key` of `message` is open."""
        self._owners[key] = message
        self._busy[message] = self._busy.get(message, 0) + 1
        self._idle.pop(message, None)

    def _disown(self, key: Hashable) -> None:
        """Part `key` is over, and perhaps the last one of its message."""
        message = self._owners.pop(key, None)
        if message is None:
            return
        self._busy[message] -= 1
        if not self._busy[message]:
            del self._busy[message]
            self._idle[message] = None

    def _put(self, key: Hashable, delta: Any) -> None:
        text = arguments_text(delta)
        self._builder.delta(key, text)

    def close(self) -> None:
        """End all messages: another run follows."""
        for message in [*self._busy, *self._idle]:
            self._builder.end_message(message)

    # -------------------------------------------------------------- texts

    def announce(self, event: _Event) -> None:
        key = text_of(event.get("messageId"))
        if text_of(event.get("role")) in _FOREIGN:
            self._foreign.add(key)
        else:
            self._foreign.discard(key)
            self._announced[key] = event

    def text(self, key: str, event: _Event) -> None:
        """A piece of a text; one that was never opened is opened by it."""
        delta = event.get("delta")
        if not isinstance(delta, str) or not delta or key in self._foreign:
            return
        if key not in self._texts:
            start = self._announced.get(key, event)
            speaker = (_owner(start), key in self._announced)
            self._cut_texts((speaker[0], False))  # what did not begin will not end
            self._open_message(key, key or None, text_of(start.get("name")) or None)
            self._builder.open_part(key, key, PartKind.TEXT, extras=noted(attached(start)))
            self._own(key, key)
            self._turn = key
            self._texts[key] = key
            self._speakers[key] = speaker
            self._speech.setdefault(speaker, {})[key] = None
            self.texted = True
        self._put(key, delta)

    def close_text(self, key: str, event: _Event) -> None:
        """The text is over, unless it continues at once: some agents begin and end it around each piece
        (agno-agi/agno#4620).
        """
        self._foreign.discard(key)
        if key in self._texts:
            self._closing, self.unsettled = (key, event), True

    def reopen(self, event: _Event) -> bool:
        """Return whether the event continues the text or reasoning that ended just before, which then did not."""
        name, kind = event.get("messageId"), event.get("type")
        if self._closing is not None and name == self._closing[0] and kind in _TEXT:
            self._closing = None
        elif self._ending and name == self._ending and kind in _REASONING:
            self._ending = None
        else:
            return False
        self._note_unsettled()
        return True

    def _note_unsettled(self) -> None:
        self.unsettled = bool(self._chunks) or self._ending is not None or self._closing is not None

    def end_text(self, key: str, event: _Event | None = None) -> None:
        self._foreign.discard(key)
        if self._texts.pop(key, None) is not None:
            del self._speech[self._speakers.pop(key)][key]
            self._disown(key)
            self._builder.end_part(key, extras=noted(attached(event)) if event else None)

    def _cut_texts(self, *speakers: tuple[str | None, bool]) -> None:
        for speaker in speakers:
            for key in list(self._speech.get(speaker, ())):
                self.end_text(key)

    def _interrupt(self, event: _Event) -> None:
        """A call or a result separates texts of its owner.

        Some agents end their texts with the run (capture g2-server-tool of AG-Kit), some never: waiting for that end
        would keep the call from clients that know one open thing at a time.
        """
        owner = _owner(event)
        self._cut_texts((owner, True), (owner, False))

    # -------------------------------------------------------------- calls

    def call(self, event: _Event) -> bool:
        """Begins a call; an id may come again once its call has a result. False when the call is over already."""
        call_id = text_of(event.get("toolCallId"))
        key = ("call", call_id)
        if self._builder.part(key) is not None:
            return True
        if call_id in self._over:
            return False
        self._answered.discard(call_id)
        self._interrupt(event)
        parent = text_of(event.get("parentMessageId"))
        message: Hashable = parent or self._turn
        if message is None or not (parent or self._builder.is_open(message)):
            self._turns += 1
            message = ("turn", self._turns)
        self._open_message(message, parent or None)
        extras = noted({"parent": parent or None, **attached(event)})
        self._builder.open_part(
            key,
            message,
            PartKind.TOOL_CALL,
            call_id=call_id or None,
            name=text_of(event.get("toolCallName")),
            extras=extras,
        )
        self._own(key, message)
        self._turn = message
        self._calls[call_id] = key
        self.called.add(call_id)
        return True

    def arguments(self, call_id: str, event: _Event) -> bool:
        """A piece of a call; one that was never opened is opened by it. False when the call is over already."""
        if self._builder.part(("call", call_id)) is None and (call_id in self.called or not self.call(event)):
            return False
        self._put(("call", call_id), event.get("delta"))
        return True

    def end_call(self, call_id: str, event: _Event | None = None) -> None:
        if self._calls.pop(call_id, None) is not None:
            self._over.add(call_id)
        self._disown(("call", call_id))
        self._builder.end_part(("call", call_id), extras=noted(attached(event)) if event else None)

    def result(self, event: _Event, *, in_snapshot: bool = False) -> bool:
        """A tool ran at the backend; its turn is over. `shown`: AG-UI clients have the result from a snapshot.

        False when such a result comes as an event, too.
        """
        call_id, content = text_of(event.get("toolCallId")), event.get("content")
        if call_id in self._answered:
            return False
        if in_snapshot:
            self._answered.add(call_id)
        self.end_call(call_id)
        self._interrupt(event)
        self._over.discard(call_id)
        self._turn = None
        listed = isinstance(content, list) or None
        extras = noted({"listed": listed, "snapshot": in_snapshot or None, **attached(event)})
        message_id = text_of(event.get("messageId")) or None
        is_error = is_result_error(event) or (in_snapshot and bool(text_of(event.get("error"))))
        parts = tolerant_parts(content)
        self._builder.result(call_id, parts, is_error=is_error, message_id=message_id, extras=extras)
        return True

    def results_in(self, messages: list[Any]) -> None:
        """Read the results in a snapshot: LlamaIndex agents send no event for results of their own tools."""
        for message in messages:
            wire = camel(message) if isinstance(message, dict) else {}
            call_id = text_of(wire.get("toolCallId"))
            if wire.get("role") == "tool" and (call_id in self._over or call_id in self._calls):
                self.result({**wire, "messageId": wire.get("id")}, in_snapshot=True)

    # -------------------------------------------------------------- reasoning

    def _think(self, name: str, event: _Event, named: bool) -> None:
        key = ("reasoning", name)
        if self._builder.part(key) is None:
            self._open_message(key, None)
            owner = noted({"subagentRunId": text_of(event.get("subagentRunId")) or None})
            self._builder.open_part(key, key, PartKind.REASONING, part_id=name if named else None, extras=owner)
            self._own(key, key)
            self._thoughts[name] = key
            self.thought = True

    def reasoning(self, name: str, event: _Event, *, named: bool = True) -> None:
        delta = event.get("delta")
        if isinstance(delta, str) and delta:
            self._think(name, event, named and bool(name))
            self._put(("reasoning", name), delta)

    def begin_thinking(self) -> None:
        self._thinkings += 1
        self.thinking = f"thinking-{self._thinkings}"

    def end_reasoning(self, name: str) -> None:
        """The text is over; an encrypted value may still follow."""
        self._ending = name
        self.unsettled = True

    def encrypted(self, event: _Event) -> bool:
        """Return whether the value belongs to a reasoning that has not ended."""
        name, value = text_of(event.get("entityId")), text_of(event.get("encryptedValue"))
        if event.get("subtype") != "message" or not value:
            return False
        if name != self._ending and self._builder.part(("reasoning", name)) is None:
            return False
        self._think(name, event, bool(name))
        self._secrets[name] = value
        return True

    def settle(self) -> None:
        """Something else came: an ended text or reasoning is really over."""
        if self._closing is not None:
            (closed, event), self._closing = self._closing, None
            self.end_text(closed, event)
            self._note_unsettled()
        if self._ending is None:
            return
        name, self._ending = self._ending, None
        self._note_unsettled()
        value = self._secrets.pop(name, None)
        key = ("reasoning", name)
        self._thoughts.pop(name, None)
        self._disown(key)
        signature, redacted = unseal(value)
        self._builder.end_part(key, signature=signature, redacted=redacted)

    # -------------------------------------------------------------- chunks

    def chunk(self, event: _Event) -> bool:
        """A chunk opens a stream or continues the open one; any other event of its owner ends it.

        Calls continue side by side until something else comes, as the pieces of parallel ones alternate. Return False
        for a piece of a call that is over.
        """
        owner, kind = _owner(event), event["type"]
        field = "toolCallId" if kind == "TOOL_CALL_CHUNK" else "messageId"
        name = text_of(event.get(field)) or self._last.get((owner, kind), "")
        open_kind, names = self._chunks.get(owner, ("", {}))
        fresh = kind != open_kind or name not in names
        if fresh and (kind != open_kind or kind != "TOOL_CALL_CHUNK"):
            self.end_chunk(owner)
            self.settle()
            names = {}
        names[name] = None
        self._chunks[owner] = (kind, names)
        self._last[owner, kind] = name
        self.unsettled = True
        match kind:
            case "TEXT_MESSAGE_CHUNK":
                if fresh:
                    self.announce({**event, "messageId": name})
                self.text(name, event)
            case "TOOL_CALL_CHUNK":
                if fresh and not self.call({**event, "toolCallId": name}):
                    return False
                return self.arguments(name, event)
            case _:
                self.reasoning(name, event)
        return True

    def end_chunk(self, owner: Any) -> None:
        known = self._chunks.pop(owner if isinstance(owner, str) else None, None)
        if known is None:
            return
        self._note_unsettled()
        kind, names = known
        end = _ENDS[kind]
        for name in names:
            end(self, name)


_ENDS: dict[str, Callable[[Streams, str], None]] = {
    "TEXT_MESSAGE_CHUNK": Streams.end_text,
    "TOOL_CALL_CHUNK": Streams.end_call,
    "REASONING_MESSAGE_CHUNK": Streams.end_reasoning,
}


def _owner(event: _Event) -> str | None:
    owner = event.get("subagentRunId")
    return owner if isinstance(owner, str) else None
