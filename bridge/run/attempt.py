"""`BackendAttempt`: what a run needs to ask one backend, and the stages that the answer passes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from bridge.contract import Capabilities, Feature, Losses
from bridge.errors import UNKNOWN_THREAD, Failure
from bridge.model import Event, Folder, Request, RunStarted
from bridge.model.fold import Answer
from bridge.run.amendments import MOST_TRIES, Amendment, amended_request, is_same_refusal, rows_for
from bridge.run.attached import LinkedMedia
from bridge.run.backend import Backend, Call, CallInfo, KnownAnswer
from bridge.run.continuation import ContinuedText
from bridge.run.conversation.turns import Turn
from bridge.translation.policies.stages import StageContext, StageFactory, prepare
from bridge.translation.requirements import required
from bridge.translation.stage import Stage, as_stage
from bridge.translation.survey import Survey

log = logging.getLogger("bridge.run")

_SENT_WHOLE = "the backend had lost the conversation, and got all its messages again"


class BackendAttempt:
    """One backend's side of a run. A run has one at a time.

    Attributes:
        call: The current try.
        turn: Keeps the conversation when the run has ended; None where nothing is kept.
        stages: What the events of this backend pass on their way to the client.
    """

    __slots__ = (
        "_amended", "_asked_for", "_recorder", "_shown", "_survey", "_unproved", "_untouched", "_vain", "backend",
        "call", "info", "linked", "lost", "request", "stages", "turn",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        backend: Backend,
        front: Capabilities,
        info: CallInfo,
        *,
        options: object = None,
        stages: Sequence[StageFactory] = (),
        lost: Losses | None = None,
        untouched: bool = False,
        turn: Turn | None = None,
        continued: str = "",
        linked: LinkedMedia | None = None,
    ) -> None:
        """`untouched`: no stage may change the stream (passthrough). `continued` is the text of another backend's
        answer that this one is asked to continue. `linked` replaces media that the client's
        dialect cannot carry by links.

        Raises `Unsupported` for a request that the backend's dialect cannot express.
        """
        self.lost = lost if lost is not None else Losses()
        self.backend = backend
        self.info = info
        self._untouched = untouched
        self._survey: Survey | None = None
        self._asked_for = request.model
        passed: list[Stage] = []
        if continued:
            passed.append(as_stage(ContinuedText(continued)))
        configured: list[Stage] = []
        if not untouched:
            prepared = prepare(stages, StageContext(request, front, backend.capabilities, options, self.lost))
            request, self._survey, configured = prepared.request, prepared.survey, prepared.stages
            passed += prepared.first
            if backend.remembered.models:
                info.amendments = backend.remembered.rows(info.owner, backend.model_for(self._asked_for))
        self.request = request
        self._amended = 0
        self._unproved: list[tuple[Amendment, Failure]] | None = None
        self._vain: list[Amendment] | None = None
        self.turn = turn
        self.linked = linked
        self._recorder = _AnswerRecorder(turn.for_client) if turn is not None else None
        # What the client is shown is what it sends back.
        self._shown = _AnswerRecorder() if turn is not None and turn.finds_by_digest and configured else self._recorder
        if self._recorder is not None:
            # Before the configured stages: a conversation holds what the backend said, not what this client is shown.
            passed.append(self._recorder)
        if info.shown_thread is not None:
            # Behind the conversation, which keeps the name that the backend may have given it.
            passed.append(_ShowThread(info.shown_thread))
        passed += configured
        if self._shown is not None and self._shown is not self._recorder:
            passed.append(self._shown)
        self.stages: Sequence[Stage] = passed
        self.call: Call = (
            KnownAnswer(info, [self.head(), *turn.reply])
            if turn is not None and turn.reply is not None
            else self._next_call()
        )

    @property
    def asks_nobody(self) -> bool:
        """The answer is known without the backend."""
        return self.turn is not None and self.turn.reply is not None

    def head(self) -> RunStarted:
        """The beginning of a run of which the backend has said nothing."""
        info = self.info
        return RunStarted(info.run_id, info.shown_thread or info.thread_id, None, info.created_at)

    def _next_call(self) -> Call:
        request = self.request
        if not self._untouched:
            request = required(request, self.backend.demands, self.lost, self._survey)
        call = self.backend.call(request, self.info, self.lost)
        if self.turn is not None and self.turn.keeps_thread:
            self.lost.discard(Feature.THREAD_ID)
        return call

    async def again(self) -> None:
        """Closes the call and makes the next one."""
        await self.call.close()
        self.call = self._next_call()

    def recorded(self) -> tuple[Answer, Answer] | None:
        """Hands out what the backend has said and what the client was shown, once; None where nothing is kept, or it
        was handed out before.
        """
        recorder, shown, self._recorder, self._shown = self._recorder, self._shown, None, None
        if self.turn is not None and self.call.sent is not None:
            self.turn.sent_in = self.call.context.thread_id
        return (recorder.answer, shown.answer) if recorder is not None and shown is not None else None

    async def amended(self, failure: Failure) -> bool:
        """Make the next call with an amended request, if the backend refused the last one for what can be changed."""
        if self._untouched or self.info.raw_body is not None or self.asks_nobody or self._amended >= MOST_TRIES:
            return False
        request = amended_request(self.request, failure, self.lost)
        if request is not None:
            self._amended += 1
            self.request = request
            await self.again()
            return True
        self._take_back(failure)
        for row in rows_for(failure, (*self.info.amendments, *(self._vain or ()))):
            call = await self._call_with(row)
            if call is not None:
                self._amended += 1
                self._unproved = self._unproved or []
                self._unproved.append((row, failure))
                log.info("run %s: backend %s is asked once more: %s", self.info.run_id, self.backend.name, row.what)
                await self.call.close()
                self.call = call
                return True
        return False

    def _take_back(self, failure: Failure) -> None:
        """Take back the last amendment if the request was refused for the same again.

        A refusal may repeat words of the client, who could have rows remembered by it that no request needs.
        """
        if self._unproved and is_same_refusal(self._unproved[-1][1], failure):
            row, _ = self._unproved.pop()
            self._vain = self._vain or []
            self._vain.append(row)
            self.info.amendments = tuple(each for each in self.info.amendments if each is not row)

    def answered(self) -> None:
        """Note that the backend took the request: what it was amended by is what its model needs."""
        for row, failure in self._unproved or ():
            if row.lasts:
                self.backend.remembered.add(self.info.owner, self.backend.model_for(self._asked_for), row, failure)
        self._unproved = self._survey = None  # there is no further call

    async def _call_with(self, row: Amendment) -> Call | None:
        """Return the next call with one more amendment; None if that changes nothing of the request."""
        known, amended = self.info.amendments, list[Amendment]()
        self.info.amendments, self.info.amended = (*known, row), amended
        call = self._next_call()
        if row in amended:
            return call
        await call.close()
        self.info.amendments = known
        return None

    async def in_new_thread(self, failure: Failure) -> bool:
        """Make the next call with the whole conversation, if the backend no longer has it. That is logged, and a loss:
        the backend has forgotten what it kept beside the messages.
        """
        request = self.turn.fresh_request() if self.turn is not None and failure.details.get(UNKNOWN_THREAD) else None
        if request is None:
            return False
        self.request = self.request.copy()
        self.request.messages, self.request.resume = request.messages, request.resume
        self._survey = None
        self.info.continues = False
        if request.thread_id is None:
            self.request.thread_id = self.info.thread_id = None
        await self.again()
        self.lost.add(Feature.THREAD_ID, _SENT_WHOLE)
        log.warning("run %s: backend %s: %s", self.info.run_id, self.backend.name, _SENT_WHOLE)
        return True

    async def abandon(self) -> None:
        """Closes the call and keeps nothing of what happened here."""
        await self.call.close()
        turn, self.turn, self._recorder, self._shown = self.turn, None, None, None
        if turn is not None:
            await turn.close()


NextAttempt = Callable[[str], Awaitable[BackendAttempt]]
"""Prepares the attempt at another backend, which is to continue this text; "" = nothing of an answer was passed on.

Raises `BridgeError`.
"""


class _ShowThread(Stage):
    """Names the thread as the client knows it, where the backend knows it by another name."""

    passes_deltas = True

    def __init__(self, thread_id: str) -> None:
        self._thread_id = thread_id

    def __call__(self, events: list[Event]) -> list[Event]:
        if events and isinstance(events[0], RunStarted):
            return [replace(events[0], thread_id=self._thread_id), *events[1:]]
        return events


class _AnswerRecorder(Stage):
    """Keeps what passes here, for the conversation, after `for_client` has changed it."""

    passes_deltas = True

    def __init__(self, amend: Callable[[list[Event], Answer], list[Event]] | None = None) -> None:
        self._amend = amend
        self._folder = Folder()

    @property
    def answer(self) -> Answer:
        """Return the answer so far; open parts count as cut off."""
        self._folder.cut()
        return self._folder.answer

    def __call__(self, events: list[Event]) -> list[Event]:
        if self._amend is not None:
            events = self._amend(events, self._folder.answer)
        self._folder.feed(events)
        return events

    def passed(self, deltas: list[Event]) -> None:
        self._folder.feed(deltas)
