"""The span of a request, if requests are traced. Its attributes at the end are those of the log line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from aiohttp import web

from bridge.errors import ErrorCode

if TYPE_CHECKING:
    from bridge.engine.telemetry.tracing import Tracing
    from bridge.server.requests.access_log import AccessRecord

_NONE = nullcontext()
_CODES = frozenset(map(str, ErrorCode))


def spanned(tracing: Tracing | None, http: web.Request, report: AccessRecord) -> AbstractContextManager[None]:
    """Around all that is done for an HTTP request."""
    if tracing is None:
        return _NONE
    resource = http.match_info.route.resource
    where = resource.canonical if resource is not None else report.route
    about = {"http.request.method": http.method, "http.route": where}
    return _spanned(tracing, f"{http.method} {where}", http.headers, report, about)


def spanned_call(
    tracing: Tracing | None, report: AccessRecord, context: Mapping[str, str] | None
) -> AbstractContextManager[None]:
    """Around a call whose message names the trace that it belongs to; nothing for one that names none."""
    if tracing is None or context is None:
        return _NONE
    return _spanned(tracing, f"call {report.route}", context, report, {"rpc.system": "jsonrpc"})


def spanned_turn(
    tracing: Tracing | None, report: AccessRecord, metadata: Mapping[str, str]
) -> AbstractContextManager[None]:
    """Around a turn of a session over gRPC."""
    if tracing is None:
        return _NONE
    return _spanned(tracing, f"turn {report.route}", metadata, report, {"rpc.system": "grpc"})


@contextmanager
def _spanned(
    tracing: Tracing, name: str, headers: Mapping[str, str], report: AccessRecord, more: dict[str, str]
) -> Iterator[None]:
    from bridge.engine.telemetry.tracing import failed, trace_id

    about = {"bridge.route": report.route, "bridge.front": report.front, "bridge.run_id": report.run_id}
    with tracing.request(name, headers, {**more, **about}) as span:
        report.trace_id = trace_id(span)
        try:
            yield
        finally:
            attributes = {"bridge.back": report.back, "bridge.status": report.status, "bridge.lost": report.lost}
            span.set_attributes({key: value for key, value in attributes.items() if value})
            if report.http:
                span.set_attribute("http.response.status_code", report.http)
            if report.status in _CODES and report.status != ErrorCode.CANCELED:
                if report.http < 400 or report.http >= 500:
                    failed(span, report.status)
                else:
                    # The caller's fault is no failure of the server (semantic conventions for HTTP spans).
                    span.set_attribute("error.type", report.status)
