"""Requests of clients, checked: what is wrong is a `RequestError` whose `param` names the field.

And requests to backends, as such a client writes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from hashlib import sha256
from typing import Any

from bridge.contract import Context, HistoryQuery, QueryParameter, RunRef, SubscribeRequest, WireRequest
from bridge.dialects.agent_runs.base import AGUI, BASE, MODES, inner, outer
from bridge.dialects.agent_runs.options import BackOptions
from bridge.errors import RequestError, shortened
from bridge.model import HistoryMode, Request
from bridge.model.jsontext import dumps, loads
from bridge.toolkit import Node
from bridge.toolkit.check import number_in

_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)

RUN_ID = QueryParameter("runId", "The id of the run; 1 to 128 of the characters A-Z a-z 0-9 . _ : -", required=True)
IDLE_LIMIT = QueryParameter(
    "idle_limit",
    "Number of polls without an event after which the stream closes",
    type="integer",
    minimum=1,
    maximum=3600,
    default=300,
)
HISTORY = (
    QueryParameter("threadId", "The thread; default: the one with the user's latest message"),
    QueryParameter("before", "Return the last day before this one; default: the latest day", format="date"),
)
FILE = (
    QueryParameter("bucket", "The bucket of the attachment", required=True),
    QueryParameter("path", "The path of the attachment", required=True),
)


def decode_request(wire: WireRequest, context: Context) -> Request:
    """RunAgentInput as AG-UI reads it, with what this API wants besides."""
    request = AGUI.decode_request(wire, inner(context))
    checked_id(request.run_id, "runId")
    checked_id(request.thread_id, "threadId")
    if mode_of(request) not in MODES:
        raise RequestError(
            f"forwardedProps.runtime_mode: expected one of {', '.join(MODES)}.", param="forwardedProps.runtime_mode"
        )
    last = request.messages[-1].role if request.messages else None
    if last not in ("user", "tool") and not request.resume:
        came = f"the last one is of role {last}" if last else "there are none"
        raise RequestError(f"messages: expected a user or tool message at the end, but {came}.", param="messages")
    request.history = HistoryMode.DELTA
    request.stream = True
    return request


def mode_of(request: Request) -> str | None:
    """`forwardedProps.runtime_mode`, when it is a string."""
    props: Any = (request.extras or {}).get(BASE, {}).get("forwardedProps")
    mode = props.get("runtime_mode") if isinstance(props, dict) else None
    return mode if isinstance(mode, str) else None


def decode_cancel(wire: WireRequest) -> RunRef:
    return RunRef(thread_in(wire), checked_id(wire.query.get("runId"), "runId"))


def decode_subscribe(wire: WireRequest) -> SubscribeRequest:
    run = decode_cancel(wire)
    return SubscribeRequest(run.thread_id, run.run_id, number_in(Node(dict(wire.query)), IDLE_LIMIT))


def decode_history(wire: WireRequest) -> HistoryQuery:
    thread, text = wire.query.get("threadId"), wire.query.get("before")
    return HistoryQuery(
        None if thread is None else checked_id(thread, "threadId"), None if text is None else _day(text)
    )


def _day(text: str) -> date:
    try:
        if _DAY.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise RequestError(f"before: expected a date such as 2026-01-31, got {shortened(text)!r}.", param="before")


def decode_attach(fields: Mapping[str, str], has_file: bool) -> str:
    thread = checked_id(fields.get("threadId"), "threadId")
    if not has_file:
        came = ", ".join(shortened(name) for name in fields) or "none"
        raise RequestError(f"file: required, expected the image; got the fields: {came}.", param="file")
    return thread


def decode_sign(wire: WireRequest) -> tuple[str, str]:
    found = {name: wire.query.get(name, "") for name in ("bucket", "path")}
    for name, value in found.items():
        if not value:
            raise RequestError(f"{name}: required, expected that of an attachment.", param=name)
    return found["bucket"], found["path"]


def thread_in(wire: WireRequest) -> str:
    return checked_id(wire.params.get("thread_id"), "threadId")


def checked_id(text: str | None, name: str) -> str:
    """Raises `RequestError` for an id that is missing or ill-formed."""
    if text is None or not _ID.fullmatch(text):
        came = "nothing came" if not text else f"got {shortened(text)!r}"
        raise RequestError(f"{name}: expected 1 to 128 of the characters A-Z a-z 0-9 . _ : -, {came}.", param=name)
    return text


# ------------------------------------------------------------------ as the back


def encode_request(request: Request, context: Context) -> WireRequest:
    """RunAgentInput as AG-UI writes it, in a mode, with ids that this API takes."""
    return with_mode(AGUI.encode_request(request, outer(context)), BackOptions.of(context).runtime_mode)


def with_mode(wire: WireRequest, mode: str | None) -> WireRequest:
    """AG-UI's request as one of this API: in this mode, else in the one that its client named."""
    body = loads(wire.body)
    said = body.get("forwardedProps")
    props = {"runtime_mode": MODES[0], **(said if isinstance(said, dict) else {})}
    body["forwardedProps"] = {**props, "runtime_mode": mode or props["runtime_mode"]}
    body["threadId"], body["runId"] = _legal(body["threadId"]), _legal(body["runId"])
    return WireRequest("POST", "/runs", wire.headers, body=dumps(body))


def _legal(name: str) -> str:
    """The id itself where it may be one; else one made of it, always the same. It stands in paths, so no mere dots."""
    fits = _ID.fullmatch(name) and name.strip(".")
    return name if fits else "id-" + sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
