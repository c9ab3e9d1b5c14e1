"""`WaitingTasks`: tasks of routes that store no runs, kept in this process while they wait for an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bridge.contract import Context, TaskState, TaskStatus
from bridge.model import Event, FinishReason, RunFinished

WAITING_ENDS = frozenset({FinishReason.INTERRUPTED, FinishReason.TOOL_CALLS})
"""Ends of a run after which its task may wait."""
_MOST = 1000
_MOST_BYTES = 64 * 1024 * 1024

Key = tuple[str, str, str]
"""Owner, path of the route, id of the task."""


@dataclass(slots=True)
class _Task:
    runs: list[TaskStatus]
    size: int
    answered: bool = False


class WaitingTasks:
    """The tasks that ask something, each with all of its runs. A restart forgets them, as does another process.

    Beyond 1000 tasks, or 64 MiB of requests and answers, the owner who has most of them loses the one that waited
    longest.
    """

    def __init__(self) -> None:
        self._tasks: dict[Key, _Task] = {}
        self._size = 0

    def runs(self, key: Key) -> list[TaskStatus]:
        """Return the runs of a task, the first one first; none if it does not wait.

        While it is being answered the last run is one that has not ended.
        """
        task = self._tasks.get(key)
        if task is None:
            return []
        # Each view counts the ids that it makes.
        runs = [replace(run, context=replace(run.context)) for run in task.runs]
        if task.answered:
            last = runs[-1]
            runs.append(TaskStatus(TaskState.RUNNING, last.since, replace(last.context)))
        return runs

    def begin(self, key: Key) -> None:
        """An answer to the task is being passed on."""
        if (task := self._tasks.get(key)) is not None:
            task.answered = True

    def abandon(self, key: Key) -> None:
        """Let the task wait on: its answer came to nothing."""
        if (task := self._tasks.get(key)) is not None:
            task.answered = False

    def ended(self, key: Key, context: Context, events: Sequence[Event], size: int) -> None:
        """Note a run of a task that has ended: the task is kept if it waits, else forgotten.

        `context` is that of the run before its answer was encoded; `size` is about what all of it takes, in bytes.
        """
        before = self._tasks.pop(key, None)
        if before is not None:
            self._size -= before.size
        end = events[-1] if events else None
        if not isinstance(end, RunFinished) or end.reason not in WAITING_ENDS:
            return
        run = TaskStatus(TaskState.ENDED, context.created_at, context, list(events))
        task = _Task([*(before.runs if before is not None else ()), run], size + (before.size if before else 0))
        self._tasks[key] = task
        self._size += task.size
        while self._size > _MOST_BYTES:
            self._forget_one(lambda task: task.size)
        while len(self._tasks) > _MOST:
            self._forget_one(lambda task: 1)

    def _forget_one(self, weight: Callable[[_Task], int]) -> None:
        held = Counter[str]()
        for (owner, _, _), task in self._tasks.items():
            held[owner] += weight(task)
        most = max(held, key=held.__getitem__)
        self.forget(next(key for key in self._tasks if key[0] == most))

    def forget(self, key: Key) -> None:
        """The task waits no more."""
        if (task := self._tasks.pop(key, None)) is not None:
            self._size -= task.size
