"""RunAgentInput -> `Request`, in all its versions, checked in one walk.

Names with underscores count as well. Unknown fields are kept, at top level and inside messages, tools, calls and parts,
so that a route to an AG-UI backend loses none of them.
"""

from __future__ import annotations

from typing import Any

from bridge.contract import WireRequest
from bridge.dialects.ag_ui.options import FrontOptions
from bridge.dialects.ag_ui.props import PROPS
from bridge.dialects.ag_ui.read_messages import MessageReader
from bridge.dialects.ag_ui.wire import NAME, camel, noted
from bridge.errors import RequestError, Wrong
from bridge.model import HistoryMode, Request, Resume, Tool
from bridge.model.jsontext import read_body
from bridge.toolkit.check import Node, need_json

_FIELDS = frozenset(
    {"threadId", "runId", "parentRunId", "messages", "state", "tools", "context", "forwardedProps", "resume"}
)


def decode_request(wire: WireRequest, options: FrontOptions) -> Request:
    """The request of a client. Raises `RequestError`: 400 for what is no JSON, 422 with the place for the rest."""
    body = Node(camel(_body(wire)))
    thread_id, run_id = body.need_string("threadId"), body.need_string("runId")
    reader = MessageReader()
    reader.read(body)
    extras = {k: v for k, v in body.rest(_FIELDS).items() if v is not None}
    request = Request(
        reader.messages,
        tools=_tools(body),
        thread_id=thread_id or None,
        run_id=run_id or None,
        parent_run_id=body.string("parentRunId"),
        history=HistoryMode.FULL,
        resume=_resume(body, extras),
        state=body.get("state"),
        context=_context(body),
    )
    props = body.get("forwardedProps")
    if isinstance(props, dict):
        props = PROPS.read(Node(props, "forwardedProps"), request, only=options.forwarded_props)
    if props is not None and props != {}:
        extras["forwardedProps"] = props
    if reader.aside:
        extras["messages"] = reader.aside
    request.extras = {NAME: extras}
    return request


def _body(wire: WireRequest) -> dict[str, Any]:
    need_json(wire, status=415)
    try:
        return read_body(wire.body)
    except RequestError as error:
        # The one mistake that is not about the shape of a value: there is no JSON at all.
        if error.failure.wrong in (Wrong.EMPTY, Wrong.ENCODING, Wrong.JSON):
            error.failure.status = 400
        raise


def _tools(body: Node) -> list[Tool] | None:
    tools = [_tool(node) for node in body.objects("tools")]
    return tools or None


def _tool(node: Node) -> Tool:
    parameters = node.object("parameters")
    return Tool(
        node.need_string("name"),
        node.string("description") or None,
        parameters.value if parameters else None,
        extras=noted(node.rest({"name", "description", "parameters"})),
    )


def _context(body: Node) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for node in body.objects("context"):
        node.need_string("description")
        node.need_string("value")
        entries.append(node.value)
    return entries


def _resume(body: Node, extras: dict[str, Any]) -> list[Resume]:
    """Answers to interrupts; what an answer says besides stays with it under its id."""
    answers: list[Resume] = []
    more: dict[str, Any] = {}
    for found in body.objects("resume"):
        node = Node(camel(found.value), found.path)
        interrupt_id = node.need_string("interruptId")
        node.need_string("status")
        status = node.one_of("status", ("resolved", "cancelled")) or ""
        answers.append(Resume(interrupt_id, status, node.get("payload"), place=node.path))
        if rest := node.rest({"interruptId", "status", "payload"}):
            more[interrupt_id] = rest
    if more:
        extras["resume"] = more
    return answers
