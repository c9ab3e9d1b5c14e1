"""One session with a backend over gRPC, from its first turn to its end; what of it waits for a client between two."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.contract.optional.sessions import CallerSession, ClientTools
from bridge.errors import ErrorCode, Failure
from bridge.model import Request, ToolResult
from bridge.run.backends.grpc.channels import Metadata
from bridge.run.backends.grpc.client_tools import ClientToolBroker
from bridge.run.backends.grpc.duplex import Duplex

if TYPE_CHECKING:
    from bridge.run.backends.grpc.grpc_backend import GrpcBackend

log = logging.getLogger("bridge.grpc")

_LARGE = re.compile(r"Received message larger than max \((\d+) vs\. (\d+)\)")
"""gRPC's message on both sides of a call; only the size distinguishes the sides."""


def results_in(request: Request) -> dict[str, ToolResult]:
    """Return the client's tool results after the last answer."""
    found: dict[str, ToolResult] = {}
    for message in reversed(request.messages):
        if message.role == "assistant":
            break
        found |= {part.call_id: part for part in message.parts if isinstance(part, ToolResult)}
    return found


@dataclass(eq=False, slots=True)
class WaitingSession:
    """A session whose agent waits for the client's results of some calls. `key`: the key to keep it under."""

    session: Session
    call_ids: tuple[str, ...]
    owner: str
    key: str | None

    @property
    def names(self) -> list[str]:
        return [f"{self.owner}\0{call_id}" for call_id in self.call_ids]


class Session:
    """One call in both directions, with the machine that knows its protocol.

    `metadata` is sent when it begins: of a session that is kept, what its first turn brought.
    """

    def __init__(self, backend: GrpcBackend, machine: CallerSession, metadata: Metadata) -> None:
        self.machine = machine
        self._metadata = metadata
        self.timer: asyncio.TimerHandle | None = None
        self.broker: ClientToolBroker | None = None
        """The server of the client's tools."""
        self._backend = backend
        self._call: Duplex | None = None
        self._sending: asyncio.Future[None] | None = None
        self._sizes: set[int] = set()

    @property
    def usable(self) -> bool:
        """Return whether another turn is possible; ends the idle time of the session."""
        if self.timer is not None:
            self.timer.cancel()
        return self._call is not None and self._call.alive and not self.machine.over

    @property
    def late(self) -> bool:
        """True if a message has arrived since the last turn ended."""
        return self._call is not None and self._call.waiting

    @property
    def ended(self) -> Failure | None:
        """Return the failure that the peer's status means, if the call ended with one."""
        status = self._call.status if self._call is not None else None
        if status is None:
            return None
        large = _LARGE.search(status[1] or "")
        if large is not None and int(large[1]) not in self._sizes:
            # Not a failure of the bridge, and the client can do nothing about it.
            text = f"The backend sent a message of {large[1]} bytes; the limit is {large[2]} (max_message)."
            return Failure(ErrorCode.BACKEND_PROTOCOL, text)
        return self._backend.failure_of(self.machine.path, *status)

    async def send(self, messages: list[bytes]) -> None:
        """Sends these; the first ones open the call. A call that is over already is noticed where it is read.

        If canceled, they are still sent: `grpc.aio` cancels a call whose write is canceled, and with it an agent that
        is to be asked to stop.
        """
        if self._call is None:
            call = self._backend.channel.stream_stream(self.machine.path)
            self._call = Duplex(call(metadata=self._metadata))
        self._sizes.update(map(len, messages))
        self._sending = asyncio.ensure_future(self._call.send(messages))
        await asyncio.shield(self._sending)

    async def offer(self, tools: ClientTools | None) -> None:
        """Offers these from now on, and no others. Raises `BackendError`."""
        if self.broker is not None and tools is not None and self.broker.tools.same(tools):
            return
        await self._clear()
        if tools is not None:
            self.broker = self._backend.broker(tools)
            await self.broker.open()

    async def _clear(self) -> None:
        broker, self.broker = self.broker, None
        if broker is not None:
            await broker.close()

    async def batch(self, seconds: float | None) -> list[bytes] | None:
        """See `Duplex.batch`; none also when the client's tools are called."""
        if self._call is None or self.broker is None:
            return await self._call.batch(seconds) if self._call is not None else None
        loop = asyncio.get_running_loop()
        reading, called = loop.create_task(self._call.batch(seconds)), loop.create_task(self.broker.came.wait())
        try:
            await asyncio.wait({reading, called}, return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else []
        finally:
            reading.cancel()
            called.cancel()
            await asyncio.gather(reading, called, return_exceptions=True)

    async def drain(self, grace: float) -> None:
        """Ask the peer to end, read and discard until it does, and cancel the call if it does not."""
        if self.timer is not None:
            self.timer.cancel()
        if self._call is None:
            await self._clear()
            return
        if self.broker is not None:
            # A peer that waits for a client that is gone does not end.
            self.broker.give_up()
        try:
            async with asyncio.timeout(grace):
                if self._sending is not None:
                    await asyncio.wait([self._sending])  # one write at a time is all that grpc takes
                await self._call.send(self.machine.stop())
                await self._call.finish()
                while (messages := await self._call.batch(None)) is not None:
                    # Only to detect the end: the turn itself is over.
                    self.machine.feed(messages, time.monotonic())
        except TimeoutError:
            log.debug("backend %s: a session did not stop by itself", self._backend.name)
        finally:
            self._call.cancel()
            await self._clear()
