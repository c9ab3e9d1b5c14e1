"""Failures -> JSON-RPC errors, which clients read and models do not.

What a model could mend or should know is no error but a result with `isError` (`answer.failed`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from bridge.contract import WireResponse, json_response
from bridge.dialects.mcp.wire import (
    CAPABILITY_MISSING,
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REFUSED,
    VERSION_UNKNOWN,
    Head,
    Wire,
    written,
)
from bridge.errors import ErrorCode, Failure, RequestError, Wrong
from bridge.toolkit.redact import masked

DETAIL = "mcp"
"""The key of a failure's details with the `Head` of the request that failed."""
_KIND = "mcp_kind"


class Kind(NamedTuple):
    """The code of an error, its HTTP status, and its data.

    Within a session errors have the status 200, except those `of_http`.
    """

    code: int
    status: int = 400
    data: Any = None
    of_http: bool = False


PARAMS = Kind(INVALID_PARAMS)
REQUEST = Kind(INVALID_REQUEST, of_http=True)
UNKNOWN_METHOD = Kind(METHOD_NOT_FOUND, 404)
UNKNOWN_SESSION = Kind(INVALID_REQUEST, 404, of_http=True)
HEADERS = Kind(HEADER_MISMATCH)

_BY_CODE = {
    ErrorCode.INVALID_REQUEST: INVALID_REQUEST,
    ErrorCode.UNSUPPORTED: INVALID_PARAMS,
    ErrorCode.CONFLICT: INVALID_PARAMS,
    ErrorCode.UNAUTHORIZED: REFUSED,
    ErrorCode.FORBIDDEN: REFUSED,
    ErrorCode.TOO_LARGE: REFUSED,
    ErrorCode.RATE_LIMITED: REFUSED,
    ErrorCode.OVERLOADED: REFUSED,
}


def refused(kind: Kind, message: str, param: str | None = None) -> RequestError:
    """Return an error of this kind."""
    return RequestError(message, param=param, details={_KIND: kind})


def has_kind(failure: Failure) -> bool:
    """Return whether a failure is an error of the protocol, and not one of the arguments of a tool."""
    return isinstance(failure.details.get(_KIND), Kind)


def unknown_version(requested: str, supported: list[str]) -> RequestError:
    """Return the error for a revision that is not served."""
    data = {"supported": supported, "requested": requested[:100]}
    return refused(Kind(VERSION_UNKNOWN, data=data), "Unsupported protocol version.")


def missing_capability(capabilities: Wire) -> RequestError:
    """Return the error for a client that did not declare what its request needs."""
    kind = Kind(CAPABILITY_MISSING, data={"requiredCapabilities": capabilities})
    return refused(kind, "The client did not declare a capability that this request needs.")


def encode_error(failure: Failure) -> WireResponse:
    """Return the response for a failure before a call has begun."""
    head = failure.details.get(DETAIL)
    kind = failure.details.get(_KIND)
    known = head if isinstance(head, Head) else None
    head = known or Head()
    status, data = failure.http_status, None
    if isinstance(kind, Kind):
        code, data = kind.code, kind.data
        is_http = head.stateless or known is None or kind.of_http
        status = kind.status if is_http else 200
    elif failure.wrong in (Wrong.JSON, Wrong.ENCODING):
        code = -32700
    elif failure.code is ErrorCode.NOT_FOUND:
        # Within a call a task, else the path.
        code = INVALID_PARAMS if known is not None else METHOD_NOT_FOUND
        status = 400 if known is not None else status
    else:
        code = _BY_CODE.get(failure.code, INTERNAL_ERROR)
    error: Wire = {"code": code, "message": masked(failure.message) or "Unknown error."}
    if data is not None:
        error["data"] = data
    elif failure.param:
        error["data"] = {"param": masked(failure.param, 200)}
    body = {"jsonrpc": "2.0", "id": head.id, "error": error}
    return json_response(written(body), status, dict(failure.headers))
