"""Calling agents: the requests of a run in their order, and answers in one piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any

from bridge.contract import Context, FrameLike, Step, WireRequest, WireResponse
from bridge.dialects.a2a import read_errors
from bridge.dialects.a2a.card import (
    LARGEST,
    Card,
    Interface,
    assumed,
    chosen,
    question,
    read_card,
    remember,
    remembered,
)
from bridge.dialects.a2a.options import BackOptions
from bridge.dialects.a2a.read_answer import A2ADecoder
from bridge.dialects.a2a.wire import OVER, WAITING, Version
from bridge.dialects.a2a.write_request import Sender
from bridge.errors import UNKNOWN_THREAD, BackendError, ErrorCode, Failure
from bridge.model import Event, Request
from bridge.model.jsontext import read_json
from bridge.toolkit.errors import error_in

_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.5, 5.0, 1.6
"""Seconds between two questions for the state of a task."""
_MOST_REFUSALS = 3
"""Questions for the state of a task that may fail one after another."""
_NO_CARD = frozenset({404, 405, 501})


def encode_request(request: Request, context: Context) -> WireRequest:
    """The request with the message, for an agent of which nothing is known but the options."""
    interface = assumed(BackOptions.of(context), 0.0).interfaces[0]
    return Sender(request, context).send(interface, stream=request.stream)


def parse_response(wire: WireResponse, context: Context) -> list[Event]:
    """The events of a message, or of a task that is over or waits."""
    decoder = A2ADecoder(context)
    events, failure = _whole(decoder, wire)
    return events + decoder.close(failure)


def decode_error(wire: WireResponse) -> Failure:
    return read_errors.ERRORS.decode(wire)


def _whole(decoder: A2ADecoder, wire: WireResponse) -> tuple[list[Event], Failure | None]:
    """Return the events of a whole answer; an invalid one is a failure."""
    value = read_json(wire.body)
    if isinstance(value, dict):
        return decoder.answer(value), None
    return [], Failure(ErrorCode.BACKEND_PROTOCOL, "The agent's answer is neither an event stream nor a JSON object.")


class _Asked(Enum):
    """What the last request was."""

    CARD = auto()
    MESSAGE = auto()
    TASK = auto()


class Calling:
    """One run: the card unless it is known, the message, and, where the answer leaves the task open, its state."""

    def __init__(self, request: Request, context: Context, memo: dict[str, Any]) -> None:
        self._sender = Sender(request, context)
        self._context = context
        self._options = BackOptions.of(context)
        self._memo = memo
        self._card: Card | None = None
        self._interface: Interface | None = None
        self._decoder = self._new_decoder()
        self._asked: _Asked | None = None
        self._to_send = True
        self._open = False
        self._sent = False
        self._pause = 0.0
        self._refusals = 0
        self._gave_up = False

    def _new_decoder(self) -> A2ADecoder:
        return A2ADecoder(self._context, self._interface)

    # ------------------------------------------------------------------ asking

    def next(self) -> Step | None:
        if self._interface is None and not self._find_interface():
            self._asked = _Asked.CARD
            return Step(question(remembered(self._memo)), most=LARGEST)
        if self._to_send:
            assert self._interface is not None
            assert self._card is not None
            self._to_send, self._sent, self._asked = False, True, _Asked.MESSAGE
            self._decoder = self._new_decoder()
            # Also for a client that does not stream: a stream reveals the task's id at once, which is needed to cancel
            # it.
            self._open = self._card.streaming
            return Step(self._sender.send(self._interface, stream=self._open))
        if self._open or self._gave_up or not self._decoder.waits_for_task:
            return None
        assert self._interface is not None
        self._asked = _Asked.TASK
        pause, self._pause = self._pause, min(max(self._pause * _GROWTH, _FIRST_PAUSE), _LONGEST_PAUSE)
        return Step(self._sender.get(self._interface, self._decoder.task_id), pause)

    def _find_interface(self) -> bool:
        """Return whether it is known how the agent is called."""
        card = remembered(self._memo)
        now = self._context.created_at
        if self._options.card == "none":
            card = assumed(self._options, now)
        elif card is None or card.fresh_until < now:
            return False
        self._use(card)
        return True

    def _use(self, card: Card) -> None:
        self._card, self._interface = card, chosen(card, self._options)

    # ------------------------------------------------------------------ answers

    def whole(self, answer: WireResponse) -> list[Event]:
        if self._asked is _Asked.CARD:
            card = read_card(answer, remembered(self._memo), self._context.created_at)
            remember(self._memo, card)
            self._use(card)
            return []
        self._open = False
        value = read_json(answer.body)
        error = error_in(value)
        if error is not None:
            failure = read_errors.ERRORS.failure(error)
            if self.refused(failure):
                return []
            raise BackendError.of(failure)
        events, wrong = _whole(self._decoder, answer)
        if wrong is not None:
            raise BackendError.of(wrong)
        self._refusals = 0
        self._pause = self._pause or _FIRST_PAUSE
        return events

    def refused(self, failure: Failure) -> bool:
        self._open = False
        match self._asked:
            case _Asked.CARD:
                return self._without_card(failure)
            case _Asked.MESSAGE:
                return self._otherwise(failure)
        # The state of the task is polled a few times, then it counts as lost.
        self._refusals += 1
        self._pause = max(self._pause, _FIRST_PAUSE)
        lost = failure.backend_code == read_errors.UNKNOWN_TASK
        self._gave_up = lost or self._refusals >= _MOST_REFUSALS
        return True

    def _without_card(self, failure: Failure) -> bool:
        """An agent without a card is called at the backend's URL."""
        if failure.details.get("backend_status") not in _NO_CARD:
            failure.message = f"The agent card could not be read: {failure.message}"
            return False
        card = assumed(self._options, self._context.created_at)
        remember(self._memo, card)
        self._use(card)
        return True

    def _otherwise(self, failure: Failure) -> bool:
        """The message was refused; return whether it is sent again in another form."""
        self._sent = False
        code, sender = failure.backend_code, self._sender
        if sender.task_id and code in (read_errors.UNKNOWN_TASK, read_errors.UNSUPPORTED):
            sender.task_id, self._to_send = "", True
            return True
        if code == read_errors.OTHER_VERSION and self._has_old():
            assert self._card is not None
            self._interface, self._to_send = chosen(self._card, self._options, old=True), True
            return True
        if (
            sender.context_id
            and code in (read_errors.UNKNOWN_TASK, read_errors.PARAMS)
            and "context" in failure.message.lower()
        ):
            failure.details[UNKNOWN_THREAD] = True
        return False

    def _has_old(self) -> bool:
        """Return whether the agent offers 0.3, and was not called so."""
        card, used = self._card, self._interface
        if card is None or used is None or used.version is Version.OLD or self._options.version is not None:
            return False
        return any(each.version is Version.OLD for each in card.interfaces)

    # ------------------------------------------------------------------ the stream

    def opened(self, headers: Mapping[str, str]) -> None:
        """The head of a stream says nothing that its events do not."""

    def feed(self, frames: Sequence[FrameLike]) -> list[Event]:
        return self._decoder.feed(frames)

    def ended(self, failure: Failure | None) -> list[Event]:
        """A stream that left its task open: the task's state decides."""
        self._open = False
        if self._decoder.waits_for_task:
            return []
        return self._decoder.close(failure)

    def close(self, failure: Failure | None = None) -> list[Event]:
        events = self._decoder.close(failure)
        if not self._decoder.task_id:
            # What still comes may name the task, which then is cancelled.
            self._decoder = self._new_decoder()
        return events

    # ------------------------------------------------------------------ the end

    @property
    def reads_again(self) -> bool:
        return self._decoder.waits_for_task

    @property
    def working(self) -> bool:
        state = self._decoder.state
        return self._sent and not (self._decoder.spoken or state in OVER or state in WAITING)

    @property
    def misses_cancels(self) -> bool:
        return False

    def cancel(self) -> WireRequest | None:
        if not (self.working and self._decoder.task_id and self._interface is not None):
            return None
        try:
            return self._sender.cancel(self._interface, self._decoder.task_id)
        except BackendError:  # no address can hold this id
            return None
