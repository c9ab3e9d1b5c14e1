"""The metrics of a process, for Prometheus.

Labels come from the configuration and from closed lists only: routes, dialects, backends, error codes, features, so
that no client can create series. Users and models are labels of `bridge_user_*` only, by option, and a bounded number.

A single process counts in plain numbers (`bridge.engine.telemetry.series`). With several workers, each process writes
its numbers into files of one folder (`PROMETHEUS_MULTIPROC_DIR`, created by the parent process), and any of them
reports the sum. This is the method of `prometheus_client`, which keeps the numbers of dead workers. The folder must be
set before that package is imported, so this module is imported late.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from bridge.engine.telemetry import SHARED_METRICS
from bridge.engine.telemetry.series import Distribution, Number, PlainCounter, PlainHistogram
from bridge.engine.telemetry.shared import NoSeries, count_in_files, count_in_memory
from bridge.errors import ErrorCode
from bridge.model import UsageReported
from bridge.run.run import Run
from bridge.run.timeouts import Clock

log = logging.getLogger("bridge.metrics")

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_PATHS = ("route", "front", "back")
_OTHER = "other"
"""The user and the model beyond the bound."""
_CODES = frozenset(map(str, ErrorCode))
_LEFT = frozenset({"canceled", "left"})
"""The status of a client that disconnected (`bridge.server.operations.run_endpoint`), and of one that may resume."""
_LONG = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_FIRST = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_GAPS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30)
_LIVE_FILE = re.compile(r"gauge_live[a-z]+_(\d+)\.db")


class GaugeSource(Protocol):
    """A server whose state is polled at each scrape, instead of being reported with each change."""

    @property
    def waiting(self) -> int:
        """Requests that wait for a place."""

    @property
    def executing(self) -> int:
        """Runs at work that no connection holds."""

    @property
    def breakers(self) -> Mapping[str, bool]:
        """Backends that have a breaker, and whether it is open."""

    @property
    def backends(self) -> Collection[str]:
        """The names of all backends."""


Counters = Counter | Gauge | PlainCounter
Histograms = Histogram | PlainHistogram


@cache
def _of(metric: Counters, *labels: str) -> Counter | Gauge | Number | NoSeries:
    """A series, looked up once: `labels()` is half the price of counting. There are as few as the labels allow."""
    try:
        return metric.labels(*labels)
    except OSError as error:
        return _missing(error)


@cache
def _each(metrics: tuple[Counters, ...], *labels: str) -> list[Counter | Gauge | Number | NoSeries]:
    """As `_of`, of several metrics at once."""
    return [_of(metric, *labels) for metric in metrics]


@cache
def _times(metric: Histograms, *labels: str) -> Histogram | Distribution | NoSeries:
    """As `_of`, of a histogram."""
    try:
        return metric.labels(*labels)
    except OSError as error:
        return _missing(error)


def _missing(error: OSError) -> NoSeries:
    """What is counted decides over no request: a series that cannot be kept is left out."""
    log.warning("metrics are incomplete: the folder %s: %s", os.environ.get(SHARED_METRICS), error.strerror)
    return NoSeries()


class _Known:
    """The metrics of a registry without the series of backends that are not in the configuration any more."""

    def __init__(self, registry: CollectorRegistry, backends: Collection[str]) -> None:
        self._registry = registry
        self._backends = backends

    def collect(self) -> Iterator[Any]:
        for metric in self._registry.collect():
            metric.samples = [s for s in metric.samples if self._has(s.labels.get("back", ""))]
            yield metric

    def _has(self, back: str) -> bool:
        # A run that has not chosen among several backends has the names of all.
        return not back or all(name in self._backends for name in back.split(","))


class BridgeMetrics:
    """All metrics of one process. Requests and runs are counted separately: a run may continue without its client, and
    be read by several. With `shared`, other processes write to the same metrics; raises `OSError` if that cannot be.
    """

    def __init__(self, *, shared: bool) -> None:
        self._registry = registry = CollectorRegistry()
        self.shared = shared
        self._breakers: set[str] = set()
        self.most_users = 0
        """Pairs of a user and a model that are counted by their names; 0 = none are counted."""
        self._users: set[tuple[str, str]] = set()

        self.labels: dict[str, Sequence[str]] = {}
        """The names of the labels of each metric."""

        def counter(name: str, what: str, labels: Sequence[str] = _PATHS) -> Counters:
            self.labels[name := f"bridge_{name}"] = labels
            return (Counter if self.shared else PlainCounter)(name, what, labels, registry=registry)

        def seconds(name: str, what: str, buckets: Sequence[float] = _LONG) -> Histograms:
            self.labels[name := f"bridge_{name}_seconds"] = _PATHS
            kind = Histogram if self.shared else PlainHistogram
            return kind(name, what, _PATHS, buckets=buckets, registry=registry)

        def gauge(name: str, what: str, labels: Sequence[str] = ()) -> Gauge:
            self.labels[name := f"bridge_{name}"] = labels
            return Gauge(name, what, labels, registry=registry, multiprocess_mode="livesum")

        status, code, outcome = (*_PATHS, "status"), (*_PATHS, "code"), (*_PATHS, "outcome")
        self.requests = counter("requests", "requests answered, by HTTP status (0 = none was sent)", status)
        self.request_seconds = seconds("request", "time from the request to the end of its answer")
        self.errors = counter("errors", "requests that ended in an error, by error code", code)
        self.cancellations = counter("cancellations", "requests whose client disconnected before the end")
        self.streams_open = gauge("streams_open", "open streams", _PATHS[:2])
        self.runs = counter("runs", "runs ended, by finish reason or error code", outcome)
        self.first_token_seconds = seconds(
            "first_token", "time from the start of a run to its first content, including failed attempts", _FIRST
        )
        self.read_interval_seconds = seconds(
            "read_interval", "mean wait for the next read of a backend's stream, one value per stream", _GAPS
        )
        self.longest_silence_seconds = seconds(
            "longest_silence", "longest wait for a read of a backend's stream, one value per stream"
        )
        self.tokens_in = counter("tokens_in", "input tokens that backends reported")
        self.tokens_in_cached = counter("tokens_in_cached", "input tokens that backends read from their prompt caches")
        self.tokens_in_uncached = counter(
            "tokens_in_uncached", "input tokens that backends did not read from a prompt cache, or not by their reports"
        )
        self.tokens_out = counter("tokens_out", "output tokens that backends reported")
        self.tokens = (self.tokens_in, self.tokens_in_cached, self.tokens_in_uncached, self.tokens_out)
        """What is counted of a usage."""
        user = ("user", "model")
        self.user_runs = counter("user_runs", "runs ended, by user and model, if server.metrics.users is set", user)
        self.user_tokens_in = counter("user_tokens_in", "input tokens, cached ones included", user)
        self.user_tokens_cached = counter("user_tokens_in_cached", "input tokens from prompt caches", user)
        self.user_tokens_out = counter("user_tokens_out", "output tokens", user)
        self.retries = counter("retries", "attempts after the first one, before content")
        self.refusals = counter(
            "refusals", "requests and calls that were refused before a route served them, by reason", ("reason",)
        )
        self.losses = counter("losses", "runs that lost a feature in translation", (*_PATHS, "feature"))
        self.node_changes = counter(
            "node_changes",
            "changes of registered nodes at a gRPC address, by kind of change",
            ("listen", "kind", "change"),
        )
        self.agent_calls = counter(
            "agent_calls",
            "calls at a gRPC address, by gRPC status (tool_error = the tool reported an error)",
            ("listen", "operation", "status"),
        )
        self.queue_waiting = gauge("queue_waiting", "queued requests")
        self.runs_driven = gauge("runs_driven", "stored runs in progress")
        self.breaker_open = gauge("breaker_open", "processes whose circuit breaker for the backend is open", ("back",))
        if not self.shared:
            ProcessCollector(registry=registry)
        self.watched: list[GaugeSource] = []

    # ------------------------------------------------------------------ what is counted

    def request(self, route: str, front: str, back: str, status: int, outcome: str, seconds: float) -> None:
        """A request is over. `status`: HTTP, 0 for none; `outcome`: an error code, or any other word."""
        _of(self.requests, route, front, back, str(status)).inc()
        _times(self.request_seconds, route, front, back).observe(seconds)
        if outcome in _LEFT:
            _of(self.cancellations, route, front, back).inc()
        elif outcome in _CODES:
            _of(self.errors, route, front, back, outcome).inc()

    def run(self, route: str, front: str, run: Run, user: str, lost: Collection[str]) -> None:
        """Count a run that has ended, with or without a client. `user` is who asked for it, `lost` the names of its
        losses.
        """
        if self.most_users and user:
            self._of_user(user, run.call.context.model or "", run.reader.usage)
        back, reader = run.tries.attempt.backend.name, run.reader
        outcome = reader.finish_reason or str(reader.failure.code if reader.failure is not None else ErrorCode.CANCELED)
        _of(self.runs, route, front, back, outcome).inc()
        if run.first is not None:
            _times(self.first_token_seconds, route, front, back).observe(run.first - run.started)
        if (usage := reader.usage) is not None:
            taken, cached = usage.input or 0, usage.cached or 0
            cached = min(cached, taken) if cached else 0
            tokens_in, tokens_in_cached, tokens_in_uncached, tokens_out = _each(self.tokens, route, front, back)
            tokens_in.inc(taken)
            if cached:
                tokens_in_cached.inc(cached)
            tokens_in_uncached.inc(taken - cached)
            tokens_out.inc(usage.output or 0)
        if run.tries.repeated:
            _of(self.retries, route, front, back).inc(run.tries.repeated)
        for feature in lost:
            _of(self.losses, route, front, back, feature).inc()

    def _of_user(self, user: str, model: str, usage: UsageReported | None) -> None:
        pair = (user, model)
        if pair not in self._users:
            if len(self._users) >= self.most_users:
                pair = (_OTHER, _OTHER)
            else:
                self._users.add(pair)
        _of(self.user_runs, *pair).inc()
        if usage is not None:
            _of(self.user_tokens_in, *pair).inc(usage.input or 0)
            _of(self.user_tokens_cached, *pair).inc(min(usage.cached or 0, usage.input or 0))
            _of(self.user_tokens_out, *pair).inc(usage.output or 0)

    def stream(self, route: str, front: str, more: int) -> None:
        """A stream was opened (1) or closed (-1)."""
        _of(self.streams_open, route, front).inc(more)

    def reads(self, route: str, front: str, back: str, clock: Clock) -> None:
        """A backend's stream was read to a client."""
        if clock.reads:
            _times(self.read_interval_seconds, route, front, back).observe(clock.waited / clock.reads)
            _times(self.longest_silence_seconds, route, front, back).observe(clock.longest)

    def refusal(self, reason: str) -> None:
        """A request or call was refused; `reason` is one of a closed list."""
        _of(self.refusals, reason).inc()

    def node_change(self, listen: str, kind: str, change: str) -> None:
        """Count a change of a node; `change` is one of a fixed list."""
        _of(self.node_changes, listen, kind, change).inc()

    def agent_call(self, listen: str, operation: str, status: str) -> None:
        """A session or a single message at an address of agents is over; `status` is that of gRPC, or tool_error."""
        _of(self.agent_calls, listen, operation, status).inc()

    # ------------------------------------------------------------------ what is looked at

    def sample(self) -> None:
        """Reads the state of the servers of this process into its gauges."""
        self.queue_waiting.set(sum(server.waiting for server in self.watched))
        self.runs_driven.set(sum(server.executing for server in self.watched))
        breakers = {name: is_open for server in self.watched for name, is_open in server.breakers.items()}
        for name in self._breakers - breakers.keys():
            # Other processes may still have it: where several count, it is none that is open here.
            cast(Gauge, _of(self.breaker_open, name)).set(0)
        for name, is_open in breakers.items():
            cast(Gauge, _of(self.breaker_open, name)).set(int(is_open))
        self._breakers = set(breakers)

    def text(self) -> bytes:
        """All metrics, of all processes that share the folder, in Prometheus's text format.

        Gauges are as `sample` left them. May run in a thread: that of some hundred routes takes a tenth of a second.
        """
        registry = self._every() if self.shared else self._registry
        if not self.watched:
            return generate_latest(registry)
        known = frozenset().union(*(server.backends for server in self.watched))
        return generate_latest(_Known(registry, known))

    def _every(self) -> CollectorRegistry:
        """Return the metrics of all processes; those of this one alone if the folder has been removed."""
        every = CollectorRegistry()
        try:
            _forget_dead(os.environ[SHARED_METRICS])
            MultiProcessCollector(every)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            log.warning("the metrics are those of one process: the folder %s: %s", os.environ[SHARED_METRICS], error)
            return self._registry
        return every


def _forget_dead(folder: str) -> None:
    """Remove the gauges of processes that are gone, but not their counters."""
    for name in os.listdir(folder):
        found = _LIVE_FILE.fullmatch(name)
        if found:
            try:
                os.kill(int(found[1]), 0)
            except ProcessLookupError:
                mark_process_dead(int(found[1]), folder)  # type: ignore[no-untyped-call]
            except PermissionError:
                pass  # there is such a process


@cache
def metrics() -> BridgeMetrics:
    """Return the metrics of this process, which continue after a change of the configuration."""
    if SHARED_METRICS not in os.environ:
        return BridgeMetrics(shared=False)
    count_in_files()
    try:
        return BridgeMetrics(shared=True)
    except OSError as error:
        log.warning("the metrics of this process are missing: the folder %s: %s", os.environ[SHARED_METRICS], error)
    count_in_memory()
    return BridgeMetrics(shared=False)
