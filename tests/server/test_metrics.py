"""The metrics of a server as Prometheus reads them: Prometheus's own parser, real requests, real processes."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridge.engine.config import parse
from bridge.engine.telemetry.shared import AllocatedDict
from bridge.errors import ConfigError
from tests.docs.helpers import listeners, run, serve
from tests.server.harness import Exchange, ask, fake_backend, post, serving

CHUNK = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
END = (
    b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"id":"x","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,'
    b'"prompt_tokens_details":{"cached_tokens":4}}}\n\n'
    b"data: [DONE]\n\n"
)
Labels = frozenset[tuple[str, str]]


def config(path: str, url: str | None = None, route: dict[str, Any] | None = None, **server: Any) -> dict[str, Any]:
    """A chat route of its own path for each test: a process has one set of metrics."""
    backend = {"dialect": "openai-chat", "url": url, "model": "m"} if url else {"dialect": "demo"}
    return {
        "server": server,
        "backends": {"it": backend},
        "routes": [{"dialect": "openai-chat", "path": path, "backend": "it", **(route or {})}],
    }


def chat(text: str = "Hi", model: str = "m", stream: bool = True) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], "stream": stream}


def parsed(text: str) -> dict[str, dict[Labels, float]]:
    out: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            out.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return out


async def read(base: str, **headers: str) -> dict[str, dict[Labels, float]]:
    reply = await ask("GET", f"{base}/metrics", headers=headers)
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    return parsed(reply.body.decode())


def of(metrics: dict[str, dict[Labels, float]], name: str, **labels: str) -> float:
    """The sum of the series of this name that have these labels."""
    wanted = labels.items()
    return sum(value for have, value in metrics.get(name, {}).items() if wanted <= dict(have).items())


async def test_scrapes_hold_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of a server with hundreds of routes takes long: it is written in a thread, for one scrape at a time."""
    from bridge.engine.telemetry import metrics

    write, writing, most = metrics.generate_latest, 0, 0
    threads: set[bool] = set()

    def noted(registry: Any) -> bytes:
        nonlocal writing, most
        threads.add(threading.current_thread() is threading.main_thread())
        writing += 1
        most = max(most, writing)
        try:
            return write(registry)
        finally:
            writing -= 1

    monkeypatch.setattr(metrics, "generate_latest", noted)
    async with serving(config("/m-scrape")) as base:
        await post(f"{base}/m-scrape/chat/completions", chat())
        scrapes = await asyncio.gather(*(read(base) for _ in range(20)))
    assert all(of(each, "bridge_requests_total", route="/m-scrape") == 1 for each in scrapes)
    assert (threads, most) == ({False}, 1)


async def test_who_used_how_much(caplog: pytest.LogCaptureFixture) -> None:
    """The line of a run names its key; metrics count by key and model, up to a bound."""
    names = ("ann", "bob", "cyd")
    keys = {"keys": [{"name": name, "key": f"key-of-{name}"} for name in names]}
    headers = {n: {"authorization": f"Bearer key-of-{n}", "content-type": "application/json"} for n in names}

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(CHUNK + END)
        await exchange.end()

    config_ = config("/m-users", None, auth=keys, metrics={"users": 2})
    async with fake_backend() as backend:
        backend.plays(script)
        config_["backends"]["it"] = {"dialect": "openai-chat", "url": backend.url}
        async with serving(config_) as base:
            with caplog.at_level("INFO", "bridge.access"):
                for name, model in (("ann", "m"), ("ann", "m"), ("bob", "m"), ("cyd", "m"), ("ann", "other model")):
                    body = json.dumps(chat(model=model)).encode()
                    reply = await ask("POST", f"{base}/m-users/chat/completions", body, headers[name])
                    assert reply.status == 200
            metrics = await read(base, **headers["ann"])
    assert of(metrics, "bridge_user_runs_total", user="ann", model="m") == 2
    assert of(metrics, "bridge_user_tokens_in_total", user="ann", model="m") == 22
    assert of(metrics, "bridge_user_tokens_in_cached_total", user="bob", model="m") == 4
    assert of(metrics, "bridge_user_tokens_out_total", user="other", model="other") == 14
    assert of(metrics, "bridge_user_runs_total") == 5
    facts = [record.facts for record in caplog.records if record.name == "bridge.access"]  # type: ignore[attr-defined]
    assert [each["user"] for each in facts] == ["ann", "ann", "bob", "cyd", "ann"]
    assert {each["tokens_cached"] for each in facts} == {4}


async def test_a_stream_is_counted_with_its_times_and_tokens() -> None:
    more = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(CHUNK)
        await more.wait()
        await exchange.send(END)
        await exchange.end()

    async with fake_backend() as backend, serving(config("/m-stream", backend.url)) as base:
        backend.plays(script)
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{base}/m-stream/chat/completions", json=chat()) as response,
        ):
            await response.content.readany()
            more.set()
            assert (await response.read()).endswith(b"data: [DONE]\n\n")
        metrics = await read(base)
    way = {"route": "/m-stream", "front": "openai-chat", "back": "it"}
    assert of(metrics, "bridge_requests_total", **way, status="200") == 1
    assert of(metrics, "bridge_request_seconds_count", **way) == 1
    assert of(metrics, "bridge_runs_total", **way, outcome="stop") == 1
    assert of(metrics, "bridge_first_token_seconds_count", **way) == 1
    assert 0 < of(metrics, "bridge_first_token_seconds_sum", **way) <= of(metrics, "bridge_request_seconds_sum", **way)
    assert of(metrics, "bridge_read_interval_seconds_count", **way) == 1
    assert of(metrics, "bridge_longest_silence_seconds_count", **way) == 1
    assert of(metrics, "bridge_tokens_in_total", **way) == 11
    assert of(metrics, "bridge_tokens_in_cached_total", **way) == 4
    assert of(metrics, "bridge_tokens_in_uncached_total", **way) == 7
    assert of(metrics, "bridge_tokens_out_total", **way) == 7
    assert of(metrics, "bridge_streams_open", route="/m-stream") == 0
    assert of(metrics, "bridge_errors_total", route="/m-stream") == 0
    assert metrics["bridge_queue_waiting"] == {frozenset(): 0}


async def test_failures_and_retries() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer(500, b"{}")

    async with fake_backend() as backend:
        backend.plays(script)
        setup = config("/m-fails", backend.url)
        setup["backends"]["it"]["retry"] = {"attempts": 3, "backoff": "1ms"}
        async with serving(setup) as base:
            status = (await post(f"{base}/m-fails/chat/completions", chat())).status
            assert (await post(f"{base}/m-fails/chat/completions", b"no JSON")).status == 400
            metrics = await read(base)
    assert of(metrics, "bridge_retries_total", route="/m-fails", back="it") == 2
    assert of(metrics, "bridge_runs_total", route="/m-fails", outcome="backend_error") == 1
    assert of(metrics, "bridge_errors_total", route="/m-fails", back="it", code="backend_error") == 1
    assert of(metrics, "bridge_requests_total", route="/m-fails", back="it", status=str(status)) == 1
    assert of(metrics, "bridge_errors_total", route="/m-fails", back="", code="invalid_request") == 1
    assert of(metrics, "bridge_requests_total", route="/m-fails", back="", status="400") == 1


async def test_a_client_that_leaves_while_its_stream_is_open() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(CHUNK)
        await exchange.seen.gone.wait()

    async with fake_backend() as backend, serving(config("/m-left", backend.url)) as base:
        backend.plays(script)
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{base}/m-left/chat/completions", json=chat()) as response:
                await response.content.readany()
                assert of(await read(base), "bridge_streams_open", route="/m-left") == 1
                response.close()
            async with asyncio.timeout(40):
                while not of(metrics := await read(base), "bridge_cancellations_total", route="/m-left"):
                    await asyncio.sleep(0.02)
    assert of(metrics, "bridge_cancellations_total", route="/m-left") == 1
    assert of(metrics, "bridge_streams_open", route="/m-left") == 0
    assert of(metrics, "bridge_runs_total", route="/m-left", outcome="canceled") == 1
    assert of(metrics, "bridge_errors_total", route="/m-left") == 0


async def test_what_waits_for_a_place_is_seen() -> None:
    go = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await go.wait()
        await exchange.stream(CHUNK, END)

    setup = config("/m-queue", None, limits={"concurrent": 1, "queue": 5})
    async with fake_backend() as backend:
        backend.plays(script)
        setup["backends"]["it"] = {"dialect": "openai-chat", "url": backend.url, "model": "m"}
        async with serving(setup) as base:
            asked = [asyncio.create_task(post(f"{base}/m-queue/chat/completions", chat())) for _ in range(3)]
            async with asyncio.timeout(40):
                while of(await read(base), "bridge_queue_waiting") != 2:
                    await asyncio.sleep(0.02)
            go.set()
            assert [reply.status for reply in await asyncio.gather(*asked)] == [200] * 3
            assert of(await read(base), "bridge_queue_waiting") == 0


async def test_a_backend_that_is_left_alone_is_seen() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer(500, b"{}")

    async with fake_backend() as backend:
        backend.plays(script)
        setup = config("/m-breaker")
        setup["backends"] = {
            "broken": {"dialect": "openai-chat", "url": backend.url, "breaker": {"failures": 1, "open_for": "1h"}}
        }
        setup["routes"][0]["backend"] = "broken"
        async with serving(setup) as base:
            assert of(await read(base), "bridge_breaker_open", back="broken") == 0
            await post(f"{base}/m-breaker/chat/completions", chat())
            assert of(await read(base), "bridge_breaker_open", back="broken") == 1


async def test_the_series_of_a_removed_backend_end() -> None:
    def setup(name: str, url: str) -> dict[str, Any]:
        back = {"dialect": "openai-chat", "url": url, "breaker": {"failures": 1, "open_for": "1h"}}
        return {**config("/m-removed"), "backends": {name: back}, "routes": [
            {"dialect": "openai-chat", "path": "/m-removed", "backend": name}]}  # fmt: skip

    def named(metrics: dict[str, dict[Labels, float]], back: str) -> set[str]:
        return {name for name, series in metrics.items() for labels in series if ("back", back) in labels}

    async def script(exchange: Exchange) -> None:
        await exchange.answer(500, b"{}")

    async with fake_backend() as backend:
        backend.plays(script)
        async with serving(setup("leaves", backend.url)) as base:
            await post(f"{base}/m-removed/chat/completions", chat())
            metrics = await read(base)
            assert of(metrics, "bridge_breaker_open", back="leaves") == 1
            assert "bridge_requests_total" in named(metrics, "leaves")
        async with serving(setup("comes", backend.url)) as base:
            await post(f"{base}/m-removed/chat/completions", chat())
            metrics = await read(base)
            assert named(metrics, "leaves") == set()
            assert "bridge_requests_total" in named(metrics, "comes")
        async with serving(setup("leaves", backend.url)) as base:
            assert of(await read(base), "bridge_breaker_open", back="leaves") == 0


async def test_losses_by_feature_and_nothing_that_a_client_can_name() -> None:
    setup = config("/m-lost")
    setup["routes"][0]["dialect"] = "ag-kit"
    async with serving(setup) as base:
        body = {"conversationId": "a-talk", "userId": "somebody", "model": "a-model-nobody-knows",
                "messages": [{"role": "user", "content": "think"}]}  # fmt: skip
        reply = await post(f"{base}/m-lost/send-message", body)
        assert reply.status == 200
        lost = reply.headers["x-bridge-lost"].split(",")
        text = (await ask("GET", f"{base}/metrics")).body.decode()
    for feature in lost:
        assert of(parsed(text), "bridge_losses_total", route="/m-lost", feature=feature) == 1
    assert "a-model-nobody-knows" not in text
    assert "somebody" not in text
    assert "a-talk" not in text


async def test_a_kept_run_counts_once_however_many_read_it(tmp_path: Path) -> None:
    setup = config("/m-kept")
    setup["routes"] = [{"dialect": "ag-ui", "path": "/m-kept", "backend": "it", "durable": True}]
    setup["stores"] = {"runs": f"sqlite:///{tmp_path}/runs.db"}
    body = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {},
            "messages": [{"id": "1", "role": "user", "content": "Hi"}]}  # fmt: skip
    async with serving(setup) as base:
        first = await post(f"{base}/m-kept", body)
        again = await post(f"{base}/m-kept", body)
        assert first.body == again.body
        async with asyncio.timeout(40):
            while not of(metrics := await read(base), "bridge_runs_total", route="/m-kept"):
                await asyncio.sleep(0.02)
    assert of(metrics, "bridge_requests_total", route="/m-kept", back="it", status="200") == 2
    assert of(metrics, "bridge_runs_total", route="/m-kept", front="ag-ui", back="it", outcome="stop") == 1
    assert of(metrics, "bridge_first_token_seconds_count", route="/m-kept") == 1


# ---------------------------------------------------------------------- who may read


async def test_a_key_is_needed_where_keys_are() -> None:
    keys = [
        {"name": "web", "key": "key-of-web", "routes": ["/m-keys"]},
        {"name": "prometheus", "key": "key-of-prometheus", "routes": ["/metrics"]},
    ]
    async with serving(config("/m-keys", auth={"keys": keys})) as base:
        refused = await ask("GET", f"{base}/metrics")
        assert refused.status == 401
        assert refused.headers["www-authenticate"] == "Bearer"
        assert refused.json["error"]["code"] == "unauthorized"
        assert (await ask("GET", f"{base}/metrics", headers={"authorization": "Bearer key-of-web"})).status == 403
        await read(base, authorization="Bearer key-of-prometheus")
        asked = await post(f"{base}/m-keys/chat/completions", chat(), authorization="Bearer key-of-prometheus")
        assert asked.status == 403


async def test_tokens_of_users_do_not_open_them_and_public_needs_none() -> None:
    auth = {"jwt": {"secret": "s" * 32}}
    async with serving(config("/m-jwt", auth=auth)) as base:
        assert (await ask("GET", f"{base}/metrics", headers={"authorization": "Bearer x.y.z"})).status == 401
    async with serving(config("/m-jwt", auth=auth, metrics={"public": True})) as base:
        await read(base)


async def test_they_can_be_elsewhere_or_off() -> None:
    async with serving(config("/m-path", metrics={"path": "/internal/metrics"})) as base:
        assert (await ask("GET", f"{base}/metrics")).status == 404
        assert (await ask("GET", f"{base}/internal/metrics")).status == 200
    async with serving(config("/m-path", metrics="off")) as base:
        assert (await ask("GET", f"{base}/metrics")).status == 404
        assert (await post(f"{base}/m-path/chat/completions", chat())).status == 200


def test_a_path_that_is_taken_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"server\.metrics\.path: the same path as one of server\.health"):
        parse(config("/v1", metrics={"path": "/healthz"}))
    with pytest.raises(ConfigError, match=r"is already served by server\.metrics\.path"):
        parse(config("/v1", metrics={"path": "/v1/models"}))


# ---------------------------------------------------------------------- several processes


def test_whichever_worker_is_asked_tells_of_all(tmp_path: Path) -> None:
    setup = tmp_path / "config.yaml"
    setup.write_text(
        "server: {workers: 2}\nbackends: {it: {dialect: demo}}\n"
        "routes: [{dialect: openai-chat, path: /v1, backend: it}]\nstores: {history: off}\n"
    )

    async def ask_all(base: str) -> dict[str, dict[Labels, float]]:
        for _ in range(20):
            # A new connection each time: the kernel spreads them over the processes.
            assert (await post(f"{base}/v1/chat/completions", chat())).status == 200
        return await read(base)

    with serve(tmp_path, setup) as served:
        deadline = time.monotonic() + 20
        while listeners(served.port) < 2:
            assert time.monotonic() < deadline, served.err
            time.sleep(0.01)
        metrics = asyncio.run(ask_all(served.url))
    way = {"route": "/v1", "front": "openai-chat", "back": "it"}
    assert of(metrics, "bridge_requests_total", **way, status="200") == 20
    assert of(metrics, "bridge_runs_total", **way, outcome="stop") == 20
    assert of(metrics, "bridge_streams_open") == 0


SHARED = "PROMETHEUS_MULTIPROC_DIR"


def test_a_folder_that_is_removed_while_processes_count(tmp_path: Path) -> None:
    """Files that are open go on; the first of a kind makes the folder again."""
    folder = tmp_path / "metrics"
    folder.mkdir()
    code = (
        "import shutil, sys; from bridge.engine.telemetry.metrics import metrics; m = metrics();"
        f"shutil.rmtree({str(folder)!r}); m.request('/r', 'f', 'b', 200, 'stop', 0.1);"
        f"sys.stdout.write(m.text().decode()); shutil.rmtree({str(folder)!r}, ignore_errors=True);"
        "m.request('/s', 'f', 'b', 200, 'stop', 0.1);"
        "sys.stdout.write(m.text().decode())"
    )
    done = run(sys.executable, "-c", code, fresh=True, **{SHARED: str(folder)})
    assert done.returncode == 0, done.stderr
    assert 'route="/s"' in done.stdout.decode()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """The process counts for itself."""
    (tmp_path / "file").touch()
    code = (
        "import sys; from bridge.engine.telemetry.metrics import metrics; m = metrics();"
        "m.request('/r', 'f', 'b', 200, 'stop', 0.1); sys.stdout.write(m.text().decode())"
    )
    done = run(sys.executable, "-c", code, fresh=True, **{SHARED: str(tmp_path / "file" / "metrics")})
    assert done.returncode == 0, done.stderr
    metrics = parsed(done.stdout.decode())
    assert of(metrics, "bridge_requests_total", route="/r") == 1
    assert b"the metrics of this process are missing" in done.stderr


def test_a_file_of_numbers_takes_its_blocks_before_it_writes_into_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hole in the file would end the process on a full disk."""
    numbers = AllocatedDict(str(tmp_path / "counter_1.db"))
    for number in range(3000):
        numbers.write_value(f"series {number}", float(number), 0.0)
        assert os.stat(tmp_path / "counter_1.db").st_blocks * 512 >= numbers._capacity
    assert numbers.read_value("series 7") == (7.0, 0.0)

    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    more = f"a key that does not fit {'x' * numbers._capacity}"
    with pytest.raises(OSError, match="No space"):
        numbers.write_value(more, 1.0, 0.0)
    assert numbers.read_value("series 7") == (7.0, 0.0)
    numbers.close()
    with pytest.raises(OSError, match="No space"):
        AllocatedDict(str(tmp_path / "counter_2.db"))


def test_the_state_of_a_process_that_died_counts_no_more_and_what_it_counted_does(tmp_path: Path) -> None:
    """A process of its own counts into the folder and dies; another one is asked."""
    count = (
        "from bridge.engine.telemetry.metrics import metrics; m = metrics(); m.stream('/r', 'f', 1);"
        "m.request('/r', 'f', 'b', 200, 'stop', 0.1)"
    )
    told = (
        "import sys; from bridge.engine.telemetry.metrics import metrics; sys.stdout.write(metrics().text().decode())"
    )
    shared = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    assert run(sys.executable, "-c", count, fresh=True, **shared).returncode == 0
    metrics = parsed(run(sys.executable, "-c", told, fresh=True, **shared).stdout.decode())
    assert of(metrics, "bridge_requests_total", route="/r") == 1
    assert of(metrics, "bridge_streams_open", route="/r") == 0
