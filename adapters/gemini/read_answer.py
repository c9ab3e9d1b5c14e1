"""Chunks of a backend -> events. Accepts what servers of this kind send and never raises on wire data.

A chunk holds what is new of each candidate. There is no end mark: the finish reason of a candidate is the sign that
the answer is whole, and usage and grounding may follow it, so that the terminal event waits for the end of the input.
Parts that only Gemini understands (code that it ran, a signature by itself) travel as `Raw`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from bridge.contract import Context, FrameLike
from bridge.dialects.gemini.errors import ERRORS
from bridge.dialects.gemini.wire import (
    LOGPROBS,
    MADE,
    NAME,
    SIGNATURE,
    given,
    medium,
    noted,
    read_citations,
    read_logprobs,
    read_usage,
)
from bridge.errors import Failure
from bridge.model import Event, FinishReason, PartKind, Raw, TextDelta, ToolCall, UsageReported
from bridge.model.jsontext import arguments_of, text_of
from bridge.toolkit.citations import Positions, with_citations
from bridge.toolkit.counts import is_count
from bridge.toolkit.decoder import JsonDecoder
from bridge.toolkit.errors import error_in
from bridge.toolkit.logprobs import shared_logprobs
from bridge.toolkit.refusals import Said, add_explanation
from bridge.toolkit.words import end_of

_NOT_BLOCKED = (None, "", "BLOCK_REASON_UNSPECIFIED")
_CANDIDATE = frozenset({"content", "finishReason", "index"})
_TEXT = ("candidates", 0, "content", "parts", 0, "text")


class GeminiDecoder(JsonDecoder):
    """One per run."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._context = context
        # Of each candidate the part that flows, with its kind.
        self._flowing: dict[int, tuple[str, PartKind]] = {}
        self._parts = 0
        self._begun: set[int] = set()
        self._said: defaultdict[int, Said] = defaultdict(Said)
        self._ends: dict[int, tuple[FinishReason, str]] = {}
        # Of each text part the positions in it, by the id of the part: citations count its bytes.
        self._positions: dict[str, Positions] = {}
        self._blocked: dict[str, Any] | None = None
        self._rest: dict[str, dict[str, Any]] = {}
        self._usage: UsageReported | None = None

    def chunks(self, values: list[Any]) -> list[Event]:
        """The events of an answer in one piece, or of a stream that came as one JSON array."""
        events: list[Event] = []
        for value in values:
            if isinstance(value, dict):
                self.read(value, None)
                events += self._measured(self.builder.take())
        return events + self.close()

    def feed(self, frames: Sequence[FrameLike]) -> list[Event]:
        return self._measured(super().feed(frames))

    def _measured(self, events: list[Event]) -> list[Event]:
        for event in events:
            if type(event) is TextDelta:
                positions = self._positions.get(event.part_id)
                if positions is None:
                    positions = self._positions[event.part_id] = Positions()
                positions.add(event.text)
        return events

    # -------------------------------------------------------------- chunks

    def read(self, event: dict[str, Any], name: str | None) -> None:
        if ("candidates" not in event or "error" in event) and (error := error_in(event)) is not None:
            self.fail(ERRORS.failure(error))
            return
        model, wire_id = text_of(event.get("modelVersion")), text_of(event.get("responseId"))
        if model or wire_id:
            self.builder.begin(model=model or None, extras=noted({"responseId": wire_id} if wire_id else {}))
        usage = event.get("usageMetadata")
        if isinstance(usage, dict):
            self._usage = read_usage(usage) or self._usage
        candidates = event.get("candidates")
        for candidate in candidates if isinstance(candidates, list) else ():
            if isinstance(candidate, dict) and not self.builder.done:
                self._candidate(candidate)
        feedback = event.get("promptFeedback")
        if isinstance(feedback, dict) and feedback.get("blockReason") not in _NOT_BLOCKED:
            self._blocked = feedback
        self._learn(event)

    def _learn(self, event: dict[str, Any]) -> None:
        """A chunk with one text, which the next ones often differ in alone."""
        match event:
            case {"candidates": [{"content": {"parts": [{"text": str(text)} as part]}} as candidate]} if text:
                index = _index(candidate)
                flowing = self._flowing.get(index)
                if flowing is not None and SIGNATURE not in part and LOGPROBS not in candidate:
                    said = self._said[index] if flowing[1] is PartKind.TEXT else None
                    self.repeat.learn(event, _TEXT, self.builder.part(flowing[0]), texts=said)

    def _candidate(self, candidate: dict[str, Any]) -> None:
        index = _index(candidate)
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                self._part(index, part)
        if isinstance(result := candidate.get(LOGPROBS), dict):
            self._logprobs(index, result)
        rest = given({name: value for name, value in candidate.items() if name not in _CANDIDATE})
        if rest:
            known = self._rest.setdefault(str(index), {})
            known.update({**rest, LOGPROBS: _joined(known.get(LOGPROBS), rest[LOGPROBS])} if LOGPROBS in rest else rest)
        word = candidate.get("finishReason")
        end = end_of(word, candidate.get("finishMessage"), answered=self.builder.answered)
        if isinstance(end, Failure):
            self.fail(end)
        elif end is not None:
            self._ends[index] = end, text_of(word)

    def _logprobs(self, index: int, result: dict[str, Any]) -> None:
        """Log probabilities of the text that came with them, or before them."""
        flowing = self._flowing.get(index)
        part = self.builder.part(flowing[0]) if flowing is not None and flowing[1] is PartKind.TEXT else None
        extras = shared_logprobs(read_logprobs(result))
        if part is not None and extras is not None:
            self.builder.emit(TextDelta(part.id, "", extras))

    # -------------------------------------------------------------- parts

    def _part(self, index: int, part: dict[str, Any]) -> None:
        signature = text_of(part.get(SIGNATURE))
        call = part.get("functionCall")
        if isinstance(part.get("text"), str):
            self._text(index, part, signature)
        elif isinstance(call, dict):
            self._call(index, call, signature)
        else:
            self._whole(index, part)

    def _text(self, index: int, part: dict[str, Any], signature: str) -> None:
        """A text continues until a text of the other kind comes, or one with a signature, which is separate."""
        text, kind = part["text"], PartKind.REASONING if part.get("thought") is True else PartKind.TEXT
        if not text:
            if signature:
                self._sign(index, part, kind)
            return
        flowing = self._flowing.get(index)
        if flowing is None or flowing[1] is not kind or signature:
            flowing = self._open(index, kind)
        self.builder.delta(flowing[0], text)
        if kind is PartKind.TEXT:
            self._said[index].append(text)
        if signature:
            self._end(index, {SIGNATURE: signature})

    def _open(self, index: int, kind: PartKind) -> tuple[str, PartKind]:
        self._end(index)
        self._parts += 1
        key = f"part {self._parts}"
        self._begin(index)
        self.builder.open_part(key, index, kind)
        flowing = self._flowing[index] = (key, kind)
        return flowing

    def _begin(self, index: int) -> None:
        self._begun.add(index)
        self.builder.message(index, choice=index)

    def _end(self, index: int, extras: dict[str, Any] | None = None) -> None:
        flowing = self._flowing.pop(index, None)
        if flowing is not None:
            noted_of = noted(extras or {})
            if flowing[1] is PartKind.TEXT and (known := self._rest.get(str(index))):
                part = self.builder.part(flowing[0])
                positions = self._positions.get(part.id if part is not None else "", Positions())
                noted_of = with_citations(noted_of, read_citations(known, positions))
            self.builder.end_part(flowing[0], extras=noted_of)

    def _sign(self, index: int, part: dict[str, Any], kind: PartKind) -> None:
        """A signature after the text that it belongs to, or by itself."""
        flowing = self._flowing.get(index)
        if flowing is not None and flowing[1] is kind:
            self._end(index, {SIGNATURE: part[SIGNATURE]})
        else:
            self._raw(index, part)

    def _call(self, index: int, call: dict[str, Any], signature: str) -> None:
        self._end(index)
        self._begin(index)
        call_id = text_of(call.get("id")) or self._context.make_id(MADE)
        args = call.get("args")
        arguments = args if isinstance(args, str) else arguments_of(args if isinstance(args, dict) else {})
        extras = noted({SIGNATURE: signature} if signature else {})
        self.builder.add(index, ToolCall(call_id, text_of(call.get("name")), arguments, extras=extras))

    def _whole(self, index: int, part: dict[str, Any]) -> None:
        """A medium, or a part that only Gemini understands."""
        for kind in ("inlineData", "fileData"):
            value = part.get(kind)
            found = medium(kind, value) if isinstance(value, dict) else None
            if found is not None:
                self._end(index)
                self._begin(index)
                found.extras = noted(given({name: each for name, each in part.items() if name != kind}))
                self.builder.add(index, found)
                return
        if given(part):
            self._raw(index, part)

    def _raw(self, index: int, part: dict[str, Any]) -> None:
        self._end(index)
        self._begin(index)
        self.builder.emit(Raw(NAME, {"part": part, "index": index}))

    # -------------------------------------------------------------- the end

    def flush(self) -> None:
        """Why the answer ended, which comes first: a part that ends without it was cut off."""
        self._finish()
        for index in list(self._flowing):
            self._end(index)
        if self._usage is not None:
            self.builder.usage(self._usage)

    def _finish(self) -> None:
        """Read the finish reasons, if all candidates have one; other fields of the candidates become extras."""
        extras: dict[str, Any] = {"candidates": self._rest} if self._rest else {}
        if self._blocked is not None and not self._ends:
            self.builder.finish(FinishReason.CONTENT_FILTER, noted({**extras, "promptFeedback": self._blocked}))
            self._explain(0, text_of(self._blocked.get("blockReasonMessage")))
        elif self._ends and self._begun <= self._ends.keys():
            for index, (end, _) in self._ends.items():
                self._begin(index)
                self.builder.end_reason(index, end)
            extras["finishReasons"] = {str(index): word for index, (_, word) in self._ends.items()}
            first, _ = self._ends.get(0) or next(iter(self._ends.values()))
            self.builder.finish(first, noted(extras))
            for index, (end, _) in self._ends.items():
                if end is FinishReason.CONTENT_FILTER:
                    self._explain(index, text_of(self._rest.get(str(index), {}).get("finishMessage")))

    def _explain(self, index: int, text: str) -> None:
        """Pass on why an answer was refused."""
        if text:
            self._end(index)
            self._begin(index)
            add_explanation(self.builder, index, text, NAME, self._said[index])


def _joined(known: Any, new: Any) -> Any:
    """Append the log probabilities of a chunk to those before it, whose lists grow in place."""
    if not isinstance(known, dict) or not isinstance(new, dict):
        return new
    for name, value in new.items():
        if isinstance(value, list) and isinstance(earlier := known.get(name), list):
            earlier.extend(value)
        else:
            known[name] = value
    return known


def _index(candidate: dict[str, Any]) -> int:
    """Return the index of the candidate, which servers with a single one may omit."""
    said = candidate.get("index")
    return said if is_count(said) else 0
