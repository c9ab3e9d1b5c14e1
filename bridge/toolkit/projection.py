"""`Projection`: an answer as a dialect can carry it. It carries out what the card declares, and names each loss."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from bridge.contract.capabilities import Capabilities, Feature, Support
from bridge.contract.context import Losses
from bridge.contract.endings import ENDS, REFUSED
from bridge.model import events as ev
from bridge.model.events import Event, FinishReason, MessageStatus, PartKind
from bridge.model.parts import FileRef, Inline, Media, Origin, Part
from bridge.model.text import as_markdown, interrupt_text
from bridge.toolkit.citations import annotations_in
from bridge.toolkit.logprobs import logprobs_in
from bridge.toolkit.media import answer_feature
from bridge.toolkit.refusals import is_beside

_AS_TEXT = "sent as text"
# Read once: a member of an enumeration is slow to look up in Python 3.11.
_EXACT, _DROP = Support.EXACT, Support.DROP
_TEXT, _REFUSAL, _CALL = PartKind.TEXT, PartKind.REFUSAL, PartKind.TOOL_CALL
_FUNCTION, _CANCELED = Origin.FUNCTION, FinishReason.CANCELED
_HIDDEN_RESULT = "\0"
"""Stands for the message of the last text when a result that clients do not see came after it."""
_ASIDE: dict[type, Feature] = {
    ev.ToolResulted: Feature.TOOL_RESULT,
    ev.StateChanged: Feature.STATE,
    ev.StepStarted: Feature.STEP,
    ev.StepEnded: Feature.STEP,
    ev.Custom: Feature.CUSTOM,
}
_PARTS: dict[PartKind, Feature] = {
    PartKind.TEXT: Feature.TEXT,
    PartKind.REFUSAL: Feature.REFUSAL,
    PartKind.REASONING: Feature.REASONING,
    PartKind.TOOL_CALL: Feature.TOOL_CALL,
}


class _Rare:
    """What only some answers need.

    Attributes:
        separators: The characters of the separator at the beginning of each open text that has one.
        called: The ids of calls.
        questions: What becomes a text at the end.
        audible: The choices that have an audio, where a choice has one at most.
    """

    __slots__ = ("audible", "called", "questions", "separators")

    def __init__(self) -> None:
        self.separators: dict[str, int] = {}
        self.called: set[str | None] = set()
        self.questions: list[ev.Interrupted] = []
        self.audible: set[int] = set()


class Projection:
    """The events of one run -> those that a dialect can write.

    What the card drops is left out, what it has as text becomes text, a finish reason that it refuses becomes a
    failure. Questions that become text come last, without those about a call that the client sees. Texts of different
    messages, and those around a result that is left out, are separated where the client makes one text of them. The
    events must be in the order in which they are written: of the parts whose texts a client joins, one is open at a
    time.

    Arguments:
        card: What the dialect carries.
        lost: Where losses are recorded.
        dialect: The dialect whose `Raw` events are passed on, whatever the card says of those of others.
        keeps: Features that are left as they are, since the encoder itself has to decide what becomes of them.
        marks_refusals: Refusals that become text are still marked as refusals.
    """

    __slots__ = (
        "_card", "_dialect", "_keeps", "_last", "_lost", "_marks_refusals", "_separates", "_supports",
        "has_one_choice", "rare", "rules", "watched",
    )  # fmt: skip

    def __init__(
        self,
        card: Capabilities,
        lost: Losses,
        dialect: str = "",
        keeps: Collection[Feature] = frozenset(),
        *,
        marks_refusals: bool = False,
    ) -> None:
        self.watched: dict[str, Feature | ev.PartStarted] = {}
        """The open parts whose next piece has to be passed to `feed`: those that are hidden, each with its feature, and
        texts without a piece. Pieces of all others are written as they are.
        """
        self._supports, self.rules, self._separates, self.has_one_choice = _plan(card, tuple(keeps))
        """`rules`: what is done with events of these types; all others are written as they are."""
        self._card = card
        self._lost = lost
        self._dialect = dialect
        self._keeps = keeps
        self._marks_refusals = marks_refusals
        # By choice, the message of the last text that a client may go on.
        self._last: dict[int, str | None] = {}
        self.rare: _Rare | None = None
        """What only some answers need; None until there is any."""

    @property
    def _noted(self) -> _Rare:
        if self.rare is None:
            self.rare = _Rare()
        return self.rare

    def feed(self, event: Event) -> Iterable[Event]:
        """Return what is to be written for an event."""
        rule = self.rules.get(type(event))
        return (event,) if rule is None else rule(self, event)

    def _drop(self, event: Event) -> Sequence[Event]:
        self._lost.add(_ASIDE[type(event)], event.name if isinstance(event, ev.Custom) else "")
        return ()

    # ------------------------------------------------------------------ the run

    def _run_started(self, event: ev.RunStarted) -> Sequence[Event]:
        if event.model and self._supports[Feature.MODEL] is Support.DROP:
            self._lost.add(Feature.MODEL)
            event = replace(event, model=None)
        return (event,)

    def _usage_reported(self, event: ev.UsageReported) -> Sequence[Event]:
        has_details = event.cached is not None or event.reasoning is not None or bool(event.written)
        if self._supports[Feature.USAGE] is Support.DROP:
            self._lost.add(Feature.USAGE)
            if has_details:
                self._lost.add(Feature.USAGE_DETAILS)
            return ()
        if has_details and self._supports[Feature.USAGE_DETAILS] is Support.DROP:
            self._lost.add(Feature.USAGE_DETAILS)
            event = replace(event, cached=None, reasoning=None, written=None)
        if event.written and not self._card.cache_writes:
            self._lost.add(Feature.USAGE_DETAILS, "tokens written to the cache")
            event = replace(event, written=None)
        if not self._card.totals and event.total not in (None, (event.input or 0) + (event.output or 0)):
            self._lost.add(Feature.USAGE_DETAILS, "a total that is not the sum of input and output")
        return (event,)

    def _raw(self, event: ev.Raw) -> Sequence[Event]:
        if event.dialect == self._dialect or self._supports[Feature.RAW] is Support.EXACT:
            return (event,)
        self._lost.add_raw(event)
        return ()

    # ------------------------------------------------------------------ parts

    def _part_started(self, event: ev.PartStarted) -> Sequence[Event]:
        feature = _PARTS[event.kind]
        support = self._supports[feature]
        if event.origin is not _FUNCTION and self._supports[Feature.TOOL_ORIGIN] is _DROP:
            self._lost.add(Feature.TOOL_ORIGIN)
            event = replace(event, origin=_FUNCTION)
        if support is _DROP:
            self.watched[event.part_id] = feature
            if feature is Feature.TOOL_CALL:
                self._lost.add(feature)
            return ()
        if event.kind is _CALL:
            self._noted.called.add(event.call_id)
        is_text = event.kind is _TEXT
        if event.kind is _REFUSAL and support is Support.TEXT and not is_beside(event.extras, self._dialect):
            self._lost.add(feature, _AS_TEXT)
            is_text = True
            if not self._marks_refusals:
                event = replace(event, kind=PartKind.TEXT)
        if is_text and (self._separates or not self._card.logprobs):
            self.watched[event.part_id] = event
        return (event,)

    def _piece(self, event: ev.TextDelta | ev.ReasoningDelta | ev.ArgsDelta) -> Sequence[Event]:
        noted = self.watched.get(event.part_id)
        if isinstance(noted, Feature):
            if event.text:
                self._lost.add(noted)
            return ()
        if event.text and noted is not None:
            del self.watched[event.part_id]
            if event.extras and not self._card.logprobs and logprobs_in(event.extras):
                self._lost.add(Feature.RAW, "log probabilities")
            if separator := self._before(noted.choice, noted.message_id):
                self._noted.separators[event.part_id] = len(separator)
                event = replace(event, text=separator + event.text)
        return (event,)

    def _before(self, choice: int, message_id: str) -> str:
        """Return what precedes a text of this message."""
        if not self._separates:
            return ""
        if choice in self._last:
            self._lost.add(Feature.PART_BORDERS)
        last, self._last[choice] = self._last.get(choice), message_id
        return self._card.separator if last not in (None, message_id) else ""

    def _part_ended(self, event: ev.PartEnded) -> Sequence[Event]:
        noted = self.watched.pop(event.part_id, None)
        hidden = isinstance(noted, Feature)
        if self.rare is not None:
            self.rare.separators.pop(event.part_id, None)
        is_signed = event.signature is not None or event.redacted is not None
        if is_signed and (hidden or self._supports[Feature.REASONING_SIGNATURE] is Support.DROP):
            self._lost.add(Feature.REASONING_SIGNATURE)
            event = replace(event, signature=None, redacted=None)
        elif event.redacted is not None and self._card.opaque_values != "both":
            event = self._one_value(event)
        if event.extras and not self._card.citations and annotations_in(event.extras):
            self._lost.add(Feature.RAW, "citations")
        return () if hidden else (event,)

    def _one_value(self, event: ev.PartEnded) -> ev.PartEnded:
        """Name the value that a wire with a single one does not carry."""
        if self._card.opaque_values == "signature":
            self._lost.add(Feature.REASONING_SIGNATURE)
            return replace(event, redacted=None)
        if event.signature:
            self._lost.add(Feature.REASONING_SIGNATURE, "one of two opaque values")
        return event

    def _content(self, event: ev.ContentAdded) -> Iterable[Event]:
        feature, support = answer_feature(event.part), self._content_support(event.part)
        if support is Support.EXACT and feature is Feature.AUDIO and self._card.audio_last:
            audible = self._noted.audible
            if event.choice in audible and feature not in self._keeps:
                support = self._card.other_media
            audible.add(event.choice)
        if support is not Support.EXACT:
            return self._as(support, event)
        if not self._card.file_ids and isinstance(event.part, Media) and isinstance(event.part.source, FileRef):
            self._lost.add(feature, "the file id in place of a URL")
        return (event,)

    def without_form(self, event: ev.ContentAdded) -> Iterable[Event]:
        """Return what is to be written for a medium that the encoder `keeps`, and has no form for."""
        support = self._card.answer(answer_feature(event.part))
        return self._as(self._card.other_media if support is Support.EXACT else support, event)

    def _as(self, support: Support, event: ev.ContentAdded) -> Iterable[Event]:
        if support is not Support.TEXT:
            self._lost.add(answer_feature(event.part), "dropped")
            return ()
        self._lost.add(answer_feature(event.part), _AS_TEXT)
        return self._text(event.choice, event.message_id, f"{event.message_id}-content", as_markdown(event.part))

    def _content_support(self, part: Part) -> Support:
        feature = answer_feature(part)
        support = self._supports[feature]
        if feature in self._keeps:
            return support
        if part.extras and "whole" in part.extras.get(self._dialect, ()):
            return Support.EXACT  # it has a form of its own in this dialect, where it came from
        if self._card.inline_media_only and support is Support.EXACT and isinstance(part, Media):
            return Support.EXACT if isinstance(part.source, Inline) else self._card.other_media
        return support

    def _text(self, choice: int, message_id: str, part_id: str, text: str) -> Iterator[Event]:
        """Return a text of our own in a message; nothing for an empty one."""
        if not text:
            return
        yield ev.PartStarted(part_id, message_id, PartKind.TEXT, choice=choice)
        separator = self._before(choice, message_id)
        separators = self._noted.separators
        separators[part_id] = len(separator)
        yield ev.TextDelta(part_id, separator + text)
        del separators[part_id]
        yield ev.PartEnded(part_id)

    def _hidden_result(self, event: ev.ToolResulted) -> Sequence[Event]:
        self._last = dict.fromkeys(self._last, _HIDDEN_RESULT)
        return self._drop(event)

    def _resulted(self, event: ev.ToolResulted) -> Sequence[Event]:
        self._last = dict.fromkeys(self._last)  # clients show what follows a result by itself
        return (event,)

    # ------------------------------------------------------------------ the end

    def _interrupted(self, event: ev.Interrupted) -> Sequence[Event]:
        support = self._supports[Feature.INTERRUPT]
        if support is Support.EXACT:
            return (event,)
        self._lost.add(Feature.INTERRUPT, _AS_TEXT if support is Support.TEXT else "")
        if support is Support.TEXT:
            self._noted.questions.append(event)
        return ()

    def _finished(self, event: ev.RunFinished) -> Sequence[Event]:
        feature = ENDS.get(event.reason)
        support = _EXACT if feature is None else self._supports[feature]
        if feature is not None and support is Support.REFUSE:
            self._lost.add(feature, "sent as an error")
            return (ev.RunFailed(REFUSED[event.reason], event.ended_at, event.extras),)
        if feature is not None and support is _DROP:
            self._lost.add(feature)
        if self.rare is None or event.reason is _CANCELED:
            return (event,)
        return (*self._asked(self.rare), event)

    def _asked(self, noted: _Rare) -> list[Event]:
        """Return the questions as texts, each a message of its own; one about a call is expressed by that call."""
        out: list[Event] = []
        for number, question in enumerate(noted.questions):
            name = f"interrupt {number}"
            text = interrupt_text(question)
            if text and question.call_id not in noted.called:
                part = self._text(0, name, f"{name} text", text)
                out += [ev.MessageStarted(name), *part, ev.MessageEnded(name, MessageStatus.COMPLETED)]
        return out


_Rule = Callable[[Projection, Any], Iterable[Event]]
_RULES: dict[type, _Rule] = {
    ev.RunStarted: Projection._run_started,
    ev.PartStarted: Projection._part_started,
    **dict.fromkeys((ev.TextDelta, ev.ReasoningDelta, ev.ArgsDelta), Projection._piece),
    ev.PartEnded: Projection._part_ended,
    ev.ContentAdded: Projection._content,
    ev.ToolResulted: Projection._resulted,
    ev.UsageReported: Projection._usage_reported,
    ev.Raw: Projection._raw,
    ev.Interrupted: Projection._interrupted,
    ev.RunFinished: Projection._finished,
}


@lru_cache
def _plan(
    card: Capabilities, keeps: tuple[Feature, ...]
) -> tuple[Mapping[Feature, Support], Mapping[type, _Rule], bool, bool]:
    """Return how each feature is carried, and the rules for that: those that change nothing are left out. Then whether
    a client joins texts, and whether it takes one choice only.
    """
    supports = {f: Support.EXACT if f in keeps else entry.support for f, entry in card.answers.items()}
    rules = dict(_RULES)
    for kind, feature in _ASIDE.items():
        if supports[feature] is Support.DROP:
            rules[kind] = Projection._hidden_result if kind is ev.ToolResulted else Projection._drop
    if supports[Feature.MODEL] is not Support.DROP:
        del rules[ev.RunStarted]
    if (
        Support.DROP not in (supports[Feature.USAGE], supports[Feature.USAGE_DETAILS])
        and card.cache_writes
        and card.totals
    ):
        del rules[ev.UsageReported]
    joins = supports[Feature.PART_BORDERS] is not Support.EXACT
    return supports, rules, joins, card.answer(Feature.CHOICES) is not Support.EXACT
