"""Routes whose backends are tools: messages of clients, calls that run, and questions that wait on their streams.

A call is answered in one piece, or by a stream as soon as there is something to say before its end: progress, a
question, or a sign of life. A session is a sealed text that any process can read, so that none is stored. A call lives
in the process that answers it, and holds places (`bridge.stores.held_places`) in the lines of its session, its id and
its questions, through which other processes pass on its cancellation and the answers to its questions.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson
from aiohttp import web

from bridge.contract import (
    KEEPALIVE,
    Frame,
    FrameLike,
    Sealer,
    ToolEncoder,
    ToolMessage,
    ToolQuestion,
    ToolReply,
    ToolServerDialect,
    ToolSite,
    WireRequest,
    WireResponse,
    json_response,
    require,
)
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route, RunCaller
from bridge.errors import BridgeError, ErrorCode, RequestError
from bridge.model import Heartbeat, Request, RunFailed, RunStarted
from bridge.model.jsontext import dumps
from bridge.run.run import Run
from bridge.server.operations.agent_task_endpoints import serve_stored_task
from bridge.server.operations.run_endpoint import shown_model
from bridge.server.requests.exchange import ServerExchange
from bridge.server.requests.http_messages import decoded, name_losses, response_of, stream_headers
from bridge.server.requests.spans import spanned_call
from bridge.server.requests.writing import StreamedResponse
from bridge.stores.held_places import LOST, HeldPlace, HeldPlaces, line_of
from bridge.stores.signing import kept_secret
from bridge.translation.framing import sse

if TYPE_CHECKING:
    from bridge.engine.config import Config

_JOINED = 0.1
"""Seconds of a stream that become one notification at least: clients show each."""
_ANSWER = 3600.0
"""Seconds that a person has to answer a question."""
_ENDS = "end"
"""The word that ends a call in another process, as its client no longer wants it."""
_ANY_NUMBER = 2**31
_MOST_ENDED = 10_000
"""Sessions that were ended and are remembered; older ones are valid again."""


class EndedSessions:
    """The sessions that clients have ended. `in` tells whether one was."""

    def __init__(self) -> None:
        self._ended: OrderedDict[bytes, None] = OrderedDict()

    def add(self, session: str) -> None:
        """Remember a session."""
        self._ended[_digest(session)] = None
        if len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)

    def __contains__(self, session: object) -> bool:
        return isinstance(session, str) and _digest(session) in self._ended


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


@cache
def _version() -> str:
    return version("dialect-bridge")


class ToolServer:
    """Serves the messages to one route."""

    def __init__(self, bridge: Bridge, route: Route) -> None:
        self._bridge = bridge
        self._dialect = require(route.dialect, ToolServerDialect)
        self._ended = EndedSessions()
        self._open: dict[tuple[str, str, Any], _Call] = {}
        self._site = site_of(bridge, route, ended=self._ended)

    async def __call__(self, exchange: ServerExchange) -> web.StreamResponse:
        """Serve a request: one message, or a batch of them."""
        exchange.context.site = replace(self._site, owner=exchange.user)
        wire = await exchange.read()
        batch = self._dialect.batch(wire, exchange.context)
        if batch is not None:
            return await self._serve_batch(exchange, batch)
        message = await self._decoded(exchange, wire)
        answer = await self._at_once(exchange, message) or await self._forgotten(exchange, wire, message)
        if answer is not None:
            exchange.report.status = exchange.report.status or "stop"
            return response_of(answer)
        with spanned_call(self._bridge.tracing, exchange.report, message.trace):
            if message.task is not None:
                return await serve_stored_task(exchange, wire, message.task)
            call = await self._call(exchange, wire, message)
            return await _CallResponse(exchange, [call], streams=message.streams, outlives=message.outlives).serve()

    async def _serve_batch(self, exchange: ServerExchange, wires: Sequence[WireRequest]) -> web.StreamResponse:
        """Serve each message by itself; their answers are one list, or on one stream.

        Each counts as if it had been sent alone, or a batch would pass the limits of its key.
        """
        ready, calls, streams = list[FrameLike](), list[_Call](), True
        for number, wire in enumerate(wires):
            own = exchange.part()
            try:
                if number:
                    await own.admit()
                message = await self._decoded(own, wire)
                streams = message.streams
                answer = await self._at_once(own, message) or await self._forgotten(own, wire, message)
                if answer is None:
                    calls.append(await self._call(own, wire, message))
                elif answer.body:
                    ready.append(answer.body)
            except BridgeError as error:
                error.failure.details = {**error.failure.details, **own.context.error_details}
                ready.append(self._dialect.encode_error(error.failure).body)
        if not ready and not calls:
            exchange.report.status = "stop"
            return web.Response(status=202)
        return await _CallResponse(exchange, calls, streams=streams, outlives=True, ready=ready).serve()

    async def _decoded(self, exchange: ServerExchange, wire: WireRequest) -> ToolMessage:
        message = await decoded(self._dialect.decode_message, wire, exchange.context)
        await exchange.permit(message.operation)
        return message

    async def _at_once(self, exchange: ServerExchange, message: ToolMessage) -> WireResponse | None:
        """Return the answer to a message that starts no run, after what it asks for was done."""
        if message.ends:
            self._ended.add(message.ends)
            for key in [key for key in self._open if key[:2] == (exchange.user, message.ends)]:
                self._open[key].cancel()
            await self._tell(_session_line(exchange, message.ends), _ENDS)
        elif message.cancels is not None:
            call = self._open.get((exchange.user, message.session, message.cancels))
            if call is not None:
                call.cancel()
            else:
                await self._tell(_call_line(exchange, message.session, message.cancels), _ENDS)
        elif message.replies is not None:
            await self._reply(exchange, message, message.replies)
        return message.answer

    async def _reply(self, exchange: ServerExchange, message: ToolMessage, reply: ToolReply) -> None:
        calls = [call for key, call in self._open.items() if key[:2] == (exchange.user, message.session)]
        if not any(call.reply(reply) for call in calls) and not await self._tell(
            _question_line(exchange, message.session, reply.id), dumps(reply.result).decode()
        ):
            raise RequestError("id: no question with this id waits for an answer.", param="id")

    async def _tell(self, line: str, what: str) -> bool:
        """Tell the process that has a place in this line. Return whether there is one. Raises `BridgeError`."""
        places = self._bridge.places
        return places is not None and await places.tell(line, what)

    async def _call(self, exchange: ServerExchange, wire: WireRequest, message: ToolMessage) -> _Call:
        site = exchange.context.site
        assert site is not None
        if not message.streams:
            exchange.context.site = replace(site, holds_questions=False)
        request, caller = await exchange.decode(wire)
        if not message.session:
            return _Call(exchange, self._dialect, request, caller)
        key = (exchange.user, message.session, message.id)
        if key in self._open:
            raise _is_open()
        held = await self._hold(exchange, key)
        call = self._open[key] = _Call(exchange, self._dialect, request, caller, self._bridge.places, message.session)

        def over(_: object) -> None:
            self._open.pop(key, None)
            for place in held:
                place.leave()

        call.task.add_done_callback(over)
        return call

    async def _hold(self, exchange: ServerExchange, key: tuple[str, str, Any]) -> list[HeldPlace]:
        """Return the places of a call, through which other processes end it. Raises `RequestError` if one of them has
        a call with its id.
        """
        places, held = self._bridge.places, list[HeldPlace]()
        if places is None:
            return held
        _, session, name = key

        def told(word: str) -> None:
            if word == _ENDS and (call := self._open.get(key)) is not None:
                call.cancel()

        lines = {_session_line(exchange, session): _ANY_NUMBER, _call_line(exchange, session, name): 1}
        try:
            for line, most in lines.items():
                place = await places.take(line, most, told)
                if place is None:
                    raise _is_open()
                held.append(place)
        except BaseException:
            for place in held:
                place.leave()
            raise
        return held

    async def _forgotten(
        self, exchange: ServerExchange, wire: WireRequest, message: ToolMessage
    ) -> WireResponse | None:
        """Return the answer to a call that continues a conversation which is not known any more; None for any other."""
        if not message.continues:
            return None
        request = exchange.context.request = await decoded(self._dialect.decode_request, wire, exchange.context)
        if await self._bridge.has_conversation(exchange.route, exchange.user, request):
            return None
        text = "There is no such conversation any more; leave it out to begin a new one."
        error = RequestError(text, code=ErrorCode.NOT_FOUND)
        return json_response(_payload(_failed(self._dialect.tool_encoder(exchange.context), exchange, error)[-1]))


def site_of(bridge: Bridge, route: Route, *, ended: EndedSessions | None = None) -> ToolSite:
    """Return what the codec of a route has to know of it."""
    stores = bridge.config.stores
    return replace(
        route.site,
        sealer=Sealer(_secret(bridge.config)),
        version=_version(),
        durable=route.durable,
        kept=stores.retention.events,
        remembers=bridge.remembers(route),
        holds_questions=bridge.config.server.workers == 1 or ":memory:" not in stores.runs,
        ended=ended if ended is not None else (),
    )


def _is_open() -> RequestError:
    return RequestError("id: a call with this id is open.", param="id")


def _session_line(exchange: ServerExchange, session: str) -> str:
    return line_of("tool session", exchange.route.path, exchange.user, session)


def _call_line(exchange: ServerExchange, session: str, name: Any) -> str:
    return line_of("tool call", exchange.route.path, exchange.user, session, dumps(name).decode())


def _question_line(exchange: ServerExchange, session: str, name: Any) -> str:
    return line_of("tool question", exchange.route.path, exchange.user, session, dumps(name).decode())


def _secret(config: Config) -> bytes:
    """Return the secret that seals what passes through clients: the same in all processes that share the stores.

    `server.secret`, else one kept beside the SQLite file, else the database's URL if it has a password, else a new one.
    """
    if config.server.secret is not None and (secret := config.server.secret.get_secret_value()):
        return secret.encode()
    urls = [url for url in (config.stores.history, config.stores.runs) if url]
    for url in urls:
        if url.startswith("sqlite:///") and not url.startswith("sqlite:///:memory:"):
            folder = Path(url.removeprefix("sqlite:///").partition("?")[0]).parent
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                return kept_secret(folder / ".tools-secret")
    for url in urls:
        with suppress(ValueError):
            if urlsplit(url).password:
                return hashlib.sha256(f"tools\0{url}".encode()).digest()
    return os.urandom(32)


# ------------------------------------------------------------------ one call


class _Call:
    """One call, run in a task of its own. `take` returns what is to be sent, `news` is set when there is some."""

    def __init__(
        self,
        exchange: ServerExchange,
        dialect: ToolServerDialect,
        request: Request,
        caller: RunCaller,
        places: HeldPlaces | None = None,
        session: str = "",
    ) -> None:
        """`places`: through them other processes pass on the answers to questions of this `session`."""
        self.exchange = exchange
        self._places = places
        self._session = session
        self.is_canceled = False
        """The client no longer wants an answer."""
        self.has_left = False
        """Nobody reads the answer, and no question can be asked."""
        self.news = asyncio.Event()
        self._dialect = dialect
        self._request = request
        self._caller = caller
        self.answer: FrameLike | None = None
        """Its last frame, once it is the answer."""
        self._last: FrameLike | None = None
        self._out: list[FrameLike] = []
        self._encoder: ToolEncoder | None = None
        self._replies: dict[str, asyncio.Future[Any]] = {}
        self.task = asyncio.get_running_loop().create_task(self._run())
        self.task.add_done_callback(lambda _: self.news.set())

    def take(self) -> list[FrameLike]:
        """Return the frames that wait to be sent."""
        out, self._out = self._out, []
        return out

    def cancel(self) -> None:
        """End the call without an answer, as its client asks."""
        self.is_canceled = True
        self.task.cancel()

    def reply(self, reply: ToolReply) -> bool:
        """Take the answer to a question. Return False if it is not one of this call's."""
        waiting = self._replies.get(reply.id) if isinstance(reply.id, str) else None
        if waiting is None or waiting.done():
            return False
        waiting.set_result(reply.result)
        return True

    def sign_of_life(self) -> None:
        """Tell the client that the call goes on, after all that waits to be sent."""
        if self._encoder is not None and not self.task.done():
            self._out += self._encoder.encode([Heartbeat()])

    def _send(self, frames: Sequence[FrameLike]) -> None:
        if frames and not self.has_left:
            self._out += frames
            self._last = frames[-1]
            self.news.set()

    async def _run(self) -> None:
        exchange, request, is_first = self.exchange, self._request, True
        while True:
            encoder = self._encoder = self._dialect.tool_encoder(exchange.context, self._encoder)
            try:
                await self._in_slot(request, encoder)
            except BridgeError as error:
                if is_first:
                    raise
                self._fail(encoder, error)
            if self.has_left or not encoder.questions:
                self.answer = self._last
                return
            answers = {question.key: await self._ask(question) for question in encoder.questions}
            if self._is_alone():
                return
            request, is_first = encoder.answered(answers), False
            exchange.context = replace(exchange.context, run_id=token_hex(16), created_at=time.time(), request=request)

    def _is_alone(self) -> bool:
        """Return whether the client left while it was asked."""
        return self.has_left

    async def _in_slot(self, request: Request, encoder: ToolEncoder) -> None:
        """A slot is held while a backend works, not while a person thinks."""
        async with self.exchange.limiter.slot(self._caller.owner):
            await self._answer(request, encoder)

    async def _ask(self, question: ToolQuestion) -> Any:
        """Ask a question on the stream, and wait for its answer; None if there is none."""
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._replies[question.id] = waiting
        place: HeldPlace | None = None

        def told(word: str) -> None:
            if word != LOST and not waiting.done():
                waiting.set_result(orjson.loads(word))

        try:
            if self._places is not None and not self.has_left:
                place = await self._places.take(_question_line(self.exchange, self._session, question.id), 1, told)
            self._send([Frame(question.frame, "message")])
            async with asyncio.timeout(_ANSWER):
                return await waiting
        except TimeoutError:
            return None
        finally:
            del self._replies[question.id]
            if place is not None:
                place.leave()

    def leave(self) -> None:
        """The client's connection is gone: what is asked stays open in its conversation."""
        self.has_left, self._out = True, []
        for waiting in self._replies.values():
            if not waiting.done():
                waiting.set_result(None)

    def _fail(self, encoder: ToolEncoder, error: BridgeError) -> None:
        self._send(_failed(encoder, self.exchange, error))

    async def _answer(self, request: Request, encoder: ToolEncoder) -> None:
        """Run one request. What fails from here on is an answer of the tool, which its model reads."""
        exchange, context = self.exchange, self.exchange.context
        try:
            caller = replace(self._caller, run_id=context.run_id, created_at=context.created_at)
            run = await exchange.bridge.run(exchange.route, request, caller=caller)
        except BridgeError as error:
            self._fail(encoder, error)
            return
        self._caller.raw_body = None
        try:
            await self._pump(run, encoder)
        finally:
            exchange.report.of(run)
            await run.close()

    async def _pump(self, run: Run, encoder: ToolEncoder) -> None:
        """Encode the run as it comes; pieces that follow each other within `_JOINED` together."""
        exchange, loop = self.exchange, asyncio.get_running_loop()
        pending: list[Any] = []
        timer: asyncio.TimerHandle | None = None
        sent = 0.0

        def flush() -> None:
            nonlocal timer, sent
            if timer is not None:
                timer.cancel()
            timer, sent = None, loop.time()
            events, pending[:] = list(pending), []
            if events:
                self._send(encoder.encode(events))

        exchange.report.back = run.backend.name
        try:
            while not run.ended:
                pending += [event for event in await run.read() if not isinstance(event, Heartbeat)]
                exchange.context.model = shown_model(run, exchange.context)
                if run.ended or loop.time() - sent >= _JOINED:
                    flush()
                elif timer is None and pending:
                    timer = loop.call_later(_JOINED, flush)
        except asyncio.CancelledError:
            last = None if self.is_canceled else exchange.last_events(run)
            if last is None:
                raise
            pending += last
            flush()
        finally:
            if timer is not None:
                timer.cancel()


def _failed(encoder: ToolEncoder, exchange: ServerExchange, error: BridgeError) -> list[FrameLike]:
    """Return the answer to a call that failed before its backend said anything."""
    exchange.report.ended(None, error.failure)
    return encoder.encode([RunStarted(exchange.context.run_id), RunFailed(error.failure)])


def _payload(frame: FrameLike) -> bytes:
    return frame.data if isinstance(frame, Frame) else frame


# ------------------------------------------------------------------ one response


class _CallResponse:
    """The response to the calls of a request: in one piece, or a stream from the first thing to say before the end."""

    def __init__(
        self,
        exchange: ServerExchange,
        calls: Sequence[_Call],
        *,
        streams: bool,
        outlives: bool,
        ready: Sequence[FrameLike] | None = None,
    ) -> None:
        """`ready`: the answers that are there already, for a batch."""
        self._exchange = exchange
        self._calls = calls
        self._streams = streams
        self._outlives = outlives
        self._is_batch = ready is not None
        self._ready = list(ready or ())
        self._out: list[FrameLike] = list(self._ready)
        self._response: StreamedResponse | None = None
        self._keepalive = exchange.server.keepalive or None

    async def serve(self) -> web.StreamResponse:
        """Return the response, when all calls have ended."""
        try:
            while True:
                done = all(call.task.done() for call in self._calls)
                for call in self._calls:
                    call.news.clear()
                    self._out += call.take()
                if done:
                    return await self._end()
                if self._out and self._streams:
                    await self._write()
                if not await self._news():
                    await self._keep_open()
        except (asyncio.CancelledError, ConnectionError):
            if self._exchange.handler.cutting:
                return await self._cut()
            await self._left()
            raise
        finally:
            running = [call.task for call in self._calls if not call.task.done()]
            for each in running:
                each.cancel()
            if running:
                await asyncio.wait(running)

    async def _news(self) -> bool:
        """Wait for the next frames or the end of a call. Return False when the stream was idle for too long."""
        waits = [asyncio.ensure_future(call.news.wait()) for call in self._calls if not call.task.done()]
        try:
            done, _ = await asyncio.wait(waits, timeout=self._keepalive, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return bool(done)

    async def _keep_open(self) -> None:
        if not self._streams:
            return
        for call in self._calls:
            call.sign_of_life()
            self._out += call.take()
        self._out = self._out or [KEEPALIVE]
        await self._write()

    async def _write(self) -> None:
        exchange, response = self._exchange, self._response
        if response is None:
            headers = stream_headers(exchange.route.dialect, exchange.context)
            response = StreamedResponse(
                headers=headers, slow_reader=exchange.server.slow_reader, report=exchange.report
            )
            self._response = response
            name_losses(response, exchange.context.lost.names)
            await response.prepare(exchange.http)
            exchange.report.streams()
        out, self._out = self._out, []
        await response.write(sse.join(out))

    async def _end(self) -> web.StreamResponse:
        """All calls have ended."""
        exchange = self._exchange
        for call in self._calls:
            if not call.task.cancelled() and (error := call.task.exception()) is not None:
                if self._response is None and not self._is_batch:
                    raise error
                call.answer = self._refusal(call, error)
                self._out.append(call.answer)
            elif call.is_canceled:
                exchange.report.status = "canceled"
        answers = [*self._ready, *(call.answer for call in self._calls if call.answer is not None)]
        if self._response is None and answers and (not self._streams or len(self._out) == len(answers)):
            return response_of(self._whole(answers), exchange.context.lost.names)
        if self._response is None or self._out:
            await self._write()
        assert self._response is not None
        await self._response.write_eof()
        return self._response

    def _refusal(self, call: _Call, error: BaseException) -> bytes:
        if not isinstance(error, BridgeError):
            raise error
        error.failure.details = {**error.failure.details, **call.exchange.context.error_details}
        return call.exchange.route.dialect.encode_error(error.failure).body

    def _whole(self, answers: Sequence[FrameLike]) -> WireResponse:
        """Return the answers in one piece; what was said before them is left out."""
        payloads = list(map(_payload, answers))
        body = b"[" + b",".join(payloads) + b"]" if self._is_batch else payloads[-1]
        self._exchange.report.sent = len(body)
        return json_response(body)

    async def _left(self) -> None:
        """The client has left. A call that outlives its response goes on, and its conversation is kept."""
        self._exchange.report.status = "" if self._outlives else "canceled"
        if not self._outlives:
            return
        for call in self._calls:
            call.leave()
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()
        running = [call.task for call in self._calls if not call.task.done()]
        if running:
            await asyncio.wait(running)

    async def _cut(self) -> web.StreamResponse:
        """The server stops: end the calls, and tell their clients."""
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()
        running = [call.task for call in self._calls if not call.task.done()]
        for each in running:
            each.cancel()
        if running:
            await asyncio.wait(running, timeout=1)
        for call in self._calls:
            self._out += call.take()
        async with asyncio.timeout(1):
            return await self._end()
