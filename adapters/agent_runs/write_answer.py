"""AG-UI's events with the ids of their run on each: clients of a thread distinguish its runs by them."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.contract import Context, EncoderLike, Frame, FrameLike
from bridge.dialects.agent_runs.base import AGUI, inner
from bridge.dialects.agent_runs.options import FrontOptions
from bridge.model import Event, RunStarted
from bridge.model.jsontext import dumps, loads

_TYPE = b'{"type":"'


class RunEncoder(EncoderLike):
    """One run's frames. A frame that has an id already, such as RUN_STARTED, keeps its place for it."""

    def __init__(self, context: Context) -> None:
        self._inner = AGUI.encoder(inner(context))
        self._named = FrontOptions.of(context).sse_event_name
        request = context.request
        self._thread = (request.thread_id if request else None) or context.thread_id
        self._run = (request.run_id if request else None) or context.run_id
        self._tail = b""

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        for event in events:
            if isinstance(event, RunStarted):
                self._thread = self._thread or event.thread_id or event.run_id
                break
        if not self._tail:
            self._tail = b"," + dumps({"threadId": self._thread or self._run, "runId": self._run})[1:]
        return [self._with_ids(frame) for frame in self._inner.encode(events)]

    def _with_ids(self, frame: FrameLike) -> FrameLike:
        if isinstance(frame, Frame):
            return frame
        data = frame[:-1] + self._tail
        if b'"runId":' in frame or b'"threadId":' in frame:
            data = dumps({**loads(frame), "threadId": self._thread or self._run, "runId": self._run})
        if self._named:
            start = len(_TYPE)
            return Frame(data, data[start : data.index(b'"', start)].decode())
        return data
