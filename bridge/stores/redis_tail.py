"""One pub/sub connection for each process, by which Redis announces new entries of runs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from bridge.stores.notifier import Notifier

if TYPE_CHECKING:
    from redis.asyncio.client import PubSub, Redis

from redis.exceptions import RedisError

_KEPT = 60.0
"""Seconds after which a channel without listeners is closed."""


class RedisTail:
    """Notifies the listeners of a channel for each message on it.

    A message is a hint without data: readers poll for what they miss while the connection is lost.
    """

    def __init__(self, client: Redis, notifier: Notifier[str]) -> None:
        self._client = client
        self._notifier = notifier
        self._pubsub: PubSub | None = None
        self._followed: dict[str, asyncio.Event] = {}
        self._lock = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None
        self._closed = False

    async def follow(self, channel: str) -> None:
        """Notify the listeners of this channel from now on. Raises what the client raises."""
        while channel not in self._followed or not self._followed[channel].is_set():
            known = self._followed.get(channel)
            if known is None:
                known = self._followed[channel] = asyncio.Event()
                try:
                    async with self._lock:
                        await self._subscribe(channel)
                except BaseException:
                    if self._followed.get(channel) is known:
                        del self._followed[channel]
                    known.set()
                    raise
            # Wait for the server's confirmation: messages published before it would be missed.
            async with asyncio.timeout(5):
                await known.wait()

    async def unfollow(self, channel: str) -> None:
        """Stop notifying the listeners of this channel. A failure only means that messages still arrive."""
        known = self._followed.get(channel)
        if known is None or not known.is_set() or self._pubsub is None:
            return
        del self._followed[channel]
        with suppress(RedisError, OSError):
            async with self._lock:
                await self._pubsub.unsubscribe(channel)

    async def _subscribe(self, channel: str) -> None:
        if self._pubsub is None:
            self._pubsub = self._client.pubsub()
        await self._pubsub.subscribe(channel)
        if self._listening is None or self._listening.done():
            self._listening = asyncio.create_task(self._listen(self._pubsub), name="run-notifications")

    async def _listen(self, pubsub: PubSub) -> None:
        """Pass messages on until the connection fails; the next `follow` opens a new one."""
        clock = asyncio.get_running_loop().time
        tidy = clock() + _KEPT
        try:
            # The client may swallow a cancellation.
            while not self._closed:
                message: dict[str, Any] | None = await pubsub.get_message(timeout=1.0)
                if message is not None and message["type"] == "subscribe":
                    if (known := self._followed.get(message["channel"])) is not None:
                        known.set()
                elif message is not None and message["type"] == "message":
                    self._notifier.notify(message["channel"])
                if clock() > tidy:
                    tidy = clock() + _KEPT
                    await self._tidy(pubsub)
        except (RedisError, OSError):
            pass
        finally:
            await self._drop(pubsub)

    async def _tidy(self, pubsub: PubSub) -> None:
        unheard = [c for c, known in self._followed.items() if known.is_set() and c not in self._notifier]
        for channel in unheard:
            del self._followed[channel]
        if unheard:
            async with self._lock:
                await pubsub.unsubscribe(*unheard)

    async def _drop(self, pubsub: PubSub) -> None:
        self._pubsub = None
        followed, self._followed = self._followed, {}
        for known in followed.values():
            known.set()
        self._notifier.notify_all()
        with suppress(RedisError, OSError):
            async with self._lock:
                await pubsub.aclose()  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """Close the connection; `follow` opens a new one."""
        listening, self._listening = self._listening, None
        if listening is not None:
            self._closed = True
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            self._closed = False
