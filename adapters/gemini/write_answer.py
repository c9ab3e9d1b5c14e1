"""Events -> chunks, each with the new parts of one candidate.

Clients that keep the conversation drop a turn in which one chunk has no part, so that each has one: the last contains
an empty text beside the finish reason and the usage, and an empty text keeps an idle connection open. Per token only
the text is dumped; the bytes around it are made when the part begins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

from bridge.contract import Context, Feature
from bridge.dialects.gemini.capabilities import card
from bridge.dialects.gemini.errors import error_object
from bridge.dialects.gemini.options import FrontOptions
from bridge.dialects.gemini.whole_answer import response_of
from bridge.dialects.gemini.wire import (
    NAME,
    NOTES,
    SIGNATURE,
    finish_word,
    media_part,
    own,
    write_citations,
    write_logprobs,
    write_usage,
)
from bridge.model import FinishReason, Media, MessageStatus, PartKind
from bridge.model import events as ev
from bridge.model.events import Event
from bridge.model.jsontext import dumps, input_of
from bridge.toolkit import Encoder
from bridge.toolkit.citations import Citation, Positions, citations_in
from bridge.toolkit.cut_calls import CUT
from bridge.toolkit.logprobs import logprobs_in
from bridge.toolkit.refusals import is_beside
from bridge.toolkit.signed_parts import signature_of
from bridge.toolkit.template import HOLE, Template

# These write nothing in the middle of an answer, or nothing that has a place in it.
Wire = dict[str, Any]
_FREE = Encoder.free - {ev.Raw} | {ev.ToolResulted}
_EMPTY: dict[str, Any] = {"text": ""}


class _Part:
    """An open part: the chunk of its pieces, or the pieces of a call, which is written when it is complete."""

    __slots__ = ("arguments", "choice", "pieces", "start", "started", "template")

    def __init__(self, started: ev.PartStarted, choice: int) -> None:
        self.started = started
        self.choice = choice
        self.template: Template | None = None
        self.pieces = False
        self.arguments: list[str] = []
        self.start = 0


class GeminiEncoder(Encoder):
    """One per run."""

    dialect = NAME
    free = _FREE
    marks_refusals = True
    holds_cut_calls = True

    def __init__(self, context: Context) -> None:
        self._options = options = FrontOptions.of(context)
        super().__init__(context, card(options.media), _lane)
        self._cut = False
        self._head: dict[str, Any] = {}
        self._parts: dict[str, _Part] = {}
        # Of each choice the reason of its end.
        self._reasons: dict[int, FinishReason | None] = {}
        # By choice: the citations of its text, and the positions in it.
        self._citations: dict[int, list[Citation]] = {}
        self._positions: defaultdict[int, Positions] = defaultdict(Positions)
        self._refusals: dict[int, list[str]] = {}
        self._logprobs: dict[int, list[dict[str, Any]]] = {}
        request = context.request
        asked = request is None or own(request.extras).get(NOTES, {}).get("generationConfig", {})
        self._shows = {"always": True, "drop": False}.get(self._options.reasoning, asked is True or _asks(asked))

    def ready(self, events: Sequence[Event]) -> Sequence[Event]:
        events = super().ready(events)
        self._cut = self._cut or any(map(_is_cut, events))
        return events

    # ------------------------------------------------------------------ writing

    def _say(self, choice: int, part: dict[str, Any]) -> None:
        self._write([_candidate(choice, part)])

    def _write(self, candidates: list[dict[str, Any]], more: dict[str, Any] | None = None) -> None:
        candidates_field = {"candidates": candidates} if candidates else {}
        self.write({**candidates_field, **(more or {}), **self._head})

    def run_started(self, event: ev.RunStarted) -> None:
        request = self.context.request
        model = event.model or self.context.model or (request.model if request else None) or ""
        self._head = {"modelVersion": model, "responseId": own(event.extras).get("responseId") or event.run_id}

    def message_started(self, event: ev.MessageStarted) -> None:
        self._reasons.setdefault(event.choice, None)

    def message_ended(self, event: ev.MessageEnded) -> None:
        self._reasons[event.choice] = event.reason

    # ------------------------------------------------------------------ parts

    def part_started(self, event: ev.PartStarted) -> None:
        part = self._parts[event.part_id] = _Part(event, event.choice)
        kind = event.kind
        if kind is PartKind.TOOL_CALL or is_beside(event.extras, NAME):
            return
        if kind is not PartKind.REASONING or self._shows:
            said = {"text": HOLE, **({"thought": True} if kind is PartKind.REASONING else {})}
            part.template = Template({"candidates": [_candidate(part.choice, said)], **self._head})
        else:
            self.lost.add(Feature.REASONING, "not requested, or hidden by option reasoning")

    def text(self, event: ev.TextDelta | ev.ReasoningDelta) -> None:
        part = self._parts[event.part_id]
        if event.extras and (logprobs := logprobs_in(event.extras)):
            self._logprobs.setdefault(part.choice, []).extend(logprobs)
        if part.template is not None and event.text:
            if part.started.kind is not PartKind.REASONING:
                self._said(part, event.text)
            self.out.append(part.template(event.text))

    reasoning = text

    def _said(self, part: _Part, text: str) -> None:
        """Note a piece of a text: the positions in it, and the words of a refusal."""
        positions, is_refusal = self._positions[part.choice], part.started.kind is PartKind.REFUSAL
        start = 0
        if not part.pieces:
            part.pieces = True
            start = self.separator_before(part.started.part_id)
            part.start = positions.characters + start
            if is_refusal:
                self._refusals[part.choice] = []
        positions.add(text)
        if is_refusal:
            self._refusals[part.choice].append(text[start:])

    def arguments(self, event: ev.ArgsDelta) -> None:
        self._parts[event.part_id].arguments.append(event.text)

    def part_ended(self, event: ev.PartEnded) -> None:
        part = self._parts.pop(event.part_id)
        if event.extras and part.pieces and part.started.kind is PartKind.TEXT:
            length = self._positions[part.choice].characters - part.start
            found = citations_in(event.extras, self.lost, length, part.start)
            self._citations.setdefault(part.choice, []).extend(found)
        signature = signature_of(event.extras) or signature_of(part.started.extras)
        if part.started.kind is PartKind.TOOL_CALL:
            self._call(part, event.status, signature)
        elif signature and (part.template is not None or part.started.kind is not PartKind.REASONING):
            thought = {"thought": True} if part.started.kind is PartKind.REASONING else {}
            self._say(part.choice, {**_EMPTY, **thought, SIGNATURE: signature})

    def _call(self, part: _Part, status: MessageStatus, signature: str | None) -> None:
        """Write a whole call. Clients run calls of answers that end well, so that one cut off by a limit is dropped."""
        if status is MessageStatus.INCOMPLETE and self._cut:
            self.lost.add(Feature.TOOL_CALL, "cut off inside its arguments")
            return
        started = part.started
        arguments = input_of("".join(part.arguments))
        call = {"functionCall": {"id": started.call_id, "name": started.name, "args": arguments}}
        self._say(part.choice, {**call, SIGNATURE: signature} if signature else call)

    # ------------------------------------------------------------------ whole things

    def content(self, event: ev.ContentAdded) -> None:
        assert isinstance(event.part, Media), "data are text by the card"
        self._say(event.choice, {**media_part(event.part), **own(event.part.extras)})

    def raw(self, event: ev.Raw) -> None:
        value = event.value
        if isinstance(value, dict) and isinstance(value.get("part"), dict):
            index = value.get("index")
            self._say(index if type(index) is int else 0, value["part"])
        else:
            self.lost.add_raw(event)

    def heartbeat(self, event: ev.Heartbeat) -> None:
        if self._head:
            self._say(0, _EMPTY)

    # ------------------------------------------------------------------ the end

    def failed(self, event: ev.RunFailed) -> None:
        self.out.append(dumps(error_object(event.error)))

    def finished(self, event: ev.RunFinished) -> None:
        """The finish reasons and the usage, which clients read together."""
        known = own(event.extras)
        more = {"usageMetadata": write_usage(self.counted())}
        if (feedback := known.get("promptFeedback")) is not None and not self._positions:
            self._write([], {"promptFeedback": feedback, **more})
            return
        words, rest = known.get("finishReasons") or {}, known.get("candidates") or {}
        self._reasons[0] = event.reason
        candidates = [
            {
                "content": {"parts": [_EMPTY], "role": "model"},
                "finishReason": finish_word(reason, words.get(str(choice))),
                "index": choice,
                **self._explanation(choice, reason),
                **self._grounding(choice, rest.get(str(choice), {})),
                **(write_logprobs(self._logprobs[choice]) if choice in self._logprobs else {}),
                **rest.get(str(choice), {}),
            }
            for choice, reason in sorted(self._reasons.items())
        ]
        self._write(candidates, more)

    def accumulate(self, frames: Sequence[Wire]) -> Wire | list[Wire]:
        return response_of(frames, self.context)

    def _explanation(self, choice: int, reason: FinishReason | None) -> dict[str, Any]:
        """Why an answer was refused, in the last words of the model about it."""
        said = "".join(self._refusals.get(choice, ()))
        return {"finishMessage": said} if said and reason is FinishReason.CONTENT_FILTER else {}

    def _grounding(self, choice: int, said: dict[str, Any]) -> dict[str, Any]:
        """The citations of another dialect's backend; one of this dialect says them itself."""
        found = self._citations.get(choice)
        if not found or "groundingMetadata" in said or "citationMetadata" in said:
            return {}
        return {"groundingMetadata": write_citations(found, self._positions[choice])}


def _candidate(choice: int, part: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"parts": [part], "role": "model"}, "index": choice}


def _is_cut(event: Event) -> bool:
    """Return whether the answer ends here at a limit."""
    return (isinstance(event, (ev.MessageEnded, ev.RunFinished)) and event.reason in CUT) or (
        isinstance(event, ev.MessageEnded) and event.status is MessageStatus.INCOMPLETE
    )


def _asks(config: Any) -> bool:
    """Return whether the client requested thoughts, in either spelling."""
    thinking = config.get("thinkingConfig") if isinstance(config, dict) else None
    said = thinking if isinstance(thinking, dict) else {}
    return (said.get("includeThoughts") or said.get("include_thoughts")) is True


def _lane(event: Any) -> Hashable:
    """Candidates do not wait for each other."""
    return getattr(event, "choice", 0)
