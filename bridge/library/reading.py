"""A backend's answer from bytes to events, whichever form it has; and the names by which callers mean a dialect."""

from __future__ import annotations

from collections.abc import Mapping

from bridge import framing
from bridge.codec import Context, Dialect, WireResponse, registry
from bridge.errors import BackendError, ErrorCode, Failure
from bridge.model import Event
from bridge.model.events import TERMINAL


def dialect_of(given: str | Dialect) -> Dialect:
    """The dialect that is named, or given as an object. Raises `ConfigError` for an unknown name."""
    return given if isinstance(given, Dialect) else registry.get(given)


class Reading:
    """Bytes -> events of one answer, cut anywhere. Its first byte tells a stream from a body in one piece.

    Never raises on wire data: what is wrong becomes `RunFailed`. After the terminal event there is nothing more.
    """

    def __init__(self, dialect: Dialect, context: Context, headers: Mapping[str, str] | None = None) -> None:
        """`headers` of the answer, with lower-case names; without them a whole body is what the dialect writes."""
        self.done = False
        self._dialect = dialect
        self._context = context
        self._headers = dict(headers) if headers is not None else {"content-type": dialect.content_type}
        self._framing = framing.of(dialect.framing)
        self._splitter = self._framing.Splitter()
        self._decoder = dialect.decoder(context)
        self._streams: bool | None = None
        self._kept: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete."""
        if self.done:
            return []
        try:
            if self._streams:
                return self._noted(self._decoder.feed(self._splitter.feed(data)))
            return self._begin(data)
        except BackendError as error:
            return self.close(error.failure)

    def close(self, failure: Failure | None = None) -> list[Event]:
        """The input is over, cleanly or for `failure`; the terminal event is out after this."""
        if self.done:
            return []
        if failure is None and self._streams is False:
            answer = WireResponse(200, self._headers, b"".join(self._kept))
            return self._noted(self._dialect.parse_response(answer, self._context))
        events: list[Event] = []
        if failure is None:
            try:
                events = self._decoder.feed(self._splitter.close())
            except BackendError as error:
                failure = error.failure
        return self._noted(events + self._decoder.close(failure))

    def _begin(self, data: bytes) -> list[Event]:
        """Keeps the first bytes until they tell what this is, and the whole of a body in one piece."""
        self._kept.append(data)
        self._size += len(data)
        if self._size > self._framing.MAX_EVENT:
            raise BackendError(
                f"The backend's answer is longer than the limit of {self._framing.MAX_EVENT} bytes.",
                code=ErrorCode.BACKEND_PROTOCOL,
            )
        if self._streams is None:
            self._streams = self._framing.is_stream(b"".join(self._kept))
        if not self._streams:
            return []
        start, self._kept = b"".join(self._kept), []
        return self._noted(self._decoder.feed(self._splitter.feed(start)))

    def _noted(self, events: list[Event]) -> list[Event]:
        self.done = bool(events) and type(events[-1]) in TERMINAL
        return events
