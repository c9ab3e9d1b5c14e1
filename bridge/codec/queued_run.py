"""The requests of a run at a backend that queues it.

The requests, and the meaning of their responses, are a state machine without I/O; a transport sends them, waits between
them and reads the events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bridge.codec.wire import FrameLike, WireRequest, WireResponse


class QueuedRun(Protocol):
    """One run: `uploads` are sent, then `start`; its events are read by `subscribe`, as often as they break off."""

    @property
    def uploads(self) -> Sequence[WireRequest]:
        """The requests that must succeed before the run is started."""
        ...

    @property
    def waits(self) -> Sequence[float]:
        """Seconds before each further try to read on; anew with each event. After the last one it is given up."""
        ...

    def start(self, run_id: str, uploaded: Sequence[WireResponse]) -> WireRequest:
        """Queues the run, given the answers to `uploads`; comes first, and sent twice it still is one run.

        `run_id` is what the backend shall call it: new with each try. Raises `BackendError` for an answer that is none.
        """
        ...

    def subscribe(self) -> WireRequest | None:
        """Asks for the events behind those that came; None when they do not say how to go on from them."""
        ...

    def fresh(self, frames: Sequence[FrameLike]) -> list[FrameLike]:
        """Which of these complete frames belong to this run and did not come before. Never raises on wire data."""
        ...

    def cancel(self) -> WireRequest:
        """Asks for the end of the run."""
        ...
