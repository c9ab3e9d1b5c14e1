"""Backends whose credentials expire: one fetch at a time, one more try after a 401, and no secret in a log."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials as Credentials
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from yarl import URL

from bridge.contract import WireRequest
from bridge.engine.config import parse
from bridge.errors import BackendError, ConfigError, ErrorCode
from bridge.run.backends.credentials import AwsSigner, CredentialsError, Token, TokenCommand, TokenCredentials, token_in
from bridge.run.backends.http_backend import HttpBackend
from bridge.testing import Exchange
from tests.server.harness import FakeBackend, fake_backend, post, serving

MESSAGE = {"role": "assistant", "content": "ok"}
CHOICE = {"index": 0, "message": MESSAGE, "finish_reason": "stop"}
ANSWER = {"id": "c", "object": "chat.completion", "model": "m", "choices": [CHOICE]}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
WIRE = WireRequest()
ADDRESS = URL("http://127.0.0.1")


@pytest.fixture(params=["aiohttp", "httptools"])
def http_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backends are called by each client in turn."""
    init, uses = HttpBackend.__init__, request.param == "httptools"
    monkeypatch.setattr(HttpBackend, "__init__", lambda self, *a, **more: init(self, *a, **{**more, "httptools": uses}))


@asynccontextmanager
async def bridge(model: FakeBackend, auth: Any) -> AsyncIterator[str]:
    config = {
        "backends": {"llm": {"dialect": "openai-chat", "url": f"{model.url}/v1", "auth": auth}},
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "llm"}],
    }
    async with serving(config) as base:
        yield f"{base}/v1/chat/completions"


def printing(folder: Path, *lines: str) -> dict[str, Any]:
    """A command that runs these lines of Python; each run leaves a line in the file `runs`."""
    script = folder / "token.py"
    head = f"import json, pathlib, sys, time\nruns = pathlib.Path({str(folder / 'runs')!r})\n"
    head += "number = len(runs.read_text().split()) + 1 if runs.exists() else 1\n"
    head += "runs.open('a').write('run\\n')\n"
    script.write_text(head + "\n".join(lines))
    return {"command": [sys.executable, str(script)]}


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().split())


@pytest.mark.usefixtures("http_client")
async def test_a_command_prints_the_token_of_many_requests(tmp_path: Path) -> None:
    async with fake_backend() as model, bridge(model, printing(tmp_path, "print('token-%d' % number)")) as url:
        model.answers(200, json.dumps(ANSWER).encode())
        replies = await asyncio.gather(*(post(url, CHAT) for _ in range(5)))
        await post(url, CHAT)
    assert [reply.status for reply in replies] == [200] * 5
    assert {seen.headers["authorization"] for seen in model.seen} == {"Bearer token-1"}
    assert runs(tmp_path) == 1


@pytest.mark.usefixtures("http_client")
async def test_a_401_is_answered_by_one_more_try_with_a_new_token(tmp_path: Path) -> None:
    async def refuses_the_first(exchange: Exchange) -> None:
        if exchange.seen.headers["authorization"] == "Bearer token-1":
            await exchange.answer(401, b'{"error": {"message": "expired: token-1"}}')
        else:
            await exchange.answer(200, json.dumps(ANSWER).encode())

    async with fake_backend() as model, bridge(model, printing(tmp_path, "print('token-%d' % number)")) as url:
        model.plays(refuses_the_first)
        assert (await post(url, CHAT)).status == 200
        assert (await post(url, CHAT)).status == 200
    sent = [seen.headers["authorization"] for seen in model.seen]
    assert sent == ["Bearer token-1", "Bearer token-2", "Bearer token-2"]
    assert model.seen[0].json == model.seen[1].json
    assert runs(tmp_path) == 2


async def test_a_token_that_is_refused_for_good_is_tried_once_more_only(tmp_path: Path) -> None:
    async with fake_backend() as model, bridge(model, printing(tmp_path, "print('token-%d' % number)")) as url:
        model.answers(401, b'{"error": {"message": "no"}}')
        reply = await post(url, CHAT)
        assert len(model.seen) == 2
        same = printing(tmp_path, "print('token-x')")
        async with bridge(model, same) as other:
            await post(other, CHAT)
        assert len(model.seen) == 3, "the same token is not sent twice"
    assert reply.status == 502
    assert "credentials" in reply.json["error"]["message"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("print('s3cr3t word')", "printed something that is no token"),
        ('print(\'{"password": "s3cr3t"}\')', "printed a JSON object without a token"),
        ("print('{s3cr3t')", "printed something that is no JSON object"),
        ("pass", "printed nothing"),
        ("print('s3cr3t'); print('s3cr3t', file=sys.stderr); sys.exit(3)", "ended with status 3"),
        ("print('s3cr3t' * 20000)", "printed more than 64 KiB"),
        ("print('s3cr3t', flush=True); time.sleep(60)", "did not end within 0.5 s"),
        ("print(json.dumps({'token': 's3cr3t', 'expires_in': 0}))", "gave a token that has expired"),
        ("print(json.dumps({'token': 's3cr3t', 'expires_at': 'soon s3cr3t'}))", "a time in expires_at"),
    ],
)
async def test_a_command_that_gives_no_token_is_a_clear_error_without_its_output(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str, words: str
) -> None:
    caplog.set_level(logging.DEBUG)
    auth = {**printing(tmp_path, line), "timeout": "500ms" if "sleep" in line else "20s"}
    async with fake_backend() as model, bridge(model, auth) as url:
        reply = await post(url, CHAT)
        again = await post(url, CHAT)
    assert (reply.status, again.status, model.seen) == (502, 502, [])
    assert "credentials" in reply.json["error"]["message"]
    assert words in caplog.text
    assert "s3cr3t" not in caplog.text + reply.body.decode()
    assert runs(tmp_path) == 1, "a failure is remembered for a moment"


async def test_a_command_that_is_not_there_is_a_clear_error(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_backend() as model, bridge(model, {"command": "/no/such/program --key s3cr3t"}) as url:
        assert (await post(url, CHAT)).status == 502
    assert "(program) cannot be started: FileNotFoundError" in caplog.text
    assert "s3cr3t" not in caplog.text


async def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    lines = [
        "import subprocess",
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(2); open({str(mark)!r}, \"w\")'])",
        "time.sleep(60)",
    ]
    auth = {**printing(tmp_path, *lines), "timeout": "700ms"}
    command = TokenCommand(tuple(auth["command"]), 0.7)
    with pytest.raises(CredentialsError):
        await command()
    await asyncio.sleep(2)
    assert not mark.exists()


# ------------------------------------------------------------------ tokens


class Source:
    """Gives numbered tokens that live so long; `waits` holds it back, `fails` lets it fail."""

    def __init__(self, life: float = 1000.0) -> None:
        self.life = life
        self.calls = 0
        self.waits: asyncio.Event | None = None
        self.fails = False

    async def __call__(self) -> Token:
        self.calls += 1
        number = self.calls
        if self.waits is not None:
            await self.waits.wait()
        if self.fails:
            raise CredentialsError("failed")
        return Token(f"token-{number}", time.time() + self.life)


async def sent(tokens: TokenCredentials) -> str:
    (value,) = (await tokens.headers(WIRE, ADDRESS)).values()
    return value


async def test_requests_at_once_wait_for_one_token() -> None:
    source = Source()
    source.waits = asyncio.Event()
    tokens = TokenCredentials(source)
    asking = [asyncio.ensure_future(sent(tokens)) for _ in range(4)]
    await asyncio.sleep(0)
    asking[0].cancel()
    await asyncio.sleep(0)
    source.waits.set()
    assert await asyncio.gather(*asking[1:]) == ["Bearer token-1"] * 3
    assert source.calls == 1


async def test_a_token_is_renewed_before_it_expires_while_requests_go_on_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, tokens = Source(life=100.0), None
    tokens = TokenCredentials(source)
    assert await sent(tokens) == "Bearer token-1"
    now = time.time()
    monkeypatch.setattr("bridge.run.backends.credentials.time.time", lambda: now + 85)
    source.fails = True
    assert await sent(tokens) == "Bearer token-1"
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert source.calls == 2
    assert await sent(tokens) == "Bearer token-1", "a source that fails does not matter while the token is valid"
    monkeypatch.setattr("bridge.run.backends.credentials.time.time", lambda: now + 101)
    with pytest.raises(BackendError) as failed:
        await sent(tokens)
    assert failed.value.failure.code is ErrorCode.BACKEND_AUTH


async def test_a_token_that_was_renewed_for_another_request_is_not_renewed_again() -> None:
    source = Source()
    tokens = TokenCredentials(source, "x-key")
    wires = [WireRequest(headers=await tokens.headers(WIRE, ADDRESS)) for _ in range(2)]
    assert wires[0].headers == {"x-key": "token-1"}
    assert [await tokens.renew(wire) for wire in wires] == [True, True]
    assert source.calls == 2
    await tokens.close()


@pytest.mark.parametrize(
    ("printed", "seconds"),
    [
        ("abc\n", 600),
        ('{"token": "abc"}', 600),
        ('{"access_token": "abc", "expires_in": 3599}', 3599),
        ('{"accessToken": "abc", "expiresOn": "ignored", "expires_on": 0}', None),
        ('{"status": {"token": "abc", "expirationTimestamp": "AT"}}', 1800),
        ('{"credential": {"access_token": "abc", "token_expiry": "AT"}}', 1800),
        ('{"token": "abc", "expires_at": UNIX}', 1800),
        ('{"token": "abc", "expires_at": "UNIX"}', 1800),
    ],
)
def test_what_commands_print_is_read(printed: str, seconds: float | None) -> None:
    at = datetime.now(UTC) + timedelta(seconds=1800)
    text = printed.replace("AT", at.strftime("%Y-%m-%dT%H:%M:%SZ")).replace("UNIX", str(int(at.timestamp())))
    token = token_in(text.encode())
    assert token.value == "abc"
    assert seconds is None or abs(token.expires - time.time() - seconds) < 5


# ------------------------------------------------------------------ clouds


async def test_google_gives_tokens_by_its_default_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_backend() as issuer, fake_backend() as model:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        account = {
            "type": "service_account",
            "client_email": "a@b.example",
            "private_key": pem,
            "token_uri": issuer.url,
        }
        (tmp_path / "key.json").write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
        issuer.answers(200, b'{"access_token": "google-token", "expires_in": 3600}')
        model.answers(200, json.dumps(ANSWER).encode())
        async with bridge(model, "gcp") as url:
            assert [(await post(url, CHAT)).status for _ in range(2)] == [200, 200]
        assert {seen.headers["authorization"] for seen in model.seen} == {"Bearer google-token"}
        (asked,) = issuer.seen
        assert b"assertion=" in asked.body


async def test_azure_gives_tokens_by_its_default_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_backend() as issuer, fake_backend() as model:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{issuer.url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "header")
        issuer.answers(200, json.dumps({"access_token": "azure-token", "expires_on": int(time.time()) + 9000}).encode())
        model.answers(200, json.dumps(ANSWER).encode())
        async with bridge(model, "azure") as url:
            assert [(await post(url, CHAT)).status for _ in range(2)] == [200, 200]
        assert {seen.headers["authorization"] for seen in model.seen} == {"Bearer azure-token"}
        assert "resource=https://cognitiveservices.azure.com" in unquote(issuer.seen[-1].path)


async def test_a_cloud_that_gives_no_token_is_a_clear_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with fake_backend() as issuer, fake_backend() as model:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{issuer.url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "header")
        issuer.answers(400, b'{"error": "s3cr3t"}')
        async with bridge(model, "azure") as url:
            reply = await post(url, CHAT)
    assert (reply.status, model.seen) == (502, [])
    assert "s3cr3t" not in reply.body.decode()
    assert "the source failed: " in caplog.text


@pytest.mark.usefixtures("http_client")
async def test_requests_to_aws_are_signed_as_they_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signature is computed again from what arrived, as the service does."""
    keys = Credentials("AKIDEXAMPLE", "secret-key-of-aws", "session-token-1")
    for name, value in zip(("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"), keys, strict=False):
        monkeypatch.setenv(f"AWS_{name}", value)
    async with fake_backend() as model:
        model.answers(200, json.dumps(ANSWER).encode())
        async with bridge(model, {"aws": {"region": "us-west-2"}}) as url:
            assert (await post(url, CHAT)).status == 200
        (seen,) = model.seen
        sent = seen.headers["authorization"]
        signed = sent.partition("SignedHeaders=")[2].partition(",")[0].split(";")
        assert {"host", "x-amz-date", "x-amz-security-token"} <= set(signed)
        given = {name: seen.headers[name] for name in signed}
        request = AWSRequest("POST", f"{model.url}{seen.path}", given, seen.body)
        signer = SigV4Auth(keys, "bedrock", "us-west-2")
        request.context["timestamp"] = seen.headers["x-amz-date"]
        text = signer.string_to_sign(request, signer.canonical_request(request))
        assert sent.endswith(f"Signature={signer.signature(text, request)}")


EXPIRED = {"x_amzn_errortype": "ExpiredTokenException:http://internal.amazon.example/coral/"}


@pytest.mark.usefixtures("http_client")
@pytest.mark.parametrize(
    ("headers", "renewed", "tries"),
    [
        (EXPIRED, True, 2),
        ({}, True, 2),
        (EXPIRED, False, 1),
        ({"x_amzn_errortype": "AccessDeniedException"}, True, 1),
    ],
    ids=["expired", "no kind", "the same keys", "no rights"],
)
async def test_keys_of_aws_that_expired_are_looked_for_anew(
    monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], renewed: bool, tries: int
) -> None:
    for name, value in {"ACCESS_KEY_ID": "AKIDFIRST", "SECRET_ACCESS_KEY": "s", "SESSION_TOKEN": "token-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)

    async def refuses_the_first(exchange: Exchange) -> None:
        if "Credential=AKIDFIRST/" in exchange.seen.headers["authorization"]:
            if renewed:  # as a file of credentials that another program renews
                monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDSECOND")
                monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
            said = b'{"message": "The security token included in the request is expired"}'
            await exchange.answer(403, said, **headers)
        else:
            assert "x-amz-security-token" not in exchange.seen.headers, "of the former keys"
            await exchange.answer(200, json.dumps(ANSWER).encode())

    async with fake_backend() as model, bridge(model, {"aws": {"region": "us-west-2"}}) as url:
        model.plays(refuses_the_first)
        reply = await post(url, CHAT)
        assert (reply.status, len(model.seen)) == (200 if tries == 2 else 502, tries)
        assert "token-1" not in reply.body.decode()
        assert (await post(url, CHAT)).status == reply.status
        assert len(model.seen) == tries + 1, "with the keys of the last time"


async def test_keys_that_expired_are_looked_for_once_by_requests_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDFIRST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    signer, address = AwsSigner(None, "us-west-2", ADDRESS), URL("http://127.0.0.1/v1")
    wires = [WireRequest("POST", "/v1", dict(await signer.headers(WireRequest(), address))) for _ in range(3)]
    assert not await signer.renew(wires[0]), "there are no other keys"
    sessions = []
    monkeypatch.setattr(signer, "_new_session", lambda made=signer._new_session: sessions.append(1) or made())
    monkeypatch.setattr(signer, "_not_before", 0.0)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDSECOND")
    assert await asyncio.gather(*map(signer.renew, wires)) == [True] * 3
    assert len(sessions) == 1


def test_the_region_of_a_signature_is_that_of_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "")
    signer = AwsSigner(None, None, URL("https://bedrock-runtime.eu-central-1.amazonaws.com/openai/v1"))
    assert (signer.region, signer.service) == ("eu-central-1", "bedrock")
    signer = AwsSigner(None, None, URL("https://bedrock-mantle.us-east-1.api.aws/anthropic"))
    assert (signer.region, signer.service) == ("us-east-1", "bedrock-mantle")
    with pytest.raises(ConfigError, match="region"):
        AwsSigner("bedrock", None, ADDRESS)


# ------------------------------------------------------------------ the configuration


def configured(auth: Any, **more: Any) -> Any:
    backend = {"dialect": "openai-chat", "url": "http://127.0.0.1:1", "auth": auth, **more}
    return parse(
        {"backends": {"llm": backend}, "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "llm"}]}
    )


def test_the_forms_of_auth() -> None:
    assert configured({"command": "gcloud auth print-access-token"}).backends["llm"].auth.command == (
        "gcloud", "auth", "print-access-token",
    )  # fmt: skip
    assert configured("gcp").backends["llm"].auth.gcp.scope.endswith("cloud-platform")
    assert configured({"aws": {"region": "us-west-2"}}).backends["llm"].auth.aws.region == "us-west-2"


@pytest.mark.parametrize(
    ("auth", "more", "words"),
    [
        ({}, {}, "exactly one of command, gcp, azure and aws"),
        ({"command": ["a"], "gcp": {}}, {}, "exactly one of command, gcp, azure and aws"),
        ("other", {}, "auth"),
        ({"command": ["a"]}, {"api_key": "k"}, "either auth or api_key"),
        ({"command": ["a"]}, {"dialect": "demo", "url": None}, "takes none"),
    ],
)
def test_what_is_no_auth_is_refused(auth: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        configured(auth, **more)
