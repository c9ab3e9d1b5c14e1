"""Speech to text over real sockets: what is sent to a transcription service, and whatever may be wrong with it."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import subprocess
import sys
import wave
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from bridge.engine.assembly import speech_for
from bridge.engine.config import parse
from bridge.errors import BridgeError, ErrorCode
from bridge.run.backends.speech import EMPTY, LIMIT, UNSUPPORTED_FORMAT, Speech, read_wav, unavailable
from tests.server.harness import Exchange, bound_socket, fake_backend, free_port

KEY = "s3cr3t-pa55word"


def recording(seconds: float = 0.1) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(b"\1\2" * int(8000 * seconds))
    return out.getvalue()


WAV = recording()


async def pieces(data: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def refusal(awaitable: Any) -> BridgeError:
    with pytest.raises(BridgeError) as caught:
        await awaitable
    assert KEY not in str(caught.value)
    assert KEY not in repr(caught.value.failure)
    return caught.value


# ---------------------------------------------------------------------- the recording


@pytest.mark.parametrize("kind", ["audio/wav", "audio/x-wav", "audio/wave", ""])
@pytest.mark.parametrize("size", [1, 11, 12, 13, 5000])
async def test_a_recording_is_read(kind: str, size: int) -> None:
    assert await read_wav(pieces(WAV, size), kind) == WAV


@pytest.mark.parametrize(
    ("data", "kind", "reason"),
    [
        (None, "", EMPTY),
        (b"", "audio/wav", EMPTY),
        (b"ID3" + bytes(100), "audio/wav", UNSUPPORTED_FORMAT),
        (WAV, "audio/mpeg", UNSUPPORTED_FORMAT),
        (WAV[:11], "audio/wav", UNSUPPORTED_FORMAT),
        (WAV.replace(b"WAVE", b"AVI "), "audio/wav", UNSUPPORTED_FORMAT),
        (WAV.replace(b"RIFF", b"RIFX"), "audio/wav", UNSUPPORTED_FORMAT),
        (b"\0" + WAV, "audio/wav", UNSUPPORTED_FORMAT),
    ],
)
async def test_what_is_no_recording(data: bytes | None, kind: str, reason: str) -> None:
    error = await refusal(read_wav(None if data is None else pieces(data), kind))
    assert (error.code, error.failure.details) == (ErrorCode.INVALID_REQUEST, {"reason": reason})


async def test_reading_stops_at_the_limit() -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        yield WAV
        while True:
            read += 2**16
            yield bytes(2**16)

    assert (await refusal(read_wav(endless()))).code is ErrorCode.TOO_LARGE
    assert read <= LIMIT + 2**16
    assert len(await read_wav(pieces(WAV.ljust(LIMIT, b"\0"), 2**16))) == LIMIT
    assert (await refusal(read_wav(pieces(WAV.ljust(LIMIT + 1, b"\0"), 2**16)))).code is ErrorCode.TOO_LARGE


# ---------------------------------------------------------------------- the service


class Service:
    """An OpenAI-compatible service; `heard` holds what it was sent."""

    def __init__(self) -> None:
        self.heard: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.url = ""

    async def transcribe(self, http: web.Request) -> web.StreamResponse:
        form = await http.post()
        file = form["file"]
        assert isinstance(file, web.FileField)
        fields = {k: v for k, v in form.items() if k != "file"}
        headers = {k.lower(): v for k, v in http.headers.items()}
        self.heard.append((headers, {**fields, "data": file.file.read(), "type": file.content_type}))
        return web.json_response({"text": "Hello, bridge."})


@contextlib.asynccontextmanager
async def serviced() -> AsyncIterator[Service]:
    service = Service()
    app = web.Application(client_max_size=LIMIT * 2)
    app.router.add_post("/v1/audio/transcriptions", service.transcribe)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    listening = bound_socket()
    service.url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    try:
        await web.SockSite(runner, listening).start()
        yield service
    finally:
        await runner.cleanup()


def configured(section: dict[str, Any] | None) -> Speech | None:
    return speech_for(
        parse(
            {
                "backends": {"it": {"dialect": "demo"}},
                "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
                **({"speech": section} if section else {}),
            }
        )
    )


async def test_a_recording_becomes_text() -> None:
    async with serviced() as service:
        speech = configured({"url": service.url, "api_key": KEY, "model": "whisper-large"})
        assert speech is not None
        assert await speech.transcribe(WAV) == "Hello, bridge."
        assert await speech.transcribe(WAV) == "Hello, bridge."
    (headers, sent), _ = service.heard
    assert headers["authorization"] == f"Bearer {KEY}"
    assert sent == {"model": "whisper-large", "response_format": "json", "data": WAV, "type": "audio/wav"}


async def test_other_services_variables_stay_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
    async with serviced() as service:
        assert await Speech(service.url).transcribe(WAV) == "Hello, bridge."
    headers, _ = service.heard[0]
    assert "authorization" not in headers
    assert KEY not in str(headers)


def test_nothing_configured_is_no_service() -> None:
    assert configured(None) is None
    failure = unavailable("none is configured").failure
    assert (failure.code, failure.http_status) == (ErrorCode.BACKEND_UNAVAILABLE, 503)


@pytest.mark.parametrize("status", [401, 403, 404, 409, 429, 500, 502, 503])
async def test_a_service_that_fails_is_not_available(status: int) -> None:
    async with fake_backend() as backend:
        speech = Speech(backend.url, api_key=KEY)
        backend.answers(status, b'{"error": {"message": "Incorrect API key: %s"}}' % KEY.encode())
        error = await refusal(speech.transcribe(WAV))
        assert len(backend.seen) == 1
    assert (error.code, error.failure.http_status) == (ErrorCode.BACKEND_UNAVAILABLE, 503)
    assert f"status {status}" in error.message


@pytest.mark.parametrize("status", [400, 413, 415, 422])
async def test_a_recording_that_the_service_refuses_is_the_callers(status: int) -> None:
    async with fake_backend() as backend:
        speech = Speech(backend.url, api_key=KEY)
        backend.answers(status, b'{"error": {"message": "cannot decode"}}')
        error = await refusal(speech.transcribe(WAV))
    assert (error.code, error.failure.details) == (ErrorCode.INVALID_REQUEST, {"reason": UNSUPPORTED_FORMAT})


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"<html>", "text/html"), (b"{", "application/json"), (b"[]", "application/json"), (b'"x"', "application/json"),
     (b'{"text": null}', "application/json"), (b'{"said": "x"}', "application/json"), (b"", "application/json")],
)  # fmt: skip
async def test_an_answer_without_text_is_none(body: bytes, kind: str) -> None:
    async with fake_backend() as backend:
        speech = Speech(backend.url)
        backend.answers(200, body, kind)
        error = await refusal(speech.transcribe(WAV))
    assert error.failure.http_status == 503


async def test_a_service_that_is_silent_slow_or_gone() -> None:
    async def silent(exchange: Exchange) -> None:
        await exchange.left()

    async def slow(exchange: Exchange) -> None:
        await exchange.head(content_type="application/json")
        while not exchange.seen.gone.is_set():
            await exchange.send(b" ")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(exchange.seen.gone.wait(), 0.02)

    async def resets(exchange: Exchange) -> None:
        exchange.reset()

    for script in (silent, slow, resets):
        async with fake_backend() as backend:
            speech = Speech(backend.url, timeout=0.2)
            backend.plays(script)
            assert (await refusal(speech.transcribe(WAV))).failure.http_status == 503
            await backend.seen[0].gone.wait()
    speech = Speech(f"http://127.0.0.1:{free_port()}")
    assert (await refusal(speech.transcribe(WAV))).failure.http_status == 503


async def test_an_answer_without_end_is_cut() -> None:
    async def endless(exchange: Exchange) -> None:
        await exchange.head(content_type="application/json")
        await exchange.send(b'{"text": "')
        while not exchange.seen.gone.is_set():
            await exchange.send(b"x" * 2**16)

    async with fake_backend() as backend:
        backend.plays(endless)
        error = await refusal(Speech(backend.url).transcribe(WAV))
        await backend.seen[0].gone.wait()
    assert "ValueError" in error.message


async def test_a_recording_is_not_sent_elsewhere() -> None:
    async with serviced() as service, fake_backend() as backend:
        backend.answers(307, b"", headers={"location": f"{service.url}/audio/transcriptions"})
        error = await refusal(Speech(backend.url, api_key=KEY).transcribe(WAV))
    assert "status 307" in error.message
    assert service.heard == []


async def test_who_leaves_stops_the_call() -> None:
    async with fake_backend() as backend:
        speech = Speech(backend.url)
        asked = asyncio.Event()

        async def silent(exchange: Exchange) -> None:
            asked.set()
            await exchange.left()

        backend.plays(silent)
        task = asyncio.create_task(speech.transcribe(WAV))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await backend.seen[0].gone.wait()


async def test_the_key_is_never_told(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    caplog.set_level(logging.DEBUG)
    async with fake_backend() as backend:
        speech = Speech(backend.url, api_key=KEY)
        for status in (200, 401, 500):
            backend.answers(status, b'{"text": "x"}')
            with contextlib.suppress(BridgeError):
                await speech.transcribe(WAV)
        told = capfd.readouterr()
        assert KEY not in caplog.text + told.out + told.err + repr(speech)


def test_who_does_not_speak_does_not_load_it() -> None:
    heavy = "{'aiohttp', 'obstore', 'jwt'}"
    code = f"import sys, bridge.run.backends.speech, bridge.engine.assembly; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
