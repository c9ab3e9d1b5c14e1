"""A session as its caller: what is sent when, and when a turn is over.

A session for one request sends the request and the end at once: everything until the STOP_RESPONSE is the answer, which
is a definite end. A kept session has none, so that a finished task or silence ends the turn. Nothing is ever sent after
the STOP_QUEST: it crashes the most common agents.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.contract import Context, FrameLike
from bridge.contract.optional.sessions import ClientTools
from bridge.dialects.aip.exposed import exposed
from bridge.dialects.aip.options import BackOptions
from bridge.dialects.aip.read_answer import Decoder
from bridge.dialects.aip.wire import SessionStatus
from bridge.dialects.aip.write_request import CALL_AGENT, ROUTE_AGENT, quest, stop_quest
from bridge.errors import Failure
from bridge.model import Event, Request, ToolCall


class Caller:
    """See `bridge.contract.optional.sessions.CallerSession`."""

    def __init__(self, context: Context) -> None:
        options = BackOptions.of(context)
        self.path = CALL_AGENT if options.direct else ROUTE_AGENT
        self.over = False
        self._options = options
        self._session_id = context.make_id("agent_session")
        self._context = context
        self._decoder = Decoder(context)
        self._started = self._stopped = False
        self._last: float | None = None

    def ask(self, request: Request, context: Context) -> list[bytes]:
        status = SessionStatus.HOLD_QUEST if self._started else SessionStatus.START_QUEST
        body = quest(request, context, self._session_id, status)
        self._context, self._decoder, self._last = context, Decoder(context), None
        self._started = True
        if self._options.session == "keep" and context.thread_id:
            self._decoder.asked_to_stop = False
            return [body]
        self._decoder.asked_to_stop = True
        return [body, *self.stop()]

    def feed(self, frames: Sequence[FrameLike], now: float) -> list[Event]:
        decoder = self._decoder
        events = decoder.feed(frames)
        self.over = self.over or decoder.over
        self._last = now
        if self._stopped or decoder.done:
            return events
        if decoder.heard and (self._options.turn_end == "first" or self._finishes):
            events += decoder.end_turn()
        return events

    @property
    def _finishes(self) -> bool:
        return self._options.turn_end == "finish" and self._decoder.finished

    @property
    def due(self) -> float | None:
        """Silence ends a turn once it has content."""
        waits = self._decoder.heard and not self._decoder.done and not self._stopped
        return self._last + self._options.turn_idle if waits and self._last is not None else None

    def wake(self, now: float) -> list[Event]:
        due = self.due
        return self._decoder.end_turn() if due is not None and now >= due else []

    def stop(self) -> list[bytes]:
        if self._stopped or self.over or not self._started:
            return []
        self._stopped = True
        return [stop_quest(self._context, self._session_id)]

    def tools(self, request: Request, context: Context) -> ClientTools | None:
        return exposed(request, context, self._session_id)

    def called(self, calls: Sequence[ToolCall]) -> list[Event]:
        return self._decoder.called(calls)

    def resume(self, context: Context) -> None:
        before = self._decoder
        self._context, self._decoder, self._last = context, Decoder(context), None
        self._decoder.asked_to_stop = self._stopped
        self._decoder.answered = before.answered or before.heard

    def close(self, failure: Failure | None) -> list[Event]:
        return self._decoder.close(failure)
