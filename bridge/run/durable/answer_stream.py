"""Background responses: progress from the log of the run, the final response, and replay of the stream.

The request is stored before the run is queued (`bridge.run.conversation.response_store`), so that the owner of a
response, and whether it was deleted, is known without its run. The final response is stored there as well: by the
process that ends the run, or by a reader that finds the run ended where that process died in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bridge.contract import Dialect, Frame, FrameLike, StoredAnswer, StoredAnswersDialect, require
from bridge.run.conversation.response_store import ResponseStore
from bridge.run.durable.log import expired
from bridge.run.durable.subscription import Subscription
from bridge.stores import RunKey, RunState, RunStore

if TYPE_CHECKING:
    from bridge.run.durable.runs import Runs


def run_of(owner: str, scope: str, answer: StoredAnswer) -> RunKey:
    """Return the key of the run that makes a background response. It is a thread of its own."""
    return RunKey(owner, scope, answer.run_id or "", answer.run_id or "")


async def response_now(
    runs: Runs, owner: str, scope: str, dialect: Dialect, options: object, answer: StoredAnswer
) -> StoredAnswer:
    """Return this response as it is now. Raises `RequestError` (410) when its run has expired."""
    return await _so_far(runs, run_of(owner, scope, answer), dialect, options)


async def settle(runs: Runs, key: RunKey, answers: ResponseStore, dialect: Dialect, options: object) -> None:
    """Store the response of a run that has ended, or delete the run if its response was deleted meanwhile."""
    answer = await _so_far(runs, key, dialect, options)
    if answer.ended and not await answers.settle(answer):
        await runs.delete(key)


async def _so_far(runs: Runs, key: RunKey, dialect: Dialect, options: object) -> StoredAnswer:
    log = runs.follow(key)
    record = await log.open()
    if record is None or log.plan is None:
        raise expired()
    events = await log.so_far()
    if not events and record.state is not RunState.QUEUED:
        events.append(log.plan.head())
    return require(dialect, StoredAnswersDialect).answer_so_far(events, log.plan.context(options))


class AnswerStream(Subscription):
    """The stream of a background response after its first `have` frames. Its readers count frames, without cursors."""

    def __init__(self, store: RunStore, key: RunKey, dialect: Dialect, options: object, have: int) -> None:
        super().__init__(store, key, dialect, options)
        self._have = have

    async def open(self) -> bool:
        """Return True. Raises `RequestError` (410) when the run has expired."""
        await super().open()
        if self._log.plan is None:
            raise expired()
        # They get a context of their own: the ids that the encoder makes must not depend on them.
        dialect = require(self._dialect, StoredAnswersDialect)
        self._pending = self._new(0, dialect.encode_queued(self._log.plan.context(self._options)))
        return True

    def _new(self, number: int, frames: Sequence[FrameLike]) -> list[Frame]:
        skipped = min(self._have, len(frames))
        self._have -= skipped
        return [frame if isinstance(frame, Frame) else Frame(frame) for frame in frames[skipped:]]
