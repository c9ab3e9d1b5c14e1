"""Tasks: calls whose results are read later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bridge.contract import Operation, TaskCall, TaskState, TaskStatus, WireResponse, json_response
from bridge.dialects.mcp import errors
from bridge.dialects.mcp.call import Call
from bridge.dialects.mcp.errors import refused
from bridge.dialects.mcp.questions import form_of, resume_of
from bridge.dialects.mcp.results import shaped
from bridge.dialects.mcp.wire import POLL_MS, Method, Wire, result, timestamp, written
from bridge.dialects.mcp.write_answer import CallEncoder
from bridge.errors import ErrorCode, RequestError, shortened
from bridge.model import FinishReason, Interrupted, Request, RunFailed, RunFinished


def encode_task_now(asked: TaskCall, runs: Sequence[TaskStatus]) -> WireResponse:
    """Return the response to a call that became a task, or to an operation on one."""
    call: Call = asked.sent
    if asked.operation is Operation.CANCEL or call.method == Method.UPDATE_TASK:
        members: Wire = {}
    else:
        members = _task(call, runs)
        members["resultType"] = "task" if call.method == Method.CALL else "complete"
    return json_response(written(result(call.head, shaped(call.head, call.site.version, members))))


def _task(call: Call, runs: Sequence[TaskStatus]) -> Wire:
    first, last = runs[0], runs[-1]
    encoder = CallEncoder(replace(last.context, site=call.site))
    encoder.encode(last.events)
    end = last.events[-1] if last.events else None
    ended_at = end.ended_at if isinstance(end, RunFinished | RunFailed) else None
    task: Wire = {
        "taskId": first.context.run_id,
        "status": _status(last),
        "createdAt": timestamp(first.since),
        "lastUpdatedAt": timestamp(ended_at or last.since),
        "ttlMs": int(call.site.kept * 1000) or None,
        "pollIntervalMs": POLL_MS,
    }
    if said := encoder.said_last():
        task["statusMessage"] = said
    if task["status"] == "completed" and encoder.members is not None:
        if encoder.members.get("resultType") == "input_required":
            return {**task, "status": "input_required", "inputRequests": encoder.input_requests()}
        task["result"] = encoder.members
    return task


def _status(run: TaskStatus) -> str:
    """Return the state of a task; a tool that failed has completed, with a result that is an error."""
    end = run.events[-1] if run.events else None
    if run.state is not TaskState.ENDED or not isinstance(end, RunFinished | RunFailed):
        return "working"
    if isinstance(end, RunFailed):
        return "cancelled" if end.error.code is ErrorCode.CANCELED else "completed"
    return "cancelled" if end.reason is FinishReason.CANCELED else "completed"


def continues(request: Request, runs: Sequence[TaskStatus]) -> Request:
    """Return the request that continues a task which waits for answers. Raises `RequestError` if it waits for none."""
    last = runs[-1]
    end = last.events[-1] if last.events else None
    if not isinstance(end, RunFinished) or end.reason is not FinishReason.INTERRUPTED:
        raise refused(errors.PARAMS, "The task waits for no answer.", "params.taskId")
    asked = {event.interrupt_id: event for event in last.events if isinstance(event, Interrupted)}
    resume = []
    for answer in request.resume:
        event = asked.get(answer.interrupt_id)
        if event is None:
            text = f"{answer.place}: the task has no open question {shortened(answer.interrupt_id)!r}."
            raise refused(errors.PARAMS, text, answer.place)
        resume.append(resume_of(event.interrupt_id, form_of(event).in_words, answer.payload, answer.place))
    before = last.context.request
    assert before is not None
    return replace(before, messages=[], resume=resume, stream=request.stream)


def not_cancelable() -> RequestError:
    """Return the error for a call to cancel a task that has ended."""
    return refused(errors.PARAMS, "The task has ended.", "params.taskId")
