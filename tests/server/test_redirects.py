"""Where a backend is, as whom it is called and with which headers: the configuration's word, never a client's."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import orjson
import pytest

from bridge import Message, Request, Text
from bridge.contract import Context, Dialect, Losses, SteppedRunDialect, WireRequest, registry
from bridge.translation.policies.forbidden_fields import redirects, without_redirects
from tests.docs.tables import dialects
from tests.server.harness import Exchange, ask, fake_backend, serving

BOTH = [d for d in map(registry.get, dialects()) if d.served and d.called]
SPEAKING = [d.name for d in BOTH if d.framing == "sse"]
ATTENDED = [name for name in SPEAKING if name != "agent-runs"]  # those whose run is one POST
PASSED_THROUGH = [name for name in ATTENDED if not isinstance(registry.get(name), SteppedRunDialect)]
MODES = [*((name, False) for name in ATTENDED), *((name, True) for name in PASSED_THROUGH)]
OURS = {"content-type", "accept", "accept-encoding", "user-agent", "host", "content-length", "x-request-id"}
KEYS = {"authorization", "x-api-key", "x-goog-api-key"}
TO_CLIENTS = {
    "content-type", "content-length", "transfer-encoding", "date", "server", "x-request-id", "x-bridge-lost",
    "request-id", "cache-control", "x-accel-buffering", "retry-after", "x-vercel-ai-ui-message-stream", "connection",
    "vary",
}  # fmt: skip


def setup(name: str, url: str, **route: Any) -> dict[str, Any]:
    return {
        "backends": {"it": {"dialect": name, "url": url, "api_key": "backend-key"}},
        "routes": [{"dialect": name, "path": "/it", "backend": "it", **route}],
    }


def asking(front: Dialect, stream: bool = True) -> WireRequest:
    asked = Request([Message("user", [Text("hi")], id="m1")], model="m", thread_id="t1", run_id="r1", stream=stream)
    wire = front.encode_request(asked, Context("run", "t1", 0.0, front.back_options(), "m", asked))
    wire.path = "/it" + front.example_request("hi", stream).target
    return wire


def cheating(wire: WireRequest, evil: str) -> WireRequest:
    """The request with every way that we know of to name another target."""
    fields = {
        "api_base": evil,
        "base_url": evil,
        "apiBase": evil,
        "azure_endpoint": evil,
        "api_key": "evil-key",
        "apiKey": "evil-key",
        "extra_headers": {"authorization": "evil-key"},
        "headers": {"x-evil": "evil-key"},
        "extra_body": {"api_base": evil},
        "fallbacks": [{"model": "m", "api_base": evil}],
        "aws_session_token": "evil-key",
        "user_config": {"model_list": [{"litellm_params": {"api_base": evil}}]},
    }
    body = orjson.loads(wire.body)
    props = body.get("forwardedProps")
    more = {"forwardedProps": {**props, **fields, "kept_prop": 1}} if isinstance(props, dict) else {}
    wire.body = orjson.dumps({**body, **more, **fields, "kept_field": "stays"})
    return wire


@pytest.mark.parametrize("name", ATTENDED)
async def test_fields_that_redirect_are_neither_followed_nor_handed_on(name: str) -> None:
    async with fake_backend(name) as backend, fake_backend() as evil, serving(setup(name, backend.url)) as base:
        backend.says("Hello")
        plain = asking(registry.get(name))
        bare = {**orjson.loads(plain.body), "kept_field": "stays"}
        await ask("POST", base + plain.path, orjson.dumps(bare), plain.headers)
        wire = cheating(asking(registry.get(name)), evil.url)
        reply = await ask("POST", base + wire.path, wire.body, wire.headers)
        assert (reply.status, evil.connections) == (200, 0)
        first, second = (seen for seen in backend.seen if seen.method == "POST")
        before, after = first.body, second.body
        assert str(evil.port).encode() not in after
        assert b"evil" not in after
        # What is unknown and harmless travels as it does without them.
        assert (b"kept_field" in after) is (b"kept_field" in before)
        # Fields beside those of JSON-RPC are nobody's.
        assert name == "a2a" or "extras" in reply.headers["x-bridge-lost"].split(",")
        assert {k: v for k, v in second.headers.items() if k in KEYS} == {
            k: v for k, v in first.headers.items() if k in KEYS
        }


@pytest.mark.parametrize("name", PASSED_THROUGH)
async def test_a_passthrough_route_hands_them_on_and_follows_none(name: str) -> None:
    async with (
        fake_backend(name) as backend,
        fake_backend() as evil,
        serving(setup(name, backend.url, passthrough=True)) as base,
    ):
        backend.says("Hello")
        wire = cheating(asking(registry.get(name)), evil.url)
        reply = await ask("POST", base + wire.path, wire.body, wire.headers)
        assert (reply.status, evil.connections) == (200, 0)
        assert backend.seen[0].body == wire.body


async def test_questions_beside_runs_carry_none_either() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer(200, b'{"input_tokens":7}')

    async with fake_backend() as backend, serving(setup("anthropic-messages", backend.url)) as base:
        backend.plays(script)
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "api_base": "http://evil.example"}
        headers = {"content-type": "application/json"}
        reply = await ask("POST", f"{base}/it/messages/count_tokens", orjson.dumps(body), headers)
        assert reply.json == {"input_tokens": 7}
        assert b"evil" not in backend.seen[0].body


@pytest.mark.parametrize("name", ["apiBase", "api-key", "BASE_URL", "extraHeaders", "x"])
def test_names_are_known_in_every_spelling(name: str) -> None:
    assert redirects(name) is (name != "x")


def test_a_request_without_them_stays_itself() -> None:
    request = Request([], extras={"openai-chat": {"top_k": 3, "tools": {"headers": 1}}})
    assert without_redirects(request, Losses()) is request


def test_names_are_told_and_values_are_not() -> None:
    lost = Losses()
    without_redirects(Request([], extras={"x": {"api_key": "evil-key", "api_base": "http://evil"}}), lost)
    (told,) = lost.details.values()
    assert told.startswith("api_base, api_key:")
    assert "evil" not in told


# ---------------------------------------------------------------------- headers


SENT = {
    "authorization": "Bearer client-key",
    "x-api-key": "client-key",
    "api-key": "client-key",
    "cookie": "client=1",
    "x-forwarded-for": "203.0.113.1",
    "x-forwarded-host": "evil.example",
    "forwarded": "for=203.0.113.1",
    "x-real-ip": "203.0.113.1",
    "proxy-authorization": "Basic client",
    "openai-organization": "client-org",
    "x-goog-api-key": "client-key",
    "traceparent": "00-1-1-00",
    "x-whatever": "client",
    "user-agent": "client/1",
    "referer": "http://client.example",
    "origin": "http://client.example",
}


@pytest.mark.parametrize(("name", "passthrough"), MODES)
async def test_headers_to_backends_are_ours_alone(name: str, passthrough: bool) -> None:
    front = registry.get(name)
    async with fake_backend(name) as backend, serving(setup(name, backend.url, passthrough=passthrough)) as base:
        backend.says("Hello")
        wire = asking(front)
        reply = await ask("POST", base + wire.path, wire.body, {**wire.headers, **SENT})
        assert reply.status == 200
    for seen in backend.seen:
        assert seen.headers.keys() <= OURS | KEYS | set(front.own_headers)
        assert seen.headers["user-agent"] == "dialect-bridge"
        assert seen.headers["host"] == f"127.0.0.1:{backend.port}"
        assert "client" not in " ".join(seen.headers.values())
    (seen,) = (seen for seen in backend.seen if seen.method == "POST")
    assert seen.path.partition("?")[2] == urlencode(front.example_request("hi").query)


@pytest.mark.parametrize(("name", "passthrough"), MODES)
@pytest.mark.parametrize("status", [200, 429])
async def test_headers_to_clients_are_ours_alone(name: str, status: int, passthrough: bool) -> None:
    async def script(exchange: Exchange) -> None:
        more = {"set_cookie": "backend=1", "x_internal": "backend", "server": "backend/1", "via": "1.1 backend"}
        if status == 200:
            await exchange.head(**more)
            await exchange.send(said)
            await exchange.end()
        else:
            await exchange.answer(status, b'{"error":{"message":"slow"}}', retry_after="3", **more)

    async with fake_backend(name) as speaking:
        speaking.says("Hello")
        wire = asking(registry.get(name))
        said = (await ask("POST", speaking.url + wire.path, wire.body, wire.headers)).body
    async with fake_backend() as backend, serving(setup(name, backend.url, passthrough=passthrough)) as base:
        backend.plays(script)
        reply = await ask("POST", base + wire.path, wire.body, wire.headers)
    assert reply.headers.keys() <= TO_CLIENTS
    assert "backend" not in " ".join(reply.headers.values())
    assert reply.headers["server"] == "dialect-bridge"
