"""Plain series say what those of `prometheus_client` say."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from bridge.engine.telemetry.series import PlainCounter, PlainHistogram

LABELS = ("route", "status")
BOUNDS = (0.005, 0.1, 1, 10)


def text(registry: CollectorRegistry) -> list[str]:
    """The lines that Prometheus reads, but for the values of `_created`, which are times."""
    lines = generate_latest(registry).decode().splitlines()
    return [line.rpartition(" ")[0] if "_created{" in line else line for line in lines]


def test_they_are_written_as_prometheus_client_writes_its_own() -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    for registry, counter, histogram in ((theirs, Counter, Histogram), (ours, PlainCounter, PlainHistogram)):
        added = counter("a", "how many", LABELS, registry=registry)
        added.labels("/v1", "200").inc()
        added.labels("/v1", "200").inc(3)
        added.labels("/x", "500").inc(0)
        observed = histogram("c_seconds", "how long", LABELS, buckets=BOUNDS, registry=registry)
        for value in (0, 0.004, 0.005, 0.1, 0.5, 2, 10, 11, 500):
            observed.labels("/v1", "200").observe(value)
    assert text(ours) == text(theirs)
