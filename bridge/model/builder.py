"""Makes a well-formed stream from loose facts.

Decoders call it with the content of their wire ("text for key k", "call 3 begins", "this item is done", "the wire
ended"), and it opens, closes, names and finishes. Whatever a backend sends, the events obey the grammar: everything
open is closed before the terminal event, and exactly one terminal event comes last.

Keys are the decoder's own names for messages and parts (an index, a wire id); two styles of wire are served:

* explicit wires name their parts: `open_part`, `delta`, `end_part`;
* implicit wires (OpenAI chat) only let text flow: `flow` continues the current part of that kind in a
  message, or ends the flowing part of another kind and begins a new one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from bridge.errors import ErrorCode, Failure
from bridge.model import events as ev
from bridge.model.events import Event, FinishReason, MessageStatus, PartKind
from bridge.model.halves import Halves
from bridge.model.open_part import OpenMessage, OpenPart
from bridge.model.parts import Extras, Origin, Part, Reasoning, Refusal, Text, ToolCall, ToolResult

# Read once: a member of an enumeration is slow to look up in Python 3.11.
_TOOL_CALL, _REASONING = PartKind.TOOL_CALL, PartKind.REASONING
_STOP, _TOOL_CALLS, _INTERRUPTED = FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.INTERRUPTED
_LOOSE = frozenset({_STOP, _TOOL_CALLS, _INTERRUPTED})
"""Reasons that backends confuse: what was seen decides."""
_COMPLETED = MessageStatus.COMPLETED
_CUT = frozenset({MessageStatus.FAILED, MessageStatus.CANCELED})
"""The statuses of messages whose open parts are not complete."""
_STATUSES: dict[FinishReason | None, MessageStatus] = {
    FinishReason.LENGTH: MessageStatus.INCOMPLETE,
    FinishReason.CANCELED: MessageStatus.CANCELED,
}


NO_IDS = frozenset({"", "null", "None", "undefined", "nil"})
"""What servers write in place of an id that they do not have (karthink/gptel#935)."""


class _Closed(list[Event]):
    """Replaces the output once the run is over, so that further events are discarded without a check before."""

    def append(self, event: Event) -> None:
        pass


class _Calls:
    """The calls of an answer.

    Attributes:
        pending: The calls without a result, in order of appearance: the choices in which each was made.
        unanswered: How many of them there are in each choice.
        made_ids: The ids that calls got here, by what stood in the place of an id.
    """

    __slots__ = ("made_ids", "pending", "unanswered")

    def __init__(self) -> None:
        self.pending: OrderedDict[str, set[int]] = OrderedDict()
        self.unanswered: dict[int, int] = {}
        self.made_ids: dict[str | None, str] = {}

    def ask(self, call_id: str, choice: int) -> None:
        """Note a call in a choice."""
        choices = self.pending.setdefault(call_id, set())
        if choice not in choices:
            choices.add(choice)
            self.unanswered[choice] = self.unanswered.get(choice, 0) + 1

    def answer(self, call_id: str) -> str:
        """Note a result; return the id of its call."""
        if call_id in NO_IDS:
            call_id = self.made_ids.get(call_id, call_id)
        for choice in self.pending.pop(call_id, ()):
            self.unanswered[choice] -= 1
        return call_id


class Builder:
    """Builds the events of one run. Report what the protocol says, then `take()` the events.

    `answered` is true once there is text, a call, a result or a medium, not only reasoning.

    A decoder sets `cutting` when the input is over or has failed: parts that end from then on, while no finish reason
    is known, were cut off.

    `run_id`, `thread_id`, `created_at`, `make_id` come from the run's context, since a codec has neither a clock nor
    randomness. `make_id(prefix)` must give a new id each time.
    """

    __slots__ = (
        "_calls",
        "_emitted",
        "_end_extras",
        "_failure",
        "_flows",
        "_halves",
        "_head",
        "_ids",
        "_interrupted",
        "_last",
        "_make_id",
        "_messages",
        "_out",
        "_parts",
        "_reason",
        "_started",
        "_usage",
        "answered",
        "cutting",
        "done",
    )

    def __init__(self, run_id: str, thread_id: str | None, created_at: float, make_id: Callable[[str], str]) -> None:
        self._head = ev.RunStarted(run_id, thread_id, None, created_at)  # until it is emitted
        self._make_id = make_id
        self._out: list[Event] = []
        self._last: list[Event]  # once the run is over
        self._started = False
        self._messages: dict[Hashable, OpenMessage] = {}
        self._ids: set[str] = set()
        self._parts: dict[Hashable, OpenPart] = {}
        self._flows: dict[Hashable, OpenPart] = {}
        self._calls: _Calls | None = None
        self._usage: ev.UsageReported | None = None
        self._interrupted = False
        self._emitted = False
        self._reason: FinishReason | None = None
        self._failure: Failure | None = None
        self._end_extras: Extras | None = None
        self._halves: Halves | None = None
        self.answered = False
        self.cutting = False
        self.done = False

    # ------------------------------------------------------------------ the run

    def begin(
        self,
        *,
        model: str | None = None,
        created_at: float | None = None,
        thread_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        extras: Extras | None = None,
    ) -> None:
        """Set facts of the run itself. Those that arrive after the first event are ignored."""
        if self._started:
            return
        head = self._head
        head.model = model or head.model
        head.created_at = created_at or head.created_at
        head.thread_id = head.thread_id or thread_id
        if metadata:
            head.metadata.update(metadata)
        if extras:
            head.extras = {**(head.extras or {}), **extras}

    @property
    def has_begun(self) -> bool:
        """True once an event was made."""
        return self._started

    def start(self) -> None:
        """Emits `RunStarted` now, if it was not yet."""
        if not self._started and not self.done:
            self._started = True
            self._out.append(self._head)
            del self._head

    def take(self) -> list[Event]:
        """The events made since the last call, in order."""
        if self.done:
            out, self._last = self._last, []
        else:
            out, self._out = self._out, []
        return out if self._halves is None else self._halves.feed(out)

    def join_halves(self) -> None:
        """Texts may hold halves of characters (lone surrogates) from now on; `take` joins them, and replaces others."""
        self._halves = self._halves or Halves()

    @property
    def joins_halves(self) -> bool:
        """Return whether `join_halves` was called."""
        return self._halves is not None

    # ------------------------------------------------------------------ messages

    def message(
        self,
        key: Hashable,
        *,
        message_id: str | None = None,
        role: str = "assistant",
        name: str | None = None,
        choice: int = 0,
        extras: Extras | None = None,
    ) -> str:
        """Opens the message `key` unless it is open already; returns its id."""
        known = self._messages.get(key)
        if known is not None and not known.ended:
            return known.id
        if not self._started:
            self.start()
        chosen = message_id if message_id and message_id not in NO_IDS else self._make_id("msg")
        while chosen in self._ids:
            chosen = self._make_id("msg")
        self._ids.add(chosen)
        self._messages[key] = OpenMessage(key, chosen, choice)
        self._out.append(ev.MessageStarted(chosen, role, name, choice, extras))
        return chosen

    def is_open(self, key: Hashable) -> bool:
        """Return whether the message `key` is open."""
        known = self._messages.get(key)
        return known is not None and not known.ended

    def end_message(
        self,
        key: Hashable,
        status: MessageStatus = MessageStatus.COMPLETED,
        reason: FinishReason | None = None,
        extras: Extras | None = None,
    ) -> None:
        """Ends the message `key` and every part of it that is open."""
        message = self._messages.get(key)
        if message is None or message.ended or self.done:
            return
        cut = status if status in _CUT else None
        if message.open:
            for part_key in list(message.open):
                self.end_part(part_key, status=cut)
        flowing = self._flows.pop(key, None)
        if flowing is not None:
            self._end(flowing, status=cut)
        message.ended = True
        self._out.append(ev.MessageEnded(message.id, status, reason or message.reason, extras, message.choice))

    def end_reason(self, key: Hashable, reason: FinishReason) -> None:
        """The reason with which message `key` will end (wires that finish each choice apart); the first one counts."""
        message = self._messages.get(key)
        if message is not None and message.reason is None:
            message.reason = reason

    # ------------------------------------------------------------------ parts

    def open_part(
        self,
        key: Hashable,
        message: Hashable,
        kind: PartKind,
        *,
        part_id: str | None = None,
        call_id: str | None = None,
        name: str | None = None,
        origin: Origin = Origin.FUNCTION,
        server_label: str | None = None,
        extras: Extras | None = None,
    ) -> OpenPart:
        """Opens the part `key` in message `message` (opened too when it is not); a known open key is returned as it is.

        A tool call without a call id, or with one of `NO_IDS`, gets one; one without a name fails the run.
        """
        known = self._parts.get(key)
        if known is not None:
            return known
        part = self._new_part(message, kind, part_id, call_id, name, origin, server_label, extras)
        self._parts[key] = part
        part.message.opened(key)
        return part

    def part(self, key: Hashable) -> OpenPart | None:
        """The open part `key`."""
        return self._parts.get(key)

    def delta(self, key: Hashable, text: str, extras: Extras | None = None) -> None:
        """A piece of the open part `key`; a part that is not open and an empty piece are ignored.

        Arguments of a call that are a placeholder are held back until an object comes, which takes their place, or the
        call ends.
        """
        part = self._parts.get(key)
        if part is None or not text:
            return
        if not (part.fresh and part.holds(text)):
            self._out.append(part.make(part.id, text, extras))

    def end_part(
        self,
        key: Hashable,
        *,
        signature: str | None = None,
        redacted: str | None = None,
        extras: Extras | None = None,
        status: MessageStatus | None = None,
    ) -> None:
        """Ends the part `key`. `status` overrides the one that follows from `cutting`."""
        part = self._parts.pop(key, None)
        if part is not None:
            part.message.closed(key)
            self._end(part, signature, redacted, extras, status)

    def flow(self, message: Hashable, kind: PartKind, text: str, extras: Extras | None = None) -> None:
        """Add a piece of text, reasoning or refusal, for protocols without boundaries of parts.

        `extras` are those of this piece; `open_part` has those of a part.
        """
        part = self._flows.get(message)
        if part is None or part.kind is not kind:
            part = self._flows[message] = self._new_part(message, kind)
        self._out.append(part.make(part.id, text, extras))

    def flowing(self, message: Hashable) -> OpenPart | None:
        """The part that flows in message `message`."""
        return self._flows.get(message)

    def end_flow(
        self,
        message: Hashable,
        *,
        signature: str | None = None,
        redacted: str | None = None,
        extras: Extras | None = None,
    ) -> None:
        """Ends what flows in message `message`, if anything does."""
        part = self._flows.pop(message, None)
        if part is not None:
            self._end(part, signature, redacted, extras)

    def add(self, message: Hashable, part: Part) -> None:
        """A part that is known whole. Text-like parts and calls become an opened, filled and ended part."""
        if self.done:
            return
        match part:
            case Text(text=text) | Refusal(text=text):
                kind = PartKind.TEXT if isinstance(part, Text) else PartKind.REFUSAL
                self._whole(message, kind, text, extras=part.extras)
            case Reasoning():
                opened = self._new_part(message, PartKind.REASONING, extras=part.extras)
                self._fill(opened, part.text)
                self._end(opened, part.signature, part.redacted)
            case ToolCall():
                opened = self._new_part(
                    message, PartKind.TOOL_CALL, None, part.call_id, part.name, part.origin, part.server_label,
                    part.extras,
                )  # fmt: skip
                self._fill(opened, part.arguments)
                self._end(opened)
            case ToolResult():
                self.result(part.call_id, part.parts, name=part.name, is_error=part.is_error, extras=part.extras)
            case _:
                self.end_flow(message)
                message_id = self.message(message)
                self.answered = True
                self._out.append(ev.ContentAdded(message_id, part, choice=self._messages[message].choice))

    # ------------------------------------------------------------------ other facts

    def result(
        self,
        call_id: str,
        parts: list[Part],
        *,
        name: str | None = None,
        is_error: bool = False,
        message_id: str | None = None,
        extras: Extras | None = None,
    ) -> None:
        """A tool ran on the backend's side; its call is no longer one that the client must answer."""
        self.answered = True
        if self._calls is not None:
            call_id = self._calls.answer(call_id)
        self.emit(ev.ToolResulted(call_id, parts, name, is_error, message_id, extras))

    def usage(self, report: ev.UsageReported) -> None:
        """Token counts so far. The last report counts and is emitted once, just before the terminal event."""
        self._usage = report

    def interrupt(self, event: ev.Interrupted) -> None:
        self._interrupted = True
        self.emit(event)

    def emit(self, event: Event) -> None:
        """An event that needs no bookkeeping: state, steps, custom, raw, heartbeat."""
        self.start()
        self._out.append(event)
        self._emitted = self._emitted or type(event) is not ev.Raw

    @property
    def is_empty(self) -> bool:
        """True if the run has only raw events: no message, tool result, step or state."""
        return not self._messages and not self._emitted

    @property
    def open_calls(self) -> list[str]:
        """Call ids without a result, in order of appearance."""
        return [] if self._calls is None else list(self._calls.pending)

    @property
    def oldest_call(self) -> str | None:
        """The first of `open_calls`."""
        return None if self._calls is None else next(iter(self._calls.pending), None)

    def is_unanswered(self, call_id: str) -> bool:
        """Return whether there is a call with this id and no result of it."""
        return self._calls is not None and call_id in self._calls.pending

    # ------------------------------------------------------------------ the end

    def finish(self, reason: FinishReason | None = None, extras: Extras | None = None) -> None:
        """The run is complete on the wire; the terminal event waits for `end`, since late facts are allowed.

        The first reason counts.
        """
        if self._reason is None:
            self._reason = reason or FinishReason.STOP
            self._end_extras = extras

    def fail(self, failure: Failure, extras: Extras | None = None) -> None:
        """The run failed on the wire. Emits everything up to and including the terminal event."""
        if not self.done:
            self._failure = failure
            self._end_extras = extras
            self.end()

    @property
    def finishing(self) -> bool:
        """Return whether a finish reason is known."""
        return self._reason is not None

    def end(self) -> None:
        """Nothing more can come: closes what is open and emits the terminal event."""
        if self.done:
            return
        if self._reason is None and self._failure is None:
            self._failure = Failure(ErrorCode.TRUNCATED_STREAM, "The backend's answer ended before it was complete.")
        if not self._started:
            self.start()
        status = _STATUSES.get(self._reason, _COMPLETED)
        if self._failure is not None:
            status = MessageStatus.CANCELED if self._failure.code is ErrorCode.CANCELED else MessageStatus.FAILED
        for key, message in list(self._messages.items()):
            if not message.ended:
                self.end_message(key, status, self._settle(message.reason, message.choice))
        if self._usage is not None:
            self._out.append(self._usage)
        if self._failure is not None:
            self._out.append(ev.RunFailed(self._failure, None, self._end_extras))
        else:
            reason = self._settle(self._reason, 0) or _STOP
            self._out.append(ev.RunFinished(reason, None, self._end_extras))
        self.done = True
        self._last, self._out = self._out, _Closed()
        self._parts.clear()
        self._flows.clear()

    def close(self, failure: Failure | None = None) -> None:
        """The input is over: cleanly if `failure` is None. A known finish reason takes precedence over a later
        failure.
        """
        if self.done:
            return
        if failure is not None and self._reason is None:
            self._failure = failure
        self.end()

    def _settle(self, reason: FinishReason | None, choice: int) -> FinishReason | None:
        """Return the finish reason that fits the content: backends send `stop` after calls and `tool_calls` without
        any.
        """
        if reason not in _LOOSE:
            return reason
        if self._interrupted:
            return _INTERRUPTED
        return _TOOL_CALLS if self._calls is not None and self._calls.unanswered.get(choice) else _STOP

    # ------------------------------------------------------------------ inside

    def _new_part(
        self,
        message_key: Hashable,
        kind: PartKind,
        part_id: str | None = None,
        call_id: str | None = None,
        name: str | None = None,
        origin: Origin = Origin.FUNCTION,
        server_label: str | None = None,
        extras: Extras | None = None,
    ) -> OpenPart:
        message = self._messages.get(message_key)
        if message is None or message.ended:
            self.message(message_key)
            message = self._messages[message_key]
        elif message_key in self._flows:
            self.end_flow(message_key)
        chosen = (
            part_id
            if part_id and part_id not in self._ids and part_id not in NO_IDS
            else f"{message.id}-{message.parts}"
        )
        while chosen in self._ids:
            # The wire itself used a name that is made here, such as `m-1` for the first part of `m`.
            message.parts += 1
            chosen = f"{message.id}-{message.parts}"
        self._ids.add(chosen)
        message.parts += 1
        if kind is _TOOL_CALL:
            calls = self._calls = self._calls or _Calls()
            if call_id is None or call_id in NO_IDS:
                wire_id, call_id = call_id, self._make_id("call")
                calls.made_ids[wire_id] = call_id
            if not name:
                # No client can run such a call, and APIs of models refuse it in a history
                self.fail(Failure(ErrorCode.BACKEND_PROTOCOL, "The backend sent a tool call without a name."))
                name = ""
            calls.ask(call_id, message.choice)
        self.answered = self.answered or kind is not _REASONING
        part = OpenPart(chosen, kind, message, call_id)
        self._out.append(
            ev.PartStarted(chosen, message.id, kind, call_id, name, origin, server_label, extras, message.choice)
        )
        return part

    def _whole(self, message: Hashable, kind: PartKind, text: str, extras: Extras | None) -> None:
        part = self._new_part(message, kind, extras=extras)
        self._fill(part, text)
        self._end(part)

    def _fill(self, part: OpenPart, text: str) -> None:
        """Add the whole text of a part."""
        if text:
            self._out.append(part.make(part.id, text, None))

    def _end(
        self,
        part: OpenPart,
        signature: str | None = None,
        redacted: str | None = None,
        extras: Extras | None = None,
        status: MessageStatus | None = None,
    ) -> None:
        if part.ended:
            return
        if part.fresh and (rest := part.rest()) is not None:
            self._out.append(rest)
        part.ended = True
        if status is None:
            status = MessageStatus.FAILED if self.cutting and self._reason is None else _COMPLETED
        self._out.append(ev.PartEnded(part.id, signature, redacted, extras, status))
