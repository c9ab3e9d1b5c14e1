"""Tasks of agents: one endpoint takes messages, and what reads, lists, watches and cancels the tasks that they make.

On a durable route a task is a thread of the run store, each run of which answers one message; the first run has the
task's id. Elsewhere a task is kept in this process as long as it waits for an answer. A task of another owner is not
found.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from aiohttp import web

from bridge.contract import (
    AgentTasksDialect,
    Context,
    Operation,
    PushAction,
    PushTarget,
    TaskCall,
    TaskState,
    TaskStatus,
    TaskSummary,
    WireRequest,
    require,
)
from bridge.engine.route import RunCaller
from bridge.errors import BridgeError, ErrorCode, RequestError, shortened
from bridge.model import Event, FinishReason, Heartbeat, Request, RunFailed, RunFinished, RunStarted
from bridge.run.conversation.push_targets import PushTargets
from bridge.run.durable import START, RunKey, RunPlan, RunRecord, RunState
from bridge.run.durable.task_stream import STATES
from bridge.run.durable.waiting import WAITING_ENDS, WaitingTasks
from bridge.server.operations.descriptions import described
from bridge.server.operations.durable import CANCEL_SECONDS, read_on, reporting, stream_rest
from bridge.server.operations.run_endpoint import attend
from bridge.server.requests.exchange import ServerExchange
from bridge.server.requests.http_messages import decoded, response_of, stream_headers
from bridge.translation.framing import sse

_PLAIN_ENDS = frozenset({FinishReason.STOP, FinishReason.CANCELED})
_EVENT_SIZE = 200
"""About what an event takes in memory beside its text, in bytes."""
_MOST_LISTED = 1000
"""Older tasks are read by their ids, and are in no list."""


async def serve_task_call(exchange: ServerExchange) -> web.StreamResponse:
    """Serve the operation in a request."""
    wire = await exchange.read()
    call = await decoded(_dialect(exchange).decode_call, wire, exchange.context)
    await exchange.permit(call.operation)
    if call.operation is Operation.DESCRIBE:
        agent = described(exchange.bridge, exchange.route, exchange.http, secured=bool(exchange.user))
        return response_of(_dialect(exchange).encode_own_description(call, agent))
    if (call.push or call.push_target) and exchange.bridge.push_targets(exchange.route, exchange.user, "") is None:
        raise _dialect(exchange).no_push()
    if not exchange.route.durable:
        return await _without_store(exchange, wire, call)
    return await serve_stored_task(exchange, wire, call)


async def serve_stored_task(exchange: ServerExchange, wire: WireRequest, call: TaskCall) -> web.StreamResponse:
    """Serve the operation in a request to a durable route."""
    if call.push is not None:
        return await _push(exchange, call)
    match call.operation:
        case Operation.RUN:
            return await _run(exchange, wire, call)
        case Operation.ITEMS:
            return await _list(exchange, call)
        case Operation.SUBSCRIBE:
            return await _watch(exchange, call)
        case Operation.CANCEL:
            return await _cancel(exchange, call)
        case _:
            return response_of(_dialect(exchange).encode_task_now(call, await Tasks(exchange).load(call.task_id or "")))


def _dialect(exchange: ServerExchange) -> AgentTasksDialect:
    return require(exchange.route.dialect, AgentTasksDialect)


async def _without_store(exchange: ServerExchange, wire: WireRequest, call: TaskCall) -> web.StreamResponse:
    """Serve a route that is not durable: of its tasks, those that wait for an answer are kept in this process."""
    dialect, waiting, task_id = _dialect(exchange), exchange.bridge.waiting_tasks, call.task_id or ""
    if call.operation is Operation.ITEMS:
        text = "This agent keeps no tasks that could be listed: its route is not durable."
        raise RequestError(text, code=ErrorCode.CONFLICT)
    if call.operation is Operation.RUN:
        return await _live_run(exchange, wire, call)
    key = (exchange.user, exchange.route.path, task_id)
    runs = waiting.runs(key)
    if not runs or call.push is not None:
        raise _unknown(task_id)
    match call.operation:
        case Operation.CANCEL:
            if _reason(runs[-1]) is None:
                raise dialect.not_cancelable(task_id)  # it is being answered
            waiting.forget(key)
            last = runs[-1]
            end = RunFinished(FinishReason.CANCELED, ended_at=time.time())
            runs.append(TaskStatus(TaskState.ENDED, last.since, last.context, [RunStarted(last.context.run_id), end]))
            exchange.report.status = "canceled"
        case Operation.SUBSCRIBE:
            frames, _ = dialect.watch(call, runs)
            return web.Response(body=sse.join(frames), headers=stream_headers(dialect, exchange.context))
    return response_of(dialect.encode_task_now(call, runs))


async def _live_run(exchange: ServerExchange, wire: WireRequest, call: TaskCall) -> web.StreamResponse:
    """Run the request in a message; a task that waits afterwards is kept, and one that it answers goes on."""
    request, caller = await exchange.decode(wire)
    waiting, task_id = exchange.bridge.waiting_tasks, call.task_id or exchange.report.run_id
    key = (exchange.user, exchange.route.path, task_id)
    if call.task_id is not None and (runs := waiting.runs(key)):
        request = exchange.context.request = _dialect(exchange).continues(request, runs)
        exchange.context.thread_id = request.thread_id
    collected = _Collected(waiting, key, exchange.context, len(wire.body))
    exchange.observe = collected
    waiting.begin(key)
    try:
        return await attend(exchange, request, caller)
    except RequestError as error:
        if call.task_id is not None and error.code is ErrorCode.CONFLICT:
            raise _unknown(call.task_id) from None  # nothing waits in this conversation
        raise
    finally:
        if not collected.ended:
            waiting.abandon(key)


class _Collected:
    """Collects the events of a run of a task, and notes at its end whether the task waits."""

    def __init__(self, waiting: WaitingTasks, key: tuple[str, str, str], context: Context, size: int) -> None:
        self.ended = False
        self._waiting = waiting
        self._key = key
        self._context = context
        self._before: Context | None = None
        self._size = size
        self._events: list[Event] = []

    def __call__(self, events: Sequence[Event]) -> None:
        self._before = self._before or replace(self._context)
        self._events += [event for event in events if not isinstance(event, Heartbeat)]
        if events and isinstance(events[-1], RunFinished | RunFailed):
            self.ended = True
            size = self._size + sum(_EVENT_SIZE + len(getattr(event, "text", "")) for event in self._events)
            self._waiting.ended(self._key, self._before, self._events, size)


class Tasks:
    """The tasks of a request's owner on its route."""

    def __init__(self, exchange: ServerExchange) -> None:
        self._runs = exchange.bridge.runs
        self._owner = exchange.user
        # A scope that cannot be a mount path, so that no thread is a task.
        self._scope = f"{exchange.route.path}#tasks"
        self._options = exchange.route.options

    def key(self, task_id: str, run_id: str) -> RunKey:
        return RunKey(self._owner, self._scope, task_id, run_id)

    async def latest(self, task_id: str) -> RunRecord:
        """Return the last run of a task. Raises `RequestError` (not_found)."""
        record = await self._runs.latest(self._owner, self._scope, task_id)
        if record is None or not record.whole:
            raise _unknown(task_id)
        return record

    async def load(self, task_id: str) -> list[TaskStatus]:
        """Return the runs of a task, the first one first. Raises `RequestError` (not_found)."""
        record: RunRecord | None = await self.latest(task_id)
        runs: list[TaskStatus] = []
        while record is not None:
            plan, status = await self._status(task_id, record)
            runs.append(status)
            is_first = record.key.run_id == task_id
            record = None if is_first else await self._runs.status(self.key(task_id, plan.previous or task_id))
        return runs[::-1]

    async def _status(self, task_id: str, record: RunRecord) -> tuple[RunPlan, TaskStatus]:
        reader = self._runs.follow(record.key)
        try:
            await reader.open()
            events = await reader.so_far()
        except RequestError:
            raise _unknown(task_id) from None  # its log has expired
        if reader.plan is None:
            raise _unknown(task_id)
        state = TaskState.ENDED if reader.done else STATES[record.state]
        return reader.plan, TaskStatus(state, record.created_at, reader.plan.context(self._options), events)

    async def summaries(self, latest: str | None, thread_id: str | None) -> list[TaskSummary]:
        """Return the newest tasks, from this one on, of all threads or of one."""
        found: list[TaskSummary] = []
        task_id, left = latest, _MOST_LISTED
        while task_id is not None and left:
            left -= 1
            first = await self._runs.status(self.key(task_id, task_id))
            if first is None or not first.whole:
                break  # those before it have expired, too
            if thread_id is None or await self._thread(first) == thread_id:
                last = await self.latest(task_id)
                changed = last.ended_at or last.created_at
                end, events = await self._runs.end_of(last), list[Event]()
                if isinstance(end, RunFinished) and end.reason not in _PLAIN_ENDS:
                    _, status = await self._status(task_id, last)
                    events += status.events
                found.append(TaskSummary(task_id, changed, end, last.state is RunState.QUEUED, events))
            task_id = first.previous
        return found

    async def _thread(self, record: RunRecord) -> str | None:
        reader = self._runs.follow(record.key)
        await reader.open()
        return reader.plan.request.thread_id if reader.plan is not None else None


def _unknown(task_id: str) -> RequestError:
    """Return the same error for a task of another owner, so that it does not reveal which ids exist."""
    return RequestError(f"Task {shortened(task_id)!r} not found.", code=ErrorCode.NOT_FOUND)


# ------------------------------------------------------------------ messages


async def _run(exchange: ServerExchange, wire: WireRequest, call: TaskCall) -> web.StreamResponse:
    """Run the request in a message, as a new task or as the next run of its task."""
    request, caller = await exchange.decode(wire)
    tasks, run_id = Tasks(exchange), exchange.report.run_id
    task_id, previous = call.task_id or run_id, None
    key = tasks.key(task_id, run_id)
    exchange.report.about = key.facts
    await exchange.hold(exchange.limiter.reader_slot(caller.owner))
    async with _continuing(exchange, call.task_id):
        if call.task_id is not None:
            before = await tasks.load(task_id)
            request = exchange.context.request = _dialect(exchange).continues(request, before)
            exchange.context.thread_id = request.thread_id
            previous = before[-1].context.run_id
        exchange.report.back = exchange.route.group_for(request).names
        if call.push_target is not None:
            await _set_push(exchange, task_id, call.push_target)
        await _start(exchange, key, _plan(exchange, request, caller), previous)
    if request.stream:
        return await read_on(exchange, key, START)
    if not call.at_once:
        _, exchange.report.lost = await exchange.bridge.runs.follow(key).to_end()
    runs = await tasks.load(task_id)
    if call.at_once:
        exchange.report.status = "queued"
    return response_of(_dialect(exchange).encode_task_now(call, runs), list(exchange.report.lost))


@asynccontextmanager
async def _continuing(exchange: ServerExchange, task_id: str | None) -> AsyncIterator[None]:
    """Let only one request at a time continue or end a task, so that the second one sees what the first one did."""
    index = exchange.bridge.task_index(exchange.route, exchange.user) if task_id is not None else None
    if index is None or task_id is None:
        yield
        return
    async with index.continuing(task_id):
        yield


def _plan(exchange: ServerExchange, request: Request, caller: RunCaller) -> RunPlan:
    """The backend streams in any case, so that readers see the answer grow."""
    streamed = replace(request, stream=True)
    _, plan = exchange.bridge.plan(exchange.route, streamed, caller)
    return plan


async def _start(exchange: ServerExchange, key: RunKey, plan: RunPlan, previous: str | None) -> None:
    """Queue a run after the run `previous` of its task. A new task is added to the list of its owner."""
    index = exchange.bridge.task_index(exchange.route, exchange.user) if previous is None else None
    plan.previous = previous
    async with AsyncExitStack() as stack:
        if index is not None:
            plan.previous = await stack.enter_async_context(index.adding(key.run_id))
        await exchange.bridge.runs.start(key, plan, plan.run_id, alone=True)


# ------------------------------------------------------------------ reading


async def _list(exchange: ServerExchange, call: TaskCall) -> web.StreamResponse:
    dialect, tasks = _dialect(exchange), Tasks(exchange)
    index = exchange.bridge.task_index(exchange.route, exchange.user)
    if index is None:
        raise RequestError("This agent stores no list of its tasks: stores.history is off.", code=ErrorCode.CONFLICT)
    known = await tasks.summaries(await index.latest(), call.thread_id)
    page = dialect.lists(call, known)
    return response_of(dialect.encode_task_list(call, page, [await tasks.load(task.task_id) for task in page.tasks]))


async def _watch(exchange: ServerExchange, call: TaskCall) -> web.StreamResponse:
    """Stream a task: its present state, then what follows."""
    tasks, task_id = Tasks(exchange), call.task_id or ""
    record = await tasks.latest(task_id)
    before = (await tasks.load(task_id))[:-1]
    exchange.report.about = record.key.facts
    stream = exchange.bridge.runs.watch(record.key, _dialect(exchange), exchange.route.options, call, before)
    with reporting(exchange, stream):
        await stream.open()
        await exchange.hold(exchange.limiter.reader_slot(exchange.user))
        return await stream_rest(exchange, stream, sse.join(await stream.read(0)))


# ------------------------------------------------------------------ canceling


async def _cancel(exchange: ServerExchange, call: TaskCall) -> web.StreamResponse:
    """End a task. One that waits for an answer ends by a run that is canceled before it begins."""
    dialect, tasks, task_id = _dialect(exchange), Tasks(exchange), call.task_id or ""
    runs, key = await tasks.load(task_id), None
    if _reason(runs[-1]) in WAITING_ENDS:
        async with _continuing(exchange, task_id):
            runs = await tasks.load(task_id)  # an answer may have come in the meantime
            if _reason(runs[-1]) in WAITING_ENDS:
                key = await _start_canceled(exchange, tasks, task_id, runs)
    if key is None:
        key = tasks.key(task_id, runs[-1].context.run_id)
        if _reason(runs[-1]) is not None:
            raise dialect.not_cancelable(task_id)
        await exchange.bridge.runs.cancel(key)
    if not await exchange.bridge.runs.ended(key, CANCEL_SECONDS):
        raise BridgeError("The task did not end: the process that executes it does not respond.")
    runs = await tasks.load(task_id)
    if _reason(runs[-1]) is not FinishReason.CANCELED:
        raise dialect.not_cancelable(task_id)  # it ended by itself in this moment
    exchange.report.status = "canceled"
    return response_of(dialect.encode_task_now(call, runs))


def _reason(run: TaskStatus) -> FinishReason | RunFailed | None:
    """Return how a run ended; None before its end."""
    end = run.events[-1] if run.events else None
    if isinstance(end, RunFinished):
        return end.reason
    return end if isinstance(end, RunFailed) else None


async def _start_canceled(exchange: ServerExchange, tasks: Tasks, task_id: str, runs: Sequence[TaskStatus]) -> RunKey:
    context, dialect = runs[-1].context, _dialect(exchange)
    assert context.request is not None
    try:
        request = dialect.continues(replace(context.request, messages=[], resume=[]), runs)
    except RequestError:
        raise dialect.not_cancelable(task_id) from None  # its calls have their results
    plan = _plan(exchange, request, exchange.caller())
    key = tasks.key(task_id, plan.run_id)
    await exchange.bridge.runs.cancel(key)
    await _start(exchange, key, plan, context.run_id)
    return key


# ------------------------------------------------------------------ push notifications


async def _push(exchange: ServerExchange, call: TaskCall) -> web.StreamResponse:
    """Set, read or delete where the notifications of a task are sent."""
    asked, task_id = call.push, call.task_id or ""
    assert asked is not None
    record = await Tasks(exchange).latest(task_id)
    targets, target_id = _push_targets(exchange, task_id), asked.target_id or task_id
    found: list[PushTarget] = []
    match asked.action:
        case PushAction.SET:
            assert asked.target is not None
            since = replace(asked.target, run=record.key.run_id, position=record.entries)
            found = [await _set_push(exchange, task_id, since)]
        case PushAction.LIST:
            found = await targets.load()
        case PushAction.GET:
            found = [target for target in await targets.load() if target.id == target_id]
            if not found:
                raise _no_target(target_id)
        case PushAction.DELETE:
            await targets.delete(target_id)
    return response_of(_dialect(exchange).encode_push_targets(call, found))


async def _set_push(exchange: ServerExchange, task_id: str, target: PushTarget) -> PushTarget:
    """Keep a target. Without an id it has that of its task."""
    if not exchange.bridge.may_push(exchange.route, target.url):
        text = f"{target.place}: expected an http or https URL without a user, at a host that this agent may notify."
        raise RequestError(text, param=target.place)
    target = replace(target, id=target.id or task_id)
    await _push_targets(exchange, task_id).set(target)
    return target


def _push_targets(exchange: ServerExchange, task_id: str) -> PushTargets:
    targets = exchange.bridge.push_targets(exchange.route, exchange.user, task_id)
    assert targets is not None, "calls about them are refused before"
    return targets


def _no_target(target_id: str) -> RequestError:
    text = f"Push notification config {shortened(target_id)!r} of this task not found."
    return RequestError(text, code=ErrorCode.NOT_FOUND)
