"""Converts events to updates of a task: its state, its artifacts, its questions.

`Updates` decides what is sent; subclasses write it as a stream (`encoder.py`) or put it together (`answer.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.contract import Context, Feature
from bridge.dialects.a2a.capabilities import card
from bridge.dialects.a2a.options import FrontOptions
from bridge.dialects.a2a.read_request import Notes, notes_of
from bridge.dialects.a2a.wire import (
    ADK_USAGE,
    CODE,
    FINISH_REASON,
    INTERRUPTS,
    USAGE,
    State,
    Version,
    Wire,
    call_part,
    message,
    part_said,
    result_part,
    thought_part,
    timestamp,
    write_part,
)
from bridge.model import (
    Data,
    FileRef,
    FinishReason,
    Media,
    PartKind,
    Text,
    ToolResult,
    Url,
    json_text,
    question_about,
    question_of,
    result_text,
)
from bridge.model import events as ev
from bridge.model.jsontext import input_of
from bridge.toolkit import Encoder
from bridge.toolkit.counts import counts_of
from bridge.toolkit.redact import masked

_FREE = frozenset({ev.RunStarted, ev.MessageStarted, ev.MessageEnded, ev.UsageReported, ev.Heartbeat, ev.Interrupted})
_ASIDE = frozenset({ev.StateChanged, ev.StepStarted, ev.StepEnded, ev.Custom, ev.Raw})
_TOLD_ENDS = frozenset({FinishReason.LENGTH, FinishReason.CONTENT_FILTER, FinishReason.TOOL_CALLS})
ANSWER = "answer"
"""The name of an artifact that is text of an answer."""


def context_id_of(context: Context) -> str:
    """Return the id of the context that a run belongs to."""
    thread = context.request.thread_id if context.request is not None else None
    return thread or context.thread_id or context.run_id


class Updates(Encoder):
    """One per reader of a run. `reader` are the notes of its call, where it is not the one that began the run."""

    free = _FREE
    inline = _ASIDE
    keeps = (Feature.TOOL_RESULT,)
    marks_refusals = True

    def __init__(self, context: Context, reader: Notes | None = None) -> None:
        options = FrontOptions.of(context)
        super().__init__(context, card(thoughts=options.reasoning == "status"))
        self.notes = notes = notes_of(context.request)
        self.reader = reader or notes
        self.version = self.reader.written_in
        # Of the task that the run continues, else of its own.
        self.task_id, self.context_id = notes.task or context.run_id, context_id_of(context)
        self._tools = notes.adk or options.tools == "status"
        self._answer: list[list[str]] | None = [] if options.answer == "message" else None
        self._has_content = False
        self._part: ev.PartStarted
        self._texts: list[str] = []
        self._told = False
        self._calls: dict[str, tuple[str, Any]] = {}
        self._interrupts: list[ev.Interrupted] = []

    # ------------------------------------------------------------------ what a subclass does with it

    def begin(self, state: Wire) -> None:
        """The task was submitted."""
        raise NotImplementedError

    def status(self, status: Wire, metadata: Wire, *, final: bool = False) -> None:
        """The task is in this status, which holds a message or not."""
        raise NotImplementedError

    def artifact(self, artifact: Wire) -> None:
        """This artifact is complete."""
        raise NotImplementedError

    def text_began(self, artifact_id: str, text: str, metadata: Wire) -> None:
        """An artifact begins with this piece of a text."""
        raise NotImplementedError

    def text_goes_on(self, text: str) -> None:
        """The next piece of the text that began last."""
        raise NotImplementedError

    def text_ended(self) -> None:
        """The text that began last is complete."""

    # ------------------------------------------------------------------ the run

    def run_started(self, event: ev.RunStarted) -> None:
        self.begin(self._state(State.SUBMITTED, self.context.created_at))
        self.status(self._state(State.WORKING, self.context.created_at), {})

    def _state(self, state: State, at: float | None, said: Wire | None = None) -> Wire:
        wire: Wire = {"state": state.said(self.version)}
        if said is not None:
            wire["message"] = said
        return {**wire, "timestamp": timestamp(at)} if at else wire

    def _message(self, parts: list[Wire], metadata: Wire | None = None) -> Wire:
        return message(
            self.context.make_id("message"),
            "assistant",
            parts,
            self.version,
            context_id=self.context_id,
            task_id=self.task_id,
            metadata=metadata,
        )

    def _progress(self, part: Wire) -> None:
        self.status(self._state(State.WORKING, None, self._message([part])), {})

    # ------------------------------------------------------------------ parts

    def _artifact_id(self, part_id: str) -> str:
        """Return a part's id, which in later runs of a task contains the number of the run."""
        return part_id if self.notes.task is None else f"{self.context.run_id[:12]}-{part_id}"

    def part_started(self, event: ev.PartStarted) -> None:
        self._part, self._texts, self._told = event, [], False

    def text(self, event: ev.TextDelta) -> None:
        if not event.text:
            return
        if self._answer is not None:
            self._answer += [[]] if not self._told else []
            self._answer[-1].append(event.text)
        if self._told:
            self.text_goes_on(event.text)
            return
        self._told = self._has_content = True
        marks = {"type": "refusal"} if self._part.kind is PartKind.REFUSAL else {}
        self.text_began(self._artifact_id(event.part_id), event.text, marks)

    def reasoning(self, event: ev.ReasoningDelta | ev.ArgsDelta) -> None:
        self._texts.append(event.text)

    arguments = reasoning

    def part_ended(self, event: ev.PartEnded) -> None:
        match self._part.kind:
            case PartKind.REASONING:
                self._thought(event)
            case PartKind.TOOL_CALL:
                self._call()
            case _ if self._told:
                self.text_ended()

    def _thought(self, event: ev.PartEnded) -> None:
        self._progress(thought_part("".join(self._texts), event.signature, self.version))

    def _call(self) -> None:
        part = self._part
        call_id, name, args = part.call_id or "", part.name or "", input_of("".join(self._texts))
        self._calls[call_id] = name, args
        if self._tools:
            self._progress(call_part(call_id, name, args, self.version))

    def tool_resulted(self, event: ev.ToolResulted) -> None:
        if self._tools:
            self._progress(result_part(event.call_id, event.name, _response(event), self.version))
        else:
            self.lost.add(Feature.TOOL_RESULT)
        self._over([event.call_id] if event.call_id in self._calls else [])

    def _over(self, calls: Sequence[str]) -> None:
        """Forget calls that wait for nothing: they are lost unless they were told as they were made."""
        for call_id in calls:
            del self._calls[call_id]
            if not self._tools:
                self.lost.add(Feature.TOOL_CALL)

    def content(self, event: ev.ContentAdded) -> None:
        part = event.part
        if isinstance(part, Media) and isinstance(part.source, FileRef):
            part = Media(part.kind, Url(part.source.file_id), part.mime, part.filename, part.extras)
        elif isinstance(part, Data) and not self.notes.data:
            part = Text(json_text(part.value))
        wire = write_part(part, self.version) if isinstance(part, Text | Media | Data) else None
        if wire is None:
            return
        self._has_content = True
        name = part.filename if isinstance(part, Media) else None
        artifact_id = self._artifact_id(self.context.make_id("artifact"))
        self.artifact({"artifactId": artifact_id, **({"name": name} if name else {}), "parts": [wire]})

    # ------------------------------------------------------------------ what is beside the answer

    def interrupted(self, event: ev.Interrupted) -> None:
        self._interrupts.append(event)

    # ------------------------------------------------------------------ the end

    def _metadata(self, more: Wire) -> Wire:
        usage = self.usage
        if usage is None:
            return more
        total = usage.total if usage.total is not None else (usage.input or 0) + (usage.output or 0)
        adk = {"promptTokenCount": usage.input, "candidatesTokenCount": usage.output, "totalTokenCount": total}
        return {ADK_USAGE: _given(adk), USAGE: counts_of(usage), **more}

    def finished(self, event: ev.RunFinished) -> None:
        reason, said, asked = event.reason, None, list[ev.Interrupted]()
        more: Wire = {FINISH_REASON: str(reason)} if reason in _TOLD_ENDS else {}
        match reason:
            case FinishReason.CANCELED:
                state = State.CANCELED
            case FinishReason.INTERRUPTED:
                state, said = self._question(asked := self._interrupts)
            case FinishReason.TOOL_CALLS if self._calls:
                asked = [ev.Interrupted(call_id, ev.AWAITS_RESULT, None, call_id) for call_id in self._calls]
                (state, said), more = self._question(asked), {}
            case FinishReason.CONTENT_FILTER if not self._has_content:
                state = State.REJECTED
            case _:
                state = State.COMPLETED
        if self._answer and reason is not FinishReason.CANCELED:
            texts = [part_said({"text": "".join(pieces)}, {}, self.version) for pieces in self._answer]
            said = self._message(texts) if said is None else {**said, "parts": [*texts, *said["parts"]]}
        told = {each.call_id for each in asked}
        self._over([call_id for call_id in self._calls if call_id not in told])
        self.status(self._state(state, event.ended_at, said), self._metadata(more), final=True)

    def _question(self, interrupts: Sequence[ev.Interrupted]) -> tuple[State, Wire | None]:
        """Return what the task waits for, and its question."""
        if not interrupts:
            return State.INPUT_REQUIRED, None
        parts = [part for asked in interrupts for part in self._asked(asked)]
        asked = [self._noted(each) for each in interrupts]
        is_login = any(word in (i.reason or "").lower() for i in interrupts for word in ("auth", "login"))
        return State.AUTH_REQUIRED if is_login else State.INPUT_REQUIRED, self._message(parts, {INTERRUPTS: asked})

    def _noted(self, event: ev.Interrupted) -> Wire:
        name, args = self._calls.get(event.call_id or "", ("", None))
        call = {"name": name, "args": args} if name else None
        fields = {"id": event.interrupt_id, "reason": event.reason, "payload": event.payload, "callId": event.call_id}
        return _given({**fields, "call": call})

    def _asked(self, event: ev.Interrupted) -> list[Wire]:
        text = question_of(event)
        if event.call_id in self._calls:
            name, args = self._calls[event.call_id]
            call = f"{name}({args if isinstance(args, str) else json_text(args)})"
            is_awaited = event.reason == ev.AWAITS_RESULT
            text = f"The result of this call is needed: {call}" if is_awaited else question_about([call], text)
        parts = [part_said({"text": text}, {}, self.version)]
        schema = event.payload.get("responseSchema") if isinstance(event.payload, dict) else None
        if isinstance(schema, dict):
            parts.append(part_said({"data": {"schema": schema}}, {}, self.version))
        if self.notes.adk and event.call_id:
            name, args = self._calls.get(event.call_id, ("", {}))
            parts.append(call_part(event.call_id, name, args, self.version, waits=True))
        return parts

    def failed(self, event: ev.RunFailed) -> None:
        self._over(list(self._calls))
        text = masked(event.error.message) or "The run failed."
        said = self._message([part_said({"text": text}, {}, self.version)])
        metadata = self._metadata({CODE: str(event.error.code)})
        self.status(self._state(State.FAILED, event.ended_at, said), metadata, final=True)


def history_of(context: Context, notes: Notes, version: Version) -> list[Wire]:
    """Return the message of a run's request, with its notes, for the task's history; None if there is none."""
    request = context.request
    if request is None or not (request.messages or request.resume):
        return []
    parts = list[Wire]()
    said = [message for message in request.messages if message.role in ("user", "tool")]
    for part in [part for each in said for part in each.parts]:
        if isinstance(part, ToolResult):
            parts.append(result_part(part.call_id, part.name, _response(part), version))
        elif isinstance(part, Text | Media | Data) and (wire := write_part(part, version)) is not None:
            parts.append(wire)
    if not parts:
        answers = [Text(a.payload) if isinstance(a.payload, str) else Data(a.payload) for a in request.resume]
        parts = [wire for answer in answers if (wire := write_part(answer, version)) is not None]
    known = notes.message or next((each.id for each in said if each.id), None)
    return [
        message(
            known or f"message_{context.run_id}_0",
            "user",
            parts,
            version,
            context_id=context_id_of(context),
            task_id=notes.task or context.run_id,
            metadata=next((each.metadata for each in said if each.metadata), None),
        )
    ]


def _response(result: ev.ToolResulted | ToolResult) -> Any:
    """A tool's result as an object, if it is one."""
    if len(result.parts) == 1 and isinstance(result.parts[0], Data):
        return result.parts[0].value
    text = result_text(result.parts)
    value = input_of(text) if text.lstrip().startswith("{") else text
    return {"error": text} if result.is_error else value


def _given(values: Wire) -> Wire:
    return {name: value for name, value in values.items() if value is not None}
