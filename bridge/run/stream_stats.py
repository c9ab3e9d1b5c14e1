"""The regularity of a backend's stream. Every run records it, whether or not a server reports it."""

from __future__ import annotations


class StreamStats:
    """The delays between the reads of a stream, in seconds, after its first content."""

    __slots__ = ("longest", "reads", "waited")

    def __init__(self) -> None:
        self.reads = 0
        self.waited = 0.0
        self.longest = 0.0

    def add(self, wait: float) -> None:
        self.reads += 1
        self.waited += wait
        if wait > self.longest:
            self.longest = wait
