"""The stream of a task from its present state on: a snapshot, then what its last run adds.

Both are cut at one position of the log, so that nothing is missing and nothing comes twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.contract import AgentTasksDialect, Frame, TaskCall, TaskState, TaskStatus
from bridge.run.durable.log import expired
from bridge.run.durable.subscription import Subscription
from bridge.stores import RunKey, RunState, RunStore
from bridge.translation import Writer

STATES = {
    RunState.QUEUED: TaskState.PENDING,
    RunState.RUNNING: TaskState.RUNNING,
    RunState.ENDED: TaskState.ENDED,
}


class TaskStream(Subscription):
    """`before` are the runs of the task but the last one."""

    def __init__(
        self,
        store: RunStore,
        key: RunKey,
        dialect: AgentTasksDialect,
        options: object,
        call: TaskCall,
        before: Sequence[TaskStatus],
    ) -> None:
        super().__init__(store, key, dialect, options)
        self._tasks = dialect
        self._call = call
        self._before = before

    async def open(self) -> bool:
        """Return True. Raises `RequestError` for a task that is over, or has expired."""
        record = await self._log.open()
        plan = self._log.plan
        if record is None or plan is None:
            raise expired()
        events = await self._log.so_far()
        self.done = self._log.done
        self._note(events)
        self._context = plan.context(self._options)
        state = TaskState.ENDED if self.done else STATES[record.state]
        now = TaskStatus(state, record.created_at, self._context, events)
        frames, encoder = self._tasks.watch(self._call, [*self._before, now])
        self._writer = Writer(self._dialect, self._context, encoder)
        self._writer.ended = self.done
        self._pending = [frame if isinstance(frame, Frame) else Frame(frame) for frame in frames]
        return True
