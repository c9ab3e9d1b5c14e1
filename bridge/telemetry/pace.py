"""How regularly a stream comes. Apart from the metrics, since every stream notes it and not every server has them."""

from __future__ import annotations


class Pace:
    """How regularly a stream comes: the waits for its reads, in seconds. Costs a clock call for each read."""

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
