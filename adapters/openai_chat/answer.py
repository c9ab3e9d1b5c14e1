"""Whole answers: events -> one completion object, and one completion object -> events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.codec import Context, Feature, WireResponse, failure_at_end, json_response
from bridge.codec.borders import TextBorders
from bridge.codec.citations import citations_in
from bridge.codec.errors import error_in
from bridge.codec.jsontext import dumps, read_json
from bridge.codec.media import answer_feature
from bridge.codec.merging import Added
from bridge.codec.openai import ERRORS, encode_error
from bridge.codec.wire import holds_events, payloads_in
from bridge.dialects.openai_chat.audio import TRANSCRIPT
from bridge.dialects.openai_chat.capabilities import CAPABILITIES
from bridge.dialects.openai_chat.decoder import ChatDecoder
from bridge.dialects.openai_chat.options import BackOptions, FrontOptions
from bridge.dialects.openai_chat.shape import (
    audio_of,
    details_of,
    finish_word,
    first_keys,
    id_of,
    image_of,
    model_of,
    wants_details,
)
from bridge.dialects.openai_chat.wire import NAME, fields_of_call, own, write_usage
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Answer,
    ContentAdded,
    Custom,
    Event,
    FinishReason,
    Interrupted,
    Message,
    MessageStarted,
    Origin,
    Part,
    PartStarted,
    Raw,
    Reasoning,
    Refusal,
    StateChanged,
    StepEnded,
    StepStarted,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    as_markdown,
    fold,
    interrupt_text,
)

_REASONING = {"both": ("reasoning_content", "reasoning"), "reasoning_details": ("reasoning",)}
_LOST: dict[type, Feature] = {
    StateChanged: Feature.STATE,
    StepStarted: Feature.STEP,
    StepEnded: Feature.STEP,
    Custom: Feature.CUSTOM,
}

_COLLECTED: frozenset[type] = frozenset({MessageStarted, PartStarted, ContentAdded, TextDelta, Raw, *_LOST})

# ------------------------------------------------------------------ towards clients


@dataclass(slots=True)
class _Choice:
    """One choice while it is put together."""

    index: int
    borders: TextBorders
    texts: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    more: Added = field(default_factory=Added)
    beside: Added = field(default_factory=Added)
    reason: FinishReason | None = None
    length: int = 0


def assemble(events: Sequence[Event], context: Context, options: FrontOptions) -> WireResponse:
    """The completion that a whole stream amounts to; a run that failed or was canceled is its error response."""
    failure = failure_at_end(events, CAPABILITIES, context.lost)
    if failure is not None:
        return encode_error(failure)
    return json_response(dumps(_Assembler(fold(events), events, context, options).completion()))


def _is_result(message: Message) -> bool:
    """Return whether a message is the result of a tool; one of the same role may also stream parts."""
    return message.role == "tool" and len(message.parts) == 1 and isinstance(message.parts[0], ToolResult)


class _Assembler:
    """Collects each part of an answer for its field of the completion object."""

    def __init__(self, answer: Answer, events: Sequence[Event], context: Context, options: FrontOptions) -> None:
        self._answer = answer
        self._context = context
        self._options = options
        self._choices: dict[int, _Choice] = {}
        self._top = Added()
        self._details = wants_details(answer.extras, options)
        self._choice(0)
        for message in answer.messages:
            self._message(message)
        self._read(events)
        for number, interrupt in enumerate(answer.interrupts):
            self._interrupt(number, interrupt)

    def completion(self) -> dict[str, Any]:
        answer = self._answer
        out: dict[str, Any] = {
            "id": id_of(answer),
            "object": "chat.completion",
            "created": int(answer.created_at),
            "model": model_of(answer, self._context),
            "choices": [self._wire(self._choices[index]) for index in sorted(self._choices)],
            "usage": write_usage(answer.usage, self._context.lost),
        }
        for name, value in {**own(answer.extras), **self._top.plain()}.items():
            out.setdefault(name, value)
        return out

    def _choice(self, index: int) -> _Choice:
        choice = self._choices.get(index)
        if choice is None:
            borders = TextBorders(self._options.message_separator, self._context.lost)
            choice = self._choices[index] = _Choice(index, borders)
        return choice

    def _message(self, message: Message) -> None:
        if _is_result(message):
            self._context.lost.add(Feature.TOOL_RESULT)
            return
        choice = self._choice(self._answer.choice_of(message))
        ending = self._answer.endings.get(message.id or "")
        choice.reason = (ending.reason if ending else None) or choice.reason

    def _interrupt(self, number: int, event: Interrupted) -> None:
        """As in a stream: the question in a text of its own, unless it is about a call that is shown."""
        self._context.lost.add(Feature.INTERRUPT, "sent as text")
        choice = self._choice(0)
        if any(call.call_id == event.call_id for call in self._answer.calls):
            return
        self._text(choice, f"interrupt {number}", interrupt_text(event))

    def _text(self, choice: _Choice, message_id: str, text: str) -> None:
        if text:
            text = choice.borders.before(message_id) + text
            choice.length += len(text)
            choice.texts.append(text)

    def _cite(self, choice: _Choice, text: Text) -> None:
        """Add the citations of the last text, those of a chat backend as they came."""
        said = (text.extras or {}).get(NAME, {}).get("annotations")
        if not said:
            length = len(text.text)
            found = citations_in(text.extras, self._context.lost, length, choice.length - length)
            said = [{"type": "url_citation", "url_citation": each} for each in found]
        if said:
            choice.more.extend("annotations", said)

    def _part(self, choice: _Choice, message_id: str, part: Part) -> None:
        match part:
            case Text():
                if TRANSCRIPT not in (part.extras or ()):
                    self._text(choice, message_id, part.text)
                    if part.extras:
                        self._cite(choice, part)
            case Refusal():
                choice.refusals.append(part.text)
            case Reasoning():
                number = len(choice.reasoning)
                choice.reasoning.append(part.text)
                if self._details:
                    details = details_of(number, part.text, part.signature, part.redacted)
                    choice.more.extend("reasoning_details", details)
                elif part.signature or part.redacted:
                    self._context.lost.add(Feature.REASONING_SIGNATURE)
            case ToolCall():
                choice.calls.append(self._call(part))
            case _:
                self._medium(choice, message_id, part)

    def _medium(self, choice: _Choice, message_id: str, part: Part) -> None:
        """Pictures of a chat backend and its audio are sent back unchanged, the rest according to the option."""
        extras = own(part.extras)
        if extras.get("streamed"):
            return  # put together from its pieces, which came as Raw
        image = extras.get("image") or (image_of(part) if self._options.media == "images" else None)
        audio = None if "audio" in choice.more else audio_of(part, self._context)
        if image is not None:
            choice.more.extend("images", [image])
        elif audio is not None:
            choice.more.put("audio", audio)
        else:
            kept = self._options.media != "drop"
            if kept:
                self._text(choice, message_id, as_markdown(part))
            self._context.lost.add(answer_feature(part), "sent as text" if kept else "")

    def _call(self, call: ToolCall) -> dict[str, Any]:
        if call.origin is not Origin.FUNCTION:
            self._context.lost.add(Feature.TOOL_ORIGIN)
        extras = fields_of_call(call.extras)
        more = extras.get("function")
        if extras.get("type") == "custom":
            kind, inner = "custom", {"name": call.name, "input": call.arguments}
        else:
            arguments = call.arguments if call.arguments.strip() else "{}"
            kind, inner = "function", {"name": call.name, "arguments": arguments}
        inner.update(more if isinstance(more, dict) else {})
        return {"id": call.call_id, "type": kind, kind: inner, **first_keys(extras)}

    # -------------------------------------------------------------- in the order of the stream

    def _read(self, events: Sequence[Event]) -> None:
        """The parts in the order in which they began, as in a stream, whosever they are; fields beside deltas
        (logprobs); and everything that only this dialect understands.
        """
        messages: dict[str, int] = {}
        parts: dict[str, int] = {}
        finished = {message.id: iter(message.parts) for message in self._answer.messages if not _is_result(message)}
        for event in events:
            if type(event) not in _COLLECTED:
                continue
            match event:
                case MessageStarted():
                    messages[event.message_id] = event.choice
                case PartStarted() | ContentAdded():
                    index = messages[event.message_id]
                    if isinstance(event, PartStarted):
                        parts[event.part_id] = index
                    self._part(self._choice(index), event.message_id, next(finished[event.message_id]))
                case TextDelta():
                    if event.extras:
                        self._choice(parts[event.part_id]).beside.add(own(event.extras))
                case Raw() if event.dialect == NAME and isinstance(event.value, dict):
                    self._raw(event.value)
                case Raw():
                    self._context.lost.add_raw(event)
                case _:
                    self._context.lost.add(_LOST[type(event)])

    def _raw(self, value: dict[str, Any]) -> None:
        choice = self._choice(value.get("index", 0))
        choice.more.add(value.get("delta") or {})
        choice.beside.add(value.get("choice") or {})
        self._top.add(value.get("chunk") or {})

    def _wire(self, choice: _Choice) -> dict[str, Any]:
        content = "".join(choice.texts)
        silent = choice.calls or choice.refusals or "audio" in choice.more
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if not content and silent else content,
            "refusal": "".join(choice.refusals) or None,
            "annotations": [],
        }
        if reasoning := "".join(choice.reasoning):
            name = self._options.reasoning_field
            for each in _REASONING.get(name, (name,)):
                message[each] = reasoning
        if choice.calls:
            message["tool_calls"] = choice.calls
        reason = self._answer.reason if choice.index == 0 else choice.reason
        return {
            "index": choice.index,
            "message": {**message, **choice.more.plain()},
            "logprobs": None,
            **choice.beside.plain(),
            "finish_reason": finish_word(reason, bool(choice.calls)),
        }


# ------------------------------------------------------------------ from backends


def parse_response(wire: WireResponse, context: Context, options: BackOptions) -> list[Event]:
    """Return the run of a whole answer; anything else than a completion is a run that failed."""
    if wire.status >= 400:
        return _failed(ERRORS.decode(wire), context)
    value = read_json(wire.body)
    if value is None and holds_events(wire):
        decoder = ChatDecoder(context, options)
        return decoder.feed(payloads_in(wire.body)) + decoder.close()
    if isinstance(value, dict):
        choices = value.get("choices")
        if isinstance(choices, list) and dict in map(type, choices):
            return ChatDecoder(context, options, streamed=False).whole(value)
    error = error_in(value)
    if error is not None:
        return _failed(ERRORS.failure(error), context)
    text = "The backend's answer is neither a chat completion nor an error object."
    return _failed(Failure(ErrorCode.BACKEND_PROTOCOL, text), context)


def _failed(failure: Failure, context: Context) -> list[Event]:
    builder = context.builder()
    builder.fail(failure)
    return builder.take()
