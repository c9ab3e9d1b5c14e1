"""Scopes: the names of operations by which a configuration limits keys and tokens."""

from __future__ import annotations

from enum import StrEnum

from bridge.contract.surface import Operation


class Scope(StrEnum):
    """A group of operations that is granted or refused as a whole."""

    RUN = "run"
    """Start runs and read their own answers: completions, queued runs, sessions, tool calls, token counts, uploads."""
    READ = "read"
    """Read stored data: history, stored answers, events and status of runs, attachments, the nodes of a gateway."""
    CANCEL = "cancel"
    """End runs."""
    DELETE = "delete"
    """Delete stored answers."""
    MODELS = "models"
    """List models."""
    REGISTER = "register"
    """Register, update and deregister nodes at a gateway."""
    METRICS = "metrics"
    """Read the metrics."""
    PAGE = "page"
    """Use the page, with what it shows of runs and backends."""


SCOPES: dict[Operation, Scope | None] = {
    Operation.RUN: Scope.RUN,
    Operation.SESSION: Scope.RUN,
    Operation.SOCKET: Scope.RUN,
    # Calls over a connection contain their operation; the server checks its scope.
    Operation.CONNECT: None,
    Operation.START: Scope.RUN,
    Operation.COUNT: Scope.RUN,
    Operation.CALL: Scope.RUN,
    Operation.ATTACH: Scope.RUN,
    Operation.TRANSCRIBE: Scope.RUN,
    Operation.FORWARD: Scope.RUN,
    Operation.EMBED: Scope.RUN,
    Operation.SUBSCRIBE: Scope.READ,
    Operation.STATUS: Scope.READ,
    Operation.RETRIEVE: Scope.READ,
    Operation.ITEMS: Scope.READ,
    Operation.HISTORY: Scope.READ,
    Operation.FETCH: Scope.READ,
    Operation.SIGN: Scope.READ,
    Operation.DISCOVER: Scope.READ,
    Operation.CANCEL: Scope.CANCEL,
    Operation.STOP: Scope.CANCEL,
    Operation.DELETE: Scope.DELETE,
    Operation.MODELS: Scope.MODELS,
    Operation.ANSWER: Scope.MODELS,
    Operation.DESCRIBE: Scope.MODELS,
    Operation.REGISTER: Scope.REGISTER,
    Operation.DEREGISTER: Scope.REGISTER,
    Operation.UPDATE: Scope.REGISTER,
    Operation.BEAT: Scope.REGISTER,
    # Requests of tasks, and messages to tools, contain their operation; the server checks its scope.
    Operation.TASKS: None,
    Operation.TOOLS: None,
    Operation.HEALTH: None,
}
"""The scope that each operation needs; None: any key or token will do."""
