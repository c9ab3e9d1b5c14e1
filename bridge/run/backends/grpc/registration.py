"""Keeps a node of the bridge registered at another registry."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import grpc
import grpc.aio

from bridge.contract import Dialect
from bridge.contract.optional.sessions import Channel, Registration
from bridge.run.backends.grpc.channels import Metadata, metadata_of, open_channel

_SECONDS = 10.0
"""Seconds for one request to a registry."""


async def stay(
    registration: Registration, dialect: Dialect, settings: Channel, report: Callable[[bool, str], None]
) -> None:
    """Register and send heartbeats until canceled, and then deregister.

    `told` is called after each response: is the node registered, and if not, why.
    """
    metadata = metadata_of(dialect, registration.key)
    async with open_channel(registration.gateway, settings) as channel:
        try:
            while True:
                todo = registration.next(time.monotonic())
                if isinstance(todo, float):
                    await asyncio.sleep(todo - time.monotonic())
                    continue
                body, why = await _exchange(channel, todo, metadata)
                report(registration.answered(body, time.monotonic()), why)
        finally:
            farewell = registration.leave()
            if farewell is not None:
                await _exchange(channel, farewell, metadata)


async def _exchange(channel: grpc.aio.Channel, todo: tuple[str, bytes], metadata: Metadata) -> tuple[bytes | None, str]:
    """Return the response of a registry; None and a reason if there is none."""
    try:
        return await channel.unary_unary(todo[0])(todo[1], timeout=_SECONDS, metadata=metadata), "it said no"
    except grpc.aio.AioRpcError as error:
        return None, error.code().name
