"""Calls backends over HTTP: one session per backend, one `HttpCall` per try.

The answer is taken for what it is, not for what was asked: an event stream, a whole JSON body, an HTML page. Reads
return what has arrived, up to a limit, since waking up per line or per HTTP chunk costs a multiple.
"""

from __future__ import annotations

import asyncio
import io
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeVar

import aiohttp
from aiohappyeyeballs import start_connection
from yarl import URL

from bridge.contract import (
    Context,
    CountingDialect,
    Dialect,
    Embeddings,
    EmbeddingsDialect,
    EmbeddingsRequest,
    FrameLike,
    Losses,
    ModelInfo,
    ModelsDialect,
    Options,
    SingleRunDialect,
    WireRequest,
    WireResponse,
)
from bridge.contract.naming import ModelNames
from bridge.errors import BackendError, ErrorCode, Failure, RequestError, Wrong, with_status
from bridge.model import Event, MessageStarted, Raw, Request, RunFailed, RunFinished
from bridge.model.closing import PIECES
from bridge.model.events import CONTENT
from bridge.run.amendments import amended_body
from bridge.run.backend import NO_HEADERS, Call, CallInfo, ConfiguredBackend, Timeouts
from bridge.run.backends.connector import Connector, LargeBody, Sending, current
from bridge.run.backends.credentials import Credentials
from bridge.run.backends.http_answer import (
    AT_ONCE,
    DRAIN_SECONDS,
    HttpAnswer,
    bounded,
    broken_off,
    failure_of,
    headers_of,
    outcome_of,
    unread,
)
from bridge.run.backends.lookups import CONFIGURED
from bridge.run.backends.proxies import credentials_in, proxy_for
from bridge.run.breaker import CircuitBreaker
from bridge.run.retries import RetryPolicy
from bridge.toolkit.paths import check_path
from bridge.toolkit.redact import Secrets
from bridge.translation import AnswerDecoder
from bridge.translation.framing import sse
from bridge.translation.requirements import required

if TYPE_CHECKING:
    from bridge.run.backends import http1

log = logging.getLogger("bridge.http")

USER_AGENT = "dialect-bridge"
MAX_ERROR_BODY = 1024 * 1024
LARGE_BODY = 1024 * 1024
"""Bytes: aiohttp warns of a larger body in one piece."""
_LAST_WORDS = 1.0
"""Seconds that chores have to end when the backend is closed."""
_STOP_SECONDS = 2.0
_LOOK_SECONDS = 1.0
"""Seconds between two checks of the answers that are being read."""
_VERSION = re.compile(r"(/v\d+|/api)(?:(?:alpha|beta)\d*)?(?=/|$)")
_NOT_THERE = frozenset({404, 405, 501})
_NO_COUNTS = re.compile(r"count_?tokens|no ?resource ?found|\b404\b", re.IGNORECASE)
"""What servers without an endpoint for counts say with another status (Wei-Shaw/sub2api#656: DashScope)."""
"""Statuses of a server that has no such endpoint: many speak a dialect without its side routes."""
_SHUT = frozenset({401, 403, 407})
"""Statuses of a server that does not take our key."""
_SENDABLE = re.compile(r"[\t -~]*")
"""Values of client headers that every backend takes."""
_EXCERPT = 200
"""Bytes of an answer that the log repeats."""
ADVICE: Mapping[int, str] = {
    301: "the url",
    302: "the url",
    307: "the url",
    308: "the url",
    401: "the api_key",
    402: "the balance of the account",
    403: "the api_key",
    404: "the url and the model",
    405: "the url",
    407: "the proxy",
    501: "the url",
}
"""HTTP status -> what in the configuration of a backend is most likely wrong."""
_FEW = 64
"""Paths whose addresses are remembered: a dialect has few, apart from those with ids in them."""


class _Head(Protocol):
    status: int

    @property
    def headers(self) -> Mapping[str, str]: ...

    def release(self) -> object: ...


A = TypeVar("A", bound=_Head)


class HttpBackend(ConfiguredBackend):
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
        retry: RetryPolicy | None = None,
        breaker: CircuitBreaker | None = None,
        options: Options | None = None,
        httptools: bool = False,
        proxy: str | None = None,
        credentials: Callable[[URL, Callable[[str], None]], Credentials] | None = None,
    ) -> None:
        """`httptools`: answers of runs are read by `bridge.run.backends.http1` instead of aiohttp, if no proxy is used.

        `proxy`: the URL of a proxy, or `none`; without, that of the environment. `credentials` makes what authenticates
        each request, given the URL and what is to be called with each secret.
        """
        super().__init__(name, dialect.capabilities, names, timeouts, retry, breaker)
        self.dialect = dialect
        self.url = URL(url)
        self.proxy = proxy_for(self.url, proxy)
        self.max_event = max_event
        self.options = options if options is not None else dialect.back_options()
        self.demands = dialect.demands(self.options)
        self._headers = {
            # Compressed streams are buffered by everything in between.
            "accept-encoding": "identity",
            "user-agent": USER_AGENT,
            **(dialect.auth_headers(api_key) if api_key else {}),
            **{k.lower(): v for k, v in (headers or {}).items()},
        }
        address = self.url.authority.rpartition("@")[2]
        self.secrets = Secrets.sent(api_key, self._headers, address, *credentials_in(self.proxy))
        self._credentials = credentials(self.url, self.secrets.learn) if credentials is not None else None
        self._forward = frozenset(h.lower() for h in forward_headers)
        self.address = lru_cache(_FEW)(self._address)
        self._reading: set[aiohttp.ClientResponse] = set()
        # Answers whose last bytes are still to come, and since when.
        self._ending: dict[aiohttp.ClientResponse, float] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._session: aiohttp.ClientSession | None = None
        self.stops_runs = isinstance(dialect, SingleRunDialect)
        """A run has to be stopped by a request of its own."""
        self._httptools = httptools and self.proxy is None
        self._client: http1.Http1Client | None = None

    async def start(self) -> None:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=Connector(),
                timeout=aiohttp.ClientTimeout(total=None, connect=self.timeouts.connect),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        if self._httptools and self._client is None:
            from bridge.run.backends import http1

            self._client = http1.Http1Client(self.timeouts.connect)

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
        client, self._client = self._client, None
        if client is not None:
            client.close()
        if self._credentials is not None:
            await self._credentials.close()
        if session is not None:
            await session.close()

    def reads(self, response: aiohttp.ClientResponse) -> None:
        """This answer is being read, until `ends` or `forget`."""
        self._reading.add(response)
        self._look_later(_LOOK_SECONDS)

    def forget(self, response: aiohttp.ClientResponse) -> None:
        """Nobody reads this answer any more."""
        self._reading.discard(response)

    def ends(self, response: aiohttp.ClientResponse) -> None:
        """Note that only the few bytes after the end mark of this answer are left, which nothing waits for.

        With them aiohttp returns the connection to its pool; without them it is closed. One timer checks all, which
        costs a tenth of a task for each.
        """
        self._ending[response] = time.monotonic()
        self._look_later(DRAIN_SECONDS)

    def _look_later(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._sweep is not None:
            if self._sweep.when() <= loop.time() + seconds:
                return
            self._sweep.cancel()
        self._sweep = loop.call_later(seconds, self._check)

    def _check(self) -> None:
        self._sweep = None
        late = time.monotonic() - DRAIN_SECONDS * 0.9
        for response, since in list(self._ending.items()):
            if response.content.is_eof():
                del self._ending[response]
            elif since <= late:
                del self._ending[response]
                response.close()
        for response in self._reading:
            # aiohttp 3.14 closes a connection on which something came that is no HTTP, and does not tell the reader.
            connection = response.connection
            if not response.content.is_eof() and (connection is None or connection.transport is None):
                response.content.set_exception(aiohttp.ClientPayloadError("The answer breaks off with invalid HTTP."))
        if self._ending or self._reading:
            self._look_later(DRAIN_SECONDS if self._ending else _LOOK_SECONDS)

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError(f"backend {self.name!r} is not started")
        return self._session

    def forwards(self, headers: Mapping[str, str], front: Dialect) -> Mapping[str, str]:
        own = self.dialect.own_headers if front is self.dialect else ()
        if not (own or self._forward):
            return NO_HEADERS
        found: dict[str, str] = {}
        for name in (*own, *self._forward):
            if name in headers:
                found[name] = value = headers[name]
                if not _SENDABLE.fullmatch(value):
                    # Refused before the backend is called: it is the client's fault, and says nothing of the backend.
                    raise RequestError(f"The header {name} cannot be forwarded: expected printable ASCII.", param=name)
        return found

    def call(self, request: Request, info: CallInfo, lost: Losses) -> Call:
        context = self.context(request, info, lost)
        wire = self.dialect.encode_request(request, context)
        if info.amendments and info.raw_body is None:
            headers = dict(info.forwarded)
            wire.body, amended = amended_body(wire.body, info.amendments, lost, headers)
            if info.amended is not None:
                info.amended[:] = amended
            info = replace(info, forwarded=headers)
        return HttpCall(self, self.addressed(wire, info), context)

    def context(self, request: Request, info: CallInfo, lost: Losses) -> Context:
        model = self.names.model_for(request.model)
        return Context(
            info.run_id,
            info.thread_id,
            info.created_at,
            self.options,
            model,
            request,
            lost,
            names_thread=info.names_thread,
            continues=info.continues,
            caches=info.caches,
            host=self.url.host or "",
        )

    def addressed(self, wire: WireRequest, info: CallInfo) -> WireRequest:
        """The request with the client's own body where that must arrive unchanged, and with all its headers."""
        if info.raw_body is not None:
            wire.body = info.raw_body
        extra = {"x-request-id": info.request_id} if info.request_id else {}
        wire.headers = {**wire.headers, **extra, **info.forwarded, **self._headers}
        return wire

    def _address(self, path: str) -> URL:
        """Base URL and the dialect's path, with the base's query; a base that ends in the path is taken as it is.

        A version with which the path begins is not written twice: people give such bases with it and without, and a
        base that ends in `/v1` means that version where the path says `/v1beta`. So is `/api` at the same place.
        """
        check_path(path)
        base = self.url.raw_path.rstrip("/")
        version = _VERSION.match(path)
        own = _VERSION.fullmatch(base[base.rfind("/") :]) if version and base else None
        rest = path[version.end() :] if version and own and own[1] == version[1] else path
        whole = self.url.raw_path if not path or base.endswith(path) else base + rest
        return self.url.with_path(whole, encoded=True).with_query(self.url.query)

    def address_of(self, wire: WireRequest) -> URL:
        """Return where a request goes, with its query."""
        if wire.rooted:
            check_path(wire.path)
            address = self.url.with_path(wire.path, encoded=True).with_query(self.url.query)
        else:
            address = self.address(wire.path)
        return address.extend_query(wire.query) if wire.query else address

    async def models(self) -> list[ModelInfo]:
        if not isinstance(self.dialect, ModelsDialect):
            return []
        wire, answer = await self._listed(self.dialect)
        if answer.status >= 300:
            raise BackendError.of(self.refusal(answer, wire))
        return self.dialect.decode_models(answer)

    async def _listed(self, dialect: ModelsDialect) -> tuple[WireRequest, WireResponse]:
        wire = dialect.models_request()
        wire.headers = {**wire.headers, **self._headers}
        return wire, await self.whole_answer(wire, self.timeouts.of_question)

    async def check(self) -> None:
        """Asks for its models, which also shows whether the key is taken; else whether its port is open."""
        if not isinstance(self.dialect, ModelsDialect):
            await self._reach()
            return
        wire, answer = await self._listed(self.dialect)
        if answer.status in _SHUT or answer.status >= 500:
            raise BackendError.of(self.refusal(answer, wire))

    async def _reach(self) -> None:
        """Open and close a connection to the backend, or to the proxy that leads to it."""
        to = self.proxy or self.url
        try:
            async with asyncio.timeout(self.timeouts.connect):
                sock = await start_connection(await CONFIGURED.find(to.host or "", to.port or 0))
        except (OSError, TimeoutError) as error:
            raise BackendError.of(self._unanswered(error)) from None
        sock.close()

    async def count(self, request: Request, info: CallInfo) -> int | None:
        if not isinstance(self.dialect, CountingDialect):
            return None
        lost = Losses()
        request = required(request, self.demands, lost)
        wire = self.dialect.count_request(request, self.context(request, info, lost))
        answer = await self.whole_answer(self.addressed(wire, info), self.timeouts.of_question)
        if answer.status in _NOT_THERE:
            return None
        if answer.status >= 300:
            failure = self.refusal(answer, wire)
            if answer.status in (400, 500) and _NO_COUNTS.search(failure.message):
                return None
            raise BackendError.of(failure)
        try:
            return self.dialect.decode_count(answer)
        except BackendError as error:  # some servers take any path for a request (QuantumNous/new-api#7285)
            log.info("backend %s: %s", self.name, error)
            return None

    async def embed(self, asked: EmbeddingsRequest, info: CallInfo) -> Embeddings | None:
        if not isinstance(self.dialect, EmbeddingsDialect):
            return None
        wire = self.dialect.embeddings_request(asked, self.model_for(asked.model) or asked.model)
        answer = await self.whole_answer(self.addressed(wire, info), self.timeouts.of_question)
        if answer.status >= 300:
            raise BackendError.of(self.refusal(answer, wire))
        found = self.dialect.decode_embeddings(answer)
        if len(found.vectors) != len(asked.inputs):
            counts = f"{len(found.vectors)} vectors for {len(asked.inputs)} texts"
            raise BackendError(f"The backend's answer has {counts}.", code=ErrorCode.BACKEND_PROTOCOL)
        return found

    async def whole_answer(self, wire: WireRequest, seconds: float | None) -> WireResponse:
        """The answer to a short question. Raises `BackendError`."""
        try:
            async with asyncio.timeout(seconds) as limit:
                response = await self.ask(wire)
                async with response:
                    body = await bounded(response.content.read, self.max_event)
                return WireResponse(response.status, headers_of(response), body)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            late = seconds is not None and limit.expired()
            raise BackendError.of(self._late(seconds, wire) if late else self.unanswered(error, wire)) from None

    def _late(self, seconds: float | None, wire: WireRequest) -> Failure:
        """Return the failure of a question that was not answered in this time."""
        key = " (timeouts.first_event)" if seconds == self.timeouts.first_event else ""
        text = f"The backend did not answer within {seconds:g} s{key}."
        return self.explained(Failure(ErrorCode.BACKEND_TIMEOUT, text), wire, "has not answered", "the timeouts")

    def unanswered(self, error: Exception, wire: WireRequest) -> Failure:
        """Return the failure that an error before the head of an answer means, with its cause for the log."""
        return self.explained(self._unanswered(error), wire, *outcome_of(error))

    def _unanswered(self, error: Exception) -> Failure:
        failure = failure_of(error)
        return self.timeouts.unreached() if failure.code is ErrorCode.BACKEND_TIMEOUT else failure

    def answer(self, wire: WireRequest) -> Awaitable[HttpAnswer]:
        """Send the request of a run, and return the answer once its head is there. Raises what the client raises."""
        if self._client is None:
            return self._by_aiohttp(wire)
        return self._authorized(wire, self._by_httptools) if self._credentials is not None else self._by_httptools(wire)

    async def _by_aiohttp(self, wire: WireRequest) -> HttpAnswer:
        return AiohttpAnswer(self, await self.ask(wire))

    def _by_httptools(self, wire: WireRequest) -> Awaitable[HttpAnswer]:
        assert self._client is not None
        return self._client.request(wire.method, self.address_of(wire), wire.headers, wire.body)

    async def ask(self, wire: WireRequest) -> aiohttp.ClientResponse:
        """The head of the answer. Raises what aiohttp raises, and `BackendError` if there are no credentials.

        Sent again, once, where `Sending` says so (openai-chat, "Cancellation, limits").
        """
        return await self._authorized(wire, self._ask)

    def _authorized(self, wire: WireRequest, send: Callable[[WireRequest], Awaitable[A]]) -> Awaitable[A]:
        """Send a request with the backend's credentials, if it has any."""
        return send(wire) if self._credentials is None else self._with(self._credentials, wire, send)

    async def _with(
        self, credentials: Credentials, wire: WireRequest, send: Callable[[WireRequest], Awaitable[A]]
    ) -> A:
        """Send a request with these credentials; once more with new ones, if they are refused."""
        plain = wire.headers
        await self._authorize(credentials, wire)
        answer = await send(wire)
        if credentials.refused(answer.status, answer.headers) and await credentials.renew(wire):
            answer.release()
            wire.headers = plain
            await self._authorize(credentials, wire)
            answer = await send(wire)
        return answer

    async def _authorize(self, credentials: Credentials, wire: WireRequest) -> None:
        try:
            wire.headers = {**wire.headers, **await credentials.headers(wire, self.address_of(wire))}
        except BackendError as error:
            log.warning("backend %s: %s", self.name, error.failure.cause)
            raise

    async def _ask(self, wire: WireRequest) -> aiohttp.ClientResponse:
        session, address, body, sending = self.session, self.address_of(wire), wire.body, Sending()
        token = current.set(sending)
        try:
            while True:
                try:
                    return await session.request(
                        wire.method,
                        address,
                        data=(LargeBody(io.BytesIO(body), sending) if len(body) > LARGE_BODY else body) or None,
                        headers=wire.headers,
                        allow_redirects=False,
                        proxy=self.proxy,
                    )
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError):
                    if not sending.repeats():
                        raise
        finally:
            current.reset(token)

    async def forward(self, wire: WireRequest, body: AsyncIterator[bytes]) -> aiohttp.ClientResponse:
        """The head of the answer to a request whose body cannot be sent twice. Raises what aiohttp raises."""
        wire.headers = {**wire.headers, **self._headers}
        if self._credentials is not None:
            if self._credentials.signs_bodies:
                text = "A body that is forwarded cannot be signed."
                raise BackendError(text, code=ErrorCode.UNSUPPORTED)
            await self._authorize(self._credentials, wire)
        return await self.session.request(
            wire.method,
            self.address_of(wire),
            data=body,
            headers=wire.headers,
            allow_redirects=False,
            proxy=self.proxy,
        )

    async def refusal_in(self, response: aiohttp.ClientResponse, wire: WireRequest) -> Failure:
        """Return the failure that a status other than 2xx means; reads the body."""
        return await self.refused(response.status, headers_of(response), response.content.read, wire)

    async def refused(
        self, status: int, headers: dict[str, str], read: Callable[[int], Awaitable[bytes]], wire: WireRequest
    ) -> Failure:
        """Return the failure that a status other than 2xx means, with the body that `read` returns piece by piece."""
        try:
            body = await bounded(read, MAX_ERROR_BODY, cut=True)
        except (aiohttp.ClientError, OSError) as error:
            return self.refusal(WireResponse(status, headers, b""), wire, f"a body that cannot be read: {error}")
        return self.refusal(WireResponse(status, headers, body), wire)

    def refusal(self, answer: WireResponse, wire: WireRequest, excerpt: str = "") -> Failure:
        """Return the failure that an answer with a status other than 2xx means. `excerpt` replaces its first words in
        the log.
        """
        if answer.status < 400:
            text = f"The backend answered with a redirect (HTTP {answer.status}), which is not followed."
            failure = Failure(ErrorCode.BACKEND_ERROR, text)
        else:
            failure = with_status(self.secrets.hide(self.dialect.decode_error(answer)), answer.status)
        failure.details.setdefault("backend_status", answer.status)
        # The query may hold a token.
        moved = answer.headers.get("location", "").partition("?")[0]
        said = f"redirected to {moved}" if answer.status < 400 and moved else excerpt or _excerpt(answer.body)
        advice = ADVICE.get(answer.status, "")
        if answer.status == 404 and failure.code is not ErrorCode.NOT_FOUND:
            advice = "the url"
        return self.explained(failure, wire, f"answered {answer.status}: {said}", advice)

    def explained(self, failure: Failure, wire: WireRequest, outcome: str, advice: str = "") -> Failure:
        """Return the failure with the cause for the log: the call, its outcome, and what an operator should check."""
        address = self.address_of(wire).with_user(None).with_query(None)
        return self.secrets.explain(failure, f"{wire.method} {address} {outcome}", advice, self.name)


_UNDERSTOOD = CONTENT - {MessageStarted, Raw}
"""Events that only an answer in the backend's dialect can cause."""


def has_content(events: list[Event]) -> bool:
    """Return whether one of the events can only come of an answer in the backend's dialect."""
    return not _UNDERSTOOD.isdisjoint(map(type, events))


def _excerpt(body: bytes) -> str:
    """The first words of a body, on one line."""
    text = " ".join(body[:_EXCERPT].decode("utf-8", "replace").split()) or "an empty body"
    return f"{text}..." if len(body) > _EXCERPT else text


class AiohttpAnswer:
    """The answer to a request that was sent by aiohttp."""

    def __init__(self, backend: HttpBackend, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers = headers_of(response)
        self.read = response.content.read
        self._backend = backend
        self._response = response
        backend.reads(response)

    @property
    def at_end(self) -> bool:
        return self._response.content.at_eof()

    def unread(self, most: int) -> bytes:
        return unread(self._response)

    def pass_on(self, take: Callable[[bytes], bool] | None) -> None:
        """aiohttp has no callback for data."""

    def release(self, drain: bool = False) -> None:
        response = self._response
        self._backend.forget(response)
        if response.content.at_eof():
            response.release()
        elif drain:
            self._backend.ends(response)
        else:
            response.close()


def _untaken(events: list[Event]) -> bool:
    """Leave deltas to `read`."""
    return False


class HttpCall:
    """One try. See `bridge.run.backend.Call` for what each method promises."""

    __slots__ = (
        "_answer", "_backend", "_began", "_content_type", "_decoded", "_decoder", "_finished", "_running", "_take",
        "_understood", "context", "frames", "received", "sent",
    )  # fmt: skip

    def __init__(self, backend: HttpBackend, wire: WireRequest, context: Context) -> None:
        self.context = context
        self.frames: list[FrameLike] = []
        self.received = 0
        self.sent = wire
        self._backend = backend
        self._answer: HttpAnswer | None = None
        self._decoder: AnswerDecoder | None = None
        self._take: Callable[[list[Event]], bool] = _untaken
        self._decoded: list[Event] | None = None  # not taken, and to be returned by `read`
        self._content_type = ""
        self._began = b""
        self._understood = False
        self._running = False
        self._finished = False

    @property
    def whole(self) -> WireResponse | None:
        return self._decoder.whole if self._decoder is not None else None

    @property
    def awaits_whole(self) -> bool:
        if self._decoder is not None:
            return self._decoder.is_whole
        accept, request = self.sent.headers.get("accept", ""), self.context.request
        return accept == "application/json" if accept else request is not None and not request.stream

    @property
    def wire_ended(self) -> bool:
        return self._decoder is not None and self._decoder.wire_ended

    async def open(self) -> None:
        backend = self._backend
        self._running = True
        try:
            answer = await backend.answer(self.sent)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self._running = False
            error.__traceback__ = None  # as in `read`
            raise BackendError.of(backend.unanswered(error, self.sent)) from None
        self._answer = answer
        self.sent.body = b""  # it has arrived: a long prompt need not be held while its answer streams
        if not backend.stops_runs:
            self.sent.headers = NO_HEADERS
        if answer.status >= 300:
            self._running = False
            raise BackendError.of(await backend.refused(answer.status, answer.headers, answer.read, self.sent))
        self._decoder = self._new_decoder(answer.headers, answer.status)
        # The decoder has all of them, as long as it needs them.
        self._content_type, answer.headers = answer.headers.get("content-type", ""), {}

    def _new_decoder(self, headers: dict[str, str], status: int) -> AnswerDecoder:
        backend = self._backend
        return AnswerDecoder(backend.dialect, self.context, headers, status=status, max_event=backend.max_event)

    async def read(self) -> list[Event]:
        answer, decoder = self._answer, self._decoder
        assert answer is not None, "read() before open()"
        assert decoder is not None
        if decoder.ended and not self._decoded:
            return []
        self.frames = decoder.frames = []  # those of the last read are not held while the next one waits
        try:
            data = await answer.read(AT_ONCE)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            # aiohttp keeps the exception, and with its traceback this call and all it holds, in a cycle.
            error.__traceback__ = None
            rest = answer.unread(AT_ONCE)
            events, self._decoded = self._decoded or [], None
            events += decoder.receive(rest) if rest else []
            self.frames = decoder.frames if rest else []
            if not decoder.ended:
                events += decoder.close(broken_off(error))
            self._understood = self._understood or has_content(events)
            if events and isinstance(events[-1], RunFailed):
                self._explain(events[-1].error, answer)
            return events
        events, self._decoded = self._decoded or [], None
        if data:
            if not self.received:
                self._began = data[: _EXCERPT + 1]
            self.received += len(data)
            events += decoder.receive(data)
        if not (data or events) or (decoder.is_whole and answer.at_end):
            events += decoder.close()
            self._running = False
        self.frames = decoder.frames
        if not self._understood:
            self._understood = has_content(events)
        end = events[-1] if events else None
        if isinstance(end, RunFailed):
            self._explain(end.error, answer)
        elif isinstance(end, RunFinished):
            self._finished = decoder.wire_ended
        return events

    def pass_deltas(self, take: Callable[[list[Event]], bool]) -> None:
        """Call `take` with deltas that arrive while `read` waits, instead of returning them; `read` returns those for
        which it returns False. Does nothing where the HTTP client cannot do that.
        """
        if self._answer is not None:
            self._take = take
            self._answer.pass_on(self._taken)

    def _taken(self, data: bytes) -> bool:
        """Pass deltas on where they arrive; everything else, and what is not taken, is returned by `read`."""
        decoder = self._decoder
        assert decoder is not None
        self.received += len(data)
        events = decoder.receive(data)
        if not events:
            self._take(events)  # a sign of life, such as a comment
            return True
        if PIECES.issuperset(map(type, events)) and self._take(events):
            decoder.frames = self.frames
            return True
        self._decoded = events
        return False

    def _explain(self, failure: Failure, answer: HttpAnswer) -> None:
        """Let the failure that ends an answer say what failed, and repeat none of our keys."""
        failure = self._backend.secrets.hide(failure)
        outcome, advice = f"answered {answer.status}", ""
        unread = failure.code is ErrorCode.TRUNCATED_STREAM and not self._understood
        if failure.code is ErrorCode.BACKEND_PROTOCOL or not self._understood or self.received <= _EXCERPT:
            kind = self._content_type.partition(";")[0] or "without a content type"
            said = "a body that cannot be read" if failure.wrong is Wrong.COMPRESSION else _excerpt(self._began)
            outcome += f" {kind}: {said}"
        if failure.code is ErrorCode.BACKEND_PROTOCOL or unread:
            advice = "the url and the dialect"
        self._backend.explained(failure, self.sent, outcome, advice)

    def fail(self, failure: Failure) -> list[Event]:
        if self._decoder is None:
            self._decoder = self._new_decoder({}, 200)
        outcome = "has not answered" if self._answer is None else f"answered {self._answer.status}"
        if self._answer is not None and failure.code is ErrorCode.BACKEND_TIMEOUT:
            outcome += ", then fell silent"
        advice = "the timeouts" if failure.code in (ErrorCode.BACKEND_TIMEOUT, ErrorCode.RUN_TIMEOUT) else ""
        return self._decoder.close(self._backend.explained(failure, self.sent, outcome, advice))

    async def close(self) -> None:
        answer, self._answer, self._take = self._answer, None, _untaken  # `take` refers to the run
        # A run that was refused, or has ended, is not stopped, as another run may have its name by then.
        running, self._running = self._running and not self.wire_ended, False
        if running and isinstance(self._backend.dialect, SingleRunDialect):
            await self._stop(self._backend.dialect)
        if answer is not None:
            answer.release(drain=self._finished)

    async def _stop(self, dialect: SingleRunDialect) -> None:
        """Tell the backend to stop the run, if its dialect has a request for that.

        The request is awaited: sent later, it would end the next run of the session.
        """
        request, backend = self.context.request, self._backend
        wire = dialect.stop_request(request, self.context) if request is not None else None
        if wire is None:
            return
        wire.headers = {**self.sent.headers, **wire.headers}
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                (await backend.ask(wire)).release()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            log.warning("backend %s: a run could not be stopped: %s", backend.name, failure_of(error).message)
