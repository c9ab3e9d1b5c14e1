"""Watchers of runs: programs that see what goes to a backend and what comes back, while a run goes on.

The page watches runs in this way. Runs that nobody watches pay one lookup for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from bridge.run.backend import Backend


@dataclass(frozen=True, slots=True)
class WatchedRequest:
    """A request that came in.

    Attributes:
        headers: Its headers; the names match in any case.
        owner: The user who sent it; empty where anybody may call.
        run_id: The id of its run.
        front: The name of the dialect in which it came.
        sent: Returns how many bytes of the answer were written to the client so far.
    """

    headers: Mapping[str, str]
    owner: str
    run_id: str
    front: str
    sent: Callable[[], int]


@dataclass(frozen=True, slots=True)
class RequestEnd:
    """How a request ended, as its log line says it.

    Attributes:
        run_id: The id of its run.
        status: The status of the run, such as `stop` or `canceled`.
        code: The code of its failure; None for a request that did not fail.
        http: The HTTP status of the response.
        backend: The name of the backend that answered or was asked last.
        lost: The features that could not be carried, each with its details, which may be empty.
    """

    run_id: str
    status: str
    code: str | None
    http: int
    backend: str
    lost: Mapping[str, str]


class RunWatch(Protocol):
    """What watches one run."""

    def watched(self, backend: Backend) -> Backend:
        """Return what the run asks in place of `backend`, such as a wrapper that records the calls."""
        ...

    def ended(self, end: RequestEnd) -> None:
        """The request has ended, and its response is written."""
        ...


class Watcher(Protocol):
    """What decides which runs are watched: register it with `Bridge.watch`."""

    def begin(self, request: WatchedRequest) -> RunWatch | None:
        """Return what watches the run of a request that came in; None if nothing does."""
        ...
