"""The recipes for clouds, each against a server that checks requests as the cloud does.

The judges are the vendors' own SDKs: what they send for the same conversation is what the bridge sends, but for fields
that only one of them sets by default. Signatures are computed again by AWS's library from what arrived.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anthropic
import openai
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from openai.providers.bedrock import bedrock

from bridge.contract import Context
from bridge.dialects.anthropic_messages import dialect as claude
from bridge.dialects.anthropic_messages.options import BackOptions
from bridge.engine.bridge import Bridge
from bridge.engine.config import load, parse
from bridge.errors import ConfigError
from bridge.model import Message, Request, Text
from bridge.server import running
from bridge.testing import Exchange
from tests.docs.helpers import EXAMPLES
from tests.server.harness import FakeBackend, Reply, fake_backend, free_port, post

KEYS = ReadOnlyCredentials("AKIDEXAMPLE", "secret-key-of-aws", "session-token-1")
TOKEN = "token-of-the-cloud"
PROJECT = "my-project"
SYSTEM, HELLO = "Be brief.", "Hello"

CHAT = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [
    {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]}  # fmt: skip
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [
    {"index": 0, "delta": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]}  # fmt: skip
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "ok"}],
           "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip
MESSAGE_EVENTS = [
    {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
]
GEMINI = {"candidates": [{"content": {"role": "model", "parts": [{"text": "ok"}]}, "finishReason": "STOP"}]}
ITEM = {"id": "i", "type": "message", "role": "assistant", "status": "completed", "content": [
    {"type": "output_text", "text": "ok", "annotations": []}]}  # fmt: skip
RESPONSE = {"id": "r", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [ITEM]}
RESPONSE_EVENTS = [
    {"type": "response.created", "sequence_number": 0, "response": {**RESPONSE, "status": "in_progress", "output": []}},
    {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": {**ITEM, "content": []}},
    {"type": "response.content_part.added", "sequence_number": 2, "item_id": "i", "output_index": 0, "content_index": 0,
     "part": {"type": "output_text", "text": "", "annotations": []}},
    {"type": "response.output_text.delta", "sequence_number": 3, "item_id": "i", "output_index": 0, "content_index": 0,
     "delta": "ok"},
    {"type": "response.output_item.done", "sequence_number": 4, "output_index": 0, "item": ITEM},
    {"type": "response.completed", "sequence_number": 5, "response": RESPONSE},
]  # fmt: skip


def answering(whole: dict[str, Any], events: list[dict[str, Any]], end: bytes = b"") -> Callable[[Exchange], Any]:
    """A model that answers in one piece or by a stream, as it is asked."""

    async def answer(exchange: Exchange) -> None:
        body = json.loads(exchange.seen.body)
        if body.get("stream") or "stream" in exchange.seen.path:
            frames = [f"event: {e.get('type', 'message')}\ndata: {json.dumps(e)}\n\n".encode() for e in events]
            await exchange.stream(*frames, end)
        else:
            await exchange.answer(200, json.dumps(whole).encode())

    return answer


@asynccontextmanager
async def recipe(name: str, **variables: str) -> AsyncIterator[str]:
    """The bridge with this configuration of the examples."""
    path = EXAMPLES / "configs" / f"{name}.yaml"
    config = load(path, server={"host": "127.0.0.1", "port": free_port()}, env=variables)
    async with running(Bridge.of(config)) as port:
        yield f"http://127.0.0.1:{port}"


async def chat(url: str, model: str, stream: bool) -> Reply:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": HELLO}]
    body = {"model": model, "messages": messages, "stream": stream, "max_tokens": 99}
    reply = await post(f"{url}/v1/chat/completions", body)
    assert reply.status == 200, reply.body
    assert b'"ok"' in reply.body
    return reply


def said(seen: Any) -> tuple[str, str, Any]:
    """A request without `stream: false`, and without the wish for the tokens of a stream, which is the bridge's own."""
    body = json.loads(seen.body)
    body.pop("stream_options", None)
    if not body.get("stream"):
        body.pop("stream", None)
    return seen.method, seen.path, body


def checked_signature(model: FakeBackend, seen: Any, service: str, region: str) -> None:
    """Check a signature as AWS does; the key's scope names the service."""
    sent = seen.headers["authorization"]
    assert f"/{region}/{service}/aws4_request, " in sent
    signed = sent.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    assert {"host", "x-amz-date", "x-amz-security-token"} <= set(signed)
    request = AWSRequest(seen.method, f"{model.url}{seen.path}", {n: seen.headers[n] for n in signed}, seen.body)
    signer = SigV4Auth(KEYS, service, region)
    request.context["timestamp"] = seen.headers["x-amz-date"]
    text = signer.string_to_sign(request, signer.canonical_request(request))
    assert sent.endswith(f"Signature={signer.signature(text, request)}")


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"), KEYS, strict=False):
        monkeypatch.setenv(f"AWS_{name}", value)


def consumed(answer: Any, stream: bool) -> None:
    """Read an SDK's stream to its end."""
    if stream:
        for _ in answer:
            pass


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@both
@pytest.mark.usefixtures("aws")
async def test_openai_models_on_bedrock(stream: bool) -> None:
    """The endpoint `openai/v1` of bedrock-runtime (AWS, "Inference using the OpenAI APIs")."""
    async with fake_backend() as model, recipe("bedrock", BEDROCK_URL=model.url) as url:
        model.plays(answering(CHAT, [CHUNK], b"data: [DONE]\n\n"))
        await chat(url, "openai.gpt-oss-120b-1:0", stream)
        (ours,) = model.seen
        checked_signature(model, ours, "bedrock", "us-west-2")

        def judge() -> None:
            keys = {"access_key_id": KEYS[0], "secret_access_key": KEYS[1], "session_token": KEYS[2]}
            at = bedrock(endpoint="runtime", region="us-west-2", base_url=f"{model.url}/openai/v1", **keys)
            messages: Any = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": HELLO}]
            with openai.OpenAI(provider=at, max_retries=0) as client:
                asked = {"model": "openai.gpt-oss-120b-1:0", "messages": messages, "stream": stream}
                consumed(client.chat.completions.create(**asked, max_tokens=99), stream)

        await asyncio.to_thread(judge)
        theirs = model.seen[1]
        checked_signature(model, theirs, "bedrock", "us-west-2")
    assert (ours.method, ours.path) == ("POST", "/openai/v1/chat/completions")
    assert said(ours) == said(theirs)


@both
@pytest.mark.usefixtures("aws")
async def test_claude_on_bedrock(stream: bool) -> None:
    """The Messages API of bedrock-mantle (AWS, "Inference using Anthropic Messages API")."""
    async with fake_backend() as model, recipe("bedrock", BEDROCK_MANTLE_URL=model.url) as url:
        model.plays(answering(MESSAGE, MESSAGE_EVENTS))
        await chat(url, "anthropic.claude-haiku-4-5", stream)
        (ours,) = model.seen
        checked_signature(model, ours, "bedrock-mantle", "us-east-1")

        def judge() -> None:
            keys = {"aws_access_key": KEYS[0], "aws_secret_key": KEYS[1], "aws_session_token": KEYS[2]}
            at = {"aws_region": "us-east-1", "base_url": f"{model.url}/anthropic"}
            with anthropic.AnthropicBedrockMantle(**keys, **at, max_retries=0) as client:
                consumed(client.messages.create(**anthropic_call("anthropic.claude-haiku-4-5", stream)), stream)

        await asyncio.to_thread(judge)
        theirs = model.seen[1]
        checked_signature(model, theirs, "bedrock-mantle", "us-east-1")
    assert (ours.method, ours.path) == ("POST", "/anthropic/v1/messages")
    assert said(ours) == said(theirs)
    assert ours.headers["anthropic-version"] == "2023-06-01"
    assert "anthropic-version" in theirs.headers


def anthropic_call(model: str, stream: bool) -> dict[str, Any]:
    messages = [{"role": "user", "content": HELLO}]
    return {"model": model, "max_tokens": 99, "system": SYSTEM, "messages": messages, "stream": stream}


@pytest.fixture
def google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeBackend], None]:
    """Default credentials of Google whose tokens a server gives."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def use(issuer: FakeBackend) -> None:
        account = {"type": "service_account", "client_email": "a@b.example", "private_key": pem}
        (tmp_path / "key.json").write_text(json.dumps({**account, "token_uri": issuer.url}))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
        issuer.answers(200, json.dumps({"access_token": TOKEN, "expires_in": 3600}).encode())

    return use


@both
async def test_claude_on_vertex(google: Callable[[FakeBackend], None], stream: bool) -> None:
    """`rawPredict` and `streamRawPredict` (Google, "Request predictions with Claude models")."""
    async with (
        fake_backend() as issuer,
        fake_backend() as model,
        recipe("vertex", VERTEX_URL=model.url, GOOGLE_CLOUD_PROJECT=PROJECT) as url,
    ):
        google(issuer)
        model.plays(answering(MESSAGE, MESSAGE_EVENTS))
        await chat(url, "claude-haiku-4-5@20251001", stream)

        def judge() -> None:
            at = {"region": "global", "project_id": PROJECT, "access_token": TOKEN, "base_url": f"{model.url}/v1"}
            with anthropic.AnthropicVertex(**at, max_retries=0) as client:
                consumed(client.messages.create(**anthropic_call("claude-haiku-4-5@20251001", stream)), stream)

        await asyncio.to_thread(judge)
        ours, theirs = model.seen
    place = f"/v1/projects/{PROJECT}/locations/global/publishers/anthropic/models/claude-haiku-4-5@20251001"
    assert (ours.method, ours.path) == ("POST", f"{place}:{'streamRawPredict' if stream else 'rawPredict'}")
    assert ours.path == theirs.path
    assert ours.headers["authorization"] == theirs.headers["authorization"] == f"Bearer {TOKEN}"
    assert "anthropic-version" not in ours.headers
    assert "anthropic-version" not in theirs.headers
    (_, _, body), (_, _, wanted) = said(ours), said(theirs)
    assert body.pop("anthropic_version") == "vertex-2023-10-16"
    assert wanted.pop("anthropic_version")
    assert body == wanted
    assert "model" not in body


async def test_tokens_of_claude_on_vertex(google: Callable[[FakeBackend], None]) -> None:
    async with (
        fake_backend() as issuer,
        fake_backend() as model,
        recipe("vertex", VERTEX_URL=model.url, GOOGLE_CLOUD_PROJECT=PROJECT) as url,
    ):
        google(issuer)
        model.answers(200, b'{"input_tokens": 7}')
        call = anthropic_call("claude-haiku-4-5@20251001", False)
        counted = {key: call[key] for key in ("model", "system", "messages")}
        reply = await post(f"{url}/v1/messages/count_tokens", counted, anthropic_version="2023-06-01")
        assert reply.json["input_tokens"] == 7

        def judge() -> None:
            at = {"region": "global", "project_id": PROJECT, "access_token": TOKEN, "base_url": f"{model.url}/v1"}
            with anthropic.AnthropicVertex(**at, max_retries=0) as client:
                client.messages.count_tokens(**counted)

        await asyncio.to_thread(judge)
        ours, theirs = model.seen
    (_, path, body), (_, wanted_path, wanted) = said(ours), said(theirs)
    assert path == wanted_path
    assert {**body, "anthropic_version": ""} == {**wanted, "anthropic_version": ""}


@both
async def test_gemini_on_vertex(google: Callable[[FakeBackend], None], stream: bool) -> None:
    """`generateContent` and `streamGenerateContent` (Google, "Generate content with the Gemini API in Vertex AI")."""
    async with (
        fake_backend() as issuer,
        fake_backend() as model,
        recipe("vertex", VERTEX_URL=model.url, GOOGLE_CLOUD_PROJECT=PROJECT) as url,
    ):
        google(issuer)
        model.plays(answering(GEMINI, [GEMINI]))
        await chat(url, "gemini-2.5-flash", stream)
        (ours,) = model.seen
    place = f"/v1/projects/{PROJECT}/locations/global/publishers/google/models/gemini-2.5-flash"
    assert (ours.method, ours.path) == (
        "POST",
        f"{place}:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}",
    )
    assert ours.headers["authorization"] == f"Bearer {TOKEN}"
    assert "x-goog-api-key" not in ours.headers
    body = json.loads(ours.body)
    assert body["contents"] == [{"role": "user", "parts": [{"text": HELLO}]}]
    assert body["systemInstruction"]["parts"] == [{"text": SYSTEM}]
    assert body["generationConfig"]["maxOutputTokens"] == 99
    assert "model" not in body


@both
async def test_azure_openai_with_entra(monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    """The v1 API, without `api-version` (Microsoft, "Azure OpenAI v1 API")."""
    async with (
        fake_backend() as issuer,
        fake_backend() as model,
        recipe("azure", AZURE_OPENAI_ENDPOINT=model.url) as url,
    ):
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{issuer.url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "header")
        told = {"access_token": TOKEN, "expires_on": int(time.time()) + 9000}
        issuer.answers(200, json.dumps(told).encode())
        model.plays(answering(RESPONSE, RESPONSE_EVENTS))
        await chat(url, "my-deployment", stream)

        def judge() -> None:
            with openai.OpenAI(base_url=f"{model.url}/openai/v1", api_key=lambda: TOKEN, max_retries=0) as client:
                asked: dict[str, Any] = {"model": "my-deployment", "instructions": SYSTEM, "input": HELLO}
                consumed(client.responses.create(**asked, max_output_tokens=99, stream=stream), stream)

        await asyncio.to_thread(judge)
        ours, theirs = model.seen
    assert "resource=https://cognitiveservices.azure.com" in unquote(issuer.seen[-1].path)
    assert (ours.method, ours.path) == (theirs.method, theirs.path) == ("POST", "/openai/v1/responses")
    assert ours.headers["authorization"] == theirs.headers["authorization"] == f"Bearer {TOKEN}"
    assert "api-key" not in ours.headers
    (_, _, body), (_, _, wanted) = said(ours), said(theirs)
    assert {key: body[key] for key in ("model", "max_output_tokens")} == {
        key: wanted[key] for key in ("model", "max_output_tokens")
    }
    assert body.get("stream") == wanted.get("stream")
    assert SYSTEM in json.dumps(body)


def test_the_body_of_a_client_is_none_for_vertex() -> None:
    backend = {"dialect": "anthropic-messages", "url": "http://127.0.0.1:1", "options": {"endpoint": "vertex"}}
    route = {"dialect": "anthropic-messages", "path": "/v1", "backend": "it", "passthrough": True}
    with pytest.raises(ConfigError, match=r"routes\[0\].passthrough: cannot be used with .*: its options change"):
        parse({"backends": {"it": backend}, "routes": [route]})


def test_a_version_that_is_configured_is_that_of_the_body() -> None:
    context = Context("r", options=BackOptions(endpoint="vertex", version="2026-10-21"), model="m")
    wire = claude.encode_request(Request([Message("user", [Text(HELLO)])]), context)
    assert json.loads(wire.body)["anthropic_version"] == "2026-10-21"
