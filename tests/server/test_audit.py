"""Refusals in the audit log and the metrics: what a line says, what it never says, and how many there are."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

import jwt
import pytest

from bridge.cli.logs import JsonFormatter, TextFormatter
from bridge.errors import ErrorCode, Failure
from bridge.server.auth.api_keys import AuthFailure, Reason
from bridge.server.auth.audit_log import LINES, PEERS, WINDOW, AuditLog
from tests.server.harness import ask, post, serving
from tests.server.test_metrics import of, read

pytestmark = pytest.mark.usefixtures("toy")

SECRET = "a-shared-secret-of-at-least-32-bytes!"
REFUSED = AuthFailure(ErrorCode.UNAUTHORIZED, "no", reason=Reason.NO_KEY)


def setup(auth: Any, **server: Any) -> dict[str, Any]:
    return {
        "server": {"auth": auth, **server},
        "backends": {"it": {"dialect": "demo"}},
        "routes": [{"dialect": "toy", "path": "/toy", "backend": "it"}],
    }


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The facts of the audit log."""
    records = [record for record in caplog.records if record.name == "bridge.audit"]
    assert all(record.levelno == logging.WARNING for record in records)
    return [record.__dict__["facts"] for record in records]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# ---------------------------------------------------------------------- what a line says

AUTH = {
    "keys": [
        {"name": "web", "key": "s3cret-web"},
        {"name": "job", "key": "s3cret-job", "routes": ["/metrics"]},
        {"name": "reader", "key": "s3cret-reader", "operations": ["read"]},
        {"name": "gone", "key": "s3cret-gone", "expires": "2001-01-01"},
        {"name": "soon", "key": "s3cret-soon", "not_before": "2999-01-01"},
    ],
    "jwt": {"secret": SECRET, "scope_claim": "scope"},
    "trusted_header": "x-user",
    "trusted_proxies": ["192.0.2.1"],
}


def token(**claims: Any) -> str:
    return jwt.encode({"exp": int(time.time()) + 86400, **claims}, SECRET)


@pytest.mark.parametrize(
    ("headers", "reason", "user"),
    [
        ({}, "no_key", None),
        ({"x_api_key": "s3cret-none"}, "invalid_token", None),
        ({"x_api_key": "s3cret-gone"}, "key_expired", "gone"),
        ({"x_api_key": "s3cret-soon"}, "key_not_yet_valid", "soon"),
        ({"x_api_key": "s3cret-job"}, "route", "job"),
        ({"x_api_key": "s3cret-reader"}, "operation", "reader"),
        ({"x_api_key": token(sub="alice")}, "operation", "alice"),
        ({"x_api_key": token(sub="")}, "invalid_user", None),
        ({"x_api_key": token(sub="s3cret", exp=1)}, "invalid_token", None),
        ({"x_user": "mallory"}, "untrusted_proxy", None),
    ],
)
async def test_a_refusal_is_one_line(
    headers: dict[str, str], reason: str, user: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(setup(AUTH)) as base:
        before = of(await read(base, **{"x-api-key": "s3cret-web"}), "bridge_refusals_total", reason=reason)
        reply = await post(f"{base}/toy/ask?access_token=s3cret", {"ask": "text"}, **headers, x_request_id="r-1")
        after = of(await read(base, **{"x-api-key": "s3cret-web"}), "bridge_refusals_total", reason=reason)
        assert (await post(f"{base}/toy/ask", {"ask": "text"}, x_api_key="s3cret-web")).status == 200
    assert reply.status in (401, 403)
    (facts,) = lines(caplog)
    expected = {"reason": reason, "path": "/toy/ask", "peer": "127.0.0.1", "user": user, "request_id": "r-1"}
    assert facts == {name: value for name, value in expected.items() if value is not None}
    assert after - before == 1
    assert "s3cret" not in caplog.text
    assert headers.get("x_api_key", "s3cret") not in caplog.text


async def test_an_unknown_key_where_tokens_are_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(setup({"keys": AUTH["keys"]})) as base:
        assert (await post(f"{base}/toy/ask", {"ask": "text"}, x_api_key="s3cret-none")).status == 401
    assert [facts["reason"] for facts in lines(caplog)] == ["unknown_key"]


async def test_the_metrics_and_the_page_are_audited(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(setup({"keys": AUTH["keys"]}, page_key="of-the-page")) as base:
        for path, key in (("/metrics", ""), ("/metrics", "s3cret-reader"), ("/_page/state", "s3cret-web")):
            await ask("GET", f"{base}{path}", headers={"x-api-key": key})
        await ask("GET", f"{base}/_page/state", headers={"x-api-key": "of-the-page", "sec-fetch-site": "cross-site"})
    assert [(facts["reason"], facts["path"], facts.get("user")) for facts in lines(caplog)] == [
        ("no_key", "/metrics", None),
        ("operation", "/metrics", "reader"),
        ("unknown_key", "/_page/state", None),
        ("forbidden", "/_page/state", None),
    ]


async def test_what_is_no_refusal_is_not_audited(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(setup({"keys": AUTH["keys"]})) as base:
        assert (await ask("GET", f"{base}/nothing")).status == 404
        assert (await post(f"{base}/toy/ask", b"no JSON", x_api_key="s3cret-web")).status == 400
    assert lines(caplog) == []


async def test_a_path_forges_no_facts(caplog: pytest.LogCaptureFixture) -> None:
    config = setup({"keys": AUTH["keys"]})
    config["routes"].append({"dialect": "openai-responses", "path": "/v1", "backend": "it"})
    config["stores"] = {"history": "sqlite:///:memory:"}
    async with serving(config) as base:
        await ask("GET", f"{base}/v1/responses/x%20user=root%0Aline{'y' * 500}")
    (record,) = [record for record in caplog.records if record.name == "bridge.audit"]
    text = TextFormatter().format(record)
    assert "path=/v1/responses/x%20user=root%0Aliney" in text
    assert len(text.splitlines()) == 1
    assert len(text) < 400
    said = json.loads(JsonFormatter().format(record))
    assert said["message"] == "refused"
    assert said["level"] == "warning"
    assert (said["reason"], said["peer"]) == ("no_key", "127.0.0.1")
    assert said["path"].endswith("...")


# ---------------------------------------------------------------------- how many lines


async def test_a_flood_is_thirty_lines_and_one_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(setup({"keys": AUTH["keys"]})) as base:
        before = of(await read(base, **{"x-api-key": "s3cret-web"}), "bridge_refusals_total", reason="no_key")
        for _ in range(LINES + 7):
            assert (await post(f"{base}/toy/ask", {"ask": "text"})).status == 401
        after = of(await read(base, **{"x-api-key": "s3cret-web"}), "bridge_refusals_total", reason="no_key")
        assert len(lines(caplog)) == LINES
    assert after - before == LINES + 7
    assert lines(caplog)[LINES:] == [{"peer": "127.0.0.1", "suppressed": 7}]


async def test_each_peer_has_lines_of_its_own_in_each_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    audit = AuditLog(clock=clock)

    def refuse(peer: str | None, times: int) -> list[dict[str, Any]]:
        caplog.clear()
        for _ in range(times):
            audit.refused(REFUSED, path="/", peer=peer)
        return lines(caplog)

    assert len(refuse("192.0.2.1", LINES + 3)) == LINES
    assert len(refuse("192.0.2.2", 1)) == 1
    assert len(refuse(None, 2)) == 2
    clock.now += WINDOW - 1
    assert refuse("192.0.2.1", 2) == []
    clock.now += 1
    later = refuse("192.0.2.1", 1)
    assert later[0] == {"peer": "192.0.2.1", "suppressed": 5}
    assert later[1]["reason"] == "no_key"
    caplog.clear()
    audit.close()
    assert lines(caplog) == []


async def test_a_host_has_one_share_whatever_address_of_its_network_it_takes(caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog()
    for n in range(LINES + 5):
        audit.refused(REFUSED, path="/", peer=f"2001:db8::{n:x}")
    assert len(lines(caplog)) == LINES
    audit.refused(REFUSED, path="/", peer="2001:db8:0:1::1")
    audit.refused(REFUSED, path="/", peer="::ffff:192.0.2.1")
    assert [facts["peer"] for facts in lines(caplog)[LINES:]] == ["2001:db8:0:1::1", "::ffff:192.0.2.1"]
    audit.close()
    assert lines(caplog)[-1] == {"peer": "2001:db8::/64", "suppressed": 5}


async def test_many_peers_take_neither_memory_nor_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    counted: list[str] = []
    audit = AuditLog(counted.append, clock=clock)
    for n in range(5 * PEERS):
        audit.refused(REFUSED, path="/", peer=f"10.0.{n >> 8}.{n & 255}")
    assert len(audit._refusals) == PEERS + 1
    assert len(lines(caplog)) == PEERS + LINES
    assert len(counted) == 5 * PEERS
    clock.now += WINDOW
    audit.refused(REFUSED, path="/", peer="192.0.2.1")
    assert lines(caplog)[-2:] == [
        {"peer": "other addresses", "suppressed": 4 * PEERS - LINES},
        {"reason": "no_key", "path": "/", "peer": "192.0.2.1"},
    ]
    assert len(audit._refusals) == 1


async def test_the_end_of_a_flood_is_told_without_a_further_one(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.server.auth.audit_log.WINDOW", 0.01)
    told = asyncio.Event()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "suppressed" in record.__dict__["facts"]:
                told.set()

    logger = logging.getLogger("bridge.audit")
    handler = Handler()
    logger.addHandler(handler)
    audit = AuditLog(clock=Clock())
    try:
        for _ in range(LINES + 2):
            audit.refused(REFUSED, path="/", peer="192.0.2.1")
        async with asyncio.timeout(30):
            await told.wait()
    finally:
        logger.removeHandler(handler)
    assert lines(caplog)[-1] == {"peer": "192.0.2.1", "suppressed": 2}


def test_only_refusals_count() -> None:
    counted: list[str] = []
    audit = AuditLog(counted.append)
    for code in ErrorCode:
        audit.refused(Failure(code, "no"), path="/", peer=None)
    assert counted == ["forbidden", "forbidden"]
