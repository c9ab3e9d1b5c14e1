"""`Translator`: one run between a client and a backend, for people who bring their own sockets."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from pydantic import ValidationError

from bridge.contract import Context, Dialect, Losses, Options, WireRequest, WireResponse, wire_request
from bridge.contract.registry import resolve
from bridge.errors import BridgeError, ConfigError, ErrorCode, Failure, RequestError, with_status
from bridge.model import Event, Request, RunFailed, RunStarted
from bridge.model.error_paths import note_places
from bridge.translation.decoding import AnswerDecoder
from bridge.translation.library.guess import LOOKED_AT, guessed
from bridge.translation.policies.stages import StageContext, StageFactory, prepare
from bridge.translation.reader import Reader
from bridge.translation.requirements import required
from bridge.translation.stage import Stage
from bridge.translation.translation import Translation
from bridge.translation.writer import Writer

T = TypeVar("T")


class Translator:
    """Translates one run between a client and a backend: bytes in, bytes out, without I/O.

    Without a request, `feed` reads an answer of `source` and writes it as `target`. `request` translates a client's
    request and determines which of the two dialects is the client's; from then on `feed` reads answers of the other one
    and writes the client's.

        translator = Translator("openai-chat", "agentscope")
        body = translator.request(received, client="agentscope")    # to be POSTed; translator.sent says where
        while data := read():
            write(translator.feed(data))
        write(translator.close())

    Use `decode_error` and `encode_error` for errors before the answer, `close(failure)` for errors in the middle of it.
    One object serves one run.
    """

    def __init__(
        self,
        source: str | Dialect,
        target: str | Dialect,
        *,
        model: str | None = None,
        client_options: Mapping[str, Any] | None = None,
        backend_options: Mapping[str, Any] | None = None,
        stages: Sequence[StageFactory] = (),
        run_id: str | None = None,
        created_at: float | None = None,
    ) -> None:
        """Dialects are named, or given as objects. Raises `ConfigError` for an unknown one.

        `model` is sent to the backend if the client names none. `client_options` and `backend_options` are what
        `options` of a route and of a backend are in a configuration; a wrong one is a `ConfigError` at first use.
        `stages` are added after those that every route gets. `run_id` and `created_at` (Unix seconds) make the
        result reproducible; by default the id is random and the time is now.
        """
        self._back = resolve(source)
        self._front = resolve(target)
        self._model = model
        self._client_options = client_options or {}
        self._backend_options = backend_options or {}
        self._factories = tuple(stages)
        self._run_id = run_id or uuid.uuid4().hex
        self._created_at = time.time() if created_at is None else created_at
        self._losses = Losses()
        # By dialect, what the shape of its errors depends on beside the failure, such as the id of the request.
        self._error_details: dict[str, dict[str, Any]] = {}
        self._request: Request | None = None
        self._sent: WireRequest | None = None
        self._sides: _Sides | None = None
        self._translation: Translation | None = None
        self._answered = False
        self._heard = bytearray()
        self._framed = False

    @property
    def lost(self) -> list[str]:
        """Names of the features that this translation could not carry so far, in order of appearance."""
        return self._losses.names

    @property
    def lost_details(self) -> dict[str, str]:
        """The same features, each with a detail about the loss; an empty string if there is none."""
        return self._losses.details

    @property
    def failure(self) -> Failure | None:
        """Why the run failed, if the answer that `feed` and `close` translated did."""
        return None if self._translation is None else self._translation.reader.failure

    @property
    def client_request(self) -> Request:
        """The client's request, as `request` decoded it. Raises `RuntimeError` before."""
        return _made(self._request)

    @property
    def sent(self) -> WireRequest:
        """The request for the backend: method, path below its base URL, headers, body.

        Raises `RuntimeError` before `request` was called.
        """
        return _made(self._sent)

    # ------------------------------------------------------------------ before the answer

    def request(
        self,
        data: bytes,
        *,
        client: str | Dialect | None = None,
        headers: Mapping[str, str] | None = None,
        path: str = "",
    ) -> bytes:
        """Return the client's request body in the backend's dialect.

        `client` is the dialect of the client; without it the body decides, and `target` is tried first. `headers` and
        `path`, with the query, are those of the client's request; some dialects need them. Raises `RequestError` if the
        body is not a valid request, `Unsupported` if the backend's dialect cannot express it, and `RuntimeError` if the
        run has already begun.
        """
        if self._sides is not None:
            raise RuntimeError("a translator serves one run, and this one has already begun: create a new one")
        wire = wire_request(_lower(headers), as_bytes(data), path)
        self._request = self._choose(wire, resolve(client) if client is not None else None)
        context = self._settled().back
        assert context.request is not None
        self._sent = self._back.encode_request(context.request, context)
        return self._sent.body

    def decode_error(self, status: int, data: bytes = b"", headers: Mapping[str, str] | None = None) -> BridgeError:
        """Return the failure that a backend's error status means, to raise or to pass to `encode_error`."""
        wire = WireResponse(status, _lower(headers, self._back), as_bytes(data))
        return BridgeError.of(with_status(self._back.decode_error(wire), status))

    def encode_error(self, error: Failure | BaseException) -> WireResponse:
        """Return the response for a failure before the answer began: status, headers, body.

        It is in `target`, or in the dialect of the client's request. A `BridgeError` keeps its message, a
        `TimeoutError` becomes a timeout, any other exception an unavailable backend, without its text.
        """
        failure = failure_of(error, begun=False)
        details = self._error_details.get(self._front.name, {})
        return self._front.encode_error(replace(failure, details={**failure.details, **details}))

    # ------------------------------------------------------------------ the answer

    def response(self, data: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> bytes:
        """Return a complete answer for the client without a stream; the backend's answer may be a stream or not.

        Raises `BackendError` if the input is not an answer, is a failed one, or has a `status` of 400 or above; another
        `BridgeError` if the client's dialect cannot express its end (canceled); `Unsupported` if that dialect has only
        streams; and `RuntimeError` if this run's answer has already begun.
        """
        sides = self._settled()
        if self._answered or self._translation is not None:
            raise RuntimeError("a translator serves one run, and its answer has begun: create a new one")
        if status >= 400:
            raise self.decode_error(status, data, headers)
        self._answered = True
        reader = self._reader(sides, AnswerDecoder(self._back, sides.back, _lower(headers, self._back)))
        events: list[Event] = reader.receive(as_bytes(data)) + reader.close()
        if isinstance(events[-1], RunFailed):
            raise BridgeError.of(events[-1].error)
        answer = self._front.assemble(events, sides.front)
        if answer.status >= 400:
            # A finish reason that the client's dialect cannot express, such as canceled, is an error there.
            raise BridgeError.of(self._front.decode_error(answer))
        return answer.body

    def start(self) -> bytes:
        """Return the first bytes of the stream, for clients that need some before the backend answers; optional."""
        return self._running().head()

    def feed(self, data: bytes) -> bytes:
        """Pass the next bytes of the backend's answer, split anywhere. Return the bytes for the client, possibly none.

        Invalid data never raise an exception. An answer without a stream is buffered until `close`, which streams it.
        """
        translation, data = self._running(), as_bytes(data)
        if len(self._heard) < LOOKED_AT and not translation.reader.has_begun:
            self._heard += data[: LOOKED_AT - len(self._heard)]
        out = translation.receive(data)
        self._framed = self._framed or bool(translation.reader.decoder and translation.reader.decoder.frames)
        return out

    def heartbeat(self) -> bytes:
        """Return bytes that keep the connection open while the backend is silent; none after the end."""
        return self._running().heartbeat()

    def close(self, failure: Failure | BaseException | None = None) -> bytes:
        """End the backend's answer, cleanly or for `failure`. Return the remaining bytes for the client.

        `failure` may be the exception that ended the input: a `BridgeError` keeps its message, a `TimeoutError`
        becomes a timeout, any other a broken connection, without its text. Repeating the call has no effect. An input
        in which nothing was recognized is a failure that says so, and names the dialect that it looks like.
        """
        translation = self._running()
        if failure is not None:
            return translation.close(failure_of(failure, begun=True))
        reader = translation.reader
        was_begun = reader.has_begun
        events = reader.close()
        if events and not was_begun and self._heard and isinstance(last := events[-1], RunFailed):
            reader.failure = self._explained(last.error)
            events = [*events[:-1], replace(last, error=reader.failure)]
        return translation.write(events)

    # ------------------------------------------------------------------ inside

    def _explained(self, failure: Failure) -> Failure:
        """Return the failure of an input in which nothing was recognized, with what it looks like."""
        if failure.code not in (ErrorCode.TRUNCATED_STREAM, ErrorCode.BACKEND_PROTOCOL):
            return failure  # it is an error of the dialect itself
        name, found = self._back.name, guessed(bytes(self._heard))
        hint = f" It looks like an answer of {found}." if found not in (None, name) else ""
        if failure.code is ErrorCode.BACKEND_PROTOCOL:
            return replace(failure, message=failure.message + hint)
        if self._framed and not hint:
            return failure  # it broke off before it said anything
        return Failure(ErrorCode.BACKEND_PROTOCOL, f"Nothing in the input is an answer of {name}.{hint}")

    def _choose(self, wire: WireRequest, client: Dialect | None) -> Request:
        """Determine the client's dialect: the one that can read the request."""
        if client is not None:
            if client.name not in (self._front.name, self._back.name):
                raise ConfigError(
                    f"client: expected {self._back.name!r} or {self._front.name!r}, between which this translates, "
                    f"got {client.name!r}"
                )
            if client.name != self._front.name:
                self._turn()
            return self._read(wire)
        try:
            return self._read(wire)
        except RequestError:
            self._turn()
            try:
                return self._read(wire)
            except RequestError:
                self._turn()
            raise

    def _turn(self) -> None:
        self._front, self._back = self._back, self._front

    def _read(self, wire: WireRequest) -> Request:
        options = _options(self._front.front_options, self._client_options, "client_options")
        context = self._context(options, None)
        self._error_details[self._front.name] = context.error_details
        request = self._front.decode_request(wire, context)
        note_places(request)
        return request

    def _context(self, options: Options, request: Request | None) -> Context:
        thread = request.thread_id if request else None
        model = (request.model if request else None) or self._model
        return Context(self._run_id, thread, self._created_at, options, model, request, self._losses)

    def _settled(self) -> _Sides:
        """Set up both sides of the run, once the client's dialect is known."""
        if self._sides is None:
            front = _options(self._front.front_options, self._client_options, "client_options")
            back = _options(self._back.back_options, self._backend_options, "backend_options")
            staged = StageContext(
                self._request or Request([]), self._front.capabilities, self._back.capabilities, front, self._losses
            )
            # Stages are made before the request is encoded: some change it where the backend cannot take it as it is.
            prepared = prepare(self._factories, staged)
            wanted: Request | None = None
            if self._request is not None:
                wanted = required(prepared.request, self._back.demands(back), self._losses, prepared.survey)
            stages = [*prepared.first, *prepared.stages]
            self._sides = _Sides(self._context(back, wanted), self._context(front, self._request), stages)
        return self._sides

    def _reader(self, sides: _Sides, decoder: AnswerDecoder) -> Reader:
        front = sides.front
        head = partial(RunStarted, front.run_id, front.thread_id, front.model, front.created_at)
        return Reader(head, sides.stages, decoder)

    def _running(self) -> Translation:
        if self._translation is None:
            sides = self._settled()
            reader = self._reader(sides, AnswerDecoder(self._back, sides.back))
            self._translation = Translation(reader, Writer(self._front, sides.front))
        return self._translation


@dataclass(slots=True)
class _Sides:
    """The two contexts of one run, and the stages between them."""

    back: Context
    front: Context
    stages: list[Stage]


def failure_of(reason: BaseException | Failure, *, begun: bool) -> Failure:
    """Why there is no answer, or no more of one. `begun`: part of the answer had arrived.

    The text of a foreign exception may name addresses and is not repeated.
    """
    match reason:
        case Failure():
            return reason
        case BridgeError():
            return reason.failure
        case TimeoutError():
            return Failure(ErrorCode.BACKEND_TIMEOUT, "The backend stopped responding.")
    if begun:
        text = "The connection to the backend broke in the middle of its answer."
        return Failure(ErrorCode.TRUNCATED_STREAM, text)
    return Failure(ErrorCode.BACKEND_UNAVAILABLE, "The backend is not available: the connection failed.")


def _made(value: T | None) -> T:
    if value is None:
        raise RuntimeError("there is no request yet: call request first")
    return value


def _options(model: type[Options], given: Mapping[str, Any], what: str) -> Options:
    """The dialect's options. Raises `ConfigError` that names the option and what was expected."""
    try:
        return model(**given)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(step) for step in first["loc"])
        raise ConfigError(f"{what}.{path}: {first['msg']}") from None


def _lower(headers: Mapping[str, str] | None, dialect: Dialect | None = None) -> dict[str, str]:
    """Return headers as codecs expect them; by default, the content type is that of `dialect`."""
    if headers is None:
        return {} if dialect is None else {"content-type": dialect.content_type}
    return {name.lower(): value for name, value in headers.items()}


def as_bytes(data: bytes) -> bytes:
    """Any buffer as bytes: sockets also give `bytearray` and `memoryview`. Raises `TypeError` for anything else."""
    try:
        return data if type(data) is bytes else bytes(memoryview(data))
    except TypeError:
        raise TypeError(f"expected bytes, got {type(data).__name__}") from None
