"""Sessions between a caller and a foreign node: every message handed on as it is, and the node's side ended well.

A cancel stops common agents for all their callers, so a node whose caller left is first asked to stop and has a grace
period. Of a caller's metadata, only the trace context is forwarded: keys are for the bridge.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from typing import Any

import grpc
import grpc.aio

from bridge.contract.optional.sessions import Forward, Relay
from bridge.engine.telemetry import TRACE_CONTEXT
from bridge.run.backends.grpc.channels import Metadata
from bridge.run.backends.grpc.duplex import Duplex
from bridge.toolkit.redact import printable

log = logging.getLogger("bridge.grpc")

_HALF_CLOSE = 1.0
"""Seconds until a node is notified that its caller has closed its half of the call."""


def trace_of(rpc: Any) -> Metadata:
    """Return the trace context of a caller, unchanged, for the node that its call is forwarded to (W3C Trace
    Context, processing model). Values that gRPC cannot carry are left out.
    """
    pairs = ((name, value) for name, value in rpc.invocation_metadata() or () if name in TRACE_CONTEXT)
    # What is no UTF-8 comes as bytes.
    return tuple((n, v) for n, v in pairs if isinstance(v, str) and v.isascii() and v.isprintable())


class Relays:
    """The relayed sessions of one address.

    `grace`: seconds that a node has to end the session of a caller that disconnected.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._busy: Counter[str] = Counter()
        self._parting: set[asyncio.Task[None]] = set()

    @property
    def addresses(self) -> set[str]:
        """The addresses of nodes that have sessions now, whose connections are needed."""
        return set(self._busy)

    async def run(
        self, forward: Forward, session: Relay, first: bytes, rpc: Any, channel: grpc.aio.Channel
    ) -> tuple[grpc.StatusCode, str | None] | None:
        """Both directions, message by message, until the node ends it or the caller leaves.

        The node's own status, None = OK.
        """
        self._busy[forward.address] += 1
        call = Duplex(channel.stream_stream(forward.path)(metadata=trace_of(rpc)))
        upwards = asyncio.get_running_loop().create_task(_upwards(first, rpc, call, session))
        try:
            while (messages := await call.batch(None)) is not None:
                for message in messages:
                    await rpc.write(message)
                    if session.ends(message):
                        return None
        finally:
            upwards.cancel()
            leaving = asyncio.get_running_loop().create_task(self._let_go(forward, session, call))
            self._parting.add(leaving)
            leaving.add_done_callback(self._parting.discard)
        return call.status

    async def stop(self, seconds: float) -> None:
        """Wait this long for nodes that were asked to end, then cancel their calls."""
        if self._parting:
            await asyncio.wait(self._parting, timeout=seconds)
            for task in list(self._parting):
                task.cancel()
            await asyncio.gather(*self._parting, return_exceptions=True)

    async def _let_go(self, forward: Forward, session: Relay, call: Duplex) -> None:
        """End the node's side. If its caller left, ask it to stop, and cancel it only if it does not."""
        try:
            if call.alive:
                async with asyncio.timeout(self._grace):
                    await call.send(session.goodbye())
                    await call.finish()
                    while await call.batch(None) is not None:
                        pass
        except TimeoutError:
            log.info(
                "the node %s did not end the session of a caller that disconnected; the bridge cancels it",
                printable(forward.node),
            )
        finally:
            call.cancel()
            self._busy[forward.address] -= 1
            self._busy += Counter()


async def _upwards(first: bytes, rpc: Any, call: Duplex, session: Relay) -> None:
    """Forward the caller's messages to the node. The end of the call is noticed where its answers are read."""
    message: Any = first
    with contextlib.suppress(grpc.aio.BaseError, asyncio.InvalidStateError):
        while message is not grpc.aio.EOF:
            if (onwards := session.onwards(message)) is not None:
                # A write that is canceled cancels the whole call, which is for `_let_go` to decide.
                await asyncio.shield(call.send([onwards]))
            message = await rpc.read()
        # For a moment, a caller who cancels looks like one who has closed its half; only in the latter case the node is
        # told.
        await asyncio.sleep(_HALF_CLOSE)
        await call.finish()
