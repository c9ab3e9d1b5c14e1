"""One run: its request, its stream, and what the server says of it when the stream has ended.

The stream has no end mark: complete, canceled and broken ones look alike, and only the run's status tells them apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any

from bridge.contract import Context, Feature, Frame, FrameLike, Step, WireRequest, WireResponse
from bridge.dialects.langgraph.errors import canceled, run_failure
from bridge.dialects.langgraph.options import BackOptions
from bridge.dialects.langgraph.read_answer import Decoder
from bridge.dialects.langgraph.wire import BREAKPOINT, run_in
from bridge.dialects.langgraph.write_request import RunWriter, needs_state, open_in
from bridge.errors import UNKNOWN_THREAD, BackendError, ErrorCode, Failure
from bridge.model import HistoryMode, Request
from bridge.model.events import TERMINAL, Event
from bridge.model.jsontext import dict_of, read_json

_AGAIN = (0.1, 0.5, 1.0)
"""Seconds before a stream is opened again, or a run is asked for again; what comes in the meantime starts over."""
_ON = frozenset({"pending", "running"})
_FAILED = frozenset({"error", "timeout"})
_COUNTED = re.compile(r".{1,200}_event_(\d{1,18})", re.ASCII)
"""Ids of aegra, each of one event only: what its stream repeats after a join has a number that was there before."""
_NUMBERED = re.compile(r"(?:.{0,200}_event_)?(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
"""Ids of events, which grow: `1795694353190-0`, `7`, `<run>_event_7`."""
_MAYBE_GONE = frozenset({404, 422})
_FORGOTTEN = "The agent no longer has this conversation. The next message begins a new one."
_KNOWN = 10_000
"""Threads of which a backend remembers that they began."""
_LOST = "The stream of the run broke off, and could not be continued."


class _Stage(Enum):
    """The next request."""

    STATE = auto()
    RUN = auto()
    THREAD = auto()
    READ = auto()
    STATUS = auto()
    REASON = auto()
    JOIN = auto()
    VALUES = auto()
    OVER = auto()


class Calling:
    """One run. See `bridge.contract.SteppedRun` for what each method promises.

    Raises `Unsupported` for a request that cannot be expressed.
    """

    def __init__(self, request: Request, context: Context, memo: dict[str, Any]) -> None:
        self._writer = RunWriter(request, context, BackOptions.of(context))
        self._decoder = Decoder(context)
        self._thread = self._writer.thread
        self._threads: dict[str, None] = memo.setdefault("threads", {})
        # A client that sends the whole conversation loses nothing where its thread begins anew.
        is_known = request.history is not HistoryMode.FULL and self._thread in self._threads
        self._writer.must_exist = bool(self._thread) and (context.continues or is_known or bool(request.resume))
        self._run = ""
        self._first = self._writer.write() if not request.resume else None
        self._stage = _Stage.STATE if self._thread and needs_state(request) else _Stage.RUN
        if any(answer.interrupt_id == BREAKPOINT and not answer.agrees for answer in request.resume):
            self._stage = _Stage.OVER  # not to go on is not to run
        self._more = self._writer.more()
        self._lost = context.lost
        self._seam = _Seam()
        self._tries = 0
        self._joins = False
        self._rejoined = False
        self._opened = False
        self._ended = False
        self._failure: Failure | None = None

    # ------------------------------------------------------------------ asking

    def next(self) -> Step | None:
        pause = _AGAIN[min(self._tries, len(_AGAIN)) - 1] if self._tries else 0.0
        match self._stage:
            case _Stage.STATE | _Stage.VALUES:
                return Step(self._get("/state"))
            case _Stage.RUN:
                return Step(self._first or self._writer.write())
            case _Stage.STATUS:
                return Step(self._get(f"/runs/{self._run}"), pause)
            case _Stage.REASON | _Stage.THREAD:
                return Step(self._get(""))
            case _Stage.JOIN:
                self._joins = True
                wire = self._get(f"/runs/{self._run}/stream")
                headers = {"accept": "text/event-stream", "last-event-id": self._seam.cursor}
                return Step(WireRequest("GET", wire.path, headers), pause)
        return None

    def _get(self, more: str) -> WireRequest:
        return WireRequest("GET", f"/threads/{self._thread}{more}", {"accept": "application/json"})

    # ------------------------------------------------------------------ answers

    def opened(self, headers: Mapping[str, str]) -> None:
        self._opened = True
        if self._thread:
            self._threads.pop(self._thread, None)
            self._threads[self._thread] = None
            if len(self._threads) > _KNOWN:
                del self._threads[next(iter(self._threads))]
        self._run = self._run or run_in(headers)
        if self._joins:
            self._joins = False
            self._seam.joined()
            self._decoder.rejoin()
        self._stage = _Stage.READ

    def whole(self, answer: WireResponse) -> list[Event]:
        match self._stage:
            case _Stage.STATE:
                self._first = self._writer.write(open_in(read_json(answer.body)))
                self._stage = _Stage.RUN
            case _Stage.STATUS:
                return self._status(dict_of(read_json(answer.body)))
            case _Stage.THREAD:
                assert self._failure is not None
                raise BackendError.of(self._failure)  # the thread is there: it is something else that is not
            case _Stage.REASON:
                error = dict_of(read_json(answer.body)).get("error")
                return self._over(self._decoder.failed(run_failure(error)))
            case _Stage.VALUES:
                events = self._decoder.values(dict_of(read_json(answer.body)).get("values"))
                return [*events, *self._complete()]
            case _Stage.JOIN:
                self._stage = _Stage.STATUS
                return self._lost_unless(self._try_again())
            case _:
                raise BackendError("The backend's answer is not an event stream.", code=ErrorCode.BACKEND_PROTOCOL)
        return []

    def _status(self, run: dict[str, object]) -> list[Event]:
        """The stream has ended: read how the run has."""
        status = run.get("status")
        if status in _ON:
            self._stage = _Stage.JOIN
            return self._lost_unless(self._try_again())
        self._ended = True
        if status == "success" or (status == "interrupted" and self._decoder.waits):
            if self._decoder.settled or self._decoder.waits:
                return self._complete()
            # The run was complete before its stream was: what is missing is replayed, or in the thread.
            self._stage = _Stage.VALUES if self._rejoined or not self._seam.known else _Stage.JOIN
            self._rejoined = True
            return []
        if status == "interrupted":
            return self._over(self._decoder.failed(canceled()))
        if status in _FAILED:
            if error := run.get("error") or run.get("error_message"):
                return self._over(self._decoder.failed(run_failure(error)))
            self._stage = _Stage.REASON
            return []
        text = "The backend's run has no status that its protocol knows."
        return self._over(self._decoder.failed(Failure(ErrorCode.BACKEND_PROTOCOL, text)))

    def refused(self, failure: Failure) -> bool:
        status = failure.details.get("backend_status")
        match self._stage:
            case _Stage.STATE | _Stage.THREAD if status == 404:
                self._threads.pop(self._thread, None)
                failure.code, failure.message, failure.status = ErrorCode.NOT_FOUND, _FORGOTTEN, None
                failure.details[UNKNOWN_THREAD] = True
            case _Stage.STATE:
                self._stage = _Stage.RUN
                return True
            case _Stage.RUN if status == 422 and self._writer.passes:
                self._first = self._writer.write_pass()
                return True
            case _Stage.RUN if status in _MAYBE_GONE and self._writer.must_exist:
                # Servers do not say what they have not found; langgraph.js takes a thread that is gone for a busy one.
                self._failure, self._stage = failure, _Stage.THREAD
                return True
            case _Stage.THREAD:
                self._stage = _Stage.OVER
                return True
            case _Stage.STATUS if status == 404:
                # Whoever rolls a run back deletes it.
                self._ended, self._failure, self._stage = True, canceled(), _Stage.OVER
                return True
            case _Stage.STATUS | _Stage.JOIN if self._ended:
                self._joins, self._stage = False, _Stage.VALUES
                return True
            case _Stage.STATUS | _Stage.JOIN:
                self._joins = False
                if self._stage is _Stage.JOIN and status is not None:
                    self._stage = _Stage.STATUS
                if not self._try_again():
                    self._failure, self._stage = Failure(ErrorCode.TRUNCATED_STREAM, _LOST), _Stage.OVER
                return True
            case _Stage.REASON:
                self._failure, self._stage = run_failure(None), _Stage.OVER
                return True
            case _Stage.VALUES:
                # The run says that it was complete.
                self._stage = _Stage.OVER
                if self._more is not None and not self._decoder.waits:
                    self._complete()
                return True
        return False

    def _complete(self) -> list[Event]:
        """The run is complete, and so is the answer, unless more was said beside the one that the run was given."""
        more, self._more = self._more, None
        if more is None or self._decoder.waits:
            if more is not None:
                self._lost.add(Feature.RESUME, "text beside an answer, as another question followed")
            return self._over(self._decoder.complete())
        self._decoder.again()
        self._first, self._stage, self._seam, self._run = more, _Stage.RUN, _Seam(), ""
        self._tries, self._rejoined, self._ended, self._opened = 0, False, False, False
        return []

    def _try_again(self) -> bool:
        """Return whether there is another try."""
        self._tries += 1
        return self._tries <= len(_AGAIN)

    def _lost_unless(self, goes_on: bool) -> list[Event]:
        if goes_on:
            return []
        return self.close(Failure(ErrorCode.TRUNCATED_STREAM, _LOST))

    # ------------------------------------------------------------------ the stream

    def feed(self, frames: Sequence[FrameLike]) -> list[Event]:
        fresh = self._seam.fresh(frames)
        if fresh:
            self._tries = 0
        events = self._decoder.feed(fresh)
        self._run = self._run or self._decoder.run_id
        self._ended = self._ended or self._decoder.over
        return events

    def ended(self, failure: Failure | None) -> list[Event]:
        if self._decoder.over or (self._decoder.marked and not self._run and failure is None):
            return self._complete()
        if not self._thread or not self._run:
            return self._decoder.close(failure)
        self._stage = _Stage.STATUS
        if failure is not None and not self._ended and not self._decoder.marked:
            self._stage = _Stage.JOIN
            if not self._try_again():
                return self._decoder.close(Failure(ErrorCode.TRUNCATED_STREAM, _LOST))
        return []

    def close(self, failure: Failure | None = None) -> list[Event]:
        if self._stage is _Stage.OVER and failure is None:
            failure = self._failure
            if failure is None:
                return [*self._decoder.complete()]
        return self._decoder.close(failure or Failure(ErrorCode.TRUNCATED_STREAM, _LOST))

    def _over(self, events: list[Event]) -> list[Event]:
        if events and type(events[-1]) in TERMINAL:
            self._ended = True
        return events

    # ------------------------------------------------------------------ the end

    @property
    def reads_again(self) -> bool:
        return bool(self._thread and self._run) and not self._decoder.over

    @property
    def working(self) -> bool:
        # A run without a thread ends with its connection.
        return self._opened and not self._ended and bool(self._thread)

    @property
    def misses_cancels(self) -> bool:
        return False

    def cancel(self) -> WireRequest | None:
        if not self._run or not self._thread:
            return None
        query = {"wait": "1", "action": "interrupt"}
        return WireRequest("POST", f"/threads/{self._thread}/runs/{self._run}/cancel", {}, query)


class _Seam:
    """What was read of a stream, so that one that is opened again tells nothing twice.

    Several events may have one id, and those of the last id may come again, but never within one connection.
    """

    def __init__(self) -> None:
        self._last: str | None = None
        self._at_last: set[int] = set()
        self._repeats: set[int] = set()
        self._below: tuple[int, ...] | None = None
        self._joined = False
        self._count = -1

    @property
    def known(self) -> bool:
        """True if events have ids: what is missing can be read again."""
        return self._last is not None

    @property
    def cursor(self) -> str:
        """The id after which the stream is to go on: the last one, or that of all events."""
        return self._last or "-1"

    def joined(self) -> None:
        """The stream was opened again."""
        self._joined = True
        self._repeats, self._below = set(self._at_last), _order(self._last)

    def fresh(self, frames: Sequence[FrameLike]) -> list[FrameLike]:
        """Return the events that are new."""
        return [frame for frame in frames if self._is_new(frame)]

    def _is_new(self, frame: FrameLike) -> bool:
        if not isinstance(frame, Frame) or frame.id is None:
            return True
        if counted := _COUNTED.fullmatch(frame.id):
            if int(counted[1]) <= self._count:
                return False
            self._count = int(counted[1])
        same = hash((frame.id, frame.event, frame.data))
        if self._joined:
            order = _order(frame.id)
            if same in self._repeats or (
                order and self._below and len(order) == len(self._below) and order < self._below
            ):
                return False
        if frame.id != self._last:
            self._last = frame.id
            self._at_last = set()
        self._at_last.add(same)
        return True


def _order(name: str | None) -> tuple[int, ...] | None:
    """Return the place of an id among those of its stream; None if it does not say."""
    found = _NUMBERED.fullmatch(name) if name else None
    return tuple(int(number) for number in found.groups() if number is not None) if found else None
