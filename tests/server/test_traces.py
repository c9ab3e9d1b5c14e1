"""Traces, as a receiver of OTLP gets them over HTTP: read with OpenTelemetry's own messages."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from bridge.engine.bridge import Bridge
from bridge.errors import ConfigError
from tests.docs.helpers import run
from tests.server.harness import Exchange, bound_socket, fake_backend, post, serving

CHUNK = b'data: {"id":"x","model":"big-model-2","choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
END = (
    b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"id":"x","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}}\n\n'
    b"data: [DONE]\n\n"
)
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}


class Receiver:
    """Takes what is exported; complete when the bridge that exports has been closed."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.services: set[str] = set()
        self.url = ""

    async def take(self, http: web.Request) -> web.Response:
        assert http.path == "/v1/traces"
        sent = ExportTraceServiceRequest.FromString(await http.read())
        for resource in sent.resource_spans:
            self.services |= {a.value.string_value for a in resource.resource.attributes if a.key == "service.name"}
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        return web.Response(content_type="application/x-protobuf")

    def named(self, start: str) -> list[Span]:
        return [span for span in self.spans if span.name.startswith(start)]

    def one(self, start: str) -> Span:
        (span,) = self.named(start)
        return span


@contextlib.asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    taken = Receiver()
    app = web.Application()
    app.router.add_post("/{path:.*}", taken.take)
    runner = web.AppRunner(app)
    await runner.setup()
    sock = bound_socket()
    taken.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    await web.SockSite(runner, sock).start()
    try:
        yield taken
    finally:
        await runner.cleanup()


def config(traces: str, backend: dict[str, Any], **route: Any) -> dict[str, Any]:
    return {
        "server": {"traces": {"endpoint": traces, "service": "the-bridge"}},
        "backends": {"it": backend},
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it", **route}],
    }


def chat(text: str = "Hi", **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "stream": True, **more}


def said(span: Span) -> dict[str, Any]:
    def value(of: AnyValue) -> Any:
        kind = of.WhichOneof("value")
        if kind == "array_value":
            return [value(each) for each in of.array_value.values]
        return getattr(of, kind) if kind else None

    return {a.key: value(a.value) for a in span.attributes}


async def answers(exchange: Exchange) -> None:
    await exchange.stream(CHUNK, END)


async def test_a_request_and_its_call_are_spans_of_the_trace_that_came() -> None:
    async with receiver() as taken, fake_backend() as backend:
        backend.plays(answers)
        async with serving(config(taken.url, {"dialect": "openai-chat", "url": backend.url, "model": "big"})) as base:
            body = chat("a secret word", max_tokens=9, temperature=0.5, user="somebody")
            assert (await post(f"{base}/v1/chat/completions", body, **CONTEXT)).status == 200
        told = backend.seen[0].headers
    assert taken.services == {"the-bridge"}
    request, call = taken.one("POST /v1/chat/completions"), taken.one("chat ")
    assert request.kind == Span.SPAN_KIND_SERVER
    assert call.kind == Span.SPAN_KIND_CLIENT
    assert {request.trace_id.hex(), call.trace_id.hex()} == {TRACE}
    assert request.parent_span_id.hex() == PARENT
    assert call.parent_span_id == request.span_id
    assert request.start_time_unix_nano <= call.start_time_unix_nano <= call.end_time_unix_nano
    assert told["traceparent"] == f"00-{TRACE}-{call.span_id.hex()}-01"
    assert told["tracestate"] == "vendor=1"

    about = said(request)
    assert about.pop("bridge.run_id") == said(call)["bridge.run_id"]
    assert about == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "bridge.route": "/v1",
        "bridge.front": "openai-chat",
        "bridge.back": "it",
        "bridge.status": "stop",
    }
    about = said(call)
    assert 0 < about.pop("gen_ai.response.time_to_first_chunk") < 60
    del about["bridge.run_id"]
    assert about == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.model": "big-model-2",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 7,
        "server.address": "127.0.0.1",
        "server.port": backend.port,
        "bridge.backend": "it",
    }
    everything = "".join(map(str, taken.spans))
    assert "secret" not in everything
    assert "somebody" not in everything


@pytest.mark.parametrize("durable", [False, True])
async def test_a_call_of_a_tool_belongs_to_the_trace_in_its_metadata(tmp_path: Path, durable: bool) -> None:
    meta = "io.modelcontextprotocol/"
    revision = {
        f"{meta}protocolVersion": "2026-07-28",
        f"{meta}clientCapabilities": {"extensions": {f"{meta}tasks": {}}},
    }
    call = {"name": "ask_it", "arguments": {"prompt": "Hi"}, "_meta": {**revision, **CONTEXT}}
    headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "ask_it"}
    async with receiver() as taken, fake_backend() as backend:
        backend.plays(answers)
        it = {"dialect": "openai-chat", "url": backend.url, "model": "big"}
        setup = config(taken.url, it, dialect="mcp", path="/mcp", durable=durable)
        setup["stores"] = {"history": f"sqlite:///{tmp_path}/a.db", "runs": f"sqlite:///{tmp_path}/a.db"}
        async with serving(setup) as base:
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            assert (await post(f"{base}/mcp", body, **headers)).status == 200
            async with asyncio.timeout(10):
                while not backend.seen:
                    await asyncio.sleep(0.01)
        told = backend.seen[0].headers
    span = taken.one("call /mcp")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert taken.one("POST /mcp").trace_id.hex() != TRACE
    assert told["traceparent"].startswith(f"00-{TRACE}-")


async def test_each_try_is_a_call_and_what_failed_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def script(exchange: Exchange) -> None:
        if len(backend.seen) == 1:
            await exchange.answer(500, b"{}")
        else:
            await exchange.stream(CHUNK, END)

    async with receiver() as taken, fake_backend() as backend:
        backend.plays(script)
        section = {"dialect": "openai-chat", "url": backend.url, "retry": {"attempts": 2, "backoff": "1ms"}}
        with caplog.at_level(logging.INFO, "bridge.access"):
            async with serving(config(taken.url, section)) as base:
                assert (await post(f"{base}/v1/chat/completions", chat())).status == 200
                assert (await post(f"{base}/v1/chat/completions", b"no JSON")).status == 400
    good, bad = taken.named("POST ")
    first, second = sorted(taken.named("chat"), key=lambda span: span.start_time_unix_nano)
    assert first.parent_span_id == second.parent_span_id == good.span_id
    assert said(first)["error.type"] == "backend_error"
    assert first.status.code == Status.STATUS_CODE_ERROR
    assert "error.type" not in said(second)
    assert said(bad)["error.type"] == "invalid_request"
    assert bad.status.code == Status.STATUS_CODE_UNSET, "the caller's fault is none of the server's"
    # The log line leads to the trace.
    lines = [record.__dict__["facts"] for record in caplog.records if record.name == "bridge.access"]
    assert [line["trace_id"] for line in lines] == [good.trace_id.hex(), bad.trace_id.hex()]
    assert lines[0]["retries"] == 1


async def test_an_agent_is_invoked_and_a_client_that_leaves_is_seen() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.left()

    async with receiver() as taken, fake_backend() as backend:
        backend.plays(script)
        async with serving(config(taken.url, {"dialect": "agentscope", "url": backend.url})) as base:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await post(f"{base}/v1/chat/completions", chat())
    call = taken.one("invoke_agent it")
    assert said(call)["gen_ai.agent.name"] == "it"
    assert said(call)["gen_ai.provider.name"] == "agentscope"
    assert said(call)["error.type"] == "canceled"
    assert said(taken.one("POST"))["bridge.status"] == "canceled"


async def test_a_kept_run_belongs_to_the_trace_of_who_started_it(tmp_path: Path) -> None:
    async with receiver() as taken, fake_backend() as backend:
        backend.plays(answers)
        setup = config(taken.url, {"dialect": "openai-chat", "url": backend.url}, dialect="ag-ui", durable=True)
        setup["stores"] = {"runs": f"sqlite:///{tmp_path}/runs.db"}
        body = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {},
                "messages": [{"id": "1", "role": "user", "content": "Hi"}]}  # fmt: skip
        async with serving(setup) as base:
            assert (await post(f"{base}/v1", body, **CONTEXT)).status == 200
        assert backend.seen[0].headers["traceparent"].startswith(f"00-{TRACE}-")
    call, request = taken.one("chat"), taken.one("POST")
    assert call.trace_id.hex() == TRACE
    assert call.parent_span_id == request.span_id
    assert said(call)["gen_ai.conversation.id"] == "t"


async def test_only_a_share_is_traced_where_that_is_wanted_but_what_is_traced_already_goes_on() -> None:
    async with receiver() as taken, fake_backend() as backend:
        backend.plays(answers)
        setup = config(taken.url, {"dialect": "openai-chat", "url": backend.url})
        setup["server"]["traces"]["sample"] = 0
        async with serving(setup) as base:
            await post(f"{base}/v1/chat/completions", chat())
            await post(f"{base}/v1/chat/completions", chat(), **CONTEXT)
    assert {span.trace_id.hex() for span in taken.spans} == {TRACE}
    assert len(taken.spans) == 2


async def test_a_receiver_that_is_not_there_holds_up_nobody() -> None:
    async with fake_backend() as backend:
        backend.plays(answers)
        sock = bound_socket()
        setup = config(f"http://127.0.0.1:{sock.getsockname()[1]}", {"dialect": "openai-chat", "url": backend.url})
        sock.close()
        async with serving(setup) as base:
            assert (await post(f"{base}/v1/chat/completions", chat())).status == 200


def test_nothing_of_it_is_loaded_where_it_is_not_configured() -> None:
    told = (
        "import sys; from bridge.engine.bridge import Bridge; from bridge.server import make_app;"
        "make_app(Bridge.from_config('config.yaml'));"
        "sys.exit(any(name.split('.')[0] == 'opentelemetry' for name in sys.modules))"
    )
    done = run(sys.executable, "-c", told, fresh=True)
    assert done.returncode == 0, done.stderr.decode()


async def test_a_refused_request_is_amended_as_without_traces() -> None:
    async def refuses(exchange: Exchange) -> None:
        if b'"temperature"' in exchange.seen.body:
            text = "Unsupported parameter: 'temperature' is not supported with this model."
            await exchange.answer(400, json.dumps({"error": {"message": text, "param": "temperature"}}).encode())
        else:
            await exchange.stream(CHUNK, END)

    async with receiver() as taken, fake_backend() as backend:
        backend.plays(refuses)
        async with serving(config(taken.url, {"dialect": "openai-chat", "url": backend.url})) as base:
            for count in (2, 3):
                assert (await post(f"{base}/v1/chat/completions", chat(temperature=0.5))).status == 200
                assert len(backend.seen) == count


def test_who_wants_traces_without_the_packages_is_told_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "bridge.engine.telemetry.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"pip install 'dialect-bridge\[otel\]'"):
        Bridge.from_config(config("http://127.0.0.1:1", {"dialect": "demo"}))
