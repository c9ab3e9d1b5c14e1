"""A model that is silent for a long time, behind a proxy that cuts silent connections, under every LLM frontend.

    python -m tests.faults.silent 600

The model is silent for so many seconds, streamed and not, and the proxy is nginx with its default timeout of 60 s. That
timeout and the default limits of the bridge are scaled with the seconds: they are meant for 600. All answers are waited
for at once. Without nginx a proxy of this file takes its place.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bridge.contract import registry
from bridge.engine.config.schema.backends import TimeoutsSection
from bridge.testing.pairs import frames_of
from tests.faults.wire import asking, connect, parsed, raw, read
from tests.server.harness import Exchange, FakeBackend, fake_backend, free_port, serving

FRONTS = ("openai-chat", "openai-responses", "anthropic-messages", "gemini")
WORDS = "Hello w☀"
_MEANT_FOR = 600.0
"""Seconds of silence for which the defaults are right."""
_PROXY = 60.0
"""nginx's default `proxy_read_timeout`."""
_BACK = "openai-chat"


@dataclass(frozen=True)
class Case:
    """What the model does while it thinks, how its client asks, and for how long the proxy waits."""

    name: str
    stream: bool
    pings: bool
    patient: bool
    """The proxy waits for longer than `timeouts.total`, as in deploy/nginx/nginx.conf."""
    expected: str


CASES = (
    Case("streamed, backend sends comments", True, True, False, "whole"),
    Case("streamed, backend sends nothing (first_event raised)", True, False, False, "whole"),
    Case("not streamed", False, False, True, "whole"),
    Case("not streamed, proxy with its default timeout", False, False, False, "cut"),
)


@dataclass
class Seen:
    """What a client saw: the end, the seconds to the first byte and of the longest silence, and those of everything."""

    front: str
    case: Case
    verdict: str = "cut"
    first: float = 0.0
    silence: float = 0.0
    total: float = 0.0

    @property
    def is_right(self) -> bool:
        return self.verdict == self.case.expected


def _script(seconds: float, pings: bool) -> Any:
    dialect = registry.get(_BACK)

    async def script(exchange: Exchange) -> None:
        streams = exchange.seen.json.get("stream")
        if not streams:
            await asyncio.sleep(seconds)
            speaking = FakeBackend(_BACK)
            speaking.says("Hello ", "w☀")
            assert speaking.script is not None
            await speaking.script(exchange)
            return
        await exchange.head()
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, seconds / 20))
            if pings:
                await exchange.send(b": thinking\n\n")
        await exchange.send(b"".join(frames_of(dialect, "Hello ", "w☀")))
        await exchange.end()

    return script


def _config(scale: float, urls: dict[str, str]) -> dict[str, Any]:
    limits = TimeoutsSection()
    times = {name: getattr(limits, name) * scale for name in ("first_event", "idle", "total")}
    mute = {**times, "first_event": 1.5 * _MEANT_FOR * scale}
    return {
        "server": {"keepalive": 15.0 * scale},
        "backends": {
            "pings": {"dialect": _BACK, "url": urls["pings"], "timeouts": times},
            "mute": {"dialect": _BACK, "url": urls["mute"], "timeouts": mute},
            "plain": {"dialect": _BACK, "url": urls["mute"], "timeouts": times},
        },
        "routes": [
            {"dialect": front, "path": f"/{backend}/{front}", "backend": backend}
            for front in FRONTS
            for backend in ("pings", "mute", "plain")
        ],
    }


async def measured(seconds: float, nginx: bool) -> list[Seen]:
    """All cases at once, with a model that is silent for so many seconds."""
    scale = seconds / _MEANT_FOR
    async with AsyncExitStack() as stack:
        urls = {}
        for name in ("pings", "mute"):
            backend = await stack.enter_async_context(fake_backend())
            backend.plays(_script(seconds, name == "pings"))
            urls[name] = backend.url
        base = await stack.enter_async_context(serving(_config(scale, urls)))
        proxy = behind_nginx if nginx else behind_proxy
        default = await stack.enter_async_context(proxy(base, _PROXY * scale))
        patient = await stack.enter_async_context(proxy(base, 3.1 * _MEANT_FOR * scale))
        asked = [_ask(patient if case.patient else default, front, case, seconds) for case in CASES for front in FRONTS]
        return await asyncio.gather(*asked)


async def _ask(base: str, front: str, case: Case, seconds: float) -> Seen:
    dialect, seen = registry.get(front), Seen(front, case)
    backend = "pings" if case.pings else "mute" if case.stream else "plain"
    reader, writer = await connect(base)
    began = last = time.monotonic()
    writer.write(raw(asking(dialect, stream=case.stream), f"/{backend}/{front}"))
    data = b""
    async with asyncio.timeout(2 * seconds + 30):
        with suppress(ConnectionError):
            while piece := await reader.read(2**16):
                now = time.monotonic()
                seen.first = seen.first or now - began
                seen.silence, last = max(seen.silence, now - last), now
                data += piece
    writer.close()
    seen.total = time.monotonic() - began
    saw = parsed(data)
    if saw.status == 504 and b"nginx" in saw.body:
        return seen
    if saw.whole and not case.stream and saw.status == 200:
        seen.verdict = "whole" if WORDS.encode() in saw.body else "other"
    elif saw.status:
        answer = read(dialect, saw)
        seen.verdict = answer.verdict if answer.verdict != "whole" or answer.text == WORDS else "other"
    return seen


# ---------------------------------------------------------------------- proxies


_NGINX = """daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass {base}; proxy_http_version 1.1; proxy_read_timeout {milliseconds}ms; }}
    }}
}}
"""


def _nginx_file(folder: Path, base: str, port: int, seconds: float) -> Path:
    path = folder / "nginx.conf"
    text = _NGINX.format(folder=folder, base=base, port=port, milliseconds=round(seconds * 1000))
    path.write_text(text, encoding="utf-8")
    return path


@asynccontextmanager
async def behind_nginx(base: str, seconds: float) -> AsyncIterator[str]:
    """nginx in front of this address, which waits so long for the next bytes, and else as it is by default."""
    port = free_port()
    with TemporaryDirectory() as folder:
        path = _nginx_file(Path(folder), base, port, seconds)
        process = await asyncio.create_subprocess_exec("nginx", "-p", folder, "-c", str(path))
        try:
            for _ in range(100):
                with suppress(OSError):
                    (await asyncio.open_connection("127.0.0.1", port))[1].close()
                    break
                await asyncio.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            await process.wait()


@asynccontextmanager
async def behind_proxy(base: str, seconds: float) -> AsyncIterator[str]:
    """A proxy in front of this address that cuts a connection when its server sends nothing for so long."""
    open_tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_tasks.add(task)
        there, back = await connect(base)
        asking_on = asyncio.ensure_future(_copy(reader, back, None))
        try:
            await _copy(there, writer, seconds)
        finally:
            asking_on.cancel()
            await asyncio.gather(asking_on, return_exceptions=True)
            writer.close()
            back.transport.abort()
            open_tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", free_port())
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in open_tasks:
            task.cancel()
        await asyncio.gather(*open_tasks, return_exceptions=True)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, seconds: float | None) -> None:
    with suppress(ConnectionError, TimeoutError):
        while True:
            async with asyncio.timeout(seconds):
                data = await source.read(2**16)
            if not data:
                break
            target.write(data)
            await target.drain()


def table(results: list[Seen]) -> str:
    lines = [
        "| case | frontend | end | first byte (s) | longest silence (s) | total (s) |",
        "|---|---|---|---|---|---|",
    ]
    for seen in results:
        mark = "" if seen.is_right else f" (expected: {seen.case.expected})"
        numbers = f"{seen.first:.1f} | {seen.silence:.1f} | {seen.total:.1f}"
        lines.append(f"| {seen.case.name} | `{seen.front}` | {seen.verdict}{mark} | {numbers} |")
    return "\n".join(lines)


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else _MEANT_FOR
    nginx = shutil.which("nginx") is not None
    proxy = "nginx" if nginx else "a proxy (nginx is not installed)"
    print(f"a model that is silent for {seconds:g} s, behind {proxy}")
    results = asyncio.run(measured(seconds, nginx))
    print(table(results))
    return 0 if all(seen.is_right for seen in results) else 1


if __name__ == "__main__":
    sys.exit(main())
