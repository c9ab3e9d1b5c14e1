"""Objects of a backend's stream, or its whole answer -> events.

Where calls stand differs by model: each in an object of its own while the stream runs, or all in the last one.
"""

from __future__ import annotations

from typing import Any

from bridge.contract import Context
from bridge.dialects.ollama.errors import ERRORS
from bridge.errors import ErrorCode, Failure
from bridge.model import FinishReason, Inline, Media, MediaKind, PartKind, ToolCall, UsageReported, mime_of
from bridge.model.jsontext import arguments_of, arguments_text, dict_of, text_of
from bridge.toolkit.counts import counts_in
from bridge.toolkit.decoder import JsonDecoder
from bridge.toolkit.errors import error_in
from bridge.toolkit.words import end_of

_ANSWER = frozenset({"response", "thinking", "done"})


class OllamaDecoder(JsonDecoder):
    """One per run."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._context = context

    def read(self, event: dict[str, Any], name: str | None) -> None:
        is_answer = isinstance(event.get("message"), dict) or not _ANSWER.isdisjoint(event)
        if ("error" in event or not is_answer) and (error := error_in(event)) is not None:
            self.fail(ERRORS.failure(error))
            return
        if not is_answer:
            self.saw_unknown = True
            return
        self.builder.begin(model=text_of(event.get("model")) or None)
        message = event.get("message")
        self._message(message if isinstance(message, dict) else event)
        if event.get("done") is True and not self.builder.done:
            self._end(event)

    def read_value(self, value: Any, name: str | None) -> None:
        self.fail(Failure(ErrorCode.BACKEND_PROTOCOL, "The backend sent a line that is not a JSON object."))

    def _message(self, message: dict[str, Any]) -> None:
        if thinking := text_of(message.get("thinking")):
            self.builder.flow(0, PartKind.REASONING, thinking)
        if text := text_of(message.get("content")) or text_of(message.get("response")):
            self.builder.flow(0, PartKind.TEXT, text)
        images = message.get("images")
        for image in images if isinstance(images, list) else ():
            if isinstance(image, str) and image:
                self.builder.end_flow(0)
                self.builder.add(0, image_of(image))
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._call(call)

    def _call(self, call: dict[str, Any]) -> None:
        function = dict_of(call.get("function"))
        given = function.get("arguments")
        arguments = arguments_of(given) if isinstance(given, dict) else arguments_text(given) or "{}"
        call_id = text_of(call.get("id")) or self._context.make_id("call")
        self.builder.end_flow(0)
        self.builder.add(0, ToolCall(call_id, text_of(function.get("name")), arguments))

    def _end(self, event: dict[str, Any]) -> None:
        counts = counts_in(event)
        if "input" in counts or "output" in counts:  # a count of zero is left out
            self.builder.usage(UsageReported(counts.get("input", 0), counts.get("output", 0)))
        word = event.get("done_reason")
        end = end_of(word, answered=self.builder.answered) if text_of(word) else FinishReason.STOP
        if isinstance(end, Failure):
            self.fail(end)
            return
        self.builder.finish(end or FinishReason.STOP)
        self.builder.end()

    def flush(self) -> None:
        if self.saw_unknown and self.builder.is_empty:
            text = "The backend's answer has no object of its dialect."
            self.builder.fail(Failure(ErrorCode.BACKEND_PROTOCOL, text))


def image_of(data: str) -> Media:
    """Return the image of these bytes in base64, whose type the protocol does not name."""
    image = Media(MediaKind.IMAGE, Inline(data))
    image.mime = mime_of(image)
    return image
