"""Translation without a server, a socket or a loop: whole recordings with `translate`, live ones with `Translator`."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Literal

from bridge.codec import Context, Dialect, Encoder, FrameLike, Losses, WireRequest, WireResponse, registry
from bridge.errors import BackendError, Failure, RequestError
from bridge.framing import sse
from bridge.model import Event, Request, RunFailed
from bridge.model.events import TERMINAL
from bridge.pipeline.stages import AUTOMATIC, Stage, StageContext, build

What = Literal["stream", "request", "response"]


def translate(data: bytes, source: str, target: str, *, what: What = "stream") -> bytes:
    """A whole recorded body of dialect `source` as dialect `target` would say it.

    `what`: "stream" (a streamed answer), "request", or "response" (an answer in one piece). The result of a stream
    that breaks off is a stream that ends with the target's own error. Raises `RequestError` for a request, and
    `BackendError` for a response, that is none; `ConfigError` for an unknown dialect.
    """
    translator = Translator(source, target)
    if what == "stream":
        return translator.feed(data) + translator.close()
    if what == "request":
        return translator.request(data, client=source)
    if what == "response":
        return translator.response(data)
    raise ValueError(f"what: expected 'stream', 'request' or 'response', got {what!r}")


class Translator:
    """Bring your own sockets: bytes in, bytes out, for one run between a client and a backend.

    Without a request, `feed` reads a streamed answer of `source` and writes it as `target`. A `request` comes from the
    client and says which of the two it speaks: it leaves in the other dialect, and from then on `feed` reads that
    one's answer and writes the client's. `lost` names the features that this very translation could not carry.
    """

    def __init__(self, source: str, target: str, *, run_id: str | None = None, created_at: float = 0.0) -> None:
        """`run_id` and `created_at` (Unix seconds) make the result repeatable; without them an id is made up.

        Raises `ConfigError` for an unknown dialect.
        """
        self._back = registry.get(source)
        self._front = registry.get(target)
        self._run_id = run_id or uuid.uuid4().hex
        self._created_at = created_at
        self._losses = Losses()
        self._request: Request | None = None
        self._flow: _Flow | None = None

    @property
    def lost(self) -> list[str]:
        """Names of the features that were lost so far, in order of appearance."""
        return self._losses.names

    def request(self, data: bytes, *, client: str | None = None) -> bytes:
        """The client's request body in the backend's dialect.

        `client` names the dialect that the client speaks; without it the bytes decide, `target` first. Raises
        `RequestError` when the body is a request of neither, `Unsupported` for what the backend cannot be told.
        """
        wire = WireRequest(headers={"content-type": "application/json"}, body=data)
        self._choose(wire, client)
        assert self._request is not None
        return self._back.encode_request(self._request, self._context(self._back, self._back.back_options())).body

    def response(self, data: bytes) -> bytes:
        """An answer in one piece, in the client's dialect. Raises `BackendError` when it is none, or a failed one."""
        wire = WireResponse(200, {"content-type": "application/json"}, data)
        events = self._back.parse_response(wire, self._context(self._back, self._back.back_options()))
        for stage in self._stages():
            events = stage(events)
        if events and isinstance(events[-1], RunFailed):
            raise BackendError.of(events[-1].error)
        return self._front.assemble(events, self._context(self._front, self._front.front_options())).body

    def feed(self, data: bytes) -> bytes:
        """The next bytes of the backend's stream, cut anywhere; what they mean to the client, if anything yet."""
        return self._running().feed(data)

    def close(self, failure: Failure | None = None) -> bytes:
        """The backend's stream is over, cleanly or for `failure`; what is left to say to the client."""
        return self._running().close(failure)

    # ------------------------------------------------------------------ inside

    def _choose(self, wire: WireRequest, client: str | None) -> None:
        """Settles who is the client: the dialect that can read the request."""
        if client == self._back.name:
            self._turn()
        try:
            self._request = self._read(self._front, wire)
        except RequestError as first:
            if client is not None:
                raise
            try:
                self._request = self._read(self._back, wire)
            except RequestError:
                raise first from None
            self._turn()

    def _turn(self) -> None:
        self._front, self._back = self._back, self._front

    def _read(self, dialect: Dialect, wire: WireRequest) -> Request:
        return dialect.decode_request(wire, self._context(dialect, dialect.front_options()))

    def _context(self, dialect: Dialect, options: object) -> Context:
        request = self._request
        thread = request.thread_id if request else None
        model = request.model if request else None
        return Context(self._run_id, thread, self._created_at, options, model, request, self._losses)

    def _stages(self) -> list[Stage]:
        request = self._request or Request([])
        front, back = self._front, self._back
        context = StageContext(request, front.card, back.card, front.front_options(), self._losses)
        return build(AUTOMATIC, context)

    def _running(self) -> _Flow:
        if self._flow is None:
            self._flow = _Flow(
                self._back,
                self._context(self._back, self._back.back_options()),
                self._stages(),
                self._front.encoder(self._context(self._front, self._front.front_options())),
            )
        return self._flow


class _Flow:
    """Bytes -> frames -> events -> stages -> frames -> bytes."""

    def __init__(self, back: Dialect, context: Context, stages: Sequence[Stage], encoder: Encoder) -> None:
        self._splitter = sse.Splitter()
        self._decoder = back.decoder(context)
        self._stages = stages
        self._encoder = encoder
        self._over = False

    def feed(self, data: bytes) -> bytes:
        if self._over:
            return b""
        try:
            return self._write(self._decoder.feed(self._splitter.feed(data)))
        except BackendError as error:
            return self._write(self._decoder.close(error.failure))

    def close(self, failure: Failure | None) -> bytes:
        if self._over:
            return b""
        events: list[Event] = []
        if failure is None:
            events = self._decoder.feed(self._splitter.close())
        return self._write(events + self._decoder.close(failure))

    def _write(self, events: list[Event]) -> bytes:
        for stage in self._stages:
            events = stage(events)
        frames: list[FrameLike] = self._encoder.encode(events) if events else []
        if events and type(events[-1]) in TERMINAL:
            self._over = True
            frames = [*frames, *self._encoder.close()]
        return sse.join(frames)
