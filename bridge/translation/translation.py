"""`Translation`: one answer from backend bytes to client bytes."""

from __future__ import annotations

import logging

from bridge.errors import Failure, unexpected_failure
from bridge.model import Event, RunFailed
from bridge.translation.reader import Reader
from bridge.translation.writer import Writer

log = logging.getLogger("bridge.run")


class Translation:
    """A reader and a writer together. Nothing here waits, and nothing raises for what a backend sends.

        while not translation.reader.ended:
            if out := translation.receive(await backend.read()):
                await client.write(out)

    Where events come from elsewhere (an agent in this process, a run with retries), `write` takes what the reader
    passed on.
    """

    __slots__ = ("reader", "writer")

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self.reader = reader
        self.writer = writer

    def head(self) -> bytes:
        """Begins the stream before the backend has said anything, for clients that expect a sign of life."""
        return self.write(self.reader.head())

    def receive(self, data: bytes) -> bytes:
        """Translates the next bytes of the answer, cut anywhere."""
        return self.write(self.reader.receive(data))

    def close(self, failure: Failure | None = None) -> bytes:
        """Ends the input, cleanly or because of `failure`, and returns the rest of the stream."""
        return self.write(self.reader.close(failure))

    def heartbeat(self) -> bytes:
        """Returns what keeps a silent connection open."""
        return b"" if self.reader.ended else self.writer.heartbeat()

    def write(self, events: list[Event]) -> bytes:
        """Encodes events that the reader passed on. An encoder that breaks on them ends the stream with a failure."""
        try:
            frames = self.writer.frames(events)
            return self.writer.join(frames) if frames else b""
        except Exception as error:
            failure = unexpected_failure(log, "an answer could not be encoded", error, "wrote this answer")
            ending = self.reader.fail(failure) or [RunFailed(failure)]
            self.reader.failure, self.reader.finish_reason = failure, None
            self.writer.ended = False
            return self.writer.write(ending)
