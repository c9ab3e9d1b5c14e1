"""The optional contract of dialects whose backends take several requests for one run, each depending on the answers
before it.

A `SteppedRun` is a state machine without I/O; a transport sends its requests, waits before them, and hands it what
came. `QueuedRun` is the other contract with several requests: of a run whose events can be read again and again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bridge.contract.context import Context
from bridge.contract.dialect import Dialect
from bridge.contract.wire import FrameLike, WireRequest, WireResponse
from bridge.errors import Failure
from bridge.model.events import Event
from bridge.model.request import Request


@dataclass(frozen=True, slots=True)
class Step:
    """One request of a run, `after` so many seconds; beside an open stream, after it was silent for so long.

    With `most`, its answer is a document of at most that many bytes: an event stream is not opened, and passed on as an
    answer without a body.
    """

    wire: WireRequest
    after: float = 0.0
    most: int | None = None


class SteppedRun(Protocol):
    """One run, from its first request to its last event.

    An answer that is an event stream is read while it arrives; any other is passed on whole.
    """

    def next(self) -> Step | None:
        """The next request: at the beginning, after each whole answer, before each read of a stream and when it ended.

        None while a stream is open: continue reading. None otherwise: no request follows, and the run ends.
        """
        ...

    def whole(self, answer: WireResponse) -> list[Event]:
        """The events of an answer in one piece with a status below 300. Raises `BackendError` to end the run."""
        ...

    def refused(self, failure: Failure) -> bool:
        """Handle the failure of the last request. Return whether the run continues with the request of `next`."""
        ...

    def opened(self, headers: Mapping[str, str]) -> None:
        """An answer is an event stream; its head has these headers, by lower-case names."""
        ...

    def feed(self, frames: Sequence[FrameLike]) -> list[Event]:
        """The events of these frames of the open stream. Never raises on wire data."""
        ...

    def ended(self, failure: Failure | None) -> list[Event]:
        """The stream has ended, or broke because of `failure`."""
        ...

    def close(self, failure: Failure | None = None) -> list[Event]:
        """Return the remaining events, the terminal one at the latest; no further request follows but `cancel`."""
        ...

    def cancel(self) -> WireRequest | None:
        """Return the last request: it ends the run at the backend, or deletes what was created for it.

        None where there is nothing to end, or it has no name yet.
        """
        ...

    @property
    def reads_again(self) -> bool:
        """True if what the end of a stream cuts is asked for again: an event without its blank line is then not passed
        on.
        """
        ...

    @property
    def working(self) -> bool:
        """True if the backend may be working on the run, or stores data that was created only for it."""
        ...

    @property
    def misses_cancels(self) -> bool:
        """True if the backend may accept `cancel` and still continue: the request is repeated until `working` is False,
        which the rest of the stream may show, or the stream ends.
        """
        ...


class SteppedRunDialect(Dialect):
    """A dialect with such backends. `encode_request` returns the request with the messages."""

    def stepped(self, request: Request, context: Context, memo: dict[str, Any]) -> SteppedRun:
        """Return the run of a request. Raises `Unsupported` as `encode_request` does.

        `memo` belongs to the backend: its runs share data there, such as a description of the backend.
        """
        raise NotImplementedError
