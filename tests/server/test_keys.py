"""API keys of the configuration: their times, and how they come and go while a server runs."""

from __future__ import annotations

import hashlib
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.engine.config import parse
from bridge.errors import BridgeError, ConfigError
from bridge.server.auth.api_keys import Keys
from bridge.server.auth.identity import Identity, key_of
from tests.docs.helpers import Server, serve
from tests.server.harness import ask, post
from tests.server.test_identity import refusal, visit
from tests.server.test_workers import stopped, until

pytestmark = pytest.mark.usefixtures("toy")


def sha(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def line(name: str, key: str, **more: Any) -> dict[str, Any]:
    """A key as `dialect-bridge key` prints it."""
    return {"name": name, "key_sha256": sha(key), **more}


def setup(*keys: Any, **server: Any) -> dict[str, Any]:
    return {
        "server": {"auth": {"keys": list(keys)}, **server},
        "backends": {"it": {"dialect": "demo"}},
        "routes": [{"dialect": "toy", "path": "/toy", "backend": "it"}],
    }


async def status(base: str, key: str) -> int:
    return (await post(f"{base}/toy/ask", {"ask": "text"}, x_api_key=key)).status


# ---------------------------------------------------------------------- a server that runs


@pytest.mark.parametrize("workers", [1, 2])
async def test_keys_come_and_go_with_a_reload(tmp_path: Path, workers: int) -> None:
    config = tmp_path / "it.yaml"

    def write(*keys: Any) -> None:
        route = {"dialect": "openai-chat", "path": "/v1", "backend": "it"}
        config.write_text(yaml.safe_dump({**setup(*keys, drain="1s"), "routes": [route], "stores": {"history": "off"}}))

    async def seen(served: Server, key: str) -> set[int]:
        """What some connections are answered; the system spreads them over the workers."""
        url = f"{served.url}/v1/models"
        return {(await ask("GET", url, headers={"x-api-key": key})).status for _ in range(16)}

    async def come_and_gone(served: Server, came: str, gone: str) -> bool:
        return await seen(served, came) == {200} and await seen(served, gone) == {401}

    write(line("web", "old"))
    with serve(tmp_path, config, "--workers", str(workers), ready=None) as served:
        write(line("web", "old"), line("web", "new"))
        served.process.send_signal(signal.SIGHUP)
        await until(lambda: come_and_gone(served, "new", "none"), lambda: served.err)
        assert await seen(served, "old") == {200}
        write(line("web", "new"))
        served.process.send_signal(signal.SIGHUP)
        await until(lambda: come_and_gone(served, "new", "old"), lambda: served.err)
        write({"name": "web", "key_sha256": "s3cret"})
        served.process.send_signal(signal.SIGHUP)
        await until(lambda: "the configuration is not changed" in served.err, lambda: served.err)
        assert await come_and_gone(served, "new", "old")
        assert "s3cret" not in served.err
        assert await stopped(served) == 0


# ---------------------------------------------------------------------- users and times


async def test_two_keys_of_one_user() -> None:
    identity = Identity.of(parse(setup(line("web", "old"), line("web", "new"))).server.auth)
    assert [await identity.user(visit(x_api_key=key), "/toy") for key in ("old", "new")] == ["web", "web"]


def moment(**shift: int) -> str:
    return (datetime.now(UTC) + timedelta(**shift)).isoformat()


@pytest.mark.parametrize("hashed", [True, False])
async def test_keys_have_their_time(hashed: bool) -> None:
    times = {
        "from-now": {"not_before": moment(hours=-1), "expires": moment(hours=1)},
        "over": {"expires": moment(seconds=-1)},
        "long-over": {"expires": "2001-01-01"},
        "to-come": {"not_before": moment(hours=1)},
        "for-ever": {"expires": "2999-12-31T00:00:00Z"},
    }
    keys = [line(n, n, **more) if hashed else {"name": n, "key": n, **more} for n, more in times.items()]
    identity = Identity.of(parse(setup(*keys)).server.auth)
    for name in ("from-now", "for-ever"):
        assert await identity.user(visit(x_api_key=name), "/toy") == name
    for name, told in (("over", "has expired"), ("long-over", "has expired"), ("to-come", "not valid yet")):
        assert told in (await refusal(identity, visit(x_api_key=name))).message
    with pytest.raises(BridgeError, match="has expired"):
        await identity.check_operator(visit(x_api_key="over"), "/metrics")


def test_dates_as_yaml_reads_them() -> None:
    for text, seconds in (
        ("2027-01-31", 1801353600), ("2027-01-31T12:00:00Z", 1801396800), ("2027-01-31 12:00:00", 1801396800),
        ('"2027-01-31"', 1801353600), ("2027-01-31T12:00:00+02:00", 1801389600),
    ):  # fmt: skip
        key = yaml.safe_load(f'{{name: a, key_sha256: "{sha("k")}", expires: {text}}}')
        auth = parse(setup(key)).server.auth
        assert auth is not None
        found = Keys([key_of(section) for section in auth.keys or ()]).find("k")
        assert found is not None
        assert found.expires == seconds


# ---------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("auth", "told"),
    [
        ({"keys": [line("a", "1", expires="soon")]}, "keys[0].expires: expected a date or a time such as 2027-01-31 or "
            '2027-01-31T12:00:00Z (UTC where no zone is written), got "soon"'),
        ({"keys_file": "keys.yaml"}, 'keys_file: unknown key; did you mean "keys"? '
            "Known keys: keys, jwt, trusted_header, trusted_proxies"),
    ],
)  # fmt: skip
def test_mistakes(auth: dict[str, Any], told: str) -> None:
    config = setup()
    config["server"]["auth"] = auth
    with pytest.raises(ConfigError) as caught:
        parse(config)
    assert caught.value.message == f"configuration: server.auth.{told}"
