"""Chunks of a backend's UI message stream -> events. Never raises on wire data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge.contract import Context
from bridge.dialects.ai_sdk_ui.errors import ERRORS
from bridge.dialects.ai_sdk_ui.usage import Metadata
from bridge.dialects.ai_sdk_ui.wire import (
    EARLIER,
    INVALID_INPUT,
    NAME,
    Wire,
    metadata_of,
    noted,
    noted_part,
    picked,
    read_file,
    secret_of,
    value_text,
)
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Custom,
    Data,
    FinishReason,
    Interrupted,
    PartKind,
    Raw,
    StateChanged,
    StateOp,
    StepEnded,
    StepStarted,
    Text,
    ToolCall,
)
from bridge.model.jsontext import dict_of, read_json, text_of
from bridge.model.open_part import without_placeholder
from bridge.toolkit.approvals import Asked, mastra_question
from bridge.toolkit.decoder import JsonDecoder
from bridge.toolkit.errors import error_in
from bridge.toolkit.words import end_of

_KINDS = {"text-delta": PartKind.TEXT, "reasoning-delta": PartKind.REASONING}
_DELTAS = {PartKind.TEXT: "text-delta", PartKind.REASONING: "reasoning-delta"}
_INTERRUPTED = Failure(ErrorCode.TRUNCATED_STREAM, "The model's answer ended before it was complete.")
_HALF_A_CALL = Failure(ErrorCode.BACKEND_PROTOCOL, "The backend's answer ended in the middle of the input of a call.")
_CUT = frozenset({FinishReason.LENGTH, FinishReason.CONTENT_FILTER})
_AFTER_ERROR = ("finish", "message-metadata")
"""Chunks that are read after an error: they may have the usage."""
_STATES = frozenset(map(str, StateOp))

_Key = tuple[Any, ...]


class UIMessageDecoder(JsonDecoder):
    """One per run.

    Ids of texts and reasonings repeat across steps, so that a part's key contains its step. `_live` has the open ones
    by chunk type and id, `_calls` the calls of this answer, each with the pieces of its arguments.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        messages = context.request.messages if context.request else ()
        self._known = {p.call_id for m in messages for p in m.parts if isinstance(p, ToolCall)}
        self._step = 0
        self._live: dict[str, dict[str, _Key]] = {"text-delta": {}, "reasoning-delta": {}}
        self._secrets: dict[_Key, Any] = {}
        self._calls: dict[str, list[str]] = {}
        self._said_error: Failure | None = None
        self._preliminary: dict[str, Wire] = {}
        self._asked: set[str] = set()
        self._metadata = Metadata()
        self._failure: Failure | None = None

    # ------------------------------------------------------------------ frames

    def read(self, event: Wire, name: str | None) -> None:
        kind, text = event.get("type"), event.get("delta")
        if type(kind) is str and kind in _KINDS and type(text) is str and len(event) == 3:
            key = self._live[kind].get(text_of(event.get("id")))
            if key is not None:
                self.builder.delta(key, text)
                self.repeat.learn(event, ("delta",), self.builder.part(key))
                return
        if self._failure is not None and kind not in _AFTER_ERROR:
            return
        if not isinstance(kind, str):
            self.saw_unknown = True
            if (error := error_in(event)) is not None:
                self._fail(ERRORS.failure(error))
        elif handler := _HANDLERS.get(kind):
            handler(self, event)
        elif kind.startswith("data-"):
            self._data(kind.removeprefix("data-"), event)
        elif (error := error_in(event)) is not None:
            self._fail(ERRORS.failure(error))
        else:
            self.saw_unknown = True
            self.builder.emit(Raw(NAME, event))

    def end_mark(self) -> None:
        """A stream without `finish` may end so, too."""
        if self._failure is None:
            self.finish()
        self._end()

    def flush(self) -> None:
        for event in self._preliminary.values():
            self._result(event)
        self._preliminary.clear()
        self._report()
        if self._failure is not None:
            self.builder.fail(self._failure)

    def _end(self) -> None:
        self.flush()
        self.builder.end()

    def _report(self) -> None:
        if (usage := self._metadata.usage) is not None:
            self.builder.usage(usage)

    # ------------------------------------------------------------------ the run

    def _start(self, event: Wire) -> None:
        metadata = event.get("messageMetadata")
        self._metadata.add(metadata)
        model = metadata.get("model") if isinstance(metadata, dict) else None
        self.builder.begin(
            model=text_of(model) or None, extras=noted({"id": event.get("messageId"), "metadata": metadata})
        )
        self.builder.start()

    def _merge(self, event: Wire) -> None:
        self._metadata.add(event.get("messageMetadata"))

    def _begin_step(self, event: Wire) -> None:
        if self.builder.is_open(self._step):
            self.builder.end_message(self._step)
            self._step += 1
        for live in self._live.values():
            live.clear()

    def _nothing(self, event: Wire) -> None:
        """The end of a step: what follows begins with the start of the next."""

    def _finish(self, event: Wire) -> None:
        self._merge(event)
        word = event.get("finishReason")
        end = end_of(word, answered=self.builder.answered)
        if self._failure is None and word == "error":
            self._failure = ERRORS.failure({})
        elif self._failure is None and word == "interrupted":
            self._failure = _INTERRUPTED
        elif self._failure is None and isinstance(end, Failure):
            self._failure = end
        elif self._failure is None and end not in _CUT and self._has_half_a_call():
            self._failure = _HALF_A_CALL
        elif self._failure is None and not self.builder.answered:
            self._failure = self._said_error
        if self._failure is None and not isinstance(end, Failure):
            self.builder.finish(end, self._metadata.extras)
            self._report()

    def _has_half_a_call(self) -> bool:
        """Return whether the input of a call that was not completed is no object."""
        open_calls = (pieces for call_id, pieces in self._calls.items() if self.builder.part(call_id) is not None)
        said = [without_placeholder("".join(pieces)).encode("utf-8", "replace") for pieces in open_calls]
        return any(text.strip() and not isinstance(read_json(text), dict) for text in said)

    def _error(self, event: Wire) -> None:
        self._fail(ERRORS.failure({"message": event.get("errorText")}))

    def _fail(self, failure: Failure) -> None:
        """End what is open. The reader waits for the end, which may report the usage."""
        self._failure = failure
        for kind, delta in _DELTAS.items():
            for name in list(self._live[delta]):
                self._close(kind, name)

    def _abort(self, event: Wire) -> None:
        self.builder.finish(FinishReason.CANCELED, self._metadata.extras)
        self._end()

    # ------------------------------------------------------------------ text and reasoning

    def _open(self, kind: PartKind, name: str) -> _Key:
        key: _Key = (kind, name, self._step)
        self.builder.open_part(key, self._step, kind)
        self._live[_DELTAS[kind]][name] = key
        return key

    def _part_start(self, event: Wire) -> None:
        kind, name = _kind(event), text_of(event.get("id"))
        self._close(kind, name)
        self._note(self._open(kind, name), event)

    def _delta(self, event: Wire) -> None:
        """A piece of a part that was not begun begins it."""
        kind, name = _kind(event), text_of(event.get("id"))
        key = self._live[_DELTAS[kind]].get(name) or self._open(kind, name)
        self._note(key, event)
        self.builder.delta(key, text_of(event.get("delta")))

    def _part_end(self, event: Wire) -> None:
        kind, name = _kind(event), text_of(event.get("id"))
        if (key := self._live[_DELTAS[kind]].get(name)) is not None:
            self._note(key, event)
        self._close(kind, name)

    def _note(self, key: _Key, event: Wire) -> None:
        if (metadata := metadata_of(event.get("providerMetadata"))) is not None:
            self._secrets[key] = metadata

    def _close(self, kind: PartKind, name: str) -> None:
        key = self._live[_DELTAS[kind]].pop(name, None)
        if key is None:
            return
        metadata = self._secrets.pop(key, None)
        signature, redacted = secret_of(metadata, sealed=True) if kind is PartKind.REASONING else (None, None)
        extras = noted_part({"providerMetadata": metadata}, metadata)
        self.builder.end_part(key, signature=signature, redacted=redacted, extras=extras)

    # ------------------------------------------------------------------ calls

    def _call(self, event: Wire) -> str | None:
        """Return the id of the call that the chunk begins or continues; None for one of an earlier answer."""
        call_id = text_of(event.get("toolCallId"))
        if call_id in self._known:
            return None
        if call_id not in self._calls:
            self._calls[call_id] = []
            self.builder.open_part(
                call_id,
                self._step,
                PartKind.TOOL_CALL,
                call_id=call_id or None,
                name=text_of(event.get("toolName")),
                extras=noted_part(picked(event, "dynamic", "providerExecuted", "title"), event.get("providerMetadata")),
            )
        return call_id

    def _input_start(self, event: Wire) -> None:
        call_id = self._call(event)
        if call_id is not None and event.get("inputEncoding") == "text":
            del self._calls[call_id]  # pieces of free text are no arguments: the whole input follows

    def _input_delta(self, event: Wire) -> None:
        call_id, text = text_of(event.get("toolCallId")), text_of(event.get("inputTextDelta"))
        if call_id in self._calls and text:
            self._calls[call_id].append(text)
            self.builder.delta(call_id, text)

    def _input(self, event: Wire) -> None:
        if event.get("providerMetadata") == EARLIER:
            self._known.add(text_of(event.get("toolCallId")))
        call_id = self._call(event)
        part = self.builder.part(call_id)
        if call_id is None or part is None:
            return
        value, pieces = event.get("input"), "".join(self._calls[call_id])
        said = "" if part.fresh else pieces
        whole = value_text({} if value is None else value)
        if value is None and pieces:
            pass  # no input says nothing new: the pieces are the arguments, and `null` may be all of them
        elif not said or (whole.startswith(said) and event.get("type") == "tool-input-available"):
            rest = whole[len(said) :]  # all of it, or the end that the pieces lack
            self._calls[call_id].append(rest)
            self.builder.delta(call_id, rest)
        metadata = metadata_of(event.get("providerMetadata"))
        self.builder.end_part(call_id, extras=noted_part({"providerMetadata": metadata}, metadata))

    def _input_error(self, event: Wire) -> None:
        self._input(event)
        if event.get("errorText") != INVALID_INPUT:
            self._result(event)

    def _output(self, event: Wire) -> None:
        call_id = text_of(event.get("toolCallId"))
        self._preliminary.pop(call_id, None)
        if event.get("preliminary") is True:
            self._preliminary[call_id] = event
        else:
            self._result(event)

    def _result(self, event: Wire) -> None:
        call_id, kind = text_of(event.get("toolCallId")), event.get("type")
        self.builder.end_part(call_id)
        ran = {"providerExecuted": event.get("providerExecuted") is True, **picked(event, "dynamic")}
        if kind == "tool-output-available":
            value = event.get("output")
            parts, extras = [Text(value_text(value))], {NAME: {"output": value, **ran}}
        else:
            denied = kind == "tool-output-denied"
            words = "denied" if denied else text_of(event.get("errorText"))
            parts, extras = [Text(words)], {NAME: {"denied": denied, **ran}}
        self.builder.result(call_id, list(parts), is_error=kind != "tool-output-available", extras=extras)

    def _approval(self, event: Wire) -> None:
        approval = text_of(event.get("approvalId"))
        if event.get("isAutomatic") is True or not approval or approval in self._asked:
            return
        self._asked.add(approval)
        call_id = text_of(event.get("toolCallId")) or None
        more = picked(event, "signature", "approvalDescriptor", "inputSchemaInput", "reason")
        self.builder.interrupt(Interrupted(approval, "tool_call", None, call_id, noted(more)))

    def _framework_question(self, call_id: str, question: Asked, value: Any) -> None:
        """A question of Mastra about a call, which its own clients read in the data part."""
        if call_id not in self._asked:
            self._asked.add(call_id)
            notes = {"runId": text_of(dict_of(value).get("runId"))}
            extras = noted({"notes": notes})
            self.builder.interrupt(Interrupted(call_id, question.reason, question.payload, call_id, extras))

    # ------------------------------------------------------------------ whole things

    def _file(self, event: Wire) -> None:
        if text_of(event.get("url")):
            self.builder.add(self._step, read_file(event))
        else:
            self.builder.emit(Raw(NAME, event))

    def _source(self, event: Wire) -> None:
        self.builder.emit(Custom("source", event))

    def _data(self, name: str, event: Wire) -> None:
        """Read a data part, or what this bridge has written as one."""
        value = event.get("data")
        fields = value if isinstance(value, dict) else {}
        match name:
            case "json":
                self.builder.add(self._step, Data(value))
            case "state" if text_of(fields.get("op")) in _STATES and "value" in fields:
                self.builder.emit(StateChanged(StateOp(fields["op"]), fields["value"]))
            case "step" if isinstance(fields.get("name"), str) and fields.get("status") in ("started", "ended"):
                make = StepStarted if fields["status"] == "started" else StepEnded
                self.builder.emit(make(fields["name"]))
            case "interrupt" if isinstance(fields.get("id"), str) and fields["id"]:
                self._asked.add(fields["id"])
                reason, call_id = text_of(fields.get("reason")), text_of(fields.get("toolCallId"))
                self.builder.interrupt(
                    Interrupted(fields["id"], reason or None, fields.get("payload"), call_id or None)
                )
            case _ if question := mastra_question(name, value, event.get("id")):
                self._framework_question(*question, value)
            case _:
                if "error" in name.lower() and (error := error_in(value) or error_in({"error": value})) is not None:
                    self._said_error = self._said_error or ERRORS.failure(error)
                self.builder.emit(Custom(name, value, noted(picked(event, "id", "transient"))))


def _kind(event: Wire) -> PartKind:
    return PartKind.TEXT if event["type"].startswith("text") else PartKind.REASONING


_HANDLERS: dict[str, Callable[[UIMessageDecoder, Wire], None]] = {
    "start": UIMessageDecoder._start,
    "start-step": UIMessageDecoder._begin_step,
    "finish-step": UIMessageDecoder._nothing,
    "message-metadata": UIMessageDecoder._merge,
    "finish": UIMessageDecoder._finish,
    "error": UIMessageDecoder._error,
    "abort": UIMessageDecoder._abort,
    "text-start": UIMessageDecoder._part_start,
    "text-delta": UIMessageDecoder._delta,
    "text-end": UIMessageDecoder._part_end,
    "reasoning-start": UIMessageDecoder._part_start,
    "reasoning-delta": UIMessageDecoder._delta,
    "reasoning-end": UIMessageDecoder._part_end,
    "tool-input-start": UIMessageDecoder._input_start,
    "tool-input-delta": UIMessageDecoder._input_delta,
    "tool-input-available": UIMessageDecoder._input,
    "tool-input-error": UIMessageDecoder._input_error,
    "tool-output-available": UIMessageDecoder._output,
    "tool-output-error": UIMessageDecoder._output,
    "tool-output-denied": UIMessageDecoder._output,
    "tool-approval-request": UIMessageDecoder._approval,
    "file": UIMessageDecoder._file,
    "reasoning-file": UIMessageDecoder._file,
    "source-url": UIMessageDecoder._source,
    "source-document": UIMessageDecoder._source,
}
