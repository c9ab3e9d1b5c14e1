"""Tasks that a route keeps: read, listed, watched, continued (docs/dialects/a2a.md)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from bridge.contract import (
    Context,
    FrameLike,
    PushAction,
    PushTarget,
    QueryParameter,
    TaskCall,
    TaskPage,
    TaskStatus,
    TaskSummary,
    WireResponse,
)
from bridge.dialects.a2a import write_errors
from bridge.dialects.a2a.call import Call
from bridge.dialects.a2a.push import config_said
from bridge.dialects.a2a.read_request import HISTORY, NOTES, Notes, notes_of, reader_of
from bridge.dialects.a2a.whole_answer import TaskFolder, response, task_of
from bridge.dialects.a2a.wire import NAME, OVER, Method, Spelled, State, Version, state_of
from bridge.dialects.a2a.write_answer import A2AEncoder, named
from bridge.dialects.a2a.write_errors import refused
from bridge.errors import RequestError, shortened
from bridge.model import (
    Data,
    Event,
    FinishReason,
    Interrupted,
    Message,
    PartKind,
    PartStarted,
    Request,
    RunFailed,
    RunFinished,
    Text,
    ToolResult,
    ToolResulted,
)
from bridge.toolkit.check import given_number, number_in, wrong

PAGE_SIZE = QueryParameter("pageSize", "tasks per page", type="integer", minimum=1, maximum=100, default=50)


def _reader(call: TaskCall) -> tuple[Call, Notes]:
    sent: Call = call.sent
    return sent, reader_of(sent)


def _folded(runs: Sequence[TaskStatus], reader: Notes) -> list[TaskFolder]:
    folders = []
    for run in runs:
        folder = TaskFolder(run.context, reader)
        folder.encode(run.events)
        folders.append(folder)
    return folders


def _state(folder: TaskFolder) -> State:
    return state_of(folder.state["state"]) or State.WORKING


# ------------------------------------------------------------------ one task


def encode_task_now(call: TaskCall, runs: Sequence[TaskStatus]) -> WireResponse:
    """The task: of a message as what it was answered by, else by itself."""
    sent, reader = _reader(call)
    is_message = sent.method in (Method.SEND, Method.STREAM)
    params = (sent.params.object("configuration") or Spelled({})) if is_message else sent.params
    task = task_of(_folded(runs, reader), given_number(params, HISTORY))
    is_wrapped = is_message or reader.written_in is Version.OLD
    return response(named("task", task, reader.written_in) if is_wrapped else task, reader)


def not_cancelable(task_id: str) -> RequestError:
    return refused(write_errors.NOT_CANCELABLE, f"Task {shortened(task_id)!r} has ended and cannot be canceled.")


def watch(call: TaskCall, runs: Sequence[TaskStatus]) -> tuple[list[FrameLike], A2AEncoder]:
    """The task as it is now, and what writes the rest of its last run."""
    sent, reader = _reader(call)
    last = runs[-1]
    context = replace(last.context)  # each counts the ids that it makes
    folders = _folded(runs, reader)
    if (state := _state(folders[-1])) in OVER:
        text = f"Task {shortened(call.task_id or '')!r} is over ({state}): read it instead."
        raise refused(write_errors.UNSUPPORTED, text)
    encoder = A2AEncoder(context, reader, goes_on=True)
    encoder.encode(last.events)
    return [encoder.frame("task", task_of(folders, given_number(sent.params, HISTORY)))], encoder


def continues(request: Request, runs: Sequence[TaskStatus]) -> Request:
    """The request as the next run of its task: the answer to what the task waits for."""
    context, events = runs[-1].context, runs[-1].events
    task_id = runs[0].context.run_id
    thread = context.request.thread_id if context.request is not None else None
    said = notes_of(request).context
    if said and said != thread:
        text = f"contextId: task {shortened(task_id)!r} belongs to another context."
        raise refused(write_errors.PARAMS, text, "message.contextId")
    end = events[-1] if events else None
    if not isinstance(end, RunFinished | RunFailed):
        raise refused(
            write_errors.UNSUPPORTED, f"Task {shortened(task_id)!r} is still working; wait until it asks for input."
        )
    calls = open_calls(events) if not isinstance(end, RunFailed) and end.reason is FinishReason.TOOL_CALLS else []
    if isinstance(end, RunFailed) or not (calls or end.reason is FinishReason.INTERRUPTED):
        raise refused(
            write_errors.UNSUPPORTED, f"Task {shortened(task_id)!r} has ended; start a new one without a taskId."
        )
    request = request.copy()
    request.thread_id = thread
    # What cancels a waiting task, too, is a run of the task, though no client's message named it.
    extra = request.extra(NAME)
    request.extras = {**(request.extras or {}), NAME: {**extra, NOTES: {**extra.get(NOTES, {}), "task": task_id}}}
    if calls and (request.messages or request.resume):
        return _with_results(request, calls, task_id)
    asked = [event for event in events if isinstance(event, Interrupted)]
    known = {event.interrupt_id for event in asked}
    for answer in request.resume:
        if answer.interrupt_id and answer.interrupt_id not in known:
            text = f"metadata.interruptId: task {shortened(task_id)!r} asks no such question."
            raise refused(write_errors.PARAMS, text, "message.metadata.interruptId")
    return request


def open_calls(events: Sequence[Event]) -> list[str]:
    """Return the ids of the calls of a run that have no result."""
    made = [e.call_id for e in events if isinstance(e, PartStarted) and e.kind is PartKind.TOOL_CALL and e.call_id]
    answered = {e.call_id for e in events if isinstance(e, ToolResulted)}
    return [call_id for call_id in made if call_id not in answered]


def _with_results(request: Request, calls: Sequence[str], task_id: str) -> Request:
    """The request with a result of each call that the task waits for; a text or a value is the result of its call."""
    for answer in request.resume:
        call_id = answer.interrupt_id or calls[0]
        value = answer.payload
        part = Text(value) if isinstance(value, str) else Data(value)
        request.messages = [*request.messages, Message("tool", [ToolResult(call_id, [part])])]
    request.resume = []
    results = {part.call_id for each in request.messages for part in each.parts if isinstance(part, ToolResult)}
    if results != set(calls):
        expected = ", ".join(repr(shortened(call_id)) for call_id in calls)
        text = (
            f"message.parts: expected the results of the calls {expected}, which task {shortened(task_id)!r} waits for."
        )
        raise refused(write_errors.PARAMS, text, "message.parts")
    return request


# ------------------------------------------------------------------ push notifications


def encode_push_targets(call: TaskCall, targets: Sequence[PushTarget]) -> WireResponse:
    """The config that was set or read, or all of them; nothing for one that was deleted."""
    sent, reader = _reader(call)
    assert call.push is not None
    configs = [config_said(call.task_id or "", target, sent.version, old_rest=reader.old_rest) for target in targets]
    result: Any
    match call.push.action:
        case PushAction.LIST:
            result = configs if reader.written_in is Version.OLD else {"configs": configs, "nextPageToken": ""}
        case PushAction.DELETE:
            result = {} if reader.rest else None
        case _:
            result = configs[0]
    return response(result, reader)


# ------------------------------------------------------------------ lists


def lists(call: TaskCall, tasks: Sequence[TaskSummary]) -> TaskPage:
    """The tasks of one page, the one that changed last first."""
    params = _reader(call)[0].params
    size = number_in(params, PAGE_SIZE)
    wanted = _wanted_state(params)
    after = _time(params, "statusTimestampAfter")
    found = [
        task
        for task in sorted(tasks, key=_order)
        if (wanted is None or _summary_state(task) is wanted) and (after is None or task.changed_at > after)
    ]
    start = _place(params)
    rest = found if start is None else [task for task in found if _order(task) > start]
    return TaskPage(rest[:size], len(found), len(rest) > size)


def encode_task_list(call: TaskCall, shown: TaskPage, tasks: Sequence[Sequence[TaskStatus]]) -> WireResponse:
    """Return one page of tasks, without artifacts unless they were requested."""
    sent, reader = _reader(call)
    params = sent.params
    artifacts = params.boolean("includeArtifacts") is True
    history = given_number(params, HISTORY)
    page = {
        "tasks": [task_of(_folded(runs, reader), history, artifacts=artifacts) for runs in tasks],
        "nextPageToken": _token(shown.tasks[-1]) if shown.more else "",
        "pageSize": number_in(params, PAGE_SIZE),
        "totalSize": shown.total,
    }
    return response(page, reader)


def _order(task: TaskSummary) -> tuple[float, str]:
    return -task.changed_at, task.task_id


def _wanted_state(params: Spelled) -> State | None:
    said = params.string("status")
    if not said or said == "TASK_STATE_UNSPECIFIED":
        return None
    state = state_of(said)
    if state is None:
        wrong(params.at("status"), "the state of a task, such as TASK_STATE_WORKING", said)
    return state


def _summary_state(task: TaskSummary) -> State:
    match task.end:
        case None:
            return State.SUBMITTED if task.queued else State.WORKING
        case RunFailed():
            return State.FAILED
        case RunFinished(reason=FinishReason.CANCELED):
            return State.CANCELED
    if not task.events:
        return State.COMPLETED
    folder = TaskFolder(Context(task.task_id))
    folder.encode(task.events)
    return _state(folder)


def _time(params: Spelled, name: str) -> float | None:
    said = params.string(name)
    if not said:
        return None
    try:
        found = datetime.fromisoformat(said)
    except ValueError:
        wrong(params.at(name), "a time such as 2026-01-31T12:00:00Z", said)
    if found.tzinfo is None:
        wrong(params.at(name), "a time with its zone, such as 2026-01-31T12:00:00Z", said)
    return found.timestamp()


def _token(task: TaskSummary) -> str:
    return base64.urlsafe_b64encode(f"{task.changed_at!r} {task.task_id}".encode()).decode().rstrip("=")


def _place(params: Spelled) -> tuple[float, str] | None:
    """Return the position where the page begins: after the task in the token."""
    said = params.string("pageToken")
    if not said:
        return None
    try:
        changed, _, task_id = base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)).decode().partition(" ")
        return -float(changed), task_id
    except ValueError:
        wrong(params.at("pageToken"), "the nextPageToken of an earlier answer", said)
