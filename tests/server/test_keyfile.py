"""Keys in a file: what it may hold, and how they come and go while a server runs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import yaml

from bridge.engine.bridge import Bridge
from bridge.engine.config import Auth, load, parse
from bridge.errors import BridgeError, ConfigError
from bridge.server import running
from bridge.server.auth import keyfile
from bridge.server.auth.api_keys import Key, Keys
from bridge.server.auth.identity import Identity
from bridge.server.auth.keyfile import PAUSE, KeyFile
from bridge.server.host.http_server import check
from tests.docs.helpers import Server, serve
from tests.server.harness import ask, free_port, post, serving
from tests.server.test_identity import refusal, visit
from tests.server.test_workers import stopped, until

pytestmark = pytest.mark.usefixtures("toy")


def sha(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def line(name: str, key: str, **more: Any) -> str:
    return f"- {json.dumps({'name': name, 'key_sha256': sha(key), **more})}\n"


def write(path: Path, text: str | bytes) -> None:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def replaced(path: Path, text: str) -> None:
    """Puts another file in its place, as whoever cares does it."""
    other = path.with_suffix(".new")
    other.write_text(text)
    other.replace(path)


def setup(path: Path, **auth: Any) -> dict[str, Any]:
    return {
        "server": {"auth": {"keys_file": str(path), **auth}},
        "backends": {"it": {"dialect": "demo"}},
        "routes": [{"dialect": "toy", "path": "/toy", "backend": "it"}],
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.yaml"


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request looks at the file."""
    monkeypatch.setattr(keyfile, "PAUSE", 0.0)


async def status(base: str, key: str) -> int:
    return (await post(f"{base}/toy/ask", {"ask": "text"}, x_api_key=key)).status


# ---------------------------------------------------------------------- a server that runs


@pytest.mark.usefixtures("eager")
async def test_keys_come_and_go_while_it_runs(path: Path) -> None:
    write(path, line("web", "old"))
    async with serving(setup(path, keys=[{"name": "fixed", "key": "fixed"}])) as base:
        assert [await status(base, key) for key in ("old", "new", "fixed")] == [200, 401, 200]
        replaced(path, line("web", "old") + line("web", "new"))
        assert [await status(base, key) for key in ("old", "new", "fixed")] == [200, 200, 200]
        write(path, line("web", "new"))
        assert [await status(base, key) for key in ("old", "new", "fixed")] == [401, 200, 200]
        write(path, "[]")
        assert [await status(base, key) for key in ("old", "new", "fixed")] == [401, 401, 200]


@pytest.mark.usefixtures("eager")
async def test_routes_and_operations_of_keys_in_the_file(path: Path) -> None:
    write(path, line("web", "w", routes=["/metrics"]) + line("job", "j", operations=["read"]) + line("all", "a"))
    async with serving(setup(path)) as base:
        assert [await status(base, key) for key in ("w", "j", "a")] == [403, 403, 200]
        metrics = [(await ask("GET", f"{base}/metrics", headers={"x-api-key": key})).status for key in ("w", "j", "a")]
        assert metrics == [200, 403, 200]
        assert "An API key is needed" in (await post(f"{base}/toy/ask", {"ask": "text"})).body.decode()


@pytest.mark.usefixtures("eager")
async def test_a_key_that_is_taken_out_opens_no_call_of_grpc(path: Path) -> None:
    write(path, line("web", "old"))
    listen = f"127.0.0.1:{free_port()}"
    config = setup(path)
    config["server"] |= {"port": free_port(), "drain": "1s"}
    config["routes"].append({"dialect": "aip", "listen": listen, "agent_id": "bridge", "backend": "it"})
    config["stores"] = {"history": "sqlite:///:memory:", "runs": "sqlite:///:memory:"}
    async with running(Bridge.from_config(config)), grpc.aio.insecure_channel(listen) as channel:
        nodes = next(e.path for e in Bridge.from_config(config).routes[1].surface if e.path.endswith("/GetNodes"))
        get = channel.unary_unary(nodes)
        assert await get(b"", metadata=(("x-api-key", "old"),)) is not None
        write(path, line("web", "new"))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await get(b"", metadata=(("x-api-key", "old"),))
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert await get(b"", metadata=(("x-api-key", "new"),)) is not None


BROKEN = {
    "half a line": '- {"name": "web", "key_sha25',
    "empty": "",
    "a mapping": "keys: []",
    "a bare key": "- s3cret-clear",
    "a clear key": "- {name: web, key: s3cret-clear}",
    "a clear key as hash": "- {name: web, key_sha256: s3cret-clear}",
    "an unknown route": line("web", "new", routes=["/toi"]),
    "bytes": b"\xff\xfe",
    "gone": None,
}


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("broken", BROKEN)
async def test_a_broken_file_changes_nothing_and_is_told_once(
    path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(path, line("web", "old"))
    async with serving(setup(path)) as base:
        text = BROKEN[broken]
        if text is None:
            os.rename(path, f"{path}.away")
        else:
            write(path, text)
        for _ in range(3):
            assert [await status(base, key) for key in ("old", "new")] == [200, 401]
        (told,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert f"the keys are unchanged: {path}" in told.getMessage()
        assert "s3cret" not in caplog.text
        write(path, line("web", "new"))
        assert [await status(base, key) for key in ("old", "new")] == [401, 200]


@pytest.mark.parametrize("workers", [1, 2])
async def test_all_processes_see_the_change(tmp_path: Path, path: Path, workers: int) -> None:
    write(path, line("web", "old"))
    config = tmp_path / "it.yaml"
    write(
        config,
        yaml.safe_dump(
            {
                "server": {"auth": {"keys_file": str(path)}, "drain": "1s"},
                "backends": {"it": {"dialect": "demo"}},
                "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
                "stores": {"history": "off"},
            }
        ),
    )

    async def seen(served: Server, key: str) -> set[int]:
        """What some connections are answered; the system spreads them over the workers."""
        url = f"{served.url}/v1/models"
        return {(await ask("GET", url, headers={"x-api-key": key})).status for _ in range(16)}

    async def come_and_gone(served: Server, came: str, gone: str) -> bool:
        return await seen(served, came) == {200} and await seen(served, gone) == {401}

    def told(served: Server, words: str, times: int = 1) -> bool:
        return served.err.count(words) >= times

    with serve(tmp_path, config, "--workers", str(workers), ready=None) as served:
        write(path, line("web", "first"))
        served.process.send_signal(signal.SIGHUP)
        # From here on all workers listen.
        await until(lambda: told(served, "the new configuration is active"), lambda: served.err)
        await until(lambda: come_and_gone(served, "first", "old"), lambda: served.err)
        replaced(path, line("web", "new"))
        await until(lambda: come_and_gone(served, "new", "first"), lambda: served.err)
        await until(lambda: told(served, "was reloaded: 1 keys", workers), lambda: served.err)
        write(path, "- 5")
        served.process.send_signal(signal.SIGHUP)
        await until(lambda: told(served, "the configuration is not changed"), lambda: served.err)
        assert await come_and_gone(served, "new", "first")
        assert await stopped(served) == 0


# ---------------------------------------------------------------------- when it is read


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched(KeyFile):
    """Counts its looks; each waits until it may go on."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.looks = 0
        self.parsed: list[str] = []
        self.may_look = threading.Event()
        self.may_look.set()
        super().__init__(str(path), self.made, clock=clock)

    def made(self, text: str) -> Sequence[Key]:
        self.parsed.append(text)
        return [Key(name, Keys.digest(name), frozenset("*")) for name in text.split()]

    def _check(self) -> None:
        self.looks += 1
        assert self.may_look.wait(30)
        super()._check()


async def test_it_is_looked_at_once_in_a_while_and_once_for_all(path: Path) -> None:
    write(path, "old")
    clock = Clock()
    file = Watched(path, clock)
    write(path, "new")
    clock.now += PAUSE / 2
    assert (await file.keys()).find("old")
    assert file.looks == 0
    clock.now += PAUSE / 2
    file.may_look.clear()
    waiting = [asyncio.create_task(file.keys()) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # A client that leaves takes nothing from the others.
    await asyncio.sleep(0)
    file.may_look.set()
    for each in waiting[1:]:
        keys = await each
        assert (keys.find("old"), keys.find("new") is not None) == (None, True)
    assert (await file.keys()).find("new")
    assert file.looks == 1


async def test_what_did_not_change_is_not_read(path: Path) -> None:
    write(path, "old")
    os.utime(path, (1, 1))
    clock = Clock()
    file = Watched(path, clock)
    write(path, "new")
    os.utime(path, (2, 2))
    for _ in range(3):
        clock.now += PAUSE
        assert (await file.keys()).find("new")
    assert file.parsed == ["old", "new"]
    assert file.looks == 3


async def test_two_changes_in_one_tick_of_the_file_system(path: Path) -> None:
    """The second one has the size and the time of the first one, which is the same moment."""
    write(path, "aaa")
    moment = time.time()
    os.utime(path, (moment, moment))
    clock = Clock()
    file = Watched(path, clock)
    write(path, "bbb")
    os.utime(path, (moment, moment))
    clock.now += PAUSE
    assert (await file.keys()).find("bbb")


# ---------------------------------------------------------------------- users and times


async def test_two_keys_of_one_user(path: Path) -> None:
    write(path, line("web", "old") + line("web", "new"))
    config = parse(setup(path))
    identity = Identity.of(config.server.auth, key_file=KeyFile.of(config))
    assert [await identity.user(visit(x_api_key=key), "/toy") for key in ("old", "new")] == ["web", "web"]


def moment(**shift: int) -> str:
    return (datetime.now(UTC) + timedelta(**shift)).isoformat()


@pytest.mark.parametrize("inline", [True, False])
async def test_keys_have_their_time(path: Path, inline: bool) -> None:
    times = {
        "from-now": {"not_before": moment(hours=-1), "expires": moment(hours=1)},
        "over": {"expires": moment(seconds=-1)},
        "long-over": {"expires": "2001-01-01"},
        "to-come": {"not_before": moment(hours=1)},
        "for-ever": {"expires": "2999-12-31T00:00:00Z"},
    }
    write(path, "".join(line(name, name, **more) for name, more in times.items()))
    section = {"keys": [{"name": n, "key": n, **more} for n, more in times.items()]} if inline else {}
    auth = Auth.model_validate(section or {"keys_file": str(path)})
    identity = Identity.of(auth, key_file=None if inline else KeyFile.of(parse(setup(path))))
    for name in ("from-now", "for-ever"):
        assert await identity.user(visit(x_api_key=name), "/toy") == name
    for name, told in (("over", "has expired"), ("long-over", "has expired"), ("to-come", "not valid yet")):
        assert told in (await refusal(identity, visit(x_api_key=name))).message
    with pytest.raises(BridgeError, match="has expired"):
        await identity.check_operator(visit(x_api_key="over"), "/metrics")


def test_dates_as_yaml_reads_them(path: Path) -> None:
    digest = sha("k")
    for text, seconds in (
        ("2027-01-31", 1801353600), ("2027-01-31T12:00:00Z", 1801396800), ("2027-01-31 12:00:00", 1801396800),
        ('"2027-01-31"', 1801353600), ("2027-01-31T12:00:00+02:00", 1801389600),
    ):  # fmt: skip
        write(path, f'- {{name: a, key_sha256: "{digest}", expires: {text}}}')
        file = KeyFile.of(parse(setup(path)))
        assert file is not None
        found = file._keys.find("k")
        assert found is not None
        assert found.expires == seconds


# ---------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ": is empty; write `[]` for no keys"),
        ("# nobody", ": is empty; write `[]` for no keys"),
        ("web: abc", ":1: expected a list of keys, each as `- {name: \"web\", key_sha256: \"...\"}`; "
            "`dialect-bridge key` prints such a line"),
        ("- {name: web, key: s3cret}", ":1: [0].key: the file may contain hashes only; "
            "`dialect-bridge key NAME --hash` hashes a key"),
        ("- {name: web}", ":1: [0].key_sha256: missing; this key is required"),
        ("- {name: web, key_sha256: s3cret}", ":1: [0].key_sha256: expected a SHA-256 digest: 64 hexadecimal digits"),
        ("- {name: web, key_sha256: 1234567}", ":1: [0].key_sha256: expected text, got a number; put it in quotes"),
        ("- s3cret", ":1: [0]: expected a mapping, got text"),
        ("- {name: [", ":1: not valid YAML: the file ends where a value is expected"),
        (line("a", "1") + line("b", "1"), ":2: [1]: the same key as [0]; its user would be ambiguous"),
        (line("a", "inline"), ":1: [0]: the same key as server.auth.keys[0]; its user would be ambiguous"),
        (line("page", "1"), ":1: [0].name: page is the user of server.page_key"),
        (line("a", "the-pages"), ":1: [0]: the same key as server.page_key; its user would be ambiguous"),
        (line("a", "1", routes=["/toi"]), ':1: [0].routes[0]: no route is mounted at "/toi"; did you mean "/toy"?'),
        (line("a", "1", operations=["raed"]), ':1: [0].operations[0]: unknown operation "raed"; did you mean "read"? '
            "Known operations: run, read, cancel, delete, models, register, metrics, page, *"),
        (line("a", "1", rutes=["/toy"]), ':1: [0].rutes: unknown key; did you mean "routes"? Known keys: '
            "routes, operations, name, not_before, expires, limits, models, key_sha256"),
        (line("a", "1", expires="soon"), ":1: [0].expires: expected a date or a time such as 2027-01-31 or "
            '2027-01-31T12:00:00Z (UTC where no zone is written), got "soon"'),
        (line("a", "1", expires=1801353600), ":1: [0].expires: expected a date or a time such as 2027-01-31 or "
            "2027-01-31T12:00:00Z (UTC where no zone is written), got 1801353600"),
    ],
)  # fmt: skip
def test_mistakes_in_the_file(path: Path, text: str, told: str) -> None:
    """Found before anything is served, by `check` too; no value that may be a key is repeated."""
    write(path, text)
    config = setup(path, keys=[{"name": "web", "key": "inline"}])
    config["server"]["page_key"] = "the-pages"
    with pytest.raises(ConfigError) as caught:
        check(Bridge.from_config(config))
    assert caught.value.message.replace(str(path), "") == told


def test_a_file_that_is_not_there(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"keys\.yaml: cannot be read: No such file"):
        check(Bridge.from_config(setup(path)))


def test_a_file_of_keys_closes_the_door(path: Path, tmp_path: Path) -> None:
    write(path, line("web", "k"))
    mapping = setup(path)
    mapping["server"]["host"] = "0.0.0.0"
    assert not parse(mapping).server.is_open
    whole = tmp_path / "it.yaml"
    write(whole, yaml.safe_dump(mapping))
    assert load(whole).server.auth is not None
