"""Why a request failed: one line of the log names the code, the call to the backend, and what to check; the client is
told what helps it. Requests that no route served have a line, too.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from bridge.cli.logs import TextFormatter
from bridge.contract import registry
from bridge.errors import ErrorCode
from bridge.model import FinishReason, PartKind
from bridge.testing.wires import context, encode
from tests.server.harness import Exchange, FakeBackend, ask, fake_backend, free_port, post, serving
from tests.server.test_metrics import of, read

KEY = "0b4ckendk3y7f3c9a"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
ERRORS = Path(__file__).parents[2] / "docs" / "errors"


def config(url: str, **more: Any) -> dict[str, Any]:
    timeouts = {"connect": "1s", "first_event": "300ms", "idle": "300ms"}
    return {
        "backends": {"llm": {"dialect": "openai-chat", "url": url, "api_key": KEY, "timeouts": timeouts}},
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "llm"}],
        **more,
    }


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings and worse, as they are printed."""
    return [TextFormatter().format(r) for r in caplog.records if r.levelno >= logging.WARNING and r.name != "aiohttp"]


def answers(status: int, body: bytes, kind: str = "application/json", **headers: str) -> Callable[[FakeBackend], None]:
    return lambda backend: backend.answers(status, body, kind, **headers)


def error(message: str) -> bytes:
    return b'{"error": {"message": "%b", "type": "t", "code": null}}' % message.encode()


async def silent(exchange: Exchange) -> None:
    await exchange.left()


async def closes(exchange: Exchange) -> None:
    await exchange.reset()


async def cut(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.send(b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"half"}}]}\n\n')
    await exchange.end()


HTML = b"<!DOCTYPE html>\n<html><title>Sign in</title></html>"
WRONG_KEY = error(f"Incorrect API key provided: {KEY}.")
BROKEN: dict[str, tuple[Callable[[FakeBackend], None], str, str, str]] = {
    "wrong key": (answers(401, WRONG_KEY), "backend_auth", r"answered 401: .*Incorrect API key", "the api_key"),
    "key not allowed": (answers(403, error("no access")), "backend_auth", "answered 403: .*no access", "the api_key"),
    "wrong path": (answers(404, b"404 page not found"), "backend_error", "answered 404: 404 page", "the url"),
    "no such model": (answers(404, error("no model m")), "not_found", "answered 404: .*no model m", "and the model"),
    "no such path at Spring": (
        answers(404, b'{"status":404,"error":"Not Found","path":"/x"}'), "backend_error", "answered 404: ", "the url",
    ),
    "no such path at a gateway": (
        answers(404, b'{"message":"no Route matched with those values"}'), "backend_error", "answered 404: ", "the url",
    ),
    "wrong method at FastAPI": (
        answers(405, b'{"detail":"Method Not Allowed"}'), "backend_error", "answered 405: .*Method", "the url",
    ),
    "no money": (answers(402, error("no credit")), "backend_auth", "answered 402: .*no credit", "the balance of"),
    "wrong fields": (
        answers(422, b'{"detail":[{"type":"missing","loc":["body","model"],"msg":"Field required"}]}'),
        "invalid_request", ": model: Field required[.] POST", "",
    ),
    "wrong method": (answers(405, b""), "backend_error", "answered 405: an empty body", "the url"),
    "wrong request": (answers(422, error("bad field")), "invalid_request", "answered 422: .*bad field", ""),
    "limits": (answers(429, error("slow down")), "rate_limited", "answered 429: .*slow down", ""),
    "crash": (answers(500, error("no power")), "backend_error", "answered 500: .*no power", ""),
    "proxy": (answers(502, HTML, "text/html"), "backend_unavailable", "answered 502: <!DOCTYPE html> <html>", ""),
    "overload": (answers(503, error("busy")), "overloaded", "answered 503: .*busy", ""),
    "redirect": (
        answers(307, b"", location="https://x.example/login?t=s3cret"), "backend_error",
        r"redirected to https://x.example/login \(",
        "the url",
    ),
    "web page": (answers(200, HTML, "text/html"), "backend_protocol", "answered 200 text/html: <!DOC", "the dialect"),
    "no such path": (answers(404, b'{"detail":"Not Found"}'), "backend_error", "answered 404: ", "check the url of"),
    "no JSON": (answers(200, b"hello"), "truncated_stream", "answered 200 application/json: hello", "the dialect"),
    "another dialect": (
        answers(200, b'data: {"type":"message_stop"}\n\n' * 9, "text/event-stream"), "truncated_stream",
        'answered 200 text/event-stream: data: {"type":"message_stop"} .*[.]{3} ', "the dialect",
    ),
    "invalid compression": (
        answers(200, b"no gzip", "text/event-stream", content_encoding="gzip"), "backend_protocol",
        "answered 200 text/event-stream: a body that cannot be read", "the dialect",
    ),
    "invalid compression of an error": (
        answers(500, b"no gzip", content_encoding="gzip"), "backend_error",
        "answered 500: a body that cannot be read", "",
    ),
    "silence": (lambda backend: backend.plays(silent), "backend_timeout", "has not answered", "the timeouts"),
    "no answer": (
        lambda backend: backend.plays(closes), "backend_unavailable", "failed: (Server|Client)", "the scheme",
    ),
    "half an answer": (lambda backend: backend.plays(cut), "truncated_stream", "answered 200", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_backend_is_explained(name: str, caplog: pytest.LogCaptureFixture) -> None:
    play, code, cause, advice = BROKEN[name]
    async with fake_backend() as backend:
        play(backend)
        async with serving(config(backend.url)) as base:
            reply = await post(f"{base}/v1/chat/completions", {**BODY, "stream": True})
    (line,) = [line for line in lines(caplog) if "run failed" in line]
    assert f" WARNING run failed: {code}: " in line
    assert ".md" not in line, "a page of the documentation, which has no address"
    assert "back=llm" in line
    assert f"POST {backend.url}/chat/completions " in line
    if cause:
        assert re.search(cause, line), line
    assert ("(check " in line) == bool(advice)
    assert advice in line
    assert KEY not in line
    assert KEY.encode() not in reply.body
    for inner in (backend.url, "check the", "DOCTYPE", "x.example"):
        assert inner.encode() not in reply.body, "the client cannot mend it, and need not know"


ALIKE = {("agentscope", "agentscope-java"), ("agentscope-java", "agentscope"), ("ag-kit", "ag-ui")}
"""Pairs of which the first reads what the second writes."""
STREAMED = [name for name in registry.over_http() if name not in ("agent-runs", "acp")]
BACKS = [name for name in registry.called() if registry.get(name).called_over_http and name != "agent-runs"]


@pytest.mark.parametrize("back", BACKS)
async def test_a_backend_of_another_dialect_is_never_a_success(back: str, caplog: pytest.LogCaptureFixture) -> None:
    builder = context(None).builder()
    builder.flow(0, PartKind.TEXT, "Hello")
    builder.finish(FinishReason.STOP)
    builder.end()
    events = builder.take()
    async with fake_backend() as backend:
        setup = config(backend.url)
        setup["backends"]["llm"].update(dialect=back, model="m")
        async with serving(setup) as base:
            for other in STREAMED:
                if other == back or (back, other) in ALIKE:
                    continue
                caplog.clear()
                backend.answers(200, encode(registry.get(other), events), "text/event-stream")
                reply = await post(f"{base}/v1/chat/completions", {**BODY, "stream": True})
                (line,) = [line for line in lines(caplog) if "run failed" in line]
                assert re.search(r"check the url and the dialect of backend 'llm'|Expected the backend's url", line), (
                    other
                )
                assert f" {backend.url}" in line
                assert b'"error"' in reply.body


async def test_the_step_of_a_run_that_got_no_answer_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_backend() as backend:
        backend.plays(silent)
        setup = config(backend.url)
        setup["backends"]["llm"].update(dialect="a2a")
        async with serving(setup) as base:
            await post(f"{base}/v1/chat/completions", BODY)
    (line,) = [line for line in lines(caplog) if "run failed" in line]
    assert f"GET {backend.url}/.well-known/agent-card.json has not answered" in line
    assert "check the timeouts of backend 'llm'" in line


@pytest.mark.parametrize(
    ("url", "cause", "advice"),
    [
        ("http://none.invalid/v1", "DNS", "the host name in the url"),
        ("http://127.0.0.1:{port}/v1", "Cannot connect", "the url"),
        ("http://127.0.0.1:{port}/v1?key=s3cret", "/v1/chat/completions failed", "the url"),
    ],
)
async def test_a_backend_that_cannot_be_reached(
    url: str, cause: str, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with fake_backend() as backend:
        address = url.format(port=free_port(), plain=backend.url.rpartition(":")[2])
        async with serving(config(address)) as base:
            reply = await post(f"{base}/v1/chat/completions", BODY)
    (line,) = [line for line in lines(caplog) if "run failed" in line]
    assert "backend_unavailable" in line
    assert cause in line
    assert advice in line
    assert "s3cret" not in line
    assert reply.status == 502
    assert b"127.0.0.1" not in reply.body


@pytest.mark.parametrize("client", ["aiohttp", "httptools"])
@pytest.mark.parametrize(
    ("answer", "said", "advice"),
    [
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", "The backend's answer is not HTTP", "the port and the scheme"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 1_000_000 + b"\r\n\r\n", "The headers of the backend's answer exceed", ""),
    ],
)
async def test_an_answer_without_a_readable_head(
    client: str, answer: bytes, said: str, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(exchange: Exchange) -> None:
        with contextlib.suppress(ConnectionError):
            await exchange.raw(answer)
        exchange.close()

    async with fake_backend() as backend:
        backend.plays(play)
        setup = config(f"{backend.url}?key=s3cret", server={"http_client": client})
        async with serving(setup) as base:
            reply = await post(f"{base}/v1/chat/completions", BODY)
    (line,) = [line for line in lines(caplog) if "run failed" in line]
    assert f"backend_protocol: {said}" in line
    assert ("(check " in line) == bool(advice)
    assert advice in line
    assert "s3cret" not in line
    assert said.encode() in reply.body


async def test_a_queued_run_is_explained(caplog: pytest.LogCaptureFixture) -> None:
    """A run that is started by one request and read by others: the line names the one that failed."""

    async def play(exchange: Exchange) -> None:
        if exchange.seen.method == "POST":
            started = {"taskId": "task", "threadId": "t", "runId": "r", "created": True}
            await exchange.answer(202, orjson.dumps(started))
        else:
            await exchange.answer(500, error("no power"))

    async with fake_backend() as backend:
        backend.plays(play)
        setup = config(backend.url)
        setup["backends"]["llm"].update(dialect="agent-runs", options={"reconnect": []})
        setup["backends"]["llm"]["timeouts"]["first_event"] = "5s"
        async with serving(setup) as base:
            await post(f"{base}/v1/chat/completions", BODY)
    (line,) = [line for line in lines(caplog) if "run failed" in line]
    assert re.search(rf"GET {backend.url}/runs/\S+ answered 500: .*no power", line), line


async def test_a_fallback_says_what_failed(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_backend() as first, fake_backend() as second:
        first.answers(500, error("no power"))
        choice = b'{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}'
        second.streams(b'data: {"id":"x","choices":[%b]}\n\ndata: [DONE]\n\n' % choice)
        setup = config(first.url)
        setup["backends"]["other"] = {"dialect": "openai-chat", "url": second.url}
        setup["routes"][0]["backend"] = ["llm", "other"]
        async with serving(setup) as base:
            assert (await post(f"{base}/v1/chat/completions", {**BODY, "stream": True})).status == 200
    (line,) = lines(caplog)
    assert "llm failed, trying other: backend_error: no power" in line
    assert "answered 500: " in line


async def test_a_wrong_request_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(config("http://127.0.0.1:1")) as base:
        await post(f"{base}/v1/chat/completions", {"model": "m", "messages": "no"})
    (line,) = lines(caplog)
    assert "WARNING run failed: invalid_request: messages: expected" in line
    assert "http=400" in line


async def test_the_line_has_the_status_that_the_client_got(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path}/bridge.db"
    setup = config("http://127.0.0.1:1", stores={"history": file, "runs": file})
    setup["routes"].append({"dialect": "agent-runs", "path": "/agent", "backend": "llm"})
    async with serving(setup) as base:
        reply = await post(f"{base}/agent/attachments", {"no": "form"})
    assert reply.status == 422
    (line,) = [line for line in lines(caplog) if "request refused" in line]
    assert "http=422" in line


async def test_a_path_that_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(config("http://127.0.0.1:1", server={"metrics": {}})) as base:
        before = of(await read(base), "bridge_refusals_total", reason="not_found")
        reply = await post(f"{base}/chat/completions?key=s3cret", BODY)
        assert reply.status == 404
        assert reply.json["error"]["message"] == (
            "There is nothing at POST /chat/completions. Did you mean POST /v1/chat/completions (openai-chat)? "
            "Routes: openai-chat at /v1."
        )
        assert reply.json["error"]["code"] == "unknown_url", "in the shape of the dialect that was meant"
        assert (await post(f"{base}/v1/none", BODY)).json["error"]["code"] == "unknown_url"
        assert (await ask("GET", f"{base}/v1/chat/completions")).status == 405
        assert of(await read(base), "bridge_refusals_total", reason="not_found") == before + 2
    first, _, second = lines(caplog)
    assert "WARNING request refused: not_found: There is nothing at POST /chat/completions. Did you mean" in first
    assert "http=404 method=POST path=/chat/completions" in first
    assert "s3cret" not in first
    assert "http=405 method=GET path=/v1/chat/completions" in second


@pytest.mark.parametrize("path", ["/v1/chat/completion", "/v1/chat/completoins", "/v1/chat-completions"])
async def test_a_path_with_a_typo(path: str) -> None:
    async with serving(config("http://127.0.0.1:1")) as base:
        reply = await post(f"{base}{path}", BODY)
        assert "Did you mean POST /v1/chat/completions (openai-chat)?" in reply.json["error"]["message"]
        other = await post(f"{base}/v1/something/else", BODY)
        assert "Did you mean" not in other.json["error"]["message"]
        assert (await post(f"{base}/{'a' * 4000}", BODY)).status == 404


@pytest.mark.parametrize(
    ("dialect", "mount", "path", "meant"),
    [
        ("ag-ui", "/ag-ui", "/ag-ui/v1", "POST /ag-ui (ag-ui)"),
        ("agentscope", "/agentscope", "/agentscope", "POST /agentscope/process (agentscope)"),
        ("ai-sdk-ui", "/api/chat", "/chat", "POST /api/chat (ai-sdk-ui)"),
        (
            "gemini",
            "/gemini",
            "/v1beta/models/x:generateContent",
            "POST /gemini/v1beta/models/x:generateContent (gemini)",
        ),
        ("openai-chat", "/v1", "/v1/", "POST /v1/chat/completions (openai-chat)"),
        ("openai-chat", "/v1", "/health", "GET /healthz"),
        ("openai-chat", "/v1", "/readiness", ""),
        ("openai-chat", "/v1", "/v1/embeddings", ""),
    ],
)
async def test_what_an_unknown_path_probably_meant(dialect: str, mount: str, path: str, meant: str) -> None:
    setup = {"backends": {"it": {"dialect": "demo"}}, "routes": [{"dialect": dialect, "path": mount, "backend": "it"}]}
    async with serving(setup) as base:
        reply = await post(f"{base}{path}", {})
    assert reply.status == 404
    said = reply.body.decode()
    assert f"Did you mean {meant}?" in said if meant else "Did you mean" not in said


async def test_the_log_says_why_there_is_no_page(caplog: pytest.LogCaptureFixture) -> None:
    setup = config("http://127.0.0.1:1", server={"auth": {"keys": [{"name": "web", "key": "s3cret-web"}]}})
    async with serving(setup) as base:
        assert "page" not in (await ask("GET", f"{base}/")).body.decode()
    (line,) = lines(caplog)
    assert "There is nothing at GET /. The page is off: server.page_key gives it a key." in line


async def test_thirty_unknown_paths_have_thirty_lines(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(config("http://127.0.0.1:1")) as base:
        for _ in range(30):
            await ask("GET", f"{base}/favicon.ico")
    assert len(lines(caplog)) == 30


async def test_a_content_type_is_in_the_line(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(config("http://127.0.0.1:1")) as base:
        await ask("POST", f"{base}/v1/chat/completions", b"{}", {"content-type": "text/plain"})
        await ask("POST", f"{base}/v1/chat/completions", b"{}", {"content-type": "'key 'http=200"})
    first, second = lines(caplog)
    assert "content-type: expected application/json, got text/plain." in first
    assert "got a string" in second


async def test_a_websocket_that_is_not_served(caplog: pytest.LogCaptureFixture) -> None:
    setup = config("http://127.0.0.1:1")
    route = {"dialect": "openai-responses", "path": "/v1", "backend": "llm", "options": {"websocket": False}}
    setup["routes"].append(route)
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    async with serving(setup) as base:
        reply = await ask("GET", f"{base}/v1/responses", headers={**upgrade, "sec-websocket-key": "dGhlIHNhbXBsZQ=="})
    assert reply.status == 426
    assert reply.headers["upgrade"] == "HTTP/1.1"
    assert reply.json["error"]["message"] == "/v1/responses is not served over WebSocket; send POST."
    (line,) = lines(caplog)
    assert "http=426 method=GET path=/v1/responses" in line


async def test_strangers_are_not_told_the_routes(caplog: pytest.LogCaptureFixture) -> None:
    setup = config("http://127.0.0.1:1", server={"auth": {"keys": [{"name": "web", "key": "s3cret-web"}]}})
    async with serving(setup) as base:
        reply = await post(f"{base}/chat/completions", BODY)
        assert reply.json["error"]["message"] == "There is nothing at POST /chat/completions."
    (line,) = lines(caplog)
    assert "Did you mean POST /v1/chat/completions (openai-chat)? Routes: openai-chat at /v1." in line


async def test_a_slash_at_the_end_and_head(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(config("http://127.0.0.1:1", backends={"llm": {"dialect": "demo"}})) as base:
        assert (await post(f"{base}/v1/chat/completions/", BODY)).status == 200
        assert (await ask("GET", f"{base}/v1/models/")).json["object"] == "list"
        head = await ask("HEAD", f"{base}/v1/models")
        assert (head.status, head.body) == (200, b"")
    assert lines(caplog) == []


@pytest.mark.parametrize("code", ErrorCode)
def test_each_code_has_a_page(code: ErrorCode) -> None:
    page = (ERRORS / f"{code}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {code}\n")
    assert "## What to check\n\n- " in page


def test_there_is_no_page_of_another_code() -> None:
    assert {file.stem for file in ERRORS.iterdir()} == set(map(str, ErrorCode))
