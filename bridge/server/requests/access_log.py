"""The log line of a request, and its metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bridge.errors import Failure
from bridge.model import UsageReported
from bridge.run.run import Run
from bridge.toolkit.redact import explained

if TYPE_CHECKING:
    from bridge.engine.services import Host

access = logging.getLogger("bridge.access")


class AccessRecord:
    """The facts of a request's log line and metrics. What a request has not come to has no value of its own.

    Attributes:
        user: The name of the caller's key, or of the user of its token.
        began: When the request arrived, in monotonic seconds, as `first`.
        about: More facts for the line, such as those of a queued run.
    """

    back: str = ""
    tried: Sequence[str] = ()
    status: str = ""
    http: int = 0
    sent: int = 0
    lost: Sequence[str] = ()
    first: float | None = None
    usage: UsageReported | None = None
    retries: int = 0
    continued_at: Sequence[int] = ()
    trace_id: str = ""
    streaming: bool = False
    failure: Failure | None = None
    about: Mapping[str, object] = MappingProxyType({})

    def __init__(
        self,
        request_id: str,
        route: str,
        front: str,
        run_id: str,
        user: str = "",
        host: Host | None = None,
    ) -> None:
        """`host`: the server, which counts what is written and used."""
        self.request_id = request_id
        self.route = route
        self.front = front
        self.run_id = run_id
        self.user = user
        self.metrics = None if host is None else host.metrics
        self._spent = None if host is None else host.spent
        self.began = time.monotonic()

    def streams(self) -> None:
        """The head of a stream was sent."""
        self.http, self.streaming = 200, True
        if self.metrics is not None:
            self.metrics.stream(self.route, self.front, 1)

    def of(self, run: Run, caller: str | None = None) -> None:
        """Take over the outcome of a run, and count it for `caller`: by default the user."""
        reader, tries = run.reader, run.tries
        self.lost, self.first, self.usage, self.retries = run.lost.names, run.first, reader.usage, tries.repeated
        self.back, self.tried, self.continued_at = tries.attempt.backend.name, tries.backends, run.continued_at
        self.ended(reader.finish_reason, reader.failure)
        if self.metrics is not None:
            self.metrics.run(self.route, self.front, run, self.user, self.lost)
            if self.streaming:
                self.metrics.reads(self.route, self.front, self.back, run.clock)
        if self._spent is not None:
            self._spent(self.user if caller is None else caller, run.used)

    def ended(self, reason: str | None, failure: Failure | None) -> None:
        """Set the outcome, unless a more precise one is known."""
        self.status = self.status or reason or (str(failure.code) if failure else "")
        self.failure = self.failure or failure

    def write(self) -> None:
        """One line, at the end, whatever the end was; and what is counted."""
        now = time.monotonic()
        if self.metrics is not None:
            if self.streaming:
                self.metrics.stream(self.route, self.front, -1)
            self.metrics.request(self.route, self.front, self.back, self.http, self.status, now - self.began)
        level = logging.INFO if self.failure is None else logging.WARNING
        if not access.isEnabledFor(level):
            return
        facts: dict[str, Any] = {"request_id": self.request_id, "run_id": self.run_id}
        if self.about:
            facts.update(self.about)
        if self.user:
            facts["user"] = self.user
        facts["route"], facts["front"], facts["back"] = self.route, self.front, self.back
        facts["http"], facts["status"] = self.http, self.status
        facts["total_ms"], facts["bytes"] = _milliseconds(now - self.began), self.sent
        if self.first is not None:
            facts["first_ms"] = _milliseconds(self.first - self.began)
        if self.usage is not None:
            facts["tokens_in"], facts["tokens_out"] = self.usage.input, self.usage.output
            if self.usage.cached is not None:
                facts["tokens_cached"] = self.usage.cached
        if len(self.tried) > 1:
            facts["tried"] = ",".join(self.tried)
        if self.retries:
            facts["retries"] = self.retries
        if self.continued_at:
            facts["continued_at"] = ",".join(map(str, self.continued_at))
        if self.trace_id:
            facts["trace_id"] = self.trace_id
        if self.lost:
            facts["lost"] = ",".join(self.lost)
        text = "run" if self.failure is None else f"run failed: {explained(self.failure)}"
        # As `access.log` does, without looking for the caller, who is always this one.
        record = logging.getLogRecordFactory()(access.name, level, __file__, 0, text, (), None)
        record.facts = facts
        access.handle(record)


def _milliseconds(seconds: float) -> float:
    """Return milliseconds with one digit behind the point: to round to an integer is a third of the work."""
    return round(seconds * 10_000) / 10
