"""Failures -> the errors of both bindings (docs/dialects/a2a.md).

Over JSON-RPC an error is an answer like any other, with HTTP status 200, except where the protocol leaves it to HTTP:
who may call, how much, and requests that never were calls. Over plain HTTP it has the status of its kind.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from bridge.contract import WireResponse, json_response
from bridge.dialects.a2a.wire import CODE, Wire, written
from bridge.errors import RULES, ErrorCode, Failure, RequestError
from bridge.toolkit.redact import masked

_TYPE = "type.googleapis.com/google.rpc."
_DOMAIN = "a2a-protocol.org"
DETAIL = "a2a"
"""The key of a failure's details with the `Head` of the request that failed, and of the kind of the failure."""
_KIND = "a2a_kind"


_REST = re.compile(r"/message:|/tasks(?:[/:]|$)|/extendedAgentCard/?$|/v1/card/?$")
"""The end of every address of HTTP+JSON."""


class Kind(NamedTuple):
    """One kind of error: its number in JSON-RPC, its HTTP status, its gRPC status, its reason."""

    number: int
    status: int
    grpc: str
    reason: str


PARSE = Kind(-32700, 400, "INVALID_ARGUMENT", "INVALID_REQUEST")
REQUEST = Kind(-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST")
METHOD = Kind(-32601, 404, "NOT_FOUND", "METHOD_NOT_FOUND")
PARAMS = Kind(-32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS")
INTERNAL = Kind(-32603, 500, "INTERNAL", "INTERNAL_ERROR")
NOT_FOUND = Kind(-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND")
NOT_CANCELABLE = Kind(-32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE")
NO_PUSH = Kind(-32003, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED")
UNSUPPORTED = Kind(-32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION")
CONTENT_TYPE = Kind(-32005, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED")
NO_EXTENDED_CARD = Kind(-32007, 400, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED")
VERSION = Kind(-32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED")

_KINDS = {
    ErrorCode.INVALID_REQUEST: PARAMS,
    ErrorCode.NOT_FOUND: NOT_FOUND,
    ErrorCode.CONFLICT: UNSUPPORTED,
    ErrorCode.UNSUPPORTED: CONTENT_TYPE,
}
_UNTOLD = frozenset({ErrorCode.CONFLICT, ErrorCode.UNSUPPORTED})
"""Codes whose kinds other agents use for other failures as well."""
_BY_HTTP = frozenset(
    {
        ErrorCode.UNAUTHORIZED,
        ErrorCode.FORBIDDEN,
        ErrorCode.TOO_LARGE,
        ErrorCode.RATE_LIMITED,
        ErrorCode.OVERLOADED,
        ErrorCode.STORE_UNAVAILABLE,
    }
)
"""Failures with an HTTP status in both bindings: clients read the status, and when to retry."""


class Head(NamedTuple):
    """What an answer depends on beside its content: the binding, and the id of a JSON-RPC call.

    `old_rest`: the binding is HTTP+JSON of 0.3, whose errors have another shape. `call` is the whole call, once it was
    read: what decodes the same request again does not parse it again.
    """

    rest: bool = False
    id: Any = None
    old_rest: bool = False
    call: Any = None


def refused(kind: Kind, message: str, param: str | None = None, status: int | None = None) -> RequestError:
    """Return an error of this kind; `status` is its HTTP status where that is not the one of its kind."""
    code = ErrorCode.NOT_FOUND if kind is NOT_FOUND else ErrorCode.INVALID_REQUEST
    return RequestError(message, code=code, param=param, status=status, details={_KIND: kind})


def no_push() -> RequestError:
    """Return the error for calls about push notifications if they are not supported."""
    return refused(NO_PUSH, "This agent sends no push notifications.")


def kind_of(failure: Failure) -> Kind:
    """Return the kind of error that a failure is."""
    known = failure.details.get(_KIND)
    if isinstance(known, Kind):
        return known
    # A request for a model of another route, or a page that does not exist, names no task.
    if failure.code is ErrorCode.NOT_FOUND and failure.backend_code:
        return METHOD if failure.backend_code == "unknown_url" else PARAMS
    return _KINDS.get(failure.code, INTERNAL)


def encode_error(failure: Failure) -> WireResponse:
    """Return the response for a failure; its details have the head of the call if there was one."""
    head = failure.details.get(DETAIL)
    kind, message = kind_of(failure), masked(failure.message) or "Unknown error."
    headers = dict(failure.headers)
    details = _details(kind, message, failure)
    if isinstance(head, Head) and head.old_rest:
        status = failure.http_status if _by_http(failure, kind) else kind.status
        return json_response(written({"code": kind.number, "message": message, "data": details}), status, headers)
    if head.rest if isinstance(head, Head) else _is_rest(failure):
        status = failure.http_status if _by_http(failure, kind) else kind.status
        grpc = RULES[failure.code].grpc if _by_http(failure, kind) else kind.grpc
        body: Wire = {"error": {"code": status, "status": grpc, "message": message, "details": details}}
        return json_response(written(body), status, headers)
    error = {"code": kind.number, "message": message, "data": details}
    body = {"jsonrpc": "2.0", "id": head.id if isinstance(head, Head) else None, "error": error}
    is_call = isinstance(head, Head) and failure.code not in _BY_HTTP
    return json_response(written(body), 200 if is_call else failure.http_status, headers)


def _by_http(failure: Failure, kind: Kind) -> bool:
    """Return whether the failure has a status of its own, which the protocol's table does not have."""
    return failure.code in _BY_HTTP or failure.status is not None or kind is INTERNAL


def _is_rest(failure: Failure) -> bool:
    """Return whether a request whose call was not read is for an address of the HTTP+JSON binding."""
    path = failure.details.get("path")
    return isinstance(path, str) and _REST.search(path) is not None


def _details(kind: Kind, message: str, failure: Failure) -> list[Wire]:
    details: list[Wire] = [{"@type": f"{_TYPE}ErrorInfo", "reason": kind.reason, "domain": _DOMAIN, "metadata": {}}]
    if kind is INTERNAL or failure.code in _UNTOLD:
        details[0]["metadata"] = {CODE: str(failure.code)}
    if failure.param and kind in (PARAMS, REQUEST):
        violation = {"field": failure.param, "description": message}
        details.append({"@type": f"{_TYPE}BadRequest", "fieldViolations": [violation]})
    return details
