"""The optional contract of dialects whose clients submit a run as a task and poll its state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from bridge.contract.context import Context
from bridge.contract.dialect import Dialect
from bridge.contract.wire import WireRequest, WireResponse
from bridge.model.events import Event
from bridge.model.request import Request


class TaskState(StrEnum):
    """The state of a task. It has ended regardless of its outcome."""

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """A run to queue. `limit`: seconds after which it fails; None = only the backend's timeouts apply."""

    request: Request
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The state of a task. `since`: submitted, in Unix seconds; `events`: the whole run, once it has ended."""

    state: TaskState
    since: float
    context: Context
    events: Sequence[Event] = ()


class TaskDialect(Dialect):
    """A dialect whose surface has `START` and `STATUS`, the latter with the piece `{task_id}` in its path."""

    def decode_task(self, wire: WireRequest, context: Context) -> TaskRequest:
        """Raises `RequestError`."""
        return TaskRequest(self.decode_request(wire, context))

    def encode_submitted(self, task_id: str) -> WireResponse:
        """Return the response for an accepted task."""
        raise NotImplementedError

    def encode_task(self, task_id: str, seen: TaskStatus | None) -> WireResponse:
        """Return the response with a task's state; None: it does not exist, has expired, or belongs to another user."""
        raise NotImplementedError
