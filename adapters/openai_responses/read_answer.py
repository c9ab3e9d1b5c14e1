"""Events of a backend -> events of the model. Accepts more than the official wire and never raises on wire data.

The stream is over with `response.completed`, `.incomplete` or `.failed`; anything else is truncation. The last event
repeats the whole answer, so that what was never streamed is taken from there. An `error` fails the run: with the
`response.failed` that follows it, which has the usage, or at the end of a stream that has no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge.contract import Context
from bridge.dialects.openai.errors import ERRORS
from bridge.dialects.openai_responses.errors import failure_in
from bridge.dialects.openai_responses.read_items import KINDS, Item, Items, Key, Wire, is_known, response_in
from bridge.dialects.openai_responses.response import OURS
from bridge.dialects.openai_responses.wire import CONTENT, NAME, SUMMARY, noted, read_usage
from bridge.errors import ErrorCode, Failure
from bridge.model import Event, FinishReason, PartKind, Raw
from bridge.model.jsontext import arguments_text, dict_of, dicts_of, is_number, text_of
from bridge.toolkit.decoder import JsonDecoder
from bridge.toolkit.errors import error_in
from bridge.toolkit.words import end_of

_QUIET = frozenset({"keepalive", "ping"})
_WAITING = ("queued", "in_progress")
_WHOLE = (FinishReason.STOP, FinishReason.TOOL_CALLS)
"""Reasons that a response whose status is incomplete cannot have."""


class ResponsesDecoder(JsonDecoder):
    """One per run."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._items = Items(self.builder)
        self._head: Wire = {}
        self._failure: Failure | None = None
        self._spot: tuple[Any, Any, Any] | None = None
        self._key: Key = (-1, "", 0)

    def whole(self, response: Wire) -> list[Event]:
        """The events of a response in one piece."""
        self._begun({"response": response})
        status = response.get("status")
        if status in _WAITING:
            self.fail(
                Failure(ErrorCode.BACKEND_PROTOCOL, f"The backend's response is not complete: its status is {status}.")
            )
        else:
            self._over({"type": "", "response": response})
        return self.builder.take()

    # ------------------------------------------------------------------ frames

    def read(self, event: Wire, name: str | None) -> None:
        kind = event.get("type")
        if type(kind) is not str:
            kind = name
        if kind is None or (kind not in _HANDLERS and not kind.startswith("response.")):
            self._stranger(event, kind)
            return
        _HANDLERS.get(kind, ResponsesDecoder._unknown)(self, event)

    def read_error(self, value: Any) -> bool:
        self.fail(failure_in(value))
        return True

    def _stranger(self, event: Wire, kind: str | None) -> None:
        """Read an object that is not an event of a response: an error of another shape, or nothing of interest."""
        error = error_in(event)
        if error is not None:
            self.fail(ERRORS.failure(error))
        elif kind is not None and kind not in _QUIET:
            self._unknown(event)

    def _unknown(self, event: Wire) -> None:
        self.builder.emit(Raw(NAME, event))

    # ------------------------------------------------------------------ the response

    def _begun(self, event: Wire) -> None:
        """Id, model and time; the rest of the object is for clients of this dialect."""
        if self._head:
            return
        response = self._head = response_in(event)
        created, model = response.get("created_at"), response.get("model")
        more = {k: v for k, v in response.items() if k not in OURS} if "response" in event else {}
        self.builder.begin(
            model=model if isinstance(model, str) and model else None,
            created_at=float(created) if is_number(created) and created > 0 else None,
            extras=noted(id=text_of(response.get("id")), response=more),
        )

    def _over(self, event: Wire) -> None:
        """Read the last event, with the whole answer. Its status takes precedence over the name of the event."""
        response = response_in(event)
        self._begun(event)
        for index, value in enumerate(dicts_of(response.get("output"))):
            self._items.end(self._items.same(value, index) or self._items.add(value, index), value)
        usage = read_usage(response.get("usage"))
        if usage is not None:
            self.builder.usage(usage)
        status = text_of(response.get("status"))
        if not status or (status in _WAITING and event.get("type")):
            status = text_of(event.get("type")).removeprefix("response.")
        self._end(status, response)

    def _end(self, status: str, response: Wire) -> None:
        details = dict_of(response.get("incomplete_details"))
        more = {k: v for k, v in response.items() if k not in OURS and self._head.get(k) != v}
        extras = noted(response=more, incomplete_details=details)
        if status == "failed" or self._failure is not None:
            self.builder.fail(self._failure or failure_in(response.get("error")), extras)
            return
        end = end_of(status, answered=self.builder.answered) or FinishReason.STOP
        if end is FinishReason.LENGTH:
            end = end_of(details.get("reason"), answered=True) or end
            end = FinishReason.LENGTH if end in _WHOLE else end
        if isinstance(end, Failure):
            self.builder.fail(end, extras)
            return
        self.builder.finish(end, extras)
        self.builder.end()

    def _failed(self, event: Wire) -> None:
        """Read `response.failed`, whatever its status."""
        response = response_in(event)
        self._over({**event, "response": {**response, "status": "failed"}})

    def _error(self, event: Wire) -> None:
        self._failure = self._failure or failure_in(event)

    def close(self, failure: Failure | None = None) -> list[Event]:
        return super().close(self._failure or failure)

    # ------------------------------------------------------------------ items

    def _added(self, event: Wire) -> None:
        value = dict_of(event.get("item"))
        if not value or self._items.is_open(value, event.get("output_index")):
            return
        self._items.add(value, event.get("output_index"))
        if not is_known(value) or value["type"] == "image_generation_call":
            self._unknown(event)

    def _done(self, event: Wire) -> None:
        value = dict_of(event.get("item"))
        if not value:
            return
        item = self._items.same(value, event.get("output_index"))
        self._items.end(item or self._items.add(value, event.get("output_index")), value)

    def _part_added(self, event: Wire) -> None:
        item = self._items.find(event)
        kind = KINDS.get(text_of(dict_of(event.get("part")).get("type")))
        if item is not None and kind is not None and item.kind == "message":
            self._items.open_text(item, event.get("content_index"), kind)

    def _part_done(self, event: Wire) -> None:
        part = dict_of(event.get("part"))
        if text_of(part.get("type")) in KINDS and not (item := self._message_of(event)).over:
            self._items.end_text(item, event.get("content_index"), part)

    # ------------------------------------------------------------------ pieces

    def _text(self, event: Wire) -> None:
        """A piece of a text, and nothing beside it: most likely of the text that the last piece was of."""
        text = event.get("delta")
        spot = (event.get("item_id"), event.get("output_index"), event.get("content_index"))
        if (
            spot == self._spot
            and type(text) is str
            and not event.get("logprobs")
            and self._items.go_on(self._key, text)
        ):
            self._learn(event, self._key)
            return
        key = self._say(event, PartKind.TEXT, text)
        if key is not None:
            self._spot, self._key = spot, key

    def _learn(self, event: Wire, key: Key) -> None:
        """The event was a piece of the open part `key` and contained nothing else."""
        part = self.builder.part(key)
        self.repeat.learn(event, ("delta",), part, number="sequence_number", padding="obfuscation")

    def _refusal(self, event: Wire) -> None:
        self._say(event, PartKind.REFUSAL, event.get("delta"))

    def _say(self, event: Wire, kind: PartKind, text: Any) -> Key | None:
        """The key of the part that this was a piece of, None when it was nothing."""
        if type(text) is not str or not text:
            return None
        item = self._message_of(event)
        if item.over:
            return None
        return self._items.text(item, event.get("content_index"), kind, text, event.get("logprobs"))

    def _message_of(self, event: Wire) -> Item:
        """Return the message of a text: one that begins with it if the server leaves out what comes before."""
        item = self._items.find(event)
        if item is None or item.kind != "message":
            item = self._items.imply("message", event.get("item_id"), event.get("output_index"))
        return item

    def _text_done(self, event: Wire) -> None:
        kind = PartKind.TEXT if "text" in event else PartKind.REFUSAL
        text = text_of(event.get("text") or event.get("refusal"))
        if text and not (item := self._message_of(event)).over:
            self._items.whole_text(item, event.get("content_index"), kind, text, event.get("logprobs"))

    def _annotation(self, event: Wire) -> None:
        item = self._items.find(event)
        if item is not None and item.kind == "message" and not item.over:
            self._items.annotate(item, event.get("content_index"), event.get("annotation"))

    def _arguments(self, event: Wire) -> None:
        item, text = self._items.find(event), event.get("delta")
        if item is not None and item.kind == "function_call" and not item.over and type(text) is str and text:
            self._learn(event, self._items.arguments(item, text))

    def _arguments_done(self, event: Wire) -> None:
        item = self._items.find(event)
        if item is not None and item.kind == "function_call" and not item.over:
            self._items.whole_arguments(item, arguments_text(event.get("arguments")))

    def _thought(self, event: Wire) -> None:
        self._think(event, CONTENT, "content_index", event.get("delta"))

    def _summary(self, event: Wire) -> None:
        self._think(event, SUMMARY, "summary_index", event.get("delta"))

    def _think(self, event: Wire, form: str, index: str, text: Any) -> None:
        if type(text) is not str or not text:
            return
        item = self._items.find(event)
        if item is None or item.kind != "reasoning":
            item = self._items.imply("reasoning", event.get("item_id"), event.get("output_index"))
        if not item.over:
            self._learn(event, self._items.thought(item, form, event.get(index), text))

    def _thought_done(self, event: Wire) -> None:
        item = self._items.find(event)
        form, index = (SUMMARY, "summary_index") if "summary_index" in event else (CONTENT, "content_index")
        if item is not None and item.kind == "reasoning" and not item.over:
            self._items.whole_thought(item, form, event.get(index), text_of(event.get("text")))

    def _pass(self, event: Wire) -> None:
        """Ignore an event that repeats others."""


_HANDLERS: dict[str, Callable[[ResponsesDecoder, Wire], None]] = {
    "response.output_text.delta": ResponsesDecoder._text,
    "response.function_call_arguments.delta": ResponsesDecoder._arguments,
    "response.reasoning_text.delta": ResponsesDecoder._thought,
    "response.reasoning_summary_text.delta": ResponsesDecoder._summary,
    "response.refusal.delta": ResponsesDecoder._refusal,
    "response.created": ResponsesDecoder._begun,
    "response.queued": ResponsesDecoder._begun,
    "response.in_progress": ResponsesDecoder._begun,
    "response.output_item.added": ResponsesDecoder._added,
    "response.output_item.done": ResponsesDecoder._done,
    "response.content_part.added": ResponsesDecoder._part_added,
    "response.content_part.done": ResponsesDecoder._part_done,
    "response.output_text.done": ResponsesDecoder._text_done,
    "response.refusal.done": ResponsesDecoder._text_done,
    "response.output_text.annotation.added": ResponsesDecoder._annotation,
    "response.function_call_arguments.done": ResponsesDecoder._arguments_done,
    "response.reasoning_text.done": ResponsesDecoder._thought_done,
    "response.reasoning_summary_text.done": ResponsesDecoder._thought_done,
    "response.reasoning_summary_part.added": ResponsesDecoder._pass,
    "response.reasoning_summary_part.done": ResponsesDecoder._pass,
    "response.completed": ResponsesDecoder._over,
    "response.incomplete": ResponsesDecoder._over,
    "response.failed": ResponsesDecoder._failed,
    "error": ResponsesDecoder._error,
}
