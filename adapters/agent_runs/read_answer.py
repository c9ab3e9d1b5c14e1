"""Events of a backend's stream, which is one run: the answer ends with it, although the stream may stay open."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.contract import Context, Decoder, FrameLike
from bridge.dialects.agent_runs.base import AGUI, outer
from bridge.errors import Failure
from bridge.model import Event
from bridge.model.jsontext import read_json

_ENDS = ("RUN_FINISHED", "RUN_ERROR")
_MARKS = tuple(f'"{kind}"'.encode() for kind in _ENDS)


class RunDecoder:
    """One per run. AG-UI's decoder waits for the end of the stream, as another run may follow; none does here."""

    def __init__(self, context: Context) -> None:
        self._inner: Decoder = AGUI.decoder(outer(context))
        self._over = False

    def feed(self, frames: Sequence[FrameLike]) -> list[Event]:
        if self._over:
            return []
        end = next((place for place, frame in enumerate(frames, 1) if _ends_run(frame)), None)
        events = self._inner.feed(frames[:end])
        return events if end is None else [*events, *self.close()]

    def close(self, failure: Failure | None = None) -> list[Event]:
        self._over = True
        return self._inner.close(failure)


def _ends_run(frame: FrameLike) -> bool:
    data = frame if isinstance(frame, bytes) else frame.data
    if not any(mark in data for mark in _MARKS):
        return False
    event = read_json(data)
    return isinstance(event, dict) and event.get("type") in _ENDS
