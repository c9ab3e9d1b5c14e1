"""Events -> AG-UI events, in the form that every deployed client reads.

One text, reasoning or call is open at a time (`Sequencer` sees to it), deltas are never empty, absent fields are left
out. Per token only the text is dumped; the bytes around it are made when the part begins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bridge.contract import KEEPALIVE, Context, Feature
from bridge.dialects.ag_ui.capabilities import card
from bridge.dialects.ag_ui.ending import Ending
from bridge.dialects.ag_ui.options import FrontOptions
from bridge.dialects.ag_ui.parts import tells_media, write_part
from bridge.dialects.ag_ui.reasoning import ReasoningWords, words
from bridge.dialects.ag_ui.wholes import Claims, raw_of, state_of
from bridge.dialects.ag_ui.wire import NAME, OURS, RESULT_ERROR, UNNAMED, VERSION, own, speaks_new
from bridge.model import HistoryMode, PartKind
from bridge.model import events as ev
from bridge.model.jsontext import dumps
from bridge.toolkit import Encoder
from bridge.toolkit.media import result_as_text
from bridge.toolkit.template import HOLE, Template

_ROLES = frozenset({"assistant", "user", "system", "developer"})
# These write nothing in the middle of a stream.
_FREE = frozenset({ev.RunStarted, ev.MessageStarted, ev.MessageEnded, ev.UsageReported, ev.Heartbeat, ev.Interrupted})
_INLINE = frozenset({ev.StateChanged, ev.StepStarted, ev.StepEnded, ev.Custom, ev.Raw, ev.ToolResulted})


@dataclass(slots=True)
class _Part:
    """A part that began. `template` is the event of each piece, None until the first one comes."""

    started: ev.PartStarted
    id: str = ""
    template: Template | None = None
    hidden: bool = False
    pieces: list[str] = field(default_factory=list)
    """Of the arguments of a call."""


class AGUIEncoder(Encoder):
    """One per run. `_new`: the client uses version 1.0."""

    dialect = NAME
    free = _FREE
    keeps = (Feature.MODEL,)

    def __init__(self, context: Context) -> None:
        request = context.request
        self._options = options = FrontOptions.of(context)
        self._new = speaks_new(request)
        # Clients of 1.0 take whole things while a part is open; for older ones these wait too.
        self.inline = _INLINE if self._new else frozenset()
        super().__init__(context, card(options, new=self._new))
        self._end = Ending(context, self._new)
        part_only = request is not None and request.history is HistoryMode.DELTA
        known = (m.id for m in (request.messages if request else ()) if m.id)
        self._claims = Claims(known, f"{context.run_id}-" if part_only else "")
        self._messages: dict[str, ev.MessageStarted] = {}
        self._hidden: set[str] = set()
        self._shown_as: dict[str, str] = {}
        self._parts: dict[str, _Part] = {}
        # For each subagent, and for the agent itself (None), the message with its calls.
        self._hosts: dict[str | None, str] = {}
        self._authors: dict[str, str | None] = {}
        self._held: dict[str, Any] | None = None
        self._has_words = False
        self._snapshot = False  # the client was given one of the messages

    # ------------------------------------------------------------------ writing

    def _write(self, event: dict[str, Any]) -> None:
        self._flush()
        self.out.append(dumps(event))

    def _flush(self) -> None:
        """Write the end of the last text, which is delayed to carry a finish reason."""
        if self._held is not None:
            held, self._held = self._held, None
            self.out.append(dumps(held))

    def _more(self, extras: Any) -> dict[str, Any]:
        """The subagent whose work this is, for clients that know subagents."""
        owner = own(extras).get("subagentRunId")
        return {"subagentRunId": owner} if owner and self._new else {}

    def _note(self, extras: Any) -> dict[str, Any]:
        """The metadata that an AG-UI backend gave an event."""
        metadata = own(extras).get("metadata")
        return {"metadata": metadata} if metadata else {}

    def _whole_of(self, extras: Any) -> dict[str, Any]:
        """Return the extra fields of an event that does not come in pieces."""
        return {**self._more(extras), **self._note(extras)}

    # ------------------------------------------------------------------ run and messages

    def run_started(self, event: ev.RunStarted) -> None:
        request, context = self.context.request, self.context
        thread = (request.thread_id if request else None) or event.thread_id or context.thread_id or event.run_id
        run_id = (request.run_id if request else None) or event.run_id
        self._end.run = {"threadId": thread, "runId": run_id}
        self._end.model = event.model
        started: dict[str, Any] = {"type": "RUN_STARTED", **self._end.run}
        if self._new:
            started["protocolVersion"] = VERSION
            if request is not None and request.parent_run_id:
                started["parentRunId"] = request.parent_run_id
        self._write(started)

    def message_started(self, event: ev.MessageStarted) -> None:
        self._messages[event.message_id] = event
        if self._snapshot and own(event.extras).get("snapshot"):
            self._hidden.add(event.message_id)  # the client has it from the snapshot itself

    # ------------------------------------------------------------------ parts

    def part_started(self, event: ev.PartStarted) -> None:
        part = self._parts[event.part_id] = _Part(event, hidden=event.message_id in self._hidden)
        if event.kind is PartKind.TOOL_CALL:
            self._end.pending[event.call_id or ""] = event.name or "", part.pieces
            if not part.hidden:
                self._call(part)

    def text(self, event: ev.TextDelta | ev.ReasoningDelta | ev.ArgsDelta) -> None:
        part = self._parts[event.part_id]
        template = part.template
        if template is None:
            # White space before arguments says nothing, and alone it is no JSON, as which clients parse them.
            if part.hidden or not event.text or (isinstance(event, ev.ArgsDelta) and event.text.isspace()):
                return
            template = self._begin(part)
        if event.text:
            self.out.append(template(event.text))

    reasoning = text

    def arguments(self, event: ev.ArgsDelta) -> None:
        self._parts[event.part_id].pieces.append(event.text)
        self.text(event)

    def _begin(self, part: _Part) -> Template:
        """The first piece of a text, of reasoning, or of a call's arguments."""
        self._has_words = True
        started = part.started
        more = self._more(started.extras)
        if started.kind is PartKind.TOOL_CALL:
            named = {"type": "TOOL_CALL_ARGS", "toolCallId": part.id}
        elif started.kind is PartKind.REASONING:
            words = self._words()
            part.id = self._claims.take(started.part_id)
            for kind in words.opening:
                role = {"role": "reasoning"} if kind == "REASONING_MESSAGE_START" else {}
                self._write({"type": kind, **words.named(part.id), **role, **more})
            named = {"type": words.content, **words.named(part.id)}
        else:
            part.id = self._open_text(started.message_id, started.part_id, self._whole_of(started.extras))
            named = {"type": "TEXT_MESSAGE_CONTENT", "messageId": part.id}
        part.template = Template({**named, "delta": HOLE, **more})
        return part.template

    def _words(self) -> ReasoningWords:
        found = words(self._options)
        assert found is not None, "encrypted reasoning has no text"
        return found

    def part_ended(self, event: ev.PartEnded) -> None:
        part = self._parts.pop(event.part_id)
        if part.hidden:
            return
        more = self._more(part.started.extras)
        kind = part.started.kind
        if kind is PartKind.REASONING:
            self._end_reasoning(part, event, more)
        elif kind is PartKind.TOOL_CALL:
            if part.template is None:  # clients parse the arguments, and "" is no JSON
                self._write({"type": "TOOL_CALL_ARGS", "toolCallId": part.id, "delta": "{}", **more})
            self._write({"type": "TOOL_CALL_END", "toolCallId": part.id, **self._note(event.extras), **more})
        elif part.template is not None:
            self._held = {"type": "TEXT_MESSAGE_END", "messageId": part.id, **self._note(event.extras), **more}

    def _open_text(self, message_id: str, fallback: str, more: dict[str, Any]) -> str:
        """A text is a message of its own; the first of a message has that message's id."""
        wire_id = self._claims.take(message_id, fallback)
        self._shown_as.setdefault(message_id, wire_id)
        message = self._messages.get(message_id)
        role = message.role if message and self._new and message.role in _ROLES else "assistant"
        name = {"name": message.name} if message and message.name and self._new else {}
        self._authors[wire_id] = more.get("subagentRunId")
        if role == "assistant":
            self._hosts[self._authors[wire_id]] = wire_id
        self._write({"type": "TEXT_MESSAGE_START", "messageId": wire_id, "role": role, **name, **more})
        return wire_id

    def _call(self, part: _Part) -> None:
        """All calls of a turn are in one assistant message: without its id the client makes one for each."""
        event = part.started
        self._has_words = True
        part.id = event.call_id or ""
        more = self._whole_of(event.extras)
        author = more.get("subagentRunId")
        host = self._hosts.get(author)
        if own(event.extras).get("parent"):
            # An AG-UI backend named the message, perhaps one without text (capture pyd-tool-turn1).
            host = self._shown_as.get(event.message_id)
        if host is None or self._authors[host] != author:
            # Clients reject a subagent's call in another agent's message.
            host = self._claims.take(event.message_id, event.part_id)
            self._shown_as.setdefault(event.message_id, host)
            self._authors[host] = author
        self._hosts[author] = host
        start = {"type": "TOOL_CALL_START", "toolCallId": part.id, "toolCallName": event.name or ""}
        self._write({**start, "parentMessageId": host, **more})

    def _end_reasoning(self, part: _Part, event: ev.PartEnded, more: dict[str, Any]) -> None:
        words = self._words()
        value = ReasoningWords.secret(event) if words.encrypts else None
        if part.template is None:
            if value is None:
                return
            self._begin(part)
        for kind in words.closing:
            self._write({"type": kind, **words.named(part.id), **more})
            if value is not None and kind == "REASONING_MESSAGE_END":
                fields = {"subtype": "message", "entityId": part.id, "encryptedValue": value}
                self._write({"type": "REASONING_ENCRYPTED_VALUE", **fields, **more})

    # ------------------------------------------------------------------ whole things

    def tool_resulted(self, event: ev.ToolResulted) -> None:
        self._hosts.pop(self._more(event.extras).get("subagentRunId"), None)
        self._end.pending.pop(event.call_id, None)
        note = own(event.extras)
        if self._snapshot and note.get("snapshot"):
            return
        self._has_words = True
        listed = self._new and (note.get("listed") or tells_media(event.parts))
        words = "" if listed else result_as_text(event, self.lost)
        wire = {
            "type": "TOOL_CALL_RESULT",
            "messageId": self._claims.take(event.message_id or f"result-{event.call_id}", f"result-{event.call_id}"),
            "toolCallId": event.call_id,
            "content": [write_part(p, True) for p in event.parts] if listed else words,
            "role": "tool",
        }
        more = self._whole_of(event.extras)
        if event.is_error:  # the event has no field for it, only the message of a client has
            more["metadata"] = {**more.get("metadata", {}), OURS: {RESULT_ERROR: True}}
        self._write({**wire, **more})

    def step_started(self, event: ev.StepStarted) -> None:
        """Clients refuse a step that is open twice, but for those of two subagents."""
        step = (self._more(event.extras).get("subagentRunId"), event.name)
        if step in self._end.steps:
            self.lost.add(Feature.STEP, "a step inside a step of the same name")
            return
        self._end.steps[step] = None
        self._write({"type": "STEP_STARTED", "stepName": event.name, **self._whole_of(event.extras)})

    def step_ended(self, event: ev.StepEnded) -> None:
        step = (self._more(event.extras).get("subagentRunId"), event.name)
        if step not in self._end.steps:
            self.lost.add(Feature.STEP, "the end of a step that is not open")
            return
        del self._end.steps[step]
        self._write({"type": "STEP_FINISHED", "stepName": event.name, **self._whole_of(event.extras)})

    def custom(self, event: ev.Custom) -> None:
        self._write({"type": "CUSTOM", "name": event.name, "value": event.value, **self._whole_of(event.extras)})

    def state_changed(self, event: ev.StateChanged) -> None:
        wire = state_of(event, self._new)
        if wire is None:
            self.lost.add(Feature.STATE, "a value that clients reject")
        else:
            self._snapshot = self._snapshot or wire["type"] == "MESSAGES_SNAPSHOT"
            self._write({**wire, **self._whole_of(event.extras)})

    def raw(self, event: ev.Raw) -> None:
        wire = raw_of(event, self._new)
        wire = wire and self._end.subagents.admit(wire)
        if wire is None:
            self.lost.add_raw(event)
            return
        if event.dialect == NAME and isinstance(wire.get("messageId"), str):
            self._claims.note(wire["messageId"])
        self._write(wire)

    def usage_reported(self, event: ev.UsageReported) -> None:
        self._end.usage = event

    def interrupted(self, event: ev.Interrupted) -> None:
        for value in own(event.extras).get("told", ()):
            self._write({"type": "CUSTOM", "name": UNNAMED, "value": value})
        self._end.interrupts.append(event)

    def heartbeat(self, event: ev.Heartbeat) -> None:
        self._flush()
        self.out.append(KEEPALIVE)

    # ------------------------------------------------------------------ the end

    def failed(self, event: ev.RunFailed) -> None:
        for wire in self._end.failed(event.error):
            self._write(wire)

    def finished(self, event: ev.RunFinished) -> None:
        for wire in self._end.finished(event, self._has_words, self._held):
            self._write(wire)
