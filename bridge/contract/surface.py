"""The endpoints of a dialect, as data. The server owns one handler per operation and none per dialect."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

PIECE = re.compile(r"\{(\w+)(?::[^{}]*)?\}")
"""A named piece of a path, perhaps with a pattern that it must match."""


def shown_path(path: str) -> str:
    """Return a path of the surface for people: `{name}` for each piece, whatever it must match."""
    return PIECE.sub(r"{\1}", path)


class Operation(StrEnum):
    """The purpose of an endpoint: a closed list."""

    RUN = "run"
    SESSION = "session"
    SOCKET = "socket"
    CONNECT = "connect"
    START = "start"
    SUBSCRIBE = "subscribe"
    STATUS = "status"
    RETRIEVE = "retrieve"
    DELETE = "delete"
    ITEMS = "items"
    CANCEL = "cancel"
    COUNT = "count"
    HISTORY = "history"
    ATTACH = "attach"
    FETCH = "fetch"
    SIGN = "sign"
    STOP = "stop"
    TRANSCRIBE = "transcribe"
    MODELS = "models"
    DESCRIBE = "describe"
    TASKS = "tasks"
    TOOLS = "tools"
    FORWARD = "forward"
    EMBED = "embed"
    ANSWER = "answer"
    HEALTH = "health"
    CALL = "call"
    REGISTER = "register"
    DEREGISTER = "deregister"
    BEAT = "beat"
    UPDATE = "update"
    DISCOVER = "discover"


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """A parameter in the query of an endpoint, for the description of the surface. `format` is JSON Schema's."""

    name: str
    description: str
    required: bool = False
    type: Literal["string", "integer", "boolean"] = "string"
    minimum: int | None = None
    maximum: int | None = None
    default: int | str | None = None
    choices: tuple[str, ...] = ()
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint. `path` is relative to the mount path and may hold `{name}` or `{name:.+}` pieces.

    `header` lets two dialects share a path: requests with this header go to this endpoint, others to the endpoint
    without one; an endpoint that does not share its path gets all. `shared`: dialects answer this endpoint alike, so
    that their routes may have the same path, and the answer covers all of them. `public`: no authentication is needed,
    since something else in the request grants access (a signed URL). `query_token` names the route option that, when
    true, lets this endpoint take a key from the query parameter `access_token`; `query_key` is the query parameter in
    which clients of the protocol may always send one. `durable`: the endpoint needs the run store and exists on durable
    routes only; `live`: only on routes that are neither durable nor passthrough. `query` and `success`, the status of
    an accepted request, are documentation.
    """

    method: str
    path: str
    operation: Operation
    header: str | None = None
    shared: bool = False
    public: bool = False
    query_token: str | None = None
    query_key: str = ""
    durable: bool = False
    live: bool = False
    query: tuple[QueryParameter, ...] = ()
    success: int = 200


Surface = tuple[Endpoint, ...]
"""The endpoints of a dialect, below the path where it is mounted."""


def served(surface: Surface, durable: bool, passthrough: bool = False, forwards: bool = False) -> Surface:
    """Return the endpoints of a route; `forwards`: it has a backend for requests that are forwarded unchanged."""
    return tuple(
        endpoint
        for endpoint in surface
        if (durable or not endpoint.durable)
        and not (endpoint.live and (durable or passthrough))
        and (forwards or endpoint.operation is not Operation.FORWARD)
    )


def offers(surface: Surface, operation: Operation) -> bool:
    """Return whether one of the endpoints is for this operation."""
    return any(endpoint.operation is operation for endpoint in surface)
