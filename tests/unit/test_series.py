"""Plain series say what those of `prometheus_client` say."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from bridge.telemetry.series import PlainCounter, PlainGauge, PlainHistogram

LABELS = ("route", "status")
BOUNDS = (0.005, 0.1, 1, 10)


def text(registry: CollectorRegistry) -> list[str]:
    """The lines that Prometheus reads, but for the values of `_created`, which are times."""
    lines = generate_latest(registry).decode().splitlines()
    return [line.rpartition(" ")[0] if "_created{" in line else line for line in lines]


def test_they_are_written_as_prometheus_client_writes_its_own() -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    counter = PlainCounter("a", "how many", LABELS)
    gauge = PlainGauge("b", "open", LABELS)
    histogram = PlainHistogram("c_seconds", "how long", LABELS, BOUNDS)
    for each in (counter, gauge, histogram):
        ours.register(each)
    their_counter = Counter("a", "how many", LABELS, registry=theirs)
    their_gauge = Gauge("b", "open", LABELS, registry=theirs)
    for added in (their_counter, counter, their_gauge, gauge):
        added.labels("/v1", "200").inc()
        added.labels("/v1", "200").inc(3)
        added.labels("/x", "500").inc(0)
    for lowered in (their_gauge, gauge):
        lowered.labels("/v1", "200").inc(-1)
    for histograms in (Histogram("c_seconds", "how long", LABELS, buckets=BOUNDS, registry=theirs), histogram):
        for value in (0, 0.004, 0.005, 0.1, 0.5, 2, 10, 11, 500):
            histograms.labels("/v1", "200").observe(value)
    assert text(ours) == text(theirs)
