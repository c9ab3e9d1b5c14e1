"""Converts the events of a run's stream to events of the model.

A message may come in pieces, whole, in the updates of its node, and in the values of the state, under one id: what is
known by its id is not told again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bridge.codec import Context, JsonDecoder
from bridge.codec.counts import is_count
from bridge.codec.errors import error_in
from bridge.codec.jsontext import arguments_of, dict_of, dumps, text_of
from bridge.codec.words import reason_of
from bridge.dialects.langgraph.blocks import CALLS, blocks_of, medium_of, object_in, parts_of, reasoning_in, text_in
from bridge.dialects.langgraph.errors import canceled, run_failure
from bridge.dialects.langgraph.options import BackOptions
from bridge.dialects.langgraph.wire import BREAKPOINT, INTERRUPT, NAME, UNNAMED, Wire, id_of
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Custom,
    FinishReason,
    Interrupted,
    PartKind,
    Raw,
    Reasoning,
    StateChanged,
    StateOp,
    StepEnded,
    StepStarted,
    UsageReported,
)
from bridge.model.events import Event

_MESSAGES = "messages"
_ENDS = frozenset({FinishReason.LENGTH, FinishReason.CONTENT_FILTER})
"""What the reason of the last message says about the run; everything else is an end like any other."""
_REASONS = ("finish_reason", "stop_reason", "done_reason", "finishReason")
_MODELS = ("model_name", "model")
_PLACE = "#"
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


class Decoder(JsonDecoder):
    """Reads one run. Nothing in a stream says that it is complete: `complete` is called if the run says so.

    Without anybody to ask, a stream that ends cleanly after the last values of the state is a complete one.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._options = BackOptions.of(context)
        self._began = False
        self._known: set[str] = set()
        self._answers: dict[str, _Answer] = {}
        self._over: list[_Answer] = []
        self._last: _Answer | None = None
        self._calls: dict[str, str] = {}
        self._resulted: set[str] = set()
        self._guessed: dict[str, tuple[_Answer, str, Any]] = {}
        self._asked: dict[str, tuple[Any, str]] = {}
        self._paused = False
        self._state: Wire = {}
        self._changed = False
        self._steps: dict[str, None] = {}
        self.run_id = ""
        self.joined = False
        """True if the stream was opened again, so that something may be missing."""
        self.settled = False
        """True if the last event was the state of the thread after a step."""
        self.over = False
        """True if the server has told that the run is over."""
        self.follows = False
        """True if the answer goes on with another run of the thread."""

    # ------------------------------------------------------------------ what a caller tells

    @property
    def waits(self) -> bool:
        """True if the run has stopped for an answer."""
        return bool(self._asked) or self._paused

    @property
    def done(self) -> bool:
        """True if the run has ended."""
        return self.builder.done

    def complete(self) -> list[Event]:
        """The run is complete, as its server says."""
        self._finish()
        return self.builder.take()

    def failed(self, failure: Failure) -> list[Event]:
        """The run has failed, as its server says."""
        self.fail(failure)
        return self.builder.take()

    def again(self) -> None:
        """Another run of the thread follows, which is a part of the same answer."""
        self._began = self.settled = self.joined = self.over = self.follows = False
        self.run_id = ""

    def values(self, state: Any) -> list[Event]:
        """Read the last values of the thread, of which the stream may have lost some."""
        self.joined = True
        if isinstance(state, dict) and self._began:
            self._values(state, "")
        return self.builder.take()

    def close(self, failure: Failure | None = None) -> list[Event]:
        if failure is None and (self.settled or self.waits):
            self._finish()
        elif failure is None and self.saw_unknown and self.builder.is_empty:
            failure = Failure(ErrorCode.BACKEND_PROTOCOL, "The backend's answer has no event of its dialect.")
        return super().close(failure)

    def flush(self) -> None:
        self._tell_state()
        for name in self._steps:
            self.builder.emit(StepEnded(name))
        self._steps.clear()

    # ------------------------------------------------------------------ reading

    def read(self, event: dict[str, Any], name: str | None) -> None:
        self.read_value(event, name)

    def read_value(self, value: Any, name: str | None) -> None:
        if self.builder.done:
            return
        if name is None:
            if (error := error_in(value)) is not None:
                self.over = True
                self.fail(run_failure(error))
            else:
                self.saw_unknown = True
            return
        mode, _, namespace = name.partition("|")
        reader = _READERS.get(mode)
        if reader is not None:
            reader(self, value, namespace)
        elif mode not in _PASSED_OVER:
            self._tell_state()
            self.builder.emit(Raw(NAME, {"type": mode, "data": value}))

    def read_error(self, value: Any) -> bool:
        self._error(value, "")
        return True

    def _metadata(self, value: Any, namespace: str) -> None:
        self.run_id = self.run_id or id_of(dict_of(value).get("run_id"))
        if self.run_id:
            self.builder.begin(extras={NAME: {"run_id": self.run_id}})

    def _error(self, value: Any, namespace: str) -> None:
        self.over = True
        self.fail(run_failure(value))

    def _end(self, value: Any, namespace: str) -> None:
        """The end mark of aegra, and of old servers."""
        self.over = True
        status = dict_of(value).get("status")
        if status in (None, "success") or (status == "interrupted" and self.waits):
            if not self.follows or self.waits:
                self._finish()
        elif status == "interrupted":
            self.fail(canceled())
        else:
            self.fail(run_failure(dict_of(value).get("error")))

    def _custom(self, value: Any, namespace: str) -> None:
        self._tell_state()
        self.settled = False
        named = isinstance(value, dict) and value.keys() == {"name", "value"} and isinstance(value["name"], str)
        self.builder.emit(Custom(value["name"], value["value"]) if named else Custom(NAME, value))

    # ------------------------------------------------------------------ messages

    def _message_pair(self, value: Any, namespace: str) -> None:
        """A message and its metadata, as `messages-tuple` has them."""
        message, metadata = [*map(dict_of, value), {}, {}][:2] if isinstance(value, list) else ({}, {})
        model = text_of(metadata.get("ls_model_name"))
        if model:
            self.builder.begin(model=model)
        self._tell_state()
        self.settled = False
        node = text_of(metadata.get("langgraph_node"))
        if self._options.nodes is not None and node not in self._options.nodes and _is_answer(message):
            self._hide(message)
            return
        if not namespace:
            self._step(node)
        self._message(message)

    def _hide(self, message: Wire) -> None:
        """Leave a message out, and the results of its calls."""
        self._known.add(text_of(message.get("id")))
        for call in (*_objects(message, "tool_call_chunks"), *_objects(message, "tool_calls")):
            self._resulted.add(text_of(call.get("id")))

    def _messages_so_far(self, value: Any, namespace: str) -> None:
        """The messages that begin the text of a stream in the mode `messages`, each as far as it has come."""
        self._tell_state()
        self.settled = False
        for message in value if isinstance(value, list) else ():
            if isinstance(message, dict) and _is_answer(message):
                answer = self._answer(message)
                if answer is not None:
                    self._rest(answer, message, so_far=True)

    def _messages_complete(self, value: Any, namespace: str) -> None:
        self._tell_state()
        self.settled = False
        for message in value if isinstance(value, list) else ():
            if isinstance(message, dict):
                self._told_again(message)

    def _message(self, message: Wire) -> None:
        if _is_piece(message):
            if (answer := self._answer(message)) is not None:
                self._piece(answer, message)
        else:
            self._whole(message)

    def _answer(self, message: Wire) -> _Answer | None:
        """Return the answer that a message belongs to; None for one of an earlier run, or without an id."""
        message_id = text_of(message.get("id"))
        if not message_id or message_id in self._known:
            return None
        answer = self._answers.get(message_id)
        if answer is None:
            answer = self._answers[message_id] = _Answer(message_id)
            for other in self._over:
                self.builder.end_message(other.key)
            self._over.clear()
            name = text_of(message.get("name")) or None
            own = None if message_id.startswith(_PLACE) else message_id
            self.builder.message(message_id, message_id=own, name=name)
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
        elif _is_answer(message):
            if text_of(message.get("id")) in self._answers:
                self._told_again(message)
            elif self._is_copy(message):
                self._known.add(text_of(message.get("id")))
            elif (answer := self._answer(message)) is not None:
                self._content(answer, message)
                self._ended(answer, message)

    def _is_copy(self, message: Wire) -> bool:
        """Return whether a graph has put what its model said into its state as another message."""
        answer = self._last
        if answer is None or answer.final:
            return False
        calls = [text_of(call.get("id")) for call in _objects(message, "tool_calls")]
        said, text = "".join(answer.texts), text_in(message.get("content"))
        ours = set(answer.calls.values())
        return said == text and bool(text or calls) and all(c in ours and self.builder.is_unanswered(c) for c in calls)

    def _told_again(self, message: Wire) -> None:
        """A message in an update or in the state; one that is not known yet is new."""
        if message.get("type") == "tool" or not _is_answer(message):
            self._whole(message)
            return
        answer = self._answers.get(text_of(message.get("id")))
        if answer is None:
            self._whole(message)
            return
        if self.joined and not answer.checked:
            self._rest(answer, message)
        if not answer.final:
            self._ended(answer, message)

    def _rest(self, answer: _Answer, message: Wire, *, so_far: bool = False) -> None:
        """Tell what is missing of the text of a message. Fails the run if it is not the one that was told."""
        told, text = "".join(answer.texts), text_in(message.get("content"))
        if text.startswith(told):
            if len(text) > len(told):
                self._text(answer, PartKind.TEXT, text[len(told) :])
            answer.checked = not so_far
        elif not so_far:
            self.fail(Failure(ErrorCode.TRUNCATED_STREAM, _GAP))

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
        self.builder.end_message(answer.key)

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
            self.builder.end_flow(answer.key)
        answer.block = index if index is not None else answer.block
        match kind:
            case "text":
                self._text(answer, PartKind.TEXT, text_of(block.get("text")))
            case "thinking" | "reasoning":
                self._text(answer, PartKind.REASONING, reasoning_in(block))
                signature = text_of(block.get("signature")) or text_of(object_in(block, "extras").get("signature"))
                if signature and (flowing := self.builder.flowing(answer.key)) and flowing.kind is PartKind.REASONING:
                    self.builder.end_flow(answer.key, signature=signature)
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
                    self.builder.emit(Raw(NAME, block))

    def _text(self, answer: _Answer, kind: PartKind, text: str) -> None:
        if not text:
            return
        self._end_call(answer)
        if kind is PartKind.TEXT:
            answer.texts.append(text)
            answer.checked = False
        self.builder.flow(answer.key, kind, text)

    def _add(self, answer: _Answer, part: Any) -> None:
        self._end_call(answer)
        self.builder.add(answer.key, part)

    def _end_parts(self, answer: _Answer) -> None:
        self._end_call(answer)
        self.builder.end_flow(answer.key)

    # ------------------------------------------------------------------ tools

    def _call_piece(self, answer: _Answer, call: Wire) -> None:
        index, name, call_id = call.get("index"), text_of(call.get("name")), text_of(call.get("id"))
        if index is None:
            index = call_id or answer.call
        index = index if isinstance(index, (int, str)) else repr(index)
        key = (answer.key, "call", index)
        if name and call_id and answer.calls.get(index) not in (None, call_id):
            self.builder.end_part(key)  # a second call of the same index
        if self.builder.part(key) is None:
            if not name:
                return  # of a call that has ended
            if index != answer.call:
                self._end_call(answer)
            part = self.builder.open_part(key, answer.key, PartKind.TOOL_CALL, call_id=call_id, name=name)
            answer.calls[index], answer.call = part.call_id or call_id, index
            self._calls[answer.calls[index]] = name
        self.builder.delta(key, text_of(call.get("args")))

    def _end_call(self, answer: _Answer) -> None:
        if answer.call is not None:
            self.builder.end_part((answer.key, "call", answer.call))
            answer.call = None

    def _add_call(self, answer: _Answer, call_id: str, name: Any, arguments: str) -> None:
        key = (answer.key, "call", call_id)
        part = self.builder.open_part(key, answer.key, PartKind.TOOL_CALL, call_id=call_id, name=text_of(name))
        answer.calls[call_id] = part.call_id or call_id
        self._calls[answer.calls[call_id]] = text_of(name)
        self.builder.delta(key, arguments)
        self.builder.end_part(key)

    def _result(self, message: Wire) -> None:
        call_id, message_id = text_of(message.get("tool_call_id")), text_of(message.get("id"))
        if not call_id or call_id in self._resulted or message_id in self._known:
            return
        self._resulted.add(call_id)
        guess = self._guessed.get(call_id)
        if guess is not None and call_id not in guess[0].calls.values():
            self._end_parts(guess[0])
            self._add_call(guess[0], call_id, guess[1], arguments_of(guess[2] or {}))
        artifact = message.get("artifact")
        extras = {NAME: {"artifact": artifact}} if artifact is not None else None
        name, is_error = text_of(message.get("name")) or None, message.get("status") == "error"
        self.builder.result(call_id, parts_of(message.get("content")), name=name, is_error=is_error, extras=extras)

    # ------------------------------------------------------------------ facts

    def _facts(self, answer: _Answer, message: Wire, *, adds: bool) -> None:
        """Note counts and the reason of the end. Those of pieces add up; a whole message has the final ones."""
        if counts := _counts(message.get("usage_metadata")):
            before = answer.usage if adds else ()
            answer.usage = _sums([counts, before]) if before else counts
        facts = dict_of(message.get("response_metadata"))
        self._last = answer
        word = next((facts[name] for name in _REASONS if isinstance(facts.get(name), str)), None)
        if word:
            answer.reason = reason_of(word)
        if model := next((text_of(facts.get(name)) for name in _MODELS if facts.get(name)), ""):
            self.builder.begin(model=model)

    # ------------------------------------------------------------------ nodes and the state

    def _updates(self, value: Any, namespace: str) -> None:
        self._tell_state()
        for node, changes in dict_of(value).items():
            if node == INTERRUPT:
                self._questions(changes)
                continue
            self.settled = False
            for change in changes if isinstance(changes, list) else [changes]:
                for message in _messages_in(change):
                    if text_of(message.get("id")) in self._answers:
                        self._told_again(message)
            if not namespace:
                self._end_step(node)

    def _values(self, value: Any, namespace: str) -> None:
        state = dict_of(value)
        self._questions(state.get(INTERRUPT), tells_pause=False)
        messages = _messages_in(state)
        if namespace or (state.keys() <= {INTERRUPT}):
            self.settled = not namespace and self.waits
            return
        first, self._began = not self._began, True
        if first:
            # What the thread holds, and the input.
            self._known.update(_identity(message, n) for n, message in enumerate(messages))
        else:
            self.settled = True
            for n, message in enumerate(messages):
                if _identity(message, n) not in self._known and self._is_shown(message):
                    self._tell_state()
                    self._told_again({**message, "id": _identity(message, n)})
        self._note_state({name: each for name, each in state.items() if name not in (_MESSAGES, INTERRUPT)})
        if not first:
            self._tell_state()

    def _is_shown(self, message: Wire) -> bool:
        """Return whether a message of the state is part of the answer: with the option `nodes`, what came in events."""
        return self._options.nodes is None or not _is_answer(message) or text_of(message.get("id")) in self._answers

    def _note_state(self, state: Wire) -> None:
        if state != self._state:
            self._state, self._changed = state, True

    def _tell_state(self) -> None:
        """Tell the state. The first one waits for the next event, which may name the model of the run."""
        if self._changed:
            self._changed = False
            self.builder.emit(StateChanged(StateOp.SNAPSHOT, self._state))

    def _step(self, node: str) -> None:
        if self._options.steps and node and node not in self._steps:
            self._steps[node] = None
            self.builder.emit(StepStarted(node))

    def _end_step(self, node: str) -> None:
        if self._options.steps:
            self._step(node)
            del self._steps[node]
            self.builder.emit(StepEnded(node))

    def _questions(self, value: Any, *, tells_pause: bool = True) -> None:
        if not isinstance(value, list):
            return
        if not value and tells_pause:
            self._paused = True
        for question in value:
            if isinstance(question, dict):
                name = text_of(question.get("interrupt_id")) or text_of(question.get("id"))
                if not name:
                    same = dumps([question.get("ns"), question.get("value")]).decode()
                    name = next((n for n, q in self._asked.items() if n.startswith(UNNAMED) and q[1] == same), "")
                    name = name or f"{UNNAMED}-{len(self._asked)}"
                    self._asked.setdefault(name, (question.get("value"), same))
                self._asked.setdefault(name, (question.get("value"), ""))

    # ------------------------------------------------------------------ the end

    def _finish(self) -> None:
        if self.builder.done:
            return
        self.flush()
        for answer in self._answers.values():
            self._end_parts(answer)
        if usages := [answer.usage for answer in self._answers.values() if answer.usage]:
            self.builder.usage(_usage(_sums(usages)))
        for name, (value, _) in self._asked.items():
            call_id = self._call_asked(value)
            reason = "tool_call" if _actions(value) else "input_required"
            self.builder.interrupt(Interrupted(name, reason, value, call_id))
        if self._paused and not self._asked:
            text = "The agent has stopped at a breakpoint. Go on?"
            self.builder.interrupt(Interrupted(BREAKPOINT, "confirmation", {"message": text}))
        end = self._last.reason if self._last is not None else None
        self.builder.finish(end if end in _ENDS and not self.waits else None)
        self.builder.end()

    def _call_asked(self, question: Any) -> str | None:
        """Return the id of the first open call that a question asks to approve."""
        actions = _actions(question)
        name = actions[0] if actions else ""
        return next((i for i, of in self._calls.items() if of == name and self.builder.is_unanswered(i)), None)


def _is_piece(message: Wire) -> bool:
    """Return whether a message is a piece: Python's servers say so in its type, others have pieces of calls in it."""
    kind = message.get("type")
    return kind == "AIMessageChunk" or (kind == "ai" and "tool_call_chunks" in message)


def _is_answer(message: Wire) -> bool:
    return message.get("type") in ("ai", "AIMessageChunk")


def _objects(message: Wire, name: str) -> list[Wire]:
    found = message.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _messages_in(change: Any) -> list[Wire]:
    """Return the messages of a state or of an update of it: a list, or a single one."""
    found = dict_of(change).get(_MESSAGES)
    listed = found if isinstance(found, list) else [found]
    return [message for message in listed if isinstance(message, dict)]


def _identity(message: Wire, place: int) -> str:
    return text_of(message.get("id")) or f"{_PLACE}{place}"


def _actions(question: Any) -> list[str]:
    """Return the names of the tools that a question asks to approve, in the form of the middleware or the older one."""
    asked = dict_of(question).get("action_requests")
    entries = asked if isinstance(asked, list) else question if isinstance(question, list) else []
    requests = [entry if isinstance(asked, list) else dict_of(entry).get("action_request") for entry in entries]
    named = (dict_of(request).get("name") or dict_of(request).get("action") for request in requests)
    return [name for name in named if isinstance(name, str) and name]


def _sums(counts: list[tuple[int | None, ...]]) -> tuple[int | None, ...]:
    """Return the sums of counts, of which some may not be reported."""
    columns = ([count for count in column if count is not None] for column in zip(*counts, strict=True))
    return tuple(sum(column) if column else None for column in columns)


def _usage(counts: tuple[int | None, ...]) -> UsageReported:
    given, made, total, cached, reasoning = counts
    return UsageReported(given, made, total, cached, reasoning)


def _counts(usage: Any) -> tuple[int | None, ...]:
    """Return input, output, total, cached and reasoning tokens; nothing if none are reported."""
    if not isinstance(usage, dict):
        return ()
    found = (
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        usage.get("total_tokens"),
        object_in(usage, "input_token_details").get("cache_read"),
        object_in(usage, "output_token_details").get("reasoning"),
    )
    counts = tuple(count if is_count(count) else None for count in found)
    return counts if any(counts) else ()


_Reader = Callable[[Decoder, Any, str], None]
_READERS: dict[str, _Reader] = {
    "metadata": Decoder._metadata,
    "messages": Decoder._message_pair,
    "messages/partial": Decoder._messages_so_far,
    "messages/complete": Decoder._messages_complete,
    "values": Decoder._values,
    "updates": Decoder._updates,
    "custom": Decoder._custom,
    "error": Decoder._error,
    "end": Decoder._end,
}
"""The handlers by the name of the event, without the subgraph that it comes from."""
_PASSED_OVER = frozenset({"messages/metadata", "checkpoints", "tasks", "debug", "events", "heartbeat", "feedback"})
"""Events that tell the same in other words, or nothing about the answer."""
