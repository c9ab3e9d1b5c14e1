"""Events of a backend -> events. Accepts what servers of this kind send and never raises on wire data.

Blocks of text, thinking and tool calls become parts as they stream. A block of any other kind - server tools and their
results, what comes tomorrow - is kept until it is whole and travels as one `Raw`: only this dialect's clients know
it, and theirs need it in its place.

The terminal event waits for `message_stop` or the end of the input. A stop reason before it is a clean end; neither of
both is truncation.
"""

from __future__ import annotations

from typing import Any

from bridge.contract import Context
from bridge.dialects.anthropic_messages.errors import ERRORS
from bridge.dialects.anthropic_messages.wire import CITATIONS, NAME, STOP_DETAILS, UNREAD, UsageReader, given, noted
from bridge.errors import Failure
from bridge.model import Event, FinishReason, Heartbeat, PartKind, Raw
from bridge.model.jsontext import arguments_of, dict_of, read_json, text_of
from bridge.toolkit.citations import with_citations
from bridge.toolkit.counts import is_all_zeros
from bridge.toolkit.decoder import JsonDecoder
from bridge.toolkit.errors import error_in
from bridge.toolkit.refusals import Said, add_explanation
from bridge.toolkit.words import end_of

_NO_OBJECT = '{"INVALID_JSON":'
"""The beginning of arguments that are not an object, as another bridge sends them: in one piece."""
_MESSAGE = "message"  # the builder's key: an answer is one message
_KINDS = {"text": PartKind.TEXT, "thinking": PartKind.REASONING, "tool_use": PartKind.TOOL_CALL}
# Delta type -> the block it belongs to, and the field that holds its piece.
_PIECES = {
    "text_delta": (PartKind.TEXT, "text"),
    "thinking_delta": (PartKind.REASONING, "thinking"),
    "input_json_delta": (PartKind.TOOL_CALL, "partial_json"),
}
_MESSAGE_FIELDS = frozenset({"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"})
_BLOCK_FIELDS = frozenset({"type", "text", "thinking", "signature", "id", "name", "input", "citations"})


class _Block:
    """One open block. `kind` is None for one that only this dialect knows."""

    __slots__ = ("citations", "deltas", "filled", "input", "kind", "signature", "start")

    def __init__(self, kind: PartKind | None, start: dict[str, Any]) -> None:
        self.kind = kind
        self.start = start
        self.filled = False
        self.input: Any = None
        self.signature: str | None = None
        self.citations: list[Any] = []
        self.deltas: list[Any] = []


class MessagesDecoder(JsonDecoder):
    """One per run."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._blocks: dict[int, _Block] = {}
        self._last = 0
        self._usage = UsageReader()
        self._started = False
        self._stop: FinishReason | None = None
        self._end: dict[str, Any] = {}
        self._said = Said()
        self._first: Any = None
        self._has_blocks = False

    def whole(self, message: dict[str, Any]) -> list[Event]:
        """Return the events of a whole message, which is complete even without a stop reason."""
        self._start(message)
        content = message.get("content")
        for index, block in enumerate(content if isinstance(content, list) else ()):
            if isinstance(block, dict):
                self._block_start(index, block)
                self._block_stop(index)
        usage = message.get("usage")
        if isinstance(usage, dict) and not is_all_zeros(usage):
            # Its counts are mandatory here, where a `message_delta` may leave them out.
            self._usage.feed(usage, at_end=True)
        self._note_end(message)
        self._over()
        return self.builder.take()

    # -------------------------------------------------------------- frames

    def read(self, event: dict[str, Any], name: str | None) -> None:
        kind = event.get("type")
        if kind == "content_block_delta":
            delta = event.get("delta")
            if type(delta) is dict:
                self._delta(event, delta)
            return
        if type(kind) is not str or not kind:
            kind = name or ""
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, event)
        elif (error := error_in(event)) is not None:
            self.fail(ERRORS.failure(error))
        elif kind:
            self._open()
            self.builder.emit(Raw(NAME, {"event": {**event, "type": kind}}))

    def read_error(self, value: Any) -> bool:
        self.fail(ERRORS.failure({"message": value}))
        return True

    # -------------------------------------------------------------- the message

    def _message_start(self, event: dict[str, Any]) -> None:
        message = event.get("message")
        if isinstance(message, dict):
            usage = message.get("usage")
            self._usage.feed(usage, at_end=False)
            self._start(message, given(usage) if isinstance(usage, dict) else None)
            self._first = message.get("content")

    def _start(self, message: dict[str, Any], usage: dict[str, Any] | None = None) -> None:
        """Read the head. Its counts are kept for clients that look there."""
        rest = given({k: v for k, v in message.items() if k not in _MESSAGE_FIELDS and not k.startswith("stop_")})
        wire_id, model = text_of(message.get("id")), text_of(message.get("model"))
        extras = {"id": wire_id, _MESSAGE: rest, "usage": usage}
        self.builder.begin(model=model or None, extras=noted({k: v for k, v in extras.items() if v}))
        self._open(wire_id or None)

    def _open(self, message_id: str | None = None) -> None:
        if not self._started:
            self._started = True
            self.builder.message(_MESSAGE, message_id=message_id)

    # -------------------------------------------------------------- blocks

    def _start_event(self, event: dict[str, Any]) -> None:
        block = event.get("content_block")
        if isinstance(block, dict):
            index = event.get("index")
            self._block_start(index if type(index) is int else len(self._blocks), block)

    def _block_start(self, index: int, start: dict[str, Any]) -> None:
        """Open the block; text in its start is a piece like any other."""
        self._open()
        self._block_stop(index)
        self._has_blocks = True
        name = text_of(start.get("type"))
        block = self._blocks[index] = _Block(_KINDS.get(name), start)
        self._last = index
        if block.kind is None:
            return
        rest = given({k: v for k, v in start.items() if k not in _BLOCK_FIELDS})
        call = block.kind is PartKind.TOOL_CALL
        self.builder.open_part(
            index,
            _MESSAGE,
            block.kind,
            call_id=text_of(start.get("id")) or None,
            name=text_of(start.get("name")) if call else None,
            extras=noted(rest),
        )
        if call:
            block.input = start.get("input")
            return
        if isinstance(start.get("citations"), list):
            block.citations += start["citations"]
        block.signature = text_of(start.get("signature")) or None
        if text := text_of(start.get("text" if block.kind is PartKind.TEXT else "thinking")):
            self.builder.delta(index, text)
            if block.kind is PartKind.TEXT:
                self._said.append(text)

    def _delta(self, event: dict[str, Any], delta: dict[str, Any]) -> None:
        kind, index = delta.get("type"), event.get("index")
        index = index if type(index) is int else self._last
        block = self._blocks.get(index) or self._unannounced(index, kind)
        if block is None:
            return
        piece = _PIECES.get(kind) if type(kind) is str else None
        if piece is not None and piece[0] is block.kind:
            text = delta.get(piece[1])
            if type(text) is str and text:
                if not block.filled and text.startswith(_NO_OBJECT):
                    value = read_json(text.encode("utf-8", "replace"))
                    text = text if value is None else arguments_of(value)
                block.filled = True
                self.builder.delta(index, text)
                said = self._said if block.kind is PartKind.TEXT else None
                if said is not None:
                    said.append(text)
                self.repeat.learn(event, ("delta", piece[1]), self.builder.part(index), texts=said)
        elif kind == "signature_delta" and block.kind is PartKind.REASONING:
            block.signature = text_of(delta.get("signature")) or block.signature
        elif kind == "citations_delta" and block.kind is PartKind.TEXT:
            block.citations.append(delta.get("citation"))
        else:
            block.deltas.append(delta)

    def _unannounced(self, index: int, kind: Any) -> _Block | None:
        """A delta of a block without a start: text and thinking are clear without one, but a call has no name."""
        name = {"text_delta": "text", "thinking_delta": "thinking"}.get(kind) if isinstance(kind, str) else None
        if name is None:
            return None
        self._block_start(index, {"type": name})
        return self._blocks[index]

    def _stop_event(self, event: dict[str, Any]) -> None:
        index = event.get("index")
        self._block_stop(index if type(index) is int else self._last)

    def _block_stop(self, index: int) -> None:
        block = self._blocks.pop(index, None)
        if block is None:
            return
        if block.kind is None:
            self._whole_block(block)
            return
        if block.kind is PartKind.TOOL_CALL and not block.filled and block.input:
            self.builder.delta(index, arguments_of(block.input))
        extras: dict[str, Any] = {}
        if block.citations:
            extras[CITATIONS] = block.citations
        if block.deltas:
            extras[UNREAD] = block.deltas
        extras_of_all = with_citations(noted(extras), block.citations)
        self.builder.end_part(index, signature=block.signature, extras=extras_of_all)

    def _whole_block(self, block: _Block) -> None:
        if block.start.get("type") == "redacted_thinking":
            key = "redacted"
            rest = given({k: v for k, v in block.start.items() if k not in ("type", "data")})
            self.builder.open_part(key, _MESSAGE, PartKind.REASONING, extras=noted(rest))
            self.builder.end_part(key, redacted=text_of(block.start.get("data")) or None)
            return
        self.builder.emit(Raw(NAME, {"block": block.start, **({UNREAD: block.deltas} if block.deltas else {})}))

    # -------------------------------------------------------------- the end

    def _message_delta(self, event: dict[str, Any]) -> None:
        self._open()
        self._usage.feed(event.get("usage"), at_end=True)
        delta = event.get("delta")
        if isinstance(delta, dict):
            self._note_end(delta)

    def _note_end(self, delta: dict[str, Any]) -> None:
        """Read the stop reason; other fields (`stop_details`, `container`) become extras."""
        self._end.update(given({k: v for k, v in delta.items() if k not in _MESSAGE_FIELDS or k.startswith("stop_")}))
        end = end_of(delta.get("stop_reason"), answered=self.builder.answered)
        if isinstance(end, Failure):
            self.fail(end)
        else:
            self._stop = end or self._stop

    def _message_stop(self, event: dict[str, Any]) -> None:
        self._over()

    def _over(self) -> None:
        self._open()
        self._stop = self._stop or FinishReason.STOP
        self.flush()
        self.builder.end()

    def flush(self) -> None:
        self._whole_start()
        if self._stop is not None:
            self.builder.finish(self._stop, noted(self._end))
        self._end_blocks()
        self._explain()
        self._report_usage()

    def _whole_start(self) -> None:
        """Read the content of `message_start` if no block came after it, as the SDK shows it then."""
        first, self._first = self._first, None
        if isinstance(first, list) and not self._has_blocks:
            for index, block in enumerate(first):
                if isinstance(block, dict):
                    self._block_start(index, block)

    def _explain(self) -> None:
        """Pass on why the answer was refused."""
        explanation = text_of(dict_of(self._end.get(STOP_DETAILS)).get("explanation"))
        if explanation and self._stop is FinishReason.CONTENT_FILTER:
            add_explanation(self.builder, _MESSAGE, explanation, NAME, self._said)

    def _error(self, event: dict[str, Any]) -> None:
        self.fail(ERRORS.failure(error_in(event) or {"message": event.get("message")}))

    def _ping(self, event: dict[str, Any]) -> None:
        """The backend keeps its line warm; so does the other side, whose clients may wait as well."""
        if self._started:
            self.builder.emit(Heartbeat())

    def _end_blocks(self) -> None:
        """Close blocks without an end. A block that comes whole but is incomplete is dropped."""
        for index, block in list(self._blocks.items()):
            if block.kind is None:
                del self._blocks[index]
            else:
                self._block_stop(index)

    def _report_usage(self) -> None:
        report = self._usage.report()
        if report is not None:
            self.builder.usage(report)


_HANDLERS = {
    "message_start": MessagesDecoder._message_start,
    "content_block_start": MessagesDecoder._start_event,
    "content_block_stop": MessagesDecoder._stop_event,
    "message_delta": MessagesDecoder._message_delta,
    "message_stop": MessagesDecoder._message_stop,
    "ping": MessagesDecoder._ping,
    "error": MessagesDecoder._error,
}
