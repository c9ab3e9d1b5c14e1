"""Decodes calls: method, version, parameters and head, in both bindings."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from bridge.contract import Context, Operation, WireRequest
from bridge.contract.optional.agent_tasks import TaskCall
from bridge.dialects.a2a import write_errors
from bridge.dialects.a2a.old_rest import OldRest, read_params
from bridge.dialects.a2a.options import FrontOptions
from bridge.dialects.a2a.push import ACTIONS, config_in, read_push, read_target
from bridge.dialects.a2a.wire import (
    EXTENSIONS_HEADER,
    LONGEST_ID,
    METHODS,
    OLD_BASE,
    OLD_EXTENSIONS_HEADER,
    OLD_METHODS,
    VERSION_HEADER,
    Method,
    Spelled,
    Version,
    camel_keys,
)
from bridge.dialects.a2a.write_errors import DETAIL, Head, refused
from bridge.errors import RequestError, shortened
from bridge.model.jsontext import kind_of, read_body, read_json
from bridge.toolkit.check import need_json

_NEW = re.compile(r"1(?:\.\d{1,9}){0,2}")
_OLD = re.compile(r"(?:0\.3(?:\.\d{1,9})?)?")
"""Versions as the header says them; a third number says nothing of the protocol."""
_OPERATIONS = {
    Method.SEND: Operation.RUN,
    Method.STREAM: Operation.RUN,
    Method.GET: Operation.RETRIEVE,
    Method.LIST: Operation.ITEMS,
    Method.CANCEL: Operation.CANCEL,
    Method.SUBSCRIBE: Operation.SUBSCRIBE,
    Method.SET_PUSH: Operation.RUN,
    Method.GET_PUSH: Operation.RETRIEVE,
    Method.LIST_PUSH: Operation.ITEMS,
    Method.DELETE_PUSH: Operation.RUN,
    Method.EXTENDED_CARD: Operation.DESCRIBE,
}
_CONFIGS = re.compile(r"/tasks/([^/:]+)/pushNotificationConfigs(?:/([^/]+))?")
_FOR_ONE = frozenset({Method.GET, Method.CANCEL, Method.SUBSCRIBE})
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Call:
    """A call as it was sent. `params` has the names of version 1.0, and their places in the client's body."""

    method: Method
    version: Version
    params: Spelled
    head: Head
    extensions: tuple[str, ...] = ()


def read_call(wire: WireRequest, context: Context) -> Call:
    """Return the call of a request. Raises `RequestError`, with the head in `context.error_details`."""
    known = context.error_details.get(DETAIL)
    if isinstance(known, Head) and known.call is not None:
        read: Call = known.call
        return read
    call = _over_http(wire, context) if wire.path.strip("/") else _over_json_rpc(wire, context)
    if not FrontOptions.of(context).push_hosts and (call.method in ACTIONS or _config(call) is not None):
        raise write_errors.no_push()
    if call.method is Method.EXTENDED_CARD and not FrontOptions.of(context).extended_card:
        raise refused(write_errors.UNSUPPORTED, "This agent has no extended card.")
    context.error_details[DETAIL] = call.head._replace(call=call)
    return call


def decode_call(wire: WireRequest, context: Context) -> TaskCall:
    """Decode a call."""
    call = read_call(wire, context)
    params = call.params
    if call.method in (Method.SEND, Method.STREAM):
        message = params.need_object("message")
        config = _config(call)
        target = read_target(config, call.version) if config is not None else None
        return TaskCall(
            Operation.RUN,
            _known(message.string("taskId")) or None,
            at_once=at_once(call),
            sent=call,
            push_target=target,
        )
    if call.method in ACTIONS:
        task_id, push = read_push(call.method, params, call.version)
        return TaskCall(_OPERATIONS[call.method], _known(task_id), sent=call, push=push)
    one = _known(params.need_string("id")) if call.method in _FOR_ONE else None
    thread = params.string("contextId") if call.method is Method.LIST else None
    return TaskCall(_OPERATIONS[call.method], one, thread or None, sent=call)


def _known(task_id: str | None) -> str | None:
    """Return the id of a task. Raises `RequestError` for one that no task has, as it is too long to be stored."""
    if task_id is not None and len(task_id.encode("utf-8", "replace")) > LONGEST_ID:
        raise refused(write_errors.NOT_FOUND, f"Task {shortened(task_id)!r} not found.")
    return task_id


def _config(call: Call) -> Spelled | None:
    """The push notification config that comes with a message."""
    return config_in(call.params.object("configuration")) if call.method in (Method.SEND, Method.STREAM) else None


def at_once(call: Call) -> bool:
    """Return whether the client of a message wants its task without waiting for the answer."""
    configuration = call.params.object("configuration")
    if call.method is Method.STREAM or configuration is None:
        return False
    if call.version is Version.OLD:
        return configuration.boolean("blocking") is False
    return configuration.boolean("returnImmediately") is True


# ------------------------------------------------------------------ JSON-RPC


def _over_json_rpc(wire: WireRequest, context: Context) -> Call:
    context.error_details[DETAIL] = Head()
    body = _body(wire)
    call_id = body.get("id")
    if isinstance(call_id, float):
        call_id = json.loads(wire.body)["id"]  # exactly as sent: the fast parser makes integers beyond 64 bits floats
    if isinstance(call_id, bool) or not isinstance(call_id, str | int | float | None):
        raise refused(write_errors.REQUEST, f"id: expected a string or a number, got {kind_of(call_id)}.", "id")
    if len(str(call_id)) > LONGEST_ID:
        raise refused(write_errors.REQUEST, f"id: expected at most {LONGEST_ID} characters.", "id")
    head = context.error_details[DETAIL] = Head(id=call_id)
    if body.get("jsonrpc") != "2.0":
        raise refused(write_errors.REQUEST, "jsonrpc: expected '2.0'.", "jsonrpc")
    name = body.get("method")
    if not isinstance(name, str):
        raise refused(write_errors.REQUEST, f"method: expected a string, got {kind_of(name)}.", "method")
    method = METHODS.get(name)
    if method is None:
        raise refused(write_errors.METHOD, f"There is no method {shortened(name)!r}.", "method")
    version = _version(wire, context, Version.OLD if name in OLD_METHODS else Version.NEW)
    params = body.get("params")
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise refused(write_errors.PARAMS, f"params: expected an object, got {kind_of(params)}.", "params")
    return Call(method, version, Spelled(params, "params"), head, _extensions(wire))


def _body(wire: WireRequest) -> dict[str, Any]:
    body = wire.body
    try:
        need_json(wire)
    except RequestError as error:
        raise refused(write_errors.CONTENT_TYPE, error.message, error.failure.param, 415) from None
    try:
        return read_body(body)
    except RequestError as error:
        # JSON that is not a call, and text that is not JSON, have different errors.
        said = body.strip()
        kind = write_errors.PARSE if said not in (b"", b"null") and read_json(body) is None else write_errors.REQUEST
        raise refused(kind, error.message) from None


def _version(wire: WireRequest, context: Context, named: Version) -> Version:
    """Return the version of a call whose method is of version `named`. No header means 0.3."""
    said = (wire.headers.get(VERSION_HEADER) or wire.query.get("A2A-Version") or "").strip()
    version = Version.NEW if _NEW.fullmatch(said) else Version.OLD if _OLD.fullmatch(said) else None
    served = FrontOptions.of(context).versions
    if version is not named or version not in served:
        what = shortened(said) if said else "0.3 (no A2A-Version)"
        differs = version is not None and version is not named
        method = f" for a method of {named}" if differs else ""
        expected = named if differs and named in served else ", ".join(served)
        text = f"The version {what} is not served{method}; expected A2A-Version: {expected}."
        raise refused(write_errors.VERSION, text, VERSION_HEADER)
    return version


def _extensions(wire: WireRequest) -> tuple[str, ...]:
    said = wire.headers.get(EXTENSIONS_HEADER) or wire.headers.get(OLD_EXTENSIONS_HEADER) or ""
    return tuple(uri for each in said.split(",") if (uri := each.strip()))


# ------------------------------------------------------------------ HTTP+JSON


def _over_http(wire: WireRequest, context: Context) -> Call:
    path = wire.path.rstrip("/")
    is_old = path.startswith(OLD_BASE + "/")
    version = Version.OLD if is_old else Version.NEW
    head = context.error_details[DETAIL] = Head(rest=True, old_rest=is_old)
    _version(wire, context, version)
    method, params = _addressed(wire, path.removeprefix(OLD_BASE), version)
    return Call(method, version, OldRest(params) if is_old else Spelled(params), head, _extensions(wire))


def _addressed(wire: WireRequest, path: str, version: Version) -> tuple[Method, dict[str, Any]]:
    """Return the method that an address names, with its parameters from the path, the query and the body."""
    if path in ("/message:send", "/message:stream"):
        body = _body(wire)
        method = Method.SEND if path.endswith(":send") else Method.STREAM
        return method, read_params(body) if version is Version.OLD else body
    if path in ("/extendedAgentCard", "/card"):
        return Method.EXTENDED_CARD, {}
    if (found := _CONFIGS.fullmatch(path)) is not None:
        return _of_configs(wire, found[1], found[2], version)
    query = {name: _from_query(name, value) for name, value in camel_keys(dict(wire.query)).items()}
    task, _, action = path.removeprefix("/tasks").removeprefix("/").partition(":")
    if not path.startswith("/tasks") or action not in ("", "cancel", "subscribe"):
        raise refused(write_errors.METHOD, f"There is nothing at {shortened(wire.path)}.")
    if not task:
        return Method.LIST, query
    method = {"cancel": Method.CANCEL, "subscribe": Method.SUBSCRIBE}.get(action, Method.GET)
    return method, {**query, "id": task}


def _of_configs(wire: WireRequest, task: str, config: str | None, version: Version) -> tuple[Method, dict[str, Any]]:
    """The call for the push notification configs of a task, or for one of them."""
    is_old = version is Version.OLD
    if wire.method == "POST":
        body = camel_keys(_body(wire))
        if is_old and isinstance(body.get("config"), dict):
            body = camel_keys(body["config"])
        return Method.SET_PUSH, {**body, "taskId": task}
    one = {"id": task, "pushNotificationConfigId": config} if is_old else {"taskId": task, "id": config}
    if config is None:
        return Method.LIST_PUSH, one
    return Method.DELETE_PUSH if wire.method == "DELETE" else Method.GET_PUSH, one


def _from_query(name: str, value: str) -> Any:
    return _FLAGS.get(value, value) if name == "includeArtifacts" else value
