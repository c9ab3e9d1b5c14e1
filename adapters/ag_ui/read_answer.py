"""AG-UI events of a backend -> events. Accepts every version and what real servers send; never raises on wire data.

`Streams` knows which texts, calls and reasoning are open; this file reads the events one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from bridge.contract import Context
from bridge.dialects.ag_ui.errors import ERRORS
from bridge.dialects.ag_ui.reports import read_interrupt, read_unnamed, read_usage
from bridge.dialects.ag_ui.snapshot import answer_from
from bridge.dialects.ag_ui.streams import Streams
from bridge.dialects.ag_ui.wire import NAME, OURS, TOOL_INPUT, UNNAMED, attached, camel, finish_in, noted, own
from bridge.errors import Failure
from bridge.model import Custom, Extras, FinishReason, Interrupted, Raw, StateChanged, StateOp, StepEnded, StepStarted
from bridge.model.jsontext import dict_of, loads, text_of
from bridge.toolkit.decoder import JsonDecoder
from bridge.toolkit.errors import error_in
from bridge.toolkit.words import end_of

_Event = dict[str, Any]
# Events that belong to no stream: an open chunk and a reasoning that awaits its encrypted value stay open.
_QUIET = frozenset({"RAW", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "REASONING_ENCRYPTED_VALUE"})
_CHUNKS = frozenset({"TEXT_MESSAGE_CHUNK", "TOOL_CALL_CHUNK", "REASONING_MESSAGE_CHUNK"})


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a run ended, what it asks, and the extras of its end."""

    how: FinishReason | Failure | None
    questions: list[Interrupted]
    extras: Extras | None


class AGUIDecoder(JsonDecoder):
    """One per stream, which may hold several runs, one after the other."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._context = context
        self._streams = Streams(self.builder)
        self._snapshot: list[Any] | None = None
        self._finish: FinishReason | Failure | None = None
        self._ended: _Ended | None = None
        self._said_error: Failure | None = None
        self._unnamed: list[Interrupted] = []  # told by CUSTOM events; an outcome may tell the same ones with their ids
        self._told: list[Any] = []  # what these CUSTOM events hold, for clients that listen to them

    # -------------------------------------------------------------- frames

    def read(self, event: _Event, name: str | None) -> None:
        """Most events are a piece of a text, a call or a reasoning that is open, while nothing waits."""
        streams, kind, text = self._streams, event.get("type"), event.get("delta")
        if self._ended is not None and kind != "RUN_STARTED":
            return  # it belongs to no run
        if type(kind) is str and kind in streams.live and not streams.unsettled and type(text) is str:
            field, keys = streams.live[kind]
            stream = event.get(field)
            if type(stream) is str and stream in keys:
                self.builder.delta(keys[stream], text)
                self.repeat.learn(event, ("delta",), self.builder.part(keys[stream]), number="timestamp")
                return
        self._event(event)

    def flush(self) -> None:
        """A run that has ended does so now: no other one followed in the stream."""
        ended = self._ended
        if ended is not None and not isinstance(ended.how, Failure):
            self.builder.finish(ended.how, ended.extras)
        self._streams.settle()
        self._ask(self._unnamed if ended is None else ended.questions)
        if ended is not None and isinstance(ended.how, Failure):
            self.builder.fail(ended.how)

    def _event(self, event: _Event) -> None:
        event = camel(event)
        kind = event.get("type")
        if not isinstance(kind, str):
            error = error_in(event)
            if error:
                self.fail(ERRORS.failure(error))
            return
        streams = self._streams
        if kind not in _QUIET:
            if kind not in _CHUNKS:
                streams.end_chunk(event.get("subagentRunId"))
            if kind not in ("REASONING_END", "THINKING_END") and not streams.reopen(event):
                streams.settle()
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, event)
        elif (error := error_in(event)) is not None:
            self.fail(ERRORS.failure(error))
        else:
            self._raw(event)

    def _raw(self, event: _Event) -> None:
        """Keep what only this dialect, or none, understands for routes with AG-UI on both sides."""
        self.builder.emit(Raw(NAME, event))

    # -------------------------------------------------------------- text, calls, reasoning

    def _text_start(self, event: _Event) -> None:
        self._streams.announce(event)

    def _text(self, event: _Event) -> None:
        self._streams.text(text_of(event.get("messageId")), event)

    def _text_end(self, event: _Event) -> None:
        self._finish = finish_in(event) or self._finish
        self._streams.close_text(text_of(event.get("messageId")), event)

    def _call_start(self, event: _Event) -> None:
        if not self._streams.call(event):
            self._raw(event)

    def _call_args(self, event: _Event) -> None:
        if not self._streams.arguments(text_of(event.get("toolCallId")), event):
            self._raw(event)

    def _call_end(self, event: _Event) -> None:
        self._streams.end_call(text_of(event.get("toolCallId")), event)

    def _call_result(self, event: _Event) -> None:
        if not self._streams.result(event):
            self._raw(event)

    def _reasoning(self, event: _Event) -> None:
        self._streams.reasoning(text_of(event.get("messageId")), event)

    def _reasoning_end(self, event: _Event) -> None:
        self._streams.end_reasoning(text_of(event.get("messageId")))

    def _encrypted(self, event: _Event) -> None:
        if not self._streams.encrypted(event):
            self._raw(event)

    def _thinking_start(self, event: _Event) -> None:
        self._streams.begin_thinking()

    def _thinking(self, event: _Event) -> None:
        self._streams.reasoning(self._streams.thinking, event, named=False)

    def _thinking_end(self, event: _Event) -> None:
        self._streams.end_reasoning(self._streams.thinking)

    def _chunk(self, event: _Event) -> None:
        if not self._streams.chunk(event):
            self._raw(event)

    def _nothing(self, event: _Event) -> None:
        """Spans around reasoning: the messages inside contain everything."""

    # -------------------------------------------------------------- whole things

    def _step_started(self, event: _Event) -> None:
        self.builder.emit(StepStarted(text_of(event.get("stepName")), noted(attached(event))))

    def _step_finished(self, event: _Event) -> None:
        self.builder.emit(StepEnded(text_of(event.get("stepName")), noted(attached(event))))

    def _state(self, event: _Event) -> None:
        self.builder.emit(StateChanged(StateOp.SNAPSHOT, event.get("snapshot"), noted(attached(event))))

    def _state_delta(self, event: _Event) -> None:
        if isinstance(event.get("delta"), list):
            self.builder.emit(StateChanged(StateOp.PATCH, event["delta"], noted(attached(event))))

    def _messages(self, event: _Event) -> None:
        messages = event.get("messages")
        if isinstance(messages, list):
            self._snapshot = messages
            self.builder.emit(StateChanged(StateOp.MESSAGES, messages, noted(attached(event))))
            self._streams.results_in(messages)

    def _wire_raw(self, event: _Event) -> None:
        """A RAW event that the bridge itself wrote becomes again what it was.

        An error in one is the failure of a run without an answer (agentscope-ai/agentscope-java#1861).
        """
        prefix, _, dialect = text_of(event.get("source")).partition("/")
        if prefix == OURS and dialect and dialect != NAME:
            self.builder.emit(Raw(dialect, event.get("event")))
        else:
            self._note_error(event.get("event"))
            self._raw(event)

    def _note_error(self, value: Any) -> None:
        """Keep the error that a value of the agent's own holds, in case that it sends nothing else."""
        error = error_in(value)
        self._said_error = self._said_error or (None if error is None else ERRORS.failure(error))

    def _custom(self, event: _Event) -> None:
        name, value = event.get("name"), event.get("value")
        if not isinstance(name, str):
            self._raw(event)
        elif name == "on_interrupt":
            self._on_interrupt(value)
        elif name == TOOL_INPUT and text_of(dict_of(value).get("toolCallId")) in self._streams.called:
            return  # TanStack AI and the bridge repeat a call so
        else:
            if "error" in name.lower():
                self._note_error(value if error_in(value) else {"error": value})
            self.builder.emit(Custom(name, value, noted(attached(event))))

    def _on_interrupt(self, value: Any) -> None:
        """LangGraph, Mastra and AG-Kit's second generation send an interrupt so: without an id, mostly as JSON text."""
        said = value
        if isinstance(value, str):
            with suppress(ValueError):
                said = loads(value)
        self._unnamed.append(read_unnamed(value, said, self._context.make_id(UNNAMED)))
        self._told.append(value)

    def _ask(self, questions: list[Interrupted]) -> None:
        """The first question has the CUSTOM events of all: outcomes do not say which of them tells which question."""
        told, self._told, self._unnamed = self._told, [], []
        for question in questions:
            if told:
                question = replace(question, extras=noted({**own(question.extras), "told": told}))
                told = []
            self.builder.interrupt(question)

    # -------------------------------------------------------------- the run

    def _run_started(self, event: _Event) -> None:
        """Read the start of the run, or of another one in the same stream, which continues the answer: a client shows
        the messages of both (ag-ui-protocol/ag-ui#2409).
        """
        if self._ended is not None:
            self._streams.close()
            self._streams = Streams(self.builder)
            self._ended = self._finish = self._snapshot = None
            self._told = []
        self.builder.begin(thread_id=text_of(event.get("threadId")) or None)
        self.builder.start()

    def _run_finished(self, event: _Event) -> None:
        self._usage(event)
        outcome = event.get("outcome")
        outcome = camel(outcome) if isinstance(outcome, dict) else {}
        kind, interrupts = outcome.get("type"), outcome.get("interrupts")
        if self._snapshot is not None and not self._streams.texted:
            streams = self._streams
            answer_from(self._snapshot, self.builder, self._context.request, streams.called, streams.thought)
        named = [e for e in interrupts if isinstance(e, dict)] if isinstance(interrupts, list) else []
        if kind == "interrupt" and named:
            self._unnamed = [read_interrupt(entry, self._context.make_id("int")) for entry in named]
        questions, self._unnamed = self._unnamed, []
        end = finish_in(event) or self._finish
        if kind not in (None, "success", "interrupt"):
            end = end_of(kind, answered=self.builder.answered) or end
        if self._said_error is not None and not self.builder.answered and not questions:
            end = self._said_error
        extras = noted({"result": event.get("result"), "metadata": attached(event)["metadata"]})
        self._ended = _Ended(end, questions, extras)

    def _run_error(self, event: _Event) -> None:
        self._usage(event)
        end = finish_in(event)
        if isinstance(end, FinishReason):  # the bridge's encoder marks an answer emptied by a filter in this way
            self._ended = _Ended(end, [], None)
        else:
            questions, self._unnamed = self._unnamed, []
            self._ended = _Ended(ERRORS.failure(event), questions, None)

    def _usage(self, event: _Event) -> None:
        report = read_usage(event.get("usage"))
        if report is not None:
            self.builder.usage(report)


_HANDLERS: dict[str, Callable[[AGUIDecoder, _Event], None]] = {
    "RUN_STARTED": AGUIDecoder._run_started,
    "RUN_FINISHED": AGUIDecoder._run_finished,
    "RUN_ERROR": AGUIDecoder._run_error,
    "STEP_STARTED": AGUIDecoder._step_started,
    "STEP_FINISHED": AGUIDecoder._step_finished,
    "TEXT_MESSAGE_START": AGUIDecoder._text_start,
    "TEXT_MESSAGE_CONTENT": AGUIDecoder._text,
    "TEXT_MESSAGE_END": AGUIDecoder._text_end,
    "TOOL_CALL_START": AGUIDecoder._call_start,
    "TOOL_CALL_ARGS": AGUIDecoder._call_args,
    "TOOL_CALL_END": AGUIDecoder._call_end,
    "TOOL_CALL_RESULT": AGUIDecoder._call_result,
    "REASONING_START": AGUIDecoder._nothing,
    "REASONING_END": AGUIDecoder._nothing,
    "REASONING_MESSAGE_START": AGUIDecoder._nothing,
    "REASONING_MESSAGE_CONTENT": AGUIDecoder._reasoning,
    "REASONING_MESSAGE_END": AGUIDecoder._reasoning_end,
    "REASONING_ENCRYPTED_VALUE": AGUIDecoder._encrypted,
    "THINKING_START": AGUIDecoder._nothing,
    "THINKING_END": AGUIDecoder._nothing,
    "THINKING_TEXT_MESSAGE_START": AGUIDecoder._thinking_start,
    "THINKING_TEXT_MESSAGE_CONTENT": AGUIDecoder._thinking,
    "THINKING_TEXT_MESSAGE_END": AGUIDecoder._thinking_end,
    **dict.fromkeys(_CHUNKS, AGUIDecoder._chunk),
    "STATE_SNAPSHOT": AGUIDecoder._state,
    "STATE_DELTA": AGUIDecoder._state_delta,
    "MESSAGES_SNAPSHOT": AGUIDecoder._messages,
    "RAW": AGUIDecoder._wire_raw,
    "CUSTOM": AGUIDecoder._custom,
}
