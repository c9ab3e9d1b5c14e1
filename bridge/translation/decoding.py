"""`AnswerDecoder`: the bytes of one backend answer to events, whichever form the answer has."""

from __future__ import annotations

from bridge.contract import Context, Decoder, Dialect, FrameLike, Framing, WireResponse
from bridge.errors import BackendError, ErrorCode, Failure
from bridge.model import Event
from bridge.model.events import TERMINAL
from bridge.translation import framing
from bridge.translation.framing import Splits, arrays, lines

_JSON_LINES = Framing.JSON_LINES  # read once: a member of an enumeration is slow to look up in Python 3.11
_LOOKED_AT = 64
"""Bytes at the beginning of an answer that are looked at together to tell a stream from a body in one piece."""


class AnswerDecoder:
    """Decodes one answer, cut anywhere, streamed or in one piece.

    The first bytes tell a stream from a body in one piece; where they tell nothing, the content type does. JSON lines
    are told by their content type, or by a second object after the first line, a JSON array by its first byte. A body
    in one piece is kept until `close`. Wire data never raises: what is wrong with it ends the run with `RunFailed`.

    Attributes:
        ended: The terminal event is out; whatever is received after it is ignored.
        wire_ended: The terminal event was read from the wire, and not made up for an answer that broke off.
        frames: The frames of the last `receive`, for routes that pass them on unchanged.
        is_whole: The answer is a body in one piece, as far as its headers and what has come of it tell.
        whole: The answer, if it came in one piece.
    """

    __slots__ = (
        "_buffered", "_context", "_decoder", "_dialect", "_framing", "_has_line", "_headers", "_limit", "_may_be_lines",
        "_size", "_splitter", "_status", "_streams", "ended", "frames", "is_whole", "whole", "wire_ended",
    )  # fmt: skip

    def __init__(
        self,
        dialect: Dialect,
        context: Context,
        headers: dict[str, str] | None = None,
        *,
        status: int = 200,
        max_event: int | None = None,
    ) -> None:
        """`headers` have lower-case names; without any, a body in one piece is taken for the dialect's own media type.

        `max_event` limits one event, and a body in one piece, in bytes; by default it is that of the framing.
        """
        self._framing = framing.of(dialect.framing)
        self._dialect = dialect
        self._context = context
        self._headers = {"content-type": dialect.content_type} if headers is None else headers
        self._status = status
        is_lines = dialect.framing is _JSON_LINES
        self._may_be_lines = is_lines or dialect.streams_json_lines
        self._has_line = False
        self._limit = max_event or self._framing.MAX_EVENT
        self._decoder: Decoder | None = None
        # A caller without headers has a recording, which is a stream unless its bytes say otherwise.
        declared = self._framing.CONTENT_TYPE if headers is None else headers.get("content-type", "").lower()
        self.is_whole = is_lines or not declared.startswith(self._framing.CONTENT_TYPE)
        # The first line and a body in one piece begin alike.
        self._streams: bool | None = False if is_lines else None
        self._buffered: list[bytes] = []
        self._size = 0
        if is_lines and self._are_declared_lines:
            self._start_stream(self._framing.Splitter(self._limit))
        self.ended = False
        self.wire_ended = False
        self.frames: list[FrameLike] = []
        self.whole: WireResponse | None = None

    def receive(self, data: bytes) -> list[Event]:
        """Returns the events that these bytes complete."""
        if self.ended:
            return []
        try:
            if not self._streams:
                data = self._begin(data)
                if not data:
                    return []
            self.frames = frames = self._splitter.feed(data)
        except BackendError as error:
            return self.close(error.failure)
        events = (self._decoder or self._events()).feed(frames)
        if events and type(events[-1]) in TERMINAL:
            self.ended = self.wire_ended = True
        return events

    def close(self, failure: Failure | None = None) -> list[Event]:
        """Ends the input, cleanly or because of `failure`; the terminal event is out afterwards."""
        if self.ended:
            return []
        self.frames = []
        events: list[Event] = []
        if failure is None and self.is_whole:
            self.whole = WireResponse(self._status, self._headers, b"".join(self._buffered))
            if self._status >= 400:
                events = self._events().close(self._dialect.decode_error(self.whole))
            else:
                events = self._dialect.parse_response(self.whole, self._context)
        elif failure is None:
            try:
                self.frames = frames = self._splitter.close() if self._streams else []
                events = self._events().feed(frames)
            except BackendError as error:
                failure = error.failure
        if events and type(events[-1]) in TERMINAL:
            self.ended = self.wire_ended = True
        if not self.ended:
            self.ended = True
            events += self._events().close(failure)
        return events

    @property
    def _are_declared_lines(self) -> bool:
        return self._headers.get("content-type", "").partition(";")[0].strip().lower() in lines.CONTENT_TYPES

    def _events(self) -> Decoder:
        """Only streams need the decoder; it is made when the first bytes of one arrive."""
        if self._decoder is None:
            self._decoder = self._dialect.decoder(self._context)
        return self._decoder

    def _begin(self, data: bytes) -> bytes:
        """Keeps bytes until they show a stream, then returns all of them; those of a whole body are kept to the end."""
        self._buffered.append(data)
        self._size += len(data)
        if self._size > self._limit:
            text = f"The backend's answer is longer than the limit of {self._limit} bytes."
            raise BackendError(text, code=ErrorCode.BACKEND_PROTOCOL)
        if self._streams is None:
            # The bytes before these left it open: white space, or, at the very start, a part of a byte order mark.
            start = b"".join(self._buffered) if self._size - len(data) <= _LOOKED_AT else data
            self._streams = self._framing.is_stream(start)
            self.is_whole = self.is_whole if self._streams is None else not self._streams
            if self._streams:
                return self._start_stream(self._framing.Splitter(self._limit))
            if self._dialect.streams_json_arrays and arrays.is_array(start) and self._status < 400:
                return self._start_stream(arrays.Splitter(self._limit))
        if self._streams is False and self._may_be_lines and self._are_lines(data):
            return self._start_stream(lines.Splitter(self._limit))
        return b""

    def _start_stream(self, splitter: Splits) -> bytes:
        """Return all that was kept, now that it is known to be a stream, which `splitter` cuts."""
        self._streams, self.is_whole, self._splitter = True, False, splitter
        start = b"".join(self._buffered)
        del self._buffered, self._headers  # only an answer in one piece needs them
        return start

    def _are_lines(self, data: bytes) -> bool:
        """Return whether the answer is JSON lines, once this came. The first line is looked at once."""
        if self._are_declared_lines:
            return True
        # White space before the first line tells nothing, and behind it the next line is waited for.
        had_line = self._has_line
        self._has_line = had_line or b"\n" in (data if len(self._buffered) > 1 else data.lstrip())
        if not self._has_line or (had_line and data.isspace()):
            return False
        told = lines.is_stream(b"".join(self._buffered))
        self._may_be_lines = told is None
        return bool(told)
