"""Metrics for Prometheus, spans for OpenTelemetry.

Both are imported late: `metrics` by a server that serves them, `tracing` where it is configured.
"""

SHARED_METRICS = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the folder in which several processes count: `prometheus_client`'s own."""

TRACE_CONTEXT = ("traceparent", "tracestate")
"""The headers that name a span (W3C Trace Context)."""
