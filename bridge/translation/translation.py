"""`Translation`: one answer from backend bytes to client bytes."""

from __future__ import annotations

import logging

from bridge.errors import ErrorCode, Failure, log_unexpected
from bridge.model import Event, RunFailed, UsageReported
from bridge.translation.reader import Reader
from bridge.translation.writer import Writer

log = logging.getLogger("bridge.run")


class Translation:
    """A reader and a writer together. Nothing here waits, and nothing raises for what a backend sends.

        while not translation.ended:
            if out := translation.receive(await backend.read()):
                await client.write(out)

    Where events come from elsewhere (an agent in this process, a run with retries), `write` takes what the reader
    passed on.
    """

    __slots__ = ("reader", "writer")

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self.reader = reader
        self.writer = writer

    @property
    def ended(self) -> bool:
        """The terminal event is out."""
        return self.reader.ended

    @property
    def failure(self) -> Failure | None:
        """Why the run failed, if it did."""
        return self.reader.failure

    @property
    def finish_reason(self) -> str | None:
        """Why the run finished, if it did."""
        return self.reader.finish_reason

    @property
    def usage(self) -> UsageReported | None:
        """The tokens that were reported last."""
        return self.reader.usage

    @property
    def has_content(self) -> bool:
        """Content was passed on."""
        return self.reader.has_content

    def head(self) -> bytes:
        """Begins the stream before the backend has said anything, for clients that expect a sign of life."""
        return self.write(self.reader.head())

    def receive(self, data: bytes) -> bytes:
        """Translates the next bytes of the answer, cut anywhere."""
        return self.write(self.reader.receive(data))

    def close(self, failure: Failure | None = None) -> bytes:
        """Ends the input, cleanly or because of `failure`, and returns the rest of the stream."""
        return self.write(self.reader.close(failure))

    def fail(self, failure: Failure) -> bytes:
        """Ends the stream from this side, now."""
        return self.write(self.reader.fail(failure))

    def heartbeat(self) -> bytes:
        """Returns what keeps a silent connection open."""
        return b"" if self.reader.ended else self.writer.heartbeat()

    def write(self, events: list[Event]) -> bytes:
        """Encodes events that the reader passed on. An encoder that breaks on them ends the stream with a failure."""
        try:
            frames = self.writer.frames(events)
            return self.writer.join(frames) if frames else b""
        except Exception as error:
            log_unexpected(log, "an answer could not be encoded", error)
            failure = Failure(ErrorCode.INTERNAL, "The bridge failed while it wrote this answer.")
            ending = self.reader.fail(failure) or [RunFailed(failure)]
            self.reader.failure, self.reader.finish_reason = failure, None
            self.writer.ended = False
            return self.writer.write(ending)
