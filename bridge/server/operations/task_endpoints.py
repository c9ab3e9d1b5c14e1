"""The operations `start` and `status` of tasks: a run is queued, and its client polls its state by id."""

from __future__ import annotations

from aiohttp import web

from bridge.contract import TaskDialect, TaskStatus, require
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route
from bridge.errors import RequestError
from bridge.run.durable import RunKey, RunState, fingerprint
from bridge.run.durable.task_stream import STATES
from bridge.server.requests.exchange import ServerExchange
from bridge.server.requests.http_messages import response_of


def _key(owner: str, route: Route, task_id: str) -> RunKey:
    """Tasks have a scope that cannot be a mount path, so that no session id is a task's."""
    return RunKey(owner, f"{route.path}#tasks", task_id, task_id)


async def serve_task(exchange: ServerExchange) -> web.StreamResponse:
    """Queue a run and return the id of its task."""
    bridge, route, task_id = exchange.bridge, exchange.route, exchange.report.run_id
    dialect = require(route.dialect, TaskDialect)
    wire = await exchange.read()
    task = dialect.decode_task(wire, exchange.context)
    caller = exchange.caller(wire)
    _, plan = bridge.plan(route, task.request, caller)
    plan.limit = task.limit
    exchange.report.back = route.group_for(task.request).names
    await bridge.runs.start(_key(caller.owner, route, task_id), plan, fingerprint(wire.body))
    exchange.report.status = "queued"
    return response_of(dialect.encode_submitted(task_id))


async def serve_status(bridge: Bridge, route: Route, exchange: ServerExchange) -> web.StreamResponse:
    """Return the state of a task, and the answer of one that has ended."""
    dialect, task_id = require(route.dialect, TaskDialect), exchange.http.match_info["task_id"]
    status = await _status(bridge, route, _key(exchange.user, route, task_id))
    return response_of(dialect.encode_task(task_id, status))


async def _status(bridge: Bridge, route: Route, key: RunKey) -> TaskStatus | None:
    reader = bridge.runs.follow(key)
    try:
        record = await reader.open()
        if record is None or reader.plan is None:
            return None
        events = await reader.so_far() if record.state is RunState.ENDED else []
    except RequestError:
        return None  # the log of the task has expired
    return TaskStatus(STATES[record.state], record.created_at, reader.plan.context(route.options), events)
