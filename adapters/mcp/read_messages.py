"""Reads the messages of clients: the kind of their revision, their method, and what they ask for."""

from __future__ import annotations

import re
from dataclasses import replace

from bridge.contract import (
    Context,
    Operation,
    TaskCall,
    ToolMessage,
    ToolReply,
    ToolSite,
    WireRequest,
    WireResponse,
    json_response,
)
from bridge.dialects.mcp import errors
from bridge.dialects.mcp.call import Call
from bridge.dialects.mcp.errors import DETAIL, refused
from bridge.dialects.mcp.options import FrontOptions
from bridge.dialects.mcp.read_request import new_thread, read_request
from bridge.dialects.mcp.results import failed, shaped
from bridge.dialects.mcp.tools import tools_of
from bridge.dialects.mcp.wire import (
    CAPABILITIES_KEY,
    FRESH_MS,
    METHOD_HEADER,
    NAME_HEADER,
    NAMED,
    SESSION_HEADER,
    SESSIONS,
    STATELESS,
    TASKS,
    VERSION_HEADER,
    VERSION_KEY,
    WITH_BATCHES,
    Head,
    Method,
    Wire,
    from_header,
    info,
    result,
    written,
)
from bridge.errors import Failure, RequestError, shortened
from bridge.model.jsontext import dict_of, dumps, kind_of, read_body, read_json
from bridge.toolkit import Node
from bridge.toolkit.check import need_json

_SESSION = "session"
_MOST_IN_BATCH = 100
_LONGEST_ID = 1000
_TRACE = ("traceparent", "tracestate")
_REFUSES = re.compile(r"(?:^|;)q=0(?:\.0{0,3})?(?:;|$)")
"""Parameters of a media type that the client does not take."""


def batch(wire: WireRequest, context: Context) -> list[WireRequest] | None:
    """Return the messages of a batch. Raises `RequestError` where the revision has none."""
    if wire.body.lstrip()[:1] != b"[":
        return None
    need_json(wire)
    messages = read_json(wire.body)
    if not isinstance(messages, list):
        read_body(wire.body)  # says what is wrong
    version = _session(wire, _site(context)).get("v") if SESSION_HEADER in wire.headers else None
    if version != WITH_BATCHES:
        raise refused(errors.REQUEST, f"Batches of messages exist in revision {WITH_BATCHES} only.")
    if not 0 < len(messages) <= _MOST_IN_BATCH:
        text = f"Expected a batch of 1 to {_MOST_IN_BATCH} messages, got {len(messages)}."
        raise refused(errors.REQUEST, text)
    return [replace(wire, body=dumps(message)) for message in messages]


def decode_message(wire: WireRequest, context: Context) -> ToolMessage:
    """Decode a message."""
    site = _site(context)
    if wire.method == "DELETE":
        _session(wire, site)
        return ToolMessage(Operation.TOOLS, WireResponse(200), ends=wire.headers[SESSION_HEADER])
    need_json(wire)
    context.error_details[DETAIL] = Head()
    members = read_body(wire.body)
    if members.get("method") is None and ("result" in members or "error" in members):
        return _reply(wire, members, site)
    params = _params(members, context)
    if "id" not in members:
        return _notification(wire, members["method"], params, site)
    call = _call(wire, members, params, context)
    context.error_details[DETAIL] = call.head._replace(call=call)
    return _dispatch(call, wire, context)


def read_call(wire: WireRequest, context: Context) -> Call:
    """Return the call of a request. Raises `RequestError`."""
    known = context.error_details.get(DETAIL)
    if isinstance(known, Head) and isinstance(known.call, Call):
        return known.call
    need_json(wire)
    context.error_details[DETAIL] = Head()
    members = read_body(wire.body)
    return _call(wire, members, _params(members, context), context)


def _site(context: Context) -> ToolSite:
    return context.site or ToolSite("backend", holds_questions=False)


# ------------------------------------------------------------------ JSON-RPC


def _params(members: Wire, context: Context) -> Wire:
    """Check the members that all messages have, and return the parameters."""
    call_id = members.get("id")
    if "id" in members:
        if isinstance(call_id, bool) or not isinstance(call_id, str | int | float):
            raise refused(errors.REQUEST, f"id: expected a string or a number, got {kind_of(call_id)}.", "id")
        if len(str(call_id)) > _LONGEST_ID:
            raise refused(errors.REQUEST, f"id: expected at most {_LONGEST_ID} characters.", "id")
    context.error_details[DETAIL] = Head(call_id)
    if members.get("jsonrpc") != "2.0":
        raise refused(errors.REQUEST, "jsonrpc: expected '2.0'.", "jsonrpc")
    if not isinstance(members.get("method"), str):
        got = kind_of(members["method"]) if "method" in members else "nothing"
        raise refused(errors.REQUEST, f"method: expected a string, got {got}.", "method")
    params = members.get("params")
    if not isinstance(params, dict | None):
        raise refused(errors.REQUEST, f"params: expected an object, got {kind_of(params)}.", "params")
    return params or {}


def _reply(wire: WireRequest, members: Wire, site: ToolSite) -> ToolMessage:
    """The answer to a question that was asked on the stream of a call."""
    _session(wire, site)
    reply = ToolReply(members.get("id"), members.get("result"))
    return ToolMessage(Operation.RUN, WireResponse(202), replies=reply, session=wire.headers[SESSION_HEADER])


def _notification(wire: WireRequest, method: str, params: Wire, site: ToolSite) -> ToolMessage:
    if _is_stateless(wire, method, params):
        return ToolMessage(Operation.TOOLS, WireResponse(202))  # a call is cancelled by closing its response
    _session(wire, site)
    session, cancels = wire.headers[SESSION_HEADER], params.get("requestId")
    if method != Method.CANCELLED or isinstance(cancels, bool) or not isinstance(cancels, str | int | float):
        return ToolMessage(Operation.TOOLS, WireResponse(202))
    return ToolMessage(Operation.CANCEL, WireResponse(202), cancels=cancels, session=session)


# ------------------------------------------------------------------ revisions


def _is_stateless(wire: WireRequest, method: str, params: Wire) -> bool:
    """Return whether a message is of the revision without sessions.

    One says so in its metadata, or by its header; with the id of a session, or without any sign, it is of the others.
    """
    if VERSION_KEY in dict_of(params.get("_meta")):
        return True
    said = wire.headers.get(VERSION_HEADER)
    return not (method == Method.INITIALIZE or SESSION_HEADER in wire.headers or said is None or said in SESSIONS)


def _call(wire: WireRequest, members: Wire, params: Wire, context: Context) -> Call:
    method, site = members["method"], _site(context)
    head = Head(members.get("id"), _is_stateless(wire, method, params))
    context.error_details[DETAIL] = head
    call = Call(method, params, head, STATELESS, site, streams=_takes_streams(wire.headers.get("accept", "")))
    if head.stateless:
        capabilities = _checked(wire, call)
        extensions = dict_of(capabilities.get("extensions"))
        return replace(call, elicits=_takes_forms(capabilities), takes_tasks=TASKS in extensions)
    if method == Method.INITIALIZE:
        return replace(call, version="")
    if context.site is None and SESSION_HEADER not in wire.headers:
        return replace(call, version=WITH_BATCHES)  # without a server there are no sessions
    known = _session(wire, site)
    return replace(call, version=known["v"], elicits=known["e"], session=wire.headers[SESSION_HEADER])


def _takes_streams(accept: str) -> bool:
    """Return whether a client takes an event stream; without the header it takes anything (RFC 9110, 12.5.1)."""
    kinds = [kind.replace(" ", "").lower().partition(";") for kind in accept.split(",") if kind.strip()]
    return not kinds or any(
        name in ("text/event-stream", "text/*", "*/*") and not _REFUSES.search(more) for name, _, more in kinds
    )


def _checked(wire: WireRequest, call: Call) -> Wire:
    """Check what every request without a session says, and return the capabilities of its client."""
    meta = call.params.get("_meta")
    if not isinstance(meta, dict):
        raise refused(errors.PARAMS, f"params._meta: required, with {VERSION_KEY!r} in it.", "params._meta")
    version, capabilities = meta.get(VERSION_KEY), meta.get(CAPABILITIES_KEY)
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        key = CAPABILITIES_KEY if isinstance(version, str) else VERSION_KEY
        what = "a string" if key == VERSION_KEY else "an object"
        raise refused(errors.PARAMS, f"params._meta.{key}: required, expected {what}.", f"params._meta.{key}")
    _check_header(wire, VERSION_HEADER, version)
    if version != STATELESS:
        raise errors.unknown_version(version, [STATELESS])
    _check_header(wire, METHOD_HEADER, call.method)
    named = call.params.get(NAMED.get(call.method, ""))
    if isinstance(named, str):
        _check_header(wire, NAME_HEADER, named)
    return capabilities


def _check_header(wire: WireRequest, name: str, value: str) -> None:
    said = wire.headers.get(name)
    if said is None or (said.strip() != value and from_header(said.strip()) != value):
        came = "it is missing" if said is None else f"got {shortened(said)!r}"
        raise refused(errors.HEADERS, f"{name}: expected the same as in the body; {came}.", name)


def _session(wire: WireRequest, site: ToolSite) -> Wire:
    """Return what is known of the session of a message. Raises `RequestError` if it has none, or one that is over."""
    token = wire.headers.get(SESSION_HEADER)
    if not token:
        text = f"{SESSION_HEADER}: required; send initialize first, or name the revision in params._meta."
        raise refused(errors.REQUEST, text, SESSION_HEADER)
    known = site.sealer.open(_SESSION, site.owner, token)
    if known is None or token in site.ended:
        raise refused(errors.UNKNOWN_SESSION, "Session not found; initialize a new one.", SESSION_HEADER)
    said = wire.headers.get(VERSION_HEADER)
    if said is not None and said.strip() not in SESSIONS:
        text = f"{VERSION_HEADER}: expected one of {', '.join(SESSIONS)}, got {shortened(said)!r}."
        raise refused(errors.REQUEST, text, VERSION_HEADER)
    return known


def _takes_forms(capabilities: Wire) -> bool:
    """Return whether a client shows forms of questions to a person; an empty declaration means these."""
    declared = capabilities.get("elicitation")
    return isinstance(declared, dict) and (not declared or "form" in declared)


# ------------------------------------------------------------------ methods


def _dispatch(call: Call, wire: WireRequest, context: Context) -> ToolMessage:
    match call.method:
        case Method.CALL:
            return _run(call, wire, context)
        case Method.LIST:
            return _answered(call, _list(call, context))
        case Method.INITIALIZE if not call.head.stateless:
            return _initialize(call, context)
        case Method.PING if not call.head.stateless:
            return _answered(call, {})
        case Method.DISCOVER if call.head.stateless:
            return _answered(call, _discover(call, context))
        case Method.GET_TASK | Method.UPDATE_TASK | Method.CANCEL_TASK if call.head.stateless and call.site.durable:
            return _task(call)
    raise refused(errors.UNKNOWN_METHOD, f"There is no method {shortened(call.method)!r}.", "method")


def _answered(call: Call, members: Wire, headers: dict[str, str] | None = None) -> ToolMessage:
    body = written(result(call.head, shaped(call.head, call.site.version, members)))
    return ToolMessage(Operation.TOOLS, json_response(body, headers=headers))


def _capabilities(call: Call) -> Wire:
    has_tasks = call.head.stateless and call.site.durable
    return {"tools": {"listChanged": False}, **({"extensions": {TASKS: {}}} if has_tasks else {})}


def _instructions(context: Context) -> Wire:
    text = FrontOptions.of(context).instructions
    return {"instructions": text} if text else {}


def _initialize(call: Call, context: Context) -> ToolMessage:
    params = Node(call.params, "params")
    wanted = params.string("protocolVersion")
    version = wanted if wanted in SESSIONS else SESSIONS[0]
    elicits = _takes_forms(dict_of(params.get("capabilities")))
    site = call.site
    session = site.sealer.seal(_SESSION, site.owner, {"v": version, "e": elicits, "n": context.run_id})
    members = {
        "protocolVersion": version,
        "capabilities": _capabilities(call),
        "serverInfo": info(site.version),
        **_instructions(context),
    }
    return _answered(call, members, {SESSION_HEADER: session})


def _discover(call: Call, context: Context) -> Wire:
    return {
        "supportedVersions": [STATELESS],
        "capabilities": _capabilities(call),
        **_instructions(context),
        "ttlMs": FRESH_MS,
        "cacheScope": "private",
    }


def _list(call: Call, context: Context) -> Wire:
    if call.params.get("cursor") is not None:
        raise refused(errors.PARAMS, "params.cursor: unknown; the list has one page.", "params.cursor")
    tools = list(tools_of(FrontOptions.of(context), call.site).values())
    return {"tools": tools, **({"ttlMs": FRESH_MS, "cacheScope": "private"} if call.head.stateless else {})}


def _run(call: Call, wire: WireRequest, context: Context) -> ToolMessage:
    name = call.params.get("name")
    if not isinstance(name, str):
        raise refused(errors.PARAMS, f"params.name: expected a string, got {kind_of(name)}.", "params.name")
    if name not in tools_of(FrontOptions.of(context), call.site):
        raise refused(errors.PARAMS, f"Unknown tool: {shortened(name)}", "params.name")
    message = ToolMessage(
        Operation.RUN,
        id=call.head.id,
        session=call.session,
        outlives=not call.head.stateless,
        streams=call.streams,
        trace=_trace(call),
    )
    try:
        request = read_request(call, context)
    except RequestError as error:
        if errors.has_kind(error.failure):
            raise
        # The model that wrote the arguments can mend them.
        members = failed(Failure(error.code, error.message))
        return replace(message, answer=_answered(call, members).answer)
    continues = not request.resume and request.thread_id != new_thread(context)
    message = replace(message, continues=continues)
    if not request.stream:
        return replace(message, task=TaskCall(Operation.RUN, at_once=True, sent=call))
    return message


def _trace(call: Call) -> dict[str, str] | None:
    """Return the context of the trace that a call belongs to, which clients put into its metadata."""
    named = {key: value for key in _TRACE if isinstance(value := call.meta.get(key), str)}
    return named if "traceparent" in named else None


def _task(call: Call) -> ToolMessage:
    if not call.takes_tasks:
        raise errors.missing_capability({"extensions": {TASKS: {}}})
    task_id = call.params.get("taskId")
    if not isinstance(task_id, str) or not 0 < len(task_id) <= _LONGEST_ID:
        raise refused(errors.PARAMS, "params.taskId: expected the id of a task.", "params.taskId")
    match call.method:
        case Method.GET_TASK:
            task = TaskCall(Operation.RETRIEVE, task_id, sent=call)
        case Method.CANCEL_TASK:
            task = TaskCall(Operation.CANCEL, task_id, sent=call)
        case _:
            task = TaskCall(Operation.RUN, task_id, at_once=True, sent=call)
    return ToolMessage(task.operation, task=task)
