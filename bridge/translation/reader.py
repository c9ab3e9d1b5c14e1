"""`Reader`: the events of one answer in good order, whatever the backend and the stages do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from bridge.errors import BridgeError, ErrorCode, Failure, unexpected_failure
from bridge.model import Event, RunFailed, RunFinished, RunStarted, UsageReported
from bridge.model.closing import PIECES, OpenParts
from bridge.model.events import CONTENT, TERMINAL
from bridge.translation.decoding import AnswerDecoder
from bridge.translation.stage import Stage

log = logging.getLogger("bridge.run")


class Reader:
    """Reads one answer: applies the stages and guarantees the grammar's end.

    Whatever happens (a decoder that stops early, a stage that raises or swallows the terminal event), the events end
    with exactly one terminal event, and everything that is open is closed before it.

    Attributes:
        ended: The terminal event is out.
        failure: Why the run failed, if it did.
        finish_reason: Why the run finished, if it did.
        usage: The tokens that were reported last.
        has_begun: The run has begun: the head was sent, or the backend has said something.
        has_content: Content was passed on.
        stages: The stages, in order. They are replaced when another backend continues the answer.
        observers: The stages among them that see deltas which go by.
    """

    __slots__ = (
        "_clock", "_head", "_open", "decoder", "ended", "failure", "finish_reason", "has_begun", "has_content",
        "observers", "stages", "usage",
    )  # fmt: skip

    def __init__(
        self,
        head: Callable[[], RunStarted],
        stages: Sequence[Stage] = (),
        decoder: AnswerDecoder | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`head` returns the event that begins a run whose backend says nothing; `clock`, the Unix time."""
        self._head = head
        self._open: OpenParts | None = None  # an answer in one batch leaves nothing open
        self._clock = clock
        self.stages: Sequence[Stage] = ()
        self.observers: Sequence[Stage] = ()
        if stages:
            self.pass_through(stages)
        self.decoder = decoder
        self.has_begun = False
        self.ended = False
        self.failure: Failure | None = None
        self.finish_reason: str | None = None
        self.usage: UsageReported | None = None
        self.has_content = False

    def pass_through(self, stages: Sequence[Stage]) -> None:
        """Let the events pass these stages from now on."""
        self.stages = stages
        self.observers = tuple([stage for stage in stages if stage.observes])

    def head(self) -> list[Event]:
        """Begins the run before the backend has said anything, for clients that expect a sign of life."""
        return [] if self.has_begun else self.commit([self._head()])

    def receive(self, data: bytes) -> list[Event]:
        """Decodes the next bytes of the answer. Only for a reader with a decoder."""
        assert self.decoder is not None, "this reader has no decoder: use take()"
        return self.take(self.decoder.receive(data))

    def take(self, events: list[Event]) -> list[Event]:
        """Passes on events of the backend: through the stages, then into the books."""
        return self.commit(self.apply(events) if self.stages else events)

    def apply(self, events: list[Event]) -> list[Event]:
        """Returns the events as the stages leave them; the terminal event stays, whatever they do."""
        if not self.stages:
            return events
        try:
            if PIECES.issuperset(map(type, events)):
                for stage in self.stages:
                    if not stage.passes_deltas:
                        events = stage(events)
                    elif stage in self.observers:
                        stage.passed(events)
                return events
            end = events[-1] if type(events[-1]) in TERMINAL else None
            given = None if end is None or self.has_begun else events[:]
            for stage in self.stages:
                events = stage(events)
        except Exception as error:
            if isinstance(error, BridgeError):
                return self.closing(error.failure)
            what = f"run {self._head().run_id}: a stage failed"
            return self.closing(unexpected_failure(log, what, error, "handled this run"))
        if given is not None and events == given:
            return events  # an answer in one batch, as the backend ended it
        return events if end is None else self._ended_well(events, end)

    def commit(self, events: list[Event]) -> list[Event]:
        """Notes what is about to leave, and returns it."""
        if self.ended or not events:
            return []
        if PIECES.issuperset(map(type, events)):
            return events
        if type(events[0]) is RunStarted:
            if self.has_begun:
                events = events[1:]
                if not events:
                    return events
            self.has_begun = True
        self.has_content = self.has_content or not CONTENT.isdisjoint(map(type, events))
        if type(events[-1]) in TERMINAL:
            return self._end(events)  # whatever was open is closed
        if self._open is None:
            self._open = OpenParts()
        self._open.feed(events)
        return events

    def close(self, failure: Failure | None = None) -> list[Event]:
        """Ends the input, cleanly or because of `failure`. The terminal event is out afterwards."""
        if self.ended:
            return []
        events = self.take(self.decoder.close(failure)) if self.decoder is not None else []
        if not events or type(events[-1]) not in TERMINAL:
            text = "The backend's answer ended without an end mark."
            events = events + self.fail(failure or Failure(ErrorCode.TRUNCATED_STREAM, text))
        return events

    def fail(self, failure: Failure) -> list[Event]:
        """Ends the run from this side, now."""
        return self.commit(self.closing(failure))

    def closing(self, failure: Failure) -> list[Event]:
        """Returns the events by which `fail` would end the run, without noting them."""
        if self.ended:
            return []
        head = None if self.has_begun else self._head()
        return (self._open or OpenParts()).fail(failure, head)

    def _ended_well(self, events: list[Event], end: Event) -> list[Event]:
        """The last batch as stages left it, with everything closed and the terminal event, which they may swallow."""
        index = next((n for n, event in enumerate(events) if type(event) in TERMINAL), None)
        if index is not None:
            events, end = events[:index], events[index]
        return [*events, *(self._open or OpenParts()).closers_after(events, end), end]

    def _end(self, events: list[Event]) -> list[Event]:
        """Note the end of the run; return its events, the last one with its time."""
        self.ended = True
        last = events[-1]
        assert isinstance(last, (RunFailed, RunFinished))
        if isinstance(last, RunFailed):
            self.failure = last.error
        else:
            self.finish_reason = str(last.reason)
        for event in events[-3:-1]:
            if isinstance(event, UsageReported):
                self.usage = event
        if self._clock is None or last.ended_at:
            return events
        # A codec has no clock; this is the first place that knows of the end.
        now = self._clock()
        ended = (
            RunFailed(last.error, now, last.extras)
            if isinstance(last, RunFailed)
            else RunFinished(last.reason, now, last.extras)
        )
        return [*events[:-1], ended]
