"""Answers of agents -> events: the objects of a stream, whole tasks and messages.

Objects are recognized by their fields, in either version of the protocol and either binding: `kind` or a wrapper, with
or without the envelope of JSON-RPC. Repeated content is skipped: agents send an artifact again as a whole, repeat the
text of a status in an artifact, and send tasks with earlier content.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import Any

from bridge.contract import Context, Feature
from bridge.dialects.a2a.card import Interface, assumed
from bridge.dialects.a2a.old_rest import read_result
from bridge.dialects.a2a.options import BackOptions
from bridge.dialects.a2a.read_errors import ERRORS, task_failure
from bridge.dialects.a2a.wire import (
    ADK_USAGE,
    FINISH_REASON,
    INTERRUPTS,
    NAME,
    USAGE,
    WAITING,
    State,
    Wire,
    camel_keys,
    is_unknown_state,
    noted,
    own,
    plain_numbers,
    read_part,
    role_of,
    state_of,
)
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Event,
    FinishReason,
    Interrupted,
    Part,
    PartKind,
    Raw,
    Reasoning,
    Resume,
    Text,
    ToolCall,
    ToolResult,
    UsageReported,
)
from bridge.model.events import AWAITS_RESULT
from bridge.model.jsontext import arguments_of, dict_of, text_of, whole
from bridge.model.parts import Extras
from bridge.model.text import ASKED
from bridge.toolkit.approvals import question_in
from bridge.toolkit.counts import COUNTS, counts_in
from bridge.toolkit.decoder import JsonDecoder
from bridge.toolkit.errors import error_in
from bridge.toolkit.pieces import Pieces
from bridge.toolkit.redact import LONGEST_WORD, masked
from bridge.toolkit.words import end_of

_ANSWER = "answer"
_WRAPPERS = {"task": "task", "message": "message", "statusUpdate": "status", "artifactUpdate": "artifact"}
_KINDS = {"task": "task", "message": "message", "status-update": "status", "artifact-update": "artifact"}
PARTS_SAID = "said"
TASK, CALL, QUESTION = "taskId", "call", "question"
"""Keys of what the decoder notes on a question: the task that waits, the call as `[id, name]`, the id of its message.

`PARTS_SAID` has the length and a digest of the text of each artifact that the task had by then.
"""
_COMPARED = 100
"""How many artifacts a message is compared with: each message of a task costs the same, however many there are."""


@dataclass(slots=True)
class _Artifact:
    """What came of one artifact so far."""

    pieces: Pieces = field(default_factory=Pieces)
    others: set[str] = field(default_factory=set)
    flowing: PartKind | None = None

    @property
    def text(self) -> str:
        """All of its text, concatenated once until more comes."""
        return self.pieces.text


class A2ADecoder(JsonDecoder):
    """One per run. `interface` is how the agent is called; None is what the options of the backend say.

    Attributes:
        task_id: The task that the agent works on, once known.
        state: Its state, as far as it is known.
        spoken: The agent answered by a message, without a task that continues.
    """

    def __init__(self, context: Context, interface: Interface | None = None) -> None:
        super().__init__(context)
        options: BackOptions = BackOptions.of(context)
        self._old_rest = (interface or assumed(options, 0.0).interfaces[0]).old_rest
        self.task_id = ""
        self.state: State | None = None
        self.spoken = False
        self._pieces: list[str] = []
        self._said_length = 0
        self._piece_id = ""
        self._end_metadata: Wire = {}
        self._last_status: Wire = {}
        self._context = context
        self._lost = context.lost
        self._progress = options.progress
        self._artifacts: dict[str, _Artifact] = {}
        self._earlier = _earlier(context)
        self._answers = context.request.resume if context.request is not None else []
        self._began = False
        self._calls: set[str] = set()
        self._results: set[str] = set()
        self._shown: set[str] = set()
        self._told: set[str] = set()
        self._said: set[str] = set()
        self._answered = False
        # A text of a status that an artifact may repeat, the artifact that does, and how much of it that has repeated.
        self._held: str | None = None
        self._held_in: _Artifact | None = None
        self._held_at = 0
        self._last_progress = ""
        self._usage: dict[str, UsageReported] = {}

    # -------------------------------------------------------------- what came

    def read(self, event: dict[str, Any], name: str | None) -> None:
        told = isinstance(event.get("result"), dict) and not event.get("error")
        error = (None if told else error_in(event)) or (event if name == "error" else None)
        if error is not None:
            self.fail(ERRORS.failure(error))
            return
        result = event.get("result") if "jsonrpc" in event or "result" in event else event
        if not isinstance(result, dict):
            return
        if self._old_rest:
            result = read_result(result)
        kind, value = _opened(result)
        named = text_of(value.get("id" if kind == "task" else "taskId"))
        if named and self.task_id and named != self.task_id:
            self.builder.emit(Raw(NAME, result))  # an event of another task
            return
        first, self._began = not self._began, True
        self.spoken = self.spoken and kind in ("message", "")
        match kind:
            case "task":
                self._task(value, first=first)
            case "message":
                self._message(value)
            case "status":
                self._place(value)
                self._status(dict_of(value.get("status")), dict_of(value.get("metadata")))
                if value.get("final") is True:
                    self._check_state(dict_of(value.get("status")))
            case "artifact":
                self._place(value)
                self._note_usage(dict_of(value.get("metadata")))
                self._artifact(dict_of(value.get("artifact")), append=value.get("append") is True)
                if value.get("lastChunk") is True:
                    self._end_artifact(text_of(camel_keys(dict_of(value.get("artifact"))).get("artifactId")))
                elif value.get("append") is True and self._held is None:
                    self._learn(event, result, value)
            case _:
                self.builder.emit(Raw(NAME, result))

    def read_error(self, value: Any) -> bool:
        text = value if isinstance(value, str) and value else "The agent reported an error."
        self.fail(ERRORS.failure({"message": text}))
        return True

    def answer(self, value: dict[str, Any]) -> list[Event]:
        """Return the events of a whole answer; its task may still be running."""
        self.read(value, None)
        self._check_state(self._last_status)
        if self.spoken:
            self._finish(self._end_metadata)
        return self.builder.take()

    @property
    def waits_for_task(self) -> bool:
        """True if the agent works on a task that has not ended."""
        return not (self.builder.done or self.spoken) and bool(self.task_id)

    # -------------------------------------------------------------- tasks and messages

    def _place(self, value: Wire) -> None:
        """Notes of which task and context this is."""
        task_id, context_id = text_of(value.get("taskId")), text_of(value.get("contextId"))
        self.task_id = self.task_id or task_id
        self.builder.begin(thread_id=context_id or None, extras=noted({TASK: task_id, "contextId": context_id}))

    def _task(self, value: Wire, *, first: bool) -> None:
        """A whole task: what is new of it. The `first` one may still ask what was just answered."""
        task = camel_keys(value)
        self._place({"taskId": task.get("id"), "contextId": task.get("contextId")})
        metadata = dict_of(task.get("metadata"))
        for each in task["artifacts"] if isinstance(task.get("artifacts"), list) else ():
            if isinstance(each, dict):
                self._artifact(each, append=False)
        status = dict_of(task.get("status"))
        if state_of(status.get("state")) is State.COMPLETED and not self._answered:
            self._history(task.get("history"), dict_of(status.get("message")))
        if not (first and self._is_answered(status)):
            self._status(status, metadata)

    def _is_answered(self, status: Wire) -> bool:
        """Return whether this is the question that the request answers."""
        asked = text_of(camel_keys(dict_of(status.get("message"))).get("messageId"))
        questions = [notes_of(answer).get(QUESTION) for answer in self._answers]
        return state_of(status.get("state")) in WAITING and asked in questions

    def _history(self, history: object, last: Wire) -> None:
        """The agent's last messages, where a completed task has its answer nowhere else."""
        messages = [camel_keys(m) for m in history if isinstance(m, dict)] if isinstance(history, list) else []
        if last or self._held or self._last_progress:
            return
        said = len(messages)
        while said and role_of(messages[said - 1].get("role")) == "assistant":
            said -= 1
        for message in messages[said:]:
            self._say(message)

    def _message(self, value: Wire) -> None:
        """A message is the whole answer, unless it belongs to a task, or the stream continues with others: some agents
        send one for each piece (microsoft/agent-framework#5868).
        """
        message = camel_keys(value)
        if role_of(message.get("role")) == "user":
            return
        told_in_task = bool(self.task_id)
        self.builder.begin(
            thread_id=text_of(message.get("contextId")) or None,
            extras=noted({"contextId": text_of(message.get("contextId"))}),
        )
        metadata = dict_of(message.get("metadata"))
        self._note_usage(metadata)
        if told_in_task:
            self._say(message)
        else:
            self.spoken = True
            self._end_metadata = metadata
            self._say_piece(message)

    # -------------------------------------------------------------- status

    def _check_state(self, status: Wire) -> None:
        """Fail the run if its last state is one that no version has: nothing would end it."""
        word = text_of(status.get("state"))
        if is_unknown_state(word):
            text = f"The agent's task has the unknown state {masked(word, LONGEST_WORD)}."
            self.fail(Failure(ErrorCode.BACKEND_PROTOCOL, text))

    def _status(self, status: Wire, metadata: Wire) -> None:
        self._last_status = status
        state = state_of(status.get("state"))
        self._note_usage(metadata)
        if state is None:
            return
        self.state = state
        message = camel_keys(dict_of(status.get("message")))
        about = {**dict_of(message.get("metadata")), **metadata}
        if state in WAITING:
            self._ask(state, message)
        elif state is State.REJECTED and about.get(FINISH_REASON) == FinishReason.CONTENT_FILTER:
            self._finish(about)  # as another bridge sends it
        elif state in (State.FAILED, State.REJECTED):
            self._release()
            self._flush_usage()
            said = "".join(p.text for p in _parts(message) if isinstance(p, Text))
            self.fail(task_failure(said, about))
        elif state is State.CANCELED:
            self._release()
            self._flush_usage()
            self.builder.finish(FinishReason.CANCELED)
            self.builder.end()
        elif state is State.COMPLETED:
            self._say(message)
            self._finish(about)
        else:
            self._tell_progress(message, metadata)

    def _finish(self, metadata: Wire) -> None:
        """The run is complete; without other content, the text of a status is the answer."""
        held, self._held = self._held, None
        if not self._answered and (held or self._last_progress):
            self._text(held or self._last_progress)
        elif held is not None:
            self._progress_text(held)
        self._flush_usage()
        end = end_of(metadata.get(FINISH_REASON), answered=True)
        if isinstance(end, Failure):
            self.fail(end)
        else:
            self.builder.finish(end)
            self.builder.end()

    def _tell_progress(self, message: Wire, metadata: Wire) -> None:
        """Read a status of a running task. google-adk sends its answer there, and again in an artifact."""
        parts = _parts(message)
        name = text_of(message.get("messageId"))
        if not parts or name in self._told:
            return  # nothing, or the content of an earlier snapshot of the task
        if name:
            self._told.add(name)
        self._release()
        texts = [p.text for p in parts if isinstance(p, Text)]
        for part in parts:
            if not isinstance(part, Text):
                self._part(part)
        text = "".join(texts)
        if text and any(key.startswith("adk_") for key in metadata):
            self._held, self._held_in, self._held_at = text, None, 0
        elif text:
            self._last_progress = text
            self._progress_text(text)

    def _progress_text(self, text: str) -> None:
        if self._progress == "reasoning":
            self.builder.add(_ANSWER, Reasoning(text))
        elif self._progress == "text":
            self._text(text)
        else:
            self._lost.add(Feature.REASONING, "messages of an unfinished task; backend option progress")

    def _release(self) -> None:
        """The text held back was progress: other content followed, not a repetition."""
        held, self._held = self._held, None
        if held is not None and held not in self._said:
            self._progress_text(held)

    def _ask(self, state: State, message: Wire) -> None:
        """The task waits. The agent's text is the question; its calls are what it waits for."""
        held = self._held
        parts = _parts(message)
        text = "".join(p.text for p in parts if isinstance(p, Text))
        if held == text:
            self._held = None
        self._release()
        reason = "auth_required" if state is State.AUTH_REQUIRED else "input_required"
        said = {**self._earlier, **{key: [len(each.text), _digest(each.text)] for key, each in self._artifacts.items()}}
        notes = {TASK: self.task_id, QUESTION: text_of(message.get("messageId")), PARTS_SAID: said}
        named = dict_of(message.get("metadata")).get(INTERRUPTS)
        calls = [p for p in parts if isinstance(p, ToolCall)]
        for call in calls:
            self._part(call)
        if isinstance(named, list) and named and all(isinstance(each, dict) for each in named):
            for each in named:
                self._named_question(each, notes)
        elif calls:
            for number, call in enumerate(calls):
                interrupt_id = f"{self.task_id}:{number}" if number else self.task_id
                self._interrupt(interrupt_id, reason, text or None, call, notes)
        else:
            self._interrupt(self.task_id, reason, _payload(text, parts), None, notes, asked=self._has_said(text, parts))
        self._flush_usage()
        self.builder.finish(FinishReason.INTERRUPTED)
        self.builder.end()

    def _named_question(self, question: Wire, notes: Wire) -> None:
        """A question of another bridge. One that waits for the result of a call is answered as google-adk's are."""
        interrupt_id, reason = text_of(question.get("id")) or self.task_id, text_of(question.get("reason")) or None
        payload, call_id = plain_numbers(question.get("payload")), text_of(question.get("callId")) or None
        told = dict_of(question.get("call"))
        name = text_of(told.get("name"))
        if call_id and name:
            self._part(ToolCall(call_id, name, arguments_of(told.get("args"))))
        if call_id and reason == AWAITS_RESULT:
            notes = {**notes, CALL: [call_id, name]}
        else:
            notes = {**notes, "named": True}
        self.builder.interrupt(Interrupted(interrupt_id, reason, payload, call_id, noted({"notes": notes})))

    def _has_said(self, text: str, parts: list[Part]) -> bool:
        """Return whether the answer before a question is it: the agent says it there, too (google/adk-go#913), or the
        status has no message.
        """
        if not text:
            return not parts and self._answered
        artifacts = "".join(each.text for each in self._artifacts.values())
        return text in self._said or artifacts.endswith(text)

    def _interrupt(
        self,
        interrupt_id: str,
        reason: str,
        payload: Any,
        call: ToolCall | None,
        notes: Wire,
        *,
        asked: bool = False,
    ) -> None:
        """Ask. A call by which a framework asks is the question itself, which is about another call, or none."""
        if call is not None:
            notes = {**notes, CALL: [call.call_id, call.name]}
        question = question_in(call) if call is not None else None
        if question is not None:
            call = question.call
            reason, payload = question.reason, question.payload
            if call is not None:
                call.call_id = call.call_id or str(notes[CALL][0])
                self._part(call)
        call_id = call.call_id if call is not None else None
        extras: Extras = {**(noted({"notes": notes}) or {}), **({ASKED: {}} if asked else {})}
        self.builder.interrupt(Interrupted(interrupt_id, reason, payload, call_id, extras))

    # -------------------------------------------------------------- artifacts

    def _artifact(self, value: Wire, *, append: bool) -> None:
        wire = camel_keys(value)
        key = text_of(wire.get("artifactId"))
        self._note_usage(dict_of(wire.get("metadata")))
        known = self._artifacts.get(key)
        raw = wire.get("parts")
        parts = [p for each in (raw if isinstance(raw, list) else ()) if (p := read_part(each)) is not None]
        if known is None and not append and key in self._earlier:
            known = self._artifacts[key] = _Artifact()
            parts = _behind(parts, self._earlier[key], known)
        elif known is not None and not append:
            parts = self._replacing(wire, parts, known)
        artifact = known or self._artifacts.setdefault(key, _Artifact())
        for part in parts:
            self._artifact_part(key, artifact, part)

    def _learn(self, event: dict[str, Any], result: Wire, value: Wire) -> None:
        """Most events add one text to an artifact. Those with converted names are not learned."""
        wire = dict_of(value.get("artifact"))
        artifact = self._artifacts.get(key := text_of(wire.get("artifactId")))
        parts = wire.get("parts")
        if artifact is None or artifact.flowing is not PartKind.TEXT or not isinstance(parts, list) or len(parts) != 1:
            return
        wrapper = () if value is result else tuple(name for name, each in result.items() if each is value)
        if isinstance(dict_of(parts[0]).get("text"), str) and (wrapper or value is result):
            path = (*(() if result is event else ("result",)), *wrapper, "artifact", "parts", 0, "text")
            part = self.builder.part((key, PartKind.TEXT))
            self.repeat.learn(event, path, part, texts=artifact.pieces)

    def _replacing(self, wire: Wire, parts: list[Part], known: _Artifact) -> list[Part]:
        """Return what is new in an artifact that is sent again as a whole; sent text cannot be withdrawn."""
        text = "".join(p.text for p in parts if isinstance(p, Text))
        others: list[Part] = [p for p in parts if not isinstance(p, (Text, Reasoning)) and _same(p) not in known.others]
        if text and not known.pieces.begins(text):
            self.builder.emit(Raw(NAME, {"type": "replaced artifact", "artifact": wire}))
            return others
        rest = text[known.pieces.size :]
        return [*others, Text(rest)] if rest else others

    def _artifact_part(self, key: str, artifact: _Artifact, part: Part) -> None:
        match part:
            case Text():
                self._answered = True
                self._compare_with_held(artifact, part.text)
                artifact.pieces.append(part.text)
                self._flow(key, artifact, PartKind.TEXT, part.text)
            case Reasoning():
                self._release()
                self._flow(key, artifact, PartKind.REASONING, part.text)
                if part.signature:
                    self._end_flow(key, artifact, part.signature)
            case _:
                self._end_flow(key, artifact)
                artifact.others.add(_same(part))
                self._part(part)

    def _compare_with_held(self, artifact: _Artifact, text: str) -> None:
        """Discard the text held back if an artifact has repeated it, or send it if the artifact has other text."""
        if self._held is None:
            return
        at = self._held_at
        elsewhere = artifact is not self._held_in if at else artifact.pieces.size
        if elsewhere or not self._held.startswith(text, at):
            self._release()
            return
        self._held_in, self._held_at = artifact, at + len(text)
        if self._held_at == len(self._held):
            self._held = None

    def _flow(self, key: str, artifact: _Artifact, kind: PartKind, text: str) -> None:
        if artifact.flowing is not kind:
            self._end_flow(key, artifact)
            self.builder.open_part((key, kind), _ANSWER, kind, part_id=key or None)
            artifact.flowing = kind
        self.builder.delta((key, kind), text)

    def _end_flow(self, key: str, artifact: _Artifact, signature: str | None = None) -> None:
        if artifact.flowing is not None:
            self.builder.end_part((key, artifact.flowing), signature=signature)
            artifact.flowing = None

    def _end_artifact(self, key: str) -> None:
        if (artifact := self._artifacts.get(key)) is not None:
            self._end_flow(key, artifact)

    # -------------------------------------------------------------- parts

    def _say(self, message: Wire) -> None:
        """Add the parts of a message that is, or ends, the answer, except what an artifact has sent already."""
        parts = _parts(message)
        text = "".join(p.text for p in parts if isinstance(p, Text))
        again = bool(text) and (text in self._said or self._in_artifacts(text))
        if text and self._held == text:
            self._held = None
        for part in parts:
            if isinstance(part, Text):
                if not again:
                    self._text(part.text, part)
            elif _same(part) not in self._shown:
                self._part(part)

    def _in_artifacts(self, text: str) -> bool:
        """Return whether one of the last artifacts, or all of them together, have this text."""
        last = [each.pieces for each in islice(reversed(self._artifacts.values()), _COMPARED + 1)]
        if any(pieces.size == len(text) and pieces.begins(text) for pieces in last):
            return True
        whole = len(last) <= _COMPARED and sum(pieces.size for pieces in last) == len(text)
        return whole and text == "".join(pieces.text for pieces in reversed(last))

    def _say_piece(self, message: Wire) -> None:
        """Add a message of an answer without a task: under the id of the one before it, it continues its text."""
        name, parts = text_of(message.get("messageId")), _parts(message)
        texts = [p for p in parts if isinstance(p, Text)]
        text = "".join(p.text for p in texts)
        if text and len(self._pieces) > 1 and len(text) == self._said_length and text == "".join(self._pieces):
            return  # the whole once more, after its pieces
        self._said_length += len(text)
        if name != self._piece_id or not name:
            self._piece_id = name
            self.builder.end_flow(_ANSWER)
        if text:
            self._pieces.append(text)
        if len(texts) == len(parts) == 1 and not texts[0].extras:
            self._answered = True
            self.builder.flow(_ANSWER, PartKind.TEXT, text)
        elif parts:
            self._say(message)

    def _text(self, text: str, part: Text | None = None) -> None:
        self._answered = True
        self._said.add(text)
        self.builder.add(_ANSWER, part or Text(text))

    def _part(self, part: Part) -> None:
        """A whole part that is no text; calls and their results come in statuses and in artifacts, each once."""
        match part:
            case ToolCall():
                if part.call_id in self._calls or question_in(part) is not None:
                    return  # sent as the question that it is
                self._calls.add(part.call_id)
            case ToolResult():
                if part.call_id in self._results:
                    return
                self._results.add(part.call_id)
            case Reasoning():
                pass
            case _:
                self._shown.add(_same(part))
                self._answered = True
        self.builder.add(_ANSWER, part)

    # -------------------------------------------------------------- usage, the end

    def _note_usage(self, metadata: Wire) -> None:
        """Those of google-adk are of one model call each, which its event names; those of another bridge of the run."""
        if isinstance(counts := metadata.get(ADK_USAGE), dict):
            key = text_of(metadata.get("adk_event_id"))
            self._usage["adk " + key] = UsageReported(**counts_in(counts))
        if isinstance(counts := metadata.get(USAGE), dict):
            self._usage[USAGE] = _own_usage(counts)

    def _flush_usage(self) -> None:
        own_report = self._usage.get(USAGE)
        reports = [own_report] if own_report is not None else list(self._usage.values())
        if not reports:
            return
        total = UsageReported()
        for name in COUNTS:
            counts = [n for each in reports if (n := getattr(each, name)) is not None]
            setattr(total, name, sum(counts) if counts else None)
        if any(getattr(total, name) is not None for name in COUNTS):
            self.builder.usage(total)

    def close(self, failure: Failure | None = None) -> list[Event]:
        """The stream ended. One message is a whole answer, also of an agent that leaves its stream open."""
        left_open = failure is not None and failure.code is ErrorCode.BACKEND_TIMEOUT and len(self._pieces) == 1
        if self.spoken and not self.builder.done and (failure is None or left_open):
            self._finish(self._end_metadata)
        return super().close(failure)

    def flush(self) -> None:
        self._release()
        self._flush_usage()


def _opened(result: Wire) -> tuple[str, Wire]:
    """What a result is and its object, by its wrapper or its `kind`; a task by itself has neither in 1.0."""
    kind = result.get("kind")
    if isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind], camel_keys(result)
    wire = camel_keys(result)
    for name, told in _WRAPPERS.items():
        if isinstance(value := wire.get(name), dict):
            return told, camel_keys(value)
    if isinstance(wire.get("status"), dict) and "id" in wire:
        return "task", wire
    return "", wire


def _parts(message: Wire) -> list[Part]:
    """The parts of a message; version 0.3 of HTTP+JSON calls them `content`."""
    found = message.get("parts", message.get("content"))
    return [p for each in (found if isinstance(found, list) else ()) if (p := read_part(each)) is not None]


def _behind(parts: list[Part], earlier: list[Any], known: _Artifact) -> list[Part]:
    """Return what is new in an artifact that an earlier turn of its task has sent; all of it if its text differs."""
    length, digest = earlier
    text = "".join(p.text for p in parts if isinstance(p, Text))
    if _digest(text[:length]) != digest:
        return parts
    known.pieces.append(text[:length])
    return [Text(text[length:])] if len(text) > length else []


def _same(part: Part) -> str:
    """What two parts that are alike have in common."""
    return _digest(repr(part))


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _earlier(context: Context) -> dict[str, list[Any]]:
    """Return the artifacts of the task when it asked, as stored under `PARTS_SAID`."""
    request = context.request
    noted = [dict_of(notes_of(answer).get(PARTS_SAID)) for answer in (request.resume if request is not None else ())]
    return {
        key: said
        for each in noted
        for key, said in each.items()
        if isinstance(said, list) and list(map(type, said)) == [int, str]
    }


def notes_of(answer: Resume) -> Wire:
    """What was noted on the question that this answers."""
    return dict_of(own(answer.extras).get("notes"))


def _payload(text: str, parts: list[Part]) -> Any:
    """Return the content of a question: its text, with the schema of the answer if there is one; else the data."""
    values = [p.value for p in parts if hasattr(p, "value")]
    schemas = [v["schema"] for v in values if isinstance(v, dict) and isinstance(v.get("schema"), dict)]
    if schemas:
        return {**({"question": text} if text else {}), "responseSchema": schemas[0]}
    if values and not text:
        return values[0] if len(values) == 1 else values
    if values:
        return {"question": text, "data": values[0] if len(values) == 1 else values}
    return text or None


def _own_usage(counts: Wire) -> UsageReported:
    """Counts of another bridge, which come as doubles where a Struct held them."""
    found: dict[str, Any] = {name: whole(counts.get(name)) for name in COUNTS}
    return UsageReported(**found)
