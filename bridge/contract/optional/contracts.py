"""The small optional contracts of dialects, and which contract an operation of a surface needs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from bridge.contract.context import Context
from bridge.contract.dialect import Dialect, Options
from bridge.contract.optional.agent_tasks import AgentTasksDialect
from bridge.contract.optional.answering import AnsweringDialect
from bridge.contract.optional.described import DescribedDialect
from bridge.contract.optional.embeddings import EmbeddingsDialect
from bridge.contract.optional.models import ModelsDialect
from bridge.contract.optional.queued_runs import QueuedRunsDialect
from bridge.contract.optional.rpc import RpcDialect
from bridge.contract.optional.sessions import SessionDialect
from bridge.contract.optional.single_run import SingleRunDialect
from bridge.contract.optional.stored_responses import StoredAnswersDialect
from bridge.contract.optional.tasks import TaskDialect
from bridge.contract.optional.tool_server import ToolServerDialect
from bridge.contract.surface import Operation
from bridge.contract.wire import WireRequest, WireResponse
from bridge.errors import ConfigError
from bridge.model.request import Request


class CountingDialect(Dialect):
    """A dialect with the operation `COUNT`, whose backends can count the tokens of a request."""

    def decode_count_request(self, wire: WireRequest, context: Context) -> Request:
        """Return the request whose tokens are to be counted; by default, it looks like one to run.

        Raises `RequestError`.
        """
        return self.decode_request(wire, context)

    def encode_count(self, tokens: int, estimated: bool) -> WireResponse:
        """Return the response with the number of input tokens; `estimated` if no backend counted them."""
        raise NotImplementedError

    def count_request(self, request: Request, context: Context) -> WireRequest:
        """Return the request for a backend to count tokens."""
        raise NotImplementedError

    def decode_count(self, wire: WireResponse) -> int:
        """Return the count in a backend's answer. Raises `BackendError` if it has none."""
        raise NotImplementedError


class ModesDialect(Dialect):
    """A dialect with a field for the mode of a request. A route may name a backend for each mode."""

    modes: ClassVar[tuple[str, ...]]
    """The modes; the first one is the default. None: a route names its own, and every request one of them."""

    def mode_of(self, request: Request) -> str | None:
        """Return the mode that the request names, None for the default."""
        raise NotImplementedError


class ResumableDialect(Dialect):
    """A dialect whose `SUBSCRIBE` reads the run of a thread that has not ended, from its beginning.

    The response is 204 if nothing runs, as it is on routes that are not durable.
    """

    def decode_resume(self, wire: WireRequest) -> str:
        """Return the id of the thread. Raises `RequestError`."""
        raise NotImplementedError


class SocketDialect(StoredAnswersDialect):
    """A dialect whose surface has `SOCKET`: each message of the client is a request, answered by the payloads of its
    stream, a message each.

    A request may continue the previous answer on the same connection, even if no answers are stored.
    """

    def takes_sockets(self, options: Options | None) -> bool:
        """Return whether routes with these options serve WebSockets."""
        raise NotImplementedError

    def decode_message(self, message: str) -> WireRequest:
        """Return the request in a message. Raises `RequestError`."""
        raise NotImplementedError

    def encode_refusal(self, response: WireResponse) -> bytes:
        """Return the message for a response that would refuse the request over HTTP."""
        raise NotImplementedError


CONTRACTS: Mapping[Operation, tuple[type[Dialect], ...]] = MappingProxyType({
    Operation.ANSWER: (AnsweringDialect,),
    Operation.ATTACH: (QueuedRunsDialect,),
    Operation.CANCEL: (QueuedRunsDialect, StoredAnswersDialect),
    Operation.CONNECT: (RpcDialect,),
    Operation.COUNT: (CountingDialect,),
    Operation.DELETE: (StoredAnswersDialect,),
    Operation.DESCRIBE: (DescribedDialect,),
    Operation.EMBED: (EmbeddingsDialect,),
    Operation.FETCH: (QueuedRunsDialect,),
    Operation.HISTORY: (QueuedRunsDialect,),
    Operation.ITEMS: (StoredAnswersDialect,),
    Operation.MODELS: (ModelsDialect,),
    Operation.RETRIEVE: (StoredAnswersDialect,),
    Operation.SESSION: (SessionDialect,),
    Operation.SIGN: (QueuedRunsDialect,),
    Operation.SOCKET: (SocketDialect,),
    Operation.START: (QueuedRunsDialect, TaskDialect),
    Operation.STATUS: (TaskDialect,),
    Operation.STOP: (SingleRunDialect,),
    Operation.SUBSCRIBE: (QueuedRunsDialect, ResumableDialect, SessionDialect),
    Operation.TASKS: (AgentTasksDialect,),
    Operation.TOOLS: (ToolServerDialect,),
    Operation.TRANSCRIBE: (QueuedRunsDialect,),
})  # fmt: skip
"""The contracts of which a dialect with this operation needs one."""


def check_surface(dialect: Dialect) -> None:
    """Check that a dialect inherits a contract for each operation of its surface. Raises `ConfigError` if not."""
    for endpoint in dialect.surface:
        needed = CONTRACTS.get(endpoint.operation)
        if needed is not None and not isinstance(dialect, needed):
            words = " or ".join(f"a {contract.__name__}" for contract in needed)
            raise ConfigError(f"dialect {dialect.name!r}: its operation {endpoint.operation} needs {words}")
