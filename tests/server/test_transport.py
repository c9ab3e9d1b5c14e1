"""The HTTP transport alone: what is asked, and what is made of each kind of answer. No sockets (`aioresponses`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aioresponses import CallbackResult, aioresponses

from bridge import ErrorCode, Message, Request, Text, fold
from bridge.contract import Dialect, Losses, ModelInfo, registry
from bridge.errors import BackendError
from bridge.model import Event
from bridge.model.events import TERMINAL
from bridge.run.backend import CallInfo
from bridge.run.backends.http_backend import HttpBackend

pytestmark = pytest.mark.usefixtures("toy")
URL = "http://backend.example/base/ask"
SAID = b'data: {"say":"Hello"}\n\n'
END = b'data: {"end":"stop"}\n\n'


class _Response(aiohttp.ClientResponse):
    """aiohttp 3.14 wants a stream writer that aioresponses 0.7.9 does not give (aioresponses issue 289)."""

    def __init__(self, *args: Any, **more: Any) -> None:
        more.setdefault("stream_writer", SimpleNamespace(output_size=0))
        super().__init__(*args, **more)


class _Web(aioresponses):
    def add(self, *args: Any, **more: Any) -> None:
        more.setdefault("response_class", _Response)
        super().add(*args, **more)


@pytest.fixture
def web() -> Iterator[aioresponses]:
    with _Web() as mocked:
        yield mocked


@pytest.fixture
async def backend(toy: str) -> AsyncIterator[HttpBackend]:
    made = HttpBackend("it", registry.get(toy), "http://backend.example/base/", api_key="k1")
    await made.start()
    yield made
    await made.close()


async def events_of(backend: HttpBackend, **info: Any) -> list[Event]:
    call = backend.call(Request([Message("user", [Text("hi")])]), CallInfo("run", None, 0.0, **info), Losses())
    events: list[Event] = []
    try:
        await call.open()
        while not events or type(events[-1]) not in TERMINAL:
            events += await call.read()
    finally:
        await call.close()
    return events


async def refusal_of(backend: HttpBackend) -> BackendError:
    with pytest.raises(BackendError) as caught:
        await events_of(backend)
    return caught.value


async def test_what_is_asked(web: aioresponses, backend: HttpBackend) -> None:
    seen: dict[str, Any] = {}

    def answer(url: Any, **asked: Any) -> CallbackResult:
        seen.update(asked, url=str(url))
        return CallbackResult(body=SAID + END, content_type="text/event-stream", response_class=_Response)

    web.post(URL, callback=answer)
    await events_of(backend, request_id="r-1", forwarded={"x-mine": "1"})
    assert seen["url"] == URL
    assert seen["data"] == b'{"ask":"hi","stream":true}'
    assert seen["allow_redirects"] is False
    sent = seen["headers"]
    assert (sent["authorization"], sent["x-request-id"], sent["x-mine"]) == ("Bearer k1", "r-1", "1")
    assert sent["accept-encoding"] == "identity"


@pytest.mark.parametrize("content_type", ["text/event-stream", "text/plain", "application/json"])
async def test_a_stream_is_a_stream_whatever_its_type_says(
    web: aioresponses, backend: HttpBackend, content_type: str
) -> None:
    web.post(URL, body=b"\n\n: hm\n\n" + SAID + END, content_type=content_type)
    assert fold(await events_of(backend)).text == "Hello"


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
async def test_json_is_a_whole_answer_whatever_its_type_says(
    web: aioresponses, backend: HttpBackend, content_type: str
) -> None:
    web.post(URL, body=b' {"say":"whole","end":"stop"}', content_type=content_type)
    assert fold(await events_of(backend)).text == "whole"


async def test_an_empty_stream_is_truncated(web: aioresponses, backend: HttpBackend) -> None:
    web.post(URL, body=b"", content_type="text/event-stream")
    failure = fold(await events_of(backend)).failure
    assert failure is not None
    assert failure.code is ErrorCode.TRUNCATED_STREAM


async def test_redirects_are_not_followed(web: aioresponses, backend: HttpBackend) -> None:
    web.post(URL, status=307, headers={"location": "http://elsewhere.example/"})
    error = await refusal_of(backend)
    assert (error.code, "redirect" in error.message) == (ErrorCode.BACKEND_ERROR, True)
    assert error.failure.details["backend_status"] == 307


@pytest.mark.parametrize(
    ("problem", "code", "word"),
    [
        (aiohttp.ServerDisconnectedError(), ErrorCode.BACKEND_UNAVAILABLE, "closed the connection"),
        (ConnectionResetError(), ErrorCode.BACKEND_UNAVAILABLE, "closed the connection"),
        (aiohttp.ServerTimeoutError(), ErrorCode.BACKEND_TIMEOUT, "within 5 s (timeouts.connect)"),
        (aiohttp.ClientPayloadError(), ErrorCode.BACKEND_UNAVAILABLE, "failed"),
        (OSError("10.0.0.7 refused"), ErrorCode.BACKEND_UNAVAILABLE, "failed"),
    ],
)
async def test_faults_have_a_code_and_no_address(
    web: aioresponses, backend: HttpBackend, problem: Exception, code: ErrorCode, word: str
) -> None:
    web.post(URL, exception=problem)
    error = await refusal_of(backend)
    assert (error.code, word in error.message) == (code, True)
    assert "10.0.0.7" not in error.message
    assert "backend.example" not in error.message


@pytest.mark.parametrize(
    ("base", "path", "address"),
    [
        ("http://h/v1", "/chat/completions", "http://h/v1/chat/completions"),
        ("http://h/v1/", "/chat/completions", "http://h/v1/chat/completions"),
        ("http://h/v1/chat/completions", "/chat/completions", "http://h/v1/chat/completions"),
        ("http://h", "/process", "http://h/process"),
        ("http://h/agents/7/?key=1", "/process", "http://h/agents/7/process?key=1"),
        ("http://h/exact/", "", "http://h/exact/"),
        ("http://h", "/v1/messages", "http://h/v1/messages"),
        ("http://h/proxy/v1/", "/v1/messages", "http://h/proxy/v1/messages"),
        ("http://h/v1?key=1", "/v1/models", "http://h/v1/models?key=1"),
        ("http://h/v1/messages", "/v1/messages", "http://h/v1/messages"),
        ("http://h/v2", "/v1/messages", "http://h/v2/v1/messages"),
        ("http://h/chat", "/chat/completions", "http://h/chat/chat/completions"),
        ("http://h/my%20agents/%C3%A9", "/process", "http://h/my%20agents/%C3%A9/process"),
        ("http://h/a%2Fb%0d%0a", "", "http://h/a%2Fb%0D%0A"),
    ],
)
def test_addresses(toy: str, base: str, path: str, address: str) -> None:
    assert str(HttpBackend("it", registry.get(toy), base).address(path)) == address


def test_headers_that_go_on(toy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are configured, and a protocol's own where the client speaks it too."""
    dialect = registry.get(toy)
    monkeypatch.setattr(type(dialect), "own_headers", ("toy-version",))
    made = HttpBackend("it", dialect, "http://h", forward_headers=("X-Team",))
    sent = {"x-team": "a", "toy-version": "2", "authorization": "Bearer client-key"}
    assert made.forwards(sent, dialect) == {"x-team": "a", "toy-version": "2"}
    assert made.forwards(sent, registry.get("openai-chat")) == {"x-team": "a"}


async def test_a_backend_whose_dialect_has_no_count(backend: HttpBackend) -> None:
    assert await backend.count(Request([]), CallInfo("run", None, 0.0)) is None


async def test_models_of_a_backend_that_has_none(backend: HttpBackend) -> None:
    assert await backend.models() == []


async def test_models_of_a_backend_that_lists_them(web: aioresponses) -> None:
    dialect: Dialect = registry.get("openai-chat")
    made = HttpBackend("it", dialect, "http://backend.example/v1")
    await made.start()
    try:
        body = b'{"object":"list","data":[{"id":"m-1","object":"model","created":5,"owned_by":"me"}]}'
        web.get("http://backend.example/v1/models", body=body, content_type="application/json")
        assert await made.models() == [ModelInfo("m-1", 5, "me")]
        web.get("http://backend.example/v1/models", status=500, body=b"<html>")
        with pytest.raises(BackendError):
            await made.models()
    finally:
        await made.close()


async def test_the_request_is_let_go_of_when_its_answer_begins(web: aioresponses, backend: HttpBackend) -> None:
    web.post(URL, body=SAID + END, content_type="text/event-stream")
    call = backend.call(Request([Message("user", [Text("hi" * 1000)])]), CallInfo("run", None, 0.0), Losses())
    assert call.sent is not None
    assert len(call.sent.body) > 2000
    await call.open()
    assert call.sent.body == b""
    await call.close()
