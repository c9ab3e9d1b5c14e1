"""The endpoints besides `/process`: stream tasks, stopping a session and reconnecting to it."""

from __future__ import annotations

from typing import Any

from bridge.contract import (
    Context,
    Dialect,
    QueryParameter,
    SessionRef,
    TaskRequest,
    TaskState,
    TaskStatus,
    WireRequest,
    WireResponse,
    json_response,
)
from bridge.dialects.agentscope.extras import NAME
from bridge.dialects.agentscope.normalization import normalized
from bridge.dialects.agentscope.read_request import decode_request
from bridge.errors import ErrorCode
from bridge.model import RunFailed
from bridge.model.jsontext import dumps, read_json
from bridge.toolkit.check import Node, body_of, wrong

_QUEUE = "stream_query"
# Failures not caused by the agent: the real server reports only such tasks as failed.
_BRIDGE_CODES = frozenset({ErrorCode.RUN_TIMEOUT, ErrorCode.RUN_LOST})
_MAX_ID_LENGTH = 80

# ------------------------------------------------------------------ tasks


def decode_task(wire: WireRequest, context: Context) -> TaskRequest:
    """Decode the body of `/process` with a field `timeout` in seconds, which is not passed to the agent."""
    body = body_of(wire)
    timeout = body.number("timeout", convert=True)
    if timeout is not None and timeout <= 0:
        wrong("timeout", "a positive number of seconds", body.get("timeout"))
    request = decode_request(wire, context)
    own_extras = {name: value for name, value in request.extra(NAME).items() if name != "timeout"}
    request.extras = {NAME: own_extras} if own_extras else None
    return TaskRequest(request, None if timeout is None else float(timeout))


def encode_submitted(task_id: str) -> WireResponse:
    text = "Stream query task submitted successfully"
    return json_response(dumps({"task_id": task_id, "status": "submitted", "queue": _QUEUE, "message": text}))


def encode_task(task_id: str, status: TaskStatus | None, dialect: Dialect) -> WireResponse:
    """Return a task's status; `result` is the last event. An unknown task gets 200, as in the real server."""
    body: dict[str, Any]
    if status is None:
        body = {"error": f"Task {task_id[:_MAX_ID_LENGTH]} not found"}
    elif status.state is TaskState.ENDED:
        return _ended(status, dialect)
    elif status.state is TaskState.RUNNING:
        body = {"status": "running", "started_at": status.since, "result": None}
    else:
        body = {"status": "pending", "result": None}
    return json_response(dumps(body))


def _ended(status: TaskStatus, dialect: Dialect) -> WireResponse:
    last = status.events[-1]
    if isinstance(last, RunFailed) and last.error.code in _BRIDGE_CODES:
        return json_response(dumps({"status": "error", "result": last.error.message}))
    frame = dialect.encoder(status.context).encode(status.events)[-1]
    result = frame if isinstance(frame, bytes) else frame.data
    return json_response(b'{"status":"finished","result":%b}' % result)


# ------------------------------------------------------------------ sessions


def busy(session: SessionRef) -> str:
    """Return the real server's message. That server sends it in a stream with status 200, which its client ignores."""
    user = str(session.user_id)[:_MAX_ID_LENGTH]
    return f"Task {user}:{session.session_id[:_MAX_ID_LENGTH]} is already in RUNNING state."


SESSION_IN_QUERY = (
    QueryParameter("chat_id", "The session to stop; default: `session_id` of the body"),
    QueryParameter("user_id", "The user of the session"),
)


def decode_stop(wire: WireRequest) -> SessionRef:
    """Decode `session_id` and an optional `user_id`, equal to those of the request; or `chat_id` in the query."""
    chat = wire.query.get("chat_id")
    if chat:
        return SessionRef(chat, wire.query.get("user_id"))
    return _session(body_of(wire).value)


def encode_stopped(wire: WireRequest, stopped: bool) -> WireResponse:
    """Return the answer to a stop: the documented one or, for a `chat_id`, whether a run was stopped."""
    if wire.query.get("chat_id"):
        return json_response(dumps({"stopped": stopped}))
    return json_response(dumps({"status": "success", "message": "Interrupt signal broadcasted."}))


def decode_reconnect(wire: WireRequest) -> SessionRef | None:
    if b'"reconnect"' not in wire.body:
        return None
    body = read_json(wire.body)
    return _session(body) if isinstance(body, dict) and body.get("reconnect") is True else None


def _session(body: dict[str, Any]) -> SessionRef:
    node = Node(normalized(body))
    return SessionRef(node.need_string("session_id"), node.string("user_id"))
