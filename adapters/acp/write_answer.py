"""Events as updates of a session, and a prompt as its runs, questions and result."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from bridge.contract import Context, FrameLike
from bridge.contract.optional.rpc import Note, Question
from bridge.dialects.acp import questions
from bridge.dialects.acp.capabilities import CAPABILITIES
from bridge.dialects.acp.questions import Asking
from bridge.dialects.acp.wire import (
    ASKED,
    COMPLETED,
    EARLIER_CALL,
    ERRORS,
    FAILED,
    IN_PROGRESS,
    NAME,
    NO_CALL,
    PENDING,
    STOP_REASONS,
    Wire,
    kind_of_tool,
    own,
    rpc_code,
    text_block,
    tool_content,
    write_block,
)
from bridge.errors import Failure
from bridge.model import (
    ContentAdded,
    Data,
    Event,
    FinishReason,
    Interrupted,
    MessageStatus,
    Part,
    PartEnded,
    PartKind,
    PartStarted,
    Raw,
    Reasoning,
    ReasoningDelta,
    Resume,
    RunFailed,
    RunFinished,
    Text,
    TextDelta,
    ToolCall,
    ToolResulted,
    UsageReported,
    result_text,
)
from bridge.model.jsontext import dict_of, dumps, loads, text_of
from bridge.toolkit import Encoder

UPDATE = "session/update"
_OPEN = frozenset({PENDING, IN_PROGRESS})


class Calls:
    """The tool calls of a prompt: which the client knows, and their states."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.last: set[str] = set()
        """The calls after which nothing else has come."""
        self._about: dict[str, Wire] = {}
        self._inputs: dict[str, Any] = {}

    def update(
        self, call_id: str, name: str | None, state: str, *, shown_as: str = "", own: Wire | None = None, **fields: Any
    ) -> Wire:
        """Return the update that tells a state of a call: the first one begins it, others tell what is new.

        `shown_as`: the call is none of this run, see `NO_CALL`. `own`: how an agent of this protocol shows its call.
        """
        is_new = call_id not in self.states
        self.states[call_id] = state
        if "rawInput" in fields:
            self._inputs[call_id] = fields["rawInput"]
        if is_new:
            self.last.add(call_id)
        named = {"name": name} if name and shown_as != NO_CALL else {}
        meta = {"_meta": {ASKED: {"call": shown_as}}} if shown_as else {}
        kind = "other" if shown_as == NO_CALL else kind_of_tool(name or "")
        shown = {key: said for key in ("title", "kind", "locations") if (said := (own or {}).get(key))}
        about = self._about.setdefault(call_id, {"title": name or "Tool call", **named, "kind": kind, **meta, **shown})
        if is_new:
            return {"sessionUpdate": "tool_call", "toolCallId": call_id, **about, "status": state, **fields}
        return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": state, **fields}

    def shown(self, call_id: str) -> Wire:
        """Return a call that the client knows, as a permission shows it."""
        shown = {"toolCallId": call_id, **self._about[call_id], "status": self.states[call_id]}
        return {**shown, "rawInput": self._inputs[call_id]} if call_id in self._inputs else shown

    def end_open(self, *, ran: bool, ran_last: bool) -> list[Wire]:
        """Return the updates that end all calls without a result.

        `ran`: they are completed, else failed; `ran_last`: also those after which nothing else has come.
        """
        left = [call_id for call_id, known in self.states.items() if known in _OPEN]
        ended = {each: ran and (ran_last or each not in self.last) for each in left}
        return [self.update(call_id, None, COMPLETED if is_done else FAILED) for call_id, is_done in ended.items()]


class Updates(Encoder):
    """Encodes one run: `updates` returns the updates of events.

    Each part has a message id of its own, so that clients show the border between two texts.
    """

    dialect = NAME
    holds_cut_calls = True
    buffered = (PartKind.TOOL_CALL,)

    def __init__(self, context: Context, calls: Calls) -> None:
        super().__init__(context, CAPABILITIES)
        self.usage: UsageReported | None = None
        self.ended: RunFinished | RunFailed | None = None
        self.asked: list[Interrupted] = []
        self._calls = calls
        self._news: list[Wire] = []
        self._message_id = ""
        self._contents = 0

    def updates(self, events: Sequence[Event]) -> list[Wire]:
        """Return the updates of these events, possibly none."""
        news: list[Wire] = []
        self._news = news
        super().encode(events)
        return news

    # ------------------------------------------------------------------ parts

    def part_started(self, event: PartStarted) -> None:
        self._message_id = self._id_for(event.part_id)

    def text(self, event: TextDelta) -> None:
        if event.text:
            self._say("agent_message_chunk", text_block(event.text))

    def reasoning(self, event: ReasoningDelta) -> None:
        if event.text:
            self._say("agent_thought_chunk", text_block(event.text))

    def buffered_part(self, part: Reasoning | ToolCall, end: PartEnded) -> None:
        assert isinstance(part, ToolCall)
        state = IN_PROGRESS if end.status is MessageStatus.COMPLETED else FAILED
        given = input_value(part.arguments)
        self._news.append(self._calls.update(part.call_id, part.name, state, own=own(part.extras), rawInput=given))

    def content(self, event: ContentAdded) -> None:
        self._contents += 1
        self._message_id = self._id_for(f"content {self._contents}")
        self._say("agent_message_chunk", write_block(event.part))

    def tool_resulted(self, event: ToolResulted) -> None:
        fields = result_fields(event.parts)
        if event.call_id not in self._calls.states:
            fields["_meta"] = {ASKED: {"isEarlier": True}}
        state = FAILED if event.is_error else COMPLETED
        update = self._calls.update(event.call_id, event.name, state, shown_as=EARLIER_CALL, **fields)
        self._news.append(update)

    # ------------------------------------------------------------------ the rest

    def usage_reported(self, event: UsageReported) -> None:
        self.usage = event

    def interrupted(self, event: Interrupted) -> None:
        self.asked.append(event)

    def raw(self, event: Raw) -> None:
        update = dict_of(event.value)
        if text_of(update.get("sessionUpdate")):
            self._news.append(update)
        else:
            super().raw(event)

    def failed(self, event: RunFailed) -> None:
        self.ended = event

    def finished(self, event: RunFinished) -> None:
        self.ended = event

    def _say(self, kind: str, block: Wire) -> None:
        self._calls.last.clear()
        self._news.append({"sessionUpdate": kind, "messageId": self._message_id, "content": block})

    def _id_for(self, part: str) -> str:
        return uuid_of(self.context.run_id, part)


class Turn:
    """One prompt of a session."""

    def __init__(self, session_id: str, has_forms: bool) -> None:
        self._session_id = session_id
        self._has_forms = has_forms
        self._calls = Calls()
        self._run: Updates | None = None
        self._run_id = ""
        self._usage: list[UsageReported] = []

    def begin(self, context: Context) -> None:
        self._note_usage()
        self._run, self._run_id = Updates(context, self._calls), context.run_id

    def encode(self, events: Sequence[Event]) -> list[Note]:
        assert self._run is not None, "a run begins before it is encoded"
        return self._notes(self._run.updates(events))

    def ask(self, asked: Interrupted) -> tuple[list[Note], Question | None]:
        call_id, name = self._call_of(asked)
        before = self._calls.states.get(call_id)
        update = self._calls.update(call_id, name, PENDING, shown_as=EARLIER_CALL if asked.call_id else NO_CALL)
        asking = Asking(self._session_id, self._calls.shown(call_id), self._has_forms)
        question = questions.question(asked, asking)
        if question is None or (question.method == questions.ELICITATION and before is None):
            # No call is shown for a question that is none about a call.
            if before is None:
                del self._calls.states[call_id]
            else:
                self._calls.states[call_id] = before
            return [], question
        return self._notes([update]), question

    def tell(self, asked: Interrupted) -> list[Note]:
        if questions.is_told(asked):
            return []
        chunk = {
            "sessionUpdate": "agent_message_chunk",
            "messageId": uuid_of(self._run_id, f"question {asked.interrupt_id}"),
            "content": text_block(questions.said(asked)),
        }
        return self._notes([chunk])

    def settled(self, asked: Interrupted, answer: Resume | None) -> list[Note]:
        call_id, _ = self._call_of(asked)
        if self._calls.states.get(call_id) != PENDING:
            return []
        if answer is None or not questions.agrees(answer):
            state = FAILED
        else:
            state = IN_PROGRESS if asked.call_id else COMPLETED
        return self._notes([self._calls.update(call_id, None, state)])

    def end(self, reason: FinishReason | None) -> tuple[list[Note], Wire]:
        self._note_usage()
        # Editors show a call as running until they get its end, and not all agents tell results. An agent that went
        # on has run its calls; a run that ends with a call leaves it to its client, and clients here run none.
        ran = reason not in (None, FinishReason.CANCELED)
        notes = self._notes(self._calls.end_open(ran=ran, ran_last=reason is not FinishReason.TOOL_CALLS))
        return notes, {} if reason is None else end_of_prompt(reason, self._usage)

    def _call_of(self, asked: Interrupted) -> tuple[str, str | None]:
        """Return the id and the name of the call that a question is about; the question itself if it names none."""
        if asked.call_id:
            payload = dict_of(asked.payload)
            return asked.call_id, text_of(payload.get("toolName")) or None
        return f"ask-{asked.interrupt_id}", _title(questions.said(asked))

    def _note_usage(self) -> None:
        if self._run is not None and self._run.usage is not None:
            self._usage.append(self._run.usage)
        self._run = None

    def _notes(self, updates: Sequence[Wire]) -> list[Note]:
        return [(UPDATE, {"sessionId": self._session_id, "update": update}) for update in updates]


class Stream(Updates):
    """Encodes one run as the lines that follow a prompt: updates, questions, and the response."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, Calls())
        self._session_id = context.thread_id or context.run_id
        self._questions = 0

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        lines = [message(UPDATE, self._params(update)) for update in self.updates(events)]
        if (ended := self.ended) is None or not events:
            return list(lines)
        self.ended = None
        if isinstance(ended, RunFailed):
            return [*lines, dumps({"jsonrpc": "2.0", "id": 0, "error": error_object(ended.error)})]
        for asked in self.asked:
            call_id = asked.call_id or f"ask-{asked.interrupt_id}"
            shown_as = EARLIER_CALL if asked.call_id else NO_CALL
            update = self._calls.update(call_id, _title(questions.said(asked)), PENDING, shown_as=shown_as)
            lines.append(message(UPDATE, self._params(update)))
            asking = Asking(self._session_id, self._calls.shown(call_id), has_forms=True)
            if (question := questions.question(asked, asking)) is not None:
                lines.append(message(question.method, question.params, self._questions))
                self._questions += 1
        result = end_of_prompt(ended.reason, [self.usage] if self.usage is not None else [])
        return [*lines, dumps({"jsonrpc": "2.0", "id": 0, "result": result})]

    def _params(self, update: Wire) -> Wire:
        return {"sessionId": self._session_id, "update": update}


def message(method: str, params: Wire, call_id: int | None = None) -> bytes:
    """Return a request, or without an id a notification, as one line."""
    head = {"jsonrpc": "2.0"} if call_id is None else {"jsonrpc": "2.0", "id": call_id}
    return dumps({**head, "method": method, "params": params})


def error_object(failure: Failure) -> Wire:
    """Return a failure as the error of a response. Clients show its message to people."""
    data: Wire = {"code": str(failure.code)}
    if failure.param:
        data["param"] = failure.param
    if session_id := failure.details.get("session_id"):
        data["sessionId"] = session_id
    return {"code": rpc_code(failure), "message": ERRORS.text(failure), "data": data}


def end_of_prompt(reason: FinishReason, usage: Sequence[UsageReported]) -> Wire:
    """Return the result of a prompt with the sum of what its runs used, where that is known."""
    result: Wire = {"stopReason": STOP_REASONS[reason]}
    known = [u for u in usage if u.input is not None and u.output is not None]
    if not known:
        return result
    counts = {
        "inputTokens": sum(u.input or 0 for u in known),
        "outputTokens": sum(u.output or 0 for u in known),
        "totalTokens": sum((u.input or 0) + (u.output or 0) if u.total is None else u.total for u in known),
    }
    for name, values in (
        ("cachedReadTokens", [u.cached for u in known]),
        ("cachedWriteTokens", [u.written for u in known]),
        ("thoughtTokens", [u.reasoning for u in known]),
    ):
        if any(value is not None for value in values):
            counts[name] = sum(value or 0 for value in values)
    return {**result, "usage": counts}


def result_fields(parts: Sequence[Part]) -> Wire:
    """Return the fields of a call with its result: its content, and the value if it is JSON."""
    content = tool_content(parts)
    fields: Wire = {"content": content} if content else {}
    if parts and all(isinstance(part, (Text, Data)) for part in parts):
        text = result_text([*parts]).lstrip()
        value = value_of(text) if text[:1] in ("{", "[") else text
        if isinstance(value, (dict, list)):
            fields["rawOutput"] = value
    return fields


def uuid_of(run_id: str, part: str) -> str:
    """Return a UUID that the same part of the same run always gets."""
    h = hashlib.sha256(f"{run_id}\0{part}".encode("utf-8", "replace")).hexdigest()
    return f"{h[:8]}-{h[8:12]}-8{h[13:16]}-a{h[17:20]}-{h[20:32]}"


def input_value(arguments: str) -> Any:
    """Return the object of a call's arguments; an empty one for none, the text for what is no object."""
    value = value_of(arguments) if arguments.strip() else {}
    return value if isinstance(value, dict) else arguments


def value_of(text: str) -> Any:
    """Return the JSON value in a text; the text if it is none."""
    try:
        return loads(text)
    except ValueError:
        return text


def _title(words: str) -> str:
    """Return the first line of a question, which clients show as the name of a call."""
    line = words.strip().partition("\n")[0]
    return line if len(line) <= 120 else f"{line[:117]}..."
