"""Connections to backends: when a request is sent a second time, and the connections of aiohttp."""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from bridge.run.backends.lookups import Resolver
from bridge.run.backends.probes import probed_socket

AT_ONCE_SECONDS = 1.0
"""Seconds after the last byte of a request in which a kept connection that closes counts as closed before that."""


def closed_at_once(sent: float | None) -> bool:
    """Return whether a kept connection that closes now may have been closed before its request came.

    The rule of both HTTP clients: a backend may close a connection that is kept in the moment in which it is used.
    Later than `AT_ONCE_SECONDS` after the last byte of a request, which was `sent` at this time, in monotonic seconds,
    it may have worked on it. None: not all of it was sent.
    """
    return sent is None or time.monotonic() - sent <= AT_ONCE_SECONDS


class Sending:
    """One request on its way to a backend, which is sent at most twice.

    It is sent again, once, on a new connection, if nothing was answered and `closed_at_once` says so of the kept one.

    Attributes:
        repeated: The request is sent for the second time, which takes a new connection.
        reused: The connection that was used last was a kept one.
        sent: When the last byte was sent, in monotonic seconds; None before that.
    """

    __slots__ = ("repeated", "reused", "sent")

    def __init__(self) -> None:
        self.repeated = False
        self.reused = False
        self.sent: float | None = None

    def repeats(self) -> bool:
        """Return whether the request is to be sent again, now that its connection closed without an answer."""
        if self.repeated or not self.reused or not closed_at_once(self.sent):
            return False
        self.repeated, self.reused, self.sent = True, False, None
        return True


current: ContextVar[Sending] = ContextVar("sending")
"""The request for which `Connector` returns a connection."""


class LargeBody(aiohttp.BytesIOPayload):
    """A body that is sent piece by piece. Notes when its last piece was sent."""

    def __init__(self, value: Any, sending: Sending) -> None:
        super().__init__(value)
        self._sending = sending

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._sending.sent = None
        await super().write_with_length(writer, content_length)
        self._sending.sent = time.monotonic()


class Connector(aiohttp.TCPConnector):
    """Notes in the current `Sending` whether the connection it returns was used before, returns a new one to a request
    that is repeated, and none with unread data.

    aiohttp's alternative, a trace configuration, costs 13 us for every request.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(limit=0, keepalive_timeout=60, resolver=Resolver(), socket_factory=probed_socket, **settings)
        self._known: WeakSet[Any] = WeakSet()

    async def connect(self, *args: Any, **more: Any) -> Any:
        sending = current.get(None)
        while True:
            connection = await super().connect(*args, **more)
            protocol: Any = connection.protocol
            is_new = protocol not in self._known
            # Unread data would be taken for the answer to this request. Kept connections of a backend that has just
            # closed one of them are as old.
            if not is_new and (protocol.should_close or (sending is not None and sending.repeated)):
                connection.close()
                continue
            self._known.add(protocol)
            if sending is not None:
                # All but large bodies are sent at once.
                sending.reused, sending.sent = not is_new, time.monotonic()
            return connection
