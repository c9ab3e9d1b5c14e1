"""The operations `start` and `status` of tasks: a run is handed over, and its end is looked up by the id it was given.

A task is a run of the store like any other, in a thread of its own: it does not take the place of its session's runs.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from bridge.codec import Context, TaskDialect, TaskState, TaskStatus, require
from bridge.engine import Bridge, Caller, Route
from bridge.errors import RequestError
from bridge.model import Event
from bridge.runs import RunKey, RunState, fingerprint
from bridge.server.report import Report
from bridge.server.runs import RunHandler
from bridge.server.wire import USER, read_request, response_of

_STATES = {
    RunState.QUEUED: TaskState.PENDING,
    RunState.RUNNING: TaskState.RUNNING,
    RunState.ENDED: TaskState.ENDED,
}


def _key(owner: str, route: Route, task_id: str) -> RunKey:
    """In a scope of their own, which no mount path can be: whatever a session is called, it is no task's."""
    return RunKey(owner, f"{route.path}#tasks", task_id, task_id)


class TaskHandler(RunHandler):
    """Queues a run and says under which id it can be asked for."""

    def __init__(self, bridge: Bridge, route: Route, *more: Any) -> None:
        super().__init__(bridge, route, *more)
        self._dialect = require(route.dialect, TaskDialect)

    async def _answer(self, http: web.Request, context: Context, report: Report) -> web.StreamResponse:
        wire = await read_request(http, self._route.path, self._rules.max_body, self._rules.body_time)
        asked = self._dialect.decode_task(wire, context)
        request, caller = asked.request, Caller(http[USER], report.request_id, wire.headers, wire.body)
        task_id, made = report.run_id, context.created_at
        _, plan = self._bridge.plan(self._route, request, caller, run_id=task_id, created_at=made)
        plan.limit = asked.limit
        report.back = self._route.group_for(request).names
        await self._bridge.runs.start(_key(caller.owner, self._route, task_id), plan, fingerprint(wire.body))
        report.status = "queued"
        response = response_of(self._dialect.encode_submitted(task_id))
        report.http = response.status
        return response


class TaskStatusHandler:
    """Says how a task stands; of one that has ended, what it said."""

    def __init__(self, bridge: Bridge, route: Route) -> None:
        self._bridge = bridge
        self._route = route
        self._dialect = require(route.dialect, TaskDialect)

    async def __call__(self, http: web.Request) -> web.StreamResponse:
        task_id = http.match_info["task_id"]
        seen = await self._seen(_key(http[USER], self._route, task_id))
        return response_of(self._dialect.encode_task(task_id, seen))

    async def _seen(self, key: RunKey) -> TaskStatus | None:
        reader, events = self._bridge.runs.follow(key), list[Event]()
        try:
            record = await reader.open()
            if record is None or reader.plan is None:
                return None
            while record.state is RunState.ENDED and not reader.done:
                events += [event for _, batch in await reader.read(0) for event in batch.events]
        except RequestError:
            return None  # what it said is not kept any more
        return TaskStatus(_STATES[record.state], record.created_at, reader.plan.context(self._route.options), events)
