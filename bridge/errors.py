"""Error codes, failures and exceptions.

There is one closed list of codes, one table from a code to HTTP status, gRPC status and retry rule, one value
(`Failure`) that events and responses carry, and a small tree of exceptions that hold it. Dialects translate codes,
never exceptions. A message says what was expected, what came, and where; clients read it, so it never contains a key, a
request body or a stack trace.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any


class ErrorCode(StrEnum):
    """The closed list of failure kinds."""

    INVALID_REQUEST = "invalid_request"
    """The request is malformed: invalid JSON, a missing field, or a field of the wrong type."""
    UNAUTHORIZED = "unauthorized"
    """The request has no key or token, or one that the bridge does not accept."""
    FORBIDDEN = "forbidden"
    """The caller is known but not permitted: the key is for another route, or the object belongs to another user."""
    NOT_FOUND = "not_found"
    """The path, model, thread, run or stored answer does not exist."""
    CONFLICT = "conflict"
    """The request conflicts with earlier ones: the session has a run, the run id was used with another body, or the
    question is already answered."""
    TOO_LARGE = "too_large"
    """A body, file or medium exceeds a limit; the message names the limit."""
    UNSUPPORTED = "unsupported"
    """The request is valid, but the backend's dialect cannot express it; the message names the field."""
    RATE_LIMITED = "rate_limited"
    """Too many requests: the backend's rate limit or a limit of the caller's key is exceeded."""
    OVERLOADED = "overloaded"
    """The backend, the route or the server is at capacity, or the backend's circuit breaker is open."""
    CONTEXT_LENGTH = "context_length"
    """The backend reports that the conversation exceeds its model's context window."""
    CONTENT_FILTER = "content_filter"
    """The backend's content filter refused the request."""
    BACKEND_AUTH = "backend_auth"
    """The backend refused the bridge's own key, which only the operator can fix. Its message is not passed on."""
    BACKEND_UNAVAILABLE = "backend_unavailable"
    """The backend, or a proxy in front of it, could not be reached."""
    BACKEND_TIMEOUT = "backend_timeout"
    """The backend did not connect, start or continue its answer in time (`timeouts` of the backend)."""
    BACKEND_ERROR = "backend_error"
    """The backend reported a failure."""
    BACKEND_PROTOCOL = "backend_protocol"
    """The backend's answer is not valid in its dialect, or exceeds a size limit."""
    TRUNCATED_STREAM = "truncated_stream"
    """The backend's stream ended before the answer was complete."""
    CANCELED = "canceled"
    """The client disconnected, or an authorized caller canceled the run."""
    RUN_LOST = "run_lost"
    """The process that executed the run stopped or crashed."""
    RUN_TIMEOUT = "run_timeout"
    """The run exceeded its total time (`timeouts.total` of the backend, or `timeout` of a task)."""
    STORE_UNAVAILABLE = "store_unavailable"
    """A store (SQLite, PostgreSQL or S3) does not respond."""
    INTERNAL = "internal"
    """A bug in the bridge. Find it in the log by the request id."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How one code appears outside: HTTP status, gRPC status name, and whether the same call may be repeated."""

    http: int
    grpc: str
    retry: bool


RULES: dict[ErrorCode, Rule] = {
    ErrorCode.INVALID_REQUEST: Rule(400, "INVALID_ARGUMENT", False),
    ErrorCode.UNAUTHORIZED: Rule(401, "UNAUTHENTICATED", False),
    ErrorCode.FORBIDDEN: Rule(403, "PERMISSION_DENIED", False),
    ErrorCode.NOT_FOUND: Rule(404, "NOT_FOUND", False),
    ErrorCode.CONFLICT: Rule(409, "ABORTED", False),
    ErrorCode.TOO_LARGE: Rule(413, "RESOURCE_EXHAUSTED", False),
    ErrorCode.UNSUPPORTED: Rule(400, "INVALID_ARGUMENT", False),
    ErrorCode.RATE_LIMITED: Rule(429, "RESOURCE_EXHAUSTED", True),
    ErrorCode.OVERLOADED: Rule(503, "UNAVAILABLE", True),
    ErrorCode.CONTEXT_LENGTH: Rule(400, "INVALID_ARGUMENT", False),
    ErrorCode.CONTENT_FILTER: Rule(400, "INVALID_ARGUMENT", False),
    # The backend refused the bridge's key: the caller has done nothing wrong and cannot fix it.
    ErrorCode.BACKEND_AUTH: Rule(502, "UNAVAILABLE", False),
    ErrorCode.BACKEND_UNAVAILABLE: Rule(502, "UNAVAILABLE", True),
    ErrorCode.BACKEND_TIMEOUT: Rule(504, "DEADLINE_EXCEEDED", True),
    ErrorCode.BACKEND_ERROR: Rule(502, "UNAVAILABLE", True),
    ErrorCode.BACKEND_PROTOCOL: Rule(502, "UNAVAILABLE", False),
    ErrorCode.TRUNCATED_STREAM: Rule(502, "UNAVAILABLE", True),
    ErrorCode.CANCELED: Rule(499, "CANCELLED", False),
    ErrorCode.RUN_LOST: Rule(500, "ABORTED", False),
    ErrorCode.RUN_TIMEOUT: Rule(504, "DEADLINE_EXCEEDED", False),
    ErrorCode.STORE_UNAVAILABLE: Rule(503, "UNAVAILABLE", True),
    ErrorCode.INTERNAL: Rule(500, "INTERNAL", False),
}

BY_STATUS: Mapping[int, ErrorCode] = {
    400: ErrorCode.INVALID_REQUEST,
    401: ErrorCode.BACKEND_AUTH,
    402: ErrorCode.BACKEND_AUTH,
    403: ErrorCode.BACKEND_AUTH,
    404: ErrorCode.NOT_FOUND,
    405: ErrorCode.BACKEND_PROTOCOL,
    408: ErrorCode.BACKEND_TIMEOUT,
    409: ErrorCode.CONFLICT,
    413: ErrorCode.TOO_LARGE,
    422: ErrorCode.INVALID_REQUEST,
    429: ErrorCode.RATE_LIMITED,
    502: ErrorCode.BACKEND_UNAVAILABLE,
    503: ErrorCode.OVERLOADED,
    504: ErrorCode.BACKEND_TIMEOUT,
}
"""The code for a backend's HTTP status if its body has nothing better. Dialects add statuses of their own."""

KEY_REFUSED = "The backend refused the bridge's credentials."
"""Replaces the backend's own message, which may repeat the key."""


UNKNOWN_THREAD = "unknown_thread"
"""Key in the details of a failure that is true if the backend does not know a conversation that it had before."""

LONGEST_QUOTE = 200
"""The most characters of a foreign value that an error message repeats."""


def shortened(value: str) -> str:
    """Return a value of a client or a backend for an error message: its first `LONGEST_QUOTE` characters and "...".

    Every message that repeats such a value shortens it with this; quote it with `!r` in a sentence.
    """
    return value if len(value) <= LONGEST_QUOTE else f"{value[:LONGEST_QUOTE]}..."


class Wrong(StrEnum):
    """The kind of what is wrong, for code that acts on it or a dialect that has a code for it.

    No code reads the texts of the bridge's own errors.
    """

    EMPTY = "empty"
    """The body is empty."""
    ENCODING = "encoding"
    """The body is not UTF-8."""
    JSON = "json"
    """The body is not valid JSON."""
    MISSING = "missing"
    """A required field is absent."""
    TYPE = "type"
    """A field has a value of another type than it should, or one that is not among those allowed."""
    COMPRESSION = "compression"
    """A backend's answer is compressed in a way that cannot be read."""


@dataclass(slots=True)
class Failure:
    """One failure as a value.

    `param` is the position in the request (`messages[2].content`). `status` is an HTTP status that is more precise
    than that of the code (422 of a backend, 405 of the bridge). `backend_code` is the backend's own code, which clients
    may handle (`insufficient_quota`). `headers` are response headers that must reach the client (`retry-after`).
    `cause` is only for the log: the call that failed, the backend's answer, and what to check. `wrong` is the kind of
    what is wrong with a request or an answer.
    """

    code: ErrorCode
    message: str
    param: str | None = None
    status: int | None = None
    backend_code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    cause: str = field(default="", compare=False)
    wrong: Wrong | None = field(default=None, compare=False)

    @property
    def http_status(self) -> int:
        """The HTTP status for a client: the failure's own, else the code's."""
        return self.status or RULES[self.code].http

    @property
    def may_retry(self) -> bool:
        """True if the same call may succeed when it is repeated."""
        return RULES[self.code].retry


def with_status(failure: Failure, status: int) -> Failure:
    """Return the failure with the backend's 400 or 422, which every client is to see, if it blames the request."""
    if status in (400, 422) and failure.status is None and failure.code is ErrorCode.INVALID_REQUEST:
        failure.status = status
    return failure


class BridgeError(Exception):
    """Base class of the exceptions of this project."""

    default = ErrorCode.INTERNAL

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        param: str | None = None,
        status: int | None = None,
        backend_code: str | None = None,
        headers: dict[str, str] | None = None,
        details: dict[str, Any] | None = None,
        wrong: Wrong | None = None,
    ) -> None:
        super().__init__(message)
        self.failure = Failure(
            code or self.default, message, param, status, backend_code, headers or {}, details or {}, wrong=wrong
        )

    @classmethod
    def of(cls, failure: Failure) -> BridgeError:
        """Return the exception for a failure, of the class that fits its code."""
        kinds = (Unsupported, RequestError, Canceled, BackendError)
        kind = next((k for k in kinds if failure.code in k.codes), BridgeError)
        error = kind(failure.message)
        error.failure = failure
        return error

    codes: frozenset[ErrorCode] = frozenset()

    @property
    def code(self) -> ErrorCode:
        return self.failure.code

    @property
    def message(self) -> str:
        return self.failure.message


class RequestError(BridgeError):
    """The caller's fault: the request is invalid or not permitted."""

    default = ErrorCode.INVALID_REQUEST
    codes = frozenset(
        {
            ErrorCode.INVALID_REQUEST,
            ErrorCode.UNAUTHORIZED,
            ErrorCode.FORBIDDEN,
            ErrorCode.NOT_FOUND,
            ErrorCode.CONFLICT,
            ErrorCode.TOO_LARGE,
        }
    )


class Unsupported(RequestError):
    """The request is valid, but the backend's dialect cannot express it, and dropping it is not allowed."""

    default = ErrorCode.UNSUPPORTED
    codes = frozenset({ErrorCode.UNSUPPORTED})


class BackendError(BridgeError):
    """The backend refused, failed, timed out or sent an invalid answer."""

    default = ErrorCode.BACKEND_ERROR
    codes = frozenset(
        {
            ErrorCode.RATE_LIMITED,
            ErrorCode.OVERLOADED,
            ErrorCode.CONTEXT_LENGTH,
            ErrorCode.CONTENT_FILTER,
            ErrorCode.BACKEND_AUTH,
            ErrorCode.BACKEND_UNAVAILABLE,
            ErrorCode.BACKEND_TIMEOUT,
            ErrorCode.BACKEND_ERROR,
            ErrorCode.BACKEND_PROTOCOL,
            ErrorCode.TRUNCATED_STREAM,
        }
    )


class Canceled(BridgeError):
    """The run was canceled by its reader or another authorized caller."""

    default = ErrorCode.CANCELED
    codes = frozenset({ErrorCode.CANCELED})


class ConfigError(BridgeError):
    """The configuration is wrong; the message names file, line, key and what was expected.

    `key` is the place in the configuration, such as `routes[0].listen`, which the message then begins with; `reason`
    is the message without it.
    """

    default = ErrorCode.INVALID_REQUEST

    def __init__(self, message: str, *, key: str | None = None, details: dict[str, Any] | None = None) -> None:
        super().__init__(f"{key}: {message}" if key else message, param=key, details=details)
        self.reason = message


LOG_FACTS: ContextVar[Mapping[str, object]] = ContextVar("log_facts", default=MappingProxyType({}))
"""Fields that every log record of this task carries, such as the id of its run."""


class FailureLog:
    """Logs what is tried again and again: once when it begins to fail, and once when it works again."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._failing: set[str] = set()

    def failed(self, what: str, error: BridgeError) -> None:
        """`what` is a sentence, such as "runs cannot be claimed"."""
        if what not in self._failing:
            self._failing.add(what)
            self._log.warning("%s: %s", what, error.message)

    def works(self, what: str) -> None:
        if what in self._failing:
            self._failing.discard(what)
            self._log.info("resolved: %s", what)


def log_unexpected(log: logging.Logger, what: str, error: BaseException) -> None:
    """Logs an exception that nothing here expects: its class and place at level error, all of it at level debug.

    The text of a foreign exception may hold anything, keys and bodies included, so that only a debug log has it.
    """
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else "an unknown place"
    log.error("%s: %s at %s (run with --log-level debug for the rest)", what, type(error).__name__, where)
    log.debug("%s", what, exc_info=error)


def unexpected_failure(log: logging.Logger, what: str, error: Exception, task: str = "handled this request") -> Failure:
    """Return the failure of the bridge in this task because of such an exception, which is logged."""
    log_unexpected(log, what, error)
    return Failure(ErrorCode.INTERNAL, f"The bridge failed while it {task}.")
