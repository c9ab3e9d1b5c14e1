"""The operations on answers that their client names by id, and `run` where such an answer may be made without him.

A run in the background is one of the run store (`bridge.runs.responses`): it goes on whoever reads it, and any process
that shares the stores may be asked for it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

from aiohttp import web

from bridge.codec import Context, StoredAnswer, StoredAnswersDialect, StoredResponses, WireRequest, require
from bridge.engine import Caller
from bridge.errors import BridgeError, ErrorCode, RequestError, shortened
from bridge.model import Request
from bridge.pipeline.stored_responses import Answers
from bridge.runs import RunKey, RunPlan, run_of
from bridge.runs.server.durable import LogHandler
from bridge.server.report import Report
from bridge.server.wire import USER, read_request, response_of

_LAST_WORDS = 10.0
"""Seconds for which the end of a run that was cancelled is waited for; a process that died is not the client's wait."""


class AnswerReader(LogHandler):
    """What handlers share that give the streams of answers."""

    @property
    def _dialect(self) -> StoredAnswersDialect:
        return require(self._route.dialect, StoredAnswersDialect)

    async def _streamed(self, http: web.Request, key: RunKey, have: int, report: Report) -> web.StreamResponse:
        """The stream of a run in the background, to a reader who has the first `have` frames."""
        stream = self._bridge.runs.stream(key, self._route.dialect, self._route.options, have)
        try:
            await stream.open()
            async with self._limiter.reader_slot(http[USER]):
                return await self._relayed(http, stream, report)
        finally:
            report.lost, report.usage = stream.lost, stream.usage
            report.ended(stream.reason, stream.failure)

    def _key(self, http: web.Request, answer: StoredAnswer) -> RunKey:
        return run_of(http[USER], self._route.path, answer)


class AnswerHandler(AnswerReader):
    """What the operations share: there is such an answer, and it is the client's own."""

    async def _answer(self, http: web.Request, context: Context, report: Report) -> web.StreamResponse:
        wire = await read_request(http, self._route.path, self._rules.max_body, self._rules.body_time)
        answers, answer_id = self._bridge.answers(self._route, http[USER]), http.match_info["id"]
        kept = None if answers is None else await answers.kept(answer_id)
        if answers is None or kept is None:
            raise _unknown(answer_id)
        response = await self._named(http, wire, answers, kept, report)
        report.http = response.status
        return response

    async def _named(
        self, http: web.Request, wire: WireRequest, answers: Answers, kept: StoredAnswer, report: Report
    ) -> web.StreamResponse:
        """The response about the answer that the store has as `kept`."""
        raise NotImplementedError


class RetrieveHandler(AnswerHandler):
    """The answer as it is now, or the rest of its stream."""

    async def _named(
        self, http: web.Request, wire: WireRequest, answers: Answers, kept: StoredAnswer, report: Report
    ) -> web.StreamResponse:
        have = self._dialect.decode_reread(kept, wire)
        if have is None:
            return response_of(self._dialect.encode_stored(await answers.now(kept)))
        return await self._streamed(http, self._key(http, kept), have, report)


class ItemsHandler(AnswerHandler):
    """What an answer was made from."""

    async def _named(
        self, http: web.Request, wire: WireRequest, answers: Answers, kept: StoredAnswer, report: Report
    ) -> web.StreamResponse:
        return response_of(self._dialect.encode_items(kept, wire))


class DeleteHandler(AnswerHandler):
    """Forgets an answer. A run that still makes it is cancelled; what is kept of it goes when it has ended."""

    async def _named(
        self, http: web.Request, wire: WireRequest, answers: Answers, kept: StoredAnswer, report: Report
    ) -> web.StreamResponse:
        if not await answers.delete(kept.id):
            raise _unknown(kept.id)
        if kept.run_id is not None:
            key = self._key(http, kept)
            if not await self._bridge.runs.delete(key):
                await self._bridge.runs.cancel(key)
        return response_of(self._dialect.encode_deleted(kept.id))


class CancelAnswerHandler(AnswerHandler):
    """Ends a run in the background, and says what its answer has become. One that has ended stays as it is."""

    async def _named(
        self, http: web.Request, wire: WireRequest, answers: Answers, kept: StoredAnswer, report: Report
    ) -> web.StreamResponse:
        if kept.run_id is None:
            raise RequestError(
                f"The response {shortened(kept.id)!r} cannot be cancelled: expected one that was created with "
                "background true.",
                param="id",
            )
        if not kept.ended:
            key = self._key(http, kept)
            await self._bridge.runs.cancel(key)
            await self._end_of(key)
        return response_of(self._dialect.encode_stored(await answers.now(kept)))

    async def _end_of(self, key: RunKey) -> None:
        """Waits for the run's end, which another process may have to write."""
        log, until = self._bridge.runs.follow(key), time.monotonic() + _LAST_WORDS
        if await log.open() is None:
            return
        while not log.done and (left := until - time.monotonic()) > 0:
            await log.read(left)


class BackgroundHandler(AnswerReader):
    """The operation `run`: as everywhere, unless the client wants its run to go on without him."""

    async def _answer(self, http: web.Request, context: Context, report: Report) -> web.StreamResponse:
        request, caller = await self._request(http, context, report)
        stored_responses = context.stored_responses
        answers = (
            self._bridge.answers(self._route, caller.owner)
            if stored_responses is not None and stored_responses.background
            else None
        )
        if stored_responses is None or answers is None:
            return await self._attended(http, context, report, request, caller)
        report.back = self._route.group_for(request).names
        plan = self._plan(request, caller, context, stored_responses)
        answer = await self._queue(http, plan, answers)
        if request.stream:
            return await self._streamed(http, self._key(http, answer), 0, report)
        report.status, report.http = "queued", 200
        return response_of(self._dialect.encode_stored(answer), context.lost.names)

    def _plan(self, request: Request, caller: Caller, context: Context, stored_responses: StoredResponses) -> RunPlan:
        """The backend streams in any case: readers see the answer grow."""
        run_id, created_at = context.run_id, context.created_at
        request = replace(request, stream=True)
        _, plan = self._bridge.plan(self._route, request, caller, run_id=run_id, created_at=created_at)
        plan.background, plan.previous = True, stored_responses.previous
        return plan

    async def _queue(self, http: web.Request, plan: RunPlan, answers: Answers) -> StoredAnswer:
        """Keeps what was asked, then queues its run."""
        answer = self._dialect.answer_so_far([], plan.context(self._route.options))
        await answers.keep(answer)
        try:
            await self._bridge.runs.start(self._key(http, answer), plan, plan.run_id)
        except BridgeError:
            with suppress(BridgeError):  # what is left of it then says that its run is not there
                await answers.delete(answer.id)
            raise
        return answer


def _unknown(answer_id: str) -> RequestError:
    """Also for what belongs to somebody else: nobody learns which ids there are."""
    return RequestError(
        f"Response with id {shortened(answer_id)!r} not found.",
        code=ErrorCode.NOT_FOUND,
        param="id",
        backend_code="not_found",
    )
