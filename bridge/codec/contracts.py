"""Which optional contract an operation of a surface needs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bridge.codec.agent_tasks import AgentTasksDialect
from bridge.codec.counting import CountingDialect
from bridge.codec.described import DescribedDialect
from bridge.codec.dialect import Dialect, require
from bridge.codec.models import ModelsDialect
from bridge.codec.queued_runs import QueuedRunsDialect
from bridge.codec.sessions import SessionDialect
from bridge.codec.single_run import SingleRunDialect
from bridge.codec.socket import SocketDialect
from bridge.codec.stored_responses import StoredAnswersDialect
from bridge.codec.surface import Operation
from bridge.codec.tasks import TaskDialect

CONTRACTS: Mapping[Operation, type[Dialect]] = MappingProxyType({
    Operation.ATTACH: QueuedRunsDialect,
    Operation.COUNT: CountingDialect,
    Operation.DELETE: StoredAnswersDialect,
    Operation.DESCRIBE: DescribedDialect,
    Operation.FETCH: QueuedRunsDialect,
    Operation.HISTORY: QueuedRunsDialect,
    Operation.ITEMS: StoredAnswersDialect,
    Operation.MODELS: ModelsDialect,
    Operation.RETRIEVE: StoredAnswersDialect,
    Operation.SESSION: SessionDialect,
    Operation.SIGN: QueuedRunsDialect,
    Operation.SOCKET: SocketDialect,
    Operation.STATUS: TaskDialect,
    Operation.STOP: SingleRunDialect,
    Operation.TASKS: AgentTasksDialect,
    Operation.TRANSCRIBE: QueuedRunsDialect,
})  # fmt: skip


def check_surface(dialect: Dialect) -> None:
    """Check that a dialect inherits the contracts that its surface needs. Raises `ConfigError` if one is missing."""
    for endpoint in dialect.surface:
        if endpoint.operation in CONTRACTS:
            require(dialect, CONTRACTS[endpoint.operation])
