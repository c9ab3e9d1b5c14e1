"""What the parent of several workers knows of them, without a process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bridge.cli import health_file, workers
from bridge.cli.early_signals import WORKER
from bridge.cli.worker_channel import SilentCount, WorkerChannel, kept
from bridge.cli.workers import WorkerProcess
from bridge.engine.config import Config, parse
from tests.server.harness import ask, serving


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[signal.Signals]:
    sent: list[signal.Signals] = []
    monkeypatch.setattr(WorkerProcess, "_send", lambda self, what: sent.append(what))
    return sent


def worker(*, serves: bool, silent_for: float) -> WorkerProcess:
    made = WorkerProcess(1, [], [], 0, 0)
    made._process = object()  # type: ignore[assignment]
    made._serves = serves
    made._heard_at = asyncio.get_running_loop().time() - silent_for
    return made


@pytest.mark.parametrize(
    ("serves", "silent_for", "is_silent", "is_killed"),
    [
        (True, 0, False, False),
        (True, workers._UNHEARD + 1, True, False),
        (True, workers._HANGS + 1, True, True),
        (False, workers._HANGS + 1, True, False),
        (False, workers._SLOW + 1, True, True),
    ],
)
async def test_when_a_worker_hangs(
    serves: bool, silent_for: float, is_silent: bool, is_killed: bool, killed: list[signal.Signals]
) -> None:
    made = worker(serves=serves, silent_for=silent_for)
    assert made.is_silent is is_silent
    made.kill_if_hung()
    made.kill_if_hung()
    continued = [signal.SIGCONT] * 2 if serves and is_silent else []
    assert killed == ([signal.SIGKILL] if is_killed else continued)


async def test_signs_of_life_and_the_end_of_them(killed: list[signal.Signals]) -> None:
    made = worker(serves=False, silent_for=workers._HANGS + 1)
    hears, says = os.pipe()
    os.write(says, b"111")
    made._heard(hears)
    assert made.ready.is_set()
    assert not made.is_silent
    os.close(says)
    made._heard(hears)
    assert made.is_silent
    made._heard_at -= workers._HANGS + 1
    made.kill_if_hung()
    assert killed == [], "it has ended to serve, and may take its time"
    os.close(hears)


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[WorkerChannel, int, SilentCount]]:
    """What a worker gets, the other end of its pipe, and the parent's count."""
    hears, says = os.pipe()
    silent, config = SilentCount(), kept("the text")
    given = WorkerChannel(1, [], config, says, silent.descriptor, False)
    monkeypatch.setenv(WORKER, json.dumps({**json.loads(given.environment()[WORKER])}))
    received = WorkerChannel.received()
    assert received is not None
    yield received, hears, silent
    silent.close()
    for descriptor in (hears, config):
        os.close(descriptor)


def test_a_worker_beats_whether_or_not_anybody_reads(handed: tuple[WorkerChannel, int, SilentCount]) -> None:
    received, hears, _ = handed
    assert received.read_config() == "the text"
    received.beat()
    assert os.read(hears, 10) == b"1"
    assert all(received.beat() for _ in range(100_000))
    received.leave()


def test_a_worker_learns_that_its_parent_is_gone() -> None:
    hears, says = os.pipe()
    os.set_blocking(says, False)
    received = WorkerChannel(1, [], 0, says, 0, False)
    assert received.beat()
    os.close(hears)
    assert not received.beat()
    received.leave()


def test_a_worker_knows_how_many_others_are_silent(handed: tuple[WorkerChannel, int, SilentCount]) -> None:
    received, _, silent = handed
    assert received.silent_workers() == 0
    for count in (12, 3, 0):
        silent.write(count)
        assert received.silent_workers() == count
    received.leave()


async def test_readiness_tells_of_silent_workers() -> None:
    setup = {
        "backends": {"it": {"dialect": "demo"}},
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
        "stores": {"history": "off"},
    }
    from bridge.server.host import http_server

    counts = [2, 0]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(http_server, "Hosting", partial(http_server.Hosting, silent_workers=lambda: counts[0]))
        async with serving(setup) as base:
            told = await ask("GET", f"{base}/readyz")
            assert told.status == 503
            assert told.json == {"status": "workers do not answer", "silent_workers": 2}
            assert (await ask("GET", f"{base}/healthz")).status == 200
            counts.pop(0)
            assert (await ask("GET", f"{base}/readyz")).status == 200


def parsed(**server: Any) -> Config:
    route = {"dialect": "openai-chat", "path": "/v1", "backend": "it"}
    return parse({"server": server, "backends": {"it": {"dialect": "demo"}}, "routes": [route]})


@pytest.mark.parametrize(
    ("host", "url"), [("::", "http://127.0.0.1:9/live"), ("::1", "http://[::1]:9/live"), ("h", "http://h:9/live")]
)
def test_the_health_file_has_the_url_that_is_served(
    host: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(health_file.VARIABLE, str(tmp_path / "health"))
    config = parsed(host=host, auth="none", health={"live": "/live"})
    health_file.write_health_file(config, 9)
    assert (tmp_path / "health").read_text() == url
    assert os.listdir(tmp_path) == ["health"]


def test_a_health_file_that_cannot_be_written_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(health_file.VARIABLE, str(tmp_path / "no folder" / "health"))
    config = parsed()
    health_file.write_health_file(config, 9)
    assert "cannot be written" in caplog.text
