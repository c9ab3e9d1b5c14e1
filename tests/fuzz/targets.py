"""What is fuzzed: everything by which a registered dialect reads bytes, and what must hold whatever they are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from bridge.contract import Dialect, WireRequest, WireResponse, registry
from bridge.errors import BridgeError, Failure, RequestError, Unsupported
from bridge.model import ArgsDelta, Event, ReasoningDelta, Request, TextDelta, fold, verify
from bridge.testing.wires import context
from bridge.translation import AnswerDecoder
from bridge.translation.framing import sse

JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Target:
    """One way by which one dialect reads. `run` raises when the dialect does, or when a promise is broken."""

    dialect: str
    kind: str

    def run(self, data: bytes) -> None:
        _KINDS[self.kind](registry.get(self.dialect), data)

    def __str__(self) -> str:
        return f"{self.dialect}-{self.kind}"


def targets() -> list[Target]:
    """Each way of reading of each dialect that is installed; of one that is only called, those of backends."""
    return [
        Target(name, kind)
        for name in registry.names()
        for kind in _KINDS
        if (registry.get(name).served if kind == "request" else registry.get(name).called)
    ]


def _stream(dialect: Dialect, data: bytes) -> None:
    """One well-formed run, wherever reads end, which the dialect's own clients can be told."""
    events = _read(dialect, [data])
    verify(events)
    _check_texts(events)
    third = len(data) // 3
    assert _read(dialect, [data[:third], data[third:]]) == events, "where reads end changes what is read"
    if dialect.served:
        encoder = dialect.encoder(context(dialect.front_options()))
        sse.join(encoder.encode(events))


def _check_texts(events: list[Event]) -> None:
    """What is no string on the wire has not become text."""
    wrong = [e for e in events if isinstance(e, (TextDelta, ReasoningDelta, ArgsDelta)) and type(e.text) is not str]
    assert wrong == []


def _read(dialect: Dialect, reads: list[bytes]) -> list[Event]:
    reading = AnswerDecoder(dialect, context(dialect.back_options()))
    events = [event for read in reads for event in reading.receive(read)]
    return events + reading.close()


def _response(dialect: Dialect, data: bytes) -> None:
    """One well-formed run, of which the dialect makes an answer again."""
    with contextlib.suppress(Unsupported):
        events = dialect.parse_response(WireResponse(200, JSON, data), context(dialect.back_options()))
        verify(events)
        _check_texts(events)
        fold(events)
        dialect.assemble(events, context(dialect.front_options()))


def _request(dialect: Dialect, data: bytes) -> None:
    """A request that every dialect can send on or refuse, or a mistake that is explained."""
    request, failure = _asked(dialect, data)
    if failure is not None:
        assert failure.message
        assert 400 <= dialect.encode_error(failure).status < 500
    if request is not None:
        for back in _installed():
            _send(back, request)


@cache
def _installed() -> list[Dialect]:
    """Every dialect with backends; finding them reads the metadata of every package."""
    return [registry.get(name) for name in registry.called()]


def _asked(dialect: Dialect, data: bytes) -> tuple[Request | None, Failure | None]:
    try:
        wire = WireRequest(headers=JSON, body=data)
        return dialect.decode_request(wire, context(dialect.front_options())), None
    except RequestError as error:
        return None, error.failure


def _send(dialect: Dialect, request: Request) -> None:
    failure: Failure | None = None
    try:
        dialect.encode_request(request, context(dialect.back_options(), request))
    except BridgeError as error:
        failure = error.failure
    assert failure is None or 400 <= failure.http_status < 500, f"{dialect.name}: {failure}"


def _error(dialect: Dialect, data: bytes) -> None:
    """A failure with a message, which clients can be told."""
    for headers in (JSON, {"content-type": "text/html"}, {}):
        failure = dialect.decode_error(WireResponse(502, dict(headers), data))
        assert failure.message
        if dialect.served:
            assert 400 <= dialect.encode_error(failure).status <= 599


_KINDS: dict[str, Callable[[Dialect, bytes], None]] = {
    "stream": _stream,
    "response": _response,
    "request": _request,
    "error": _error,
}
