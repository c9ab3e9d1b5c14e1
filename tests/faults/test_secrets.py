"""No key, token, secret or body of a request is anywhere in what a server writes or answers, however it fails."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from bridge.contract import Context, registry
from bridge.errors import ErrorCode, Failure
from bridge.model import PartKind
from bridge.translation.framing import sse
from tests.faults.command import serving_process
from tests.faults.faults import FAULTS, Said
from tests.faults.measure import queued
from tests.faults.wire import SPEAKING, Saw, asking, exchange, raw
from tests.server.harness import Exchange, fake_backend, free_port

pytestmark = pytest.mark.slow

BACKEND = "0b4ckendk3y7f3c9aThatLooksLikeNothing"
HEADER = "h3aderSecretOfTheBackend5521"
CLIENT = "cl13ntK3yThatIsAWordOfItsOwn"
SIGNING = "s1gn1ngS3cr3tOfTheServerItself0001"
SHARED = "sh4redS3cretOfTheTokensThatIsLongEnough"
BODY = "th3BodyOfAClientsRequest"
_ECHO = b'{"error":{"message":"the key %b of %b is wrong","code":"%b"},"detail":"%b","message":"bad %b"}'


def token(**claims: Any) -> str:
    return jwt.encode({"sub": "ann", "aud": "bridge", "exp": int(time.time()) + 3600, **claims}, SHARED, "HS256")


TOKEN = token()
EXPIRED = token(exp=1)


def config(url: str, port: int, folder: Path) -> dict[str, Any]:
    retry = {"retry": {"attempts": 2, "backoff": "1ms"}, "breaker": {"failures": 1_000_000}}
    more = {"api_key": BACKEND, "headers": {"x-internal-token": HEADER}, "max_event": "64KiB", **retry}
    backends: dict[str, Any] = {
        name: {
            "dialect": name,
            "url": f"{url}/{name}",
            "timeouts": {"first_event": "200ms", "idle": "200ms", "total": "500ms"},
            **more,
        }
        for name in SPEAKING
    }
    backends["agent-runs"]["options"] = {"reconnect": []}
    return {
        "server": {
            "port": port,
            "secret": SIGNING,
            "auth": {"keys": [{"name": "web", "key": CLIENT}], "jwt": {"secret": SHARED, "audience": "bridge"}},
        },
        "backends": backends,
        "routes": [{"dialect": name, "path": f"/{name}", "backend": name} for name in SPEAKING],
        "stores": {
            "history": f"sqlite:///{folder}/b.db", "runs": f"sqlite:///{folder}/b.db", "attachments": f"file:///{folder}/i"
        },
    }  # fmt: skip


async def _script(exchange: Exchange) -> None:
    """Which fault is meant stands in the request's id; without one the backend repeats what it was sent."""
    seen = exchange.seen
    name = seen.path.split("/")[1]
    if name == "agent-runs" and seen.method == "POST" and "fault" in seen.headers.get("x-request-id", ""):
        await queued(exchange)
        return
    fault = seen.headers.get("x-request-id", "").partition("fault-")[2]
    if fault:
        said = Said.of(name)
        said.heard.set()
        await FAULTS[int(fault)].play(exchange, said)
        return
    what = seen.headers.get("x-request-id", "").partition("echo-")[2]
    keys = [(seen.headers.get("authorization") or seen.headers.get("x-api-key", "")).encode(), HEADER.encode()]
    if what == "stream":
        await exchange.stream(_failing(name, f"{BACKEND} and {HEADER} are wrong"))
    else:
        await exchange.answer(int(what or 401), _ECHO % (keys[0], keys[1], BACKEND.encode(), keys[0], keys[1]))


def _failing(name: str, text: str) -> bytes:
    """A stream of the dialect that begins well and ends with an error of this text."""
    context = Context("r-echo", "t1", 0.0, registry.get(name).front_options())
    builder = context.builder()
    builder.flow(0, PartKind.TEXT, "Hello ")
    builder.fail(Failure(ErrorCode.BACKEND_ERROR, text))
    builder.end()
    encoder = registry.get(name).encoder(context)
    return sse.join(encoder.encode(builder.take()))


async def _conversation(base: str) -> list[Saw]:
    """Many failures: of keys, of bodies, of paths, of backends."""
    out = []
    for name in SPEAKING:
        wire = asking(registry.get(name), BODY, run="r-echo")
        mount = f"/{name}"
        for key in (CLIENT, TOKEN):
            for what in ("400", "401", "404", "422", "500", "503", "stream"):
                sent = {"authorization": f"Bearer {key}", "x-request-id": f"echo-{what}"}
                out.append(await exchange(base, raw(wire, mount, **sent)))
        for key in (EXPIRED, TOKEN + "x", CLIENT[:-1] + "?", "", "\t"):
            out.append(await exchange(base, raw(wire, mount, authorization=f"Bearer {key}")))
        for body in (b"", b'{"model": "' + BODY.encode(), b'{"messages": "' + BODY.encode() + b'"}'):
            wire.body = body
            out.append(await exchange(base, raw(wire, mount, **{"x-api-key": CLIENT})))
        wire.path += "/none"
        out.append(await exchange(base, raw(wire, mount, authorization=f"Bearer {CLIENT}")))
        out.append(await exchange(base, raw(wire, mount + f"?access_token={TOKEN}&api_key={CLIENT}")))
    for number in range(len(FAULTS)):
        for name in (SPEAKING[number % len(SPEAKING)],):
            wire = asking(registry.get(name), BODY, run=f"r-{number}")
            sent = {"authorization": f"Bearer {CLIENT}", "x-request-id": f"fault-{number}"}
            out.append(await exchange(base, raw(wire, f"/{name}", **sent)))
    # The answers to what is no HTTP repeat it to who sent it; the log must not.
    await exchange(
        base, f"GET /{TOKEN} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{CLIENT}: \0\r\n\r\n".encode()
    )
    await exchange(base, b"\x16\x03\x01" + TOKEN.encode() + b"\r\n\r\n")
    return out


@pytest.mark.parametrize(("level", "form"), [("info", "text"), ("debug", "json")])
async def test_nothing_secret_is_written_or_answered(level: str, form: str, tmp_path: Path) -> None:
    async with fake_backend() as backend:
        backend.plays(_script)
        port = free_port()
        options = ("--log-level", level, "--log-format", form)
        async with serving_process(tmp_path, port, config(backend.url, port, tmp_path), *options) as base:
            saw = await _conversation(base)
    written = (tmp_path / "log").read_bytes()
    answers = b"\n".join(s.body for s in saw)
    answers += "\n".join(f"{s.headers}" for s in saw).encode()
    assert len(saw) > 100
    assert any(s.status == 401 for s in saw)
    for secret in (BACKEND, HEADER, CLIENT, SIGNING, SHARED, TOKEN, EXPIRED):
        for text in (secret.encode(), base64.b64encode(secret.encode()).rstrip(b"="), secret[8:].encode()):
            assert text not in written, (secret, _around(written, text))
            assert text not in answers, (secret, _around(answers, text))
    assert BODY.encode() not in written, _around(written, BODY.encode())


def _around(where: bytes, text: bytes) -> bytes:
    place = where.index(text)
    return where[max(0, place - 300) : place + 100]
