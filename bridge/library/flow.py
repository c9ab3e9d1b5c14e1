"""The way of an answer through a translation: bytes -> events -> stages -> frames -> bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bridge import framing
from bridge.codec import Context, Dialect, Encoder
from bridge.errors import BridgeError, ErrorCode, Failure
from bridge.library.reading import Reading
from bridge.model import Event, Heartbeat, RunFailed, RunStarted
from bridge.model.events import TERMINAL
from bridge.pipeline.stages import Stage


class Flow:
    """One run between two dialects, once it is settled who is who."""

    def __init__(
        self, back: Dialect, back_context: Context, front: Dialect, front_context: Context, stages: Sequence[Stage]
    ) -> None:
        self.back_context = back_context
        self.front_context = front_context
        self._back = back
        self._front = front
        self._stages = stages
        self._reading: Reading | None = None
        self._encoder: Encoder | None = None
        self._headed = False
        self._over = False

    @property
    def begun(self) -> bool:
        """Whether any of the answer was read or written."""
        return self._reading is not None or self._encoder is not None

    def whole(self, data: bytes, headers: Mapping[str, str]) -> bytes:
        """An answer that is all there, in one piece. Raises the fitting `BridgeError` when it is a failure."""
        reading = self._reading = Reading(self._back, self.back_context, headers)
        events = self._staged(reading.feed(data) + reading.close())
        if events and isinstance(events[-1], RunFailed):
            raise BridgeError.of(events[-1].error)
        answer = self._front.assemble(events, self.front_context)
        if answer.status >= 400:
            # A finish that the client's dialect has no word for, such as canceled, is an error there.
            raise BridgeError.of(self._front.decode_error(answer))
        return answer.body

    def head(self) -> bytes:
        context = self.front_context
        if self._headed or self._over:
            return b""
        return self._write([RunStarted(context.run_id, context.thread_id, context.model, context.created_at)])

    def feed(self, data: bytes) -> bytes:
        return self._write(self._staged(self._read().feed(data)))

    def close(self, failure: Failure | None) -> bytes:
        return self._write(self._staged(self._read().close(failure)))

    def heartbeat(self) -> bytes:
        return b"" if self._over else self._write([Heartbeat()])

    def _read(self) -> Reading:
        if self._reading is None:
            self._reading = Reading(self._back, self.back_context)
        return self._reading

    def _staged(self, events: list[Event]) -> list[Event]:
        for stage in self._stages:
            events = stage(events)
        return events

    def _write(self, events: list[Event]) -> bytes:
        if not events or self._over:
            return b""
        if self._encoder is None:
            self._encoder = self._front.encoder(self.front_context)
        if isinstance(events[0], RunStarted):
            # The head may have been sent before the backend said anything.
            events = events[1:] if self._headed else events
            self._headed = True
        frames = self._encoder.encode(events)
        if events and type(events[-1]) in TERMINAL:
            self._over = True
            frames = [*frames, *self._encoder.close()]
        return framing.of(self._front.framing).join(frames)


def failure_of(reason: BaseException | Failure, *, begun: bool) -> Failure:
    """Why there is no answer, or no more of one, in our words.

    What a library's exception says may name addresses, and stays here. `begun`: part of the answer had come.
    """
    match reason:
        case Failure():
            return reason
        case BridgeError():
            return reason.failure
        case TimeoutError():
            return Failure(ErrorCode.BACKEND_TIMEOUT, "The backend fell silent.")
    if begun:
        text = "The connection to the backend broke in the middle of its answer."
        return Failure(ErrorCode.TRUNCATED_STREAM, text)
    return Failure(ErrorCode.BACKEND_UNAVAILABLE, "The backend is not available: the connection failed.")
