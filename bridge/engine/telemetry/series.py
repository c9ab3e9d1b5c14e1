"""Metrics of a process that nobody shares, as plain numbers.

The classes of `prometheus_client` take a lock and check themselves for each number: a tenth of what the bridge runs for
a plain request. Here one thread counts, the event loop's. Another reads, and may
see a value of which not all is counted.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import inf

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric


class Number:
    """One series of a counter."""

    __slots__ = ("created", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.created = time.time()

    def inc(self, amount: float = 1) -> None:
        self.value += amount


class Distribution:
    """One series of a histogram: how many values there were up to each bound."""

    __slots__ = ("_bounds", "counts", "created", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * len(bounds)
        self.sum = 0.0
        self.created = time.time()

    def observe(self, value: float) -> None:
        self.sum += value
        self.counts[bisect_left(self._bounds, value)] += 1


class PlainCounter:
    """A counter, registered as a collector of `prometheus_client`; `labels` returns the series of these values."""

    def __init__(self, name: str, what: str, labels: Sequence[str], *, registry: CollectorRegistry) -> None:
        self._name, self._what, self._labels = name, what, labels
        self._series: dict[tuple[str, ...], Number] = {}
        registry.register(self)

    def labels(self, *values: str) -> Number:
        return self._series.setdefault(values, Number())

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self._name, self._what, labels=self._labels)
        for values, series in list(self._series.items()):
            family.add_metric(values, series.value, series.created)
        yield family


class PlainHistogram:
    """A histogram, as `PlainCounter`; `buckets` are their upper bounds."""

    def __init__(
        self, name: str, what: str, labels: Sequence[str], *, buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._name, self._what, self._labels = name, what, labels
        self._bounds = [*map(float, buckets), inf]
        self._series: dict[tuple[str, ...], Distribution] = {}
        registry.register(self)

    def labels(self, *values: str) -> Distribution:
        return self._series.setdefault(values, Distribution(self._bounds))

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._what, labels=self._labels)
        names = [*map(str, self._bounds[:-1]), "+Inf"]
        for values, series in list(self._series.items()):
            buckets = list(zip(names, accumulate(series.counts), strict=True))
            family.add_metric(values, buckets, series.sum)
            family.add_sample(f"{self._name}_created", dict(zip(self._labels, values, strict=True)), series.created)
        yield family
