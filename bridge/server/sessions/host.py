"""What a connection needs of the place where it is served."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from bridge.contract import Losses, Operation, RpcDialect, RpcService

if TYPE_CHECKING:
    from bridge.engine.bridge import Bridge
    from bridge.engine.route import Route
    from bridge.run.run import Run


class RunScope(Protocol):
    """One run of a prompt, for the log."""

    run_id: str
    request_id: str
    lost: Losses

    def began(self, run: Run) -> None:
        """The backends are asked."""

    def wrote(self, size: int) -> None:
        """So many bytes went to the client."""


class RpcHost(Protocol):
    """The place of a connection: a server, or the command that its client has started."""

    dialect: RpcDialect
    owner: str
    """The client's user; empty where anybody may call."""
    headers: Mapping[str, str]
    """Those of the request that opened the connection."""
    busy: set[tuple[str, str]]
    """The sessions that have a prompt, each with its owner, over all connections of this process."""

    @property
    def service(self) -> RpcService:
        """What is offered, which is known before the bridge is open."""

    def greeted(self) -> None:
        """The client's first call is about to be answered."""

    async def opened(self) -> tuple[Bridge, Route]:
        """Return the route and its bridge, which is open from now on. Raises `BridgeError`."""

    async def admit(self, operation: Operation | None) -> None:
        """Count a call of the client. Raises `BridgeError` if it may not do that, or calls too often.

        None stands for what everybody who is connected may do.
        """

    def allows(self, model: str) -> bool:
        """Return whether the client may name this model."""

    def check_model(self, model: str | None) -> None:
        """Check that the client may name this model. Raises `RequestError` (forbidden)."""

    def counting(self) -> AbstractContextManager[object]:
        """Serve one call in this block: what it loads counts against the server's memory."""

    def running(self) -> AbstractAsyncContextManager[RunScope]:
        """Admit one run, which waits for a slot, and report it at the end. Raises `BridgeError`."""
