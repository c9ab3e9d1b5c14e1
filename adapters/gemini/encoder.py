"""Events -> chunks, each with the new parts of one candidate.

Clients that keep the conversation drop a turn in which one chunk has no part, so that each has one: the last contains
an empty text beside the finish reason and the usage, and an empty text keeps an idle connection open. Per token only
the text is dumped; the bytes around it are made when the part begins.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from bridge.codec import Context, Feature, FrameLike
from bridge.codec.citations import Citation, Positions, citations_in
from bridge.codec.counts import NOT_REPORTED
from bridge.codec.cut_calls import CUT, CutCalls
from bridge.codec.jsontext import dumps, input_of
from bridge.codec.logprobs import logprobs_in
from bridge.codec.refusals import is_beside
from bridge.codec.sequencer import Sequencer
from bridge.codec.signed_parts import signature_of
from bridge.dialects.gemini.errors import CANCELED, error_object
from bridge.dialects.gemini.options import FrontOptions
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
from bridge.model import FinishReason, Media, MessageStatus, Origin, PartKind, as_text, interrupt_text
from bridge.model import events as ev
from bridge.model.events import Event

_LOST: dict[type, Feature] = {
    ev.ToolResulted: Feature.TOOL_RESULT,
    ev.StateChanged: Feature.STATE,
    ev.StepStarted: Feature.STEP,
    ev.StepEnded: Feature.STEP,
    ev.Custom: Feature.CUSTOM,
}
# These write nothing in the middle of an answer, or nothing that has a place in it.
_FREE = (ev.RunStarted, ev.MessageStarted, ev.MessageEnded, ev.UsageReported, ev.Heartbeat, ev.Interrupted, *_LOST)
_EMPTY: dict[str, Any] = {"text": ""}


class _Part:
    """An open part: the bytes around its pieces, or the pieces of a call, which is written when it is complete."""

    __slots__ = ("after", "arguments", "before", "choice", "pieces", "start", "started")

    def __init__(self, started: ev.PartStarted, choice: int) -> None:
        self.started = started
        self.choice = choice
        self.before = b""
        self.after = b""
        self.pieces = False
        self.arguments: list[str] = []
        self.start = 0


class GeminiEncoder:
    """One per run."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._options = FrontOptions.of(context)
        self._cut_calls = CutCalls()
        self._cut = False
        choices: dict[str, int] = {}
        self._choices = choices
        self._sequencer = Sequencer(None, _FREE, lane=lambda event: _lane(choices, event))
        self._out: list[FrameLike] = []
        self._head: dict[str, Any] = {}
        self._parts: dict[str, _Part] = {}
        # Of each choice: whether its last part was text, and the reason of its end.
        self._texts: set[int] = set()
        self._reasons: dict[int, FinishReason | None] = {}
        self._calls: set[str | None] = set()
        self._questions: list[ev.Interrupted] = []
        self._usage: ev.UsageReported | None = None
        # By choice: the citations of its text, and the positions in it.
        self._citations: dict[int, list[Citation]] = {}
        self._positions: dict[int, Positions] = {}
        self._refusals: dict[int, list[str]] = {}
        self._logprobs: dict[int, list[dict[str, Any]]] = {}
        self._spoke: dict[int, str] = {}  # by choice: the message of the last text
        request = context.request
        asked = request is None or own(request.extras).get(NOTES, {}).get("generationConfig", {})
        self._shows = {"always": True, "drop": False}.get(self._options.reasoning, asked is True or _asks(asked))

    # ------------------------------------------------------------------ the contract

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        out = self._out = []
        ready = self._cut_calls.feed(events)
        self._cut = self._cut or any(map(_is_cut, ready))
        self._sequencer.dispatch(ready, self, _HANDLERS)
        return out

    def close(self) -> list[FrameLike]:
        """Nothing: the end of the body is the end of the stream."""
        return []

    # ------------------------------------------------------------------ writing

    def _say(self, choice: int, part: dict[str, Any]) -> None:
        self._write([{"content": {"parts": [part], "role": "model"}, "index": choice}])

    def _write(self, candidates: list[dict[str, Any]], more: dict[str, Any] | None = None) -> None:
        candidates_field = {"candidates": candidates} if candidates else {}
        self._out.append(dumps({**candidates_field, **(more or {}), **self._head}))

    def _run_started(self, event: ev.RunStarted) -> None:
        request = self._context.request
        model = event.model or self._context.model or (request.model if request else None) or ""
        self._head = {"modelVersion": model, "responseId": own(event.extras).get("responseId") or event.run_id}

    def _message_started(self, event: ev.MessageStarted) -> None:
        self._choices[event.message_id] = event.choice
        self._reasons.setdefault(event.choice, None)

    def _message_ended(self, event: ev.MessageEnded) -> None:
        self._reasons[self._choices[event.message_id]] = event.reason

    # ------------------------------------------------------------------ parts

    def _part_started(self, event: ev.PartStarted) -> None:
        part = self._parts[event.part_id] = _Part(event, self._choices[event.message_id])
        kind, lost = event.kind, self._context.lost
        if kind is PartKind.TOOL_CALL:
            self._calls.add(event.call_id)
            if event.origin is not Origin.FUNCTION:
                lost.add(Feature.TOOL_ORIGIN)
            return
        if is_beside(event.extras, NAME):
            return
        if kind is PartKind.REFUSAL:
            lost.add(Feature.REFUSAL, "sent as text")
            self._refusals.setdefault(part.choice, [])
        if kind is not PartKind.REASONING or self._shows:
            thought = b',"thought":true}],"role":"model"}' if kind is PartKind.REASONING else b'}],"role":"model"}'
            part.before = b'{"candidates":[{"content":{"parts":[{"text":'
            part.after = thought + b',"index":%d}],' % part.choice + dumps(self._head)[1:]
        else:
            lost.add(Feature.REASONING, "not requested, or hidden by option reasoning")

    def _piece(self, event: ev.TextDelta | ev.ReasoningDelta) -> None:
        part = self._parts[event.part_id]
        if event.extras and (logprobs := logprobs_in(event.extras)):
            self._logprobs.setdefault(part.choice, []).extend(logprobs)
        if part.before and event.text:
            if part.started.kind is PartKind.REFUSAL:
                self._refusals[part.choice].append(event.text)
            text = event.text if part.pieces else self._begin(part) + event.text
            if part.started.kind is not PartKind.REASONING:
                self._positions[part.choice].add(event.text)
            self._out.append(part.before + dumps(text) + part.after)

    def _begin(self, part: _Part) -> str:
        """Return what stands before the first piece: a text directly after another one continues it."""
        part.pieces = True
        is_text = part.started.kind is not PartKind.REASONING
        self._follow(part.choice, is_text)
        if not is_text:
            return ""
        border = self._border(part.choice, part.started.message_id)
        part.start = self._positions[part.choice].characters
        return border

    def _border(self, choice: int, message_id: str) -> str:
        """Return what stands before a text of this message: clients make one text of all, whatever lies between."""
        last, self._spoke[choice] = self._spoke.get(choice, message_id), message_id
        border = "" if last == message_id else self._options.message_separator
        self._positions.setdefault(choice, Positions()).add(border)
        return border

    def _follow(self, choice: int, is_text: bool) -> None:
        """Note what the last part of a choice is."""
        if is_text and choice in self._texts:
            self._context.lost.add(Feature.PART_BORDERS)
        (self._texts.add if is_text else self._texts.discard)(choice)

    def _arguments(self, event: ev.ArgsDelta) -> None:
        self._parts[event.part_id].arguments.append(event.text)

    def _part_ended(self, event: ev.PartEnded) -> None:
        part = self._parts.pop(event.part_id)
        if event.signature or event.redacted:
            self._context.lost.add(Feature.REASONING_SIGNATURE)
        if event.extras and part.pieces and part.started.kind is PartKind.TEXT:
            length = self._positions[part.choice].characters - part.start
            found = citations_in(event.extras, self._context.lost, length, part.start)
            self._citations.setdefault(part.choice, []).extend(found)
        signature = signature_of(event.extras) or signature_of(part.started.extras)
        if part.started.kind is PartKind.TOOL_CALL:
            self._call(part, event.status, signature)
        elif signature and (part.before or part.started.kind is not PartKind.REASONING):
            thought = {"thought": True} if part.started.kind is PartKind.REASONING else {}
            self._say(part.choice, {**_EMPTY, **thought, SIGNATURE: signature})
            self._texts.discard(part.choice)

    def _call(self, part: _Part, status: MessageStatus, signature: str | None) -> None:
        """Write a whole call. Clients run calls of answers that end well, so that one cut off by a limit is dropped."""
        if status is MessageStatus.INCOMPLETE and self._cut:
            self._context.lost.add(Feature.TOOL_CALL, "cut off inside its arguments")
            return
        started = part.started
        arguments = input_of("".join(part.arguments))
        call = {"functionCall": {"id": started.call_id, "name": started.name, "args": arguments}}
        self._follow(part.choice, False)
        self._say(part.choice, {**call, SIGNATURE: signature} if signature else call)

    # ------------------------------------------------------------------ whole things

    def _content(self, event: ev.ContentAdded) -> None:
        part, choice, lost = event.part, self._choices[event.message_id], self._context.lost
        if isinstance(part, Media) and self._options.media == "data":
            self._follow(choice, False)
            self._say(choice, {**media_part(part), **own(part.extras)})
        elif isinstance(part, Media):
            lost.add(Feature(str(part.kind)), "dropped by option media")
        else:
            lost.add(Feature.DATA, "sent as text")
            self._follow(choice, True)
            self._say(choice, {"text": self._border(choice, event.message_id) + as_text(part)})

    def _raw(self, event: ev.Raw) -> None:
        value = event.value
        if event.dialect == NAME and isinstance(value, dict) and isinstance(value.get("part"), dict):
            index = value.get("index")
            self._say(index if type(index) is int else 0, value["part"])
        else:
            self._context.lost.add_raw(event)

    def _lose(self, event: Event) -> None:
        self._context.lost.add(_LOST[type(event)])

    def _interrupted(self, event: ev.Interrupted) -> None:
        self._context.lost.add(Feature.INTERRUPT, "sent as text")
        self._questions.append(event)

    def _usage_reported(self, event: ev.UsageReported) -> None:
        self._usage = event

    def _heartbeat(self, event: ev.Heartbeat) -> None:
        if self._options.keepalive == "text" and self._head:
            self._say(0, _EMPTY)

    # ------------------------------------------------------------------ the end

    def _failed(self, event: ev.RunFailed) -> None:
        self._out.append(dumps(error_object(event.error)))

    def _finished(self, event: ev.RunFinished) -> None:
        """The finish reasons and the usage, which clients read together."""
        if event.reason is FinishReason.CANCELED:
            self._context.lost.add(Feature.FINISH_CANCELED, "sent as an error")
            self._out.append(dumps(error_object(CANCELED)))
            return
        for number, interrupt in enumerate(self._questions):
            # A question for a person comes last; one about a call is expressed by that call.
            if interrupt.call_id not in self._calls and (text := interrupt_text(interrupt)):
                self._say(0, {"text": self._border(0, f"interrupt {number}") + text})
        known = own(event.extras)
        if self._usage is None:  # SDKs read it unconditionally
            self._context.lost.add(Feature.USAGE, NOT_REPORTED)
        more = {"usageMetadata": write_usage(self._usage or ev.UsageReported(0, 0))}
        if (feedback := known.get("promptFeedback")) is not None and not self._spoke:
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

    def _explanation(self, choice: int, reason: FinishReason | None) -> dict[str, Any]:
        """Why an answer was refused, in the words of the model."""
        said = "".join(self._refusals.get(choice, ()))
        return {"finishMessage": said} if said and reason is FinishReason.CONTENT_FILTER else {}

    def _grounding(self, choice: int, said: dict[str, Any]) -> dict[str, Any]:
        """The citations of another dialect's backend; one of this dialect says them itself."""
        found = self._citations.get(choice)
        if not found or "groundingMetadata" in said or "citationMetadata" in said:
            return {}
        return {"groundingMetadata": write_citations(found, self._positions[choice])}


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


def _lane(choices: dict[str, int], event: Any) -> Hashable:
    """Candidates do not wait for each other."""
    return choices.get(getattr(event, "message_id", None) or "", 0)


_HANDLERS: dict[type, Callable[[GeminiEncoder, Any], None]] = {
    ev.TextDelta: GeminiEncoder._piece,
    ev.ReasoningDelta: GeminiEncoder._piece,
    ev.ArgsDelta: GeminiEncoder._arguments,
    ev.RunStarted: GeminiEncoder._run_started,
    ev.MessageStarted: GeminiEncoder._message_started,
    ev.MessageEnded: GeminiEncoder._message_ended,
    ev.PartStarted: GeminiEncoder._part_started,
    ev.PartEnded: GeminiEncoder._part_ended,
    ev.ContentAdded: GeminiEncoder._content,
    ev.UsageReported: GeminiEncoder._usage_reported,
    ev.Raw: GeminiEncoder._raw,
    ev.Heartbeat: GeminiEncoder._heartbeat,
    ev.Interrupted: GeminiEncoder._interrupted,
    ev.RunFailed: GeminiEncoder._failed,
    ev.RunFinished: GeminiEncoder._finished,
    **dict.fromkeys(_LOST, GeminiEncoder._lose),
}
