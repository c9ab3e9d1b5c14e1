"""The optional contract of dialects whose runs are tasks: clients read, list, watch, continue and cancel them by id.

A task is a chain of runs: the first one has the task's id, and each answer to a question of the agent adds one. On a
durable route the server stores the chain; on others a task ends with its answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bridge.contract.context import Context
from bridge.contract.dialect import Dialect, EncoderLike
from bridge.contract.optional.described import DescribedAgent
from bridge.contract.optional.tasks import TaskStatus
from bridge.contract.surface import Operation
from bridge.contract.wire import FrameLike, WireRequest, WireResponse
from bridge.errors import RequestError
from bridge.model.events import Event, RunFailed, RunFinished
from bridge.model.request import Request


class PushAction(StrEnum):
    """An operation on the push targets of a task."""

    SET = "set"
    GET = "get"
    LIST = "list"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class PushTarget:
    """A URL to which the events of a task are sent, as the client named it.

    `version` is the version of the protocol of what is sent. `place` is where the request names the URL. Of the run
    `run`, the entries of its log before `position` are not sent: they are older than the target.
    """

    id: str
    url: str
    version: str = ""
    token: str = field(default="", repr=False)
    scheme: str = ""
    credentials: str = field(default="", repr=False)
    place: str = ""
    run: str = ""
    position: int = 0


@dataclass(frozen=True, slots=True)
class PushCall:
    """An operation on the push targets of a task: `SET` has a `target`, `GET` and `DELETE` its id.

    An empty id is that of the task.
    """

    action: PushAction
    target: PushTarget | None = None
    target_id: str = ""


@dataclass(frozen=True, slots=True)
class TaskCall:
    """The operation that a request asks for.

    `operation` is `RUN` for a message, `RETRIEVE`, `ITEMS` (list), `SUBSCRIBE`, `CANCEL`, or `DESCRIBE` for what only
    known callers may read of the agent. A message with a `task_id` continues that task; with `at_once` its client does
    not wait for the answer. `thread_id` is the only thread whose tasks are listed. `sent` is what the dialect itself
    wants to know of the request when it answers it. `push` makes it a call for the push targets of a task, with the
    operation whose permission it needs; `push_target` comes with a message.
    """

    operation: Operation
    task_id: str | None = None
    thread_id: str | None = None
    at_once: bool = False
    sent: Any = None
    push: PushCall | None = None
    push_target: PushTarget | None = None


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """One task in a list. `changed_at` is in Unix seconds; `end` is how its last run ended, None while it is running.

    `events` is the whole run if it ended neither plainly nor by a failure.
    """

    task_id: str
    changed_at: float
    end: RunFinished | RunFailed | None
    queued: bool = False
    events: Sequence[Event] = ()


@dataclass(frozen=True, slots=True)
class TaskPage:
    """One page of a list. `total` is the number of tasks on all pages; `more`: there is a next one."""

    tasks: Sequence[TaskSummary]
    total: int
    more: bool


class AgentTasksDialect(Dialect):
    """A dialect whose `RUN` endpoints also take the other operations of a `TaskCall`, as do those for `TASKS`."""

    def decode_call(self, wire: WireRequest, context: Context) -> TaskCall:
        """Decode a request. Raises `RequestError`.

        It always puts into `context.error_details` what the format of errors depends on.
        """
        raise NotImplementedError

    def continues(self, request: Request, runs: Sequence[TaskStatus]) -> Request:
        """Return the request as the next run of the task with these runs; one without content only ends the task.

        Raises `RequestError` if the task accepts no message now, or none of this thread.
        """
        raise NotImplementedError

    def encode_task_now(self, call: TaskCall, runs: Sequence[TaskStatus]) -> WireResponse:
        """Return the response with a task as it is now."""
        raise NotImplementedError

    def not_cancelable(self, task_id: str) -> RequestError:
        """Return the error for a call to cancel a task that has ended."""
        raise NotImplementedError

    def lists(self, call: TaskCall, tasks: Sequence[TaskSummary]) -> TaskPage:
        """Return those of an owner's tasks that are on the requested page.

        Raises `RequestError` for an invalid page.
        """
        raise NotImplementedError

    def encode_task_list(self, call: TaskCall, page: TaskPage, tasks: Sequence[Sequence[TaskStatus]]) -> WireResponse:
        """Return the response with one page of the list; `tasks` are the runs of each task on it."""
        raise NotImplementedError

    def encode_own_description(self, call: TaskCall, agent: DescribedAgent) -> WireResponse:
        """Return the response that describes the agent to an authenticated caller."""
        raise NotImplementedError

    def watch(self, call: TaskCall, runs: Sequence[TaskStatus]) -> tuple[list[FrameLike], EncoderLike]:
        """Return the task as it is now, as frames, and the encoder of what follows in its last run.

        Raises `RequestError` for a task that has ended.
        """
        raise NotImplementedError

    # ------------------------------------------------------------- push notifications

    def push_hosts(self, options: object) -> Sequence[str]:
        """Return the hosts to which a route may send push notifications; none disables them."""
        return ()

    def no_push(self) -> RequestError:
        """Return the error for calls about push notifications if they are not supported."""
        raise NotImplementedError

    def encode_push_targets(self, call: TaskCall, targets: Sequence[PushTarget]) -> WireResponse:
        """Return the response to a call about push targets: the one that was set or found, all, or none."""
        raise NotImplementedError

    def push_headers(self, target: PushTarget) -> dict[str, str]:
        """Return the headers of each notification."""
        raise NotImplementedError

    def push_encoder(self, context: Context, target: PushTarget) -> EncoderLike:
        """Return what writes one run for this target: each frame is the body of a notification."""
        raise NotImplementedError
