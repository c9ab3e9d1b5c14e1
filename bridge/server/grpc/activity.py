"""Log lines and counters for the operators of an address of agents.

Each change of a node, each session, each tool call and each refusal is a line of the logger `bridge.run.backends.grpc`.
The level is INFO.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc

from bridge.contract import Operation
from bridge.contract.optional.sessions import NodeChange, Visitor
from bridge.errors import BackendError
from bridge.toolkit.redact import masked, printable

if TYPE_CHECKING:
    from bridge.engine.telemetry.metrics import BridgeMetrics

log = logging.getLogger("bridge.grpc")

TOOL_ERROR = "tool_error"
"""The status of a call whose tool answered that it failed."""
_DETAILS = 200
"""Characters of a status's details in a line."""
_OK = grpc.StatusCode.OK.name


class CallRecord:
    """One call while it runs. It has no `node` if its receiver was not found."""

    def __init__(self, operation: Operation, by: Visitor) -> None:
        self.operation = operation
        self.status = _OK
        self.details = ""
        self.began = time.monotonic()
        self._node: dict[str, str] = {}
        self._by = {"user": by.user, "peer": by.address}

    @property
    def found(self) -> bool:
        return bool(self._node)

    @property
    def facts(self) -> dict[str, Any]:
        known = {name: printable(value) for name, value in self._by.items() if value}
        return {**self._node, **known}

    def to(self, node: str, session: str | None = None) -> None:
        """Note who answers the call, which opens a session if it names one."""
        self._node = {"node": printable(node)}
        if session is not None:
            self._node["session"] = printable(session)
            log.info("session started", extra={"facts": self.facts})

    def failed(self, error: BaseException, rpc: Any) -> None:
        """Note the status with which an exception ends the call."""
        aborted = rpc.code() if rpc is not None else None
        if isinstance(error, asyncio.CancelledError):
            self.status = grpc.StatusCode.CANCELLED.name
        elif isinstance(error, BackendError):
            self.status = error.failure.backend_code or grpc.StatusCode.UNKNOWN.name
            self.details = error.message
        elif isinstance(aborted, grpc.StatusCode) and aborted is not grpc.StatusCode.OK:
            self.status, self.details = aborted.name, rpc.details()
        else:
            self.status, self.details = grpc.StatusCode.UNKNOWN.name, type(error).__name__


class Activity:
    """Writes and counts what happens at `address`. `metrics` gives those of the process, None where none are served."""

    def __init__(self, address: str, metrics: Callable[[], BridgeMetrics | None] = lambda: None) -> None:
        self._address = address
        self._metrics = metrics

    def changed(self, changes: Iterable[NodeChange]) -> None:
        """Count and log changes of nodes."""
        metrics = self._metrics()
        for change in changes:
            facts = {"node": printable(change.node), "kind": change.kind, "address": printable(change.address)}
            if change.owner:
                facts["user"] = printable(change.owner)
            log.info("node %s", change.event, extra={"facts": facts})
            if metrics is not None:
                metrics.node_change(self._address, change.kind, change.event)

    @contextmanager
    def call(self, operation: Operation, by: Visitor, rpc: Any = None) -> Iterator[CallRecord]:
        """A call, from its message to its end."""
        record = CallRecord(operation, by)
        try:
            yield record
        except BaseException as error:
            record.failed(error, rpc)
            raise
        finally:
            self._ended(record)

    def _ended(self, record: CallRecord) -> None:
        metrics = self._metrics()
        if metrics is not None:
            metrics.agent_call(self._address, record.operation, record.status)
        outcome: dict[str, Any] = {"status": record.status}
        if record.details:
            outcome["details"] = printable(masked(record.details, _DETAILS), _DETAILS)
        if record.found:
            what = "session ended" if record.operation is Operation.SESSION else "tool call"
            spent = round((time.monotonic() - record.began) * 1000, 1)
            log.info(what, extra={"facts": {**record.facts, **outcome, "total_ms": spent}})
        elif record.status != _OK:
            log.info("%s refused", record.operation, extra={"facts": {**record.facts, **outcome}})
