"""Sends the events of a task to the URLs that its clients named, while this process drives a run of it.

Each target has a reader of the run's log, so that the log is the queue: the run never waits for a target, nor does one
target for another, and what waits takes no memory. A target that cannot be reached gets nothing more of this run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from yarl import URL

from bridge.contract import AgentTasksDialect, EncoderLike, PushTarget
from bridge.errors import BridgeError, ErrorCode, log_unexpected
from bridge.run.backends.fetch import CallFailed, OutsideClient
from bridge.run.conversation.push_targets import PushTargets
from bridge.run.durable.plan import RunPlan
from bridge.run.durable.runs import Runs
from bridge.stores import RunKey

log = logging.getLogger("bridge.runs")

T = TypeVar("T")

TRIES = 4
PAUSE = 0.5
"""Seconds before the second try of a notification; each further pause is twice as long."""
TIME = 10.0
"""Seconds of one try."""
REST = 60.0
"""Seconds after the end of a run in which its last notifications have to arrive."""
_POLL = 0.5
"""Seconds between two polls for new and removed targets."""
_AWAY = 2.0
"""Seconds between two tries of a store that is not available."""
_ANSWER = 2**16
"""Bytes of an answer that are read, so that its connection can be used again."""
_AGAIN = frozenset({408, 425, 429})


class _Notification(NamedTuple):
    """What one target gets of one run: from entry `since` of its log on, written by `encoder`."""

    target: PushTarget
    headers: dict[str, str]
    encoder: EncoderLike
    since: int


class Pusher(OutsideClient):
    """Sends the notifications of one route."""

    def __init__(self, hosts: Sequence[str]) -> None:
        super().__init__(hosts, connections=0, keep_alive=True)
        self._last: dict[tuple[str, str, str, str], asyncio.Task[None]] = {}
        """Of each target of a task, what sends the events of its last run."""

    async def push(
        self,
        runs: Runs,
        key: RunKey,
        plan: RunPlan,
        dialect: AgentTasksDialect,
        options: object,
        targets: PushTargets,
        after: int = 0,
    ) -> None:
        """Send what this run adds to its task after `after` entries of its log, and return when all is sent."""
        sending: dict[PushTarget, asyncio.Task[None]] = {}
        try:
            over = False
            while True:
                known = await _patiently(targets.load)
                for target in sending.keys() - set(known):
                    sending.pop(target).cancel()
                for target in known:
                    if target not in sending:
                        since = max(after, target.position if target.run == key.run_id else 0)
                        encoder = dialect.push_encoder(plan.context(options), target)
                        notification = _Notification(target, dialect.push_headers(target), encoder, since)
                        sending[target] = self._begin(runs, key, notification)
                if over:
                    break
                over = await _patiently(partial(runs.ended, key, _POLL))
            if sending:
                await asyncio.wait(sending.values(), timeout=REST)
        finally:
            for task in sending.values():
                task.cancel()
            await asyncio.gather(*sending.values(), return_exceptions=True)

    def _begin(self, runs: Runs, key: RunKey, notification: _Notification) -> asyncio.Task[None]:
        place = key.owner, key.scope, key.thread_id, notification.target.id
        task = asyncio.create_task(self._send(runs, key, notification, self._last.get(place)), name="push")
        self._last[place] = task

        def forget(done: asyncio.Task[None]) -> None:
            if self._last.get(place) is done:
                del self._last[place]

        task.add_done_callback(forget)
        return task

    async def _send(
        self, runs: Runs, key: RunKey, notification: _Notification, before: asyncio.Task[None] | None
    ) -> None:
        """Send a run's events to one target, after those of the run `before`."""
        target, reader = notification.target, runs.follow(key)
        try:
            if before is not None:
                await asyncio.wait({before})
            await _patiently(reader.open)
            while not reader.done:
                for _, batch in await _patiently(partial(reader.read, _POLL)):
                    for frame in notification.encoder.encode(batch.events):
                        if batch.position >= notification.since and isinstance(frame, bytes):
                            await self._post(target.url, notification.headers, frame)
        except CallFailed as error:
            # Of the URL only the host: the rest may hold a secret.
            log.warning("push notifications to %s stopped: %s", URL(target.url).host, error.reason)
        except BridgeError as error:
            log.warning("push notifications to %s stopped: %s", URL(target.url).host, error.message)
        except Exception as error:
            log_unexpected(log, "push notifications broke", error)

    async def _post(self, url: str, headers: dict[str, str], body: bytes) -> None:
        """Send one notification, with a few tries. Raises `CallFailed`."""
        if not self.may_call(url):  # the configuration has changed since
            raise CallFailed("its host is not allowed", refused=True)
        for number in range(TRIES):
            if number:
                await asyncio.sleep(PAUSE * 2 ** (number - 1))
            try:
                async with asyncio.timeout(TIME), self.call("POST", url, headers=headers, body=body) as response:
                    status = response.status
                    await response.content.read(_ANSWER)
            except TimeoutError:
                failure = CallFailed(f"it did not answer within {TIME:g} seconds")
            except CallFailed as error:
                failure = error
            else:
                if status < 300:
                    return
                failure = CallFailed(f"it answered {status}", refused=status < 500 and status not in _AGAIN)
            if failure.refused:
                break
        raise failure


async def _patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Do this as soon as the store is available."""
    while True:
        try:
            return await work()
        except BridgeError as error:
            if error.code is not ErrorCode.STORE_UNAVAILABLE:
                raise
        await asyncio.sleep(_AWAY)
