"""Reads the messages of a run. One may come in pieces, whole, in the updates of its node, and in the values of the
state, under one id: what is known by its id is not told again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bridge.dialects.langgraph.blocks import CALLS, blocks_of, medium_of, object_in, parts_of, reasoning_in, text_in
from bridge.dialects.langgraph.wire import NAME, Wire
from bridge.errors import ErrorCode, Failure
from bridge.model import Builder, FinishReason, PartKind, Raw, Reasoning, UsageReported
from bridge.model.jsontext import arguments_of, dict_of, text_of
from bridge.toolkit.counts import is_count
from bridge.toolkit.words import reason_of

_REASONS = ("finish_reason", "stop_reason", "done_reason", "finishReason")
_MODELS = ("model_name", "model")
PLACE = "#"
"""The beginning of what stands for the id of a message without one: its place in the state."""
_GAP = "The text of the answer is not that of the thread: a part of the stream was lost."


@dataclass
class _Answer:
    """A message of a model, by its id."""

    key: str
    texts: list[str] = field(default_factory=list)
    block: Any = None
    """The index of the last block of its content."""
    calls: dict[Any, str] = field(default_factory=dict)
    """The ids of its calls, by their indexes."""
    call: Any = None
    """The index of the call that is open."""
    usage: tuple[int | None, ...] = ()
    reason: FinishReason | None = None
    final: bool = False
    """It was told whole, after its pieces."""
    checked: bool = False
    """Its text is that of the thread."""


class Messages:
    """The messages of one answer, which go to `builder`."""

    def __init__(self, builder: Builder) -> None:
        self.known: set[str] = set()
        """The ids of messages that are not part of the answer."""
        self.answers: dict[str, _Answer] = {}
        """The messages of models, by their ids."""
        self.joined = False
        """True if the stream was opened again, so that something may be missing."""
        self.failure: Failure | None = None
        """Why the answer cannot go on."""
        self.last: _Answer | None = None
        """The last message of a model of which anything is known."""
        self.calls: dict[str, str] = {}
        """The tools of all calls, by their ids."""
        self._builder = builder
        self._over: list[_Answer] = []
        self._resulted: set[str] = set()
        self._guessed: dict[str, tuple[_Answer, str, Any]] = {}

    def read(self, message: Wire) -> None:
        """Read a piece of a message, or a whole one."""
        if _is_piece(message):
            if (answer := self._answer(message)) is not None:
                self._piece(answer, message)
        else:
            self._whole(message)

    def hide(self, message: Wire) -> None:
        """Leave a message out, and the results of its calls."""
        self.known.add(text_of(message.get("id")))
        for call in (*_objects(message, "tool_call_chunks"), *_objects(message, "tool_calls")):
            self._resulted.add(text_of(call.get("id")))

    def so_far(self, message: Wire) -> None:
        """Read a message as far as it has come."""
        if is_answer(message) and (answer := self._answer(message)) is not None:
            self._rest(answer, message, so_far=True)

    def again(self, message: Wire) -> None:
        """A message in an update or in the state; one that is not known yet is new."""
        if message.get("type") == "tool" or not is_answer(message):
            self._whole(message)
            return
        answer = self.answers.get(text_of(message.get("id")))
        if answer is None:
            self._whole(message)
            return
        if self.joined and not answer.checked:
            self._rest(answer, message)
        if not answer.final and self.failure is None:
            self._ended(answer, message)

    def end(self) -> None:
        """End all parts, and tell the counts: the run is over."""
        for answer in self.answers.values():
            self._end_parts(answer)
        if usages := [answer.usage for answer in self.answers.values() if answer.usage]:
            self._builder.usage(_usage(_sums(usages)))

    def _answer(self, message: Wire) -> _Answer | None:
        """Return the answer that a message belongs to; None for one of an earlier run, or without an id."""
        message_id = text_of(message.get("id"))
        if not message_id or message_id in self.known:
            return None
        answer = self.answers.get(message_id)
        if answer is None:
            answer = self.answers[message_id] = _Answer(message_id)
            for other in self._over:
                self._builder.end_message(other.key)
            self._over.clear()
            name = text_of(message.get("name")) or None
            own = None if message_id.startswith(PLACE) else message_id
            self._builder.message(message_id, message_id=own, name=name)
        return answer

    def _piece(self, answer: _Answer, message: Wire) -> None:
        self._content(answer, message)
        for call in _objects(message, "tool_call_chunks"):
            self._call_piece(answer, call)
        if not message.get("tool_call_chunks"):
            for call in _objects(message, "tool_calls"):
                # Whole, though its arguments may be unfinished: told only if nothing better comes.
                if (call_id := text_of(call.get("id"))) and text_of(call.get("name")):
                    self._guessed[call_id] = (answer, call["name"], call.get("args"))
        self._facts(answer, message, adds=True)
        if message.get("chunk_position") == "last":
            self._end_parts(answer)
            self._over.append(answer)

    def _whole(self, message: Wire) -> None:
        """A message in one piece: one that no model streamed, or the result of a tool."""
        if message.get("type") in ("tool", "ToolMessageChunk"):
            self._result(message)
        elif is_answer(message):
            if text_of(message.get("id")) in self.answers:
                self.again(message)
            elif self._is_copy(message):
                self.known.add(text_of(message.get("id")))
            elif (answer := self._answer(message)) is not None:
                self._content(answer, message)
                self._ended(answer, message)

    def _is_copy(self, message: Wire) -> bool:
        """Return whether a graph has put what its model said into its state as another message."""
        answer = self.last
        if answer is None or answer.final:
            return False
        calls = [text_of(call.get("id")) for call in _objects(message, "tool_calls")]
        said, text = "".join(answer.texts), text_in(message.get("content"))
        ours = set(answer.calls.values())
        return said == text and bool(text or calls) and all(c in ours and self._builder.is_unanswered(c) for c in calls)

    def _rest(self, answer: _Answer, message: Wire, *, so_far: bool = False) -> None:
        """Tell what is missing of the text of a message. Fails the run if it is not the one that was told."""
        told, text = "".join(answer.texts), text_in(message.get("content"))
        if text.startswith(told):
            if len(text) > len(told):
                self._text(answer, PartKind.TEXT, text[len(told) :])
            answer.checked = not so_far
        elif not so_far:
            self.failure = Failure(ErrorCode.TRUNCATED_STREAM, _GAP)

    def _ended(self, answer: _Answer, message: Wire) -> None:
        """The message is complete. It has calls that came in no piece, and counts that are final."""
        self._end_parts(answer)
        answer.final = True
        shown = set(answer.calls.values())
        for call in _objects(message, "tool_calls"):
            if text_of(call.get("id")) not in shown:
                self._add_call(answer, text_of(call.get("id")), call.get("name"), arguments_of(call.get("args") or {}))
        for call in _objects(message, "invalid_tool_calls"):
            if (call_id := text_of(call.get("id"))) and call_id not in shown:
                self._add_call(answer, call_id, call.get("name"), text_of(call.get("args")))
        self._facts(answer, message, adds=False)
        self._builder.end_message(answer.key)

    # ------------------------------------------------------------------ content

    def _content(self, answer: _Answer, message: Wire) -> None:
        more = dict_of(message.get("additional_kwargs"))
        self._text(answer, PartKind.REASONING, text_of(more.get("reasoning_content")))
        for block in blocks_of(message.get("content")):
            self._block(answer, block)
        self._text(answer, PartKind.REFUSAL, text_of(more.get("refusal")))

    def _block(self, answer: _Answer, block: Wire) -> None:
        index, kind = block.get("index"), block.get("type")
        if index != answer.block and index is not None and answer.block is not None:
            self._builder.end_flow(answer.key)
        answer.block = index if index is not None else answer.block
        match kind:
            case "text":
                self._text(answer, PartKind.TEXT, text_of(block.get("text")))
            case "thinking" | "reasoning":
                self._text(answer, PartKind.REASONING, reasoning_in(block))
                signature = text_of(block.get("signature")) or text_of(object_in(block, "extras").get("signature"))
                if signature and (flowing := self._builder.flowing(answer.key)) and flowing.kind is PartKind.REASONING:
                    self._builder.end_flow(answer.key, signature=signature)
                elif signature:
                    self._add(answer, Reasoning("", signature))
            case "redacted_thinking":
                self._add(answer, Reasoning("", redacted=text_of(block.get("data"))))
            case "refusal":
                self._text(answer, PartKind.REFUSAL, text_of(block.get("refusal")))
            case _:
                medium = medium_of(block)
                if medium is not None:
                    self._add(answer, medium)
                elif kind not in CALLS:
                    self._builder.emit(Raw(NAME, block))

    def _text(self, answer: _Answer, kind: PartKind, text: str) -> None:
        if not text:
            return
        self._end_call(answer)
        if kind is PartKind.TEXT:
            answer.texts.append(text)
            answer.checked = False
        self._builder.flow(answer.key, kind, text)

    def _add(self, answer: _Answer, part: Any) -> None:
        self._end_call(answer)
        self._builder.add(answer.key, part)

    def _end_parts(self, answer: _Answer) -> None:
        self._end_call(answer)
        self._builder.end_flow(answer.key)

    # ------------------------------------------------------------------ tools

    def _call_piece(self, answer: _Answer, call: Wire) -> None:
        index, name, call_id = call.get("index"), text_of(call.get("name")), text_of(call.get("id"))
        if index is None:
            index = call_id or answer.call
        index = index if isinstance(index, (int, str)) else repr(index)
        key = (answer.key, "call", index)
        if name and call_id and answer.calls.get(index) not in (None, call_id):
            self._builder.end_part(key)  # a second call of the same index
        if self._builder.part(key) is None:
            if not name:
                return  # of a call that has ended
            if index != answer.call:
                self._end_call(answer)
            part = self._builder.open_part(key, answer.key, PartKind.TOOL_CALL, call_id=call_id, name=name)
            answer.calls[index], answer.call = part.call_id or call_id, index
            self.calls[answer.calls[index]] = name
        self._builder.delta(key, text_of(call.get("args")))

    def _end_call(self, answer: _Answer) -> None:
        if answer.call is not None:
            self._builder.end_part((answer.key, "call", answer.call))
            answer.call = None

    def _add_call(self, answer: _Answer, call_id: str, name: Any, arguments: str) -> None:
        key = (answer.key, "call", call_id)
        part = self._builder.open_part(key, answer.key, PartKind.TOOL_CALL, call_id=call_id, name=text_of(name))
        answer.calls[call_id] = part.call_id or call_id
        self.calls[answer.calls[call_id]] = text_of(name)
        self._builder.delta(key, arguments)
        self._builder.end_part(key)

    def _result(self, message: Wire) -> None:
        call_id, message_id = text_of(message.get("tool_call_id")), text_of(message.get("id"))
        if not call_id or call_id in self._resulted or message_id in self.known:
            return
        self._resulted.add(call_id)
        guess = self._guessed.get(call_id)
        if guess is not None and call_id not in guess[0].calls.values():
            self._end_parts(guess[0])
            self._add_call(guess[0], call_id, guess[1], arguments_of(guess[2] or {}))
        artifact = message.get("artifact")
        extras = {NAME: {"artifact": artifact}} if artifact is not None else None
        name, is_error = text_of(message.get("name")) or None, message.get("status") == "error"
        self._builder.result(call_id, parts_of(message.get("content")), name=name, is_error=is_error, extras=extras)

    # ------------------------------------------------------------------ facts

    def _facts(self, answer: _Answer, message: Wire, *, adds: bool) -> None:
        """Note counts and the reason of the end. Those of pieces add up; a whole message has the final ones."""
        if counts := _counts(message.get("usage_metadata")):
            before = answer.usage if adds else ()
            answer.usage = _sums([counts, before]) if before else counts
        facts = dict_of(message.get("response_metadata"))
        self.last = answer
        word = next((facts[name] for name in _REASONS if isinstance(facts.get(name), str)), None)
        if word:
            answer.reason = reason_of(word)
        if model := next((text_of(facts.get(name)) for name in _MODELS if facts.get(name)), ""):
            self._builder.begin(model=model)


def _is_piece(message: Wire) -> bool:
    """Return whether a message is a piece: Python's servers say so in its type, others have pieces of calls in it."""
    kind = message.get("type")
    return kind == "AIMessageChunk" or (kind == "ai" and "tool_call_chunks" in message)


def is_answer(message: Wire) -> bool:
    return message.get("type") in ("ai", "AIMessageChunk")


def _objects(message: Wire, name: str) -> list[Wire]:
    found = message.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _sums(counts: list[tuple[int | None, ...]]) -> tuple[int | None, ...]:
    """Return the sums of counts, of which some may not be reported."""
    columns = ([count for count in column if count is not None] for column in zip(*counts, strict=True))
    return tuple(sum(column) if column else None for column in columns)


def _usage(counts: tuple[int | None, ...]) -> UsageReported:
    given, made, total, cached, reasoning, written = counts
    return UsageReported(given, made, total, cached, reasoning, written=written)


def _counts(usage: Any) -> tuple[int | None, ...]:
    """Return input, output, total, cached, reasoning and written tokens; nothing if none are reported."""
    if not isinstance(usage, dict):
        return ()
    found = (
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        usage.get("total_tokens"),
        object_in(usage, "input_token_details").get("cache_read"),
        object_in(usage, "output_token_details").get("reasoning"),
        object_in(usage, "input_token_details").get("cache_creation"),
    )
    counts = tuple(count if is_count(count) else None for count in found)
    return counts if any(counts) else ()
