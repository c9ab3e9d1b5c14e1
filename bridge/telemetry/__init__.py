"""What a running bridge tells of itself: numbers for Prometheus, spans for OpenTelemetry.

Neither is loaded before somebody asks for it: `metrics` by a server that serves them, `tracing` where it is configured.
"""

SHARED_METRICS = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the folder in which several processes count: `prometheus_client`'s own."""

TRACE_CONTEXT = ("traceparent", "tracestate")
"""The headers that name a span (W3C Trace Context)."""
