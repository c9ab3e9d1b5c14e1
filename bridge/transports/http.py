"""Calls backends over HTTP: one session per backend, one `HttpCall` per try.

The answer is taken for what it is, not for what was asked: an event stream, a whole JSON body, an HTML page. Reads
return whatever arrived (`readany`), since waking up per line or per HTTP chunk costs a multiple.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Coroutine, Mapping
from functools import cached_property, partial
from typing import Any

import aiohttp
from yarl import URL

from bridge.codec import (
    Card,
    Context,
    CountingDialect,
    Decoder,
    Dialect,
    FrameLike,
    KeptDialect,
    Losses,
    ModelInfo,
    ModelsDialect,
    Options,
    SingleRunDialect,
    WireRequest,
    WireResponse,
)
from bridge.codec.naming import ModelNames
from bridge.codec.redact import Secrets
from bridge.errors import BackendError, ErrorCode, Failure
from bridge.framing import sse
from bridge.model import Event, Request, RunFailed, RunFinished
from bridge.model.events import TERMINAL
from bridge.pipeline.backend import Call, CallInfo, Sink, Timeouts
from bridge.pipeline.breaker import Breaker
from bridge.pipeline.tries import Budget, Retry
from bridge.transports.answers import (
    DRAIN_SECONDS,
    Answer,
    bounded,
    broken_off,
    failure_of,
    headers_of,
    looks_like_stream,
    unread,
)
from bridge.transports.connections import Connector, reused
from bridge.transports.direct import Direct
from bridge.transports.inlet import Inlet, some

log = logging.getLogger("bridge.http")

USER_AGENT = "dialect-bridge"
MAX_ERROR_BODY = 1024 * 1024
_LAST_WORDS = 1.0
"""Seconds that chores have to end when the backend is closed."""
_STOP_SECONDS = 2.0
_VERSION = re.compile(r"/v\d+(?=/)")
_NOT_THERE = frozenset({404, 405, 501})
"""Statuses of a server that has no such endpoint: many speak a dialect without its side routes."""
_SHUT = frozenset({401, 403, 407})
"""Statuses of a server that does not take our key."""
_FEW = 64  # paths of a dialect; those with ids in them are not worth remembering


class HttpBackend:
    """A configured backend that speaks a dialect over HTTP."""

    def __init__(
        self,
        name: str,
        dialect: Dialect,
        url: str,
        *,
        api_key: str | None = None,
        names: ModelNames | None = None,
        headers: dict[str, str] | None = None,
        forward_headers: tuple[str, ...] = (),
        max_event: int = sse.MAX_EVENT,
        timeouts: Timeouts | None = None,
        retry: Retry | None = None,
        breaker: Breaker | None = None,
        options: Options | None = None,
    ) -> None:
        self.name = name
        self.dialect = dialect
        self.card: Card = dialect.card
        self.url = URL(url)
        self.names = names or ModelNames()
        self.max_event = max_event
        self.timeouts = timeouts or Timeouts()
        self.retry = retry or Retry()
        self.budget = Budget(self.retry.budget)
        self.breaker = breaker
        self.options = options if options is not None else dialect.back_options()
        self._headers = {
            # Compressed streams are buffered by everything in between.
            "accept-encoding": "identity",
            "user-agent": USER_AGENT,
            **(dialect.auth_headers(api_key) if api_key else {}),
            **{k.lower(): v for k, v in (headers or {}).items()},
        }
        self.secrets = Secrets.sent(api_key, self._headers)
        self._forward = frozenset(h.lower() for h in forward_headers)
        self._addresses: dict[str, URL] = {}
        self._chores: set[asyncio.Task[None]] = set()
        # Answers whose last bytes are still to come, and since when.
        self._ending: dict[Answer, float] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._session: aiohttp.ClientSession | None = None
        self._direct: Direct | None = None

    async def start(self) -> None:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=Connector(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.timeouts.connect),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            self._direct = Direct(self._session)

    async def close(self) -> None:
        """Gives what is done beside the runs a moment to end: a backend may still have to be told of a cancel."""
        if self._chores:
            await asyncio.wait(self._chores, timeout=_LAST_WORDS)
        session, self._session = self._session, None
        if self._sweep is not None:
            self._sweep.cancel()
        for task in self._chores:
            task.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        while self._ending:
            self._ending.popitem()[0].close()
        if session is not None:
            await session.close()

    def later(self, chore: Coroutine[Any, Any, None]) -> None:
        """Does something short beside the runs; cancelled when the backend is closed."""
        task = asyncio.get_running_loop().create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    def ends(self, response: Answer) -> None:
        """Of this answer only what follows its end mark is to come, a few bytes: nobody waits for them.

        With them aiohttp gives the connection back by itself; where they do not come, it is closed. One timer looks
        after all, which costs a tenth of a task for each.
        """
        self._ending[response] = time.monotonic()
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(DRAIN_SECONDS, self._swept)

    def _swept(self) -> None:
        late = time.monotonic() - DRAIN_SECONDS * 0.9
        for response, since in list(self._ending.items()):
            if response.content.is_eof():
                del self._ending[response]
            elif since <= late:
                del self._ending[response]
                response.close()
        self._sweep = asyncio.get_running_loop().call_later(DRAIN_SECONDS, self._swept) if self._ending else None

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError(f"backend {self.name!r} is not started")
        return self._session

    def model_for(self, asked: str | None) -> str | None:
        return self.names.model_for(asked)

    def forwards(self, headers: Mapping[str, str], front: Dialect) -> dict[str, str]:
        own = self.dialect.own_headers if front is self.dialect else ()
        return {name: headers[name] for name in (*own, *self._forward) if name in headers}

    def call(self, request: Request, info: CallInfo, lost: Losses) -> Call:
        context = self._context(request, info, lost)
        if isinstance(self.dialect, KeptDialect):
            from bridge.transports.queued import QueuedCall

            return QueuedCall(self, self.dialect.queued(request, context), info, context)
        return HttpCall(self, self.addressed(self.dialect.encode_request(request, context), info), context)

    def _context(self, request: Request, info: CallInfo, lost: Losses) -> Context:
        model = self.model_for(request.model)
        return Context(info.run_id, info.thread_id, info.created_at, self.options, model, request, lost)

    def addressed(self, wire: WireRequest, info: CallInfo) -> WireRequest:
        """The request with the client's own body where that must arrive unchanged, and with all its headers."""
        if info.raw_body is not None:
            wire.body = info.raw_body
        extra = {"x-request-id": info.request_id} if info.request_id else {}
        wire.headers = {**wire.headers, **extra, **info.forwarded, **self._headers}
        return wire

    def address(self, path: str) -> URL:
        """Base URL and the dialect's path, with the base's query; a base that ends in the path is taken as it is.

        A version with which the path begins is not written twice: people give such bases with it and without.
        """
        known = self._addresses.get(path)
        if known is None:
            base = self.url.path.rstrip("/")
            version = _VERSION.match(path)
            if version and base.endswith(version[0]):
                base = base.removesuffix(version[0])
            whole = self.url.path if not path or base.endswith(path) else base + path
            known = self.url.with_path(whole, encoded=True).with_query(self.url.query)
            if len(self._addresses) < _FEW:
                self._addresses[path] = known
        return known

    async def models(self) -> list[ModelInfo]:
        if not isinstance(self.dialect, ModelsDialect):
            return []
        wire = self.dialect.models_request()
        wire.headers = {**wire.headers, **self._headers}
        answer = await self.whole_answer(wire, self.timeouts.first_event)
        if answer.status >= 300:
            raise BackendError.of(self.secrets.hide(self.dialect.decode_error(answer)))
        return self.dialect.decode_models(answer)

    async def check(self) -> None:
        """Asks for its models, which also shows whether the key is taken; else whether its port is open."""
        if not isinstance(self.dialect, ModelsDialect):
            await self._reach()
            return
        wire = self.dialect.models_request()
        wire.headers = {**wire.headers, **self._headers}
        answer = await self.whole_answer(wire, self.timeouts.first_event)
        if answer.status in _SHUT or answer.status >= 500:
            raise BackendError.of(self.dialect.decode_error(answer))

    async def _reach(self) -> None:
        try:
            async with asyncio.timeout(self.timeouts.connect):
                _, writer = await asyncio.open_connection(self.url.host, self.url.port)
        except (OSError, TimeoutError) as error:
            raise BackendError.of(failure_of(error)) from None
        writer.close()

    async def count(self, request: Request, info: CallInfo) -> int | None:
        if not isinstance(self.dialect, CountingDialect):
            return None
        wire = self.dialect.count_request(request, self._context(request, info, Losses()))
        answer = await self.whole_answer(self.addressed(wire, info), self.timeouts.first_event)
        if answer.status in _NOT_THERE:
            return None
        if answer.status >= 300:
            raise BackendError.of(self.secrets.hide(self.dialect.decode_error(answer)))
        return self.dialect.decode_count(answer)

    async def whole_answer(self, wire: WireRequest, seconds: float | None) -> WireResponse:
        """The answer to a short question. Raises `BackendError`."""
        try:
            async with asyncio.timeout(seconds):
                response = await self.ask(wire)
                async with response:
                    body = await bounded(response, self.max_event)
                return WireResponse(response.status, headers_of(response), body)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise BackendError.of(failure_of(error)) from None

    async def ask(self, wire: WireRequest) -> Answer:
        """The head of the answer. Raises what aiohttp raises.

        A kept-alive connection that the backend closed in the moment of sending: nothing was answered, so a fresh one
        is tried at once (openai-chat, "Cancellation, limits"). Each round uses up a stale one.
        """
        session, address = self.session, self.address(wire.path)
        direct = self._direct
        while True:
            reused.set(False)
            try:
                if direct is not None and (answer := await direct.ask(wire, address)) is not None:
                    return answer
                return await session.request(
                    wire.method,
                    address,
                    params=wire.query or None,
                    data=wire.body or None,
                    headers=wire.headers,
                    allow_redirects=False,
                )
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError):
                if not reused.get():
                    raise

    def hide(self, events: list[Event]) -> list[Event]:
        """The same events: the failure at their end, if there is one, repeats none of our keys."""
        if events and isinstance(events[-1], RunFailed):
            self.secrets.hide(events[-1].error)
        return events

    async def refusal_in(self, response: Answer) -> Failure:
        """What a head with another status than 2xx means; reads the body."""
        try:
            body = await bounded(response, MAX_ERROR_BODY, cut=True)
        except (aiohttp.ClientError, OSError):
            body = b""
        return self.refusal(WireResponse(response.status, headers_of(response), body))

    def refusal(self, answer: WireResponse) -> Failure:
        """What an answer with another status than 2xx means."""
        if answer.status < 400:
            text = f"The backend answered with a redirect (HTTP {answer.status}), which is not followed."
            return Failure(ErrorCode.BACKEND_ERROR, text, details={"backend_status": answer.status})
        failure = self.secrets.hide(self.dialect.decode_error(answer))
        failure.details.setdefault("backend_status", answer.status)
        return failure


class HttpCall:
    """One try. See `bridge.pipeline.backend.Call` for what each method promises."""

    def __init__(self, backend: HttpBackend, wire: WireRequest, context: Context) -> None:
        self.context = context
        self.frames: list[FrameLike] = []
        self.whole: WireResponse | None = None
        self.wire_ended = False
        self._backend = backend
        self.sent = wire
        self._response: Answer | None = None
        self._stream: bool | None = None
        self._over = False
        self._clean = False
        self._asked = False
        self._left: list[Event] | Exception | None = None

    @cached_property
    def _decoder(self) -> Decoder:
        """Of the stream: whole answers, which `parse_response` reads, need none."""
        return self._backend.dialect.decoder(self.context)

    @cached_property
    def _splitter(self) -> sse.Splitter:
        return sse.Splitter(self._backend.max_event)

    async def open(self) -> None:
        self._asked = True
        try:
            response = await self._backend.ask(self.sent)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self._asked = False
            error.__traceback__ = None  # as in `read`
            raise BackendError.of(failure_of(error)) from None
        self._response = response
        self.sent.body = b""  # it has arrived: a long prompt need not be held while its answer streams
        if response.status >= 300:
            self._asked = False
            raise BackendError.of(await self._backend.refusal_in(response))

    async def read(self, sink: Sink | None = None) -> list[Event]:
        if self._over:
            return []
        response = self._response
        assert response is not None, "read() before open()"
        try:
            if sink is not None and self._stream and (left := await self._pour(response, sink)) is not None:
                return left
            data = await some(response.content)
            if self._stream is None:
                self._stream = looks_like_stream(response, data)
            if data and self._stream:
                self.frames = frames = self._splitter.feed(data)
                events = self._decoder.feed(frames)
            elif self._stream:
                self.frames = frames = self._splitter.close()
                events = self._decoder.feed(frames)
                self._mark(events)
                self._asked = False
                if not self._over:
                    events += self._decoder.close()
                    self._over = True
                return events
            else:
                data += await bounded(response, self._backend.max_event - len(data))
                events = self._whole(response, data)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            # aiohttp keeps the exception, and with its traceback this call and all it holds, in a cycle.
            error.__traceback__ = None
            self.frames = []
            return [*self._unread(response), *self.fail(broken_off(error))]
        except BackendError as error:
            self.frames = []
            return self.fail(error.failure)
        if events and type(events[-1]) in TERMINAL:
            self._mark(events)
        return events

    async def _pour(self, response: Answer, sink: Sink) -> list[Event] | None:
        """Gives `sink` what comes until it leaves a batch, which is returned; None when the answer is to be read."""
        # Made anew when it is needed, which is rarely: kept here it would be a cycle, which only the collector frees.
        inlet = Inlet(response, partial(self._take, sink))
        if not inlet.open():
            return None
        await inlet.closed()
        left, self._left = self._left, None
        if isinstance(left, Exception):
            raise left
        if left and type(left[-1]) in TERMINAL:
            self._mark(left)
        return left

    def _take(self, sink: Sink, data: bytes) -> bool:
        """One network read, on its way to the sink; what goes wrong belongs to whoever waits in `read`."""
        try:
            self.frames = frames = self._splitter.feed(data)
            events = self._decoder.feed(frames)
            if sink(events):
                return True
            self._left = events
        except Exception as error:
            self._left = error
        return False

    def _unread(self, response: Answer) -> list[Event]:
        """The events of what had arrived when the connection broke."""
        data = unread(response) if self._stream is not False else b""
        try:
            return self._backend.hide(self._decoder.feed(self._splitter.feed(data))) if data else []
        except BackendError:
            return []

    def _whole(self, response: Answer, body: bytes) -> list[Event]:
        self.whole = WireResponse(response.status, headers_of(response), body)
        return self._backend.dialect.parse_response(self.whole, self.context)

    def _mark(self, events: list[Event]) -> None:
        if events and type(events[-1]) in TERMINAL:
            self._over = self.wire_ended = True
            self._clean = type(events[-1]) is RunFinished
            self._backend.hide(events)

    def fail(self, failure: Failure) -> list[Event]:
        self._over = True
        return self._decoder.close(failure)

    async def close(self) -> None:
        response, self._response = self._response, None
        await self._stop()
        if response is None:
            return
        if response.content.at_eof():
            response.release()
        elif self._clean:
            self._backend.ends(response)
        else:
            response.close()

    async def _stop(self) -> None:
        """Tells the backend that its work is not wanted any more, where its dialect has a word for that.

        It is waited for: told later, it would end the next run of the same session. A run that was refused, or has come
        to its end, is not stopped: whatever runs under its name then is somebody else's.
        """
        asked, self._asked = self._asked and not self.wire_ended, False
        request, backend = self.context.request, self._backend
        if not asked or request is None or not isinstance(backend.dialect, SingleRunDialect):
            return
        wire = backend.dialect.stop_request(request, self.context)
        if wire is None:
            return
        wire.headers = {**self.sent.headers, **wire.headers}
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                (await backend.ask(wire)).release()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            log.warning("backend %s: a run could not be stopped: %s", backend.name, failure_of(error).message)
