"""The endpoints beside `/process`: stream tasks, stopping a session and reconnecting to it."""

from __future__ import annotations

from typing import Any

from bridge.codec import (
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
from bridge.codec.check import Node, body_of, wrong
from bridge.codec.jsontext import dumps, read_json
from bridge.dialects.agentscope.notes import NAME
from bridge.dialects.agentscope.request import decode_request
from bridge.dialects.agentscope.spelling import plain
from bridge.errors import ErrorCode
from bridge.model import RunFailed

_QUEUE = "stream_query"
# What ended these was not the agent, who could have said more: the real server calls only such tasks failed.
_OURS = frozenset({ErrorCode.RUN_TIMEOUT, ErrorCode.RUN_LOST})
_LONGEST = 80

# ------------------------------------------------------------------ tasks


def decode_task(wire: WireRequest, context: Context) -> TaskRequest:
    """The body of `/process` with `timeout` in seconds beside it, which is not the agent's."""
    said = body_of(wire)
    limit = said.number("timeout", convert=True)
    if limit is not None and limit <= 0:
        wrong("timeout", "a number of seconds over 0", said.get("timeout"))
    request = decode_request(wire, context)
    beside = {name: value for name, value in request.extra(NAME).items() if name != "timeout"}
    request.extras = {NAME: beside} if beside else None
    return TaskRequest(request, None if limit is None else float(limit))


def encode_submitted(task_id: str) -> WireResponse:
    text = "Stream query task submitted successfully"
    return json_response(dumps({"task_id": task_id, "status": "submitted", "queue": _QUEUE, "message": text}))


def encode_task(task_id: str, seen: TaskStatus | None, dialect: Dialect) -> WireResponse:
    """`result` is the last event of the stream. An unknown task gets status 200, as at the real server."""
    body: dict[str, Any]
    if seen is None:
        body = {"error": f"Task {task_id[:_LONGEST]} not found"}
    elif seen.state is TaskState.ENDED:
        return _ended(seen, dialect)
    elif seen.state is TaskState.RUNNING:
        body = {"status": "running", "started_at": seen.since, "result": None}
    else:
        body = {"status": "pending", "result": None}
    return json_response(dumps(body))


def _ended(seen: TaskStatus, dialect: Dialect) -> WireResponse:
    last = seen.events[-1]
    if isinstance(last, RunFailed) and last.error.code in _OURS:
        return json_response(dumps({"status": "error", "result": last.error.message}))
    frame = dialect.encoder(seen.context).encode(seen.events)[-1]
    said = frame if isinstance(frame, bytes) else frame.data
    return json_response(b'{"status":"finished","result":%b}' % said)


# ------------------------------------------------------------------ sessions


def busy(session: SessionRef) -> str:
    """The real server's own words. It says them in a stream with status 200, which its own client drops unread."""
    user = str(session.user_id)[:_LONGEST]
    return f"Task {user}:{session.session_id[:_LONGEST]} is already in RUNNING state."


SESSION_IN_QUERY = (
    QueryParameter("chat_id", "The session to stop; without it the body names it as `session_id`"),
    QueryParameter("user_id", "The user of the session"),
)


def decode_stop(wire: WireRequest) -> SessionRef:
    """`session_id` and perhaps `user_id`, as they stood in the request that runs; or `chat_id` in the query."""
    chat = wire.query.get("chat_id")
    if chat:
        return SessionRef(chat, wire.query.get("user_id"))
    return _session(body_of(wire).value)


def encode_stopped(wire: WireRequest, stopped: bool) -> WireResponse:
    """The documented answer is the same when nothing was running; the one to a `chat_id` says it."""
    if wire.query.get("chat_id"):
        return json_response(dumps({"stopped": stopped}))
    return json_response(dumps({"status": "success", "message": "Interrupt signal broadcasted."}))


def decode_reconnect(wire: WireRequest) -> SessionRef | None:
    if b'"reconnect"' not in wire.body:
        return None
    body = read_json(wire.body)
    return _session(body) if isinstance(body, dict) and body.get("reconnect") is True else None


def _session(body: dict[str, Any]) -> SessionRef:
    said = Node(plain(body))
    return SessionRef(said.need_string("session_id"), said.string("user_id"))
