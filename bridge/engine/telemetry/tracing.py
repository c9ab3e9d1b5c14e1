"""Spans for OpenTelemetry, sent by OTLP over HTTP: one for each request, and below it those of backends and tools.

Names and attributes follow the semantic conventions for HTTP servers and for generative AI (`gen_ai.*`: inference,
agents and tools, as of semantic conventions 1.41, which are not stable yet). No content is recorded. The trace context
of a request (W3C `traceparent`) is the parent of its span, and calls carry the context of their own span.

This module is loaded only if `server.traces` is configured; otherwise calls are not wrapped, and reads cost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from bridge.engine.telemetry import TRACE_CONTEXT

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

_SEND = 5.0
"""Seconds for one delivery to the receiver, and for the last one when the process ends."""
_w3c = TraceContextTextMapPropagator()


class Tracing:
    """The spans of one bridge. `start` it before the first request; `close` delivers what is left."""

    def __init__(
        self, endpoint: str, *, service: str = "dialect-bridge", sample: float = 1.0, version: str = ""
    ) -> None:
        """`endpoint`: base URL of the receiver. `sample`: the share of requests without a context that is traced."""
        self._endpoint = endpoint.rstrip("/") + "/v1/traces"
        self._resource = Resource.create({"service.name": service, "service.version": version})
        self._sampler = ParentBased(TraceIdRatioBased(sample))
        self._version = version
        self._provider: TracerProvider | None = None
        self._tracer: trace.Tracer = trace.NoOpTracer()

    def start(self) -> None:
        if self._provider is not None:
            return
        exporter = OTLPSpanExporter(endpoint=self._endpoint, timeout=_SEND)
        self._provider = TracerProvider(sampler=self._sampler, resource=self._resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("dialect-bridge", self._version)

    async def close(self) -> None:
        provider, self._provider = self._provider, None
        if provider is not None:
            # In a thread, as it waits for the network.
            await asyncio.to_thread(provider.shutdown)

    @contextmanager
    def request(self, name: str, headers: Mapping[str, str], attributes: dict[str, AttributeValue]) -> Iterator[Span]:
        """The span of a request, current inside the block; its parent is what the headers name."""
        parent = _w3c.extract({k: headers[k] for k in TRACE_CONTEXT if k in headers})
        span = self._tracer.start_span(name, parent, SpanKind.SERVER, attributes)
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            yield span

    def call(
        self, name: str, carrier: Mapping[str, str], kind: SpanKind, attributes: dict[str, AttributeValue]
    ) -> Span:
        """The span of a call of a backend or a tool; its parent is what the carrier names."""
        return self._tracer.start_span(name, _w3c.extract(dict(carrier)), kind, attributes)


def carrier_of(span: Span | None = None) -> dict[str, str]:
    """Return the headers with the context of this span, or of the current one; empty if there is none."""
    carrier: dict[str, str] = {}
    _w3c.inject(carrier, trace.set_span_in_context(span) if span is not None else None)
    return carrier


def carried(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that identify a span."""
    return {name: headers[name] for name in TRACE_CONTEXT if name in headers}


def trace_id(span: Span) -> str:
    """Return the trace id as in log lines and in `traceparent`."""
    return trace.format_trace_id(span.get_span_context().trace_id)


def failed(span: Span, code: str) -> None:
    """Marks a span as failed, by an error code."""
    span.set_attribute("error.type", code)
    span.set_status(StatusCode.ERROR)
